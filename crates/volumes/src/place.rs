//! What a command works with.

use cephfs::Mount;
use rbd_support::Config;
use types::PoolId;

/// Names of one listing.
pub const NAMES_MAX: usize = 100_000;

pub struct Place<'a> {
    pub config: &'a Config,
    pub mount: &'a Mount,
    pub fscid: i32,
    /// Those for files, the default first.
    pub pools: Vec<(PoolId, String)>,
}

pub fn pools(config: &Config, fscid: i32) -> Vec<(PoolId, String)> {
    let state = config.cluster.state();
    let fs = state.fsmap.filesystems.iter().find(|fs| fs.fscid == fscid);
    let ids = fs.map(|fs| fs.mds_map.data_pools.clone()).unwrap_or_default();
    let named = |id: PoolId| state.osdmap.pool_name(id).map(|n| (id, n.to_string()));
    ids.into_iter().filter_map(named).collect()
}
