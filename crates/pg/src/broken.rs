//! Rules of copies that tests may break, to show that the simulation would notice (`simtest mutants`).
//!
//! Those of module `lease` are the OSD's (`osd::membership`, `osd::lifeline`), which has no table of its own.

types::breakable_rules! {
    /// An answer waits for every OSD of `in_sync`.
    "replication" AllDurable,
    /// And for those whose addition is proposed.
    "replication" CountedToo,
    /// A member refuses what a primary of an earlier interval sends, and nobody is taken for dead before its lease
    /// has ended.
    "replication" Fence,
    /// Of the logs of `in_sync` the longest leads.
    "replication" LongestLeads,
    /// A member's word of what it has leaves when that is durable.
    "replication" InfoDurable,
    /// A new interval begins with asking everybody anew.
    "replication" PeeredAnew,
    /// What a member confirmed holds on when its connection ends, and no more than that.
    "replication" ConfirmedOnly,
    /// Each answer confirms its own transaction.
    "replication" AppliedExact,
    /// A learner is proposed when all that anybody was answered for is durable there.
    "replication" LearnerHasAll,
    /// What a learner with a log gets without its entry is durable on all of `in_sync`.
    "replication" LearnerHasNoMore,
    /// A member that is caught up by log gets every object that changed.
    "replication" CatchUpWhole,
    /// A resync brings every object that changed.
    "replication" ResyncWhole,
    /// An object that was written while it was copied is copied once more.
    "replication" CopiedAgain,
    /// A member that is not full gets no writes to objects that are dirty there.
    "replication" DirtyWaits,
    /// What a member has and the primary has not is removed there.
    "replication" SurplusGoes,
    /// A member whose log goes back remembers the objects of the entries as dirty.
    "replication" RewoundIsDirty,
    /// After a transaction that a member refused it takes none before it was asked anew.
    "replication" RefusedStays,
    /// Who gives up its part in the PG says so to those whose questions it has not answered.
    "replication" LeavingIsTold,
    /// While the PG is handed over nothing is executed.
    "replication" HandingStops,
    /// From when a PG has said that it may be merged it executes nothing.
    "replication" MergesAtRest,
    /// A member shows only what all of `in_sync` have.
    "replication" Stable,
    /// A member answers reads only while its grant runs, and nobody goes before that.
    "replication" Grant,
    /// A member that may hold a grant does not leave the set.
    "replication" GrantWaited,
    /// An answer waits for every shard of `in_sync`.
    "erasure" EveryShard,
    /// What not all shards of `in_sync` have is taken back before anything is executed.
    "erasure" UndoneAtPeering,
    /// What cannot be read on the primary is fetched from another member before a client is answered.
    "scrub" ReadRepair,
    /// While a check of a scrub looks at an object on all copies, nothing changes the object.
    "scrub" CheckHolds,
    /// What a PG finds in the store when it is loaded may be as young as the newest transaction.
    "log" LoadedIsYoung,
    /// A write that is sent again is answered when its first execution is durable.
    "log" DuplicateWaits,
    /// It is answered as it was first: failures, too.
    "log" DuplicateFails,
    /// And with the version that it has.
    "log" DuplicateVersion,
    /// All entries of the log are remembered when a PG is loaded.
    "log" LoadedWhole,
    /// The newest version up to a transaction is not that of the next one.
    "log" StableExact,
    /// Entries behind a version are all behind it.
    "log" SinceWhole,
    /// An entry names ranges only where its write did nothing else.
    "log" RangesOnly,
    /// Versions carry the map's epoch, so that two primaries never use the same one.
    "log" EpochInVersion,
    /// Entries of transactions that are not durable everywhere are not trimmed.
    "log" TrimsCommitted,
    /// An OSD serves only while its lease is live.
    "lease" Lease,
    /// Only a FIN on a lifeline says that a process is gone.
    "lease" CleanEnd,
    /// Who was started again serves once its boot is committed.
    "lease" BootedFirst,
    /// Who has asked to be marked down serves no more.
    "lease" SteppingDown,
    /// Answers of an OSD that lost its lease leave when it has it again in the same interval, or never.
    "lease" AnswersHeld,
}
