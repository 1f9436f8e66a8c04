//! What a PG knows of the cluster: its pool as of an epoch, removed snapshots, blocked clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{AddrKind, EntityAddr, Epoch, OsdId, PoolId};

/// A set of snapshot ids.
pub type SnapIntervals = crate::intervals::Intervals;

/// Addresses that must not write or read objects any more.
#[derive(Debug, Clone, Default)]
pub struct Blocklist {
    exact: BTreeSet<(std::net::SocketAddr, u32)>,
    ranges: Vec<(std::net::IpAddr, u32)>,
}

impl Blocklist {
    /// From the map's entries; those of kind `Cidr` are ranges with the prefix length as nonce.
    pub fn new<'a>(entries: impl IntoIterator<Item = &'a EntityAddr>) -> Self {
        let mut out = Self::default();
        for e in entries {
            let Some(sock) = e.sock else { continue };
            if e.kind == AddrKind::Cidr {
                out.ranges.push((sock.ip(), e.nonce));
            } else {
                out.exact.insert((sock, e.nonce));
            }
        }
        out
    }

    /// An entry names one client instance (address, port, nonce), or with port and nonce 0 a whole host.
    pub fn contains(&self, addr: &EntityAddr) -> bool {
        let Some(sock) = addr.sock else { return false };
        if self.exact.is_empty() && self.ranges.is_empty() {
            return false;
        }
        let host = std::net::SocketAddr::new(sock.ip(), 0);
        self.exact.contains(&(sock, addr.nonce))
            || self.exact.contains(&(host, 0))
            || self
                .ranges
                .iter()
                .any(|(net, bits)| in_range(*net, *bits, sock.ip()))
    }
}

fn in_range(net: std::net::IpAddr, bits: u32, ip: std::net::IpAddr) -> bool {
    use std::net::IpAddr::{V4, V6};
    match (net, ip) {
        (V4(n), V4(i)) => {
            let shift = 32u32.saturating_sub(bits);
            u32::from(n).checked_shr(shift) == u32::from(i).checked_shr(shift)
        }
        (V6(n), V6(i)) => {
            let shift = 128u32.saturating_sub(bits);
            u128::from(n).checked_shr(shift) == u128::from(i).checked_shr(shift)
        }
        _ => false,
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
    pub blocklist: Arc<Blocklist>,
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
        let check = |addr: EntityAddr, want| assert_eq!(b.contains(&addr), want, "{addr}");
        check(a("1.2.3.4:5", 6), true);
        check(a("1.2.3.4:5", 7), false);
        check(a("1.2.3.9:77", 7), true);
        check(a("10.1.2.200:1", 2), true);
        check(a("10.1.3.1:1", 2), false);
    }
}
