//! A primary whose store has no room: the others of `in_sync` go on without it, as they go on without a member whose
//! disk refused something.
//!
//! The write that found no room waits here, and with it every later write of the PG, until another OSD is primary (clients send again
//! then), or until it is known that too few others have room: then the write is tried again, and refused with ENOSPC if there is
//! still none. Others that are behind, or away for the moment, cost a pause: as long as it is not known that they have no room, and
//! [`RETURN_MAX`] for such as are down. So a client hears of a full disk only where no min_size copies have room. Reads
//! are answered meanwhile: they need none.
//!
//! Invariants: operations on one object keep the order in which they came; another primary is proposed only when
//! everything that was executed is durable on all who stay.
//!
//! Does not look for room elsewhere (CRUSH and people do that). The OSD is a learner from then on, and leads again
//! once it has taken all that it missed.

use super::Replicated;
use crate::backend::Lent;
use crate::state::pg::PgState;
use std::time::Duration;
use types::OsdId;

/// So long writes wait for copies on OSDs that are down and may come back.
const RETURN_MAX: Duration = Duration::from_secs(30);
/// After none of them came back, writes do not wait for them for so long.
const TRIED_REST: Duration = Duration::from_secs(10);

impl Replicated {
    /// The set without this OSD, and without those of no use.
    pub(super) fn group_without_me(&self, now: Duration) -> Vec<OsdId> {
        let r = self;
        let of_use = |o: &OsdId| r.members.get(o).is_some_and(|m| !m.is_gone(now));
        let others = r.group.in_sync.iter().filter(|o| **o != r.group.me);
        others.filter(|o| of_use(o)).copied().collect()
    }

    fn enough(&self) -> usize {
        (self.group.min_size as usize).max(1)
    }

    /// Others can go on now.
    pub(super) fn can_step_down(&self, now: Duration) -> bool {
        let r = self;
        r.stepping_down.is_some() && r.peered && self.group_without_me(now).len() >= self.enough()
    }

    /// Others can go on, or may come to: nobody knows that too few of them have room.
    fn others_may_go_on(&self, now: Duration, since: Duration, pg: &PgState) -> bool {
        let r = self;
        if !r.group.is_primary() || !r.peered {
            return false;
        }
        let full = |osd: &OsdId| pg.pool.full_osds.contains(osd);
        let with_room = r
            .members
            .iter()
            .filter(|(osd, m)| !m.no_room && !full(osd))
            .count();
        let tried = r.stepping_down_failed.is_some_and(|at| now < at + TRIED_REST);
        let returning = match now < since + RETURN_MAX && !tried {
            true => (r.group.size as usize).saturating_sub(r.group.up.len()),
            false => 0,
        };
        with_room + returning >= self.enough()
    }

    /// A write has found no room here. True if others can go on without this OSD, or may soon: nothing is written until then.
    pub(super) fn begin_stepping_down(&mut self, now: Duration, pg: &PgState) -> bool {
        let since = self.stepping_down.unwrap_or(now);
        if !self.others_may_go_on(now, since, pg) {
            return false;
        }
        if self.stepping_down.is_none() {
            tracing::warn!("pg {}: no room here: another OSD shall lead", pg.id);
        }
        self.stepping_down = Some(since);
        self.look_at = Some(now);
        true
    }

    /// Before a proposal: another primary has all that was executed here, and so have the rest.
    pub(super) fn is_settled(&self, set: &[OsdId], ctx: &Lent<'_>) -> bool {
        let full = |o: &OsdId| self.members.get(o).is_some_and(|m| m.is_full());
        set.iter().all(full)
            && !ctx.front.answers_wait(self.confirmed)
            && !ctx.front.has_messages()
            && self.committed() >= ctx.pg.last_seq
    }

    /// It is known that nobody can take over: what waits is tried again. Not while a proposal may still come true.
    pub(super) fn give_up_stepping_down(&mut self, now: Duration, pg: &PgState) {
        let Some(since) = self.stepping_down else { return };
        if !self.handed && !self.others_may_go_on(now, since, pg) {
            self.stepping_down = None;
            self.stepping_down_failed = Some(now);
        }
    }
}
