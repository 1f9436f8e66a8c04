//! Early answers: which answer leaves before everything made before it is durable, and how changes are gathered to appends.
//!
//! Vocabulary: an answer is *unsafe* when its change is made and not durable; the *safe* one follows when it is. A client keeps what was
//! answered as unsafe, and says it again to the next server ([`super::replays`]).
//!
//! Invariants: an answer leaves early only if all that it was made of is durable, or was made by requests of the same client that were
//! answered as unsafe themselves ([`crate::owners`]); so a change that is lost was seen by nobody but a client that brings it back, and
//! what such a change was built on is there, or brought back before it. No message overtakes another to the same client, but second
//! answers do not hold others up.

#[cfg(test)]
use super::parts::early::Broken;
use super::parts::early::{
    GATHER, GATHER_BYTES, Leave, NUMBERS, QUIET, UNSAFE_ALL_MAX, UNSAFE_BYTES, UNSAFE_MAX, is_of_rows,
    may_be_unsafe,
};
use super::parts::request::done_before;
use super::{ClientId, Effect, Machine, Request};
use crate::membership::MdsState;
use messages::fs::MClientReply;
use messages::mon::Body;

impl Machine {
    /// A request is carried out from its start.
    pub(crate) fn begin_run(&mut self, client: ClientId) {
        self.table.owners.reads(client);
        self.early.made = 0;
        self.early.own = None;
    }

    /// It did not come to its end: what it changed is nobody's.
    pub(crate) fn end_run(&mut self) {
        if let Some(tx) = self.early.own.take() {
            self.table.owners.give(tx, None);
        }
    }

    /// What follows from a request, and does not show in its answer.
    pub(crate) fn aside(&mut self, work: impl FnOnce(&mut Self)) {
        let (seen, made) = (self.table.owners.seen(), self.early.made);
        work(self);
        self.table.owners.forget_to(seen);
        self.early.made = made;
    }

    /// When the answer to a request leaves that has just been carried out.
    pub(crate) fn leave(&mut self, r: &Request, result: i32) -> Leave {
        let own = self.early.own.take().filter(|tx| *tx > self.committed);
        let free = self.is_free(r);
        let Some(tx) = own else {
            return if free { Leave::Now } else { Leave::Durable };
        };
        if free && result == 0 && may_be_unsafe(&r.m) && self.take_room(r.client) {
            return Leave::Unsafe(tx);
        }
        self.table.owners.give(tx, None);
        Leave::Durable
    }

    fn is_free(&self, r: &Request) -> bool {
        let needs = self
            .table
            .owners
            .seen()
            .max(self.early.made)
            .max(self.early.floor);
        #[cfg(test)]
        let needs = if self.early.is(Broken::SeenByOthers) {
            0
        } else {
            needs
        };
        let conn = self.sessions.get(r.client).and_then(|s| s.conn);
        self.options.early
            && self.state == MdsState::Active
            && needs <= self.committed
            && is_of_rows(&r.m)
            && conn.is_some_and(|c| !self.outbox.is_busy(c))
    }

    /// One more that is not durable, if there is room.
    fn take_room(&mut self, client: ClientId) -> bool {
        let numbers = self.counters.next_ino.saturating_sub(self.early.durable_ino);
        if self.early.unsafes >= UNSAFE_ALL_MAX || numbers > NUMBERS || self.batch.bytes() >= UNSAFE_BYTES {
            return false;
        }
        match self.sessions.get_mut(client) {
            Some(s) if s.unsafes < UNSAFE_MAX => {
                s.unsafes += 1;
                s.quiet = Some(self.now.monotonic);
                self.early.hurry |= s.waits;
            }
            _ => return false,
        }
        self.early.unsafes += 1;
        true
    }

    /// Overtakes what waits for others.
    pub(crate) fn answer(&mut self, r: &Request, mut reply: MClientReply, leave: Leave) {
        let conn = self.sessions.get(r.client).and_then(|s| s.conn);
        let Some(conn) = conn else { return };
        if let Leave::Unsafe(_) = leave {
            // As the real server says it.
            (reply.safe, reply.map_epoch) = (false, 0);
            #[cfg(test)]
            if self.early.is(Broken::SafeAtOnce) {
                reply.safe = true;
            }
        }
        let effect = Effect::Send {
            conn,
            message: reply.message(r.tid),
        };
        match leave {
            Leave::Durable => self.push(effect),
            Leave::Now => self.push_now(effect),
            Leave::Unsafe(tx) => {
                self.push_now(effect);
                let safe = self.bare(r, 0, 0);
                let effect = Effect::Send {
                    conn,
                    message: safe.message(r.tid),
                };
                self.outbox.add_safe(tx, r.client, effect);
            }
        }
    }

    /// That it is durable, and nothing else.
    pub(crate) fn bare(&self, r: &Request, result: i32, made: u64) -> MClientReply {
        let done = done_before(made);
        MClientReply {
            op: r.m.op,
            result,
            map_epoch: self.place.epoch,
            safe: true,
            trace: done.trace,
            extra: done.extra,
            snap: Default::default(),
        }
    }

    /// A second answer has left.
    pub(crate) fn is_safe(&mut self, client: ClientId) {
        self.early.unsafes = self.early.unsafes.saturating_sub(1);
        if let Some(s) = self.sessions.get_mut(client) {
            s.unsafes = s.unsafes.saturating_sub(1);
            let quiet = if s.unsafes == 0 { s.quiet.take() } else { None };
            if quiet.is_some_and(|since| self.now.monotonic.saturating_sub(since) >= QUIET) {
                s.waits = true;
            }
        }
    }

    /// More may be gathered before the append: there was one just now, and nobody waits for this one, as far as is known. It is told when
    /// the time is over.
    pub(crate) fn gathers(&mut self) -> bool {
        let full = self.batch.bytes() >= GATHER_BYTES || self.early.unsafes >= UNSAFE_ALL_MAX / 2;
        let alone = !self.options.early || self.state != MdsState::Active;
        let left = GATHER.saturating_sub(self.now.monotonic.saturating_sub(self.early.appended));
        if self.early.hurry || alone || full || left.is_zero() || self.outbox.is_urgent() {
            self.early.hurry = false;
            self.early.appended = self.now.monotonic;
            return false;
        }
        if !self.early.nudged {
            self.early.nudged = true;
            self.push_now(Effect::Nudge { after: left });
        }
        true
    }

    pub(crate) fn nudged(&mut self) {
        self.early.nudged = false;
        self.early.hurry = !self.batch.is_empty();
    }
}
