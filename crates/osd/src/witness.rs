//! Whether a refused connection proves that a peer's process is gone.
//!
//! From the same host it does: its own kernel says that nobody listens. From another host a firewall says the same of a
//! process that lives and serves others. Then it counts only when somebody on a third host does not hear the peer
//! either, and nobody who can be reached has a connection to it. On two hosts, or while the others' reports say
//! otherwise, the lease's end decides: it comes 2 s later, and is always right.
//!
//! Invariants: pure; what the others say is in their reports, which each of them sends at once when it loses a peer.

use metastore::OsdReport;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use types::OsdId;

/// What is known when a peer's port refuses.
pub struct Facts<'a> {
    pub me: OsdId,
    /// Where each OSD is that is up, this one too.
    pub hosts: &'a BTreeMap<OsdId, IpAddr>,
    /// Those whose ports refuse this OSD's connections now: their last words are old.
    pub refusing: &'a BTreeSet<OsdId>,
    /// Those that hold a lease: the reports of others do not count.
    pub leased: &'a BTreeSet<OsdId>,
    pub reports: &'a BTreeMap<OsdId, Arc<OsdReport>>,
}

impl Facts<'_> {
    /// True if the process of `peer`, whose port refuses, is surely gone.
    pub fn is_gone(&self, peer: OsdId) -> bool {
        let (Some(mine), Some(its)) = (self.hosts.get(&self.me), self.hosts.get(&peer)) else {
            return false;
        };
        if mine == its {
            return true;
        }
        let speaks =
            |o: &OsdId| *o != self.me && *o != peer && self.leased.contains(o) && !self.refusing.contains(o);
        let mut third = false;
        for (osd, report) in self.reports.iter().filter(|(o, _)| speaks(o)) {
            if report.stat.hb_peers.contains(&peer) {
                return false;
            }
            let elsewhere = self.hosts.get(osd).is_some_and(|ip| ip != mine && ip != its);
            third |= elsewhere && report.silent.contains(&peer);
        }
        third
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::pgstats::OsdStat;

    /// OSDs 0 to 5, two on each of three hosts; the first is this one, the last two are on the host in question.
    fn check(says: &[(OsdId, &[OsdId], &[OsdId])], refusing: &[OsdId], dead: &[OsdId]) -> bool {
        let hosts = (0..6)
            .map(|o| (o, IpAddr::from([10, 0, 0, 1 + o as u8 / 2])))
            .collect();
        let report = |(osd, hears, silent): &(OsdId, &[OsdId], &[OsdId])| {
            let report = OsdReport {
                stat: OsdStat {
                    hb_peers: hears.to_vec(),
                    ..OsdStat::default()
                },
                silent: silent.to_vec(),
                ..OsdReport::default()
            };
            (*osd, Arc::new(report))
        };
        let facts = Facts {
            me: 0,
            hosts: &hosts,
            refusing: &refusing.iter().copied().collect(),
            leased: &(0..6).filter(|o| !dead.contains(o)).collect(),
            reports: &says.iter().map(report).collect(),
        };
        facts.is_gone(4)
    }

    #[test]
    fn another_host_and_a_third_one_must_agree() {
        // A third host does not hear it, and its neighbour is gone with it.
        assert!(check(
            &[(2, &[0, 1, 3], &[4, 5]), (5, &[0, 4], &[])],
            &[4, 5],
            &[]
        ));
        // A third host hears it: there is a firewall between.
        assert!(!check(&[(2, &[0, 4], &[]), (3, &[0], &[4])], &[4], &[]));
        // The word of one that holds no lease, or of this host alone, is none.
        assert!(!check(&[(2, &[], &[4])], &[4], &[2]));
        assert!(!check(&[(1, &[], &[4])], &[4], &[]));
        // Its neighbour lives and reaches it.
        assert!(!check(&[(2, &[], &[4]), (5, &[4], &[])], &[4], &[]));
        // Nobody has said anything yet.
        assert!(!check(&[], &[4], &[]));
    }

    #[test]
    fn the_own_kernel_is_believed() {
        let hosts = [(0, IpAddr::from([10, 0, 0, 1])), (4, IpAddr::from([10, 0, 0, 1]))].into();
        let facts = Facts {
            me: 0,
            hosts: &hosts,
            refusing: &BTreeSet::from([4]),
            leased: &BTreeSet::from([0, 4]),
            reports: &BTreeMap::new(),
        };
        assert!(facts.is_gone(4));
        assert!(!facts.is_gone(3));
    }
}
