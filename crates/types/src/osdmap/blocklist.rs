//! Fenced clients (docs/protocol/ceph/03-placement.md, 1.2, "Blocklist rule").

use super::OsdMap;
use crate::{AddrKind, EntityAddr, Utime};
use std::net::{IpAddr, SocketAddr};

impl EntityAddr {
    /// The form in which the blocklist holds an address.
    pub fn to_blocklist_form(mut self) -> Self {
        self.kind = AddrKind::Any;
        self
    }

    /// The form that blocks a whole host: no port, no nonce.
    pub fn to_blocklist_host(mut self) -> Self {
        self = self.to_blocklist_form();
        self.nonce = 0;
        if let Some(s) = &mut self.sock {
            s.set_port(0);
        }
        self
    }

    /// True if this entry of a blocklist fences a client that calls itself `claimed` and whose packets come from `from`: what
    /// it says of itself lets nobody slip through, and what it says truly fences it behind a translation of addresses too.
    pub fn fences(&self, claimed: &EntityAddr, from: Option<IpAddr>) -> bool {
        let Some(entry) = self.sock else { return false };
        let from = from.map(|ip| ip.to_canonical());
        if self.kind == AddrKind::Cidr {
            let from = from.map(|ip| SocketAddr::new(ip, 0));
            return [claimed.sock, from]
                .into_iter()
                .flatten()
                .any(|sock| same_network(entry, sock, self.nonce));
        }
        let its_host = claimed.sock.is_some_and(|s| s.ip() == entry.ip()) || from == Some(entry.ip());
        let port = claimed.sock.map_or(0, |s| s.port());
        match (entry.port(), self.nonce) {
            (0, 0) => its_host,
            (0, nonce) if claimed.sock.map(|s| s.ip()) != Some(entry.ip()) => {
                from == Some(entry.ip()) && nonce == claimed.nonce
            }
            (at, nonce) => its_host && (at, nonce) == (port, claimed.nonce),
        }
    }
}

/// True if the first `bits` bits of both addresses agree; never across families.
fn same_network(a: SocketAddr, b: SocketAddr, bits: u32) -> bool {
    let differ = |x: u128, y: u128, width: u32| match width.checked_sub(bits.min(width)) {
        Some(shift) => (x ^ y).checked_shr(shift).unwrap_or(0) != 0,
        None => true,
    };
    match (a.ip(), b.ip()) {
        (IpAddr::V4(x), IpAddr::V4(y)) => !differ(u32::from(x).into(), u32::from(y).into(), 32),
        (IpAddr::V6(x), IpAddr::V6(y)) => !differ(x.into(), y.into(), 128),
        _ => false,
    }
}

impl OsdMap {
    /// Until when the client at `addr` is fenced, if it is. Entries hold until the monitor removes them; their
    /// time is when it will.
    pub fn blocklisted(&self, addr: &EntityAddr) -> Option<Utime> {
        if self.blocklist.is_empty() && self.range_blocklist.is_empty() {
            return None;
        }
        let exact = self.blocklist.get(&addr.to_blocklist_form());
        let host = || self.blocklist.get(&addr.to_blocklist_host());
        if let Some(until) = exact.or_else(host) {
            return Some(*until);
        }
        let sock = addr.sock?;
        self.range_blocklist
            .iter()
            .find(|(range, _)| range.sock.is_some_and(|net| same_network(net, sock, range.nonce)))
            .map(|(_, until)| *until)
    }

    /// An entry that fences who calls itself `claimed` and sends from `from`, by [`EntityAddr::fences`].
    pub fn fencing(&self, claimed: &EntityAddr, from: Option<IpAddr>) -> Option<EntityAddr> {
        if self.blocklist.is_empty() && self.range_blocklist.is_empty() {
            return None;
        }
        let port = claimed.sock.map_or(0, |s| s.port());
        let hosts = [claimed.sock.map(|s| s.ip()), from.map(|ip| ip.to_canonical())];
        let places = [(port, claimed.nonce), (0, claimed.nonce), (0, 0)];
        let exact = hosts.into_iter().flatten().flat_map(|ip| {
            places.map(|(port, nonce)| EntityAddr {
                kind: AddrKind::Any,
                nonce,
                sock: Some(SocketAddr::new(ip, port)),
            })
        });
        let mut listed = exact.filter(|e| self.blocklist.contains_key(e));
        let found = listed.find(|e| e.fences(claimed, from));
        found.or_else(|| {
            self.range_blocklist
                .keys()
                .find(|e| e.fences(claimed, from))
                .copied()
        })
    }

    pub fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        self.blocklisted(addr).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uuid;

    fn addr(s: &str, nonce: u32) -> EntityAddr {
        // Reason for unwrap: literals of this test.
        EntityAddr::msgr2(s.parse().unwrap(), nonce)
    }

    #[test]
    fn an_entry_fences_by_what_a_client_says_and_by_where_it_sends_from() {
        let entry = |s: &str, nonce| addr(s, nonce).to_blocklist_form();
        let check = |e: EntityAddr, claimed: EntityAddr, from: &str, want: bool| {
            let from = from.parse().ok();
            assert_eq!(e.fences(&claimed, from), want, "{e} {claimed} {from:?}");
        };
        let one = entry("10.0.0.1:0", 9);
        check(one, addr("10.0.0.1:0", 9), "10.0.0.1", true);
        check(one, addr("10.0.0.1:0", 9), "10.9.9.9", true);
        // It calls itself another host.
        check(one, addr("10.7.7.7:0", 9), "10.0.0.1", true);
        check(one, addr("10.7.7.7:55", 9), "10.0.0.1", true);
        check(one, addr("10.0.0.1:0", 8), "10.0.0.1", false);
        check(one, addr("10.7.7.7:0", 9), "10.7.7.7", false);
        check(entry("10.0.0.1:7", 9), addr("10.0.0.2:7", 9), "10.0.0.1", true);
        check(entry("10.0.0.1:7", 9), addr("10.0.0.1:8", 9), "10.0.0.1", false);
        let host = entry("10.0.0.1:0", 0);
        check(host, addr("10.7.7.7:5", 3), "10.0.0.1", true);
        check(host, addr("10.0.0.1:5", 3), "10.7.7.7", true);
        check(host, addr("10.7.7.7:5", 3), "10.7.7.7", false);
        let mut net = entry("10.1.0.0:0", 16);
        net.kind = AddrKind::Cidr;
        check(net, addr("10.7.7.7:5", 3), "10.1.200.3", true);
        check(net, addr("10.1.7.7:5", 3), "10.7.0.3", true);
        check(net, addr("10.7.7.7:5", 3), "10.7.7.7", false);
        check(host, addr("10.7.7.7:5", 3), "::ffff:10.0.0.1", true);
    }

    #[test]
    fn exact_host_and_range_entries_fence() {
        let mut map = OsdMap::empty(Uuid::default());
        let until = Utime { sec: 5, nsec: 0 };
        map.blocklist
            .insert(addr("10.0.0.1:7", 9).to_blocklist_form(), until);
        map.blocklist
            .insert(addr("10.0.0.2:7", 9).to_blocklist_host(), until);
        let mut net = addr("10.1.0.0:0", 16);
        net.kind = AddrKind::Cidr;
        map.range_blocklist.insert(net, until);
        let check =
            |s: &str, nonce, want| assert_eq!(map.is_blocklisted(&addr(s, nonce)), want, "{s}/{nonce}");
        check("10.0.0.1:7", 9, true);
        check("10.0.0.1:7", 8, false);
        check("10.0.0.1:8", 9, false);
        check("10.0.0.2:1234", 1, true);
        check("10.1.255.3:1", 1, true);
        check("10.2.0.0:1", 1, false);
        check("[::1]:7", 9, false);
        map.range_blocklist.clear();
        let mut all = addr("0.0.0.0:0", 0);
        all.kind = AddrKind::Cidr;
        map.range_blocklist.insert(all, until);
        assert!(map.is_blocklisted(&addr("192.168.7.7:1", 0)));
        assert!(!map.is_blocklisted(&addr("[::1]:1", 0)));
    }
}
