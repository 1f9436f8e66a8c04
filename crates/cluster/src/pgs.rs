//! Which OSDs hold each placement group's data: the configuration of its replication, kept by consensus
//! (docs/internals/replication.md).
//!
//! CRUSH says where a PG should be (*up*); [`PgConfig`] says where its data *is*. Wherever the two differ the OSD map
//! carries a `pg_temp` entry, so that clients and OSDs follow the data. An OSD serves a PG only if it is named
//! here, so a changed weight, rule or OSD count never shows an empty PG in place of a full one.
//!
//! Beside who is in sync stands in which position ([`PgConfig::acting`]): in a pool of shards the position is the shard, there are as many
//! as the pool has, and an OSD has the one that it joined with as long as it is in sync. [`types::places`] says who should have which.
//!
//! Invariants: every commit that changes the OSD map settles the PGs that it touches in the same transaction
//! ([`settle`]); a configuration changes otherwise only by a proposal of its primary that names the one it replaces
//! ([`propose`]). The primary is always the first of `in_sync`. A set of at least min_size never becomes smaller than that.
//! In a pool of k data shards nobody leaves by settling while fewer than k of a set are up: nothing is written then, so each
//! of them still has what was.
//! An interval is one term of one primary: it is new exactly when the primary is another OSD, has come up again, or
//! asks for a new term by proposing what is.
//!
//! Not here: who proposes what (`pg`), moving data.

mod acting;
mod life;
mod merge;
mod needs;
mod propose;
mod settle;

pub use life::{Joined, Life};
pub use merge::{MergeRefusal, PgMerge, share_places};
pub use propose::{PgProposal, Refusal};

use crate::keys;
use crate::rows::Write;
use crate::{Error, Result};
use denc::{Decode, Encode, Reader, Writer};
use std::collections::BTreeMap;
use types::{Epoch, OsdId, PgId, PoolId};

/// PGs that share one key: the state of a large pool is written in pieces.
const CHUNK: u32 = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgConfig {
    /// Map epoch in which the present primary's term began.
    pub interval: Epoch,
    /// OSDs that hold every acknowledged write, the primary first.
    pub in_sync: Vec<OsdId>,
    pub primary: OsdId,
    /// The positions of those in sync, which last as long as they are: `acting[i]` is who has shard i, None: nobody has.
    /// It follows from the other fields' history, and is no part of what a proposal expects.
    pub acting: Vec<Option<OsdId>>,
    /// Map epoch in which the PG came to be, with its pool or by a split. 0: before that was kept.
    pub created: Epoch,
    /// Which of all the PGs that had this id it is, and what was merged into it last.
    pub life: Life,
}

impl Encode for PgConfig {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.put(&self.interval);
            w.put(&self.in_sync);
            w.put(&self.primary);
            w.put(&self.created);
            acting::encode(&self.acting, &self.in_sync, w);
            w.put(&self.life);
        });
    }
}

impl Decode for PgConfig {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(4, |version, r| {
            let (interval, in_sync, primary) = (r.get()?, r.get::<Vec<OsdId>>()?, r.get()?);
            let created = if version >= 2 { r.get()? } else { 0 };
            let acting = match version >= 3 {
                true => acting::decode(&in_sync, r)?,
                false => acting::in_order(&in_sync),
            };
            let life = if version >= 4 { r.get()? } else { Life::default() };
            Ok(Self {
                interval,
                in_sync,
                primary,
                acting,
                created,
                life,
            })
        })
    }
}

impl PgConfig {
    /// True if a primary that expects `expect` means this one.
    pub fn is_expected(&self, expect: &Self) -> bool {
        let of = |c: &Self| (c.interval, c.primary, c.created);
        of(self) == of(expect) && self.in_sync == expect.in_sync
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgConfigs(BTreeMap<PgId, PgConfig>);

impl PgConfigs {
    pub fn get(&self, pg: PgId) -> Option<&PgConfig> {
        self.0.get(&pg)
    }

    pub fn iter(&self) -> impl Iterator<Item = (PgId, &PgConfig)> {
        self.0.iter().map(|(pg, c)| (*pg, c))
    }

    pub fn of_pool(&self, pool: PoolId) -> impl Iterator<Item = (PgId, &PgConfig)> {
        let all = PgId::new(pool, 0)..=PgId::new(pool, u32::MAX);
        self.0.range(all).map(|(pg, c)| (*pg, c))
    }

    /// True if `osd` is the one that serves `pg`.
    pub fn serves(&self, pg: PgId, osd: OsdId) -> bool {
        self.0.get(&pg).is_some_and(|c| c.primary == osd)
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

    fn op(&self, pool: PoolId, chunk: u32) -> Write {
        let rows = self
            .0
            .range(piece(pool, chunk))
            .map(|(pg, c)| (pg.seed, c.clone()));
        let rows: Vec<(u32, PgConfig)> = rows.collect();
        let key = format!("{}{pool}/{chunk:04x}", keys::PG_CONFIG);
        if rows.is_empty() {
            Write::delete(key)
        } else {
            Write::put(key, rows.to_bytes())
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
mod shard_tests;
#[cfg(test)]
mod tests;
