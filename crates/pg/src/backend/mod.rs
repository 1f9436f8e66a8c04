//! Where a PG's data and log entries go, and where they are read: copies on other OSDs ([`replicated`]).
//!
//! A back end knows no client. What it wants of the order of clients' operations it asks of [`Turns`].

pub(crate) mod replicated;

use crate::api::Output;
use crate::state::pg::PgState;
use crate::store::{IoError, ObjectStore, Seq, Ticket};
use std::fmt;
use std::time::Duration;
use types::{EVersion, HObject, OsdId, Transaction};

/// A turn on an object, as the front numbers it.
pub(crate) type TurnId = u64;

/// What a back end asks of the front. Nothing of it calls back at once: what it sets going comes after the call.
pub(crate) trait Turns: fmt::Debug {
    /// Waits for a turn on the object in which nothing changes it, and for the disk to have read `tickets`. The back end hears
    /// of it by [`replicated::Replicated::turn_begins`] with the member and the token.
    fn wait(&mut self, object: HObject, member: OsdId, token: u64, tickets: Vec<Ticket>);
    /// A turn that has begun is over.
    fn end(&mut self, turn: TurnId, store: &mut dyn ObjectStore);
    /// One that has not begun is not wanted any more.
    fn give_up(&mut self, token: u64, store: &mut dyn ObjectStore);
    /// Waits for a turn alone on the object, before all that wait for it already but other repairs: for a repair of this number.
    fn wait_first(&mut self, object: HObject, repair: u64);
    /// The repair that a scrub's check asked for has ended.
    fn checked(&mut self, token: u64);
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
    /// Everything up to there is durable wherever it has to be: answers that waited for it go.
    fn confirm(&mut self, seq: Seq, out: &mut Vec<Output>);
    /// The transaction that an answer about this object waits for.
    fn last_write(&self, object: &HObject, pg: &PgState) -> Seq;
    /// Answers wait for durability.
    fn answers_wait(&self) -> bool;
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
