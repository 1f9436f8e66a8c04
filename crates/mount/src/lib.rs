//! A file system of ours, or of a Ceph cluster's, under a directory of this machine, by FUSE.
//!
//! Vocabulary: the kernel asks *operations* of inodes by number; the numbers are the metadata server's, so nothing is to be kept of an
//! inode that the kernel knows, and nothing to be forgotten, but of what lies in snapshots ([`snaps`]). A *handle* is an open file or directory.
//!
//! Invariants: nothing that is written is buffered here. A name, attribute or size is asked of the server each time (times to live of 0),
//! and pages that the kernel keeps of a file go when it is opened anew, or when its time or size are others: so what another client changed
//! is seen at the next call. A change is answered when the server has it, a write when its bytes are durable; `fsync` of a file or a
//! directory, and the end of the mount, wait until all that was answered is durable (docs/decisions/0072-mounts-like-stock-ones.md).
//!
//! Bounds: [`room::BYTES_MAX`] bytes of operations under way, others wait in the kernel; a page of names for each open directory;
//! [`snaps::ENTRIES_MAX`] inodes in snapshots that the kernel knows.
//!
//! Not here: flock between clients (`fuser` does not say which locks are such, so the kernel has them among its own processes).

mod acl;
mod attr;
mod dir;
mod fs;
mod locks;
mod room;
mod serve;
mod shared;
mod snaps;

pub use io::mounts::Mounted;
pub use serve::{Error, Options, claim, serve};
