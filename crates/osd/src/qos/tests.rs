//! The table of who is held back, driven by hand.

use super::bucket::Cost;
use super::limits::{Ids, Limits, Passes, Place};
use super::table::{
    ALL_NAMES_MAX, Arrival, Era, NAMES_MAX, Notice, PER_SESSION_MAX, RECORDS_MAX, Table, Verdict,
};
use bytes::Bytes;
use cluster::ImageKey;
use cluster::qos::{Limits as Words, Subject};
use net::ConnId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{AuthName, EntityKind, HObject, NOSNAP, PgId, PoolId, SPgId};

const POOL: PoolId = 2;
const ERA: Era = Era {
    interval: 5,
    pg_num: 8,
};
const WRITE: Cost = Cost {
    ops: 1,
    reads: 0,
    writes: 1,
    read_bytes: 0,
    write_bytes: 4096,
};

struct Bench {
    table: Table,
    limits: Limits,
    /// Reads that were let through and have no answer.
    reads: BTreeSet<(u64, Bytes)>,
    /// What the client takes for the PG, if that is not [`pg`].
    named: Option<SPgId>,
    now: Duration,
}

fn words(amounts: &[(&str, u64)]) -> Words {
    let mut words = Words::default();
    for (name, amount) in amounts {
        words.set(name, *amount).unwrap();
    }
    words
}

fn image(pool: PoolId, id: &str) -> Subject {
    Subject::Image(ImageKey {
        pool,
        namespace: String::new(),
        id: id.into(),
    })
}

fn admin() -> AuthName {
    AuthName::new(EntityKind::Client, "admin")
}

fn pg() -> SPgId {
    SPgId::replicated(PgId::new(POOL, 1))
}

impl Bench {
    fn new(rows: &[(Subject, Words)]) -> Self {
        let mut bench = Self {
            table: Table::default(),
            limits: Limits::default(),
            reads: BTreeSet::new(),
            named: None,
            now: Duration::from_secs(100),
        };
        bench.set(rows);
        bench
    }

    fn set(&mut self, rows: &[(Subject, Words)]) {
        let rows: BTreeMap<_, _> = rows.iter().cloned().collect();
        self.limits.set(rows, |_| 1.0, self.now);
        self.table.look(self.now);
    }

    fn ids(&self, oid: &str) -> Ids {
        let place = Place {
            pool: POOL,
            namespace: b"",
            oid: oid.as_bytes(),
        };
        self.limits.of(&place, &admin())
    }

    fn send_with(&mut self, conn: u64, oid: &str, cost: Cost, can_be_held: bool) -> Verdict {
        let arrival = Arrival {
            conn: ConnId(conn),
            client: 1000 + conn,
            pg: pg(),
            named: self.named.unwrap_or(pg()),
            era: ERA,
            object: &HObject::new(POOL, 7, "".into(), "".into(), oid.to_string().into(), NOSNAP),
            ids: self.ids(oid),
            cost,
            writes: cost.writes > 0,
            can_be_held,
        };
        self.table.arrive(&arrival, &mut self.limits, self.now)
    }

    fn send(&mut self, conn: u64, oid: &str) -> Verdict {
        self.send_with(conn, oid, WRITE, true)
    }

    fn block(&mut self, conn: u64, oid: &str) -> u64 {
        match self.send(conn, oid) {
            Verdict::Block(id) => id,
            other => panic!("{oid}: {other:?}"),
        }
    }

    fn ack(&mut self, conn: u64, id: u64) -> Vec<u64> {
        let mut out = Vec::new();
        self.table.acked(ConnId(conn), id, self.now, &mut out);
        let mut ids = numbers(&out);
        ids.extend(self.after(0));
        ids
    }

    fn after(&mut self, ms: u64) -> Vec<u64> {
        self.now += Duration::from_millis(ms);
        let mut out = Vec::new();
        let reads = self.reads.clone();
        let is_read = |client, _, oid: &Bytes| reads.contains(&(client, oid.clone()));
        self.table.step(&mut self.limits, is_read, self.now, &mut out);
        numbers(&out)
    }

    fn moved(&mut self, era: Option<Era>) -> Vec<u64> {
        let mut out = Vec::new();
        self.table.moved(|_| era, &mut self.limits, self.now, &mut out);
        numbers(&out)
    }

    /// Spends what there is.
    fn drain(&mut self) {
        for _ in 0..1000 {
            if self.send_with(0, "drain", WRITE, false) == Verdict::Go
                && self.limits.all().any(|l| l.unheld > 0)
            {
                return;
            }
        }
        panic!("there is no end");
    }
}

fn numbers(out: &[Notice]) -> Vec<u64> {
    out.iter().map(|n| n.id).collect()
}

fn ten() -> [(Subject, Words); 1] {
    [(Subject::Pool(POOL), words(&[("iops_limit", 10)]))]
}

#[test]
fn held_until_there_are_tokens_and_the_client_has_heard_it() {
    let mut b = Bench::new(&ten());
    assert_eq!(b.send(1, "a"), Verdict::Go);
    let id = b.block(1, "a");
    // What was on its way when the client heard it.
    assert_eq!(b.send(1, "a"), Verdict::Drop);
    assert_eq!(b.after(300), [] as [u64; 0], "tokens, but no ACK");
    assert_eq!(b.send(1, "a"), Verdict::Drop, "it would overtake the others");
    assert_eq!(b.ack(2, id), [] as [u64; 0], "not another's");
    assert_eq!(b.ack(1, id), [id]);
    // Both that were dropped are paid.
    assert_eq!(b.send(1, "a"), Verdict::Go);
    assert_eq!(b.send(1, "a"), Verdict::Go);
    assert!(b.table.is_empty());
}

#[test]
fn the_ack_may_come_before_the_tokens() {
    let mut b = Bench::new(&ten());
    b.send(1, "a");
    let id = b.block(1, "b");
    assert_eq!(b.ack(1, id), [] as [u64; 0]);
    assert_eq!(b.after(4), [] as [u64; 0]);
    assert_eq!(b.after(20), [id]);
    // Another object has no part in that.
    assert!(matches!(b.send(1, "c"), Verdict::Block(_)));
    assert_eq!(b.send(1, "b"), Verdict::Go);
}

#[test]
fn connections_take_turns() {
    let mut b = Bench::new(&ten());
    b.send(1, "x");
    let mut first: Vec<u64> = (0..50).map(|i| b.block(1, &format!("a{i}"))).collect();
    let second = b.block(2, "b");
    for id in first.clone() {
        b.ack(1, id);
    }
    b.ack(2, second);
    let mut order = Vec::new();
    while order.len() < 3 {
        order.extend(b.after(10));
    }
    first.truncate(2);
    assert_eq!(order[..2], [first[0], second]);
    assert_eq!(order[2], first[1]);
}

#[test]
fn nobody_goes_before_those_who_wait() {
    let mut b = Bench::new(&ten());
    b.send(1, "x");
    let id = b.block(1, "a");
    b.now += Duration::from_millis(500);
    let late = b.block(2, "b");
    assert_eq!(b.ack(2, late), [] as [u64; 0]);
    assert_eq!(b.ack(1, id), [id]);
    assert_eq!(b.after(110), [late]);
}

#[test]
fn a_rate_is_kept_whatever_the_depth() {
    for depth in [1, 4, 32] {
        for objects in [1, 1000] {
            let mut b = Bench::new(&[(Subject::Pool(POOL), words(&[("iops_limit", 100)]))]);
            let (mut done, mut next) = (0u32, 0);
            // What the client has: sent ones that are to be executed at once, and those that it holds.
            let mut held: BTreeMap<String, u32> = BTreeMap::new();
            let mut names: BTreeMap<u64, String> = BTreeMap::new();
            let mut to_send: Vec<String> = Vec::new();
            let end = b.now + Duration::from_secs(10);
            while b.now < end {
                let inflight: u32 = held.values().sum();
                for _ in inflight + to_send.len() as u32..depth {
                    next += 1;
                    to_send.push(format!("o{}", next % objects));
                }
                for oid in std::mem::take(&mut to_send) {
                    if let Some(n) = held.get_mut(&oid) {
                        *n += 1;
                        continue;
                    }
                    match b.send(1, &oid) {
                        Verdict::Go | Verdict::Ahead => done += 1,
                        Verdict::Drop => *held.entry(oid).or_default() += 1,
                        Verdict::Block(id) => {
                            held.insert(oid.clone(), 1);
                            names.insert(id, oid);
                            assert!(b.ack(1, id).is_empty());
                        }
                    }
                }
                for id in b.after(1) {
                    let oid = names.remove(&id).unwrap();
                    let n = held.remove(&oid).unwrap_or(0);
                    to_send.extend((0..n).map(|_| oid.clone()));
                }
            }
            assert!(
                (985..=1015).contains(&done),
                "depth {depth}, {objects} objects: {done}"
            );
        }
    }
}

#[test]
fn a_client_that_does_not_come_back_gives_its_tokens_back() {
    let mut b = Bench::new(&ten());
    b.send(1, "x");
    let id = b.block(1, "a");
    b.ack(1, id);
    assert_eq!(b.after(150), [id]);
    let other = b.block(2, "b");
    b.ack(2, other);
    b.table.closed(ConnId(1), &mut b.limits);
    assert_eq!(b.table.len(), 1);
    assert_eq!(b.after(10), [other], "with the tokens of the first");
    // And one that stays, but asks for something else.
    assert_eq!(b.after(2500), [] as [u64; 0]);
    assert!(b.table.is_empty());
    assert_eq!(b.send(2, "c"), Verdict::Go);
}

/// The client would send the read again, and not look at its first answer; done anew, it would find what was written behind it.
#[test]
fn nothing_is_asked_for_again_before_the_reads_are_answered() {
    let mut b = Bench::new(&ten());
    b.send(1, "x");
    let id = b.block(1, "a");
    b.reads.insert((1001, Bytes::from_static(b"a")));
    assert_eq!(b.ack(1, id), [] as [u64; 0]);
    assert_eq!(b.after(150), [] as [u64; 0]);
    assert_eq!(b.send(1, "a"), Verdict::Drop);
    assert!(b.table.next_timer().is_some());
    // Another's read of the same object is nothing to it, nor its own of another.
    b.reads = BTreeSet::from([(1002, Bytes::from_static(b"a")), (1001, Bytes::from_static(b"b"))]);
    assert_eq!(b.after(20), [id]);
    assert_eq!(b.send(1, "a"), Verdict::Go);
}

#[test]
fn another_interval_lets_go() {
    let mut b = Bench::new(&ten());
    b.send(1, "x");
    let (acked, not) = (b.block(1, "a"), b.block(1, "b"));
    b.ack(1, acked);
    assert_eq!(b.moved(Some(ERA)), [] as [u64; 0]);
    assert_eq!(b.moved(Some(Era { interval: 6, ..ERA })), [acked]);
    assert_eq!(b.send(1, "b"), Verdict::Drop, "it has not heard BLOCK yet");
    assert_eq!(b.ack(1, not), [not]);
    assert!(b.table.is_empty());
    let third = b.block(1, "c");
    b.ack(1, third);
    assert_eq!(b.moved(None), [third], "led elsewhere now");
    assert!(b.table.next_timer().is_none() || b.after(1000).is_empty());
}

/// UNBLOCK names the old PG, and lets nothing go that the client sends to the new one.
#[test]
fn who_has_heard_of_a_split_is_not_held_by_what_was_before() {
    let mut b = Bench::new(&ten());
    b.send(1, "x");
    let id = b.block(1, "a");
    b.moved(Some(Era {
        interval: 6,
        pg_num: 16,
    }));
    b.named = Some(SPgId {
        pg: PgId::new(POOL, 15),
        ..pg()
    });
    let again = b.send(1, "a");
    assert!(again != Verdict::Drop, "nobody would ask for it again: {again:?}");
    b.named = None;
    assert_eq!(b.send(1, "a"), Verdict::Drop, "on its way since before");
    assert_eq!(b.ack(1, id), [id]);
}

/// A batch of small ones paid, and large ones came.
#[test]
fn what_comes_is_charged_beyond_what_was_bought() {
    let mut b = Bench::new(&[(Subject::Pool(POOL), words(&[("write_bps_limit", 10_000)]))]);
    let small = Cost {
        write_bytes: 1,
        ..WRITE
    };
    let large = Cost {
        write_bytes: 40_000,
        ..WRITE
    };
    b.send_with(1, "x", large, true);
    let Verdict::Block(id) = b.send_with(1, "a", small, true) else {
        panic!("there are no tokens")
    };
    b.ack(1, id);
    b.after(4000);
    assert_eq!(
        b.table.next_timer(),
        Some(b.now + Duration::from_secs(2)),
        "it is asked for"
    );
    assert_eq!(b.send_with(1, "a", large, true), Verdict::Go);
    assert!(matches!(b.send_with(1, "b", small, true), Verdict::Block(_)));
}

#[test]
fn a_limit_that_is_changed_or_removed_counts_at_once() {
    let mut b = Bench::new(&[(Subject::Pool(POOL), words(&[("iops_limit", 1)]))]);
    b.send(1, "x");
    let ids: Vec<u64> = (0..20).map(|i| b.block(1, &format!("o{i}"))).collect();
    for id in &ids {
        b.ack(1, *id);
    }
    b.set(&[(Subject::Pool(POOL), words(&[("iops_limit", 100)]))]);
    let mut free = 0;
    for _ in 0..10 {
        free += b.after(10).len();
    }
    assert!((9..=20).contains(&free), "{free}");
    b.set(&[]);
    assert_eq!(b.after(10).len(), 20 - free);
    assert_eq!(b.send(1, "y"), Verdict::Go);
}

#[test]
fn what_is_not_limited_waits_only_where_the_object_is_held() {
    let mut b = Bench::new(&[(image(POOL, "10ab"), words(&[("write_iops_limit", 10)]))]);
    assert_eq!(b.send(1, "rbd_data.10ab.0"), Verdict::Go);
    let id = b.block(1, "rbd_data.10ab.0");
    let read = Cost {
        writes: 0,
        reads: 1,
        write_bytes: 0,
        ..WRITE
    };
    assert_eq!(b.send_with(1, "rbd_data.10ab.1", read, true), Verdict::Go);
    assert_eq!(b.send_with(1, "rbd_data.10ab.0", read, true), Verdict::Drop);
    for other in ["rbd_data.10ac.0", "rbd_data.9.10ab.0", "10ab", "rbd_header.10ab"] {
        for _ in 0..100 {
            assert_eq!(b.send(1, other), Verdict::Go, "{other}");
        }
    }
    b.ack(1, id);
    assert_eq!(b.after(150), [id]);
}

#[test]
fn an_images_objects_are_those_in_its_data_pool() {
    let mut data = words(&[("iops_limit", 10)]);
    data.data_pool = Some(POOL);
    let b = Bench::new(&[
        (image(9, "10ab"), data),
        (image(7, "cd"), words(&[("iops_limit", 1)])),
    ]);
    assert!(!b.ids("rbd_data.9.10ab.0").is_empty());
    assert!(b.ids("rbd_data.10ab.0").is_empty(), "of an image of this pool");
    assert!(b.ids("rbd_data.8.10ab.0").is_empty());
    assert!(
        b.ids("rbd_data.7.cd.0").is_empty(),
        "its objects are in another pool"
    );
}

#[test]
fn all_limits_count_and_the_tightest_decides() {
    let user = Subject::User("client.admin".into());
    let mut b = Bench::new(&[
        (Subject::Pool(POOL), words(&[("bps_limit", 1 << 30)])),
        (
            Subject::Namespace(POOL, String::new()),
            words(&[("iops_limit", 1000)]),
        ),
        (user, words(&[("write_bps_limit", 4096)])),
        (image(POOL, "10ab"), words(&[("iops_limit", 500)])),
    ]);
    assert_eq!(b.ids("rbd_data.10ab.0").iter().count(), 4);
    assert_eq!(b.send(1, "rbd_data.10ab.0"), Verdict::Go);
    let id = b.block(1, "rbd_data.10ab.1");
    b.ack(1, id);
    assert_eq!(b.after(800), [] as [u64; 0]);
    assert_eq!(b.after(201), [id]);
}

#[test]
fn records_are_bounded_and_beyond_them_operations_are_served_and_charged() {
    let mut b = Bench::new(&ten());
    b.send(1, "x");
    for i in 0..PER_SESSION_MAX {
        b.block(1, &format!("o{i}"));
    }
    assert_eq!(b.send(1, "more"), Verdict::Go);
    for conn in 2.. {
        for i in 0..PER_SESSION_MAX {
            if b.table.len() < RECORDS_MAX {
                b.block(conn, &format!("o{i}"));
            }
        }
        if b.table.len() == RECORDS_MAX {
            break;
        }
    }
    assert_eq!(b.send(9999, "o"), Verdict::Go);
    let limit = b.limits.all().next().unwrap();
    assert_eq!((limit.unheld, b.table.len()), (2, RECORDS_MAX));
    // The same object again, a thousand times: one record, and no more of its batch than half a second.
    for _ in 0..1000 {
        assert_eq!(b.send(1, "o7"), Verdict::Drop);
    }
    for conn in 0..100 {
        b.table.closed(ConnId(conn), &mut b.limits);
    }
    assert!(b.table.is_empty() && b.after(10_000).is_empty());
    assert_eq!(b.table.next_timer(), None, "nothing is left of it");
}

#[test]
fn long_names_are_bounded_too() {
    let mut b = Bench::new(&ten());
    b.send(1, "x");
    let name = |i: usize| format!("{i:02000}");
    for conn in 0..ALL_NAMES_MAX / NAMES_MAX {
        for i in 0..NAMES_MAX / 2000 {
            b.block(conn as u64, &name(i));
        }
        assert_eq!(b.send(conn as u64, &name(9999)), Verdict::Go);
    }
    let most = ALL_NAMES_MAX / 2000;
    assert!(b.table.len() <= most, "{}", b.table.len());
    for conn in 0..100 {
        b.table.closed(ConnId(conn), &mut b.limits);
    }
    assert!(b.table.is_empty());
    b.block(1, &name(1));
}

#[test]
fn a_client_that_cannot_be_held_is_served_and_charged() {
    let mut b = Bench::new(&ten());
    b.drain();
    assert_eq!(b.send_with(1, "a", WRITE, false), Verdict::Go);
    let id = b.block(2, "b");
    b.ack(2, id);
    assert_eq!(b.after(100), [] as [u64; 0], "what the other took is owed");
    assert_eq!(b.after(300), [id]);
}

#[test]
fn a_connection_that_never_answers_is_known() {
    let mut b = Bench::new(&ten());
    b.send(1, "x");
    b.block(1, "a");
    let id = b.block(2, "a");
    b.ack(2, id);
    assert!(b.table.deaf(b.now + Duration::from_secs(59)).is_empty());
    let deaf = b.table.deaf(b.now + Duration::from_secs(61));
    assert_eq!(deaf.into_iter().collect::<Vec<_>>(), [ConnId(1)]);
}

#[test]
fn a_read_is_charged_by_what_was_read() {
    let mut b = Bench::new(&[(Subject::Pool(POOL), words(&[("read_bps_limit", 1 << 20)]))]);
    let read = Cost {
        ops: 1,
        reads: 1,
        read_bytes: 4 << 20,
        ..Cost::default()
    };
    assert_eq!(b.send_with(1, "a", read, true), Verdict::Go);
    b.limits.settle(b.ids("a"), Passes::Other, 4 << 20, 10);
    assert_eq!(
        b.send_with(1, "a", read, true),
        Verdict::Go,
        "there was next to nothing"
    );
    b.limits.settle(b.ids("a"), Passes::Other, 4 << 20, 8 << 20);
    let id = match b.send_with(1, "a", read, true) {
        Verdict::Block(id) => id,
        other => panic!("{other:?}"),
    };
    b.ack(1, id);
    assert_eq!(b.after(7000), [] as [u64; 0]);
    assert_eq!(b.after(1000), [id]);
}

/// Tokens of a reservation are not spent on what its limit holds; and what a limit held goes ahead all the same.
#[test]
fn a_limit_and_a_reservation_stand_together() {
    let both = words(&[("iops_limit", 10), ("iops_reserve", 10)]);
    let mut b = Bench::new(&[(Subject::Pool(POOL), both)]);
    assert_eq!(b.send(1, "x"), Verdict::Ahead);
    let id = b.block(1, "a");
    assert_eq!(b.send(1, "a"), Verdict::Drop);
    let ahead = |b: &Bench| b.limits.all().map(|l| l.ahead).sum::<u64>();
    assert_eq!(ahead(&b), 1);
    assert_eq!(b.ack(1, id), [] as [u64; 0]);
    assert_eq!(b.after(150), [id]);
    assert_eq!(b.send(1, "a"), Verdict::Ahead);
    assert_eq!(b.send(1, "a"), Verdict::Ahead);
    assert_eq!(ahead(&b), 3);
    assert!(b.table.is_empty());
}

/// The others owe 16 s of their floor: who has a reservation goes when that has tokens, and nobody waits longer than ten seconds.
#[test]
fn held_among_the_others_he_goes_by_his_reservation_again() {
    let mut b = Bench::new(&[(image(POOL, "10ab"), words(&[("iops_reserve", 10)]))]);
    for _ in 0..2 {
        for i in 0..10 {
            assert_eq!(b.send(1, &format!("rbd_data.10ab.{i}")), Verdict::Ahead);
        }
        b.now += Duration::from_secs(1);
    }
    for i in 0..10 {
        b.send(1, &format!("rbd_data.10ab.{i}"));
    }
    b.limits.shares.step(b.now, b.now);
    assert!(b.limits.shares.is_holding());
    let large = Cost {
        write_bytes: 64 << 20,
        ..WRITE
    };
    assert_eq!(b.send_with(2, "rbd_data.20cd.0", large, true), Verdict::Go);
    let (other, his) = (b.block(2, "rbd_data.20cd.1"), b.block(1, "rbd_data.10ab.50"));
    b.ack(2, other);
    assert_eq!(b.ack(1, his), [] as [u64; 0]);
    assert_eq!(b.after(150), [his]);
    assert_eq!(b.send(1, "rbd_data.10ab.50"), Verdict::Ahead);
    assert_eq!(b.after(9000), [] as [u64; 0]);
    assert_eq!(b.after(1100), [other]);
    assert_eq!(b.send(2, "rbd_data.20cd.1"), Verdict::Go);
}
