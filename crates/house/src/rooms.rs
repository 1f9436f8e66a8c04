//! Rooms: folders or files within one crate, and which of the others each may import.
//!
//! Vocabulary: a room is named by the path of its module. A module belongs to the longest name that its path begins
//! with; what fits none belongs to the crate's root, which may import everything and which nothing may import.

/// A room of a crate, and the rooms that it may import besides itself.
pub struct Room {
    pub krate: &'static str,
    pub name: &'static str,
    pub imports: &'static [&'static str],
}

const fn mon(name: &'static str, imports: &'static [&'static str]) -> Room {
    Room {
        krate: "mon",
        name,
        imports,
    }
}

const fn pg(name: &'static str, imports: &'static [&'static str]) -> Room {
    Room {
        krate: "pg",
        name,
        imports,
    }
}

/// What every family of commands may import. Families are not among it: what two of them need is a view, a check, or
/// part of the language.
const BELOW_FAMILIES: &[&str] = &[
    "format",
    "policies",
    "commands::command",
    "commands::context",
    "commands::spec",
    "commands::language",
    "commands::views",
    "commands::checks",
];

/// From the bottom up.
pub const ROOMS: &[Room] = &[
    pg("broken", &[]),
    pg("stored", &[]),
    // The store as the shell gives it.
    pg("store", &["stored"]),
    pg("state::intervals", &[]),
    pg("coding", &[]),
    pg("pool", &["state::intervals", "coding"]),
    pg("client", &["pool"]),
    pg(
        "state",
        &["broken", "stored", "store", "state::intervals", "pool"],
    ),
    // Pure: no store, no other OSD, no client's place in a queue.
    pg("exec::gathered", &["stored"]),
    pg(
        "exec",
        &[
            "broken",
            "stored",
            "pool",
            "client",
            "state",
            "state::intervals",
            "exec::gathered",
        ],
    ),
    // What goes in and comes out names what the rooms speak of.
    pg(
        "api",
        &[
            "stored",
            "store",
            "pool",
            "client",
            "state",
            "state::intervals",
            "exec",
            "backend",
        ],
    ),
    // No client, no turn, no scrub: what they want of those they ask of traits of their own.
    pg(
        "backend",
        &[
            "stored",
            "store",
            "state",
            "state::intervals",
            "api",
            "exec::gathered",
            "backend::replicated",
        ],
    ),
    // Shards, and who leads a PG over them.
    pg(
        "backend::erasure",
        &[
            "coding",
            "broken",
            "stored",
            "store",
            "state",
            "state::intervals",
            "api",
            "exec::gathered",
            "backend",
        ],
    ),
    pg(
        "backend::replicated",
        &[
            "broken",
            "stored",
            "store",
            "state",
            "state::intervals",
            "api",
            "exec::gathered",
            "backend",
            "backend::erasure",
        ],
    ),
    // Sees of a back end its trait, and what a member may show.
    pg(
        "front",
        &[
            "broken",
            "stored",
            "store",
            "pool",
            "client",
            "state",
            "state::intervals",
            "exec",
            "exec::gathered",
            "api",
            "backend",
            "backend::replicated",
            "pg",
        ],
    ),
    pg("probe", &["api", "backend"]),
    pg(
        "scrub",
        &[
            "broken",
            "stored",
            "store",
            "state",
            "state::intervals",
            "exec",
            "api",
            "backend",
            "backend::replicated",
            "front",
            "probe",
            "pg",
        ],
    ),
    // Joins the rooms.
    pg(
        "pg",
        &[
            "broken",
            "stored",
            "store",
            "pool",
            "state",
            "state::intervals",
            "exec",
            "api",
            "backend",
            "backend::erasure",
            "backend::replicated",
            "front",
            "scrub",
            "count",
            "trim",
        ],
    ),
    pg(
        "trim",
        &[
            "stored",
            "store",
            "pool",
            "state",
            "state::intervals",
            "api",
            "count",
            "pg",
        ],
    ),
    pg("count", &["stored", "store", "state", "state::intervals", "api"]),
    mon("format", &[]),
    mon("policies", &["format"]),
    mon("commands::command", &["format"]),
    mon("commands::context", &["policies"]),
    mon("commands::spec", &["commands::command", "commands::context"]),
    mon("commands::language", &["commands::command", "commands::spec"]),
    mon(
        "commands::views",
        &["format", "policies", "commands::command", "commands::context"],
    ),
    mon(
        "commands::checks",
        &["format", "policies", "commands::context", "commands::views"],
    ),
    mon("commands::auth", BELOW_FAMILIES),
    mon("commands::cluster", BELOW_FAMILIES),
    mon("commands::config", BELOW_FAMILIES),
    mon("commands::crush", BELOW_FAMILIES),
    mon("commands::doctor", BELOW_FAMILIES),
    mon("commands::fs", BELOW_FAMILIES),
    mon("commands::health", BELOW_FAMILIES),
    mon("commands::modules", BELOW_FAMILIES),
    mon("commands::osd", BELOW_FAMILIES),
    mon("commands::pg", BELOW_FAMILIES),
    mon("commands::pool", BELOW_FAMILIES),
    mon("commands::qos", BELOW_FAMILIES),
    mon(
        "commands::table",
        &[
            "format",
            "commands::command",
            "commands::context",
            "commands::spec",
            "commands::language",
            "commands::auth",
            "commands::cluster",
            "commands::config",
            "commands::crush",
            "commands::doctor",
            "commands::fs",
            "commands::health",
            "commands::modules",
            "commands::osd",
            "commands::pg",
            "commands::pool",
            "commands::qos",
        ],
    ),
    // The entrance: what it asks of families it takes from the table, but for the answer to a ping, and the arguments of one
    // module's commands and what has to be looked up for them.
    mon(
        "commands",
        &[
            "format",
            "policies",
            "commands::command",
            "commands::context",
            "commands::spec",
            "commands::language",
            "commands::checks",
            "commands::cluster",
            "commands::modules",
            "commands::qos",
            "commands::table",
        ],
    ),
    mon(
        "shell",
        &[
            "format",
            "policies",
            "commands",
            "commands::command",
            "commands::context",
        ],
    ),
];

/// The crates that have rooms.
pub fn crates() -> Vec<&'static str> {
    let mut all: Vec<&str> = ROOMS.iter().map(|r| r.krate).collect();
    all.dedup();
    all
}

/// The room of a module, by the longest name; None is the crate's root.
pub fn room_of(krate: &str, module: &str) -> Option<&'static Room> {
    let holds = |r: &&Room| {
        let rest = module.strip_prefix(r.name);
        r.krate == krate && rest.is_some_and(|r| r.is_empty() || r.starts_with("::"))
    };
    ROOMS.iter().filter(holds).max_by_key(|r| r.name.len())
}
