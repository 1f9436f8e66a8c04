//! A merge of two PGs, on the disk of one OSD that holds both (docs/internals/merging.md).
//!
//! No object moves: those of both are one stretch of the store's order. What is joined are logs (a client sends again what it
//! has no answer for), removed snapshots and statistics.
//!
//! Every OSD that was in sync with both does the same by itself when it learns of the merge, at once or years later, and
//! comes to the same log: the n-th newest entries of both alternate, under versions that count back from one that is above all
//! of both, in the epoch of the merge. So it does not matter how far back each of them remembers.
//!
//! Invariants: a copy is joined only where both are exactly what the merge was made of; any other one counts as incomplete
//! from then on. The metadata goes last, with the end of the old log, in one transaction: what a crash has cut short is done
//! again.

use crate::backend::steps::clear_log;
use crate::pg::LoadError;
use crate::pool::{PgJoined, PoolView};
use crate::state::log::{LOG_KEPT, LogEntry};
use crate::state::meta::PgMeta;
use crate::state::range::HashRange;
use crate::state::stamps::ScrubStamps;
use crate::state::stats::PgStats;
use crate::store::ObjectStore;
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::BTreeSet;
use types::{EVersion, Epoch, Op, OsdId, PgId, SPgId, Transaction};

/// Log entries written in one transaction.
const JOIN_OPS: usize = 256;

/// A PG of a merge as it is in this store.
struct Side {
    meta: PgMeta,
    /// Entries of its own objects, ascending.
    log: Vec<LogEntry>,
}

impl Side {
    fn head(&self) -> EVersion {
        self.log.last().map_or(EVersion::default(), |e| e.version)
    }

    fn is(&self, head: EVersion, life: Epoch) -> bool {
        self.meta.complete && self.meta.dirty.is_empty() && self.meta.life == life && self.head() == head
    }

    /// The sums as of its newest entry; None: they are not those of the objects that it has.
    fn stats(&self, seed: u32, pg_num: u32) -> Option<PgStats> {
        let counted = HashRange::of(seed, self.meta.pg_num) == HashRange::of(seed, pg_num);
        if self.meta.pg_num == 0 || !counted {
            return None;
        }
        let mut stats = self.meta.stats;
        for e in self
            .log
            .iter()
            .filter(|e| e.version.version > self.meta.stats.version)
        {
            stats.add(&e.delta);
        }
        Some(stats)
    }
}

/// Brings what this store has of a PG in step with the PG's present life, before anybody looks at it: carries out a merge
/// that was not carried out here yet, and gives up a copy of an earlier PG of this id.
pub fn bring_to_life(
    id: SPgId,
    pool: &PoolView,
    me: OsdId,
    store: &mut dyn ObjectStore,
) -> Result<(), LoadError> {
    let Some(life) = pool.lives.get(&id.pg.seed) else {
        return Ok(());
    };
    let Some(meta) = read_meta(id, store)? else {
        return Ok(());
    };
    // One that is incomplete is filled in any case, and says of itself that it is.
    if meta.life >= life.epoch || !meta.complete {
        return Ok(());
    }
    let Some(joined) = &life.joined else {
        tracing::info!("pg {id}: what is here is of an earlier one of this id: given up");
        return submit(id, vec![Op::RemoveCollection], store);
    };
    let source = SPgId {
        pg: PgId::new(id.pg.pool, joined.source),
        shard: id.shard,
    };
    let sides = match (
        side(id, joined, life.epoch, store)?,
        side(source, joined, life.epoch, store)?,
    ) {
        (Some(t), Some(s))
            if t.is(joined.target_head, joined.target_life)
                && s.is(joined.source_head, joined.source_life)
                && joined.members.contains(&me) =>
        {
            Some((t, s))
        }
        _ => None,
    };
    match sides {
        Some((target, source)) => join(id, joined, life.epoch, target, source, store),
        None => {
            tracing::info!(
                "pg {id}: pg {source} was merged into it while this copy was behind: it is filled anew"
            );
            let behind = PgMeta {
                complete: false,
                dirty: Vec::new(),
                life: life.epoch,
                ..meta
            };
            let [remove, create] = clear_log();
            let meta = behind.to_bytes();
            submit(id, vec![remove, create, Op::SetMeta { meta }], store)
        }
    }
}

/// Whether a copy with this metadata needs nothing any more of PGs that were merged into it before this life.
pub fn is_of_life(meta: &Bytes, life: Epoch) -> bool {
    PgMeta::from_bytes(meta).is_ok_and(|m| !m.complete || m.life >= life)
}

fn read_meta(pg: SPgId, store: &mut dyn ObjectStore) -> Result<Option<PgMeta>, LoadError> {
    let raw = store.meta(pg).map_err(|source| LoadError::Read { pg, source })?;
    let decode = |source| LoadError::Decode {
        pg,
        what: "metadata",
        source,
    };
    raw.map(|raw| PgMeta::from_bytes(&raw))
        .transpose()
        .map_err(decode)
}

fn side(
    pg: SPgId,
    joined: &PgJoined,
    epoch: Epoch,
    store: &mut dyn ObjectStore,
) -> Result<Option<Side>, LoadError> {
    let Some(meta) = read_meta(pg, store)? else {
        return Ok(None);
    };
    let own = HashRange::of(pg.pg.seed, joined.source + 1);
    let mut log = Vec::new();
    for (version, raw) in store
        .log_entries(pg)
        .map_err(|source| LoadError::Read { pg, source })?
    {
        let entry = LogEntry::from_bytes(&raw).map_err(|source| LoadError::Decode {
            pg,
            what: "log entry",
            source,
        })?;
        // Those of the merge's own epoch are of an attempt that was cut short.
        if version.epoch < epoch && own.contains(entry.object.hash) {
            log.push(entry);
        }
    }
    Ok(Some(Side { meta, log }))
}

fn submit(pg: SPgId, ops: Vec<Op>, store: &mut dyn ObjectStore) -> Result<(), LoadError> {
    let mut txn = Transaction::new(pg);
    txn.ops = ops;
    let done = store.submit(&txn).map(drop);
    done.map_err(|errno| LoadError::Create { pg, errno })
}

fn join(
    id: SPgId,
    joined: &PgJoined,
    epoch: Epoch,
    target: Side,
    source: Side,
    store: &mut dyn ObjectStore,
) -> Result<(), LoadError> {
    let meta = joined_meta(id, joined, epoch, &target, &source);
    let there = store
        .log_entries(id)
        .map_err(|source| LoadError::Read { pg: id, source })?;
    let there: BTreeSet<EVersion> = there.into_iter().map(|(v, _)| v).collect();
    tracing::info!(
        "pg {id}: takes pg {}.{:x} in, {} and {} log entries",
        id.pg.pool,
        joined.source,
        target.log.len(),
        source.log.len()
    );
    let mut ops = Vec::new();
    for entry in in_turn(joined, epoch, target.log, source.log) {
        if there.contains(&entry.version) {
            continue;
        }
        ops.push(Op::LogAppend {
            version: entry.version,
            entry: entry.to_bytes(),
        });
        if ops.len() == JOIN_OPS {
            submit(id, std::mem::take(&mut ops), store)?;
        }
    }
    ops.push(Op::LogTrim {
        to: EVersion::new(epoch, 0),
    });
    ops.push(Op::SetMeta {
        meta: meta.to_bytes(),
    });
    submit(id, ops, store)
}

/// Above all versions of both, and of what is made of them.
fn newest(joined: &PgJoined) -> u64 {
    joined.source_head.version.max(joined.target_head.version) + 2 * LOG_KEPT as u64
}

/// The newest of both, under their new versions, ascending.
fn in_turn(joined: &PgJoined, epoch: Epoch, target: Vec<LogEntry>, source: Vec<LogEntry>) -> Vec<LogEntry> {
    let newest = newest(joined);
    let numbered = |log: Vec<LogEntry>, odd: u64| {
        let back = (0..LOG_KEPT as u64).map(move |n| newest - 2 * n - odd);
        log.into_iter().rev().zip(back)
    };
    let mut all: Vec<LogEntry> = numbered(target, 0)
        .chain(numbered(source, 1))
        .map(|(entry, version)| LogEntry {
            version: EVersion::new(epoch, version),
            // What is behind it in this log is not what was behind it when it was written.
            ranges: None,
            ..entry
        })
        .collect();
    all.sort_unstable_by_key(|e| e.version);
    all
}

fn joined_meta(id: SPgId, joined: &PgJoined, epoch: Epoch, target: &Side, source: &Side) -> PgMeta {
    let (t, s) = (&target.meta, &source.meta);
    let pg_num = joined.source + 1;
    let sums = target
        .stats(id.pg.seed, pg_num)
        .zip(source.stats(joined.source, pg_num));
    let counted = sums.is_some();
    let (a, b) = sums.unwrap_or((t.stats, s.stats));
    let users = |side: &Side| {
        let of_log = side.log.last().map_or(0, |e| e.last_user_version);
        side.meta.stats.user_version.max(of_log)
    };
    let mut removed = t.removed.clone();
    removed.union(&s.removed);
    PgMeta {
        stats: PgStats {
            objects: a.objects + b.objects,
            bytes: a.bytes + b.bytes,
            clones: a.clones + b.clones,
            whiteouts: a.whiteouts + b.whiteouts,
            omap_objects: a.omap_objects + b.omap_objects,
            reads: a.reads + b.reads,
            read_bytes: a.read_bytes + b.read_bytes,
            writes: a.writes + b.writes,
            write_bytes: a.write_bytes + b.write_bytes,
            version: newest(joined).max(t.stats.version).max(s.stats.version),
            user_version: users(target).max(users(source)),
        },
        removed,
        // Of a snapshot that one of them has not trimmed there may be clones.
        trimmed: t.trimmed.and(&s.trimmed),
        // 0: the PG counts what it has when it is loaded.
        pg_num: if counted { joined.source } else { 0 },
        complete: true,
        dirty: Vec::new(),
        scrub: older(t.scrub, s.scrub),
        life: epoch,
    }
}

/// What holds for the objects of both.
fn older(a: ScrubStamps, b: ScrubStamps) -> ScrubStamps {
    ScrubStamps {
        version: EVersion::default(),
        at: a.at.min(b.at),
        deep_version: EVersion::default(),
        deep_at: a.deep_at.min(b.deep_at),
        clean_at: a.clean_at.min(b.clean_at),
        shallow_errors: a.shallow_errors.saturating_add(b.shallow_errors),
        deep_errors: a.deep_errors.saturating_add(b.deep_errors),
    }
}
