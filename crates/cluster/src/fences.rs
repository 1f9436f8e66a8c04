//! Client instances that an entry of the blocklist has fenced, by their global ids: one that comes back under another address
//! or nonce stays fenced as long as the entry stands.
//!
//! Beside the OSD map, whose form is Ceph's: a row for each entry that has fenced somebody. Who knows sessions writes them:
//! the monitor that carries out the command with the entry itself, every other monitor and OSD as soon as it sees the entry.
//!
//! Invariant: no row without its entry in the map. Bounds: [`IDS_MAX`] ids of one entry, [`FENCES_MAX`] entries; beyond these the
//! addresses alone fence.

use crate::keys;
use crate::rows::Write;
use denc::Encode;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use types::EntityAddr;
use types::osdmap::OsdMap;

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
pub(super) fn add(all: &mut Fences, entry: EntityAddr, ids: &[u64]) -> Option<Write> {
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
    Some(Write::put(row(&name), fenced.to_bytes()))
}

/// Whether another id can be taken in: of an entry that has fenced some already, or of another one.
pub fn has_room(all: &Fences, known: Option<&Fenced>) -> bool {
    match known {
        Some(f) => f.ids.len() < IDS_MAX,
        None => all.len() < FENCES_MAX,
    }
}

/// Forgets what entries fenced that are not in the map any more.
pub(super) fn settle(all: &mut Arc<Fences>, map: &OsdMap, ops: &mut Vec<Write>) {
    let stands =
        |f: &Fenced| map.blocklist.contains_key(&f.entry) || map.range_blocklist.contains_key(&f.entry);
    if all.values().all(stands) {
        return;
    }
    Arc::make_mut(all).retain(|name, fenced| {
        let stays = stands(fenced);
        if !stays {
            ops.push(Write::delete(row(name)));
        }
        stays
    });
}
