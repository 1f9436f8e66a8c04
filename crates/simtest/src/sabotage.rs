//! Rules of the product that a run breaks on purpose, to show that its seeds would notice: the tables of `pg`, `cluster`,
//! `metastore` and `store`, and what it takes of several of them together.
//!
//! `simtest mutants` runs each against seeds; docs/internals/simulation.md holds what came of it.

/// A rule that can be broken, and how this thread breaks it.
pub struct Sabotage {
    pub name: String,
    /// Of which part of the product.
    pub module: &'static str,
    /// What holds otherwise.
    pub says: String,
    pub begin: Box<dyn Fn()>,
}

/// Two rules that stand for one another: only where both are broken there is harm to be seen.
struct Pair {
    name: &'static str,
    module: &'static str,
    says: &'static str,
    pg: pg::broken::Rule,
    other: Other,
}

enum Other {
    Cluster(cluster::broken::Rule),
    Metastore(metastore::broken::Rule),
}

impl Other {
    fn name(&self) -> &'static str {
        match self {
            Self::Cluster(rule) => rule.name(),
            Self::Metastore(rule) => rule.name(),
        }
    }

    fn set(&self) {
        match self {
            Self::Cluster(rule) => cluster::broken::set(Some(*rule)),
            Self::Metastore(rule) => metastore::broken::set(Some(*rule)),
        }
    }
}

const PAIRS: &[Pair] = &[
    Pair {
        name: "no-fence",
        module: "lease",
        says: "A silent OSD is not marked down while its lease lives, and members refuse what an earlier primary sends.",
        pg: pg::broken::Rule::Fence,
        other: Other::Metastore(metastore::broken::Rule::LeaseEnded),
    },
    Pair {
        name: "foreign-log",
        module: "cluster::pgs",
        says: "Only an OSD of the in-sync set becomes primary, and of their logs the longest is the truth.",
        pg: pg::broken::Rule::LongestLeads,
        other: Other::Cluster(cluster::broken::Rule::PrimaryInSync),
    },
];

/// Alone it is not missed: the other one stands for it.
fn is_paired(rule: &str) -> bool {
    let names = |p: &Pair| [p.pg.name(), p.other.name()].contains(&rule);
    PAIRS.iter().any(names)
}

/// Rules of shards are not simulated: `pg::tests::shards` shows that they are noticed.
fn is_told(rule: &str, module: &str) -> bool {
    !is_paired(rule) && module != "erasure"
}

/// Where the tables name a part of their crate only.
fn module(crate_name: &'static str, module: &'static str) -> &'static str {
    match (crate_name, module) {
        (_, "lease") => "lease",
        ("pg", "log") => "pg::log",
        ("pg", "scrub") => "pg::scrub",
        ("pg", _) => "pg::replication",
        ("cluster", _) => "cluster::pgs",
        (_, "open") => "store open",
        _ => "store committer",
    }
}

macro_rules! table {
    ($out:ident, $name:literal, $of:ident) => {
        for rule in $of::broken::Rule::ALL
            .iter()
            .filter(|r| is_told(r.name(), r.module()))
        {
            $out.push(Sabotage {
                name: format!("{}::{}", $name, rule.name()),
                module: module($name, rule.module()),
                says: rule.says().trim().to_owned(),
                begin: Box::new(|| $of::broken::set(Some(*rule))),
            });
        }
    };
}

/// All that can be broken.
pub fn all() -> Vec<Sabotage> {
    let mut out = Vec::new();
    table!(out, "pg", pg);
    table!(out, "cluster", cluster);
    table!(out, "metastore", metastore);
    table!(out, "store", store);
    out.extend(PAIRS.iter().map(|p| Sabotage {
        name: p.name.to_owned(),
        module: p.module,
        says: p.says.to_owned(),
        begin: Box::new(|| {
            pg::broken::set(Some(p.pg));
            p.other.set();
        }),
    }));
    out
}

pub fn find(name: &str) -> Option<Sabotage> {
    all().into_iter().find(|s| s.name == name)
}

/// A sample for every run of the tests: the seed to begin with, within how many it has to be noticed, and what has to be said. The first
/// seeds are those that noticed it last. Where the product has changed since, and another one does, that takes longer and is no fault.
pub const SAMPLE: &[(&str, u64, u64, &str)] = &[
    ("pg::AllDurable", 0, 50, "WRONG"),
    ("pg::ConfirmedOnly", 0, 100, "its disk lacks"),
    ("pg::DuplicateWaits", 0, 100, "its disk lacks"),
    ("pg::DuplicateFails", 0, 50, "not linearizable"),
    ("pg::DuplicateVersion", 0, 50, "not linearizable"),
    ("pg::RangesOnly", 0, 50, "WRONG"),
    ("pg::CatchUpWhole", 4, 200, "WRONG"),
    ("pg::CleanEnd", 32, 500, "two primaries"),
    ("pg::Lease", 12, 500, "WRONG"),
    ("pg::Stable", 340, 500, "WRONG"),
    // Not pg::Grant: the product's client hears of a newer map with its first operation elsewhere, and so hardly ever reads where an
    // OSD has been replaced without knowing it. A PG's random histories and `pg::tests::replication::copy_reads` notice it.
    ("pg::MergesAtRest", 0, 200, "WRONG"),
    ("pg::ReadRepair", 76, 500, "EIO, and a copy in sync is whole"),
    ("no-fence", 33, 500, "WRONG"),
    ("foreign-log", 0, 500, "WRONG"),
    ("cluster::ReturnedIsNew", 0, 50, "the contract"),
    ("cluster::KeepsMinSize", 0, 50, "the contract"),
    ("cluster::LikeItsAncestor", 0, 50, "the contract"),
];
