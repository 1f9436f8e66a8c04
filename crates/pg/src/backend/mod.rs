//! Where a PG's data and log entries go, and where they are read: the trait [`Backend`], and what goes over it.
//!
//! A back end knows no client. What it wants of the order of clients' operations it asks of [`Turns`]. Implementations:
//! [`replicated`], copies on other OSDs; shards follow. What each of them has to keep is tested by `tests/backend`.

pub(crate) mod digest;
pub(crate) mod erasure;
pub(crate) mod findings;
pub(crate) mod group;
pub(crate) mod pull_turns;
pub(crate) mod replicated;
pub(crate) mod reports;
pub(crate) mod steps;

use crate::api::{Output, Word};
use crate::exec::gathered::{Gathered, Read};
use crate::state::pg::PgState;
use crate::store::{IoError, ObjectStore, Seq, Ticket};
use digest::Walk;
use findings::Inconsistent;
use group::Group;
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::{ObjectDigest, ScrubBody};
use pull_turns::PullTurns;
use reports::{CopyNeed, Kin, MemberState};
use std::fmt;
use std::time::Duration;
use types::{EVersion, Epoch, Errno, HObject, ObjectId, OsdId, Transaction};

/// Tickets of a back end's own reads have this bit; the store's have not.
pub(crate) const OWN_TICKET: Ticket = 1 << 63;

/// A turn on an object, as the front numbers it.
pub(crate) type TurnId = u64;

/// What a back end asks of the front. Nothing of it calls back at once: what it sets going comes after the call.
pub(crate) trait Turns: fmt::Debug {
    /// Waits for a turn on the object in which nothing changes it, and for the disk to have read `tickets`; see
    /// [`Backend::turn_begins`].
    fn wait(&mut self, object: HObject, member: OsdId, token: u64, tickets: Vec<Ticket>);
    /// A turn that has begun is over.
    fn end(&mut self, turn: TurnId, store: &mut dyn ObjectStore);
    /// One that has not begun is not wanted any more.
    fn give_up(&mut self, token: u64, store: &mut dyn ObjectStore);
    /// Waits for a turn alone on the object, before all that wait for it already but other repairs: for a repair of this number.
    fn wait_first(&mut self, object: HObject, repair: u64);
    /// The repair that a scrub's check asked for has ended.
    fn checked(&mut self, token: u64);
    /// A read of the back end's own has ended, well or not: its ticket is one of [`Backend::prefetch`].
    fn came(&mut self, ticket: Ticket);
    /// The back end has taken back what not all have: the PG is loaded anew, and [`Backend::reloaded`] follows. Only before anything
    /// was executed in the interval.
    fn reload(&mut self);
    /// The object cannot be read here, and nobody could give it.
    fn unreadable(&mut self, object: &HObject);
    /// The version of the object, if it is in memory.
    fn version(&self, object: &HObject) -> Option<EVersion>;
    /// The objects here were replaced by transaction `seq`: what was known of them does not count. `head` is read anew.
    fn replaced(
        &mut self,
        head: &HObject,
        clones: &[HObject],
        seq: Seq,
        ctx: &mut Anew<'_>,
    ) -> Result<(), IoError>;
    /// The transaction that an answer about this object waits for.
    fn last_write(&self, object: &HObject, pg: &PgState) -> Seq;
    /// Answers wait for more than is confirmed.
    fn answers_wait(&self, confirmed: Seq) -> bool;
    /// Clients' messages have begun and are not executed.
    fn has_messages(&self) -> bool;
    /// Nothing waits for a turn, or has one.
    fn is_idle(&self) -> bool;
}

/// Who answers reads of a copy on an OSD that does not lead.
pub(crate) trait ReadsHere {
    /// What is known of the copy does not hold any more.
    fn forget(&mut self);
    /// A transaction of the primary is about to be queued.
    fn coming(&mut self, txn: &Transaction, now: Duration);
}

/// With what the front reads an object anew.
pub(crate) struct Anew<'a> {
    pub pg: &'a PgState,
    pub store: &'a mut dyn ObjectStore,
    pub now: Duration,
}

/// What a PG lends its back end for one call.
pub(crate) struct Lent<'a> {
    pub pg: &'a mut PgState,
    pub front: &'a mut dyn Turns,
    pub store: &'a mut dyn ObjectStore,
    /// Monotonic time.
    pub now: Duration,
    pub out: &'a mut Vec<Output>,
}

/// Data of an object that is not here, and comes where it is asked for by [`Backend::prefetch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lack {
    pub oid: ObjectId,
    pub offset: u64,
    pub len: u64,
}

/// Whose turn on an object begins, or is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// [`Turns::wait`].
    Copy { member: OsdId, token: u64 },
    /// [`Turns::wait_first`].
    Repair(u64),
}

/// All who hold the PG were asked what they have of some objects.
#[derive(Debug)]
pub(crate) struct Look {
    pub token: u64,
    /// The look at what is here.
    pub own: Walk,
    pub asked: Vec<OsdId>,
}

/// Keeps a PG's data and log entries on the OSDs of its configuration.
///
/// Contract:
/// - A transaction that [`Backend::submit`] took is shown by the store here at once, and is *confirmed* when it is durable
///   wherever the configuration wants it; numbers of confirmed transactions never go back. After an error nothing has happened.
/// - Answers wait until what they show is confirmed; nothing of what is not has been promised to anybody, and whoever leads the PG next
///   has all that is.
/// - [`Backend::is_active`] is true only while every OSD that may hold something newer was heard, and enough are in sync.
/// - What a call sets going (turns that begin, repairs that end) runs after it; no call waits.
/// - Messages count only of the present interval, on the connection of the last [`Backend::peer_up`].
pub(crate) trait Backend: fmt::Debug {
    // --- the configuration

    fn group(&self) -> &Group;
    /// The configuration, or where CRUSH wants the PG, has changed.
    fn set_group(&mut self, group: Group, lent: &mut Lent<'_>);
    /// A connection to this OSD was made: nothing that was sent before counts.
    fn peer_up(&mut self, osd: OsdId, lent: &mut Lent<'_>);
    fn peer_down(&mut self, osd: OsdId, lent: &mut Lent<'_>);
    /// Clients' operations may be executed.
    fn is_active(&self) -> bool;
    /// Every member has everything.
    fn all_full(&self) -> bool;
    fn members(&self, pg: &PgState) -> Vec<MemberState>;

    // --- data

    /// A transaction cannot share data with objects of other PGs here: somebody who lacks them gets it.
    fn is_shared(&self) -> bool;
    /// Begins to bring what a gathering of this data would wait for. None: it waits for nothing. The front releases the ticket by
    /// [`Backend::release`], once, ended or not.
    fn prefetch(&mut self, oid: &ObjectId, offset: u64, len: u64, lent: &mut Lent<'_>) -> Option<Ticket> {
        lent.store.prefetch(oid, offset, len)
    }
    fn release(&mut self, ticket: Ticket, store: &mut dyn ObjectStore) {
        store.release(ticket);
    }
    /// Data of one object, as it stands with all that was submitted. What cannot be had is told with the read that wanted it; what can
    /// be brought is told as lacking, and nothing is executed before it has come.
    fn gather(&self, oid: &ObjectId, reads: &[Read], store: &mut dyn ObjectStore, into: &mut Gathered);
    /// Queues a transaction here and sends to others what is theirs of it. `head`: the object that it is about. EAGAIN: it needs
    /// data that is not here ([`Backend::take_lacking`]).
    fn submit(&mut self, txn: Transaction, head: Option<&HObject>, lent: &mut Lent<'_>)
    -> Result<Seq, Errno>;
    /// What the last submit lacked. Asked only after one that has failed.
    fn take_lacking(&mut self) -> Vec<Lack> {
        Vec::new()
    }
    /// Everything up to there is durable here.
    fn durable(&mut self, seq: Seq, lent: &mut Lent<'_>);
    /// The newest transaction that answers may show; asked after every call.
    fn confirmed(&self) -> Seq;
    /// Who has spoken of transactions since this was asked last: if [`Backend::confirmed`] is higher now, by this word; None: nobody has.
    fn take_word(&mut self) -> Option<Word>;
    /// It wants to hear of [`Backend::durable`].
    fn waits_for_durability(&self) -> bool;

    // --- messages

    /// What comes from there now counts.
    fn hears(&self, from: OsdId, shard: i8, interval: Epoch) -> bool;
    /// A message of another OSD that this one hears. What is for the scrub is given back.
    fn on_message(&mut self, from: OsdId, body: PeerBody, lent: &mut Lent<'_>) -> Option<ScrubBody>;

    // --- recovery

    /// After every input: goes on with repairs.
    fn recover(&mut self, lent: &mut Lent<'_>);
    /// When it next wants [`Backend::tick`].
    fn next_timer(&self) -> Option<Duration>;
    fn tick(&mut self, lent: &mut Lent<'_>);
    /// What it wants to copy and waits to be granted.
    fn wants_to_copy(&self) -> Option<CopyNeed>;
    fn grant(&mut self, objects: usize, lent: &mut Lent<'_>);
    /// A turn has begun: nothing changes the object until [`Turns::end`]. False: nobody wants it any more.
    fn turn_begins(&mut self, whose: Whose, turn: TurnId, lent: &mut Lent<'_>) -> bool;
    /// The object of a repair is another PG's now.
    fn repair_dropped(&mut self, repair: u64, lent: &mut Lent<'_>);
    /// A read of the disk has ended; true if it was begun here.
    fn read_ended(&mut self, ticket: Ticket, lent: &mut Lent<'_>) -> bool;
    /// The PG ends.
    fn leave(&mut self, lent: &mut Lent<'_>);

    // --- damage

    /// Something of the object cannot be read here. True if a repair is on its way: it has its turn before everything that waits.
    fn damaged(&mut self, head: &HObject, lent: &mut Lent<'_>) -> bool;
    /// Looks at the objects from `from` up to and with `to`, and asks all others for the same.
    fn digest(
        &mut self,
        from: &HObject,
        to: &HObject,
        deep: bool,
        lent: &mut Lent<'_>,
    ) -> Result<Look, IoError>;
    /// What is wrong with an object; `sides`: what each has of it, this OSD first. None: nothing.
    fn judge(&self, object: &HObject, sides: &[(OsdId, Option<&ObjectDigest>)]) -> Option<Inconsistent>;
    /// Makes good what is wrong with the versions of an object, as far as that goes: [`Turns::checked`] with `token` follows. The
    /// object's turn is the scrub's meanwhile.
    fn mend(&mut self, head: HObject, wrong: &[Inconsistent], token: u64, lent: &mut Lent<'_>);
    /// Nobody waits for this any more; None: for none of them.
    fn drop_mending(&mut self, token: Option<u64>, lent: &mut Lent<'_>);
    /// Bad copies made good since the PG is led here.
    fn repaired(&self) -> u64;
    /// From now on it repairs in turn with the other PGs that share these.
    fn share_pull_turns(&mut self, _turns: PullTurns) {}
    /// A number for a question, used once.
    fn number(&mut self) -> u64;

    /// The PG's state is that of the store.
    fn reloaded(&mut self, _lent: &mut Lent<'_>) {}

    // --- no room here

    /// A write has found no room. True if others can go on without this OSD, or may soon: nothing is written until then.
    fn step_down(&mut self, _now: Duration, _pg: &PgState) -> bool {
        false
    }
    /// Writes wait for room here, or for others to lead.
    fn lacks_room(&self) -> bool {
        false
    }
    /// Only writes wait: reads need no room.
    fn reads_go_on(&self, _now: Duration) -> bool {
        false
    }
    /// Reads may be executed, whether writes may or not.
    fn may_read(&self) -> bool {
        self.is_active()
    }
    /// Room has ended since this was asked last, and reads that wait behind writes may go before them.
    fn sifts(&mut self, _now: Duration) -> bool {
        false
    }

    // --- splits and merges

    /// See [`crate::Input::Merge`].
    fn come_to_rest(&mut self, _lent: &mut Lent<'_>) {}

    /// The PG was made here, out of what others held.
    fn is_born(&mut self, _pg: &PgState) {}
    fn born_in(&self) -> Option<Epoch> {
        None
    }
    /// PGs were split off from this one: what was begun for members counts for the old one.
    fn split(&mut self, lent: &mut Lent<'_>);
    fn split_in(&self) -> Option<Epoch> {
        None
    }
    /// The members that have everything, for a PG that is split off now.
    fn kin(&self, pg: &PgState) -> Kin;
    fn has_kept(&self, kin: &Kin, pg: &PgState) -> bool;
    /// The member, which has just answered, holds the objects that are here.
    fn note_sibling(&mut self, _osd: OsdId, _pg: &PgState) {}
}
