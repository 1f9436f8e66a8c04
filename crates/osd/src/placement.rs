//! The cluster map as the PGs of one OSD see it: views of pools, and where an object lives.

use bytes::Bytes;
use metastore::ClusterState;
use pg::{Blocklist, ClusterView, Located, PoolView, SnapIntervals};
use std::collections::HashMap;
use std::sync::Arc;
use types::pool::{PgPool, pool_flag};
use types::{HObject, ObjectLocator, OsdId, PgId, PoolId};

/// A snapshot of the cluster, prepared for one OSD; made anew for each epoch.
#[derive(Debug)]
pub struct Placement {
    pub osd: OsdId,
    pub state: Arc<ClusterState>,
    pools: HashMap<PoolId, Arc<PoolView>>,
}

impl Placement {
    pub fn new(osd: OsdId, state: Arc<ClusterState>) -> Self {
        let map = &state.osdmap;
        let blocked = map.blocklist.keys().chain(map.range_blocklist.keys());
        let blocklist = Arc::new(Blocklist::new(blocked));
        let pools = map
            .pools
            .iter()
            .map(|(id, pool)| (*id, Arc::new(pool_view(&state, *id, pool, blocklist.clone()))))
            .collect();
        Self { osd, state, pools }
    }

    pub fn epoch(&self) -> u32 {
        self.state.osdmap.epoch
    }

    pub fn pool(&self, id: PoolId) -> Option<&Arc<PoolView>> {
        self.pools.get(&id)
    }

    /// True if this OSD is the one that serves `pg`.
    pub fn serves(&self, pg: PgId) -> bool {
        self.state.pgs.serves(pg, self.osd)
    }

    /// Every PG that this OSD serves.
    pub fn served(&self) -> Vec<PgId> {
        self.state.osdmap.pgs().filter(|pg| self.serves(*pg)).collect()
    }

    /// The PG that an operation's hash and seed lead to now: a client with an older map may name the PG from
    /// before a split.
    pub fn current_pg(&self, named: PgId, hash: u32, is_object: bool) -> Option<PgId> {
        let pool = self.state.osdmap.pool(named.pool)?;
        if is_object {
            return Some(PgId::new(named.pool, pool.raw_to_pg(hash)));
        }
        (named.seed < pool.pg_num).then_some(named)
    }
}

impl ClusterView for Placement {
    fn locate(&self, oloc: &ObjectLocator, oid: &Bytes, snap: u64) -> Located {
        let Some((hash, pg)) = self
            .state
            .osdmap
            .object_to_pg(oloc.pool, &oloc.nspace, &oloc.key, oid)
        else {
            return Located::NoPool;
        };
        let object = HObject::new(
            oloc.pool,
            hash,
            oloc.nspace.clone(),
            oloc.key.clone(),
            oid.clone(),
            snap,
        );
        if self.serves(pg) {
            Located::Local(object)
        } else {
            Located::Remote(object)
        }
    }
}

fn pool_view(state: &ClusterState, id: PoolId, pool: &PgPool, blocklist: Arc<Blocklist>) -> PoolView {
    let map = &state.osdmap;
    let mut removed = SnapIntervals::new();
    for (start, len) in map
        .removed_snaps_queue
        .get(&id)
        .into_iter()
        .flat_map(|s| s.ranges())
    {
        removed.insert(start, start + len);
    }
    PoolView {
        epoch: map.epoch,
        id,
        name: map.pool_name(id).unwrap_or_default().to_string(),
        applications: pool.application_metadata.clone(),
        pg_num: pool.pg_num,
        full: pool.flags & pool_flag::FULL != 0,
        full_quota: pool.flags & pool_flag::FULL_QUOTA != 0,
        pool_snaps_mode: pool.flags & pool_flag::POOL_SNAPS != 0,
        snap_seq: pool.snap_seq,
        snaps: pool.snaps.keys().rev().copied().collect(),
        removed_snaps: removed,
        erasure: pool.is_erasure(),
        stripe_width: pool.stripe_width,
        ec_overwrites: pool.flags & pool_flag::EC_OVERWRITES != 0,
        blocklist,
    }
}
