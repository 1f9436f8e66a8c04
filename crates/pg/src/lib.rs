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

mod api;
mod backend;
mod backing;
pub mod broken;
mod client;
mod coding;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod copy_reads;
mod count;
mod exec;
mod front;
pub mod inspect;
mod join;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod pg;
mod pool;
pub mod probe;
mod replica;
mod scrub;
mod split;
mod state;
mod store;
mod stored;
mod trim;

pub use api::{
    Allow, Capabilities, Client, ClientOp, ClusterView, ConnId, Context, Fence, Input, Located, Need,
    ObjectCopy, Output, Permit, PgStats,
};
pub use api::{ScrubOrder, ScrubResult, Word};
pub use backend::erasure::undo::first_aside;
pub use backend::findings::{Inconsistent, shard_error};
pub use backend::group::{Group, Proposal};
pub use backend::pull_turns::PullTurns;
pub use backend::replicated::first_scratch;
pub use backend::reports::{CopyNeed, Kin, MemberState};
pub use coding::Coding;
pub use copy_reads::{ForCopy, refuse as refuse_read};
pub use exec::cost::WRITTEN_MAX;
pub use exec::finish::RETURN_MAX;
pub use exec::limits::OBJECT_SIZE_MAX;
pub use exec::notifies::NotifyBytes;
pub use exec::ops::omap::KEYS_MAX as OMAP_KEYS_MAX;
pub use exec::ops::xattr::{XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_BYTES_MAX, XATTRS_MAX};
pub use front::checks::{NAME_MAX as OBJECT_NAME_MAX, NSPACE_MAX as NAMESPACE_MAX};
pub use front::list::ENTRIES_MAX as LIST_ENTRIES_MAX;
pub use front::locks::{LockSeen, Refusal};
pub use front::watch::{Unanswered, Watcher};
pub use join::{bring_to_life, is_of_life};
pub use pg::{LoadError, Pg};
pub use pool::{Blocklist, PgJoined, PgLife, PoolView, SnapIntervals};
pub use replica::Replica;
pub use scrub::ScrubView;
pub use state::log::{LOG_ENTRY_BYTES, LOG_KEPT};
pub use state::range::ancestors;
pub use state::range::seed_of;
pub use state::stamps::ScrubStamps;
pub use store::{IoError, ObjectReads, ObjectStat, ObjectStore, OmapPage, Seq, Ticket};

#[cfg(test)]
mod tests;
