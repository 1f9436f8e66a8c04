//! Merging: the last PG of a pool becomes part of the one that it would have been split off from
//! (docs/internals/merging.md).
//!
//! One PG at a time for a pool, by one commit: pg_num becomes smaller by one, and the target's configuration names what was
//! joined. It is made only of what the primary of both has brought to rest.

use super::{Joined, Life, PgConfig, PgConfigs};
use types::osdmap::{Incremental, OsdMap};
use types::pool::{PgMergeMeta, PgPool, ceph_stable_mod, pg_mask};
use types::{EVersion, Epoch, OsdId, PgId, PoolId};

/// In the map: no temporary primary.
const NOBODY: OsdId = -1;

/// Both are at rest: nothing is executed before the outcome is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgMerge {
    pub source: PgId,
    pub target: PgId,
    pub expect_source: PgConfig,
    pub expect_target: PgConfig,
    pub source_head: EVersion,
    pub target_head: EVersion,
}

/// Why a merge is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MergeRefusal {
    #[error("a configuration is another one by now")]
    Moved,
    #[error("it is not the pool's last placement group, or nobody wants fewer")]
    NotWanted,
    #[error("the two are not held by the same OSDs")]
    Apart,
    #[error(
        "placement groups of an erasure-coded pool are not merged: what their shards could take back would be lost"
    )]
    Shards,
}

impl PgMerge {
    /// What the target's configuration becomes: its primary begins a new term.
    pub(super) fn config(&self, now: &PgConfig, epoch: Epoch) -> PgConfig {
        PgConfig {
            interval: epoch,
            life: Life {
                since: now.life.since,
                joined: Some(Box::new(Joined {
                    epoch,
                    source: self.source.seed,
                    source_head: self.source_head,
                    target_head: self.target_head,
                    source_life: self.expect_source.life.epoch(),
                    target_life: self.expect_target.life.epoch(),
                    members: now.in_sync.clone(),
                })),
            },
            ..now.clone()
        }
    }

    /// What becomes of the map.
    pub(crate) fn change(&self, map: &OsdMap, inc: &mut Incremental) {
        let epoch = map.epoch + 1;
        let source = self.source;
        if let Some(pool) = inc.pool_mut(map, source.pool) {
            pool.merge_last(
                epoch,
                PgMergeMeta {
                    source,
                    ready_epoch: map.epoch,
                    last_epoch_started: self.expect_target.interval,
                    last_epoch_clean: map.epoch,
                    source_version: self.source_head,
                    target_version: self.target_head,
                },
            );
        }
        if map.pg_temp.contains_key(&source) {
            inc.new_pg_temp.insert(source, Vec::new());
        }
        if map.primary_temp.contains_key(&source) {
            inc.new_primary_temp.insert(source, NOBODY);
        }
        if map.pg_upmap.contains_key(&source) {
            inc.old_pg_upmap.insert(source);
        }
        if map.pg_upmap_items.contains_key(&source) {
            inc.old_pg_upmap_items.insert(source);
        }
        if map.pg_upmap_primaries.contains_key(&source) {
            inc.old_pg_upmap_primary.insert(source);
        }
    }
}

/// In a pool that shall have `target` PGs: each PG from there on `target` on follows the exceptions of placement of the one that it becomes part of, and no others.
pub fn share_places(map: &OsdMap, id: PoolId, target: u32, inc: &mut Incremental) {
    let Some(pool) = map.pool(id) else { return };
    let mask = pg_mask(target);
    for seed in target..pool.pg_num {
        let pg = PgId::new(id, seed);
        let into = PgId::new(id, ceph_stable_mod(seed, target, mask));
        let (of_pg, of_into) = (map.pg_upmap.get(&pg), map.pg_upmap.get(&into));
        if of_pg != of_into {
            match of_into {
                Some(osds) => drop(inc.new_pg_upmap.insert(pg, osds.clone())),
                None => drop(inc.old_pg_upmap.insert(pg)),
            }
        }
        let (of_pg, of_into) = (map.pg_upmap_items.get(&pg), map.pg_upmap_items.get(&into));
        if of_pg != of_into {
            match of_into {
                Some(items) => drop(inc.new_pg_upmap_items.insert(pg, items.clone())),
                None => drop(inc.old_pg_upmap_items.insert(pg)),
            }
        }
        let (of_pg, of_into) = (map.pg_upmap_primaries.get(&pg), map.pg_upmap_primaries.get(&into));
        if of_pg != of_into {
            match of_into.copied() {
                Some(osd) => drop(inc.new_pg_upmap_primary.insert(pg, osd)),
                None => drop(inc.old_pg_upmap_primary.insert(pg)),
            }
        }
        if map.primary_temp.get(&pg) != map.primary_temp.get(&into) {
            let osd = map.primary_temp.get(&into).copied().unwrap_or(NOBODY);
            inc.new_primary_temp.insert(pg, osd);
        }
    }
}

impl PgConfigs {
    /// Why `m` cannot be carried out now; None: it can.
    pub fn refuses_merge(&self, map: &OsdMap, m: &PgMerge) -> Option<MergeRefusal> {
        if map.pool(m.source.pool).is_some_and(PgPool::is_erasure) {
            return Some(MergeRefusal::Shards);
        }
        let wanted = map.pool(m.source.pool).is_some_and(|p| {
            p.pg_num_target < p.pg_num
                && m.source.seed == p.pg_num - 1
                && m.target.pool == m.source.pool
                && m.target.seed == p.merge_target(m.source.seed)
        });
        if !wanted {
            return Some(MergeRefusal::NotWanted);
        }
        let (Some(source), Some(target)) = (self.get(m.source), self.get(m.target)) else {
            return Some(MergeRefusal::Moved);
        };
        let same = |now: &PgConfig, expect: &PgConfig| now.is_expected(expect) && now.life == expect.life;
        if !same(source, &m.expect_source) || !same(target, &m.expect_target) {
            return Some(MergeRefusal::Moved);
        }
        let alike = source.primary == target.primary
            && source.in_sync.len() == target.in_sync.len()
            && source.in_sync.iter().all(|o| target.in_sync.contains(o));
        (!alike).then_some(MergeRefusal::Apart)
    }
}
