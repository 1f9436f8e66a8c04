//! What a member of `in_sync` may show of its copy to clients (docs/internals/replication.md, reads of copies).
//!
//! Vocabulary: a *grant* lets the member answer reads until a time by its own clock; *stable* is the newest version of the log
//! up to which all of `in_sync` have everything; an object is *unsettled* while its newest entry is behind that.
//!
//! Invariants: an object is shown as it is here, never in an earlier state, and only while its newest write is stable. What
//! was written before this began to watch counts as one write, the *floor*.
//!
//! Bound: [`UNSETTLED_MAX`] writes that are not known to be stable.

use super::damage::DamageMet;
use crate::broken::{self, Rule};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use types::{EVersion, HObject};

/// More writes than this that are not known to be stable: nothing is shown any more.
const UNSETTLED_MAX: usize = 4096;

/// Whether an object may be shown now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum May {
    Show,
    /// When the primary has spoken.
    Later,
    /// Only the primary can tell.
    No,
}

#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// The shell's word for this moment: the OSD's lease lives, and the newest cluster state that it has agrees.
    pub serving: bool,
    /// The grant's end, by the clock here.
    until: Duration,
    stable: EVersion,
    floor: EVersion,
    /// Writes that came since, ascending, until they are stable.
    order: VecDeque<(EVersion, HObject)>,
    /// Of each of their objects the newest.
    newest: HashMap<HObject, EVersion>,
    /// What could not be read, for the primary.
    pub damage: DamageMet,
}

impl Shown {
    /// Everything up to `floor` was here before.
    pub fn from(floor: EVersion, serving: bool) -> Self {
        Self {
            serving,
            floor,
            ..Self::default()
        }
    }

    /// A grant until then; how far everything is stable.
    pub fn granted(&mut self, until: Duration, stable: EVersion) {
        self.until = self.until.max(until);
        self.settle(stable);
    }

    /// How long the grant runs yet.
    pub fn left(&self, now: Duration) -> Duration {
        self.until.saturating_sub(now)
    }

    /// The log has a new entry, of this object (a head). False: there are too many to remember.
    pub fn wrote(&mut self, version: EVersion, head: HObject) -> bool {
        if self.order.len() >= UNSETTLED_MAX {
            return false;
        }
        self.newest.insert(head.clone(), version);
        self.order.push_back((version, head));
        true
    }

    pub fn settle(&mut self, stable: EVersion) {
        self.stable = self.stable.max(stable);
        while let Some((version, _)) = self.order.front()
            && *version <= self.stable
        {
            if let Some((version, head)) = self.order.pop_front()
                && self.newest.get(&head) == Some(&version)
            {
                self.newest.remove(&head);
            }
        }
    }

    pub fn may(&self, head: &HObject, now: Duration) -> May {
        let granted = now < self.until || broken::is(Rule::Grant) && self.until > Duration::ZERO;
        if !self.serving {
            return May::No;
        }
        if !granted {
            return May::Later;
        }
        if broken::is(Rule::Stable) {
            return May::Show;
        }
        if self.floor > self.stable {
            return May::Later;
        }
        match self.newest.contains_key(head) {
            true => May::No,
            false => May::Show,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn object(name: &'static str) -> HObject {
        let none = Bytes::new();
        HObject::new(1, 7, none.clone(), none, name.into(), types::NOSNAP)
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn an_object_is_shown_while_granted_and_stable() {
        let v = |n| EVersion::new(3, n);
        let mut s = Shown::from(v(5), false);
        assert_eq!(
            s.may(&object("a"), at(1)),
            May::No,
            "the shell has not said that it serves"
        );
        s.serving = true;
        assert_eq!(s.may(&object("a"), at(1)), May::Later, "without a grant");
        s.granted(at(100), v(4));
        assert_eq!(s.may(&object("a"), at(1)), May::Later, "the floor is not stable");
        s.settle(v(5));
        assert_eq!(s.may(&object("a"), at(99)), May::Show);
        assert_eq!(s.may(&object("a"), at(100)), May::Later, "the grant has ended");
        assert!(s.wrote(v(6), object("a")) && s.wrote(v(7), object("b")) && s.wrote(v(8), object("a")));
        assert_eq!(s.may(&object("c"), at(1)), May::Show);
        s.settle(v(7));
        assert_eq!(s.may(&object("a"), at(1)), May::No, "8 is not stable");
        assert_eq!(s.may(&object("b"), at(1)), May::Show);
        s.settle(v(8));
        s.settle(v(2));
        assert_eq!(s.may(&object("a"), at(1)), May::Show);
        assert!(s.newest.is_empty() && s.order.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut s = Shown::default();
        let taken = (1..10_000)
            .filter(|n| s.wrote(EVersion::new(1, *n), object("a")))
            .count();
        assert_eq!(taken, UNSETTLED_MAX);
    }
}
