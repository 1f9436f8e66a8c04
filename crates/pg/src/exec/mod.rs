//! The execution: what the operations of one message mean for one object.
//!
//! A message is *planned* first ([`plan`]): what data its operations read. The caller *gathers* that, from wherever it is,
//! and then the message is *executed* ([`execute`]) on what was gathered. Where an operation turns out to need more
//! ([`Missing`]: class methods decide as they go) the caller gathers that, too, and the message is executed again from
//! the start: an execution changes nothing but the [`Outcome`] that it returns.
//!
//! Reads show the object as it was before the message; existence, size and STAT follow the message's own
//! operations (docs/protocol/ceph/04-osd.md, 8.1). Writes gather as steps of one transaction beside the object's
//! new state; nothing of it counts until the PG has submitted the transaction ([`finish`] completes it with versions,
//! clones and the log entry).
//!
//! Not here: the store and its data (the back end's), which message has its turn, what waits, replies (the front's).

pub(crate) mod cost;
pub(crate) mod finish;
pub(crate) mod gathered;
pub(crate) mod known;
pub(crate) mod notifies;
pub(crate) mod ops;
pub(crate) mod plan;
mod run;
pub(crate) mod work;

use crate::client::{Client, ConnId};
use crate::exec::gathered::Read;
use crate::exec::known::Watches;
use crate::exec::ops::copy::CopySource;
use crate::exec::ops::snap::SnapContext;
use crate::exec::work::{Effect, Note, Work};
use crate::pool::PoolView;
use crate::state::object::ObjectState;
use crate::stored::IoError;
use bytes::Bytes;
use messages::osd::MOSDOp;
use std::collections::HashMap;
use types::{Errno, ObjectId, Utime};

pub(crate) use run::execute;

/// A message, and what is known of the object that it is about.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub message: &'a MOSDOp,
    pub client: &'a Client,
    pub conn: ConnId,
    pub pool: &'a PoolView,
    pub head: &'a ObjectId,
    /// What reads go to: the head, or a clone.
    pub source: &'a ObjectId,
    /// State of `source` before the message.
    pub old: &'a ObjectState,
    /// Of a write.
    pub context: Option<&'a SnapContext>,
    /// Where the sources of COPY_FROM are, by the operation's index.
    pub sources: &'a HashMap<usize, CopySource>,
    pub watches: &'a dyn Watches,
    /// The last number that a notification has.
    pub notify_id: u32,
    /// The wall clock.
    pub wall: Utime,
}

/// What a message comes to. Nothing of it has happened yet.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub work: Work,
    pub results: Results,
}

/// What there is to tell of an execution beside its work on the object.
#[derive(Debug)]
pub(crate) struct Results {
    pub ran: Ran,
    /// To be carried out where the message succeeded.
    pub effects: Vec<Effect>,
    /// To be carried out even where it failed.
    pub notes: Vec<Note>,
    /// The last number that a notification has now.
    pub notify_id: u32,
    /// Bytes that clients' operations read, for the statistics.
    pub read_bytes: u64,
}

/// What the operations gave.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// Of the operations that ran.
    pub results: Vec<(i32, Bytes)>,
    /// Below 0: a failure without FAILOK. Else the last operation's value.
    pub result: i32,
}

/// Data that an execution needed and did not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missing(pub Read);

/// A failed operation; class methods may give data with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fail {
    pub rval: i32,
    pub out: Bytes,
}

impl From<Errno> for Fail {
    fn from(e: Errno) -> Self {
        Self {
            rval: e.code(),
            out: Bytes::new(),
        }
    }
}
impl From<IoError> for Fail {
    fn from(e: IoError) -> Self {
        tracing::error!("reading for a client: {e}");
        Errno::EIO.into()
    }
}
impl From<denc::Error> for Fail {
    fn from(_: denc::Error) -> Self {
        Errno::EINVAL.into()
    }
}

/// A successful operation; the value may be positive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Done {
    pub rval: i32,
    pub out: Bytes,
}

impl From<Bytes> for Done {
    fn from(out: Bytes) -> Self {
        Self { rval: 0, out }
    }
}

pub(crate) type OpResult = Result<Done, Fail>;

/// Success without output.
pub(crate) fn done() -> OpResult {
    Ok(Done::default())
}
