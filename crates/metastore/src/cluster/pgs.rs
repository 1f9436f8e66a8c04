//! Which OSDs hold each placement group's data: the configuration of its replication, kept by consensus.
//!
//! CRUSH says where a PG should be; [`PgConfig`] says where its data *is*. Wherever the two differ the OSD map
//! carries a `pg_temp` entry, so that clients and OSDs follow the data. An OSD serves a PG only if it is named
//! here, so a changed weight, rule or OSD count never shows an empty PG in place of a full one.
//!
//! Invariants: every commit that changes the OSD map settles all PGs in the same transaction. A new PG starts
//! where CRUSH puts it; one that comes from a split starts where its ancestor is; existing ones stay.
//!
//! Not here yet: changing the in-sync set, moving data (issue "copies").

use super::keys;
use crate::kv::{Error, Result, TxnOp};
use denc::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use types::osdmap::{Incremental, OsdMap};
use types::{Epoch, OsdId, PgId, PoolId};

/// PGs that share one key: the state of a large pool is written in pieces.
const CHUNK: u32 = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgConfig {
    /// Map epoch in which this configuration began.
    pub interval: Epoch,
    /// OSDs that hold every acknowledged write.
    pub in_sync: Vec<OsdId>,
    pub primary: OsdId,
}
denc::envelope_denc!(PgConfig, 1, 1, { interval, in_sync, primary });

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgConfigs(BTreeMap<PgId, PgConfig>);

impl PgConfigs {
    pub fn get(&self, pg: PgId) -> Option<&PgConfig> {
        self.0.get(&pg)
    }

    /// True if `osd` is the one that serves `pg`.
    pub fn serves(&self, pg: PgId, osd: OsdId) -> bool {
        self.0.get(&pg).is_some_and(|c| c.primary == osd)
    }

    /// PGs whose only holder is `osd`: what would be lost with it.
    pub fn only_on(&self, osd: OsdId) -> impl Iterator<Item = PgId> + '_ {
        self.0
            .iter()
            .filter(move |(_, c)| c.in_sync == [osd])
            .map(|(pg, _)| *pg)
    }

    /// Takes one row of the store in, in place of what it said before; None: the row is gone.
    pub fn take_row(&mut self, key: &str, value: Option<&bytes::Bytes>) -> Result<()> {
        let bad = |why: String| Error::BadValue {
            key: key.to_string(),
            why,
        };
        let (pool, chunk) = parse_key(key).ok_or_else(|| bad("not a pool and a piece".into()))?;
        let rows = match value {
            Some(raw) => Vec::<(u32, PgConfig)>::from_bytes(raw).map_err(|e| bad(e.to_string()))?,
            None => Vec::new(),
        };
        let old: Vec<PgId> = self.0.range(piece(pool, chunk)).map(|(pg, _)| *pg).collect();
        for pg in old {
            self.0.remove(&pg);
        }
        self.0
            .extend(rows.into_iter().map(|(seed, c)| (PgId::new(pool, seed), c)));
        Ok(())
    }

    /// Settles every PG of `next` (the map that `inc` leads to from `old`): completes `inc` with the
    /// temporary placements that are needed, and appends what changed here to `ops`. True if `inc` changed.
    pub fn settle(
        &mut self,
        old: &OsdMap,
        next: &OsdMap,
        inc: &mut Incremental,
        ops: &mut Vec<TxnOp>,
    ) -> bool {
        let mut dirty = BTreeSet::new();
        self.drop_gone(next, &mut dirty);
        let mut pinned = false;
        for pg in next.pgs() {
            let sets = next.pg_to_up_acting(pg);
            if !self.0.contains_key(&pg) {
                let Some(config) = self.first_config(old, next, pg, &sets.up) else {
                    continue;
                };
                self.0.insert(pg, config);
                dirty.insert((pg.pool, pg.seed / CHUNK));
            }
            let home = &self.0[&pg].in_sync;
            let temp = next.pg_temp.get(&pg);
            // A home that is down stays the home: the PG waits for it.
            let want = if sets.up == *home { None } else { Some(home) };
            if temp != want && !(temp.is_none() && want.is_some_and(|h| h.iter().all(|o| !next.is_up(*o)))) {
                inc.new_pg_temp.insert(pg, want.cloned().unwrap_or_default());
                pinned = true;
            }
        }
        ops.extend(dirty.into_iter().map(|(pool, chunk)| self.op(pool, chunk)));
        pinned
    }

    fn drop_gone(&mut self, next: &OsdMap, dirty: &mut BTreeSet<(PoolId, u32)>) {
        self.0.retain(|pg, _| {
            let stays = next.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num);
            if !stays {
                dirty.insert((pg.pool, pg.seed / CHUNK));
            }
            stays
        });
    }

    /// Where a PG without a configuration begins: with its ancestor if its pool was split, else where CRUSH
    /// says. `None` while no OSD is up for it.
    fn first_config(&self, old: &OsdMap, next: &OsdMap, pg: PgId, up: &[OsdId]) -> Option<PgConfig> {
        if let Some(pool) = old.pool(pg.pool)
            && pg.seed >= pool.pg_num
        {
            let ancestor = PgId::new(pg.pool, pool.raw_to_pg(pg.seed));
            return self.0.get(&ancestor).map(|c| PgConfig {
                interval: next.epoch,
                ..c.clone()
            });
        }
        let primary = *up.iter().find(|o| **o != crush::ITEM_NONE)?;
        Some(PgConfig {
            interval: next.epoch,
            in_sync: vec![primary],
            primary,
        })
    }

    fn op(&self, pool: PoolId, chunk: u32) -> TxnOp {
        let rows = self
            .0
            .range(piece(pool, chunk))
            .map(|(pg, c)| (pg.seed, c.clone()));
        let rows: Vec<(u32, PgConfig)> = rows.collect();
        let key = format!("{}{pool}/{chunk:04x}", keys::PG_CONFIG);
        if rows.is_empty() {
            TxnOp::delete(key)
        } else {
            TxnOp::put(key, rows.to_bytes())
        }
    }
}

/// The PGs of one row.
fn piece(pool: PoolId, chunk: u32) -> std::ops::RangeInclusive<PgId> {
    let first = chunk.saturating_mul(CHUNK);
    PgId::new(pool, first)..=PgId::new(pool, first.saturating_add(CHUNK - 1))
}

fn parse_key(key: &str) -> Option<(PoolId, u32)> {
    let (pool, chunk) = key.strip_prefix(keys::PG_CONFIG)?.split_once('/')?;
    Some((pool.parse().ok()?, u32::from_str_radix(chunk, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::osdmap::OsdMap;
    use types::pool::PgPool;

    /// A map like `vectors/placement/osdmap/lab1.bin`: six OSDs, several pools; all up and in.
    fn lab() -> OsdMap {
        let raw = include_bytes!("../../../../vectors/placement/osdmap/lab1.bin");
        let mut map = OsdMap::from_bytes(&bytes::Bytes::from_static(raw)).unwrap();
        for pool in map.pools.values_mut() {
            pool.size = 1;
        }
        map.pg_temp.clear();
        map
    }

    struct Cluster {
        map: OsdMap,
        pgs: PgConfigs,
    }

    impl Cluster {
        fn new() -> Self {
            let mut c = Self {
                map: lab(),
                pgs: PgConfigs::default(),
            };
            c.change(|_, _| {});
            c
        }

        /// One epoch, as a commit makes it; gives the rows that were written.
        fn change(&mut self, edit: impl FnOnce(&OsdMap, &mut Incremental)) -> Vec<TxnOp> {
            let mut inc = Incremental::next_after(&self.map, types::Utime::ZERO);
            edit(&self.map, &mut inc);
            let mut next = self.map.clone();
            next.apply(&inc).unwrap();
            let mut ops = Vec::new();
            if self.pgs.settle(&self.map, &next, &mut inc, &mut ops) {
                next = self.map.clone();
                next.apply(&inc).unwrap();
            }
            self.map = next;
            ops
        }

        fn homes(&self) -> BTreeMap<PgId, OsdId> {
            self.pgs.0.iter().map(|(pg, c)| (*pg, c.primary)).collect()
        }

        /// Clients are sent to the home of every PG whose home is up.
        fn check(&self) {
            for (pg, config) in &self.pgs.0 {
                if self.map.is_up(config.primary) {
                    assert_eq!(self.map.acting_primary(*pg), Some(config.primary), "{pg}");
                }
            }
        }
    }

    #[test]
    fn pgs_stay_where_their_data_is() {
        let mut c = Cluster::new();
        let homes = c.homes();
        assert_eq!(homes.len(), c.map.pgs().count());
        c.check();
        for id in [0, 3] {
            c.change(|_, inc| {
                let _ = inc.new_weight.insert(id, 0);
            });
            c.check();
        }
        assert_eq!(c.homes(), homes);
        assert!(!c.map.pg_temp.is_empty());
        c.change(|_, inc| inc.new_weight.extend([(0, 0x10000), (3, 0x10000)]));
        c.check();
        assert_eq!(c.homes(), homes);
        assert!(c.map.pg_temp.is_empty(), "back where CRUSH wants them");
    }

    #[test]
    fn a_home_that_is_down_stays_the_home() {
        let mut c = Cluster::new();
        let homes = c.homes();
        let up = types::osdmap::osd_state::UP;
        c.change(|_, inc| {
            let _ = inc.new_state.insert(1, up);
        });
        assert!(!c.map.is_up(1));
        c.change(|_, inc| {
            let _ = inc.new_weight.insert(1, 0);
        });
        assert_eq!(c.homes(), homes);
        assert!(homes.iter().any(|(_, o)| *o == 1));
        for (pg, _) in homes.iter().filter(|(_, o)| **o == 1) {
            assert!(
                (0..6).filter(|o| *o != 1).all(|o| !c.pgs.serves(*pg, o)),
                "nobody else serves {pg}"
            );
        }
    }

    #[test]
    fn a_split_starts_at_its_ancestor() {
        let mut c = Cluster::new();
        let (id, before) = c.map.pools.iter().map(|(id, p)| (*id, p.clone())).next().unwrap();
        let old_num = before.pg_num;
        c.change(|map, inc| {
            let pool: &mut PgPool = inc.pool_mut(map, id).unwrap();
            (pool.pg_num, pool.pgp_num) = (old_num * 2, old_num * 2);
        });
        c.check();
        for seed in old_num..old_num * 2 {
            let ancestor = PgId::new(id, before.raw_to_pg(seed));
            assert_eq!(
                c.pgs.get(PgId::new(id, seed)).unwrap().primary,
                c.pgs.get(ancestor).unwrap().primary
            );
        }
    }

    #[test]
    fn rows_come_back_and_go_with_the_pool() {
        let mut c = Cluster {
            map: lab(),
            pgs: PgConfigs::default(),
        };
        let mut rows = BTreeMap::new();
        let mut keep = |ops: Vec<TxnOp>| {
            for op in ops {
                match op {
                    TxnOp::Put { key, value, .. } => drop(rows.insert(key, value)),
                    TxnOp::Delete { key } => drop(rows.remove(&key)),
                }
            }
            let mut back = PgConfigs::default();
            for (key, value) in &rows {
                back.take_row(key, Some(value)).unwrap();
            }
            back
        };
        let ops = c.change(|_, _| {});
        assert_eq!(keep(ops), c.pgs);
        let id = *c.map.pools.keys().next().unwrap();
        let ops = c.change(|_, inc| {
            let _ = inc.old_pools.insert(id);
        });
        assert_eq!(keep(ops), c.pgs);
        assert!(c.pgs.0.keys().all(|pg| pg.pool != id));
    }
}
