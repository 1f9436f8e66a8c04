//! [`Backend`] by shards.

use super::Shards;
use super::repair::{Extent, Owner};
use crate::api::Word;
use crate::backend::digest::Walk;
use crate::backend::erasure::old::{Cut, cut_here};
use crate::backend::findings::Inconsistent;
use crate::backend::group::Group;
use crate::backend::pull_turns::PullTurns;
use crate::backend::reports::{CopyNeed, Kin, MemberState};
use crate::backend::{Backend, Lack, Lent, Look, OWN_TICKET, TurnId, Whose};
use crate::exec::gathered::{Gathered, Read};
use crate::state::pg::PgState;
use crate::store::{IoError, ObjectStore, Seq, Ticket};
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::{ObjectDigest, ScrubBody};
use std::time::Duration;
use types::{Epoch, Errno, HObject, ObjectId, OsdId, Transaction};

impl Backend for Shards {
    fn group(&self) -> &Group {
        &self.group
    }

    fn set_group(&mut self, group: Group, lent: &mut Lent<'_>) {
        self.group_changed(group, lent);
    }

    fn peer_up(&mut self, osd: OsdId, lent: &mut Lent<'_>) {
        self.connected_again(osd, lent);
    }

    fn peer_down(&mut self, osd: OsdId, lent: &mut Lent<'_>) {
        self.disconnected(osd, lent);
    }

    fn is_active(&self) -> bool {
        self.may_execute()
    }

    fn all_full(&self) -> bool {
        self.members.values().all(|m| m.is_full())
    }

    fn members(&self, pg: &PgState) -> Vec<MemberState> {
        self.states(pg)
    }

    /// What other PGs have here is one shard of it.
    fn is_shared(&self) -> bool {
        true
    }

    fn prefetch(&mut self, oid: &ObjectId, offset: u64, len: u64, lent: &mut Lent<'_>) -> Option<Ticket> {
        let ticket = self.reads.prefetch(oid, offset, len, lent.store);
        self.go_on_reading(lent);
        ticket
    }

    fn release(&mut self, ticket: Ticket, store: &mut dyn ObjectStore) {
        match ticket & OWN_TICKET != 0 {
            true => self.reads.release(ticket, store),
            false => store.release(ticket),
        }
    }

    fn gather(&self, oid: &ObjectId, reads: &[Read], store: &mut dyn ObjectStore, into: &mut Gathered) {
        self.reads.gather(oid, reads, store, into);
    }

    fn submit(
        &mut self,
        txn: Transaction,
        head: Option<&HObject>,
        lent: &mut Lent<'_>,
    ) -> Result<Seq, Errno> {
        match cut_here(&txn, &self.coding, &self.reads, lent.store) {
            Ok(Cut::Done(cut, changes)) => {
                let seq = self.submit_cut(cut, head, lent)?;
                self.reads.keep(changes, lent.store);
                Ok(seq)
            }
            Ok(Cut::Lacks(lacks)) => {
                self.lacking = lacks;
                Err(Errno::EAGAIN)
            }
            Err(e) => {
                tracing::error!("pg {}: {e}", lent.pg.id);
                Err(Errno::EIO)
            }
        }
    }

    fn take_lacking(&mut self) -> Vec<Lack> {
        std::mem::take(&mut self.lacking)
    }

    fn durable(&mut self, seq: Seq, lent: &mut Lent<'_>) {
        self.durable_here(seq, lent);
    }

    fn confirmed(&self) -> Seq {
        self.confirmed
    }

    fn take_word(&mut self) -> Option<Word> {
        self.word.take()
    }

    /// What is set aside is let go, and learners join, when what is here is durable.
    fn waits_for_durability(&self) -> bool {
        self.durable < self.newest
    }

    fn hears(&self, from: OsdId, shard: i8, interval: Epoch) -> bool {
        let now = interval == self.group.interval && self.connected.contains(&from);
        let place = self.members.get(&from).map(|m| m.place as i8);
        now && place == Some(shard)
    }

    fn on_message(&mut self, from: OsdId, body: PeerBody, lent: &mut Lent<'_>) -> Option<ScrubBody> {
        self.said(from, body, lent)
    }

    /// A read that was let go of makes room for others.
    fn recover(&mut self, lent: &mut Lent<'_>) {
        self.go_on_reading(lent);
    }

    fn next_timer(&self) -> Option<Duration> {
        [self.look_at, self.repair_at].into_iter().flatten().min()
    }

    fn tick(&mut self, lent: &mut Lent<'_>) {
        self.look_after_members(lent);
        if self.repair_at.is_some_and(|at| at <= lent.now) {
            self.repair_at = None;
            self.go_on_repairing(lent);
        }
    }

    fn wants_to_copy(&self) -> Option<CopyNeed> {
        self.copies_wanted()
    }

    fn grant(&mut self, objects: usize, lent: &mut Lent<'_>) {
        self.copies_granted(objects, lent);
    }

    fn turn_begins(&mut self, whose: Whose, turn: TurnId, lent: &mut Lent<'_>) -> bool {
        match whose {
            Whose::Copy { member, token } => self.copy_begins(member, token, turn, lent),
            Whose::Repair(id) => self.repair_begins(id, turn, lent),
        }
    }

    fn repair_dropped(&mut self, repair: u64, lent: &mut Lent<'_>) {
        self.forget_repair(repair, lent);
    }

    fn read_ended(&mut self, ticket: Ticket, lent: &mut Lent<'_>) -> bool {
        let ours = self.reads.own_read_ended(ticket, lent.store);
        self.go_on_reading(lent);
        ours
    }

    fn leave(&mut self, lent: &mut Lent<'_>) {
        self.reads.leave(lent.store);
    }

    fn damaged(&mut self, head: &HObject, lent: &mut Lent<'_>) -> bool {
        self.begin_repair(head.clone(), self.own, (Owner::Read, Extent::Units), lent)
    }

    fn digest(
        &mut self,
        from: &HObject,
        to: &HObject,
        deep: bool,
        lent: &mut Lent<'_>,
    ) -> Result<Look, IoError> {
        let token = self.next_number();
        let own = Walk::begin(&lent.pg.object_id(from.clone()), to, deep, lent.store)?;
        let full = |(osd, m): (&OsdId, &super::Member)| m.is_full().then_some(*osd);
        let asked: Vec<OsdId> = self.members.iter().filter_map(full).collect();
        for osd in &asked {
            let body = ScrubBody::Digest {
                token,
                from: from.clone(),
                to: to.clone(),
                deep,
            };
            self.send_to(*osd, PeerBody::Scrub(body), lent);
        }
        Ok(Look { token, own, asked })
    }

    fn judge(&self, object: &HObject, sides: &[(OsdId, Option<&ObjectDigest>)]) -> Option<Inconsistent> {
        self.judged(object, sides)
    }

    fn mend(&mut self, head: HObject, wrong: &[Inconsistent], token: u64, lent: &mut Lent<'_>) {
        self.begin_mending(head, wrong, token, lent);
    }

    fn drop_mending(&mut self, token: Option<u64>, lent: &mut Lent<'_>) {
        match token {
            Some(token) => self.drop_repairs(|owner| owner == Owner::Check(token), lent),
            None => self.drop_repairs(|owner| owner != Owner::Read, lent),
        }
    }

    fn repaired(&self) -> u64 {
        self.repaired
    }

    fn share_pull_turns(&mut self, turns: PullTurns) {
        self.turns = turns;
    }

    fn number(&mut self) -> u64 {
        self.next_number()
    }

    fn reloaded(&mut self, lent: &mut Lent<'_>) {
        self.loaded_anew(lent);
    }

    fn is_born(&mut self, _: &PgState) {
        self.born = true;
    }

    fn split(&mut self, lent: &mut Lent<'_>) {
        self.restart_learning(lent);
    }

    /// No PG that is split off takes over what is known of members here.
    fn kin(&self, _: &PgState) -> Kin {
        Kin::default()
    }

    fn has_kept(&self, _: &Kin, _: &PgState) -> bool {
        false
    }
}
