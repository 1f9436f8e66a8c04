//! What a PG knows of the cluster: its pool as of an epoch, removed snapshots, blocked clients.

use crate::coding::Coding;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use types::{AddrKind, EVersion, EntityAddr, Epoch, OsdId, PoolId};

/// A set of snapshot ids.
pub type SnapIntervals = crate::state::intervals::Intervals;

/// Clients that must not do anything any more: by their addresses, and by the global ids of those that had such an address.
#[derive(Debug, Clone, Default)]
pub struct Blocklist {
    exact: BTreeMap<(SocketAddr, u32), EntityAddr>,
    ranges: Vec<EntityAddr>,
    ids: BTreeSet<u64>,
}

impl Blocklist {
    /// From the map's entries; those of kind `Cidr` are ranges with the prefix length as nonce.
    pub fn new<'a>(entries: impl IntoIterator<Item = &'a EntityAddr>) -> Self {
        let mut out = Self::default();
        for e in entries {
            let Some(sock) = e.sock else { continue };
            if e.kind == AddrKind::Cidr {
                out.ranges.push(*e);
            } else {
                out.exact.insert((sock, e.nonce), *e);
            }
        }
        out
    }

    /// The same, with these global ids.
    pub fn with_ids(mut self, ids: impl IntoIterator<Item = u64>) -> Self {
        self.ids.extend(ids);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.ranges.is_empty() && self.ids.is_empty()
    }

    pub fn has_id(&self, global_id: u64) -> bool {
        self.ids.contains(&global_id)
    }

    /// The entry that fences who calls itself `claimed` and sends from `from`, by [`EntityAddr::fences`].
    pub fn entry_for(&self, claimed: &EntityAddr, from: Option<IpAddr>) -> Option<EntityAddr> {
        let (nonce, port) = (claimed.nonce, claimed.sock.map_or(0, |s| s.port()));
        let mut hosts = [claimed.sock.map(|s| s.ip()), from.map(|ip| ip.to_canonical())]
            .into_iter()
            .flatten();
        let exact = hosts.find_map(|ip| {
            let places = [(port, nonce), (0, nonce), (0, 0)];
            let mut found = places
                .iter()
                .filter_map(|(port, nonce)| self.exact.get(&(SocketAddr::new(ip, *port), *nonce)));
            found.find(|e| e.fences(claimed, from)).copied()
        });
        exact.or_else(|| self.ranges.iter().find(|e| e.fences(claimed, from)).copied())
    }
}

/// Which of all the PGs that had one id it is, and what was merged into it last (docs/internals/merging.md).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgLife {
    /// When it was split off, or the newest merge into it was made. A copy of an earlier one is not a copy of this PG.
    pub epoch: Epoch,
    /// That merge; None: there was none since it was split off.
    pub joined: Option<PgJoined>,
}

/// What the OSDs that hold both PGs of a merge find on their disks before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgJoined {
    /// Seed of the source; the pool had one PG more than that.
    pub source: u32,
    pub source_head: EVersion,
    pub target_head: EVersion,
    pub source_life: Epoch,
    pub target_life: Epoch,
    pub members: Vec<OsdId>,
}

impl PoolView {
    /// 0: it came with its pool, and nothing was ever merged into it.
    pub fn life_of(&self, seed: u32) -> Epoch {
        self.lives.get(&seed).map_or(0, |l| l.epoch)
    }
}

/// The pool of a PG as of `epoch`.
#[derive(Debug, Clone, Default)]
pub struct PoolView {
    pub epoch: Epoch,
    pub id: PoolId,
    pub name: String,
    /// Application name to its key/value pairs: some capabilities depend on it.
    pub applications: BTreeMap<String, BTreeMap<String, String>>,
    pub pg_num: u32,
    /// The pool or the cluster is out of space.
    pub full: bool,
    /// The pool is over its quota.
    pub full_quota: bool,
    /// An operator had it that every operation fails (flag `eio`).
    pub eio: bool,
    /// Snapshots are the pool's own (`mksnap`): a write's context is this one, not the message's.
    pub pool_snaps_mode: bool,
    /// Newest pool snapshot id ever, and the existing ones descending.
    pub snap_seq: u64,
    pub snaps: Vec<u64>,
    /// Every snapshot id that the map lists as removed. What a PG has seen once it remembers by itself.
    pub removed_snaps: SnapIntervals,
    /// An erasure-coded pool; its rules apply (14.2) although the data is stored plainly.
    pub erasure: bool,
    pub stripe_width: u32,
    pub ec_overwrites: bool,
    /// How its objects are cut into shards; None: each member has a copy.
    pub coding: Option<Arc<Coding>>,
    pub blocklist: Arc<Blocklist>,
    /// Of the PGs that were split off, or that others were merged into, by seed.
    pub lives: Arc<BTreeMap<u32, PgLife>>,
    /// OSDs of which the map says that they are full.
    pub full_osds: Arc<BTreeSet<OsdId>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_address_is_one_instance_or_a_host_or_a_range() {
        let a = |s: &str, nonce| EntityAddr::msgr2(s.parse().unwrap(), nonce);
        let range = EntityAddr {
            kind: AddrKind::Cidr,
            nonce: 24,
            sock: Some("10.1.2.0:0".parse().unwrap()),
        };
        let b = Blocklist::new(&[a("1.2.3.4:5", 6), a("1.2.3.9:0", 0), range]);
        let check = |addr: EntityAddr, want| assert_eq!(b.entry_for(&addr, None).is_some(), want, "{addr}");
        check(a("1.2.3.4:5", 6), true);
        check(a("1.2.3.4:5", 7), false);
        check(a("1.2.3.9:77", 7), true);
        check(a("10.1.2.200:1", 2), true);
        check(a("10.1.3.1:1", 2), false);
        // By where it sends from, whatever it calls itself.
        let from = |ip: &str, claimed: EntityAddr| b.entry_for(&claimed, ip.parse().ok());
        assert_eq!(from("1.2.3.4", a("7.7.7.7:5", 6)), Some(a("1.2.3.4:5", 6)));
        assert_eq!(from("1.2.3.4", a("7.7.7.7:5", 7)), None);
        assert_eq!(from("1.2.3.9", a("7.7.7.7:5", 7)), Some(a("1.2.3.9:0", 0)));
        assert_eq!(from("10.1.2.200", a("7.7.7.7:5", 7)), Some(range));
    }
}
