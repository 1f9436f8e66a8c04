//! Clients' operations that wait while the PG is not active.
//!
//! Operations on one object keep the order in which they came. While the back end waits for room only writes need wait:
//! reads go before them, but not before a write of the same object.
//!
//! Bound: clients' permits.

use super::checks::{Class, classify};
use crate::Pg;
use crate::api::{ClientOp, Context};
use messages::osd::flag;
use std::collections::VecDeque;
use std::time::Duration;

impl Pg {
    /// Operations that wait for the PG to become active.
    pub fn held(&self) -> usize {
        self.front.held.len()
    }

    /// Holds an operation back while the PG is not active.
    pub(crate) fn hold(&mut self, op: Box<ClientOp>, now: Duration) -> Option<Box<ClientOp>> {
        if self.is_active() && self.front.held.is_empty() {
            return Some(op);
        }
        if self.backend.reads_go_on(now) && may_pass(&op, &self.front.held) {
            return Some(op);
        }
        self.front.held.push_back(op);
        None
    }

    /// Executes what need not wait any more.
    pub(crate) fn release_held(&mut self, ctx: &mut Context<'_>) {
        while !self.front.held.is_empty()
            && self.is_active()
            && let Some(op) = self.front.held.pop_front()
        {
            self.client_op(op, ctx);
        }
        if !self.front.held.is_empty() && self.backend.sifts(ctx.now) {
            self.release_reads(ctx);
        }
    }

    /// Of what was held when the room ended, the reads.
    fn release_reads(&mut self, ctx: &mut Context<'_>) {
        let may = self.backend.may_read();
        let (mut stay, mut go) = (VecDeque::new(), Vec::new());
        for c in std::mem::take(&mut self.front.held) {
            match may && may_pass(&c, &stay) {
                true => go.push(c),
                false => stay.push_back(c),
            }
        }
        self.front.held = stay;
        go.into_iter().for_each(|c| self.client_op(c, ctx));
    }

    pub(crate) fn drop_held(&mut self, gone: impl Fn(&ClientOp) -> bool) {
        self.front.held.retain(|op| !gone(op));
    }

    /// A write found no room. Taken if others can go on without this OSD, or may soon; else given back.
    pub(crate) fn hold_for_room(&mut self, c: Box<ClientOp>, ctx: &mut Context<'_>) -> Option<Box<ClientOp>> {
        if !self.backend.step_down(ctx.now, &self.state) {
            return Some(c);
        }
        self.hold_all(c, ctx);
        None
    }

    /// Holds a message that has its turn, and those that are parked.
    pub(crate) fn hold_all(&mut self, c: Box<ClientOp>, ctx: &mut Context<'_>) {
        // All of them came before what is held already.
        for later in self.take_parked_messages(ctx).into_iter().rev() {
            self.front.held.push_front(later);
        }
        self.front.held.push_front(c);
    }
}

/// A read that waits for nothing that came before it.
fn may_pass(c: &ClientOp, before: &VecDeque<Box<ClientOp>>) -> bool {
    let same = |o: &ClientOp| {
        (o.op.hash, &o.op.oid, &o.op.oloc) == (c.op.hash, &c.op.oid, &c.op.oloc) && !only_reads(o)
    };
    only_reads(c) && !before.iter().any(|o| same(o))
}

fn only_reads(c: &ClientOp) -> bool {
    matches!(classify(&c.op), Ok(Class::Read)) && !c.op.has(flag::RWORDERED)
}
