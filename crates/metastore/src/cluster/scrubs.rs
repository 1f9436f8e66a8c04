//! Scrubs that operators ask for: a wish per PG, which its primary sees, carries out and takes away.
//!
//! Invariants: at most [`WISHES_MAX`] wishes; a newer one takes the place of an older one of the same PG, and is not taken
//! away with it (its number is another). All of a pool are one row. Not here: when scrubs begin by themselves (`osd`).

use super::changes::{Change, Changes};
use super::handle::ClusterHandle;
use super::keys;
use super::state::ClusterState;
use crate::kv::{Result, TxnOp};
use denc::Encode;
use std::collections::{BTreeMap, BTreeSet};
use types::{PgId, PoolId};

/// PGs that wait to be scrubbed because somebody asked for it.
pub const WISHES_MAX: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubWish {
    pub deep: bool,
    pub repair: bool,
    /// Of the commit that made it.
    pub number: u64,
}
denc::envelope_denc!(ScrubWish, 1, 1, { deep, repair, number });

type Wishes = BTreeMap<PgId, ScrubWish>;

fn of_pool(pool: PoolId) -> std::ops::RangeInclusive<PgId> {
    PgId::new(pool, 0)..=PgId::new(pool, u32::MAX)
}

/// What the store shall say of a pool.
pub(super) fn row_of(all: &Wishes, pool: PoolId) -> TxnOp {
    let rows: Vec<(u32, ScrubWish)> = all.range(of_pool(pool)).map(|(pg, w)| (pg.seed, *w)).collect();
    let key = format!("{}{pool}", keys::SCRUB);
    match rows.is_empty() {
        true => TxnOp::delete(key),
        false => TxnOp::put(key, rows.to_bytes()),
    }
}

/// Takes a row in, in place of what it said before.
pub(super) fn take_row(all: &mut Wishes, pool: PoolId, rows: Vec<(u32, ScrubWish)>) {
    let old: Vec<PgId> = all.range(of_pool(pool)).map(|(pg, _)| *pg).collect();
    for pg in old {
        all.remove(&pg);
    }
    all.extend(rows.into_iter().map(|(seed, w)| (PgId::new(pool, seed), w)));
}

impl ClusterState {
    /// Changes that make these PGs be scrubbed; None: too many wait already. Wishes for PGs that are gone go with it.
    pub fn wish_scrubs(&self, pgs: &[PgId], deep: bool, repair: bool) -> Option<Changes> {
        let gone = |pg: &PgId| self.osdmap.pool(pg.pool).is_none_or(|p| pg.seed >= p.pg_num);
        let wish = ScrubWish {
            deep,
            repair,
            number: self.version + 1,
        };
        let mut pools: BTreeMap<PoolId, Vec<(u32, Option<ScrubWish>)>> = BTreeMap::new();
        for pg in self.scrubs.keys().filter(|pg| gone(pg)) {
            pools.entry(pg.pool).or_default().push((pg.seed, None));
        }
        for pg in pgs {
            pools.entry(pg.pool).or_default().push((pg.seed, Some(wish)));
        }
        let mut waiting: BTreeSet<PgId> = self.scrubs.keys().filter(|pg| !gone(pg)).copied().collect();
        waiting.extend(pgs);
        let mut changes = Changes::none();
        for (pool, wishes) in pools {
            changes.push(Change::Scrubs { pool, wishes });
        }
        (waiting.len() <= WISHES_MAX).then_some(changes)
    }
}

impl ClusterHandle {
    /// A wish was carried out.
    pub async fn scrub_done(&self, pg: PgId, number: u64) -> Result<()> {
        let decide = |state: &ClusterState| {
            let changes = match state.scrubs.get(&pg) {
                Some(w) if w.number == number => Changes::one(Change::Scrubs {
                    pool: pg.pool,
                    wishes: vec![(pg.seed, None)],
                }),
                _ => Changes::none(),
            };
            (changes, ())
        };
        self.commit(decide).await.map(drop)
    }
}
