//! Somebody with a reservation beside a neighbour that floods: a server that takes 200 us for an operation, one after the other, and
//! a disk behind it that takes 1 ms for any number of them; all in simulated time.

use super::Qos;
use super::bucket::Cost;
use super::limits::{Ids, Limits, Place};
use super::shares::{FLOOR, PROBE, PROBE_EVERY, Shares};
use super::table::{Arrival, Era, Table, Verdict};
use cluster::ImageKey;
use cluster::qos::{Limits as Words, Subject};
use net::ConnId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{AuthName, EntityKind, HObject, NOSNAP, PgId, PoolId, SPgId};

const POOL: PoolId = 2;
const SERVES: Duration = Duration::from_micros(200);
const DISK: Duration = Duration::from_millis(1);
const WRITE: Cost = Cost {
    ops: 1,
    reads: 0,
    writes: 1,
    read_bytes: 0,
    write_bytes: 4096,
};
/// Clients, and their connections.
const QUIET: usize = 0;
const NOISY: usize = 1;
const IMAGES: [&str; 2] = ["10ab", "20cd"];

#[derive(Clone, Copy)]
struct Op {
    client: usize,
    since: Duration,
    ahead: bool,
}

struct Server {
    table: Table,
    limits: Limits,
    now: Duration,
    queue: VecDeque<Op>,
    disk: VecDeque<(Duration, Op)>,
    /// Whose each record is, and of which object.
    held: BTreeMap<u64, (usize, u64)>,
    objects: u64,
    outstanding: [usize; 2],
    done: [u64; 2],
}

fn reserved(iops: u64) -> BTreeMap<Subject, Words> {
    let mut words = Words::default();
    words.set("iops_reserve", iops).unwrap();
    let image = ImageKey {
        pool: POOL,
        namespace: String::new(),
        id: IMAGES[QUIET].into(),
    };
    BTreeMap::from([(Subject::Image(image), words)])
}

fn ids(limits: &Limits, oid: &str) -> Ids {
    let place = Place {
        pool: POOL,
        namespace: b"",
        oid: oid.as_bytes(),
    };
    limits.of(&place, &AuthName::new(EntityKind::Client, "admin"))
}

impl Server {
    fn new(rows: BTreeMap<Subject, Words>) -> Self {
        let now = Duration::from_secs(100);
        let mut limits = Limits::default();
        limits.set(rows, |_| 1.0, now);
        Self {
            table: Table::default(),
            limits,
            now,
            queue: VecDeque::new(),
            disk: VecDeque::new(),
            held: BTreeMap::new(),
            objects: 0,
            outstanding: [0; 2],
            done: [0; 2],
        }
    }

    fn send(&mut self, client: usize, object: u64) {
        let pg = SPgId::replicated(PgId::new(POOL, 1));
        let oid = format!("rbd_data.{}.{object}", IMAGES[client]);
        let conn = ConnId(client as u64);
        let arrival = Arrival {
            conn,
            client: client as u64,
            pg,
            named: pg,
            era: Era {
                interval: 5,
                pg_num: 8,
            },
            ids: ids(&self.limits, &oid),
            object: &HObject::new(POOL, 7, "".into(), "".into(), oid.into(), NOSNAP),
            cost: WRITE,
            writes: true,
            can_be_held: true,
        };
        match self.table.arrive(&arrival, &mut self.limits, self.now) {
            verdict @ (Verdict::Go | Verdict::Ahead) => self.queue.push_back(Op {
                client,
                since: self.now,
                ahead: verdict == Verdict::Ahead,
            }),
            Verdict::Block(id) => {
                self.held.insert(id, (client, object));
                self.table.acked(conn, id, self.now, &mut Vec::new());
            }
            Verdict::Drop => panic!("each operation has an object of its own"),
        }
    }

    fn step(&mut self, depths: [usize; 2]) {
        self.now += SERVES;
        for client in [QUIET, NOISY] {
            while self.outstanding[client] < depths[client] {
                self.outstanding[client] += 1;
                self.objects += 1;
                self.send(client, self.objects);
            }
        }
        if self.limits.shares.step(self.now) {
            self.table.look(self.now);
        }
        let mut out = Vec::new();
        self.table
            .step(&mut self.limits, |_, _, _| false, self.now, &mut out);
        for notice in out {
            let (client, object) = self.held.remove(&notice.id).unwrap();
            self.send(client, object);
        }
        if let Some(op) = self.queue.pop_front() {
            self.disk.push_back((self.now + DISK, op));
        }
        while let Some((at, op)) = self.disk.front().copied()
            && at <= self.now
        {
            self.disk.pop_front();
            self.done[op.client] += 1;
            self.outstanding[op.client] -= 1;
            if op.ahead {
                self.limits.shares.answered(self.now, self.now - op.since);
            }
        }
    }

    /// What each client got per second.
    fn run(&mut self, seconds: u64, depths: [usize; 2]) -> [u64; 2] {
        let before = self.done;
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.step(depths);
        }
        [QUIET, NOISY].map(|c| (self.done[c] - before[c]) / seconds)
    }
}

#[test]
fn who_has_a_reservation_keeps_his_rate_and_the_flood_its_floor() {
    let [alone, _] = Server::new(BTreeMap::new()).run(5, [1, 0]);
    let [free, _] = Server::new(BTreeMap::new()).run(5, [1, 64]);
    assert!(free < alone / 4, "there is something to protect: {free} of {alone}");
    let mut s = Server::new(reserved(2000));
    s.run(5, [1, 0]);
    s.run(15, [1, 64]);
    let [kept, flood] = s.run(20, [1, 64]);
    assert!(kept * 10 >= alone * 8, "{kept} of {alone}");
    assert!(flood >= 150, "{flood}");
    assert!(s.limits.shares.held > 0 && s.limits.shares.unheld == 0);
}

#[test]
fn others_have_everything_while_nobody_with_a_reservation_is_at_work() {
    let [_, all] = Server::new(BTreeMap::new()).run(5, [0, 64]);
    let mut s = Server::new(reserved(2000));
    let [_, got] = s.run(5, [0, 64]);
    assert_eq!(got, all);
    assert!(s.table.is_empty() && s.limits.shares.next_timer().is_none());
    s.run(5, [1, 64]);
    assert!(s.limits.shares.is_holding() && !s.table.is_empty());
    // He ends: what is held goes, and what comes is not held any more.
    s.run(2, [0, 64]);
    assert!(s.table.is_empty() && s.limits.shares.next_timer().is_none());
    let [_, got] = s.run(5, [0, 64]);
    assert!(got * 100 >= all * 99, "{got} of {all}");
}

#[test]
fn a_reservation_that_is_taken_away_lets_everybody_go() {
    let mut s = Server::new(reserved(2000));
    s.run(5, [1, 64]);
    assert!(!s.table.is_empty());
    s.limits.set(BTreeMap::new(), |_| 1.0, s.now);
    s.table.look(s.now);
    s.run(3, [1, 64]);
    assert!(s.table.is_empty() && !s.limits.shares.is_on());
}

#[test]
fn a_neighbour_that_slows_nobody_down_is_not_held() {
    let mut s = Server::new(reserved(2000));
    let [_, free] = s.run(5, [0, 1]);
    s.run(2, [1, 1]);
    let [_, beside] = s.run(20, [1, 1]);
    assert!(beside * 4 >= free * 3, "{beside} of {free}");
}

#[test]
fn beyond_his_reservation_he_is_one_of_the_others() {
    let now = Duration::from_secs(100);
    let mut limits = Limits::default();
    limits.set(reserved(10), |_| 1.0, now);
    let his = ids(&limits, "rbd_data.10ab.0");
    let ahead = |limits: &mut Limits, now: Duration| {
        let goes = (0..30).filter(|_| limits.class(his, &WRITE, now).1);
        goes.count()
    };
    assert_eq!(ahead(&mut limits, now), 10);
    assert_eq!(ahead(&mut limits, now + Duration::from_millis(500)), 5);
    assert_eq!(ahead(&mut limits, now + Duration::from_secs(60)), 10, "no more is kept");
    let now = now + Duration::from_secs(60);
    limits.shares.step(now);
    let (class, first) = limits.class(his, &WRITE, now);
    assert!(!first && class != his && class.always() == his);
    // What nobody limits and what is not about data has no part in it.
    let other = ids(&limits, "rbd_data.20cd.0");
    assert_eq!(limits.class(other, &Cost::default(), now), (Ids::default(), false));
    assert!(!limits.class(other, &WRITE, now).0.is_empty());
}

/// Drives it for so long with operations that go ahead, each 1 ms after the other. The least part that others had.
fn drive(s: &mut Shares, now: &mut Duration, long: Duration, took: impl Fn(&Shares) -> Duration) -> f64 {
    let end = *now + long;
    let mut least: f64 = 1.0;
    while *now < end {
        *now += Duration::from_millis(1);
        let took = took(s);
        s.goes_ahead(*now);
        s.answered(*now, took);
        s.step(*now);
        least = least.min(s.part());
    }
    least
}

#[test]
fn a_floor_is_kept_and_one_that_does_not_help_ends() {
    let (mut s, mut now) = (Shares::default(), Duration::from_secs(100));
    s.set(true);
    drive(&mut s, &mut now, PROBE * 2, |_| DISK);
    // Whatever is held does not help.
    let least = drive(&mut s, &mut now, Duration::from_secs(6), |_| DISK * 3);
    assert_eq!(least, FLOOR);
    assert!(s.ceiling().is_some_and(|units| units >= 64.0), "{:?}", s.ceiling());
    // At the next probe that is known.
    drive(&mut s, &mut now, PROBE_EVERY * 2, |_| DISK * 3);
    assert_eq!(s.part(), 1.0);
    // One operation in a while is no load.
    let before = now;
    while s.next_timer().is_some() {
        now += Duration::from_millis(250);
        s.step(now);
    }
    assert!(now - before <= Duration::from_millis(1500));
}

#[test]
fn recovery_and_scrub_have_the_same_share_and_a_floor() {
    let mut qos = Qos::default();
    assert_eq!(qos.sixteenths(), 16);
    let mut now = Duration::from_secs(100);
    let shares = &mut qos.limits.shares;
    shares.set(true);
    drive(shares, &mut now, PROBE * 2, |_| DISK);
    drive(shares, &mut now, Duration::from_secs(6), |s| {
        // As slow as what the others do.
        DISK.mul_f64(1.0 + s.part())
    });
    let part = shares.part();
    assert!((FLOOR..0.3).contains(&part), "{part}");
    assert!((1..=5).contains(&qos.sixteenths()));
}
