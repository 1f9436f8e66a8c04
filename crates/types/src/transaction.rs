//! The transaction: what a PG asks its store to do, all or nothing, and durable when it completes.
//!
//! Vocabulary: a *collection* is one PG's (or shard's) part of an OSD: a log of entries, a small metadata
//! blob, and the ordering domain of its transactions. Objects are named by [`ObjectId`] alone, which sorts
//! by pool, shard and reversed hash, so the objects of a PG are one contiguous range and splitting or
//! merging PGs moves nothing on disk.
//!
//! Attribute names and omap keys are byte strings. The store gives them no meaning: which of them hold a
//! client's xattrs and which the PG's own records is decided in `pg`.

use crate::{EVersion, HObject, SPgId};
use bytes::Bytes;

/// An object on one OSD: `shard` is -1 in replicated pools.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectId {
    pub shard: i8,
    pub object: HObject,
}

impl ObjectId {
    pub fn replicated(object: HObject) -> Self {
        Self { shard: -1, object }
    }
}

impl Ord for ObjectId {
    /// Pool, shard, then the order of [`HObject`].
    fn cmp(&self, o: &Self) -> std::cmp::Ordering {
        (self.object.max, self.object.pool, self.shard)
            .cmp(&(o.object.max, o.object.pool, o.shard))
            .then_with(|| self.object.cmp(&o.object))
    }
}
impl PartialOrd for ObjectId {
    fn partial_cmp(&self, o: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}

/// One step of a transaction. Steps see the effects of the steps before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Creates the object if it is missing.
    Touch {
        oid: ObjectId,
    },
    /// Creates the object if it is missing; extends it with a hole where `offset` lies behind its end.
    Write {
        oid: ObjectId,
        offset: u64,
        data: Bytes,
    },
    /// Makes a hole inside the object; extends it where the range ends behind its end.
    Zero {
        oid: ObjectId,
        offset: u64,
        len: u64,
    },
    /// Sets the size, downwards or upwards.
    Truncate {
        oid: ObjectId,
        size: u64,
    },
    /// Removes data, attributes and omap. The object must exist.
    Remove {
        oid: ObjectId,
    },
    SetAttrs {
        oid: ObjectId,
        attrs: Vec<(Bytes, Bytes)>,
    },
    RemoveAttr {
        oid: ObjectId,
        name: Bytes,
    },
    RemoveAttrs {
        oid: ObjectId,
    },
    OmapSet {
        oid: ObjectId,
        entries: Vec<(Bytes, Bytes)>,
    },
    OmapRemove {
        oid: ObjectId,
        keys: Vec<Bytes>,
    },
    /// Removes keys in `[first, last)`.
    OmapRemoveRange {
        oid: ObjectId,
        first: Bytes,
        last: Bytes,
    },
    /// Removes all keys and the header.
    OmapClear {
        oid: ObjectId,
    },
    OmapSetHeader {
        oid: ObjectId,
        header: Bytes,
    },
    /// Makes `dst` a copy of `src` (data shared by reference, attributes and omap copied); replaces `dst`.
    Clone {
        src: ObjectId,
        dst: ObjectId,
    },
    /// Shares a range of `src`'s data with `dst`, creating `dst` if it is missing.
    CloneRange {
        src: ObjectId,
        dst: ObjectId,
        src_offset: u64,
        len: u64,
        dst_offset: u64,
    },
    /// Gives the object another name; `dst` must not exist.
    Rename {
        src: ObjectId,
        dst: ObjectId,
    },
    CreateCollection,
    /// Removes the collection's log and metadata (its objects are removed one by one before).
    RemoveCollection,
    /// Replaces the collection's metadata blob.
    SetMeta {
        meta: Bytes,
    },
    /// Appends to the collection's log; versions ascend.
    LogAppend {
        version: EVersion,
        entry: Bytes,
    },
    /// Drops entries with versions up to and including `to`.
    LogTrim {
        to: EVersion,
    },
}

/// Ops on one collection and on objects, applied atomically and in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    pub collection: SPgId,
    pub ops: Vec<Op>,
}

impl Transaction {
    pub fn new(collection: SPgId) -> Self {
        Self {
            collection,
            ops: Vec::new(),
        }
    }
}
