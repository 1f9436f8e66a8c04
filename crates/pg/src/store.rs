//! The object store as a PG sees it. The shell implements it over crate `store`; tests over a map in memory.
//!
//! Contract: reads show every transaction submitted before, durable or not. `submit` applies all or nothing:
//! after an error nothing has changed. Sequence numbers ascend; a transaction is durable when the shell
//! reports its number or a later one by [`crate::Input::Committed`]. What reads show does not change when the store moves
//! what it holds (a checkpoint, a restart).
//!
//! A missing object or collection reads as empty, and is no error; [`IoError`] says that something is there and cannot be read.
//! Every implementation passes `conformance::store`.
//!
//! Data may lie on a disk: a `read` waits for it. A PG that does not want to wait calls `prefetch` before, and
//! reads when the shell reports the ticket by [`crate::Input::Prefetched`]. This is a hint and no more: what is
//! read is what the object holds then, whatever was fetched, and a read without it only takes longer.

use bytes::Bytes;
use std::ops::Bound;
use types::{EVersion, Errno, ObjectId, SPgId, Transaction};

pub use crate::stored::{IoError, ObjectStat, OmapPage, Seq};

/// A prefetch under way, or what it brought; never used twice.
pub type Ticket = u64;

pub trait ObjectReads {
    /// `None`: there is no such object; each other read of it shows nothing.
    fn stat(&mut self, oid: &ObjectId) -> Result<Option<ObjectStat>, IoError>;
    /// Bytes of `offset~len`, holes as zeros, cut off at the object's end. Any range can be asked for.
    fn read(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Bytes, IoError>;
    /// Like `read`, in one or more pieces, for whoever puts them behind one another anyway.
    fn read_pieces(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<Bytes>, IoError> {
        Ok(vec![self.read(oid, offset, len)?])
    }
    /// The next read of the range asks the disk, not a memory of what it once gave.
    fn uncache(&mut self, _oid: &ObjectId, _offset: u64, _len: u64) {}
    /// Starts to bring into memory what a `read` of the range would wait for. `None`: there is nothing to wait
    /// for, or this store cannot.
    fn prefetch(&mut self, _oid: &ObjectId, _offset: u64, _len: u64) -> Option<Ticket> {
        None
    }
    /// Lets go of what a prefetch brings or brought: once for each ticket, ended or not.
    fn release(&mut self, _ticket: Ticket) {}
    /// Allocated `(offset, length)` inside `offset~len`, ascending, within the size; data may be zeros there,
    /// outside of them it is zeros.
    fn extents(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, IoError>;

    fn attr(&mut self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>, IoError>;
    /// Names of all attributes, ascending, and how long their values are.
    fn attr_sizes(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, u64)>, IoError>;
    /// All attributes, ascending by name.
    fn attrs(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>, IoError>;

    /// Empty where there is none.
    fn omap_header(&mut self, oid: &ObjectId) -> Result<Bytes, IoError>;
    /// Values of those of `keys` that exist, in the order of `keys`.
    fn omap_get(&mut self, oid: &ObjectId, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, IoError>;
    /// Rows from `from` on, ascending: at most `max_entries`, with keys and values of at most `max_bytes` together, but one row
    /// at least where there is any.
    fn omap_range(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage, IoError>;

    /// The same rows, handed on one by one where they lie until `each` says that it has enough (false); whether others follow
    /// (false then). After an error those that were handed on are not to be used.
    fn omap_each(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, IoError>;

    /// Objects of all collections at or behind `from`, in the order of [`ObjectId`], at most `max`.
    fn list(&mut self, from: &ObjectId, max: usize) -> Result<Vec<ObjectId>, IoError>;

    /// The same up to and with `to`: nothing of what lies behind is looked at.
    fn list_within(&mut self, from: &ObjectId, to: &ObjectId, max: usize) -> Result<Vec<ObjectId>, IoError> {
        let found = self.list(from, max)?;
        Ok(found.into_iter().take_while(|o| o <= to).collect())
    }

    /// The collection's metadata blob; `None` if there is none, an empty one, or no such collection.
    fn meta(&mut self, collection: SPgId) -> Result<Option<Bytes>, IoError>;
    /// All retained log entries, ascending. Used when a PG is loaded.
    fn log_entries(&mut self, collection: SPgId) -> Result<Vec<(EVersion, Bytes)>, IoError>;
    /// True if the collection was created.
    fn has_collection(&mut self, collection: SPgId) -> Result<bool, IoError>;
}

pub trait ObjectStore: ObjectReads {
    /// Applies the transaction's steps in their order, each seeing those before it, to what reads show, and gives its number: a
    /// higher one than any before. After an error nothing has happened, and the store goes on:
    ///
    /// - ENOENT: there is no such collection, or no such object. `Touch`, `Write` and the destinations of clones make a missing
    ///   object; all other steps need it.
    /// - EEXIST: the collection to create, or the new name of an object, is there already.
    /// - EINVAL: the version of a log entry does not ascend, also where what was before it has been trimmed.
    /// - EFBIG: the transaction, an object or a range in it is larger than the store allows.
    /// - ENOSPC: no room.
    /// - EIO: what a step needs to read cannot be read.
    ///
    /// A `Write` or `Zero` of no bytes does not change the size.
    fn submit(&mut self, txn: &Transaction) -> Result<Seq, Errno>;
    /// Number of the newest transaction submitted: what a PG that is loaded now may find is durable with it.
    fn submitted(&self) -> Seq;
}
