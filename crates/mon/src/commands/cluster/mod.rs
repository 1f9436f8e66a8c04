//! Commands about the cluster as a whole, its monitors, managers and file systems.

pub mod away;
pub mod df;
pub mod features;
pub mod manager;
pub mod modules;
pub mod monitor;
pub mod obsolete;
pub mod perf;
pub mod prometheus;
pub mod status;
pub mod told;
pub mod whole;
