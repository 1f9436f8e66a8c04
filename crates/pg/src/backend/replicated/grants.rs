//! Grants: the primary lets full members of `in_sync` answer reads (docs/internals/replication.md, reads of copies).
//!
//! Invariants: nobody leaves `in_sync` by this primary's proposal while it may hold a live grant, of this interval or of an
//! earlier one, and from the proposal until its outcome is seen it is given none. So whoever holds a live grant is in the
//! committed set, and no write is answered without it; a primary that dies leaves nothing to wait for.
//!
//! Who leaves because it was marked down does not serve (its lease has ended, its process is gone, or it said so itself).
//! Where no read asks for a copy nothing of this is sent. Bound: one entry for each member.

use crate::broken::{self, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{EVersion, OsdId};

/// A member may use a grant so long after it asked for it, by its own clock.
pub(crate) const GRANT: Duration = Duration::from_millis(250);
/// The primary takes it to last so much longer after it was given, by its own: for clocks whose rates differ.
const MARGIN: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Grants {
    /// Given in this interval; each with its end.
    given: BTreeMap<OsdId, Duration>,
    /// Not heard in this interval yet: may hold a grant of an earlier one until then.
    unheard: BTreeMap<OsdId, Duration>,
    /// This primary wants them out of `in_sync`.
    leaving: BTreeSet<OsdId>,
    /// It has proposed that, and the outcome was not seen.
    proposed: BTreeSet<OsdId>,
    /// One of these asked in vain.
    asked_in_vain: bool,
    /// The newest version that those with grants know to be stable.
    told: EVersion,
}

impl Grants {
    /// A new interval: its members know of it when they are heard, and give up what earlier primaries granted.
    pub fn new_interval(&mut self, in_sync: impl Iterator<Item = OsdId>, now: Duration) {
        *self = Self {
            unheard: in_sync.map(|o| (o, now + GRANT + MARGIN)).collect(),
            ..Self::default()
        };
    }

    /// The set has changed: every proposal that stood on the old one has come true, or never will.
    pub fn set_changed(&mut self, in_sync: &[OsdId]) {
        self.leaving.clear();
        self.proposed.clear();
        self.asked_in_vain = false;
        self.given.retain(|o, _| in_sync.contains(o));
        self.unheard.retain(|o, _| in_sync.contains(o));
    }

    /// It answered a question of this interval.
    pub fn heard(&mut self, osd: OsdId) {
        self.unheard.remove(&osd);
    }

    fn may_read(&self, osd: OsdId, now: Duration) -> bool {
        let live = |of: &BTreeMap<OsdId, Duration>| of.get(&osd).is_some_and(|until| now < *until);
        live(&self.given) || live(&self.unheard)
    }

    /// These shall leave `in_sync`: they get no grants any more. True if none of them may hold a live one.
    pub fn let_go(&mut self, leaving: BTreeSet<OsdId>, now: Duration) -> bool {
        self.leaving = leaving;
        broken::is(Rule::Grant)
            || broken::is(Rule::GrantWaited)
            || !self.leaving.iter().any(|o| self.may_read(*o, now))
    }

    /// It was proposed that they leave.
    pub fn proposed(&mut self, leaving: impl Iterator<Item = OsdId>) {
        self.proposed.extend(leaving);
    }

    /// A proposal that nobody wants any more keeps a member from its grants: it has to be ruled out.
    pub fn is_kept_waiting(&self) -> bool {
        self.asked_in_vain && !self.proposed.is_empty()
    }

    /// Nobody is to leave, and no proposal of that is open.
    pub fn is_settled(&self) -> bool {
        self.leaving.is_empty() && self.proposed.is_empty()
    }

    /// It asks for one. False: it gets none.
    pub fn give(&mut self, osd: OsdId, now: Duration) -> bool {
        self.asked_in_vain |= self.proposed.contains(&osd);
        let may = !self.leaving.contains(&osd) && !self.proposed.contains(&osd);
        if may {
            self.given.insert(osd, now + GRANT + MARGIN);
        }
        may
    }
    /// Somebody was given one.
    pub fn are_given(&self) -> bool {
        !self.given.is_empty()
    }

    /// So much is stable: those who answer reads and do not know it yet.
    pub fn tell(&mut self, stable: EVersion) -> impl Iterator<Item = OsdId> {
        let more = stable > self.told;
        self.told = self.told.max(stable);
        self.given.keys().copied().filter(move |_| more)
    }

    /// Those whose grants have ended are told nothing more.
    pub fn forget_ended(&mut self, now: Duration) {
        self.given.retain(|_, until| now < *until);
    }
}
