//! The monitor map: which monitors there are and where (docs/protocol/ceph/02-monitor.md, 5.2).
//!
//! Invariant: `ranks` holds exactly the names of `mon_info`, in rank order. A server without messenger v1 lists
//! v2 addresses only, since some tools take the first v1 address they see and dial it.

use crate::{EntityAddrVec, Epoch, Utime, Uuid, release};
use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::{BTreeMap, BTreeSet};

const VERSION: u8 = 9;
const COMPAT: u8 = 6;

/// Monitor features by bit.
pub const MON_FEATURES: [(u8, &str); 14] = [
    (0, "kraken"),
    (1, "luminous"),
    (2, "mimic"),
    (3, "osdmap-prune"),
    (4, "nautilus"),
    (5, "octopus"),
    (6, "pacific"),
    (7, "elector-pinging"),
    (8, "quincy"),
    (9, "reef"),
    (10, "squid"),
    (11, "tentacle"),
    (12, "umbrella"),
    (32, "nvmeof-beacon-diff"),
];
/// The features of a Ceph 16 cluster.
pub const MON_FEATURES_PACIFIC: u64 = 0xff;

/// Names of the set feature bits.
pub fn mon_feature_names(features: u64) -> Vec<&'static str> {
    MON_FEATURES
        .iter()
        .filter(|(bit, _)| features >> bit & 1 != 0)
        .map(|(_, n)| *n)
        .collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonInfo {
    pub name: String,
    pub addrs: EntityAddrVec,
    pub priority: u16,
    pub weight: u16,
    pub crush_loc: BTreeMap<String, String>,
}

impl Encode for MonInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 1, |w| {
            w.string(&self.name);
            w.put(&self.addrs);
            w.u16(self.priority);
            w.u16(self.weight);
            w.put(&self.crush_loc);
        });
    }
}

impl Decode for MonInfo {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(5, |v, r| {
            Ok(Self {
                name: r.string()?,
                addrs: r.get()?,
                priority: if v >= 2 { r.u16()? } else { 0 },
                weight: if v >= 4 { r.u16()? } else { 0 },
                crush_loc: if v >= 5 { r.get()? } else { BTreeMap::new() },
            })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonMap {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub last_changed: Utime,
    pub created: Utime,
    pub persistent_features: u64,
    pub optional_features: u64,
    pub mon_info: BTreeMap<String, MonInfo>,
    /// Names in rank order.
    pub ranks: Vec<String>,
    pub min_mon_release: u8,
    pub removed_ranks: BTreeSet<u32>,
    /// 1 classic, 2 disallow, 3 connectivity.
    pub strategy: u8,
    pub disallowed_leaders: BTreeSet<String>,
    pub stretch_mode_enabled: bool,
    pub tiebreaker_mon: String,
    pub stretch_marked_down_mons: BTreeSet<String>,
}

impl MonMap {
    /// The map of a new cluster; `mons` in rank order.
    pub fn new(fsid: Uuid, created: Utime, mons: impl IntoIterator<Item = (String, EntityAddrVec)>) -> Self {
        let mut map = Self {
            fsid,
            epoch: 1,
            last_changed: created,
            created,
            persistent_features: MON_FEATURES_PACIFIC,
            optional_features: 0,
            mon_info: BTreeMap::new(),
            ranks: Vec::new(),
            min_mon_release: release::PACIFIC,
            removed_ranks: BTreeSet::new(),
            strategy: 1,
            disallowed_leaders: BTreeSet::new(),
            stretch_mode_enabled: false,
            tiebreaker_mon: String::new(),
            stretch_marked_down_mons: BTreeSet::new(),
        };
        for (name, addrs) in mons {
            map.ranks.push(name.clone());
            let info = MonInfo {
                name: name.clone(),
                addrs,
                priority: 0,
                weight: 0,
                crush_loc: BTreeMap::new(),
            };
            map.mon_info.insert(name, info);
        }
        map
    }

    pub fn rank_of(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|n| n == name)
    }

    /// Monitors in rank order.
    pub fn by_rank(&self) -> impl Iterator<Item = &MonInfo> {
        self.ranks.iter().filter_map(|n| self.mon_info.get(n))
    }
}

/// `mon_feature_t`
fn put_features(w: &mut Writer, bits: u64) {
    w.envelope(1, 1, |w| w.u64(bits));
}

fn get_features(r: &mut Reader) -> Result<u64> {
    r.envelope(1, |_, r| r.u64())
}

impl Encode for MonMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(VERSION, COMPAT, |w| {
            w.put(&self.fsid);
            w.u32(self.epoch);
            w.put(&self.last_changed);
            w.put(&self.created);
            put_features(w, self.persistent_features);
            put_features(w, self.optional_features);
            w.put(&self.mon_info);
            w.put(&self.ranks);
            w.u8(self.min_mon_release);
            w.put(&self.removed_ranks);
            w.u8(self.strategy);
            w.put(&self.disallowed_leaders);
            w.bool(self.stretch_mode_enabled);
            w.string(&self.tiebreaker_mon);
            w.put(&self.stretch_marked_down_mons);
        });
    }
}

impl Decode for MonMap {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(VERSION, |v, r| {
            if v < COMPAT {
                return Err(r.invalid("monitor map older than Ceph 14"));
            }
            let mut map = Self {
                fsid: r.get()?,
                epoch: r.u32()?,
                last_changed: r.get()?,
                created: r.get()?,
                persistent_features: get_features(r)?,
                optional_features: get_features(r)?,
                mon_info: r.get()?,
                ranks: r.get()?,
                min_mon_release: if v >= 7 { r.u8()? } else { 0 },
                removed_ranks: BTreeSet::new(),
                strategy: 1,
                disallowed_leaders: BTreeSet::new(),
                stretch_mode_enabled: false,
                tiebreaker_mon: String::new(),
                stretch_marked_down_mons: BTreeSet::new(),
            };
            if v >= 8 {
                map.removed_ranks = r.get()?;
                map.strategy = r.u8()?;
                map.disallowed_leaders = r.get()?;
            }
            if v >= 9 {
                map.stretch_mode_enabled = r.bool()?;
                map.tiebreaker_mon = r.string()?;
                map.stretch_marked_down_mons = r.get()?;
            }
            if map.ranks.len() != map.mon_info.len()
                || map.ranks.iter().any(|n| !map.mon_info.contains_key(n))
            {
                return Err(r.invalid("ranks of the monitor map do not fit its monitors"));
            }
            Ok(map)
        })
    }
}
