//! Removes what is left of deleted pools, and of PGs that are whole without this OSD: objects in small steps, then the
//! collections.
//!
//! Progress needs no record of its own: what still exists in the store of a pool that the map does not have, or of
//! a PG in which this OSD has no part, is what is left to do, also after a restart.
//!
//! Invariants: a PG's copy is removed only while its configuration is whole elsewhere; before the first object goes, its
//! log and metadata go, so that a copy that was removed in part is never taken for a whole one.

use crate::placement::Placement;
use crate::store_view::StoreView;
use pg::{ObjectReads, ObjectStore};
use std::collections::BTreeSet;
use types::{HObject, ObjectId, Op, PoolId, SPgId, Transaction};

/// Objects removed in one step; a step runs once a second and after that as long as the pool lasts.
const OBJECTS_PER_STEP: usize = 512;

#[derive(Debug, Default)]
pub struct Reaper {
    pools: BTreeSet<PoolId>,
    strays: BTreeSet<SPgId>,
}

impl Reaper {
    /// Looks for collections of pools that are gone.
    pub fn scan(&mut self, store: &StoreView, placement: &Placement, kept: Option<PoolId>) {
        let gone = |c: &SPgId| placement.pool(c.pg.pool).is_none() && Some(c.pg.pool) != kept;
        self.pools = store
            .engine
            .collections()
            .iter()
            .filter(|c| gone(c))
            .map(|c| c.pg.pool)
            .collect();
        let collections = store.engine.collections().into_iter();
        let left = |c: &SPgId| placement.is_stray(*c) || placement.merged_into(*c).is_some();
        self.strays = collections.filter(left).collect();
    }

    /// One bounded piece of work.
    pub fn step(&mut self, store: &mut StoreView, placement: &Placement) {
        let Some(pool) = self.pools.first().copied() else {
            return self.step_stray(store, placement);
        };
        if placement.pool(pool).is_some() {
            self.pools.remove(&pool);
            return;
        }
        if let Err(e) = Self::remove_some(store, pool) {
            tracing::warn!("removing pool {pool}: {e}");
        }
        if !store.engine.collections().iter().any(|c| c.pg.pool == pool) {
            tracing::info!("pool {pool} removed");
            self.pools.remove(&pool);
        }
    }

    fn step_stray(&mut self, store: &mut StoreView, placement: &Placement) {
        let Some(stray) = self.strays.first().copied() else {
            return;
        };
        let pg_num = placement.pool(stray.pg.pool).map_or(0, |p| p.pg_num);
        let done = match placement.merged_into(stray) {
            Some(target) => Self::remove_merged(store, placement, stray, target),
            None if placement.is_stray(stray) => {
                Self::remove_stray(store, stray, |hash| pg::seed_of(hash, pg_num) == stray.pg.seed)
            }
            None => Ok(true),
        };
        match done {
            Ok(false) => {}
            Ok(true) => drop(self.strays.remove(&stray)),
            Err(e) => {
                tracing::warn!("removing the copy of pg {stray}: {e}");
                self.strays.remove(&stray);
            }
        }
    }

    /// What is left of a PG that was merged: its memory, once the target has that; its objects, where the target has no copy.
    fn remove_merged(
        store: &mut StoreView,
        placement: &Placement,
        stray: SPgId,
        target: SPgId,
    ) -> Result<bool, String> {
        if placement.is_stray(target) {
            let bits = 32 - stray.pg.seed.leading_zeros();
            let low = |hash: u32| u64::from(hash) & ((1u64 << bits) - 1);
            return Self::remove_stray(store, stray, |hash| low(hash) == u64::from(stray.pg.seed));
        }
        let meta = store.meta(target).map_err(|e| e.to_string())?;
        let life = placement
            .pool(target.pg.pool)
            .map_or(0, |p| p.life_of(target.pg.seed));
        let has_part = placement.group(target).is_some();
        if has_part && meta.is_none_or(|m| pg::is_of_life(&m, life)) {
            let mut txn = Transaction::new(stray);
            txn.ops.push(Op::RemoveCollection);
            store.submit(&txn).map_err(|e| e.to_string())?;
        }
        Ok(true)
    }

    /// True if nothing is left of it. `its`: whether an object of this hash was.
    fn remove_stray(store: &mut StoreView, stray: SPgId, its: impl Fn(u32) -> bool) -> Result<bool, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let mut txn = Transaction::new(stray);
        let speaks = store.meta(stray).map_err(|e| text(&e))?.is_some()
            || !store.log_entries(stray).map_err(|e| text(&e))?.is_empty();
        if speaks {
            txn.ops.extend([Op::RemoveCollection, Op::CreateCollection]);
            return store.submit(&txn).map(|_| false).map_err(|e| text(&e));
        }
        // A PG's objects are those of one stretch of the order, which begins at the hash that is its seed; and others, of what
        // repairs may have left and of what was set aside.
        let from = ObjectId {
            shard: stray.shard,
            object: HObject {
                pool: stray.pg.pool,
                hash: stray.pg.seed,
                ..HObject::min()
            },
        };
        for from in [Some(pg::first_scratch(stray)), pg::first_aside(stray), Some(from)]
            .into_iter()
            .flatten()
        {
            let ours =
                |o: &ObjectId| o.shard == from.shard && o.object.pool == stray.pg.pool && its(o.object.hash);
            let room = OBJECTS_PER_STEP - txn.ops.len();
            let objects = store.list(&from, room).map_err(|e| text(&e))?;
            txn.ops
                .extend(objects.into_iter().take_while(ours).map(|oid| Op::Remove { oid }));
        }
        let done = txn.ops.is_empty();
        if done {
            txn.ops.push(Op::RemoveCollection);
            tracing::info!("pg {stray}: its copy here was removed, it is whole elsewhere");
        }
        store.submit(&txn).map(|_| done).map_err(|e| text(&e))
    }

    fn remove_some(store: &mut StoreView, pool: PoolId) -> Result<(), String> {
        let of_pool = |c: &&SPgId| c.pg.pool == pool;
        let collections = store.engine.collections();
        let Some(collection) = collections.iter().find(of_pool).copied() else {
            return Ok(());
        };
        let from = ObjectId {
            shard: i8::MIN,
            object: HObject {
                pool,
                ..HObject::min()
            },
        };
        let objects = store.list(&from, OBJECTS_PER_STEP).map_err(|e| e.to_string())?;
        let mut txn = Transaction::new(collection);
        txn.ops.extend(
            objects
                .into_iter()
                .filter(|o| o.object.pool == pool)
                .map(|oid| Op::Remove { oid }),
        );
        if txn.ops.is_empty() {
            for collection in collections.iter().filter(of_pool) {
                let mut txn = Transaction::new(*collection);
                txn.ops.push(Op::RemoveCollection);
                store.submit(&txn).map_err(|e| e.to_string())?;
            }
            return Ok(());
        }
        store.submit(&txn).map(drop).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::sync::Arc;
    use store::{Options, Store};
    use types::{NOSNAP, PgId};

    /// A store, and a PG in it: the one of the odd hashes of two.
    fn with_stray(dir: &tempfile::TempDir, shard: i8, objects: &[(i8, u32)]) -> (StoreView, SPgId) {
        let options = Options {
            log_bytes: 16 << 20,
            grow_bytes: 8 << 20,
            host_reserve_bytes: 0,
            ..Options::default()
        };
        let path = dir.path().join("osd");
        Store::mkfs(&path, &options).unwrap();
        let mut store = StoreView::new(Store::open(&path, &options, Arc::new(|| ())).unwrap());
        let stray = SPgId {
            pg: PgId::new(3, 1),
            shard,
        };
        let mut txn = Transaction::new(stray);
        txn.ops.push(Op::CreateCollection);
        for (shard, hash) in objects {
            let oid = object(*shard, *hash);
            txn.ops.push(Op::Touch { oid });
        }
        store.submit(&txn).unwrap();
        (store, stray)
    }

    /// What is left when it is removed.
    fn left(store: &mut StoreView, stray: SPgId) -> Vec<ObjectId> {
        let mut steps = 0;
        while !Reaper::remove_stray(store, stray, |hash| hash & 1 == 1).unwrap() {
            steps += 1;
            assert!(steps < 10);
        }
        assert!(!store.has_collection(stray).unwrap());
        store.list(&object(i8::MIN, 0), 10).unwrap()
    }

    fn object(shard: i8, hash: u32) -> ObjectId {
        let none = Bytes::new();
        let object = HObject::new(3, hash, none.clone(), none, "a".into(), NOSNAP);
        ObjectId { shard, object }
    }

    #[test]
    fn a_copy_takes_along_what_repairs_left_of_it_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = pg::first_scratch(SPgId::replicated(PgId::new(3, 1))).shard;
        let objects = [(-1, 0), (-1, 1), (-1, 3), (scratch, 0), (scratch, 3)];
        let (mut store, stray) = with_stray(&dir, -1, &objects);
        assert_eq!(left(&mut store, stray), [object(scratch, 0), object(-1, 0)]);
    }

    #[test]
    fn a_shard_takes_along_what_it_has_set_aside_and_leaves_other_shards_alone() {
        let dir = tempfile::tempdir().unwrap();
        let shard = |shard| SPgId {
            pg: PgId::new(3, 1),
            shard,
        };
        let aside = |of| pg::first_aside(shard(of)).unwrap().shard;
        assert!(pg::first_aside(shard(-1)).is_none());
        let objects = [
            (2, 1),
            (2, 3),
            (2, 0),
            (1, 1),
            (aside(2), 1),
            (aside(2), 0),
            (aside(1), 1),
        ];
        let (mut store, stray) = with_stray(&dir, 2, &objects);
        assert_eq!(
            left(&mut store, stray),
            [
                object(aside(1), 1),
                object(aside(2), 0),
                object(1, 1),
                object(2, 0)
            ]
        );
    }
}
