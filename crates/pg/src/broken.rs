//! Rules of copies that tests may break, to show that the simulation would notice.
//!
//! Invariants: a rule is broken only in the thread that asked for it, and only in builds with debug
//! assertions; in all others [`is`] is a constant and the switch does not exist.

/// What can be broken; each where the code says `broken::is`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// An answer waits for every OSD of `in_sync`.
    AllDurable,
    /// A member refuses what a primary of an earlier interval sends, and nobody is taken for dead before its lease
    /// has ended.
    Fence,
    /// Of the logs of `in_sync` the longest leads.
    LongestLeads,
    /// An OSD serves only while its lease is live.
    Lease,
    /// A member shows only what all of `in_sync` have.
    Stable,
    /// A member answers reads only while its grant runs.
    Grant,
    /// What cannot be read on the primary is fetched from another member before a client is answered.
    ReadRepair,
    /// Only a FIN on a lifeline says that a process is gone.
    CleanEnd,
    /// While a check of a scrub looks at an object on all copies, nothing changes the object.
    CheckHolds,
}

#[cfg(debug_assertions)]
mod switch {
    use super::Rule;
    use std::cell::Cell;

    thread_local! {
        static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    /// Breaks a rule in this thread, or none any more.
    pub fn set(rule: Option<Rule>) {
        BROKEN.with(|b| b.set(rule));
    }

    pub fn is(rule: Rule) -> bool {
        BROKEN.with(|b| b.get() == Some(rule))
    }
}

#[cfg(debug_assertions)]
pub use switch::{is, set};

#[cfg(not(debug_assertions))]
pub const fn is(_: Rule) -> bool {
    false
}
