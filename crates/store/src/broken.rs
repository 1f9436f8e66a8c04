//! Rules of the store that its tests may break, to show that the crash tests would notice.
//!
//! Invariants: a rule is broken only in the thread that asked for it, and only in builds with debug
//! assertions; in all others [`is`] is a constant and the switch does not exist.

/// What can be broken; each where the code says `broken::is`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The first batch of a life is a flushed marker.
    MarkerAtOpen,
    /// Freed blocks are taken again only after the checkpoint that frees them.
    FreedBlocksWait,
    /// The last batch of the log counts only if its direct extents are whole.
    LastDirectsWhole,
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

    pub(crate) fn is(rule: Rule) -> bool {
        BROKEN.with(|b| b.get() == Some(rule))
    }
}

#[cfg(debug_assertions)]
pub(crate) use switch::is;
#[cfg(debug_assertions)]
pub use switch::set;

#[cfg(not(debug_assertions))]
pub(crate) const fn is(_: Rule) -> bool {
    false
}
