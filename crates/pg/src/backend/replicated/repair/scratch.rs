//! Scratch objects: where a repair makes what is too much for one transaction, before it takes the place of a bad copy.
//!
//! A scratch object has the name of the object that it will be, and a shard of its own, which no PG has: whatever walks
//! over a PG's objects (listings, scans, scrub, splits, counts) asks for the PG's shard and never meets one. It lies in the
//! same pool and at the same hash, so that it goes with its pool, and a PG that is split off finds its own.
//!
//! Invariants: it is nobody's copy of anything: no log and no metadata speaks of it, and what finds one that it is not about
//! to fill removes it: a PG that begins to be led here, a member at the first question of a primary ([`clear`]).

use crate::state::range::{HashRange, ancestors};
use crate::store::{IoError, ObjectStore};
use types::{HObject, ObjectId, Op, SPgId, Transaction};

/// Removed in one transaction.
const CLEAR_OBJECTS: usize = 64;

/// Shards are counted from -1, that of replicated pools; nobody comes near the other end.
fn shard_of(shard: i8) -> i8 {
    i8::MIN.saturating_add(shard.saturating_add(1))
}

/// Where `oid` is made.
pub(super) fn scratch(oid: &ObjectId) -> ObjectId {
    ObjectId {
        shard: shard_of(oid.shard),
        object: oid.object.clone(),
    }
}

/// The same step on another object; None: it is not about `from`, or none that a part of an object is made by.
pub(super) fn moved(op: Op, from: &ObjectId, to: &ObjectId) -> Option<Op> {
    let ours = |oid: &ObjectId| (oid == from).then(|| to.clone());
    Some(match op {
        Op::Write { oid, offset, data } => Op::Write {
            oid: ours(&oid)?,
            offset,
            data,
        },
        Op::Zero { oid, offset, len } => Op::Zero {
            oid: ours(&oid)?,
            offset,
            len,
        },
        Op::OmapSet { oid, entries } => Op::OmapSet {
            oid: ours(&oid)?,
            entries,
        },
        Op::OmapSetHeader { oid, header } => Op::OmapSetHeader {
            oid: ours(&oid)?,
            header,
        },
        Op::SetAttrs { oid, attrs } => Op::SetAttrs {
            oid: ours(&oid)?,
            attrs,
        },
        _ => return None,
    })
}

/// Steps that put the scratch object in the place of the object, whatever is there.
pub(super) fn replace_steps(oid: &ObjectId) -> [Op; 3] {
    [
        Op::Touch { oid: oid.clone() },
        Op::Remove { oid: oid.clone() },
        Op::Rename {
            src: scratch(oid),
            dst: oid.clone(),
        },
    ]
}

/// Scratch objects of a PG's part of its pool, at most `max`.
pub(crate) fn list(
    id: SPgId,
    range: HashRange,
    max: usize,
    store: &mut dyn ObjectStore,
) -> Result<Vec<ObjectId>, IoError> {
    let from = ObjectId {
        shard: shard_of(id.shard),
        object: range.start_cursor(id.pg.pool).with_snap(0),
    };
    let ours = |o: &ObjectId| {
        o.shard == from.shard
            && o.object.pool == id.pg.pool
            && u64::from(o.object.reversed_hash()) < range.end
    };
    let to = ObjectId {
        shard: from.shard,
        object: range.end_cursor(id.pg.pool),
    };
    let found = store.list_within(&from, &to, max)?;
    Ok(found.into_iter().take_while(ours).collect())
}

/// Removes what a repair left that did not come to its end.
pub(crate) fn clear(id: SPgId, range: HashRange, store: &mut dyn ObjectStore) -> Result<(), IoError> {
    loop {
        let found = list(id, range, CLEAR_OBJECTS, store)?;
        if found.is_empty() {
            return Ok(());
        }
        // Of a PG that was split off there may be no collection yet.
        let mut txn = Transaction::new(id);
        for collection in std::iter::once(id).chain(ancestors(id)) {
            if store.has_collection(collection)? {
                txn.collection = collection;
                break;
            }
        }
        tracing::info!(
            "pg {id}: {} objects of repairs that did not end are removed",
            found.len()
        );
        txn.ops.extend(found.into_iter().map(|oid| Op::Remove { oid }));
        let cleared = store.submit(&txn);
        cleared.map_err(|e| IoError(format!("pg {id}: what a repair left cannot be removed: {e}")))?;
    }
}

/// The first scratch object that a PG with this seed may have, for those who remove a PG's copy.
pub fn first_scratch(id: SPgId) -> ObjectId {
    ObjectId {
        shard: shard_of(id.shard),
        object: HObject {
            pool: id.pg.pool,
            hash: id.pg.seed,
            ..HObject::min()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use types::{NOSNAP, PgId};

    fn object(pool: i64, hash: u32) -> ObjectId {
        let none = Bytes::new();
        ObjectId::replicated(HObject::new(pool, hash, none.clone(), none, "a".into(), NOSNAP))
    }

    #[test]
    fn it_lies_in_its_pool_and_no_pg_has_its_shard() {
        let (oid, other) = (object(3, 8), object(3, 9));
        let made = scratch(&oid);
        assert_eq!((made.object.pool, made.object.hash), (3, 8));
        assert!(
            made.shard < -1 && made < oid && made < other,
            "before all of the pool"
        );
        assert!(object(2, 8) < made, "behind all of the pool before");
        // Shards of erasure-coded pools have theirs apart from one another and from all shards.
        let shards: std::collections::BTreeSet<i8> = (-1..64).map(shard_of).collect();
        assert!(shards.len() == 65 && shards.iter().all(|s| *s < -1));
    }

    #[test]
    fn only_steps_on_the_object_itself_go_there() {
        let (oid, other) = (object(3, 8), object(3, 9));
        let to = scratch(&oid);
        let write = |oid: &ObjectId| Op::Write {
            oid: oid.clone(),
            offset: 1,
            data: Bytes::from_static(b"x"),
        };
        assert_eq!(moved(write(&oid), &oid, &to), Some(write(&to)));
        assert_eq!(moved(write(&other), &oid, &to), None);
        assert_eq!(moved(Op::Remove { oid: oid.clone() }, &oid, &to), None);
        assert_eq!(
            moved(
                Op::LogTrim {
                    to: Default::default()
                },
                &oid,
                &to
            ),
            None
        );
    }

    #[test]
    fn a_pg_clears_its_own_range_only() {
        let mut store = crate::memory::MemoryStore::default();
        let mut txn = Transaction::new(SPgId::replicated(PgId::new(3, 0)));
        txn.ops.push(Op::CreateCollection);
        for hash in [0u32, 1, 2, 3] {
            let oid = object(3, hash);
            txn.ops.push(Op::Touch { oid: scratch(&oid) });
            txn.ops.push(Op::Touch { oid });
        }
        store.submit(&txn).unwrap();
        // Of two PGs the second one, which has no collection yet, has the odd hashes.
        let odd = SPgId::replicated(PgId::new(3, 1));
        clear(odd, HashRange::of(1, 2), &mut store).unwrap();
        let all = HashRange::of(0, 1);
        let left = list(SPgId::replicated(PgId::new(3, 0)), all, 10, &mut store).unwrap();
        assert_eq!(left.iter().map(|o| o.object.hash).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(store.object_count(), 6, "the objects themselves stay");
    }
}
