//! Rules of leases that tests may break, to show that the simulation would notice (`simtest mutants`).

types::breakable_rules! {
    /// An OSD that may serve is not marked down.
    "lease" LeaseEnded,
    /// The owner stops before the store's side may end.
    "lease" LeaseMargin,
    /// A lease that the store has ended is renewed by nobody's word.
    "lease" EndedIsEnded,
    /// Who has a new lease knows what happened while it had none before it serves.
    "lease" CaughtUp,
    /// A lease's key is set once.
    "lease" KeySetOnce,
    /// A lifeline's end speaks of one process, and of none after it.
    "lease" GoneByAddress,
}
