//! The table of commands: signature, help, permission, flags and function of each. The parser, the
//! descriptions for the `ceph` program, the permission check, the dispatch and the documentation all read it.
//!
//! It is kept in parts, one beside the functions of each family; [`FAMILIES`] is all of it. Commands that are
//! listed but not built refuse with EOPNOTSUPP; commands that are not listed do not exist.

use super::{Command, Context, Outcome, signature};
use ::auth::Access;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

pub type Handler = fn(&Command, &Context<'_>) -> Outcome;

/// Bits of [`Spec::flags`], as the `ceph` program knows them. Bit 8 ("send it to the manager") is never set:
/// the monitor answers everything itself.
pub const NOFORWARD: u32 = 1;
pub const DEPRECATED: u32 = 4;
pub const HIDDEN: u32 = 32;

pub struct Spec {
    /// See [`signature`].
    pub sig: &'static str,
    pub help: &'static str,
    pub module: &'static str,
    pub perm: &'static str,
    pub flags: u32,
    /// Set for what Ceph's manager answers: "" for the manager itself, else the name of its module.
    pub manager: Option<&'static str>,
    /// Reads, and its answer holds a secret.
    pub shows_secrets: bool,
    /// An argument that holds a secret; "" if none does.
    pub secret_arg: &'static str,
    pub run: Handler,
}

impl Spec {
    pub fn access(&self) -> Access {
        let one = |c: char, access| {
            if self.perm.contains(c) {
                access
            } else {
                Access::NONE
            }
        };
        one('r', Access::R) | one('w', Access::W) | one('x', Access::X)
    }

    pub const fn flagged(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    pub const fn showing_secrets(mut self) -> Self {
        self.shows_secrets = true;
        self
    }

    pub const fn hiding(mut self, arg: &'static str) -> Self {
        self.secret_arg = arg;
        self
    }

    /// A command of the manager (`module` ""), or of one of its modules: at the manager's doors `mgr` capabilities
    /// are enough for it. Everything else needs the monitor's there, too.
    pub const fn by_manager(mut self, module: &'static str) -> Self {
        self.manager = Some(module);
        self
    }
}

/// `need` is module and permission: `"osd rw"`.
pub const fn spec(
    need: (&'static str, &'static str),
    sig: &'static str,
    help: &'static str,
    run: Handler,
) -> Spec {
    Spec {
        sig,
        help,
        module: need.0,
        perm: need.1,
        flags: 0,
        manager: None,
        shows_secrets: false,
        secret_arg: "",
        run,
    }
}

/// A command of the real thing that is listed only to be refused in clear words.
pub const fn later(need: (&'static str, &'static str), sig: &'static str) -> Spec {
    spec(need, sig, "not built in skep yet", not_built)
}

fn not_built(cmd: &Command, _: &Context<'_>) -> Outcome {
    Outcome::not_built(&format!("'{}'", cmd.prefix))
}

/// Families in the order of the documentation.
pub static FAMILIES: [(&str, &[Spec]); 24] = [
    ("Cluster", super::cluster::TABLE),
    ("Health", super::health::TABLE),
    ("What waits, and for what", super::doctor::TABLE),
    ("Monitors", super::monitor::TABLE),
    ("Manager", super::manager::TABLE),
    ("OSDs", super::osd_read::TABLE),
    ("OSDs: changes", super::osd_change::TABLE),
    ("OSDs: weights", super::osd_weights::TABLE),
    ("OSDs: safety", super::osd_safety::TABLE),
    ("OSDs: flags", super::osd_flags::TABLE),
    ("Blocklist", super::blocklist::TABLE),
    ("CRUSH", super::crush_read::TABLE),
    ("CRUSH: changes", super::crush_change::TABLE),
    ("CRUSH: device classes", super::crush_class::TABLE),
    ("Pools", super::pool::TABLE),
    ("Pools: use", super::pool_use::TABLE),
    ("Placement groups", super::pg::TABLE),
    ("Placement groups: by hand", super::upmap::TABLE),
    ("Scrub", super::scrub::TABLE),
    ("Configuration", super::config::TABLE),
    ("Keys and values", super::config_key::TABLE),
    ("Authentication", super::auth::TABLE),
    ("File systems", super::fs::TABLE),
    ("Manager modules", super::modules::TABLE),
];

pub fn all() -> impl Iterator<Item = &'static Spec> {
    FAMILIES.iter().flat_map(|(_, specs)| specs.iter())
}

static BY_PREFIX: LazyLock<BTreeMap<String, Vec<&'static Spec>>> = LazyLock::new(|| {
    let mut map: BTreeMap<String, Vec<&'static Spec>> = BTreeMap::new();
    for s in all() {
        map.entry(signature::prefix(s.sig)).or_default().push(s);
    }
    map
});

pub fn find(prefix: &str) -> Option<&'static Spec> {
    BY_PREFIX.get(prefix)?.first().copied()
}

/// All signatures with this prefix; a few commands have two.
pub fn all_named(prefix: &str) -> &'static [&'static Spec] {
    BY_PREFIX.get(prefix).map_or(&[], Vec::as_slice)
}

/// What `get_command_descriptions` answers.
pub fn descriptions() -> Value {
    let mut out = Map::new();
    // Not listed by the real one either.
    let listed = all().filter(|s| s.sig != "get_command_descriptions");
    for (i, s) in listed.enumerate() {
        let one = json!({
            "sig": signature::describe(s.sig),
            "help": s.help,
            "module": s.module,
            "perm": s.perm,
            "flags": s.flags,
        });
        out.insert(format!("cmd{i:03}"), one);
    }
    Value::Object(out)
}

/// The reference for docs/operating/commands.md.
#[cfg(test)]
pub fn markdown() -> String {
    let mut out = String::from(
        "# Commands\n\n<!-- Generated from the table in crates/mon/src/commands (test `reference_is_current`). -->\n\n\
         What `ceph` can ask of Skep. `NAME?` is optional, `NAME*` takes several values. The permission is what the\n\
         caller's monitor capability must allow. At the manager's address (MGR_COMMAND, `ceph tell mgr`) commands marked\n\
         \"manager\" need it of the `mgr` capability alone, with the module if one is named; all others of both. Commands\n\
         marked \"not built\" refuse with EOPNOTSUPP.\n",
    );
    for (family, specs) in &FAMILIES {
        out.push_str(&format!(
            "\n## {family}\n\n| command | does | needs |\n|---|---|---|\n"
        ));
        for s in specs.iter().filter(|s| s.flags & HIDDEN == 0) {
            let sig = s.sig.replace('|', "\\|");
            let old = if s.flags & DEPRECATED != 0 {
                " (old name)"
            } else {
                ""
            };
            let server = match s.manager {
                None => String::new(),
                Some("") => ", manager".into(),
                Some(module) => format!(", manager ({module})"),
            };
            out.push_str(&format!(
                "| `{sig}` | {}{old} | {} {}{server} |\n",
                s.help, s.module, s.perm
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_every_signature_is_understood() {
        for s in all() {
            let typed = s.sig.split_whitespace().filter(|w| w.contains(':')).count();
            assert_eq!(signature::args(s.sig).len(), typed, "{}", s.sig);
            assert!(!s.help.is_empty() && s.help.len() < 100, "{}: help", s.sig);
            assert!(
                !s.perm.is_empty() && s.perm.chars().all(|c| "rwx".contains(c)),
                "{}: permission",
                s.sig
            );
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods)]
    fn reference_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/commands.md");
        let want = markdown();
        if std::env::var_os("SKEP_WRITE_DOCS").is_some() {
            std::fs::write(path, &want).unwrap();
        }
        let have = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            have == want,
            "run the tests once with SKEP_WRITE_DOCS=1 to write {path}"
        );
    }
}
