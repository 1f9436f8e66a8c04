//! [`Backend`] by copies.

use super::Replicated;
use super::gather::gather;
use super::repair::Owner;
use super::repair::fixes::fixes;
use super::verdict;
use crate::api::Word;
use crate::backend::digest::Walk;
use crate::backend::findings::Inconsistent;
use crate::backend::group::Group;
use crate::backend::pull_turns::PullTurns;
use crate::backend::reports::{CopyNeed, Kin, MemberState};
use crate::backend::{Backend, Lent, Look, TurnId, Whose};
use crate::exec::gathered::{Gathered, Read};
use crate::state::pg::PgState;
use crate::store::{IoError, ObjectStore, Seq, Ticket};
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::{ObjectDigest, ScrubBody};
use std::time::Duration;
use types::{Epoch, Errno, HObject, ObjectId, OsdId, Transaction};

impl Backend for Replicated {
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

    fn is_shared(&self) -> bool {
        !self.members.is_empty()
    }

    fn gather(&self, oid: &ObjectId, reads: &[Read], store: &mut dyn ObjectStore, into: &mut Gathered) {
        gather(oid, reads, store, into);
    }

    fn submit(
        &mut self,
        txn: Transaction,
        head: Option<&HObject>,
        lent: &mut Lent<'_>,
    ) -> Result<Seq, Errno> {
        let seq = lent.store.submit(&txn)?;
        lent.pg.last_seq = seq;
        if self.is_shared() {
            self.replicate(txn.into(), head, seq, lent);
        }
        Ok(seq)
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

    /// Repairs do, and so do learners, who are given what is durable on all of `in_sync`.
    fn waits_for_durability(&self) -> bool {
        self.repair_waits_for_flush() || self.members.values().any(|m| m.waits_for_durability())
    }

    fn hears(&self, from: OsdId, _: i8, interval: Epoch) -> bool {
        interval == self.group.interval && self.connected.contains(&from)
    }

    fn on_message(&mut self, from: OsdId, body: PeerBody, lent: &mut Lent<'_>) -> Option<ScrubBody> {
        self.said(from, body, lent)
    }

    fn recover(&mut self, lent: &mut Lent<'_>) {
        if self.is_repairing() {
            self.go_on_repairing(lent);
        }
    }

    fn next_timer(&self) -> Option<Duration> {
        [self.look_at, self.repair_timer()].into_iter().flatten().min()
    }

    fn tick(&mut self, lent: &mut Lent<'_>) {
        self.look_after_members(lent);
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
            Whose::Repair(id) => self.repair_begins(id, turn),
        }
    }

    fn repair_dropped(&mut self, repair: u64, lent: &mut Lent<'_>) {
        self.forget_repair(repair, lent);
    }

    fn read_ended(&mut self, ticket: Ticket, lent: &mut Lent<'_>) -> bool {
        self.repair_read_ended(ticket, lent)
    }

    fn leave(&mut self, lent: &mut Lent<'_>) {
        self.leave_repairs(lent);
    }

    fn damaged(&mut self, head: &HObject, lent: &mut Lent<'_>) -> bool {
        self.repair_for_read(head, lent)
    }

    fn digest(
        &mut self,
        from: &HObject,
        to: &HObject,
        deep: bool,
        lent: &mut Lent<'_>,
    ) -> Result<Look, IoError> {
        let token = self.number();
        let own = Walk::begin(&lent.pg.object_id(from.clone()), to, deep, lent.store)?;
        let asked = self.full_members();
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
        verdict::judge(object, sides)
    }

    fn mend(&mut self, head: HObject, wrong: &[Inconsistent], token: u64, lent: &mut Lent<'_>) {
        let fixes = fixes(&self.group, &head, wrong);
        self.add_repair(head, Owner::Check(token), fixes, lent);
        self.go_on_repairing(lent);
    }

    fn drop_mending(&mut self, token: Option<u64>, lent: &mut Lent<'_>) {
        match token {
            Some(token) => self.drop_repairs(|owner| owner == Owner::Check(token), lent),
            None => self.drop_repairs(|owner| owner != Owner::Read, lent),
        }
    }

    fn repaired(&self) -> u64 {
        self.copies_repaired()
    }

    fn share_pull_turns(&mut self, turns: PullTurns) {
        self.take_turns_of(turns);
    }

    fn number(&mut self) -> u64 {
        self.next_number()
    }

    fn step_down(&mut self, now: Duration, pg: &PgState) -> bool {
        self.begin_stepping_down(now, pg)
    }

    fn lacks_room(&self) -> bool {
        self.stepping_down.is_some()
    }

    fn reads_go_on(&self, now: Duration) -> bool {
        self.stepping_down.is_some() && !self.can_step_down(now) && self.may_read()
    }

    fn may_read(&self) -> bool {
        !self.handed && self.handing.is_none() && !self.is_resting() && self.could_be_active()
    }

    fn sifts(&mut self, now: Duration) -> bool {
        let sifts =
            self.stepping_down.is_some() && self.stepping_down != self.sifted && !self.can_step_down(now);
        if sifts {
            self.sifted = self.stepping_down;
        }
        sifts
    }

    fn come_to_rest(&mut self, lent: &mut Lent<'_>) {
        self.begin_to_rest(lent);
    }

    fn is_born(&mut self, pg: &PgState) {
        self.note_birth(pg);
    }

    fn born_in(&self) -> Option<Epoch> {
        self.birth.born_in()
    }

    fn split(&mut self, lent: &mut Lent<'_>) {
        self.note_split(lent.pg);
        self.restart_catching_up(lent);
    }

    fn split_in(&self) -> Option<Epoch> {
        self.birth.split_in()
    }

    fn kin(&self, pg: &PgState) -> Kin {
        self.kin_now(pg)
    }

    fn has_kept(&self, kin: &Kin, pg: &PgState) -> bool {
        self.has_kept_since(kin, pg)
    }

    fn note_sibling(&mut self, osd: OsdId, pg: &PgState) {
        self.remember_sibling(osd, pg);
    }
}
