//! The placement group: client operations on objects, as a state machine (docs/protocol/ceph/04-osd.md).
//!
//! Vocabulary: a [`Pg`] holds one placement group's log, statistics, watches and object cache. The *shell*
//! (crate `osd`) feeds it an [`Input`] at a time with a [`Context`] (store, clock, randomness, cluster) and
//! carries out the [`Output`]s. A message whose data is not in memory is *parked* until it is. *Execution* turns a message into one transaction against the state that the
//! store shows; the *commit tracker* holds every answer back until what it shows is durable.
//!
//! Invariants:
//! - A message's writes are one transaction, or nothing.
//! - An answer leaves only when every write that it shows is durable; operations on one object take effect, and
//!   their answers leave, in the order in which they came, but that reads may pass each other (`parked`).
//! - A write is executed at most once per request id, over restarts too: the id rides in the log entry of
//!   the same transaction.
//! - Every table has a bound named next to it.
//!
//! Not here: sockets, threads, clocks, the store (all come in through [`Context`]); routing an operation to
//! its PG, map distribution and epochs, when copies are compared and how fast they are copied (shell).

mod ahead;
mod api;
pub mod broken;
mod checks;
mod commit;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod cost;
mod count;
mod execute;
mod fetch;
pub mod inspect;
mod intervals;
mod list;
mod locks;
mod log;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod meta;
mod notifies;
mod object;
mod object_info;
mod ops;
mod parked;
mod pg;
mod pool;
pub mod probe;
mod range;
mod replication;
mod reply;
mod scrub;
mod snapset;
mod split;
mod stats;
mod store;
mod trim;
mod watch;
mod write;

pub use api::{
    Allow, Capabilities, Client, ClientOp, ClusterView, ConnId, Context, Fence, Input, Located, Need,
    ObjectCopy, Output, Permit, PgStats,
};
pub use checks::{NAME_MAX as OBJECT_NAME_MAX, NSPACE_MAX as NAMESPACE_MAX};
pub use cost::WRITTEN_MAX;
pub use list::ENTRIES_MAX as LIST_ENTRIES_MAX;
pub use locks::{LockSeen, Refusal};
pub use log::{LOG_ENTRY_BYTES, LOG_KEPT};
pub use ops::data_write::OBJECT_SIZE_MAX;
pub use ops::omap::KEYS_MAX as OMAP_KEYS_MAX;
pub use ops::xattr::{XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_BYTES_MAX, XATTRS_MAX};
pub use pg::{LoadError, Pg};
pub use pool::{Blocklist, PoolView, SnapIntervals};
pub use range::seed_of;
pub use replication::{CopyNeed, ForCopy, Group, Kin, MemberState, Proposal, Replica, refuse_read};
pub use reply::RETURN_MAX;
pub use scrub::verdict::shard_error;
pub use scrub::{Inconsistent, PullTurns, ScrubOrder, ScrubResult, ScrubStamps, ScrubView, first_scratch};
pub use split::ancestors;
pub use store::{IoError, ObjectReads, ObjectStat, ObjectStore, OmapPage, Seq, Ticket};
pub use watch::{NotifyBytes, Unanswered};

#[cfg(test)]
mod tests;
