//! Runs of one OSD, one after the other: what is said of an earlier one holds for none after it.

use super::*;
use crate::kv::{BoxFuture, Kv, LeaseId, Range, Revision, Txn, TxnOp, TxnOutcome, Watch};
use crate::{Error, Lease, LeaseTimes, Result};
use std::sync::Mutex;

const TIMES: LeaseTimes = LeaseTimes {
    ttl: Duration::from_secs(4),
    margin: Duration::from_secs(1),
};

/// Another run of the same OSD.
fn again(id: OsdId, port: u16) -> OsdBoot {
    OsdBoot {
        client_addrs: addrs(port),
        cluster_addrs: addrs(port),
        hb_back_addrs: addrs(port),
        hb_front_addrs: addrs(port),
        ..boot_of(id)
    }
}

/// Clients and other OSDs learn from the map that an OSD was away: what they had asked of its earlier run they ask again. So
/// there is an epoch between two runs, however quickly the second came.
#[test]
fn between_two_runs_an_osd_is_down() {
    let rig = Rig::new();
    block_on(async {
        let c = rig.create().await;
        let first = c.osd_boot(&boot_of(1)).await.unwrap();
        let second = c.osd_boot(&again(1, 7000)).await.unwrap();
        let between = (first + 1..second).any(|epoch| {
            let full = c.history().full(epoch).unwrap();
            OsdMap::from_bytes(&full).unwrap().is_down(1)
        });
        assert!(between, "epochs {first} to {second}");
        assert!(c.osdmap().is_up(1));
    });
}

/// A lifeline's end names the process: it may be told late, when the next one serves already.
#[test]
fn a_process_that_is_gone_says_nothing_of_the_next() {
    let rig = Rig::new();
    block_on(async {
        let c = rig.create().await;
        c.osd_boot(&boot_of(1)).await.unwrap();
        let earlier = c.osdmap().osd(1).unwrap().cluster_addrs.clone();
        c.osd_boot(&again(1, 7000)).await.unwrap();
        let now = c.osdmap().osd(1).unwrap().cluster_addrs.clone();
        c.mark_gone_down(1, &earlier).await.unwrap();
        assert!(c.osdmap().is_up(1), "that was another process");
        c.mark_gone_down(1, &now).await.unwrap();
        assert!(c.osdmap().is_down(1));
    });
}

/// Between two leases another may have taken the place of the OSD: with the second in hand it knows.
#[test]
fn who_has_a_lease_knows_what_happened_before() {
    let rig = Rig::new();
    block_on(async {
        let c = rig.create().await;
        c.osd_boot(&boot_of(0)).await.unwrap();
        // A process that hears nothing of changes by itself.
        let store = c.store_for_tests();
        let osd = ClusterHandle::open(store, rig.clock.clone())
            .await
            .unwrap()
            .unwrap();
        assert!(osd.osdmap().is_up(0));
        c.osd_down(0).await.unwrap();
        assert!(osd.osdmap().is_up(0), "nobody told it");
        osd.osd_lease(0, 1, TIMES).await.unwrap();
        assert!(osd.osdmap().is_down(0));
    });
}

/// A store that carries one transaction out when it is told to, and says of it that nobody knows.
struct Late {
    inner: Arc<dyn Metastore>,
    /// The next one that puts something under this key.
    wanted: Mutex<Option<String>>,
    kept: Mutex<Option<Txn>>,
}

impl Metastore for Late {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Kv>>> {
        self.inner.get(key)
    }
    fn range<'a>(&'a self, range: Range) -> BoxFuture<'a, Result<(Vec<Kv>, Revision)>> {
        self.inner.range(range)
    }
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome>> {
        let mut wanted = self.wanted.lock().unwrap();
        let hit = |op: &TxnOp| matches!((op, &*wanted), (TxnOp::Put { key, .. }, Some(w)) if key == w);
        if txn.ops.iter().any(hit) {
            *wanted = None;
            *self.kept.lock().unwrap() = Some(txn);
            return Box::pin(async { Err(Error::Unknown("the connection broke".into())) });
        }
        self.inner.txn(txn)
    }
    fn watch(&self, range: Range, after: Revision) -> Result<Box<dyn Watch>> {
        self.inner.watch(range, after)
    }
    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>> {
        self.inner.lease_grant(ttl)
    }
    fn lease_renew(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        self.inner.lease_renew(lease)
    }
    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        self.inner.lease_revoke(lease)
    }
    fn lease_hold(&self, times: LeaseTimes) -> BoxFuture<'_, Result<Lease>> {
        self.inner.lease_hold(times)
    }
    fn maintain(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.maintain()
    }
}

/// A transaction whose outcome nobody told may come true later, when the next run holds the key: that one's lease stays.
#[test]
fn a_late_transaction_takes_no_lease_away() {
    let rig = Rig::new();
    block_on(async {
        let c = rig.create().await;
        let late = Arc::new(Late {
            inner: c.store_for_tests(),
            wanted: Mutex::new(Some(keys::live_lease(0))),
            kept: Mutex::default(),
        });
        let osd = ClusterHandle::open(late.clone(), rig.clock.clone())
            .await
            .unwrap()
            .unwrap();
        let first = osd.osd_lease(0, 7, TIMES).await.unwrap();
        let _second = c.osd_lease(0, 8, TIMES).await.unwrap();
        let held = c
            .store_for_tests()
            .get(&keys::live_lease(0))
            .await
            .unwrap()
            .unwrap();
        let txn = late.kept.lock().unwrap().take().expect("it was asked for");
        let _ = late.inner.txn(txn).await;
        osd.end_lease(&first).await.unwrap();
        let now = c.store_for_tests().get(&keys::live_lease(0)).await.unwrap();
        assert_eq!(now, Some(held));
    });
}
