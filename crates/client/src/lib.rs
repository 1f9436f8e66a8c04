//! Our RADOS client, for gateways and tools: talks to Skep's OSDs or to those of a Ceph cluster.
//!
//! Two halves. [`core`] is a state machine without I/O: maps, replies, lost connections and times go in; connections to
//! make, messages to send and results come out. [`driver`] runs it over `net` on a thread of its own and gives the
//! asynchronous interface: [`Client::connect`], then [`Client::pool`], then the methods of [`IoCtx`].
//!
//! Vocabulary: an *operation* is one message to one object, with one or several *steps* that take effect together; its *tid*
//! names it over all its sends. A *target* is where an operation goes now. A *lingering* operation is a watch or a
//! notify: it outlives its reply.
//!
//! Invariants: a write keeps its tid over all sends, so that it takes effect at most once. Operations on one object are sent
//! in the order in which they were submitted, and sent again in that order. Every queue has a bound ([`core::Limits`]);
//! at the bound callers wait.
//!
//! Not here: what images, buckets or files are (`rbd` and the gateways); cache tiers and messenger v1:
//! asked for, they are refused with [`Error::Unsupported`].

pub mod conf;
pub mod core;
pub mod driver;
mod error;

pub use conf::Conf;
pub use core::command::Target;
pub use core::list::Cursor;
pub use core::op::{Cmp, CopySource, Operation, Outcome, Served, Step};
pub use core::snap::SnapContext;
pub use core::watch::WatchEvent;
pub use driver::{Client, CommandOutput, DaemonEvent, DaemonLink, IoCtx, Lister, Platform, Watch};
pub use error::Error;

/// An answer, or why there is none.
pub type Result<T> = std::result::Result<T, Error>;
