//! Decisions of OSDs and monitors alike: which proposals of primaries are carried out, which clients an entry of the blocklist
//! fences, which scrubs wait. (Of OSDs that come and go: [`crate::boot`].)
//!
//! Each is a function of a snapshot that gives changes; empty ones where there is nothing to change.

use crate::changes::{Change, Changes};
use crate::fences::{self, Instance};
use crate::pgs::{MergeRefusal, PgMerge, PgProposal, Refusal};
use crate::scrubs::{ScrubWish, WISHES_MAX};
use crate::state::ClusterState;
use std::collections::{BTreeMap, BTreeSet};
use types::{EntityAddr, PgId, PoolId, Utime};

impl ClusterState {
    /// Carries out those of `batch` (one of [`PgProposal::batches`]) that are not refused; and what becomes of each.
    pub fn accept(&self, batch: &[PgProposal]) -> (Changes, Vec<(PgId, Option<Refusal>)>) {
        let fate = |p: &PgProposal| (p.pg, self.pgs.refuses(&self.osdmap, p));
        let fates: Vec<_> = batch.iter().map(fate).collect();
        let good = batch
            .iter()
            .zip(&fates)
            .filter(|(_, (_, refused))| refused.is_none());
        let changes = Changes {
            pgs: good.map(|(p, _)| p.clone()).collect(),
            ..Changes::none()
        };
        (changes, fates)
    }

    /// Merges two PGs, or says why not.
    pub fn accept_merge(&self, merge: &PgMerge, now: Utime) -> (Changes, Option<MergeRefusal>) {
        if let Some(refusal) = self.pgs.refuses_merge(&self.osdmap, merge) {
            return (Changes::none(), Some(refusal));
        }
        let mut changes = Changes {
            merges: vec![merge.clone()],
            ..Changes::none()
        };
        let map = self.osdmap.clone();
        merge.change(&map, changes.inc(self, now));
        (changes, None)
    }

    /// What `entry` fences of these that is not known yet.
    pub fn fence_by(&self, entry: EntityAddr, seen: &[Instance]) -> Option<Change> {
        let known = self.fences.get(&entry.to_string());
        let is_new = |id: &u64| known.is_none_or(|f| f.ids.binary_search(id).is_err());
        let room = fences::has_room(&self.fences, known);
        let hit = seen
            .iter()
            .filter(|i| i.global_id != 0 && entry.fences(&i.addr, i.from));
        let ids: BTreeSet<u64> = hit.map(|i| i.global_id).filter(is_new).collect();
        (room && !ids.is_empty()).then(|| Change::Fence {
            entry,
            ids: ids.into_iter().collect(),
        })
    }

    /// What the entries of the map fence of these that is not known yet; in a new epoch, with which everybody hears of it.
    pub fn fence(&self, seen: &[Instance], now: Utime) -> Changes {
        let mut by_entry: BTreeMap<EntityAddr, Vec<Instance>> = BTreeMap::new();
        for i in seen {
            if let Some(entry) = self.osdmap.fencing(&i.addr, i.from) {
                by_entry.entry(entry).or_default().push(*i);
            }
        }
        let mut changes = Changes::none();
        for (entry, hit) in by_entry {
            changes.list.extend(self.fence_by(entry, &hit));
        }
        if !changes.is_empty() {
            changes.inc(self, now);
        }
        changes
    }

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
    /// A wish was carried out.
    pub fn scrub_done(&self, pg: PgId, number: u64) -> Changes {
        match self.scrubs.get(&pg) {
            Some(w) if w.number == number => Changes::one(Change::Scrubs {
                pool: pg.pool,
                wishes: vec![(pg.seed, None)],
            }),
            _ => Changes::none(),
        }
    }
}
