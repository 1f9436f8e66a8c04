//! The layout of the key space: one table. Values are encoded as the types' own wire form unless said.

use types::{Epoch, Uuid};

/// u64: counts commits; compared and rewritten by each of them.
pub const VERSION: &str = "version";
/// Which form all this has, see [`crate::format`].
pub const FORMAT: &str = "format";
/// fsid (16 bytes), created (utime).
pub const CLUSTER: &str = "cluster";
pub const MONMAP: &str = "monmap";
pub const MGRMAP: &str = "mgrmap";
/// Absent until a file system is made.
pub const FSMAP: &str = "fsmap";
/// u64: global ids below it were handed out.
pub const GLOBAL_ID_LIMIT: &str = "global_id_limit";
/// auth::ServiceSecrets: rotating secrets of every service.
pub const ROTATING: &str = "rotating";

/// Every incremental in the window, by epoch in 8 hex digits.
pub const OSDMAP_INC: &str = "osdmap/inc/";
/// Full maps, every [`crate::history::FULL_EVERY`] epochs and the oldest of the window.
pub const OSDMAP_FULL: &str = "osdmap/full/";
/// `config/<who>//<option>` -> text.
pub const CONFIG: &str = "config/";
/// By number in 16 hex digits.
pub const CONFIG_LOG: &str = "configlog/";
pub const CONFIG_KEY: &str = "config-key/";
pub const AUTH: &str = "auth/";
pub const MUTE: &str = "mute/";
/// u32 by OSD: an operator wants the one that came up in this epoch down.
pub const ASKED_DOWN: &str = "asked-down/";
/// map<string, string> of one OSD.
pub const OSD_METADATA: &str = "osdmeta/";
/// By gid: what the map of file systems does not say of a metadata server, see [`crate::files`].
pub const MDS: &str = "mds/";
/// `pgs/<pool>/<piece in 4 hex digits>` -> vec<(seed, PgConfig)>, see [`crate::pgs`].
pub const PG_CONFIG: &str = "pgs/";
/// `scrub/<pool>` -> vec<(seed, ScrubWish)>: scrubs that operators asked for, see [`crate::scrubs`].
pub const SCRUB: &str = "scrub/";
/// By an entry of the blocklist: whom it has fenced, see [`crate::fences`].
pub const FENCE: &str = "fence/";
/// Cluster log by number in 16 hex digits.
pub const LOG: &str = "log/";
/// The log's channel `audit`, numbered by itself.
pub const AUDIT: &str = "audit/";
/// `snap-owner/<pool>/<row in hex>`: who made which self-managed snapshot, see [`crate::snap_owners`].
pub const SNAP_OWNER: &str = "snap-owner/";

/// Everything ephemeral.
pub const LIVE: &str = "live/";
/// In the config-key store (`config-key/skep/retired/<uuid>`): an OSD that was removed for good, in words; the first is
/// `osd.N`. Its directory does not come back until somebody removes the key.
pub const RETIRED: &str = "skep/retired/";

/// Ephemeral: an OSD that may serve; the value is the address nonce of its run, in decimal.
pub const LIVE_LEASE: &str = "live/lease/";
/// Ephemeral: the last report of an OSD.
pub const LIVE_OSD: &str = "live/osd/";

/// Ephemeral: a living metadata server, by gid; the value is its name.
pub const LIVE_MDS: &str = "live/mds/";

/// Ephemeral: a living monitor.
pub const LIVE_MON: &str = "live/mon/";

pub fn inc(epoch: Epoch) -> String {
    format!("{OSDMAP_INC}{epoch:08x}")
}
pub fn full(epoch: Epoch) -> String {
    format!("{OSDMAP_FULL}{epoch:08x}")
}
pub fn config(who: &str, name: &str) -> String {
    format!("{CONFIG}{who}//{name}")
}
pub fn config_log(version: u64) -> String {
    format!("{CONFIG_LOG}{version:016x}")
}
pub fn log(version: u64) -> String {
    format!("{LOG}{version:016x}")
}
pub fn audit(version: u64) -> String {
    format!("{AUDIT}{version:016x}")
}
/// Without the prefix of the config-key store.
pub fn retired(uuid: Uuid) -> String {
    format!("{RETIRED}{uuid}")
}
pub fn live_osd(id: i32) -> String {
    format!("{LIVE_OSD}{id}")
}
pub fn live_mon(name: &str) -> String {
    format!("{LIVE_MON}{name}")
}
pub fn live_mds(gid: u64) -> String {
    format!("{LIVE_MDS}{gid}")
}
pub fn live_lease(id: i32) -> String {
    format!("{LIVE_LEASE}{id}")
}
