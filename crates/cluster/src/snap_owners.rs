//! Who made which self-managed snapshot: what keeps a tenant of one namespace from deleting another's, since ids belong to
//! the pool as a whole.
//!
//! Rows hold [`IDS_PER_ROW`] ids of one pool each, so a commit that makes or removes a snapshot writes one small row, however
//! many a pool has. A removed snapshot stays in its row, so that the one who removed it may ask again; a row whose snapshots
//! are all removed goes with the next operation on the pool that is not about it, unless it is the newest. So there are at most
//! as many rows as living snapshots, and two for each pool.
//!
//! Snapshots from before this was kept are in no row: nobody's.

use crate::keys;
use crate::rows::Write;
use crate::{Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{AuthName, PoolId};

/// Consecutive ids in one row.
pub const IDS_PER_ROW: u64 = 256;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Row {
    made: BTreeMap<AuthName, BTreeSet<u64>>,
    /// Of those.
    removed: BTreeSet<u64>,
}
denc::envelope_denc!(Row, 1, 1, { made, removed });

impl Row {
    fn is_over(&self) -> bool {
        self.made.values().flatten().all(|id| self.removed.contains(id))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapOwners {
    rows: BTreeMap<(PoolId, u64), Arc<Row>>,
}

fn key(pool: PoolId, row: u64) -> String {
    format!("{}{pool}/{row:x}", keys::SNAP_OWNER)
}

impl SnapOwners {
    fn row(&self, pool: PoolId, snap: u64) -> Option<&Row> {
        self.rows.get(&(pool, snap / IDS_PER_ROW)).map(|row| &**row)
    }

    /// None: it was made before owners were kept, or never.
    pub fn owner(&self, pool: PoolId, snap: u64) -> Option<&AuthName> {
        let made = &self.row(pool, snap)?.made;
        made.iter()
            .find(|(_, ids)| ids.contains(&snap))
            .map(|(name, _)| name)
    }

    /// It is known to have been removed.
    pub fn is_removed(&self, pool: PoolId, snap: u64) -> bool {
        self.row(pool, snap)
            .is_some_and(|row| row.removed.contains(&snap))
    }

    pub(super) fn made(&mut self, pool: PoolId, snap: u64, owner: AuthName, ops: &mut Vec<Write>) {
        self.change(pool, snap, ops, |row| {
            row.made.entry(owner).or_default().insert(snap);
        });
    }

    pub(super) fn removed(&mut self, pool: PoolId, snap: u64, ops: &mut Vec<Write>) {
        if self.owner(pool, snap).is_some() {
            self.change(pool, snap, ops, |row| {
                row.removed.insert(snap);
            });
        }
    }

    fn change(&mut self, pool: PoolId, snap: u64, ops: &mut Vec<Write>, change: impl FnOnce(&mut Row)) {
        let n = snap / IDS_PER_ROW;
        let of_pool = (pool, 0)..=(pool, u64::MAX);
        let newest = self.rows.range(of_pool.clone()).next_back().map(|((_, n), _)| *n);
        let over = self
            .rows
            .range(of_pool)
            .filter(|(at, row)| at.1 != n && Some(at.1) != newest && row.is_over());
        let over: Vec<_> = over.map(|(at, _)| *at).collect();
        for at in over {
            self.rows.remove(&at);
            ops.push(Write::delete(key(at.0, at.1)));
        }
        let row = Arc::make_mut(self.rows.entry((pool, n)).or_default());
        change(row);
        ops.push(Write::put(key(pool, n), row.to_bytes()));
    }

    /// The pool is gone, and all its snapshots with it.
    pub(super) fn pool_gone(&mut self, pool: PoolId, ops: &mut Vec<Write>) {
        let rows: Vec<_> = self
            .rows
            .range((pool, 0)..=(pool, u64::MAX))
            .map(|(at, _)| *at)
            .collect();
        for at in rows {
            self.rows.remove(&at);
            ops.push(Write::delete(key(at.0, at.1)));
        }
    }

    pub fn has_pool(&self, pool: PoolId) -> bool {
        self.rows.range((pool, 0)..=(pool, u64::MAX)).next().is_some()
    }

    pub(super) fn take_row(&mut self, full_key: &str, new: Option<&Bytes>) -> Result<()> {
        let bad = |why: String| Error::BadValue {
            key: full_key.to_string(),
            why,
        };
        let at = full_key.strip_prefix(keys::SNAP_OWNER).and_then(|rest| {
            let (pool, row) = rest.split_once('/')?;
            Some((pool.parse().ok()?, u64::from_str_radix(row, 16).ok()?))
        });
        let at = at.ok_or_else(|| bad("names no pool and row".into()))?;
        match new {
            Some(raw) => {
                let row = Row::from_bytes(raw).map_err(|e| bad(e.to_string()))?;
                self.rows.insert(at, Arc::new(row));
            }
            None => drop(self.rows.remove(&at)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::EntityKind;

    fn name(id: &str) -> AuthName {
        AuthName::new(EntityKind::Client, id)
    }

    /// Many snapshots must not make each commit dearer.
    #[test]
    fn a_commit_writes_one_small_row_however_many_snapshots_there_are() {
        let mut owners = SnapOwners::default();
        for id in 2..100_000 {
            owners.made(1, id, name(["a", "b"][id as usize % 2]), &mut Vec::new());
        }
        let mut ops = Vec::new();
        owners.made(1, 100_000, name("c"), &mut ops);
        owners.removed(1, 500, &mut ops);
        assert_eq!(ops.len(), 2);
        let bytes = |op: &Write| match op {
            Write::Put { value, .. } => value.len(),
            _ => 0,
        };
        assert!(
            ops.iter().all(|op| (1..4096).contains(&bytes(op))),
            "{:?}",
            ops.iter().map(bytes).max()
        );
        assert_eq!(owners.owner(1, 100_000), Some(&name("c")));
        assert_eq!(
            owners.owner(1, 500),
            Some(&name("a")),
            "who removed it may ask again"
        );
        assert!(owners.is_removed(1, 500) && !owners.is_removed(1, 501));
    }

    #[test]
    fn rows_of_removed_snapshots_go() {
        let mut owners = SnapOwners::default();
        let mut store: BTreeMap<String, Bytes> = BTreeMap::new();
        let mut run = |owners: &mut SnapOwners, f: &dyn Fn(&mut SnapOwners, &mut Vec<Write>)| {
            let mut ops = Vec::new();
            f(owners, &mut ops);
            for op in ops {
                match op {
                    Write::Put { key, value, .. } => drop(store.insert(key, value)),
                    Write::Delete { key } => drop(store.remove(&key)),
                }
            }
            let mut read = SnapOwners::default();
            for (key, value) in &store {
                read.take_row(key, Some(value)).unwrap();
            }
            assert_eq!(read, *owners);
            store.len()
        };
        for id in 1..=3 * IDS_PER_ROW {
            run(&mut owners, &|o, ops| o.made(7, id, name("a"), ops));
        }
        for id in 1..=3 * IDS_PER_ROW {
            run(&mut owners, &|o, ops| o.removed(7, id, ops));
        }
        assert!(owners.is_removed(7, 3 * IDS_PER_ROW));
        let rows = run(&mut owners, &|o, ops| o.made(7, 10 * IDS_PER_ROW, name("a"), ops));
        assert!(rows <= 2, "{rows} rows for one living snapshot");
        let other = run(&mut owners, &|o, ops| o.removed(7, 4000, ops));
        assert_eq!(other, rows, "nobody's snapshot takes no room");
        assert_eq!(run(&mut owners, &|o, ops| o.pool_gone(7, ops)), 0);
        assert!(!owners.has_pool(7));
    }
}
