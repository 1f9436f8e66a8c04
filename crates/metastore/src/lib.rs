//! The cluster's shared state: a small, consistent key-value store behind one trait, and the handle by which monitors and
//! OSDs share what it says.
//!
//! Vocabulary: a *revision* counts committed transactions of the whole store; a *transaction* is a set of
//! comparisons and, if all hold, a set of operations applied at one revision; a *lease* lets keys vanish
//! when their owner stops renewing; a *watch* reads the changes after a revision, in order.
//!
//! Layers: [`kv`] is the contract (with [`lease`], the owner's side of a lease), [`embedded`] the implementation of
//! one process (the crate `etcd` has that of many machines), `conformance` the suite that every implementation
//! passes; [`handle`] loads, follows and commits.
//!
//! Not here: what the keys mean, and what a change makes of them (`cluster`); sockets, Ceph messages; decisions (who may do
//! what lives in `mon`).

pub mod broken;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod embedded;
pub mod handle;
pub mod kv;
pub mod lease;

pub use embedded::Embedded;
pub use handle::{ClusterHandle, Committed, create_cluster};
pub use kv::{Error, Kv, Metastore, Result, Revision};
pub use lease::{Lease, LeaseTimes};
