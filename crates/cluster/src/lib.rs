//! The state of one cluster, typed: what monitors decide on and OSDs follow. Plain data, and pure functions from state to
//! state.
//!
//! Vocabulary: [`ClusterState`] is a snapshot; [`Changes`] is what a decision wants changed; [`ClusterState::apply`] gives the
//! next snapshot and the [`rows::Write`]s that make the store say the same; [`load`] gives a snapshot from all rows, or from
//! another writer's changes. A revision counts the store's commits.
//!
//! Invariants: decisions are functions of a snapshot, so that they are simply made again when another writer was faster.
//! Every commit writes the row `version`, and its writer compares that row's revision first: commits are totally ordered.
//! The layout of the rows is in [`keys`]; what lives only as long as its owner (reports of OSDs) is under `live/`.
//!
//! Not here: I/O, clocks, threads; the store, its leases and the commit itself (`metastore`); who may decide what (`mon`).

pub mod alarms;
pub mod backups;
pub mod boot;
pub mod broken;
pub mod changes;
pub mod config;
pub mod crashes;
pub mod create;
mod decisions;
mod error;
pub mod facts;
pub mod fences;
pub mod files;
pub mod forced;
pub mod format;
pub mod history;
pub mod images;
pub mod keys;
pub mod load;
pub mod options;
pub mod pgs;
pub mod qos;
pub mod rbd_support;
pub mod rows;
mod scrubs;
pub mod services;
mod snap_owners;
pub mod state;
pub mod stats;
#[cfg(test)]
mod tests;
pub mod told;
pub mod volumes;

pub use boot::{OsdBoot, bucket_name, weight_for};
pub use changes::{Change, Changes};
pub use config::{ConfigDb, ConfigLogEntry, Setting};
pub use create::{CreateOptions, MDS_CAPS, OSD_CAPS, S3_CAPS, new_entity};
pub use error::{Error, Result};
pub use fences::{Fenced, Instance};
pub use files::{MdsDaemon, MdsDaemons};
pub use forced::Forced;
pub use history::MapHistory;
pub use images::{IMAGES_MAX, ImageKey, ImageRate, ImageSum, image_of};
pub use options::gateway::GatewayOptions;
pub use pgs::{Joined, Life, MergeRefusal, PgConfig, PgConfigs, PgMerge, PgProposal, Refusal, share_places};
pub use scrubs::{ScrubWish, WISHES_MAX as SCRUB_WISHES_MAX};
pub use services::{ServiceDaemon, ServiceMap};
pub use snap_owners::SnapOwners;
pub use state::{AUDIT_CHANNEL, ClusterState, HealthMute, LOG_MAX};
pub use stats::{ClusterStats, IoRates, MonReport, OsdReport, RecoveryRates, SpareSpace};
