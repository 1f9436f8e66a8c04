//! Executing the operations of one message against one object.
//!
//! Reads show the object as it was before the message; existence, size and STAT follow the message's own
//! operations (docs/protocol/ceph/04-osd.md, 8.1). Writes gather as steps of one transaction beside the object's
//! new state; nothing of it counts until the PG has submitted the transaction.
//!
//! Not here: versions, clones, the log, replies (the PG's `write` and `reply`).

pub(crate) mod cost;
pub(crate) mod ops;

use crate::api::{Client, ConnId, Context, ObjectCopy};
use crate::exec::cost::{Cost, gives_more};
use crate::front::watch::{NotifyRequest, WatchKey, WatchTable};
use crate::pool::PoolView;
use crate::state::intervals::Intervals;
use crate::state::object::ObjectState;
use crate::state::object_info::WatchRecord;
use crate::store::IoError;
use bytes::Bytes;
use messages::osd::{MOSDOp, OsdOp, op_flag};
use std::collections::{BTreeMap, HashMap};
use types::{Errno, ObjectId, Op, Utime};

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

/// What the message changes of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Change {
    #[default]
    Nothing,
    /// Watches only: logged, no new user version, no clone.
    Info,
    Content,
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
    },
}

/// What a message has made so far.
#[derive(Debug, Default)]
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

/// See [`Work::xattrs`].
pub(crate) type XattrSizes = BTreeMap<Bytes, u64>;

/// To what a failed operation under FAILOK takes the work back. The transaction, which grows with each operation, is cut
/// and not copied: a message of a thousand such operations costs a thousand times one, not a million times.
struct Mark {
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
    fn of(w: &Work, effects: usize) -> Self {
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
    fn bytes(w: &Work) -> u64 {
        let rows = w.new.info.watchers.len() + w.modified.intervals().len();
        64 * (rows + w.xattrs.as_ref().map_or(0, |x| x.len())) as u64
    }

    fn back(self, w: &mut Work, effects: &mut Vec<Effect>) {
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

pub(crate) struct Exec<'a, 'c> {
    pub ctx: &'a mut Context<'c>,
    pub pool: &'a PoolView,
    pub watches: &'a mut WatchTable,
    pub client: &'a Client,
    pub conn: ConnId,
    pub message: &'a MOSDOp,
    pub head: &'a ObjectId,
    /// What reads go to: the head, or a clone.
    pub source: &'a ObjectId,
    /// State of `source` before the message.
    pub old: &'a ObjectState,
    pub work: Work,
    pub cost: Cost,
    pub effects: Vec<Effect>,
    /// Objects of other OSDs for COPY_FROM, by the operation's index.
    pub fetched: HashMap<usize, Result<Box<ObjectCopy>, Errno>>,
    pub notify_id: &'a mut u32,
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

impl Exec<'_, '_> {
    pub fn run(&mut self) -> Ran {
        let mut ran = Ran::default();
        let message = self.message;
        for (index, op) in message.ops.iter().enumerate() {
            let may_fail = op.flags & op_flag::FAILOK != 0;
            if may_fail {
                let _ = self.cost.charge(Mark::bytes(&self.work), 0);
            }
            let before = may_fail.then(|| Mark::of(&self.work, self.effects.len()));
            let result = self.one(index, op);
            if let (Ok(d), true) = (&result, gives_more(op)) {
                let _ = self.cost.charge(d.out.len() as u64, 0);
            }
            if self.cost.exceeded {
                // Not what was read up to here: that is as much as a message may give.
                return Ran {
                    results: Vec::new(),
                    result: Errno::E2BIG.code(),
                };
            }
            match (result, before) {
                (Ok(d), _) => {
                    ran.result = d.rval;
                    ran.results.push((d.rval, d.out));
                }
                (Err(f), Some(mark)) if !never_swallowed(f.rval) => {
                    mark.back(&mut self.work, &mut self.effects);
                    ran.result = 0;
                    ran.results.push((f.rval, f.out));
                }
                (Err(f), _) => {
                    ran.result = f.rval;
                    ran.results.push((f.rval, f.out));
                    break;
                }
            }
        }
        ran
    }

    /// Runs one operation; the table of what there is.
    fn one(&mut self, index: usize, op: &OsdOp) -> OpResult {
        use messages::osd::code::*;
        match op.code {
            READ => self.read(op),
            SYNC_READ | TMAPGET | MAPEXT if self.pool.erasure => Err(Errno::EOPNOTSUPP.into()),
            SYNC_READ => self.read(op),
            TMAPGET => self.read_all(),
            SPARSE_READ => self.sparse_read(op),
            MAPEXT => self.map_extents(op),
            STAT => self.stat(),
            CHECKSUM => self.checksum(op),
            CMPEXT => self.compare_extent(op),
            ASSERT_VER => self.assert_version(op),
            ISDIRTY => Ok(Bytes::from_static(&[1]).into()),
            GETXATTR => self.get_xattr(op),
            GETXATTRS => self.get_xattrs(),
            CMPXATTR => self.compare_xattr(op),
            OMAPGETKEYS => self.omap_keys(op),
            OMAPGETVALS => self.omap_values(op),
            OMAPGETHEADER => self.omap_header(),
            OMAPGETVALSBYKEYS => self.omap_by_keys(op),
            OMAP_CMP => self.omap_compare(op),
            LIST_WATCHERS => self.list_watchers(),
            LIST_SNAPS => self.list_snaps(),
            NOTIFY => self.notify(op),
            NOTIFY_ACK => self.notify_ack(op),
            CALL => self.call(op),
            _ => self.one_write(index, op),
        }
    }

    fn one_write(&mut self, index: usize, op: &OsdOp) -> OpResult {
        use messages::osd::code::*;
        match op.code {
            WRITE => self.write_op(op),
            WRITEFULL => self.write_full_op(op),
            APPEND => self.append(op),
            WRITESAME => self.write_same(op),
            ZERO => self.zero_op(op),
            TRUNCATE => self.truncate_op(op),
            TRIMTRUNC => self.trim_truncate(op),
            CREATE => self.create_op(op),
            DELETE => self.delete_op(),
            SETALLOCHINT => self.set_alloc_hint(op),
            STARTSYNC | UNDIRTY => done(),
            SETXATTR => self.set_xattr_op(op),
            RMXATTR => self.remove_xattr(op),
            OMAPSETVALS | OMAPSETHEADER | OMAPCLEAR | OMAPRMKEYS | OMAPRMKEYRANGE if self.pool.erasure => {
                Err(Errno::EOPNOTSUPP.into())
            }
            OMAPSETVALS => self.omap_set_op(op),
            OMAPSETHEADER => self.omap_set_header(op),
            OMAPCLEAR => self.omap_clear(),
            OMAPRMKEYS => self.omap_remove_op(op),
            OMAPRMKEYRANGE => self.omap_remove_range(op),
            ROLLBACK => self.rollback(op),
            WATCH => self.watch(op),
            COPY_FROM | COPY_FROM2 => self.copy_from(index, op),
            _ => Err(self.refusal(op).into()),
        }
    }

    /// Operations of cache tiers, manifests and old formats (9.8): refused as 16.2 does, or as not supported.
    fn refusal(&self, op: &OsdOp) -> Errno {
        use messages::osd::code::*;
        match op.code {
            CACHE_PIN | CACHE_UNPIN | CACHE_FLUSH | CACHE_EVICT | CACHE_TRY_FLUSH => Errno::EINVAL,
            UNSET_MANIFEST if !self.work.new.exists => Errno::ENOENT,
            TMAP2OMAP if !self.work.new.exists => Errno::ENODATA,
            TMAP2OMAP => Errno::EINVAL,
            _ => Errno::EOPNOTSUPP,
        }
    }

    /// For reads inside a write message; a read message does not come this far on a missing object.
    pub fn must_have_existed(&self) -> Result<(), Fail> {
        if self.old.exists {
            Ok(())
        } else {
            Err(Errno::ENOENT.into())
        }
    }

    pub fn must_exist(&self) -> Result<(), Fail> {
        if self.work.new.exists {
            Ok(())
        } else {
            Err(Errno::ENOENT.into())
        }
    }
}

/// The client would send the operation again for ever, or wait: these codes stop a message even under FAILOK.
fn never_swallowed(rval: i32) -> bool {
    rval == Errno::EAGAIN.code() || rval == Errno::EINPROGRESS.code()
}
