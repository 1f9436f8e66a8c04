//! One OSD's disk: transactions over objects, durable and whole or not there at all.
//!
//! Vocabulary: the *log* is a ring at the head of the data file; a *batch* is what one flush makes
//! durable; the *index* keeps object records, omap rows and block checksums as of the last *checkpoint*;
//! a *generation* is all that changed since (active) or that a checkpoint is writing now (frozen).
//!
//! Invariants: a transaction is seen by reads at once, and survives a power cut once [`Store::durable`]
//! reaches its number; after a cut the store holds exactly the transactions up to some number that is
//! not lower. A failed write or flush stops the store for good.
//!
//! Not here: the network, PGs, the meaning of names. One thread owns a [`Store`]; it never blocks on a
//! flush, only where a named bound is reached (log, overlay or file full: counted in
//! [`Counters::stalls`]).

mod alloc;
mod background;
mod block_row;
pub mod broken;
mod cache;
mod check;
mod checkpoint;
mod codec;
mod committer;
mod compress;
mod direct;
mod error;
mod exec;
mod generation;
mod helper;
mod host;
/// For the example that measures engines; no part of the store's interface.
#[doc(hidden)]
pub mod index;
mod key;
mod onode;
mod open;
mod options;
mod own;
mod prefetch;
mod read;
mod record;
mod ring;
mod state;
mod steps;
mod store;
mod superblock;
mod values;
mod view;
mod zeros;

pub use background::{Background, Driver};
pub use check::{Progress, Report};
pub use compress::{Algorithm, BLOB_BLOCKS_MAX, Compression};
pub use error::{Error, Result};
pub use host::{device_of, host_bytes, host_use, look};
pub use options::Options;
pub use store::Store;
pub use superblock::{FEATURE_NAMES, FEATURES_AT_OPEN, FORMAT};
pub use values::{Counters, Identity, OmapPage, PoolUsage, Seq, Stat, StatFs, Ticket, Waker};
pub use view::{LogBounds, Salvage, View};
