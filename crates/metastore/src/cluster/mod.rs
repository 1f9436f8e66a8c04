//! The state of one cluster, typed: what monitors decide on and OSDs follow.
//!
//! [`ClusterState`] is a snapshot, [`Changes`] what a decision wants changed, [`ClusterHandle`] makes the one
//! into the other by a compare-and-swap transaction and tells everybody. Decisions are pure functions from
//! state to changes, so they are simply run again when another writer was faster.
//!
//! Every commit writes the key `version` and compares its revision first: commits are totally ordered.
//! The layout of the keys is in [`keys`]; what lives only as long as its owner (reports of OSDs) is under
//! `live/` with a lease.

mod boot;
pub mod changes;
pub mod config;
mod copies;
pub mod create;
pub mod fences;
mod follow;
pub mod format;
pub mod handle;
pub mod history;
pub mod keys;
mod load;
pub mod monitors;
pub mod options;
mod osds;
pub mod pgs;
mod scrubs;
mod snap_owners;
pub mod state;
pub mod stats;
#[cfg(test)]
mod tests;

pub use boot::{bucket_name, decide as boot_decision, weight_for};
pub use changes::{Change, Changes};
pub use config::{ConfigDb, ConfigLogEntry, Setting};
pub use create::{CreateOptions, OSD_CAPS, create_cluster, new_entity};
pub use fences::{Fenced, Instance};
pub use handle::{ClusterHandle, Committed, OsdBoot};
pub use history::MapHistory;
pub use monitors::MonReport;
pub use pgs::{PgConfig, PgConfigs, PgProposal, Refusal};
pub use scrubs::{ScrubWish, WISHES_MAX as SCRUB_WISHES_MAX};
pub use snap_owners::SnapOwners;
pub use state::{AUDIT_CHANNEL, ClusterState, HealthMute, LOG_MAX};
pub use stats::{ClusterStats, IoRates, OsdReport, RecoveryRates, SpareSpace};
