//! Our client of file systems, for gateways and for the cluster's own work: of Skep's metadata server or of a Ceph cluster's.
//!
//! Vocabulary: a [`Mount`] is one session with the server of a file system's only active rank, and any number of tasks that ask it.
//! Paths are bytes from the root, without a leading slash. A *capability* is what a server lets a client do with an inode on its
//! own.
//!
//! Invariants: nothing is cached. What comes with an answer is given back at once, and what reading or writing needs is kept as long as
//! a [`File`] is open. A request that changes something is answered when it is durable, or, where [`Options::early`] says so, as soon as
//! the server has it, which [`Mount::sync`] and [`File::sync`] wait for then. It keeps its tid over
//! all sends, so that it takes effect once; where the session was lost meanwhile it fails with ESTALE, and may have taken effect.
//!
//! Bounds: [`session::REQUESTS_MAX`] requests under way, others wait; [`session::safe::UNSAFE_MAX`] that were answered and are not durable; [`data::CHUNK`] bytes of data for a call by path; a request waits
//! [`Options::timeout`] for its answer, through restarts and failovers of the server; [`session::ranges::LOCKERS_MAX`] calls wait for locks.
//!
//! Not here: several active ranks (refused with EOPNOTSUPP).

mod data;
mod dir;
mod file;
mod inode;
mod layout;
mod locks;
mod mount;
mod options;
mod page;
mod place;
mod safety;
mod seek;
mod session;
mod snap;

pub use dir::Cursor;
pub use file::File;
pub use inode::Name;
pub use mount::{By, Mount};
pub use options::Options;
pub use page::Entry;
pub use safety::Followed;
pub use snap::in_snap;

/// An answer, or why there is none.
pub type Result<T> = client::Result<T>;
