//! Somebody with a reservation beside a neighbour that floods: servers that take 200 us for an operation, one after the other, and
//! disks behind them that take 1 ms for any number of them; all in simulated time.

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
/// Clients, and their connections. The last cannot be held.
const QUIET: usize = 0;
const NOISY: usize = 1;
const RUDE: usize = 2;
const IMAGES: [&str; 3] = ["10ab", "20cd", "30ef"];

struct Op {
    client: usize,
    primary: usize,
    since: Duration,
    ahead: bool,
    /// OSDs that have not written it.
    left: usize,
}

#[derive(Default)]
struct One {
    table: Table,
    limits: Limits,
    queue: VecDeque<u64>,
    disk: VecDeque<(Duration, u64)>,
    /// Whose each record is, and of which object.
    held: BTreeMap<u64, (usize, u64)>,
}

/// OSDs: each operation has a primary, and is done when all have written it.
struct Servers {
    all: Vec<One>,
    now: Duration,
    /// What an operation takes of an OSD, and of the disk behind it.
    serves: Duration,
    disk: Duration,
    /// By their objects.
    ops: BTreeMap<u64, Op>,
    objects: u64,
    outstanding: [usize; 3],
    done: [u64; 3],
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

impl Servers {
    fn new(count: usize, rows: &BTreeMap<Subject, Words>) -> Self {
        let mut servers = Self {
            all: (0..count).map(|_| One::default()).collect(),
            now: Duration::from_secs(100),
            serves: SERVES,
            disk: DISK,
            ops: BTreeMap::new(),
            objects: 0,
            outstanding: [0; 3],
            done: [0; 3],
        };
        servers.set(rows);
        servers
    }

    /// The same on a disk that takes 5 ms of each operation's time, and 10 ms more.
    fn slow(rows: &BTreeMap<Subject, Words>) -> Self {
        Self {
            serves: Duration::from_millis(5),
            disk: Duration::from_millis(10),
            ..Self::new(1, rows)
        }
    }

    fn set(&mut self, rows: &BTreeMap<Subject, Words>) {
        let share = 1.0 / self.all.len() as f64;
        for one in &mut self.all {
            one.limits.set(rows.clone(), |_| share, self.now);
            one.table.look(self.now);
        }
    }

    fn shares(&self) -> &Shares {
        &self.all[0].limits.shares
    }

    fn nobody_waits(&self) -> bool {
        self.all.iter().all(|one| one.table.is_empty())
    }

    fn rests(&self) -> bool {
        self.all
            .iter()
            .all(|one| one.limits.shares.next_timer().is_none())
    }

    fn send(&mut self, client: usize, object: u64) {
        let pg = SPgId::replicated(PgId::new(POOL, 1));
        let oid = format!("rbd_data.{}.{object}", IMAGES[client]);
        let conn = ConnId(client as u64);
        let left = self.all.len();
        let primary = object as usize % left;
        let (now, one) = (self.now, &mut self.all[primary]);
        let arrival = Arrival {
            conn,
            client: client as u64,
            pg,
            named: pg,
            era: Era {
                interval: 5,
                pg_num: 8,
            },
            ids: ids(&one.limits, &oid),
            object: &HObject::new(POOL, 7, "".into(), "".into(), oid.into(), NOSNAP),
            cost: WRITE,
            writes: true,
            can_be_held: client != RUDE,
        };
        match one.table.arrive(&arrival, &mut one.limits, now) {
            verdict @ (Verdict::Go | Verdict::Ahead) => {
                let op = Op {
                    client,
                    primary,
                    since: now,
                    ahead: verdict == Verdict::Ahead,
                    left,
                };
                self.ops.insert(object, op);
                self.all.iter_mut().for_each(|one| one.queue.push_back(object));
            }
            Verdict::Block(id) => {
                one.held.insert(id, (client, object));
                one.table.acked(conn, id, now, &mut Vec::new());
            }
            Verdict::Drop => panic!("each operation has an object of its own"),
        }
    }

    fn step(&mut self, depths: [usize; 3]) {
        self.now += self.serves;
        for client in [QUIET, NOISY, RUDE] {
            while self.outstanding[client] < depths[client] {
                self.outstanding[client] += 1;
                self.objects += 1;
                self.send(client, self.objects);
            }
        }
        for at in 0..self.all.len() {
            self.serve(at);
        }
    }

    fn serve(&mut self, at: usize) {
        let (now, one) = (self.now, &mut self.all[at]);
        // Clocks agree within milliseconds.
        if one
            .limits
            .shares
            .step(now, now + Duration::from_millis(3) * at as u32)
        {
            one.table.look(now);
        }
        let mut out = Vec::new();
        one.table.step(&mut one.limits, |_, _, _| false, now, &mut out);
        let free: Vec<(usize, u64)> = out.iter().map(|n| one.held.remove(&n.id).unwrap()).collect();
        if let Some(object) = one.queue.pop_front() {
            one.disk.push_back((now + self.disk, object));
        }
        let mut written = Vec::new();
        while let Some((until, object)) = one.disk.front().copied()
            && until <= now
        {
            one.disk.pop_front();
            written.push(object);
        }
        for (client, object) in free {
            self.send(client, object);
        }
        for object in written {
            self.written(object);
        }
    }

    fn written(&mut self, object: u64) {
        let op = self.ops.get_mut(&object).unwrap();
        op.left -= 1;
        if op.left > 0 {
            return;
        }
        let op = self.ops.remove(&object).unwrap();
        self.done[op.client] += 1;
        self.outstanding[op.client] -= 1;
        if op.ahead {
            let shares = &mut self.all[op.primary].limits.shares;
            shares.answered(self.now, self.now - op.since);
        }
    }

    /// What each client got per second.
    fn run(&mut self, seconds: u64, depths: [usize; 3]) -> [u64; 3] {
        let before = self.done;
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.step(depths);
        }
        [QUIET, NOISY, RUDE].map(|c| (self.done[c] - before[c]) / seconds)
    }
}

fn nothing() -> BTreeMap<Subject, Words> {
    BTreeMap::new()
}

#[test]
fn who_has_a_reservation_keeps_his_rate_and_the_flood_its_floor() {
    // With several OSDs all have to hold the others at once to see what operations take without them.
    for count in [1, 3] {
        let [alone, ..] = Servers::new(count, &nothing()).run(5, [1, 0, 0]);
        let [free, ..] = Servers::new(count, &nothing()).run(5, [1, 64, 0]);
        assert!(
            free < alone / 4,
            "there is something to protect: {free} of {alone}"
        );
        let mut s = Servers::new(count, &reserved(2000));
        s.run(20, [1, 64, 0]);
        let [kept, flood, _] = s.run(20, [1, 64, 0]);
        assert!(kept * 10 >= alone * 7, "{count}: {kept} of {alone}");
        assert!(flood >= 150, "{count}: {flood}");
        assert!(s.shares().held > 0 && s.shares().unheld == 0);
    }
}

/// A third of a second of the others' work is under way when a probe begins.
#[test]
fn on_a_slow_disk_the_backlog_is_not_what_is_measured() {
    let [alone, ..] = Servers::slow(&nothing()).run(10, [1, 0, 0]);
    let [free, ..] = Servers::slow(&nothing()).run(10, [1, 64, 0]);
    assert!(free < alone / 4, "{free} of {alone}");
    let mut s = Servers::slow(&reserved(2000));
    s.run(60, [1, 64, 0]);
    let [kept, flood, _] = s.run(30, [1, 64, 0]);
    assert!(kept * 2 >= alone, "{kept} of {alone}");
    assert!(flood >= 30, "{flood}");
}

#[test]
fn who_cannot_be_held_does_not_starve_those_who_can() {
    let mut s = Servers::new(1, &reserved(2000));
    s.run(5, [1, 0, 0]);
    let [_, noisy, rude] = s.run(4, [1, 8, 64]);
    assert!(s.shares().is_holding() && s.shares().unheld > 0);
    assert!(noisy >= 50 && rude > noisy, "{noisy} beside {rude}");
}

#[test]
fn others_have_everything_while_nobody_with_a_reservation_is_at_work() {
    let [_, all, _] = Servers::new(1, &nothing()).run(5, [0, 64, 0]);
    let mut s = Servers::new(1, &reserved(2000));
    let [_, got, _] = s.run(5, [0, 64, 0]);
    assert_eq!(got, all);
    assert!(s.nobody_waits() && s.rests());
    s.run(4, [1, 64, 0]);
    assert!(s.shares().is_holding() && !s.nobody_waits());
    // He ends: what is held goes, and what comes is not held any more.
    s.run(2, [0, 64, 0]);
    assert!(s.nobody_waits() && s.rests());
    let [_, got, _] = s.run(5, [0, 64, 0]);
    assert!(got * 100 >= all * 99, "{got} of {all}");
}

#[test]
fn a_reservation_that_is_taken_away_lets_everybody_go() {
    let mut s = Servers::new(1, &reserved(2000));
    s.run(5, [1, 64, 0]);
    assert!(!s.nobody_waits());
    s.set(&nothing());
    s.run(3, [1, 64, 0]);
    assert!(s.nobody_waits() && !s.shares().is_on());
}

#[test]
fn a_neighbour_that_slows_nobody_down_is_not_held() {
    let mut s = Servers::new(1, &reserved(2000));
    let [_, free, _] = s.run(5, [0, 1, 0]);
    s.run(2, [1, 1, 0]);
    let [_, beside, _] = s.run(20, [1, 1, 0]);
    assert!(beside * 4 >= free * 3, "{beside} of {free}");
}

#[test]
fn beyond_his_reservation_he_is_one_of_the_others() {
    let now = Duration::from_secs(100);
    let mut limits = Limits::default();
    limits.set(reserved(10), |_| 1.0, now);
    let his = ids(&limits, "rbd_data.10ab.0");
    let ahead = |limits: &mut Limits, now: Duration| {
        let goes = (0..30).filter(|_| limits.admit(his, &WRITE, now).2);
        goes.count()
    };
    assert_eq!(ahead(&mut limits, now), 10);
    assert_eq!(ahead(&mut limits, now + Duration::from_millis(500)), 5);
    assert_eq!(
        ahead(&mut limits, now + Duration::from_secs(60)),
        10,
        "no more is kept"
    );
    let now = now + Duration::from_secs(60);
    limits.shares.step(now, now);
    let (class, _, first) = limits.admit(his, &WRITE, now);
    assert!(!first && class.is_other() && class.always() == his);
    // What nobody limits and what is not about data has no part in it.
    let other = ids(&limits, "rbd_data.20cd.0");
    let nothing = limits.admit(other, &Cost::default(), now);
    assert_eq!(nothing, (Ids::default(), Duration::ZERO, false));
    assert!(limits.admit(other, &WRITE, now).0.is_other());
}

/// One subject's operations, driven by hand.
struct Driven {
    shares: Shares,
    now: Duration,
}

const MS: Duration = Duration::from_millis(1);

impl Driven {
    fn new() -> Self {
        let mut shares = Shares::default();
        shares.set(true);
        Self {
            shares,
            now: Duration::from_secs(100),
        }
    }

    /// For so many seconds, one operation in those milliseconds that `comes` says. Of the parts that others had the least, and
    /// the mean.
    fn run(
        &mut self,
        seconds: f64,
        comes: impl Fn(u128) -> bool,
        mut took: impl FnMut(f64) -> Duration,
    ) -> (f64, f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        let (mut least, mut sum, mut count) = (1.0_f64, 0.0, 0.0);
        while self.now < end {
            self.now += MS;
            if comes(self.now.as_millis()) {
                self.shares.go_ahead(1, self.now);
                self.shares.answered(self.now, took(self.shares.part()));
            }
            self.shares.step(self.now, self.now);
            let part = self.shares.part();
            (least, sum, count) = (least.min(part), sum + part, count + 1.0);
        }
        (least, sum / count)
    }
}

fn always(_: u128) -> bool {
    true
}

/// As fast as alone, then slow whatever is held.
fn at_the_floor() -> Driven {
    let mut d = Driven::new();
    d.run(2.0, always, |_| DISK);
    let (least, _) = d.run(6.0, always, |_| DISK * 3);
    assert_eq!(least, FLOOR);
    d
}

#[test]
fn a_floor_is_kept_and_one_that_does_not_help_ends() {
    let mut d = at_the_floor();
    let ceiling = d.shares.ceiling();
    assert!(ceiling.is_some_and(|units| units >= 64.0), "{ceiling:?}");
    // At the next probe that is known, and more is tried every second.
    d.run(25.0, always, |_| DISK * 3);
    assert_eq!(d.shares.part(), 1.0);
    let before = d.now;
    while d.shares.next_timer().is_some() {
        d.now += Duration::from_millis(250);
        d.shares.step(d.now, d.now);
    }
    assert!(d.now - before <= Duration::from_millis(1500));
}

#[test]
fn two_operations_a_second_hold_nobody_at_the_floor() {
    let mut d = at_the_floor();
    d.run(30.0, |ms| ms % 500 == 0, |_| DISK);
    assert!(d.shares.part() > 0.3, "{}", d.shares.part());
}

/// A constant seed: operations that take anything from a quarter of a millisecond to four, whatever others do.
#[test]
fn chance_holds_nobody() {
    // From ten operations a probe little is known.
    for (every, least) in [(1, 0.8), (50, 0.6)] {
        let mut seed = 88_172_645_463_325_252_u64;
        let took = |_: f64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let part = (seed >> 11) as f64 / (1_u64 << 53) as f64;
            DISK.mul_f64((4.0 * part - 2.0).exp2())
        };
        let (_, mean) = Driven::new().run(120.0, |ms| ms % every == 0, took);
        assert!(mean > least, "one in {every} ms: {mean}");
    }
}

/// Every three seconds: ten operations, or a thousand.
#[test]
fn who_comes_and_goes_costs_no_more_than_who_stays() {
    let (least, _) = Driven::new().run(60.0, |ms| ms % 3000 < 10, |_| DISK);
    assert_eq!(least, 1.0, "too few to measure");
    let (least, mean) = Driven::new().run(60.0, |ms| ms % 3000 < 1000, |_| DISK);
    assert!(least == FLOOR && mean > 0.9, "{least} {mean}");
}

#[test]
fn others_are_held_in_a_probe_of_every_ten_seconds_of_the_wall_clock() {
    let mut d = Driven::new();
    d.run(5.0, always, |_| DISK);
    let probes = (PROBE_EVERY.as_millis(), PROBE.as_millis());
    for _ in 0..20_000 {
        d.run(0.001, always, |_| DISK);
        let held = d.now.as_millis() % probes.0 < probes.1;
        assert_eq!(d.shares.is_holding(), held, "{:?}", d.now);
    }
}

#[test]
fn recovery_and_scrub_have_the_same_share_and_a_floor() {
    let mut qos = Qos::default();
    assert_eq!(qos.sixteenths(), 16);
    let mut d = Driven::new();
    d.run(2.0, always, |_| DISK);
    // As slow as what the others do.
    d.run(6.0, always, |part| DISK.mul_f64(1.0 + part));
    let part = d.shares.part();
    assert!((FLOOR..0.3).contains(&part), "{part}");
    qos.limits.shares = d.shares;
    assert!((1..=5).contains(&qos.sixteenths()));
}

/// A constant seed: operations of 0.2 to 0.4 ms, of which one of 25 takes 2 ms, and the more the more others do: twice as many at a
/// quarter of what they can.
fn crowded(seed: &mut u64, part: f64) -> Duration {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    let chance = (*seed >> 11) as f64 / (1_u64 << 53) as f64;
    match chance < 0.04 * (1.0 + 4.0 * part) {
        true => MS * 2,
        false => Duration::from_micros(200 + (chance * 200.0) as u64),
    }
}

const SEEDS: [u64; 3] = [88_172_645_463_325_252, 7_777_777_777, 123_456_789_012_345];

#[test]
fn what_was_too_much_is_not_tried_again_and_again() {
    let (mut late, mut all) = (0, 0.0);
    for mut seed in SEEDS {
        let mut d = Driven::new();
        d.run(60.0, always, |part| crowded(&mut seed, part));
        for _ in 0..60 {
            let (_, mean) = d.run(2.0, always, |part| crowded(&mut seed, part));
            (late, all) = (late + u32::from(mean > 0.25), all + mean);
        }
    }
    // Others have something, and nearly never as much as doubles what is late.
    assert!(late <= 6, "{late} of 180 times");
    assert!((0.05..0.15).contains(&(all / 180.0)), "{}", all / 180.0);
}

#[test]
fn what_was_too_much_once_is_given_when_it_is_not_any_more() {
    for mut seed in SEEDS {
        let mut d = Driven::new();
        d.run(60.0, always, |part| crowded(&mut seed, part));
        assert!(d.shares.part() < 0.3);
        let mut seconds = 0;
        while d.shares.part() < 1.0 && seconds < 300 {
            d.run(1.0, always, |_| crowded(&mut seed, 0.0));
            seconds += 1;
        }
        assert!(seconds <= 90, "{seconds} s");
    }
}
