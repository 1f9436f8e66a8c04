//! The PG and its back end: what goes there, and what goes on afterwards.

use crate::Pg;
use crate::api::{Context, Output, Word};
use crate::backend::group::Group;
use crate::backend::reports::{CopyNeed, Kin, MemberState};
use crate::backend::{Backend, Lack, Lent, Whose};
use crate::front::wake::Wake;
use crate::store::{Seq, Ticket};
use messages::osd::peer::PeerBody;
use types::{Epoch, Errno, HObject, OsdId, Transaction};

impl Pg {
    /// The configuration that this PG goes by.
    pub fn group(&self) -> &Group {
        self.backend.group()
    }

    /// True if clients' operations are executed.
    pub fn is_active(&self) -> bool {
        self.backend.is_active()
    }

    /// Who has what, for reports.
    pub fn members(&self) -> Vec<MemberState> {
        self.backend.members(&self.state)
    }

    /// What it wants to copy and waits to be granted.
    pub fn wants_to_copy(&self) -> Option<CopyNeed> {
        self.backend.wants_to_copy()
    }

    /// Clients' writes wait for room here, or for others to lead.
    pub fn lacks_room(&self) -> bool {
        self.backend.lacks_room()
    }

    /// The epoch in which it was made here, if that was in this life.
    pub fn born_in(&self) -> Option<Epoch> {
        self.backend.born_in()
    }

    /// The newest epoch in which others were split off from it, in this life.
    pub fn split_in(&self) -> Option<Epoch> {
        self.backend.split_in()
    }

    /// The members that have everything, for a PG that is split off now.
    pub fn kin(&self) -> Kin {
        self.backend.kin(&self.state)
    }

    /// None of them has fallen away since.
    pub fn has_kept(&self, kin: &Kin) -> bool {
        self.backend.has_kept(kin, &self.state)
    }

    /// One call of the back end.
    pub(crate) fn lend<R>(
        &mut self,
        ctx: &mut Context<'_>,
        call: impl FnOnce(&mut dyn Backend, &mut Lent<'_>) -> R,
    ) -> R {
        let mut lent = Lent {
            pg: &mut self.state,
            front: &mut self.front,
            store: &mut *ctx.store,
            now: ctx.now,
            out: &mut *ctx.out,
        };
        let done = call(&mut *self.backend, &mut lent);
        // Answers that waited for nothing else go.
        let by = self.backend.take_word().unwrap_or(Word::Change);
        self.front.confirm(self.backend.confirmed(), by, ctx.out);
        done
    }

    /// One call, and what it has set going.
    pub(crate) fn tell_backend(
        &mut self,
        ctx: &mut Context<'_>,
        call: impl FnOnce(&mut dyn Backend, &mut Lent<'_>),
    ) {
        self.lend(ctx, call);
        self.wake(ctx);
        self.release_held(ctx);
    }

    fn wake(&mut self, ctx: &mut Context<'_>) {
        while let Some(wake) = self.front.next_wake() {
            match wake {
                Wake::Start(id) => self.start_ready(Some(id), ctx),
                Wake::Came(ticket) => self.came(ticket, ctx),
                Wake::Pump(head) => self.pump(&head, ctx),
                Wake::Checked(token) => self.check_repaired(token, ctx),
                Wake::Reload => self.reload(ctx),
                Wake::Unreadable(head) => self.note_unreadable(&head, ctx),
            }
        }
    }

    /// One call about repairs, and what it has set going.
    pub(crate) fn repair<R>(
        &mut self,
        ctx: &mut Context<'_>,
        call: impl FnOnce(&mut dyn Backend, &mut Lent<'_>) -> R,
    ) -> R {
        let out = self.lend(ctx, call);
        self.wake(ctx);
        out
    }

    /// Something of the object cannot be read here. True if a repair is on its way: who met the error tries once more
    /// when that has ended, and pumps.
    pub(crate) fn damaged(&mut self, head: &HObject, ctx: &mut Context<'_>) -> bool {
        self.lend(ctx, |b, lent| b.damaged(head, lent))
    }

    /// A turn on an object has begun; false: nobody wants it any more.
    pub(crate) fn turn_begins(&mut self, whose: Whose, turn: u64, ctx: &mut Context<'_>) -> bool {
        self.lend(ctx, |b, lent| b.turn_begins(whose, turn, lent))
    }

    pub(crate) fn peer(
        &mut self,
        (from, shard): (OsdId, i8),
        interval: Epoch,
        body: PeerBody,
        ctx: &mut Context<'_>,
    ) {
        if !self.backend.hears(from, shard, interval) {
            return;
        }
        let said = self.repair(ctx, |b, lent| b.on_message(from, body, lent));
        self.release_held(ctx);
        if let Some(said) = said {
            self.scrub_said(from, said, ctx);
        }
    }

    /// A transaction of the PG: to the store here and to the members. `head`: the object that it is about.
    pub(crate) fn submit_txn(
        &mut self,
        txn: Transaction,
        head: Option<&HObject>,
        ctx: &mut Context<'_>,
    ) -> Result<Seq, Errno> {
        self.lend(ctx, |b, lent| b.submit(txn, head, lent))
    }

    /// Asks for what an execution lacked. Without a ticket there is nothing to wait for.
    pub(crate) fn bring(&mut self, lacks: Vec<Lack>, ctx: &mut Context<'_>) -> Vec<Ticket> {
        self.lend(ctx, |b, lent| {
            let asked = lacks
                .iter()
                .filter_map(|l| b.prefetch(&l.oid, l.offset, l.len, lent));
            asked.collect()
        })
    }

    pub(crate) fn release(&mut self, tickets: Vec<Ticket>, ctx: &mut Context<'_>) {
        tickets
            .into_iter()
            .for_each(|t| self.backend.release(t, ctx.store));
    }

    /// What will never be answered from here: who waits for an object of it is told.
    pub(crate) fn abandon_answers(&mut self, ctx: &mut Context<'_>) {
        for output in self.front.abandon() {
            if let Output::Exported { token, .. } = output {
                let result = Err(Errno::EAGAIN);
                ctx.out.push(Output::Exported { token, result });
            }
        }
    }
}
