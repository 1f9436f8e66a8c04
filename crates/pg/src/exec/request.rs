//! A message as it is executed, and what that comes to.

use crate::client::{Client, ConnId};
use crate::exec::gathered::Read;
use crate::exec::known::Watches;
use crate::exec::result::Ran;
use crate::exec::snap_context::SnapContext;
use crate::exec::work::{Effect, Note, Work};
use crate::pool::PoolView;
use crate::state::object::ObjectState;
use bytes::Bytes;
use messages::osd::MOSDOp;
use std::collections::HashMap;
use types::{Errno, HObject, ObjectId, Utime};

/// Everything of one object, as COPY_FROM takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectCopy {
    pub user_version: u64,
    pub mtime: Utime,
    pub data: Bytes,
    /// User attributes by their client names.
    pub attrs: Vec<(Bytes, Bytes)>,
    pub omap_header: Bytes,
    pub omap: Vec<(Bytes, Bytes)>,
}

/// Where the source of a COPY_FROM is.
#[derive(Debug)]
pub(crate) enum CopySource {
    /// There is no such pool.
    Nowhere,
    /// In this store: its data is shared.
    Here(HObject),
    /// It was fetched, and is as another OSD, or the PG that has it here, gave it.
    Fetched(HObject, Result<Box<ObjectCopy>, Errno>),
}

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

/// Data that an execution needed and did not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missing(pub Read);
