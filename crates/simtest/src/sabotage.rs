//! Rules of the product that a run breaks on purpose, to show that its seeds would notice: one table.

/// A rule, and how this thread breaks it.
pub struct Sabotage {
    pub name: &'static str,
    /// What the run has to say: the harm itself, where the checkers could also see that something hangs.
    pub seen_as: &'static str,
    pub begin: fn(),
}

/// What a builder of the cluster must not get wrong.
pub const ALL: &[Sabotage] = &[
    // A write is answered before every OSD of the in-sync set has it on its disk.
    Sabotage {
        name: "answer-early",
        seen_as: "not linearizable",
        begin: || pg::broken::set(Some(pg::broken::Rule::AllDurable)),
    },
    // A silent OSD is marked down, and another made primary, while its lease lives; members take what either sends.
    Sabotage {
        name: "no-fence",
        seen_as: "WRONG",
        begin: || {
            pg::broken::set(Some(pg::broken::Rule::Fence));
            metastore::broken::set(Some(metastore::broken::Rule::LeaseEnded));
        },
    },
    // A lifeline that was reset is taken for one that ended: its OSD is marked down while it lives.
    Sabotage {
        name: "reset-is-death",
        seen_as: "two primaries",
        begin: || pg::broken::set(Some(pg::broken::Rule::CleanEnd)),
    },
    // An OSD serves although its lease has ended.
    Sabotage {
        name: "no-lease",
        seen_as: "WRONG",
        begin: || pg::broken::set(Some(pg::broken::Rule::Lease)),
    },
    // A member shows a write that not every OSD of the in-sync set has.
    Sabotage {
        name: "unstable-reads",
        seen_as: "WRONG",
        begin: || pg::broken::set(Some(pg::broken::Rule::Stable)),
    },
    // A member goes on answering reads after its grant has ended, and its primary does without it before that.
    Sabotage {
        name: "endless-grants",
        seen_as: "not linearizable",
        begin: || pg::broken::set(Some(pg::broken::Rule::Grant)),
    },
    // What cannot be read on the primary is not fetched from another member.
    Sabotage {
        name: "no-read-repair",
        seen_as: "EIO, and a copy in sync is whole",
        begin: || pg::broken::set(Some(pg::broken::Rule::ReadRepair)),
    },
    // An OSD from outside the in-sync set becomes primary, and its log is taken for the truth.
    Sabotage {
        name: "foreign-log",
        seen_as: "not linearizable",
        begin: || {
            pg::broken::set(Some(pg::broken::Rule::LongestLeads));
            metastore::broken::set(Some(metastore::broken::Rule::PrimaryInSync));
        },
    },
];

pub fn find(name: &str) -> Option<&'static Sabotage> {
    ALL.iter().find(|s| s.name == name)
}
