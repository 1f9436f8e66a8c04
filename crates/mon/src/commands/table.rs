//! The table of commands: signature, help, permission, flags and function of each. The parser, the
//! descriptions for the `ceph` program, the permission check, the dispatch and the documentation all read it.
//!
//! It is kept in parts, one beside the functions of each family; [`FAMILIES`] is all of it, and no other file names
//! them all. Commands that are listed but not built refuse with EOPNOTSUPP; commands that are not listed do not exist.

use super::{auth, cluster, config, crush, doctor, fs, health, modules, osd, pg, pool, qos};
use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::signature;
use crate::commands::spec::{HIDDEN, Spec, spec};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Families in the order of the documentation.
pub static FAMILIES: [(&str, &[Spec]); 48] = [
    ("Cluster", cluster::whole::TABLE),
    ("Health", health::TABLE),
    ("What waits, and for what", doctor::TABLE),
    ("Monitors", cluster::monitor::TABLE),
    ("Counters", cluster::perf::TABLE),
    ("Figures for Prometheus", cluster::prometheus::TABLE),
    ("Manager", cluster::manager::TABLE),
    ("OSDs", osd::read::TABLE),
    ("OSDs: new ones", osd::new::TABLE),
    ("OSDs: changes", osd::change::TABLE),
    ("OSDs: weights", osd::weights::TABLE),
    ("OSDs: safety", osd::safety::TABLE),
    ("OSDs: flags", osd::flags::TABLE),
    ("Blocklist", osd::blocklist::TABLE),
    ("CRUSH", crush::read::TABLE),
    ("CRUSH: changes", crush::change::TABLE),
    ("CRUSH: device classes", crush::class::TABLE),
    ("CRUSH: weight sets", crush::weight_sets::TABLE),
    ("CRUSH: erasure code profiles", crush::erasure::TABLE),
    ("Pools", pool::TABLE),
    ("Pools: use", pool::applications::TABLE),
    ("Limits of clients", qos::TABLE),
    ("Pools: numbers of groups", pool::autoscale::TABLE),
    ("Placement groups", pg::TABLE),
    ("Placement groups: out of turn", pg::force::TABLE),
    ("Placement groups: by hand", osd::upmap::TABLE),
    ("Pools: cache tiers", osd::tiers::TABLE),
    ("Scrub", pg::scrub::TABLE),
    ("Configuration", config::settings::TABLE),
    ("Keys and values", config::keys::TABLE),
    ("Authentication", auth::TABLE),
    ("File systems", fs::TABLE),
    ("Metadata servers", fs::daemons::TABLE),
    ("Volumes", fs::volumes::TABLE),
    ("Subvolumes", fs::subvolumes::TABLE),
    ("Manager modules", cluster::modules::TABLE),
    ("Balancer", modules::balancer::TABLE),
    ("What clients do to images", modules::perf::TABLE),
    ("Work on images in the background", modules::tasks::TABLE),
    ("Work on images by schedule", modules::schedule::TABLE),
    ("Queries of OSDs", modules::osd_perf_query::TABLE),
    ("Long running work", modules::progress::TABLE),
    ("Alarms", modules::alerts::TABLE),
    ("Crashes", modules::crash::TABLE),
    ("Physical devices", modules::device::TABLE),
    ("Other manager modules", modules::unserved::TABLE),
    ("Manager modules that are not here", cluster::away::TABLE),
    ("Obsolete", cluster::obsolete::TABLE),
];

/// What means another thing, or anything at all, only where one monitor is told it.
pub const TOLD: &[Spec] = cluster::told::TABLE;

/// The one command about the table itself.
const OWN: &[Spec] = &[spec(
    ("mon", "r"),
    "get_command_descriptions",
    "this table, for the ceph program",
    own_descriptions,
)
.flagged(HIDDEN)];

fn own_descriptions(cmd: &Command, _: &Context<'_>) -> Outcome {
    // Each start of the ceph program asks for it.
    static ALL: LazyLock<String> = LazyLock::new(|| crate::format::compact(&descriptions()));
    Outcome::ok(match cmd.told {
        true => crate::format::compact(&describe(told())),
        false => ALL.clone(),
    })
}

/// All that one monitor can be told: its own, and the others' whose words are not taken by those.
fn told() -> impl Iterator<Item = &'static Spec> {
    let others = FAMILIES.iter().flat_map(|(_, specs)| specs.iter());
    let taken = |s: &&Spec| !is_told(&signature::prefix(s.sig));
    TOLD.iter().chain(others.filter(taken))
}

pub fn all() -> impl Iterator<Item = &'static Spec> {
    FAMILIES.iter().flat_map(|(_, specs)| specs.iter()).chain(OWN)
}

static BY_PREFIX: LazyLock<BTreeMap<String, Vec<&'static Spec>>> = LazyLock::new(|| {
    let mut map: BTreeMap<String, Vec<&'static Spec>> = BTreeMap::new();
    for s in all() {
        map.entry(signature::prefix(s.sig)).or_default().push(s);
    }
    map
});

static TOLD_BY_PREFIX: LazyLock<BTreeMap<String, Vec<&'static Spec>>> = LazyLock::new(|| {
    let mut map: BTreeMap<String, Vec<&'static Spec>> = BTreeMap::new();
    for s in TOLD {
        map.entry(signature::prefix(s.sig)).or_default().push(s);
    }
    map
});

fn is_told(prefix: &str) -> bool {
    TOLD_BY_PREFIX.contains_key(prefix)
}

/// The rows of a prefix where one monitor is told it.
pub fn told_named(prefix: &str) -> &'static [&'static Spec] {
    TOLD_BY_PREFIX
        .get(prefix)
        .map_or_else(|| all_named(prefix), Vec::as_slice)
}

pub fn find(prefix: &str) -> Option<&'static Spec> {
    BY_PREFIX.get(prefix)?.first().copied()
}

/// All signatures with this prefix; a few commands have two.
pub fn all_named(prefix: &str) -> &'static [&'static Spec] {
    BY_PREFIX.get(prefix).map_or(&[], Vec::as_slice)
}

/// What `get_command_descriptions` answers.
pub fn descriptions() -> Value {
    // Not listed by the real one either.
    describe(all().filter(|s| s.sig != "get_command_descriptions"))
}

fn describe(specs: impl Iterator<Item = &'static Spec>) -> Value {
    let mut out = Map::new();
    for (i, s) in specs.enumerate() {
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
         marked \"not built\" and \"not here\" refuse with a reason, the others too where what they need is not there. Every answer\n\
         comes as `-f plain`, `json`, `json-pretty`, `xml` or `xml-pretty`. tests/ceph/commands.jsonl has what they answer\n\
         beside Ceph.\n",
    );
    for (family, specs) in &FAMILIES {
        out.push_str(&format!(
            "\n## {family}\n\n| command | does | needs |\n|---|---|---|\n"
        ));
        for s in specs.iter().filter(|s| s.flags & HIDDEN == 0) {
            let sig = s.sig.replace('|', "\\|");
            let old = if s.flags & crate::commands::spec::DEPRECATED != 0 {
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
    out.push_str(
        "\n## One monitor is told\n\n`ceph tell mon.X` takes all of the above, but for the words below. It needs `allow *`.\n\n\
         | command | does |\n|---|---|\n",
    );
    for s in TOLD {
        out.push_str(&format!("| `{}` | {} |\n", s.sig.replace('|', "\\|"), s.help));
    }
    out + &beside_ceph()
}

/// Every command that 16.2.15 lists, and what becomes of it here.
#[cfg(test)]
fn beside_ceph() -> String {
    let refuses = |s: &Spec| s.help.starts_with("not here") || s.help.starts_with("not built");
    let (mut answered, mut refused, mut unknown) = (0, 0, Vec::new());
    for prefix in prefixes_of_ceph() {
        let row = told_named(&prefix).first();
        match row {
            Some(s) if refuses(s) => refused += 1,
            Some(_) => answered += 1,
            None => unknown.push(prefix),
        }
    }
    let all = answered + refused + unknown.len();
    let mut out = format!(
        "\n## Beside Ceph\n\nOf the {all} commands that monitor and manager of Ceph 16.2.15 list (with all modules), {answered} \
         are answered here\nor by one monitor that is told them, {refused} are refused with a reason, and {} are not known:\n\n",
        unknown.len()
    );
    for prefix in unknown {
        out.push_str(&format!("- `{prefix}`\n"));
    }
    out
}

#[cfg(test)]
fn prefixes_of_ceph() -> std::collections::BTreeSet<String> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../vectors/monitor/command-descriptions-nohelp.json"
    );
    #[allow(clippy::disallowed_methods)]
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let all: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
    let words = |d: &Value| {
        let sig = d["sig"].as_array().cloned().unwrap_or_default();
        let words: Vec<&str> = sig.iter().filter_map(Value::as_str).collect();
        words.join(" ")
    };
    all.values().map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_every_signature_is_understood() {
        for s in all().chain(TOLD) {
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
