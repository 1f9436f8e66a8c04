//! Rules of the cluster state that tests may break, to show that the simulation would notice (`simtest mutants`).

types::breakable_rules! {
    /// Only an OSD of `in_sync` becomes primary.
    "pgs" PrimaryInSync,
    /// A primary that comes up again begins a new interval.
    "pgs" ReturnedIsNew,
    /// An OSD that was started again is marked down before it is marked up.
    "pgs" DownBeforeUp,
    /// Another primary begins a new interval.
    "pgs" PrimaryIsNew,
    /// A proposal counts only where the configuration is the one that it names.
    "pgs" Expected,
    /// A proposal of what is begins a new interval.
    "pgs" SameIsNew,
    /// Only who is up is added.
    "pgs" OnlyUpJoins,
    /// Settling keeps min_size.
    "pgs" KeepsMinSize,
    /// A PG that is split off begins where its ancestor is.
    "pgs" LikeItsAncestor,
    /// Wherever the set is not where CRUSH wants it, the map says where it is.
    "pgs" TempSaysWhere,
}
