//! What an execution may look up while it runs: the index of the objects, and who watches.
//!
//! Every member of a PG has these here, whichever way its data is kept: a shard has attributes, too, and pools of shards
//! have no omap. Data is not among them: an execution says beforehand what it wants of that ([`super::plan`]).

use crate::client::ConnId;
use crate::exec::notifies::NotifyCharge;
use crate::state::object::ObjectState;
use crate::state::object_info::WatchKey;
use crate::stored::{IoError, ObjectStat, OmapPage};
use bytes::Bytes;
use std::ops::Bound;
use types::{Errno, HObject, ObjectId};

/// The index, as it stands before the message. A missing object has no attributes and no rows.
pub(crate) trait Known {
    /// What is kept with the object; the default for a missing one.
    fn object(&mut self, oid: &ObjectId) -> Result<ObjectState, IoError>;
    fn stat(&mut self, oid: &ObjectId) -> Result<Option<ObjectStat>, IoError>;
    fn attr(&mut self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>, IoError>;
    /// Names of all attributes, ascending, and how long their values are.
    fn attr_sizes(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, u64)>, IoError>;
    /// All attributes, ascending by name.
    fn attrs(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>, IoError>;
    fn omap_header(&mut self, oid: &ObjectId) -> Result<Bytes, IoError>;
    /// Values of those of `keys` that exist, in the order of `keys`.
    fn omap_get(&mut self, oid: &ObjectId, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, IoError>;
    /// Rows from `from` on, ascending: at most `max_entries`, of `max_bytes` together or little more (at least one row
    /// where there is any).
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
}

/// The watches and notifications of the PG.
pub(crate) trait Watches {
    /// ENOTCONN: there is no such watch; ETIMEDOUT: it is another connection's.
    fn check(&self, object: &HObject, key: WatchKey, conn: ConnId) -> Result<(), Errno>;
    /// Another notification may begin on the object.
    fn can_notify(&self, object: &HObject) -> bool;
    /// Room for a notification of `client` with so many bytes.
    fn room_for_notify(&self, client: u64, payload: usize) -> Result<NotifyCharge, Errno>;
    /// Room for what an acknowledgement says; None where nobody waits for it.
    fn room_for_reply(
        &self,
        object: &HObject,
        id: u64,
        key: WatchKey,
        bytes: usize,
    ) -> Result<Option<NotifyCharge>, Errno>;
}
