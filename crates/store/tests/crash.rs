//! Power cuts: after any of them, in any legal state of the unflushed blocks, the store opens, holds
//! exactly the transactions up to some number that is not below what it called durable, passes the
//! check, and goes on.
//!
//! `SKEP_CRASH_CUTS` sets how many cuts the random runs make (default 3000).

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

mod common;

use common::*;
use io::disk::sim::{Call, Dice, SimDisk};
use std::io::ErrorKind;
use store::Store;
use types::{Op, Transaction};

/// A store on a simulated disk, with the model at every transaction number.
struct Run {
    disk: SimDisk,
    store: Store,
    /// By transaction number; 0 is the empty store.
    history: Vec<Model>,
    cuts: u64,
    label: String,
}

impl Run {
    fn new(label: String) -> Self {
        let disk = fresh();
        let store = open(&disk);
        Self {
            disk,
            store,
            history: vec![Model::default()],
            cuts: 0,
            label,
        }
    }

    fn queue(&mut self, t: Transaction) {
        let wanted = self.history.last().unwrap().after(&t);
        match (self.store.queue(t.clone()), wanted) {
            (Ok(seq), Some(m)) => {
                self.history.push(m);
                assert_eq!(seq as usize, self.history.len() - 1);
            }
            (Err(e), None) => assert!(e.is_refusal(), "{e}"),
            (Err(store::Error::NoSpace { .. } | store::Error::TooBig { .. }), Some(_)) => {}
            (r, m) => panic!(
                "{}: {r:?}, but the model says {}: {}",
                self.label,
                m.is_some(),
                brief(&t)
            ),
        }
    }

    /// Verifies all survivors kept since the last call; `acked` was durable when the call began.
    fn verify(&mut self, acked: u64) {
        for (i, s) in self.disk.survivors().into_iter().enumerate() {
            self.cuts += 1;
            let what = format!("{} cut {} ({i})", self.label, self.cuts);
            let again = self.cuts.is_multiple_of(4);
            if again {
                s.sample(self.cuts, 300);
            }
            let store = open(&s);
            let k = store.queued();
            assert!(k >= acked, "{what}: {acked} was durable, only {k} came back");
            assert!((k as usize) < self.history.len(), "{what}: {k} was never queued");
            compare(&store, &self.history[k as usize], &what);
            drop(store);
            for s in s.survivors() {
                self.cuts += 1;
                let store = open(&s);
                let j = store.queued();
                assert!(
                    j >= acked && j <= k,
                    "{what}: {acked}..={k}, but {j} after a cut while opening"
                );
                compare(&store, &self.history[j as usize], &what);
            }
            check(&s, &what);
        }
    }

    fn step(&mut self, g: &mut Generator) {
        let acked = self.store.durable();
        match g.dice.below(10) {
            0..=3 => self.queue(g.transaction()),
            4..=6 => drop(self.store.pump_log()),
            7 => self.store.kick(),
            _ => drop((self.store.pump_helper(), self.store.pump_helper())),
        }
        if g.dice.below(60) == 0 {
            let now = std::time::Duration::from_secs(g.dice.below(2) * 1000);
            self.store.tick(now);
        }
        self.verify(acked);
    }
}

fn brief(t: &Transaction) -> String {
    let ops: Vec<String> = t
        .ops
        .iter()
        .map(|op| format!("{op:?}").chars().take(150).collect())
        .collect();
    ops.join("; ")
}

fn cuts_wanted() -> u64 {
    std::env::var("SKEP_CRASH_CUTS")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(3000)
}

#[test]
fn random_runs_survive_cuts() {
    let (mut cuts, mut seed) = (0, 0);
    while cuts < cuts_wanted() {
        seed += 1;
        let mut run = Run::new(format!("seed {seed}"));
        run.disk.sample(seed, 150);
        let mut g = Generator::new(seed);
        run.queue(Generator::first());
        for _ in 0..400 {
            run.step(&mut g);
        }
        compare(&run.store, run.history.last().unwrap(), &run.label);
        let acked = run.store.durable();
        run.verify(acked);
        cuts += run.cuts;
        let Run {
            disk,
            store,
            history,
            label,
            ..
        } = run;
        store.close().unwrap();
        check(&disk, &label);
        let store = open(&disk);
        compare(&store, history.last().unwrap(), &label);
    }
    assert!(cuts >= cuts_wanted());
}

/// A cut, then a new life on what survived, and so on: each life's acknowledged work is there.
#[test]
fn many_lives() {
    for seed in 0..20 {
        let mut disk = fresh();
        let mut model = Model::default();
        let mut g = Generator::new(seed);
        for life in 0..8 {
            let store = open(&disk);
            compare(&store, &model, &format!("seed {seed} life {life}"));
            let base = store.queued() as usize;
            let mut run = Run {
                disk: disk.clone(),
                store,
                history: vec![model.clone(); base + 1],
                cuts: 0,
                label: format!("seed {seed} life {life}"),
            };
            if model.collections.is_empty() {
                run.queue(Generator::first());
            }
            for _ in 0..60 {
                run.step(&mut g);
            }
            let acked = run.store.durable();
            let next = disk.survivor(seed * 100 + life);
            let store = open(&next);
            let k = store.queued();
            assert!(k >= acked && (k as usize) < run.history.len());
            model = run.history[k as usize].clone();
            drop(store);
            check(&next, &run.label);
            disk = next;
        }
    }
}

fn alphabet() -> Vec<Op> {
    let (a, b) = (oid(0), oid(2));
    let data = |n: usize, v: u8| bytes::Bytes::from(vec![v; n]);
    vec![
        Op::Write {
            oid: a.clone(),
            offset: 0,
            data: data(4096, 1),
        },
        Op::Write {
            oid: a.clone(),
            offset: 1000,
            data: data(6000, 2),
        },
        Op::Write {
            oid: a.clone(),
            offset: 0,
            data: data(16384, 3),
        },
        Op::Zero {
            oid: a.clone(),
            offset: 500,
            len: 8000,
        },
        Op::Truncate {
            oid: a.clone(),
            size: 5000,
        },
        Op::Remove { oid: a.clone() },
        Op::Clone {
            src: a.clone(),
            dst: b.clone(),
        },
        Op::CloneRange {
            src: a.clone(),
            dst: b.clone(),
            src_offset: 0,
            len: 9000,
            dst_offset: 4096,
        },
        Op::Rename {
            src: a.clone(),
            dst: b.clone(),
        },
        Op::Write {
            oid: b.clone(),
            offset: 4096,
            data: data(4096, 4),
        },
        Op::OmapSet {
            oid: a.clone(),
            entries: vec![(data(1, 7), data(9, 9))],
        },
        Op::OmapClear { oid: a },
        Op::Remove { oid: b },
    ]
}

/// Every sequence of the alphabet up to a length, one transaction each; a checkpoint falls behind one of
/// them.
fn all_sequences(len: u32, per_mille: u64, keep: impl Fn(u64) -> bool) {
    let ops = alphabet();
    let n = ops.len() as u64;
    for number in (0..n.pow(len)).filter(|n| keep(*n)) {
        let mut run = Run::new(format!("sequence {number} of {len}"));
        let mut dice = Dice::new(number);
        run.queue(Generator::first());
        let mut first = Transaction::new(coll(0));
        first.ops.push(ops[1].clone());
        run.queue(first);
        run.store.wait(2).unwrap();
        run.disk.sample(number, per_mille);
        let checkpoint_behind = dice.below(u64::from(len));
        let mut rest = number;
        for i in 0..len {
            let mut t = Transaction::new(coll(0));
            t.ops.push(ops[(rest % n) as usize].clone());
            rest /= n;
            let acked = run.store.durable();
            run.queue(t);
            if dice.below(3) > 0 {
                run.store.pump_log();
            }
            run.verify(acked);
            let acked = run.store.durable();
            if u64::from(i) == checkpoint_behind {
                run.store.checkpoint().unwrap();
                run.verify(acked);
            }
        }
        compare(&run.store, run.history.last().unwrap(), &run.label);
        let acked = run.store.durable();
        run.store.checkpoint().unwrap();
        run.verify(acked);
    }
}

#[test]
fn all_short_sequences_survive_cuts() {
    all_sequences(1, 500, |_| true);
    all_sequences(2, 150, |_| true);
    let share = (30_000 / cuts_wanted().max(1)).max(1);
    all_sequences(3, 60, |n| n % (share * 2) == 0);
}

#[test]
fn a_failed_flush_stops_the_store_for_good() {
    for (call, after) in [
        (Call::Flush, 0),
        (Call::Flush, 3),
        (Call::Write, 0),
        (Call::Write, 5),
    ] {
        let disk = fresh();
        let mut store = open(&disk);
        let mut g = Generator::new(9);
        let mut history = vec![Model::default()];
        store.queue(Generator::first()).unwrap();
        history.push(Model::default().after(&Generator::first()).unwrap());
        store.wait(1).unwrap();
        disk.fail(call, "block", after, ErrorKind::Other);
        let mut failed = false;
        for _ in 0..200 {
            let t = g.transaction();
            let next = history.last().unwrap().after(&t);
            match store.queue(t) {
                Ok(_) => history.push(next.unwrap()),
                Err(store::Error::Stopped(_)) => failed = true,
                Err(e) => assert!(e.is_refusal(), "{e}"),
            }
            store.pump();
        }
        assert!(failed && store.failed().is_some(), "{call:?} after {after}");
        let acked = store.durable();
        disk.heal();
        let mut refused = Transaction::new(coll(0));
        refused.ops.push(Op::Touch { oid: oid(0) });
        assert!(
            matches!(store.queue(refused), Err(store::Error::Stopped(_))),
            "never retried"
        );
        assert_eq!(store.durable(), acked);
        drop(store);
        for seed in 0..10 {
            let s = disk.survivor(seed);
            let store = open(&s);
            let k = store.queued();
            assert!(k >= acked);
            compare(&store, &history[k as usize], "after EIO");
        }
    }
}

/// Faults in the index stop the store as well.
#[test]
fn a_failed_index_commit_stops_the_store() {
    for call in [Call::Write, Call::Flush] {
        let disk = fresh();
        let mut store = open(&disk);
        store.queue(Generator::first()).unwrap();
        store.wait(1).unwrap();
        disk.fail(call, "index", 0, ErrorKind::Other);
        assert!(store.checkpoint().is_err());
        assert!(store.failed().is_some());
        drop(store);
        for seed in 0..10 {
            let s = disk.survivor(seed);
            let store = open(&s);
            assert_eq!((store.queued(), store.collections()), (1, vec![coll(0)]));
        }
    }
}
