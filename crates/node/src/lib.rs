//! A node: from settings to running roles. Opens the cluster state, starts the monitor and the OSDs, each
//! on a thread of its own, watches over them, and stops them in order.
//!
//! Not here: the command line (`skep`), the roles themselves (`mon`, `osd`).

pub mod admin;
mod clients;
mod datadir;
mod error;
mod node;
mod supervise;

pub use datadir::{AuthMode, DataDir, FORMAT, KeepFree, Settings};
pub use error::Error;
pub use node::{Node, StartOptions};
pub use osd::MEMORY_MIN as OSD_MEMORY_MIN;
