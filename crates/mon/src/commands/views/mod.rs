//! What several families of commands show.

pub mod crush_map;
pub mod daemons;
pub mod file_systems;
pub mod io_rates;
pub mod map_flags;
pub mod monmap;
pub mod old_map;
pub mod osd_counts;
pub mod osd_map;
pub mod osd_tree;
pub mod pg_stats;
pub mod pool_stats;
pub mod progress;
pub mod services;
pub mod show;
