//! The metadata server of a file system (docs/internals/files.md).
//!
//! Three parts. [`machine`] decides, without I/O: sessions, names, capabilities. [`keeper`] reads and writes rows and the journal in RADOS
//! over our client. [`serve`] joins them to clients' connections and to the daemon's place in the cluster ([`membership`]).
//!
//! Not here: who is given a rank, maps, `ceph fs` commands (`mon`, `cluster`, `node`).

pub mod access;
pub mod backtrace;
pub mod config;
pub mod follow;
pub mod journal;
pub mod keeper;
pub mod machine;
pub mod membership;
pub mod meters;
pub mod owners;
pub mod place;
pub mod row;
pub mod serve;
pub mod table;

pub use config::{Config, Error};
pub use serve::serve;
