//! Client instances that an entry of the blocklist has fenced, by their global ids: one that comes back under another address
//! or nonce stays fenced as long as the entry stands.
//!
//! Beside the OSD map, whose form is Ceph's: a row for each entry that has fenced somebody. Who knows sessions writes them:
//! the monitor that carries out the command with the entry itself, every other monitor and OSD as soon as it sees the entry.
//!
//! Invariant: no row without its entry in the map. Bounds: [`IDS_MAX`] ids of one entry, [`FENCES_MAX`] entries; beyond these the
//! addresses alone fence.

use super::changes::{Change, Changes};
use super::handle::ClusterHandle;
use super::keys;
use super::state::ClusterState;
use crate::kv::{Result, TxnOp};
use denc::Encode;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use types::osdmap::OsdMap;
use types::{EntityAddr, Utime};

/// Instances that one entry fences by their ids.
const IDS_MAX: usize = 4096;
/// Entries that fence instances by their ids.
const FENCES_MAX: usize = 4096;

/// A session as far as fencing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    pub global_id: u64,
    /// What it calls itself.
    pub addr: EntityAddr,
    /// Where its packets come from.
    pub from: Option<IpAddr>,
}

/// An entry of the blocklist, and whom it has fenced; ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fenced {
    pub entry: EntityAddr,
    pub ids: Vec<u64>,
}
denc::envelope_denc!(Fenced, 1, 1, { entry, ids });

/// By the text of the entry.
pub type Fences = BTreeMap<String, Fenced>;

fn row(name: &str) -> String {
    format!("{}{name}", keys::FENCE)
}

/// Takes ids in; what the store shall say of the entry.
pub(super) fn add(all: &mut Fences, entry: EntityAddr, ids: &[u64]) -> Option<TxnOp> {
    let name = entry.to_string();
    if !all.contains_key(&name) && all.len() >= FENCES_MAX {
        return None;
    }
    let empty = || Fenced {
        entry,
        ids: Vec::new(),
    };
    let fenced = all.entry(name.clone()).or_insert_with(empty);
    let both: BTreeSet<u64> = fenced.ids.iter().chain(ids).copied().collect();
    fenced.ids = both.into_iter().take(IDS_MAX).collect();
    Some(TxnOp::put(row(&name), fenced.to_bytes()))
}

/// Forgets what entries fenced that are not in the map any more.
pub(super) fn settle(all: &mut Arc<Fences>, map: &OsdMap, ops: &mut Vec<TxnOp>) {
    let stands =
        |f: &Fenced| map.blocklist.contains_key(&f.entry) || map.range_blocklist.contains_key(&f.entry);
    if all.values().all(stands) {
        return;
    }
    Arc::make_mut(all).retain(|name, fenced| {
        let stays = stands(fenced);
        if !stays {
            ops.push(TxnOp::delete(row(name)));
        }
        stays
    });
}

impl ClusterState {
    pub fn is_fenced_id(&self, global_id: u64) -> bool {
        self.fences
            .values()
            .any(|f| f.ids.binary_search(&global_id).is_ok())
    }

    pub fn fenced_ids(&self) -> impl Iterator<Item = u64> {
        self.fences.values().flat_map(|f| f.ids.iter().copied())
    }

    /// What `entry` fences of these that is not known yet.
    pub fn fence_by(&self, entry: EntityAddr, seen: &[Instance]) -> Option<Change> {
        let known = self.fences.get(&entry.to_string());
        let is_new = |id: &u64| known.is_none_or(|f| f.ids.binary_search(id).is_err());
        let room = match known {
            Some(f) => f.ids.len() < IDS_MAX,
            None => self.fences.len() < FENCES_MAX,
        };
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
}

impl ClusterHandle {
    /// These have the addresses that they have: whoever of them is on the blocklist is fenced under any other, too.
    pub async fn fence(&self, seen: &[Instance]) -> Result<()> {
        let now = self.now();
        if self.state().fence(seen, now).is_empty() {
            return Ok(());
        }
        let decide = |state: &ClusterState| (state.fence(seen, now), ());
        self.commit(decide).await.map(drop)
    }
}
