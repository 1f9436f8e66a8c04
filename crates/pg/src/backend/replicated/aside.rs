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

use super::propose::AWAY_MAX;
use crate::Pg;
use crate::api::{ClientOp, Context};
use crate::front::checks::{Class, classify};
use messages::osd::flag;
use std::collections::VecDeque;
use std::time::Duration;
use types::OsdId;

/// So long writes wait for copies on OSDs that are down and may come back.
const RETURN_MAX: Duration = Duration::from_secs(30);
/// After none of them came back, writes do not wait for them for so long.
const TRIED_REST: Duration = Duration::from_secs(10);

impl Pg {
    /// The set without this OSD, and without those of no use.
    pub(super) fn group_without_me(&self, now: Duration) -> Vec<OsdId> {
        let r = &self.repl;
        let of_use = |o: &OsdId| r.members.get(o).is_some_and(|m| !m.is_gone(now, AWAY_MAX));
        let others = r.group.in_sync.iter().filter(|o| **o != r.group.me);
        others.filter(|o| of_use(o)).copied().collect()
    }

    fn enough(&self) -> usize {
        (self.repl.group.min_size as usize).max(1)
    }

    /// Others can go on now.
    pub(super) fn can_stand_aside(&self, now: Duration) -> bool {
        let r = &self.repl;
        r.aside.is_some() && r.peered && self.group_without_me(now).len() >= self.enough()
    }

    /// Others can go on, or may come to: nobody knows that too few of them have room.
    fn others_may_go_on(&self, now: Duration, since: Duration) -> bool {
        let r = &self.repl;
        if !r.group.is_primary() || !r.peered {
            return false;
        }
        let full = |osd: &OsdId| self.state.pool.full_osds.contains(osd);
        let with_room = r
            .members
            .iter()
            .filter(|(osd, m)| !m.no_room && !full(osd))
            .count();
        let tried = r.tried_aside.is_some_and(|at| now < at + TRIED_REST);
        let returning = match now < since + RETURN_MAX && !tried {
            true => (r.group.size as usize).saturating_sub(r.group.up.len()),
            false => 0,
        };
        with_room + returning >= self.enough()
    }

    /// Takes a write for which there is no room here, if others can go on without this OSD, or may soon; else gives it back.
    pub(crate) fn stand_aside(&mut self, c: Box<ClientOp>, ctx: &mut Context<'_>) -> Option<Box<ClientOp>> {
        let since = self.repl.aside.unwrap_or(ctx.now);
        if !self.others_may_go_on(ctx.now, since) {
            return Some(c);
        }
        if self.repl.aside.is_none() {
            tracing::warn!("pg {}: no room here: another OSD shall lead", self.state.id);
        }
        self.repl.aside = Some(since);
        // All of them came before what is held already.
        for later in self.take_parked_messages(ctx).into_iter().rev() {
            self.repl.held.push_front(later);
        }
        self.repl.held.push_front(c);
        self.repl.look_at = Some(ctx.now);
        None
    }

    /// Clients' writes wait for room here, or for others to lead.
    pub fn lacks_room(&self) -> bool {
        self.repl.aside.is_some()
    }

    /// While writes wait for room, and nobody can lead yet, reads go on. Not behind a write of the same object.
    fn may_read_meanwhile(&self, c: &ClientOp, before: &VecDeque<Box<ClientOp>>) -> bool {
        let r = &self.repl;
        let may = !r.handed && r.handing.is_none() && r.could_be_active();
        let same = |o: &ClientOp| {
            (o.op.hash, &o.op.oid, &o.op.oloc) == (c.op.hash, &c.op.oid, &c.op.oloc) && !only_reads(o)
        };
        may && only_reads(c) && !before.iter().any(|o| same(o))
    }

    /// Gives a read back that need not wait with the writes.
    pub(super) fn read_meanwhile(
        &mut self,
        c: Box<ClientOp>,
        now: Duration,
    ) -> Result<Box<ClientOp>, Box<ClientOp>> {
        let waits = self.repl.aside.is_some() && !self.can_stand_aside(now);
        match waits && self.may_read_meanwhile(&c, &self.repl.held) {
            true => Ok(c),
            false => Err(c),
        }
    }

    /// Of what was held when the room ended, the reads.
    pub(super) fn read_held_meanwhile(&mut self, ctx: &mut Context<'_>) {
        let r = &self.repl;
        if r.aside.is_none() || r.aside == r.sifted || self.can_stand_aside(ctx.now) {
            return;
        }
        self.repl.sifted = self.repl.aside;
        let (mut stay, mut go) = (VecDeque::new(), Vec::new());
        for c in std::mem::take(&mut self.repl.held) {
            match self.may_read_meanwhile(&c, &stay) {
                true => go.push(c),
                false => stay.push_back(c),
            }
        }
        self.repl.held = stay;
        go.into_iter().for_each(|c| self.client_op(c, ctx));
    }

    /// Before a proposal: another primary has all that was executed here, and so have the rest.
    pub(super) fn is_settled(&self, set: &[OsdId]) -> bool {
        let full = |o: &OsdId| self.repl.members.get(o).is_some_and(|m| m.is_full());
        set.iter().all(full)
            && !self.front.commits.is_waiting()
            && !self.front.parked.has_messages()
            && self.repl.committed() >= self.state.last_seq
    }

    /// It is known that nobody can take over: what waits is tried again. Not while a proposal may still come true.
    pub(super) fn give_up_aside(&mut self, now: Duration) {
        let Some(since) = self.repl.aside else { return };
        if !self.repl.handed && !self.others_may_go_on(now, since) {
            self.repl.aside = None;
            self.repl.tried_aside = Some(now);
        }
    }
}

fn only_reads(c: &ClientOp) -> bool {
    matches!(classify(&c.op), Ok(Class::Read)) && !c.op.has(flag::RWORDERED)
}
