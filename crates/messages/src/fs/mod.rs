//! Messages between clients and a metadata server (docs/protocol/files.md).
//!
//! Vocabulary: a *capability* is what a client may do with an inode on its own; a *trace* is the part of a reply that shows a name and
//! the inode behind it; a *lease* lets a client trust a name for a time. Names are bytes: Linux does not ask for UTF-8.
//!
//! Invariants: decoding ignores what follows the known fields; counts are checked before memory is taken; encoding what was
//! decoded gives the same bytes (vectors/filesystem).
//!
//! Not here: what a request does (`mds`), maps (`crate::mon`).

mod caps;
mod numbers;
mod reconnect;
mod reply;
mod request;
mod session;
mod snap;
mod stat;

#[cfg(test)]
mod tests;

pub use caps::{CapBody, CapItem, MClientCapRelease, MClientCaps, MClientLease, lease_action};
pub use numbers::{cap, cap_op, lock, op, open_flag, readdir_flag, session_op, setattr, xattr_flag};
pub use reconnect::{CapRecord, MClientReclaim, MClientReclaimReply, MClientReconnect, RealmRecord};
pub use reply::{Created, MClientReply, Trace, TraceDentry};
pub use request::{Args, FilePath, MClientRequest, Release, SetAttr, request_flag};
pub use session::{Features, MClientSession};
pub use snap::{MClientQuota, MClientSnap, Realm, snap_op};
pub use stat::{CapStat, DirStat, FileLock, InodeStat, Layout, LeaseStat, Quota, Xattrs};
