//! Object classes: small methods that run on one object inside an operation, atomically with it
//! (op CALL; docs/protocol/ceph/05-rbd.md and docs/protocol/ceph/04-osd.md, 9.9).
//!
//! Vocabulary: a *class* is a named group of *methods*; a method has *flags* (it reads, it writes) which
//! alone decide whether a request that calls it is a read or a write. The *context* is the object under
//! operation as the PG shows it ([`ObjectContext`]); the *object* ([`object::Object`]) is that context with
//! the method's flags enforced and with typed access to keys and attributes.
//!
//! Invariants: a method is a function of its input and its context, nothing else: no clock, no randomness,
//! no I/O of its own. Every byte of input and of stored state is untrusted: malformed input is EINVAL,
//! malformed state EIO, memory is bounded by what the object and the input hold. One table per class lists
//! its methods ([`registry::CLASSES`]); lookup, permission checks and documentation come from it.
//!
//! Not here: permissions (the PG asks [`Method::reads`]/[`Method::writes`]), undoing a failed method (the PG
//! drops the transaction), RETURNVEC and reply rules (PG).

mod cas;
mod cmpomap;
pub mod context;
mod fifo;
mod filter;
mod hello;
mod input;
mod journal;
mod lock;
mod log;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod method;
mod numops;
pub mod object;
mod opaque;
mod otp;
mod queue;
pub mod rbd;
mod refcount;
pub mod registry;
mod rgw;
mod rgw_gc;
#[cfg(test)]
mod tests;
mod timed;
mod timeindex;
mod two_phase;
mod user;
mod version;

pub use context::{Caller, ObjectContext, ObjectStat, OmapPage, Result, Watcher};
pub use filter::{Filter, Pass, parse_filter};
pub use lock::{LockHolder, LockInfo, LockerId, LockerInfo, lock_attr, lock_holders, lock_name};
pub use method::{Method, Reply};
pub use registry::{CLASSES, Class, LookupError, lookup};
