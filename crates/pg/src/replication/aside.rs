//! A primary whose store has no room: the others of `in_sync` go on without it, as they go on without a member whose
//! disk refused something.
//!
//! The write that found no room waits here, and with it everything that the PG would execute next, until another OSD
//! is primary (clients send again then), or until nobody can take over: then the write is tried again, and refused
//! with ENOSPC if there is still no room. So a client hears of a full disk only when too few other copies could go on.
//!
//! Invariants: operations on one object keep the order in which they came; another primary is proposed only when
//! everything that was executed is durable on all who stay.
//!
//! Does not look for room elsewhere (CRUSH and people do that). The OSD is a learner from then on, and leads again
//! once it has taken all that it missed.

use super::propose::AWAY_MAX;
use crate::Pg;
use crate::api::{ClientOp, Context};
use std::time::Duration;
use types::OsdId;

impl Pg {
    /// The set without this OSD, and without those of no use.
    pub(super) fn group_without_me(&self, now: Duration) -> Vec<OsdId> {
        let r = &self.repl;
        let of_use = |o: &OsdId| r.members.get(o).is_some_and(|m| !m.is_gone(now, AWAY_MAX));
        let others = r.group.in_sync.iter().filter(|o| **o != r.group.me);
        others.filter(|o| of_use(o)).copied().collect()
    }

    fn can_stand_aside(&self, now: Duration) -> bool {
        let g = &self.repl.group;
        let enough = (g.min_size as usize).max(1);
        g.is_primary() && self.repl.peered && self.group_without_me(now).len() >= enough
    }

    /// Takes a write for which there is no room here, if others can go on without this OSD; else gives it back.
    pub(crate) fn stand_aside(&mut self, c: Box<ClientOp>, ctx: &mut Context<'_>) -> Option<Box<ClientOp>> {
        if !self.can_stand_aside(ctx.now) {
            return Some(c);
        }
        if !self.repl.aside {
            tracing::warn!("pg {}: no room here: another OSD shall lead", self.id);
        }
        self.repl.aside = true;
        // All of them came before what is held already.
        for later in self.take_parked_messages(ctx).into_iter().rev() {
            self.repl.held.push_front(later);
        }
        self.repl.held.push_front(c);
        self.repl.look_at = Some(ctx.now);
        None
    }

    /// Before a proposal: another primary has all that was executed here, and so have the rest.
    pub(super) fn is_settled(&self, set: &[OsdId]) -> bool {
        let full = |o: &OsdId| self.repl.members.get(o).is_some_and(|m| m.is_full());
        set.iter().all(full) && !self.commits.is_waiting() && self.repl.committed() >= self.last_seq
    }

    /// Nobody can take over any more: what waits is tried again. Not while a proposal may still come true.
    pub(super) fn give_up_aside(&mut self, now: Duration) {
        if self.repl.aside && !self.repl.handed && !self.can_stand_aside(now) {
            self.repl.aside = false;
        }
    }
}
