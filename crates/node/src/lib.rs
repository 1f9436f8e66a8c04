//! A node: from settings to running roles. Opens the cluster state, starts its roles (the monitor, the OSDs), each
//! on a thread of its own, watches over them, and stops them in order.
//!
//! Not here: the command line (`skep`), the roles themselves (`mon`, `osd`).

pub mod admin;
mod alarms;
#[cfg(all(feature = "s3", feature = "console"))]
mod buckets;
mod clients;
#[cfg(feature = "console")]
mod console;
mod copies;
mod datadir;
mod error;
mod exporter;
pub mod formats;
#[cfg(feature = "s3")]
pub mod gateway;
mod influx;
mod kinds;
mod mds;
mod monitor;
mod move_state;
mod node;
mod osds;
mod platform;
pub mod preflight;
mod rebuild;
mod role;
#[cfg(feature = "s3")]
mod s3;
mod settle;
mod state;
mod supervise;
mod trace_to;
mod traces;
pub mod upgrade;

pub use cluster::GatewayOptions;
pub use datadir::{AuthMode, DataDir, EtcdSettings, FORMAT, KeepFree, OsdSlot, Settings};
pub use error::Error;
pub use exporter::start_of_gateway as show_metrics_of_gateway;
pub use kinds::role_names;
pub use move_state::{Moved, move_to_etcd};
pub use node::{Node, watch_this_thread};
pub use osd::MEMORY_MIN as OSD_MEMORY_MIN;
pub use rebuild::{Rebuilt, rebuild};
pub use settle::{ConsoleOptions, First, Msgr1Port, S3Options, StartOptions};
pub use trace_to::TraceTo;
