//! [`Backend`] by shards.

use super::Shards;
use crate::api::Word;
use crate::backend::digest::Walk;
use crate::backend::findings::Inconsistent;
use crate::backend::group::Group;
use crate::backend::reports::{CopyNeed, Kin, MemberState};
use crate::backend::{Backend, Lent, Look, TurnId, Whose};
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

    fn set_group(&mut self, group: Group, _: &mut Lent<'_>) {
        self.group = group;
    }

    fn peer_up(&mut self, osd: OsdId, _: &mut Lent<'_>) {
        self.connected.insert(osd);
    }

    fn peer_down(&mut self, osd: OsdId, _: &mut Lent<'_>) {
        self.connected.remove(&osd);
    }

    fn is_active(&self) -> bool {
        false
    }

    fn all_full(&self) -> bool {
        false
    }

    fn members(&self, _: &PgState) -> Vec<MemberState> {
        Vec::new()
    }

    /// What other PGs have here is one shard of it.
    fn is_shared(&self) -> bool {
        true
    }

    fn gather(&self, oid: &ObjectId, reads: &[Read], _: &mut dyn ObjectStore, into: &mut Gathered) {
        for read in reads {
            into.add(*read, Err(IoError(format!("{}: not here", oid.object))));
        }
    }

    fn submit(&mut self, _: Transaction, _: Option<&HObject>, _: &mut Lent<'_>) -> Result<Seq, Errno> {
        Err(Errno::EAGAIN)
    }

    fn durable(&mut self, _: Seq, _: &mut Lent<'_>) {
        self.word = Some(Word::Disk);
    }

    fn confirmed(&self) -> Seq {
        self.confirmed
    }

    fn take_word(&mut self) -> Option<Word> {
        self.word.take()
    }

    fn waits_for_durability(&self) -> bool {
        false
    }

    fn hears(&self, from: OsdId, shard: i8, interval: Epoch) -> bool {
        let now = interval == self.group.interval && self.connected.contains(&from);
        now && shard >= 0 && self.group.shard_of(from) == shard
    }

    fn on_message(&mut self, _: OsdId, _: PeerBody, _: &mut Lent<'_>) -> Option<ScrubBody> {
        None
    }

    fn recover(&mut self, _: &mut Lent<'_>) {}

    fn next_timer(&self) -> Option<Duration> {
        None
    }

    fn tick(&mut self, _: &mut Lent<'_>) {}

    fn wants_to_copy(&self) -> Option<CopyNeed> {
        None
    }

    fn grant(&mut self, _: usize, _: &mut Lent<'_>) {}

    fn turn_begins(&mut self, _: Whose, _: TurnId, _: &mut Lent<'_>) -> bool {
        false
    }

    fn repair_dropped(&mut self, _: u64, _: &mut Lent<'_>) {}

    fn read_ended(&mut self, _: Ticket, _: &mut Lent<'_>) -> bool {
        false
    }

    fn leave(&mut self, _: &mut Lent<'_>) {}

    fn damaged(&mut self, _: &HObject, _: &mut Lent<'_>) -> bool {
        false
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
        Ok(Look {
            token,
            own,
            asked: Vec::new(),
        })
    }

    fn judge(&self, _: &HObject, _: &[(OsdId, Option<&ObjectDigest>)]) -> Option<Inconsistent> {
        None
    }

    fn mend(&mut self, _: HObject, _: &[Inconsistent], token: u64, lent: &mut Lent<'_>) {
        lent.front.checked(token);
    }

    fn drop_mending(&mut self, _: Option<u64>, _: &mut Lent<'_>) {}

    fn repaired(&self) -> u64 {
        0
    }

    fn number(&mut self) -> u64 {
        self.next_number()
    }

    fn split(&mut self, _: &mut Lent<'_>) {}

    fn kin(&self, _: &PgState) -> Kin {
        Kin::default()
    }

    fn has_kept(&self, _: &Kin, _: &PgState) -> bool {
        false
    }
}
