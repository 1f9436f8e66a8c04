//! Merges of PGs that this OSD leads (docs/internals/merging.md): when the pool wants fewer PGs, its last one and the one that it
//! becomes part of are brought to rest, and the merge is committed.
//!
//! Each OSD that holds both joins its own copies when it sees that ([`pg::bring_to_life`]).
//!
//! Bound: one merge of a pool at a time, and one commit of this OSD.

use crate::event::StateReply;
use crate::osd::Osd;
use cluster::PgMerge;
use pg::{Group, Input};
use std::time::Duration;
use types::{EVersion, PgId, SPgId};

/// Two that did not come to rest together are not asked again before.
const AGAIN: Duration = Duration::from_secs(3);

impl Osd {
    /// Asks those to come to rest that are to be merged.
    pub fn begin_merges(&mut self) {
        if !self.serving() || self.merges.committing {
            return;
        }
        let map = self.placement.state.osdmap.clone();
        let now = self.clock.monotonic();
        for (id, pool) in &map.pools {
            if pool.pg_num_target >= pool.pg_num || pool.is_erasure() || pool.pg_num < 2 {
                self.merges.asked.remove(id);
                continue;
            }
            let source = pool.pg_num - 1;
            let asked = self.merges.asked.get(id);
            if asked.is_some_and(|(seed, at)| *seed == source && now < *at + AGAIN) {
                continue;
            }
            let of = |seed| SPgId::replicated(PgId::new(*id, seed));
            let (source_pg, target_pg) = (of(source), of(pool.merge_target(source)));
            if self.may_merge(source_pg, target_pg) {
                self.merges.asked.insert(*id, (source, now));
                // What one of them said of an earlier attempt would be taken for its answer to this one.
                for pg in [source_pg, target_pg] {
                    self.merges.at_rest.remove(&pg);
                }
                for pg in [source_pg, target_pg] {
                    self.drive(pg, Input::Merge);
                }
            }
        }
    }

    /// This OSD leads both, and the same OSDs have all of both.
    fn may_merge(&self, source: SPgId, target: SPgId) -> bool {
        let (Some(s), Some(t)) = (self.led(source), self.led(target)) else {
            return false;
        };
        let (a, b) = (s.group(), t.group());
        let alike = a.in_sync == b.in_sync && a.up == b.up;
        let clean = |g: &Group| g.is_whole() && g.in_sync == g.up;
        alike && clean(a) && clean(b) && s.is_active() && t.is_active()
    }

    /// A PG executes nothing until its configuration is another one.
    pub fn came_to_rest(&mut self, pg: SPgId, group: Group, head: EVersion) {
        self.merges.at_rest.insert(pg, (group, head));
        let Some(pool) = self.placement.state.osdmap.pool(pg.pg.pool) else {
            return;
        };
        let Some(source) = pool.pg_num.checked_sub(1).filter(|s| *s > 0) else {
            return;
        };
        let of = |seed| SPgId::replicated(PgId::new(pg.pg.pool, seed));
        let (source, target) = (of(source), of(pool.merge_target(source)));
        if self.merges.committing || ![source, target].contains(&pg) {
            return;
        }
        let at_rest = &mut self.merges.at_rest;
        if !at_rest.contains_key(&source) || !at_rest.contains_key(&target) {
            return;
        }
        if let (Some(s), Some(t)) = (at_rest.remove(&source), at_rest.remove(&target))
            && let Some(merge) = self.merge_of((source, s), (target, t))
        {
            self.commit_merge(merge);
        }
    }

    fn merge_of(
        &self,
        (source, (source_group, source_head)): (SPgId, (Group, EVersion)),
        (target, (target_group, target_head)): (SPgId, (Group, EVersion)),
    ) -> Option<PgMerge> {
        // What the two stand on, which may be another one by now: then it is refused.
        let expected = |pg: SPgId, group: &Group| {
            let config = self.placement.state.pgs.get(pg.pg)?;
            let same = config.interval == group.interval && config.in_sync == group.in_sync;
            same.then(|| config.clone())
        };
        Some(PgMerge {
            source: source.pg,
            target: target.pg,
            expect_source: expected(source, &source_group)?,
            expect_target: expected(target, &target_group)?,
            source_head,
            target_head,
        })
    }

    fn commit_merge(&mut self, merge: PgMerge) {
        self.merges.committing = true;
        let (cluster, replies) = (self.cluster.clone(), self.state_replies.clone());
        io::task::spawn_local(async move {
            let (source, target) = (merge.source, merge.target);
            match cluster.merge(&merge).await {
                Ok(None) => tracing::info!("pg {target}: pg {source} is merged into it"),
                Ok(Some(refusal)) => tracing::info!("pg {source} is not merged into {target} now: {refusal}"),
                Err(e) => tracing::warn!("pg {source}: whether it is merged into {target} is not known: {e}"),
            }
            let _ = replies.send(StateReply::Merged);
        });
    }

    pub fn merge_committed(&mut self) {
        self.merges.committing = false;
    }
}
