//! What a method sees of the object under operation. The PG implements [`ObjectContext`] over the
//! transaction that it is building.
//!
//! Contract, which an implementation must keep and the methods of this crate rely on:
//! - *Visibility* (docs/protocol/ceph/05-rbd.md, section 2, rule 5): existence and size follow earlier ops of the same
//!   message and the method's own writes at once. Data, xattrs and omap may be read either as they were before the
//!   message or with the message's own changes: methods here never read back what they wrote themselves, so
//!   both are right. (Ceph shows the state before the message; the PG should do likewise.) What has to be as the message
//!   leaves it is asked for by [`omap_latest`](ObjectContext::omap_latest).
//! - *Missing object*: [`stat`](ObjectContext::stat) gives `None`, [`read`](ObjectContext::read) ENOENT, an
//!   xattr or omap key `None`, a range nothing. Any write but a removal creates the object.
//! - *Atomicity*: writes join the message's transaction. If the method fails, the PG drops the transaction.
//! - *Errors*: what the store could not read is EIO; what limits forbid (object too large) its own code, from
//!   the write call. A method passes either on.
//! - Keys and names are byte strings; omap order is the order of unsigned bytes.

use bytes::Bytes;
use types::{EntityAddr, EntityName, Errno, Utime};

pub type Result<T> = std::result::Result<T, Errno>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectStat {
    pub size: u64,
    pub mtime: Utime,
}

/// Who sent the request: global id and address as connected, nonce included (lock records it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub name: EntityName,
    pub addr: EntityAddr,
}

/// A client that watches the object (mirroring asks whether the writer of a status still does).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watcher {
    pub name: EntityName,
    pub addr: EntityAddr,
}

/// A page of an omap range; `more` tells that rows of the range follow the last one.
#[derive(Debug, Clone, Default)]
pub struct OmapPage {
    pub rows: Vec<(Bytes, Bytes)>,
    pub more: bool,
}

pub trait ObjectContext {
    // Reads.

    /// `None`: the object does not exist (a whiteout does not exist either).
    fn stat(&mut self) -> Result<Option<ObjectStat>>;
    /// At most `len` bytes (0 is none, unlike in the op READ) from `offset`, fewer at the end of the object. ENOENT if it does not exist.
    fn read(&mut self, offset: u64, len: u64) -> Result<Bytes>;
    /// The user attribute `name`, the same that GETXATTR shows.
    fn xattr(&mut self, name: &[u8]) -> Result<Option<Bytes>>;
    /// All user attributes in the order of their names.
    fn xattrs(&mut self) -> Result<Vec<(Bytes, Bytes)>>;
    fn omap_get(&mut self, key: &[u8]) -> Result<Option<Bytes>>;
    /// The row as the message leaves it up to here, its own changes among it. For what a second call of a message would undo or lose of
    /// the first one's otherwise.
    fn omap_latest(&mut self, key: &[u8]) -> Result<Option<Bytes>>;
    /// Rows with keys strictly greater than `start_after` that begin with `prefix`, at most `max`.
    fn omap_range(&mut self, start_after: &[u8], prefix: &[u8], max: usize) -> Result<OmapPage>;
    /// The omap's header; empty if it has none.
    fn omap_header(&mut self) -> Result<Bytes>;
    /// `seq` of the object's snapshot set, 0 if it has none.
    fn snapset_seq(&mut self) -> Result<u64>;
    fn watchers(&mut self) -> Result<Vec<Watcher>>;

    // Writes.

    /// Creates the object. EEXIST if `exclusive` and it exists.
    fn create(&mut self, exclusive: bool) -> Result<()>;
    /// No data at an offset behind the end extends the object up to there, as the op WRITE does.
    fn write(&mut self, offset: u64, data: Bytes) -> Result<()>;
    /// Replaces the data; xattrs and omap stay.
    fn write_full(&mut self, data: Bytes) -> Result<()>;
    /// Sets the size. The object exists.
    fn truncate(&mut self, size: u64) -> Result<()>;
    /// Removes the object. It exists.
    fn remove(&mut self) -> Result<()>;
    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> Result<()>;
    /// The object exists. A missing attribute is no error.
    fn remove_xattr(&mut self, name: &[u8]) -> Result<()>;
    fn omap_set(&mut self, rows: Vec<(Bytes, Bytes)>) -> Result<()>;
    /// The object exists. Missing keys are no error.
    fn omap_remove(&mut self, keys: Vec<Bytes>) -> Result<()>;
    fn set_omap_header(&mut self, header: Bytes) -> Result<()>;
    /// Removes all rows and the header. The object exists.
    fn omap_clear(&mut self) -> Result<()>;

    // Environment.

    fn caller(&self) -> Caller;
    /// Wall clock of the server; the same value during one message.
    fn now(&self) -> Utime;
    /// Two numbers that no other message has given for this object since it was created, nor this message before: the
    /// version at which the object last changed, and how many times this message has asked, from 1 on.
    fn serial(&mut self) -> (u64, u32);
    /// Fills `out` with unpredictable bytes.
    fn random(&mut self, out: &mut [u8]);
}
