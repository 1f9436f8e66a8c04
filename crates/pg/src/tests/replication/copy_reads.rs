//! Members that do not lead answer reads: never with less than anybody was shown before.

use super::*;
use crate::broken::{self, Rule};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;

const AGAIN: i32 = -11;

impl Cluster {
    /// A read of all of the object at `osd`, whoever leads.
    fn read_at(&mut self, osd: OsdId, oid: &str) -> u64 {
        self.tid += 1;
        let tid = self.tid;
        self.send_to(osd, tid, oid, vec![read(0, 0)]);
        tid
    }

    fn deliver_all(&mut self, from: OsdId, to: OsdId) {
        while self.links.get(&(from, to)).is_some_and(|q| !q.is_empty()) {
            self.deliver((from, to));
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.alive().into_iter().for_each(|o| self.input(o, Input::Tick));
    }

    /// 0, or the error, and the data.
    fn told(&self, tid: u64) -> Option<(i32, &[u8])> {
        let r = self.answered(tid)?;
        Some((r.result, r.ops.first().map_or(&[], |o| &o.outdata[..])))
    }

    fn with_object() -> Self {
        let mut c = Self::new(3, 3, 2);
        c.run(in_turn(), 300);
        c.send("a", vec![write_full(b"one")]);
        c.run(in_turn(), 200);
        c
    }
}

#[test]
fn a_member_asks_once_and_then_answers() {
    let mut c = Cluster::with_object();
    let first = c.read_at(1, "a");
    assert_eq!(c.told(first), None, "it has no grant");
    c.deliver_all(1, 0);
    c.deliver_all(0, 1);
    assert_eq!(c.told(first), Some((0, &b"one"[..])));
    let (second, absent) = (c.read_at(1, "a"), c.read_at(1, "nothing"));
    assert_eq!(c.told(second), Some((0, &b"one"[..])));
    assert_eq!(c.told(absent).unwrap().0, -2);
    assert!(c.links.values().all(VecDeque::is_empty), "nobody was asked");
}

#[test]
fn what_not_all_have_is_not_shown_and_nor_is_what_was_before() {
    let mut c = Cluster::with_object();
    c.read_at(1, "a");
    c.deliver_all(1, 0);
    c.deliver_all(0, 1);
    let write = c.send("a", vec![write_full(b"two")]);
    let before = c.read_at(1, "a");
    assert_eq!(
        c.told(before),
        Some((0, &b"one"[..])),
        "it has not come, nor was it answered"
    );
    c.deliver_all(0, 1);
    let between = c.read_at(1, "a");
    assert_eq!(c.told(between).unwrap().0, AGAIN);
    c.run(in_turn(), 100);
    assert_eq!(c.told(write).unwrap().0, 0);
    let after = c.read_at(1, "a");
    c.run(in_turn(), 100);
    assert_eq!(c.told(after), Some((0, &b"two"[..])));
}

/// Its primary cannot reach it, and it does not hear that it has left the set.
#[test]
fn who_is_cut_off_stops_before_it_leaves_the_set() {
    let mut c = Cluster::with_object();
    c.read_at(1, "a");
    c.deliver_all(1, 0);
    c.deliver_all(0, 1);
    c.deaf.insert(1);
    c.cut(0, 1);
    let write = c.send("a", vec![write_full(b"two")]);
    let mut shown = 0;
    for _ in 0..100 {
        let read = c.read_at(1, "a");
        let old = c.told(read) == Some((0, &b"one"[..]));
        assert!(
            !old || c.told(write).is_none(),
            "it shows what was before an answered write"
        );
        shown += u32::from(old);
        c.pass(10);
        for osd in [0, 2] {
            c.flush(osd);
        }
        c.deliver_all(0, 2);
        c.flush(2);
        c.deliver_all(2, 0);
        c.decide();
    }
    assert!(shown > 5, "{shown}");
    assert_eq!(c.told(write).unwrap().0, 0);
    assert_eq!(c.group.in_sync, [0, 2]);
}

#[test]
fn a_member_in_sync_of_a_moved_pg_leaves_only_without_a_grant() {
    let mut c = Cluster::with_object();
    c.read_at(2, "a");
    c.deliver_all(2, 0);
    c.deliver_all(0, 2);
    assert!(c.proposals.is_empty());
    c.set_up(&[0, 1]);
    c.group.size = 2;
    c.tell_all();
    assert!(c.proposals.is_empty(), "it may read for a while");
    let read = c.read_at(2, "a");
    assert_eq!(c.told(read), Some((0, &b"one"[..])));
    c.pass(200);
    let last = c.read_at(2, "a");
    assert_eq!(c.told(last), Some((0, &b"one"[..])));
    // It has asked for another one, and gets none.
    c.deliver_all(2, 0);
    c.deliver_all(0, 2);
    assert!(c.proposals.is_empty());
    c.pass(101);
    assert_eq!(c.proposals.pop_front().unwrap().in_sync, [0, 1]);
}

/// A write that was sent, or the floor of a read.
enum Sent {
    Write(u64),
    Read(u64),
}

/// Writes of ascending numbers to one object, and reads of it anywhere, among cuts, kills, moves and deaf members: nothing
/// shows less than was answered or shown before it was asked. Gives the number of reads that members answered.
fn check_history(steps: Vec<(u8, u16, Vec<u16>)>) -> u64 {
    let mut c = Cluster::new(4, 3, 2);
    c.run(in_turn(), 300);
    let mut sent: BTreeMap<u64, Sent> = BTreeMap::new();
    let mut by_members = BTreeSet::new();
    let (mut n, mut shown, mut looked_at, mut served) = (0u64, 0u64, 0, 0);
    for (what, arg, order) in steps {
        let osd = OsdId::from(arg % 4);
        let alive = c.alive();
        let leads = osd == c.group.primary;
        match what {
            0..=3 if alive.contains(&c.group.primary) => {
                n += 1;
                let tid = c.send("o", vec![write_full(&n.to_le_bytes())]);
                sent.insert(tid, Sent::Write(n));
            }
            4..=10 if alive.contains(&osd) => {
                let tid = c.read_at(osd, "o");
                sent.insert(tid, Sent::Read(shown));
                if !leads {
                    by_members.insert(tid);
                }
            }
            11 if alive.contains(&osd) && !leads => {
                c.cut(osd, c.group.primary);
                if arg & 0x100 == 0 {
                    c.deaf.insert(osd);
                }
            }
            12 => {
                c.mend();
                c.deaf.clear();
                c.tell_all();
            }
            13 if alive.len() > 2 && alive.contains(&osd) => c.kill(osd),
            14 if !alive.contains(&osd) => {
                c.deaf.remove(&osd);
                c.start(osd);
                let mut up = c.group.up.clone();
                if up.len() < 3 {
                    up.push(osd);
                    c.set_up(&up);
                }
            }
            15 => {
                let mut up = alive.clone();
                up.rotate_left(arg as usize % alive.len());
                up.truncate(3);
                c.set_up(&up);
            }
            _ => {}
        }
        let mut order = order.into_iter().cycle();
        c.run(|_| order.next().map_or(0, usize::from), 12);
        for r in &c.replies[looked_at..] {
            let value = match (sent.get(&r.tid), r.result) {
                (Some(Sent::Write(n)), 0) => *n,
                (Some(Sent::Read(floor)), 0 | -2) => {
                    let bytes = r.ops[0].outdata.as_ref().try_into();
                    let value = bytes.map_or(0, u64::from_le_bytes);
                    assert!(value >= *floor, "a read shows {value} after {floor}");
                    served += u64::from(by_members.contains(&r.tid));
                    value
                }
                _ => continue,
            };
            shown = shown.max(value);
        }
        looked_at = c.replies.len();
    }
    served
}

fn histories(cases: u32, served: &Cell<u64>) -> Result<(), String> {
    let config = Config {
        cases,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Config::default()
    };
    let steps = prop::collection::vec(
        (0u8..16, any::<u16>(), prop::collection::vec(any::<u16>(), 5..40)),
        20..120,
    );
    let run = TestRunner::new(config).run(&steps, |steps| {
        served.set(served.get() + check_history(steps));
        Ok(())
    });
    run.map_err(|e| e.to_string())
}

#[test]
fn reads_go_forward_wherever_they_are_answered() {
    let served = Cell::new(0);
    histories(300, &served).unwrap();
    assert!(served.get() > 1000, "{}", served.get());
}

#[test]
fn rules_of_copies_reads_that_are_broken_are_noticed() {
    for rule in [Rule::Stable, Rule::Grant] {
        broken::set(Some(rule));
        let fine = histories(3000, &Cell::new(0));
        broken::set(None);
        assert!(fine.is_err(), "{rule:?}");
    }
}
