//! How a shard takes back what not all shards have.
//!
//! A transaction with a log entry first sets aside every object that it will change: as a clone, which shares the data, or as a
//! note that there was none. What is set aside lies in the pool under a shard of its own, which no PG has, at the hash of its
//! object (a PG that is split off finds its own); its name begins with the version of the entry. Nothing else has to be remembered:
//! the names tell what to do.
//!
//! Invariants: every entry that is not known to be durable on all shards of `in_sync` can be undone; entries are undone in the
//! reverse of their order, all behind a version in one transaction, with the log. What all have is let go ([`let_go`]) by the
//! primary's word, in a later transaction.
//!
//! Bound: [`ASIDE_MAX`] objects set aside; where there are more nothing is undone and the shard counts as lost. A primary has so
//! many changes on their way only if it lets nothing go.

use crate::backend::steps::{clear_log, objects_of};
use crate::state::intervals::Intervals;
use crate::state::log::{EntryKind, LogEntry};
use crate::state::meta::PgMeta;
use crate::state::range::HashRange;
use crate::store::{IoError, ObjectStore};
use bytes::{BufMut, BytesMut};
use denc::{Decode, Encode};
use std::collections::BTreeSet;
use types::{EVersion, HObject, ObjectId, Op, SPgId, Transaction};

/// Behind the scratch objects' numbers, before all that PGs have.
const SHARD_BASE: i8 = -64;
/// Epoch, version, what there was.
const PREFIX: usize = 4 + 8 + 1;
const ASIDE_MAX: usize = 4096;
/// Removed by one transaction.
const CLEARED_MAX: usize = 256;
/// Log entries that outlive an undoing: what one transaction takes.
const KEPT_MAX: usize = 1200;

/// What an entry finds of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Was {
    Absent = 0,
    There = 1,
    /// The entry changes no object: what is set aside says only that it can be undone.
    Unchanged = 2,
}

/// What was set aside for an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Aside {
    version: EVersion,
    was: Was,
    oid: ObjectId,
}

impl Aside {
    /// Where it lies.
    fn place(&self) -> ObjectId {
        let o = &self.oid.object;
        let mut name = BytesMut::with_capacity(PREFIX + o.oid.len());
        name.put_u32(self.version.epoch);
        name.put_u64(self.version.version);
        name.put_u8(self.was as u8);
        name.extend_from_slice(&o.oid);
        ObjectId {
            shard: aside_of(self.oid.shard),
            object: HObject {
                oid: name.freeze(),
                ..o.clone()
            },
        }
    }

    /// None: it is none.
    fn at(place: &ObjectId) -> Option<Self> {
        let name = &place.object.oid;
        let prefix = name.get(..PREFIX)?;
        let epoch = u32::from_be_bytes(prefix[..4].try_into().ok()?);
        let version = u64::from_be_bytes(prefix[4..12].try_into().ok()?);
        let was = match prefix[12] {
            0 => Was::Absent,
            1 => Was::There,
            2 => Was::Unchanged,
            _ => return None,
        };
        Some(Self {
            version: EVersion::new(epoch, version),
            was,
            oid: ObjectId {
                shard: place.shard.checked_sub(SHARD_BASE)?,
                object: HObject {
                    oid: name.slice(PREFIX..),
                    ..place.object.clone()
                },
            },
        })
    }

    fn undo(&self) -> Vec<Op> {
        let there = match self.was {
            Was::Unchanged => return vec![Op::Remove { oid: self.place() }],
            Was::Absent => Op::Remove { oid: self.place() },
            Was::There => Op::Rename {
                src: self.place(),
                dst: self.oid.clone(),
            },
        };
        let oid = || self.oid.clone();
        // Whether it is there now depends on what was undone before.
        vec![Op::Touch { oid: oid() }, Op::Remove { oid: oid() }, there]
    }
}

pub(super) fn aside_of(shard: i8) -> i8 {
    SHARD_BASE.saturating_add(shard)
}

/// Puts before the steps of a shard's transaction those that set aside what they change. `exists`: whether there is such an
/// object on the shard now; what one shard has all have.
pub(crate) fn set_aside(
    txn: &mut Transaction,
    exists: &mut dyn FnMut(&ObjectId) -> Result<bool, IoError>,
) -> Result<(), IoError> {
    let appended = txn.ops.iter().find_map(|op| match op {
        Op::LogAppend { version, entry } => Some((*version, entry.clone())),
        _ => None,
    });
    let mut seen = BTreeSet::new();
    let mut asides = Vec::new();
    for oid in txn.ops.iter().flat_map(changed_by) {
        let Some((version, _)) = appended else {
            return Err(IoError(format!("{}: changed without a log entry", oid.object)));
        };
        if seen.insert(oid) {
            let was = if exists(oid)? { Was::There } else { Was::Absent };
            let oid = oid.clone();
            asides.push(Aside { version, was, oid });
        }
    }
    if let (true, Some((version, entry))) = (asides.is_empty(), appended) {
        let undecodable = |e| IoError(format!("{version}: a log entry does not decode: {e}"));
        let entry = LogEntry::from_bytes(&entry).map_err(undecodable)?;
        if entry.kind != EntryKind::Error {
            asides.push(Aside {
                version,
                was: Was::Unchanged,
                oid: ObjectId {
                    shard: txn.collection.shard,
                    object: entry.object,
                },
            });
        }
    }
    let put = |aside: Aside| match (aside.was, aside.place()) {
        (Was::There, dst) => Op::Clone { src: aside.oid, dst },
        (Was::Absent | Was::Unchanged, oid) => Op::Touch { oid },
    };
    let ops: Vec<Op> = asides.into_iter().map(put).collect();
    txn.ops.splice(0..0, ops);
    Ok(())
}

/// The objects that a step changes: not what it only reads.
fn changed_by(op: &Op) -> impl Iterator<Item = &ObjectId> {
    // The source comes first.
    let reads = matches!(op, Op::Clone { .. } | Op::CloneRange { .. });
    objects_of(op).skip(usize::from(reads))
}

/// Where something is set aside in the PG.
fn places(
    id: SPgId,
    range: HashRange,
    max: usize,
    store: &mut dyn ObjectStore,
) -> Result<Vec<ObjectId>, IoError> {
    let shard = aside_of(id.shard);
    let from = ObjectId {
        shard,
        object: range.start_cursor(id.pg.pool).with_snap(0),
    };
    let to = ObjectId {
        shard,
        object: range.end_cursor(id.pg.pool),
    };
    let ours = |o: &ObjectId| {
        o.shard == shard && o.object.pool == id.pg.pool && u64::from(o.object.reversed_hash()) < range.end
    };
    let found = store.list_within(&from, &to, max)?;
    Ok(found.into_iter().take_while(ours).collect())
}

/// All that is set aside in the PG, in no order of versions.
fn list(id: SPgId, range: HashRange, store: &mut dyn ObjectStore) -> Result<Vec<Aside>, IoError> {
    let found = places(id, range, ASIDE_MAX + 1, store)?;
    if found.len() > ASIDE_MAX {
        return Err(IoError(format!(
            "pg {id}: more than {ASIDE_MAX} objects set aside"
        )));
    }
    let bad = |o: &ObjectId| IoError(format!("pg {id}: {}: not a name of what is set aside", o.object));
    found.iter().map(|o| Aside::at(o).ok_or_else(|| bad(o))).collect()
}

/// The first object that a PG of shards may have set aside, for those who remove its part here. None: of copies there are none.
pub fn first_aside(id: SPgId) -> Option<ObjectId> {
    (id.shard >= 0).then(|| ObjectId {
        shard: aside_of(id.shard),
        object: HObject {
            pool: id.pg.pool,
            hash: id.pg.seed,
            ..HObject::min()
        },
    })
}

/// A part of what is set aside, whatever it is, removed; None: there is nothing.
pub(crate) fn clear(
    id: SPgId,
    range: HashRange,
    store: &mut dyn ObjectStore,
) -> Result<Option<Transaction>, IoError> {
    let found = places(id, range, CLEARED_MAX, store)?;
    if found.is_empty() {
        return Ok(None);
    }
    let mut txn = Transaction::new(id);
    txn.ops.extend(found.into_iter().map(|oid| Op::Remove { oid }));
    Ok(Some(txn))
}

/// Of a transaction that lets go what was set aside for entries: the newest of these.
pub(crate) fn lets_go(txn: &Transaction) -> Option<EVersion> {
    let shard = aside_of(txn.collection.shard);
    let removed = txn.ops.iter().filter_map(|op| match op {
        Op::Remove { oid } if oid.shard == shard => Aside::at(oid),
        _ => None,
    });
    removed.map(|a| a.version).max()
}

/// A part of what is set aside for entries before `before`, removed; None: there is nothing.
pub(crate) fn sweep(
    id: SPgId,
    range: HashRange,
    before: EVersion,
    store: &mut dyn ObjectStore,
) -> Result<Option<Transaction>, IoError> {
    let found = places(id, range, ASIDE_MAX + 1, store)?;
    let old = |o: &ObjectId| Aside::at(o).is_some_and(|a| a.version < before);
    let mut txn = Transaction::new(id);
    let steps = found.into_iter().filter(old).take(CLEARED_MAX);
    txn.ops.extend(steps.map(|oid| Op::Remove { oid }));
    Ok((!txn.ops.is_empty()).then_some(txn))
}

/// Steps that let go what was set aside up to and with `to`, at most `max` objects.
pub(crate) fn let_go(
    id: SPgId,
    range: HashRange,
    to: EVersion,
    max: usize,
    store: &mut dyn ObjectStore,
) -> Result<Vec<Op>, IoError> {
    let asides = list(id, range, store)?;
    let old = asides.into_iter().filter(|a| a.version <= to).take(max);
    Ok(old.map(|a| Op::Remove { oid: a.place() }).collect())
}

/// The transaction that undoes every entry behind `to`, with the log and the objects of each. An error: not all of them can be.
///
/// The metadata may speak of what is undone: objects are counted anew, and removed snapshots are trimmed anew.
pub(crate) fn undo(
    id: SPgId,
    range: HashRange,
    to: EVersion,
    store: &mut dyn ObjectStore,
) -> Result<Transaction, IoError> {
    let mut asides = list(id, range, store)?;
    asides.retain(|a| a.version > to);
    asides.sort_by_key(|a| std::cmp::Reverse(a.version));
    let entries = store.log_entries(id)?;
    let kept = entries.partition_point(|(version, _)| *version <= to);
    let undecodable = |e| IoError(format!("pg {id}: a log entry does not decode: {e}"));
    for (version, raw) in &entries[kept..] {
        let entry = LogEntry::from_bytes(raw).map_err(undecodable)?;
        let has = |a: &Aside| a.version == *version;
        // A failure is remembered and has changed nothing.
        if entry.kind != EntryKind::Error && range.contains(entry.object.hash) && !asides.iter().any(has) {
            return Err(IoError(format!(
                "pg {id}: {version} was let go and cannot be undone"
            )));
        }
    }
    let mut txn = Transaction::new(id);
    asides.iter().for_each(|a| txn.ops.extend(a.undo()));
    let mut meta = match store.meta(id)? {
        Some(raw) => PgMeta::from_bytes(&raw)
            .map_err(|e| IoError(format!("pg {id}: metadata does not decode: {e}")))?,
        None => PgMeta::default(),
    };
    meta.pg_num = 0;
    meta.stats.version = to.version;
    meta.trimmed = Intervals::default();
    txn.ops.extend(clear_log());
    let log = entries.into_iter().take(kept).skip(kept.saturating_sub(KEPT_MAX));
    txn.ops
        .extend(log.map(|(version, entry)| Op::LogAppend { version, entry }));
    txn.ops.push(Op::SetMeta {
        meta: meta.to_bytes(),
    });
    Ok(txn)
}

/// The version that all shards of `in_sync` have, out of the newest of each: what lies above it on any of them was never
/// confirmed, as one of these did not have it, and what was confirmed lies on each.
pub(crate) fn common(heads: &[EVersion]) -> Option<EVersion> {
    heads.iter().min().copied()
}
