//! Scrubs that operators ask for: a wish per PG, which its primary sees, carries out and takes away.
//!
//! Invariants: at most [`WISHES_MAX`] wishes; a newer one takes the place of an older one of the same PG, and is not taken
//! away with it (its number is another). All of a pool are one row. Not here: when scrubs begin by themselves (`osd`).

use crate::keys;
use crate::rows::Write;
use denc::Encode;
use std::collections::BTreeMap;
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
pub(super) fn row_of(all: &Wishes, pool: PoolId) -> Write {
    let rows: Vec<(u32, ScrubWish)> = all.range(of_pool(pool)).map(|(pg, w)| (pg.seed, *w)).collect();
    let key = format!("{}{pool}", keys::SCRUB);
    match rows.is_empty() {
        true => Write::delete(key),
        false => Write::put(key, rows.to_bytes()),
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
