//! Rules of the cluster state that tests may break, to show that the simulation would notice.
//!
//! Invariants: a rule is broken only in the thread that asked for it, and only in builds with debug
//! assertions; in all others [`is`] is a constant and the switch does not exist.

/// What can be broken; each where the code says `broken::is`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Only an OSD of `in_sync` becomes primary.
    PrimaryInSync,
    /// An OSD that may serve is not marked down.
    LeaseEnded,
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
