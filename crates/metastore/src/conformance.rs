//! The suite that every implementation of [`Metastore`] passes. What it verifies: comparison and atomicity of
//! transactions, ranges, order and completeness of watches, leases. What it does not: survival of a crash,
//! which each implementation tests by its own means.

// Only tests call this: a failure is to end them where it happens.
#![allow(clippy::unwrap_used)]

use crate::kv::*;
use crate::lease::LeaseTimes;
use bytes::Bytes;
use io::Clock;
use std::time::Duration;

/// How time passes for the store under test.
pub struct Time<'a> {
    /// The clock that the store reads.
    pub clock: &'a dyn Clock,
    /// Makes it go on by so much.
    pub advance: &'a dyn Fn(Duration) -> BoxFuture<'static, ()>,
    /// A time to live that the store can keep.
    pub ttl: Duration,
}

fn put(key: &str, value: &'static str) -> TxnOp {
    TxnOp::put(key, Bytes::from_static(value.as_bytes()))
}

fn at(key: &str, revision: Revision) -> Compare {
    Compare::Revision {
        key: key.into(),
        revision,
    }
}

async fn commit(s: &dyn Metastore, compares: Vec<Compare>, ops: Vec<TxnOp>) -> Option<Revision> {
    match s.txn(Txn { compares, ops }).await.unwrap() {
        TxnOutcome::Committed(r) => Some(r),
        TxnOutcome::Conflict => None,
    }
}

async fn value(s: &dyn Metastore, key: &str) -> Option<Bytes> {
    s.get(key).await.unwrap().map(|kv| kv.value)
}

pub async fn run(s: &dyn Metastore, time: &Time<'_>) {
    compare_and_swap(s).await;
    atomic(s).await;
    ranges(s).await;
    limits(s).await;
    watches(s).await;
    leases(s, time).await;
    held_leases(s, time).await;
}

async fn compare_and_swap(s: &dyn Metastore) {
    assert_eq!(value(s, "cas/a").await, None);
    let r1 = commit(s, vec![at("cas/a", 0)], vec![put("cas/a", "1")])
        .await
        .unwrap();
    assert_eq!(
        commit(s, vec![at("cas/a", 0)], vec![put("cas/a", "2")]).await,
        None
    );
    assert_eq!(value(s, "cas/a").await.unwrap(), "1");
    let r2 = commit(s, vec![at("cas/a", r1)], vec![put("cas/a", "2")])
        .await
        .unwrap();
    assert!(r2 > r1);
    assert_eq!(s.get("cas/a").await.unwrap().unwrap().revision, r2);
    let is = |v: &'static str| Compare::Value {
        key: "cas/a".into(),
        value: v.into(),
    };
    assert_eq!(commit(s, vec![is("1")], vec![put("cas/a", "3")]).await, None);
    assert!(commit(s, vec![is("2")], vec![put("cas/a", "3")]).await.is_some());
}

async fn atomic(s: &dyn Metastore) {
    let r = commit(s, vec![], vec![put("at/a", "1"), put("at/b", "1")])
        .await
        .unwrap();
    // One of two comparisons fails: nothing of it happens.
    let ops = vec![put("at/a", "2"), TxnOp::delete("at/b"), put("at/c", "2")];
    assert_eq!(
        commit(s, vec![at("at/a", r), at("at/b", r + 1)], ops.clone()).await,
        None
    );
    assert_eq!(value(s, "at/a").await.unwrap(), "1");
    assert_eq!(value(s, "at/c").await, None);
    assert!(commit(s, vec![at("at/a", r), at("at/b", r)], ops).await.is_some());
    assert_eq!(value(s, "at/a").await.unwrap(), "2");
    assert_eq!(value(s, "at/b").await, None);
    assert_eq!(value(s, "at/c").await.unwrap(), "2");
}

async fn ranges(s: &dyn Metastore) {
    let ops = vec![
        put("r/b", "2"),
        put("r/a", "1"),
        put("r0", "x"),
        put("r/c/d", "3"),
    ];
    let r = commit(s, vec![], ops).await.unwrap();
    let (rows, at) = s.range(Range::prefix("r/")).await.unwrap();
    assert!(at >= r);
    let keys: Vec<_> = rows.iter().map(|kv| kv.key.as_str()).collect();
    assert_eq!(keys, ["r/a", "r/b", "r/c/d"]);
    let range = Range {
        start: "r/b".into(),
        end: Some("r/c/d".into()),
    };
    assert_eq!(s.range(range).await.unwrap().0.len(), 1);
}

async fn limits(s: &dyn Metastore) {
    let many = |n: usize| (0..n).map(|i| put(&format!("lim/{i}"), "v")).collect::<Vec<_>>();
    assert!(commit(s, vec![], many(TXN_OPS_MAX)).await.is_some());
    let over = s
        .txn(Txn {
            compares: vec![],
            ops: many(TXN_OPS_MAX + 1),
        })
        .await;
    assert!(matches!(over, Err(Error::TooManyOps(_))));
    // All of a large one is compared, and all at one revision.
    let clash = commit(s, vec![at("lim/7", 0)], many(TXN_OPS_MAX)).await;
    assert!(clash.is_none());
    let whole = (0..TXN_OPS_MAX).map(|i| put(&format!("lim/{i}"), "w")).collect();
    let absent = |i: usize| at(&format!("none/{i}"), 0);
    let revision = commit(s, (0..TXN_COMPARES_MAX).map(absent).collect(), whole).await;
    let (rows, _) = s.range(Range::prefix("lim/")).await.unwrap();
    assert!(
        rows.iter()
            .all(|kv| Some(kv.revision) == revision && kv.value == "w")
    );
    let over = s
        .txn(Txn {
            compares: (0..TXN_COMPARES_MAX + 1).map(absent).collect(),
            ops: many(1),
        })
        .await;
    assert!(matches!(over, Err(Error::TooManyCompares(_))));
    let big = TxnOp::put("lim/big", vec![0; VALUE_BYTES_MAX + 1]);
    let over = s
        .txn(Txn {
            compares: vec![],
            ops: vec![big],
        })
        .await;
    assert!(matches!(over, Err(Error::ValueTooLarge { .. })));
    assert_eq!(value(s, "lim/big").await, None);
    let half = || vec![0; TXN_BYTES_MAX / 2];
    let ops = vec![TxnOp::put("lim/x", half()), TxnOp::put("lim/y", half())];
    let over = s
        .txn(Txn {
            compares: vec![],
            ops,
        })
        .await;
    assert!(matches!(over, Err(Error::TooManyBytes(_))));
    assert_eq!(value(s, "lim/x").await, None);
    // The largest value, and the largest transaction, come back whole.
    let (a, b) = (
        vec![1; VALUE_BYTES_MAX],
        vec![2; TXN_BYTES_MAX - VALUE_BYTES_MAX - 10],
    );
    let ops = vec![TxnOp::put("lim/a", a.clone()), TxnOp::put("lim/b", b)];
    assert!(commit(s, vec![], ops).await.is_some());
    assert_eq!(value(s, "lim/a").await.unwrap(), a);
    assert_eq!(
        s.range(Range::prefix("lim/")).await.unwrap().0.len(),
        TXN_OPS_MAX + 2
    );
}

async fn watches(s: &dyn Metastore) {
    let (_, start) = s.range(Range::prefix("w/")).await.unwrap();
    let mut watch = s.watch(Range::prefix("w/"), start).unwrap();
    let r1 = commit(s, vec![], vec![put("w/a", "1"), put("x/a", "1")])
        .await
        .unwrap();
    let r2 = commit(s, vec![], vec![TxnOp::delete("w/a"), put("w/b", "2")])
        .await
        .unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(watch.next().await.unwrap());
    }
    let event = |revision, key: &str, value: Option<&'static str>| Event {
        revision,
        key: key.into(),
        value: value.map(|v| Bytes::from_static(v.as_bytes())),
    };
    seen.sort_by(|a, b| (a.revision, &a.key).cmp(&(b.revision, &b.key)));
    assert_eq!(
        seen,
        [
            event(r1, "w/a", Some("1")),
            event(r2, "w/a", None),
            event(r2, "w/b", Some("2"))
        ]
    );
    // A second watch from a revision in between sees the rest only.
    let mut late = s.watch(Range::prefix("w/"), r1).unwrap();
    assert_eq!(late.next().await.unwrap().len(), 2);
}

/// Waits until `key` has vanished; stores look at their leases now and then.
async fn vanishes(s: &dyn Metastore, key: &str, time: &Time<'_>) {
    for _ in 0..400 {
        s.maintain().await.unwrap();
        if value(s, key).await.is_none() {
            return;
        }
        (time.advance)(time.ttl / 20).await;
    }
    panic!("{key} outlives its lease");
}

/// On a real clock the machine may sleep longer than it was told to, and a lease end meanwhile: what was to be seen of it is
/// then tried again, so often.
const TRIES: usize = 30;

fn leased(key: &str, value: &'static str, lease: LeaseId) -> TxnOp {
    TxnOp::Put {
        key: key.into(),
        value: value.into(),
        lease: Some(lease),
    }
}

/// None where there is no such lease any more, which is allowed when its time is over.
fn unless_over<T>(found: Result<T>, over: bool) -> Option<T> {
    match found {
        Err(Error::NoLease(_)) if over => None,
        found => Some(found.unwrap()),
    }
}

async fn leases(s: &dyn Metastore, time: &Time<'_>) {
    let mut tries = 0;
    while a_renewed_lease_lives_on(s, time).await.is_none() {
        tries += 1;
        assert!(
            tries < TRIES,
            "the machine is too slow for leases of {:?}",
            time.ttl
        );
    }
    while keys_change_their_lease(s, time).await.is_none() {
        tries += 1;
        assert!(
            tries < TRIES,
            "the machine is too slow for leases of {:?}",
            time.ttl
        );
    }
}

/// None where its time was over before it was renewed.
async fn a_renewed_lease_lives_on(s: &dyn Metastore, time: &Time<'_>) -> Option<()> {
    let ttl = time.ttl;
    let granted = time.clock.monotonic();
    let over = || time.clock.monotonic() >= granted + ttl;
    let lease = s.lease_grant(ttl).await.unwrap();
    let txn = Txn {
        compares: vec![],
        ops: vec![leased("l/a", "1", lease), put("l/b", "2")],
    };
    let TxnOutcome::Committed(r) = unless_over(s.txn(txn).await, over())? else {
        panic!("nothing was compared");
    };
    match s.get("l/a").await.unwrap() {
        Some(kv) => assert_eq!(kv.lease, Some(lease)),
        None if over() => return None,
        None => panic!("a lease ends before its time"),
    }
    let mut watch = s.watch(Range::prefix("l/"), r).unwrap();
    (time.advance)(ttl / 2).await;
    let renewed = time.clock.monotonic();
    unless_over(s.lease_renew(lease).await, over())?;
    (time.advance)(ttl * 3 / 4).await;
    s.maintain().await.unwrap();
    match value(s, "l/a").await {
        Some(found) => assert_eq!(found, "1"),
        None if time.clock.monotonic() >= renewed + ttl => return None,
        None => panic!("a renewed lease lives on"),
    }
    (time.advance)(ttl / 2).await;
    vanishes(s, "l/a", time).await;
    assert_eq!(value(s, "l/b").await.unwrap(), "2", "others do not end with it");
    let events = watch.next().await.unwrap();
    assert_eq!((events[0].key.as_str(), &events[0].value), ("l/a", &None));
    assert!(matches!(s.lease_renew(lease).await, Err(Error::NoLease(_))));
    let late = s
        .txn(Txn {
            compares: vec![],
            ops: vec![leased("l/c", "1", lease)],
        })
        .await;
    assert!(matches!(late, Err(Error::NoLease(_))));
    Some(())
}

/// A leased key over a durable one leaves neither when it ends; a durable one over a leased one stays. None where the lease's
/// time was over before it was ended.
async fn keys_change_their_lease(s: &dyn Metastore, time: &Time<'_>) -> Option<()> {
    let granted = time.clock.monotonic();
    let over = || time.clock.monotonic() >= granted + time.ttl;
    let lease = s.lease_grant(time.ttl).await.unwrap();
    let txn = Txn {
        compares: vec![],
        ops: vec![leased("l/b", "3", lease), leased("l/d", "3", lease)],
    };
    unless_over(s.txn(txn).await, over())?;
    commit(s, vec![], vec![put("l/d", "4")]).await.unwrap();
    let revoked = s.lease_revoke(lease).await;
    unless_over(revoked, over())?;
    assert_eq!(value(s, "l/b").await, None);
    assert_eq!(value(s, "l/d").await.unwrap(), "4");
    Some(())
}

async fn held_leases(s: &dyn Metastore, time: &Time<'_>) {
    let mut tries = 0;
    while a_touched_lease_lives_on(s, time).await.is_none() {
        tries += 1;
        assert!(
            tries < TRIES,
            "the machine is too slow for leases of {:?}",
            time.ttl
        );
    }
}

/// None where its time was over before a renewal came through.
async fn a_touched_lease_lives_on(s: &dyn Metastore, time: &Time<'_>) -> Option<()> {
    let times = LeaseTimes {
        ttl: time.ttl,
        margin: time.ttl / 8,
    };
    let now = || time.clock.monotonic();
    let began = now();
    let lease = s.lease_hold(times).await.unwrap();
    assert!(lease.ttl() >= times.ttl);
    let end = |sent: Duration| sent + lease.ttl() - times.margin;
    assert!(lease.valid_until() >= end(began) && lease.valid_until() <= end(now()));
    let txn = Txn {
        compares: vec![],
        ops: vec![leased("h/a", "1", lease.id())],
    };
    let until = lease.valid_until() + times.margin;
    unless_over(s.txn(txn).await, now() >= until)?;
    for _ in 0..8 {
        (time.advance)(time.ttl / 4).await;
        let (until, touched) = (lease.valid_until() + times.margin, now());
        lease.touch();
        for _ in 0..10_000 {
            if lease.last_renewal() >= touched {
                break;
            }
            if lease.has_ended() {
                assert!(now() >= until, "it ended before its time");
                return None;
            }
            (time.advance)(time.ttl / 1000).await;
        }
        assert!(lease.last_renewal() >= touched, "a touch renews");
        s.maintain().await.unwrap();
        let found = value(s, "h/a").await;
        assert!(
            found.is_some() || !lease.is_valid(now()),
            "valid, and yet it has ended"
        );
    }
    // An owner that does not touch it: its time is over before the key vanishes.
    let until = lease.valid_until();
    vanishes(s, "h/a", time).await;
    assert!(now() > until && !lease.is_valid(now()));
    lease.touch();
    for _ in 0..2000 {
        if lease.has_ended() {
            break;
        }
        (time.advance)(time.ttl / 100).await;
    }
    assert!(lease.has_ended() && lease.valid_until().is_zero());
    Some(())
}
