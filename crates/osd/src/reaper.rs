//! Removes what is left of deleted pools: objects in small steps, then the collections.
//!
//! Progress needs no record of its own: what still exists in the store of a pool that the map does not have
//! is what is left to do, also after a restart.

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
}

impl Reaper {
    /// Looks for collections of pools that are gone.
    pub fn scan(&mut self, store: &StoreView, placement: &Placement) {
        let gone = |c: &SPgId| placement.pool(c.pg.pool).is_none();
        self.pools = store
            .engine
            .collections()
            .iter()
            .filter(|c| gone(c))
            .map(|c| c.pg.pool)
            .collect();
    }

    /// One bounded piece of work.
    pub fn step(&mut self, store: &mut StoreView, placement: &Placement) {
        let Some(pool) = self.pools.first().copied() else {
            return;
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
                store.submit(txn).map_err(|e| e.to_string())?;
            }
            return Ok(());
        }
        store.submit(txn).map(drop).map_err(|e| e.to_string())
    }
}
