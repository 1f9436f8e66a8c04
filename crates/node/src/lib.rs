//! A node: from settings to running roles. Opens the cluster state, starts the monitor and the OSDs, each
//! on a thread of its own, watches over them, and stops them in order.
//!
//! Not here: the command line (`skep`), the roles themselves (`mon`, `osd`).

mod datadir;
mod error;

pub use datadir::{AuthMode, DataDir, FORMAT, Settings};
pub use error::Error;
