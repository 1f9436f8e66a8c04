//! Backups of images in a repository of restic's format (version 2), which stands alone: it is listed, verified and pruned
//! without a cluster, and stock restic reads it (docs/operating/backup.md, docs/decisions/0051-backup.md).
//!
//! Enter at [`Repository::open`], [`run::run`], [`restore::restore`], [`verify::verify`], [`prune::prune`].
//!
//! Vocabulary, restic's: a *blob* is a stretch of bytes named by its SHA-256; *data* blobs are pieces of images, *tree* blobs are
//! folders; a *pack* is a file of sealed blobs; the *index* says which blob is where; a *manifest* (restic's snapshot) names the
//! tree of one backup. A *snapshot* is always one of an image in the cluster. A *piece* is the part of an image that becomes one
//! blob.
//!
//! Invariants: files appear whole and durable or not at all; packs before the index that names them, the index before the
//! manifest. So whatever is cut short leaves old backups whole, and at most packs that nobody needs. What is read is
//! authenticated, and its SHA-256 compared with its name.
//!
//! Not here: the command line, threads (the calls on the repository block: [`io::task::aside`]), whose turn it is.

mod error;
mod folder;
mod forms;
mod index;
pub mod keep;
mod key;
mod lease;
mod lock;
mod manifest;
mod pack;
pub mod prune;
mod repository;
pub mod restore;
pub mod run;
mod seal;
#[cfg(test)]
mod tests;
pub mod time;
pub mod trial;
pub mod verify;

pub use error::{Error, Result};
pub use folder::parse_place;
pub use forms::Id;
pub use key::{Password, read_password};
pub use lock::unlock;
pub use manifest::{About, Backup, find};
pub use repository::{Environment, Repository};
