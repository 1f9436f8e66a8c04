//! What a message makes: the steps of its transaction, the object as it will be, and what happens beside these.

use crate::client::ConnId;
use crate::exec::notifies::NotifyCharge;
use crate::state::intervals::Intervals;
use crate::state::object::ObjectState;
use crate::state::object_info::{WatchKey, WatchRecord};
use bytes::Bytes;
use objclass::LockHolder;
use std::collections::BTreeMap;
use types::{Op, Utime};

/// What the message changes of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    Nothing,
    /// Watches only: logged, no new user version, no clone.
    Info,
    Content,
}

/// What the message has made of a row of the omap so far.
#[derive(Debug)]
pub(crate) enum Own {
    Untouched,
    Gone,
    Set(Bytes),
}

/// What happens beside the transaction once it is submitted.
#[derive(Debug)]
pub(crate) enum Effect {
    Connect(WatchRecord),
    /// The client ended it: no DISCONNECT.
    Remove(WatchKey),
    /// The object went: its watchers hear of it.
    Disconnect(Vec<WatchKey>),
    Notify(NotifyRequest),
    Ack {
        id: u64,
        key: WatchKey,
        reply: Bytes,
        charge: Option<NotifyCharge>,
    },
}

/// What holds whether the message fails or not.
#[derive(Debug)]
pub(crate) enum Note {
    /// The watch was heard of.
    Ping(WatchKey),
    /// A method changed the object's locks.
    LocksChanged,
    /// The client was refused a lock that others hold.
    LockRefused { lock: Bytes, holders: Vec<LockHolder> },
}

/// A NOTIFY to start.
#[derive(Debug)]
pub(crate) struct NotifyRequest {
    pub id: u64,
    pub conn: ConnId,
    pub cookie: u64,
    pub gid: u64,
    pub timeout_s: u32,
    pub payload: Bytes,
    pub ver: u64,
    pub charge: NotifyCharge,
}

/// What a message has made so far.
#[derive(Debug)]
pub(crate) struct Work {
    pub new: ObjectState,
    /// Operations only append to it.
    pub txn: Vec<Op>,
    /// Ranges of the head's old data that are not the same any more.
    pub modified: Intervals,
    pub change: Change,
    /// The store's copy of the snapset was overwritten (ROLLBACK) and must be written again.
    pub snapset_lost: bool,
    /// COPY_FROM brings these along.
    pub user_version: Option<u64>,
    pub mtime: Option<Utime>,
    pub write_bytes: u64,
    /// Client xattrs by their names in the store, and their sizes, as the message leaves them; known once it sets one.
    pub xattrs: Option<XattrSizes>,
}

impl Work {
    /// Nothing was done yet with an object in this state.
    pub fn on(new: ObjectState) -> Self {
        Self {
            new,
            txn: Vec::new(),
            modified: Intervals::new(),
            change: Change::Nothing,
            snapset_lost: false,
            user_version: None,
            mtime: None,
            write_bytes: 0,
            xattrs: None,
        }
    }
}

/// See [`Work::xattrs`].
pub(crate) type XattrSizes = BTreeMap<Bytes, u64>;

/// To what a failed operation under FAILOK takes the work back. The transaction, which grows with each operation, is cut
/// and not copied: a message of a thousand such operations costs a thousand times one, not a million times.
pub(crate) struct Mark {
    new: ObjectState,
    steps: usize,
    effects: usize,
    modified: Intervals,
    change: Change,
    snapset_lost: bool,
    user_version: Option<u64>,
    mtime: Option<Utime>,
    write_bytes: u64,
    xattrs: Option<XattrSizes>,
}

impl Mark {
    pub fn of(w: &Work, effects: usize) -> Self {
        Self {
            new: w.new.clone(),
            steps: w.txn.len(),
            effects,
            modified: w.modified.clone(),
            change: w.change,
            snapset_lost: w.snapset_lost,
            user_version: w.user_version,
            mtime: w.mtime,
            write_bytes: w.write_bytes,
            xattrs: w.xattrs.clone(),
        }
    }

    /// What a mark costs.
    pub fn bytes(w: &Work) -> u64 {
        let rows = w.new.info.watchers.len() + w.modified.intervals().len();
        64 * (rows + w.xattrs.as_ref().map_or(0, |x| x.len())) as u64
    }

    pub fn back(self, w: &mut Work, effects: &mut Vec<Effect>) {
        effects.truncate(self.effects);
        w.txn.truncate(self.steps);
        let txn = std::mem::take(&mut w.txn);
        *w = Work {
            new: self.new,
            txn,
            modified: self.modified,
            change: self.change,
            snapset_lost: self.snapset_lost,
            user_version: self.user_version,
            mtime: self.mtime,
            write_bytes: self.write_bytes,
            xattrs: self.xattrs,
        };
    }
}
