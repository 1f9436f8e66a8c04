//! The real disk and the helper threads: concurrency, kill -9 of a writing process, restarts.
//!
//! `SKEP_KILL_ROUNDS` sets how often a process is killed (default 200), `SKEP_KILL_IN` in which directory its
//! store lies (default: the system's for temporary files).

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

mod common;

use bytes::Bytes;
use common::*;
use std::io::{BufRead, BufReader};
use std::ops::Bound;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{Options, Store, View};
use types::{EVersion, Op, SPgId, Transaction};

const DIR: &str = "SKEP_KILL_DIR";

fn threaded() -> Options {
    Options {
        log_bytes: 2 << 20,
        max_bytes: Some(64 << 20),
        overlay_bytes: 256 << 10,
        grow_bytes: 4 << 20,
        threads: true,
        ..options()
    }
}

/// Transaction number `n`: always valid behind those before it, and a function of its number alone.
fn numbered(n: u64) -> Transaction {
    if n == 1 {
        return Generator::first();
    }
    let mut t = Transaction::new(coll(0));
    let o = oid(n % 4);
    t.ops.push(Op::Touch { oid: o.clone() });
    let fill = |len: usize| Bytes::from(vec![n as u8; len]);
    let offset = n.wrapping_mul(0x9e37_79b9) % 40 * 2048;
    t.ops.push(match n % 11 {
        0 => Op::Write {
            oid: o.clone(),
            offset,
            data: fill(30_000),
        },
        1 => Op::Zero {
            oid: o.clone(),
            offset,
            len: 7000,
        },
        2 => Op::Truncate {
            oid: o.clone(),
            size: offset,
        },
        3 => Op::Clone {
            src: o.clone(),
            dst: oid((n + 1) % 4),
        },
        4 => Op::OmapSet {
            oid: o.clone(),
            entries: vec![(fill(2), fill(20))],
        },
        5 => Op::SetAttrs {
            oid: o.clone(),
            attrs: vec![(fill(1), fill(30))],
        },
        6 if n.is_multiple_of(5) => Op::Remove { oid: o.clone() },
        7 if n.is_multiple_of(5) => Op::OmapClear { oid: o.clone() },
        8 => Op::CloneRange {
            src: o.clone(),
            dst: oid((n + 1) % 4),
            src_offset: offset / 4096 * 4096,
            len: 20_000,
            dst_offset: 8192,
        },
        _ => Op::Write {
            oid: o.clone(),
            offset,
            data: fill(4096),
        },
    });
    t.ops.push(Op::LogAppend {
        version: EVersion::new(1, n),
        entry: fill(30),
    });
    if n.is_multiple_of(50) {
        t.ops.push(Op::LogTrim {
            to: EVersion::new(1, n - 40),
        });
    }
    t
}

/// The writing process: started by `killed_processes_lose_nothing`, does nothing on its own.
#[test]
fn kill_child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let mut store = Store::open(Path::new(&dir), &threaded(), nobody()).unwrap();
    println!("durable {}", store.queued());
    loop {
        for _ in 0..5 {
            let n = store.queued() + 1;
            assert_eq!(store.queue(numbered(n)).unwrap(), n);
        }
        store.kick();
        store.turned();
        println!("durable {}", store.durable());
    }
}

/// Lets the writer live for so many of its lines (none: it is killed while it opens) and a moment longer;
/// returns the last transaction that it called durable.
fn live_and_die(dir: &Path, lines_wanted: u64, moment: Duration) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["kill_child", "--exact", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut numbers = lines.map_while(Result::ok).filter_map(|line| {
        let (_, n) = line.split_once("durable ")?;
        n.trim().parse().ok()
    });
    let mut acked = 0;
    for _ in 0..lines_wanted {
        acked = numbers.next().expect("the writer lives");
    }
    std::thread::sleep(moment);
    child.kill().unwrap();
    child.wait().unwrap();
    numbers.last().unwrap_or(acked)
}

/// What a dead writer left, looked at without changing it, so that the next one recovers by itself. Returns the
/// number of its last transaction.
fn look(dir: &Path, model_of: &mut dyn FnMut(u64) -> Model, what: &str) -> u64 {
    let view = View::open(dir, &threaded()).unwrap();
    let newest = |c: &SPgId| view.log_entries(c).unwrap().last().map_or(1, |(v, _)| v.version);
    // Each transaction appends its number to the log, but the first, which makes the collection.
    let k = view.collections().first().map_or(0, newest);
    let model = model_of(k);
    let start = types::ObjectId {
        shard: i8::MIN,
        object: types::HObject::min(),
    };
    let listed = view.list(&start, usize::MAX).unwrap();
    assert_eq!(
        listed,
        model.objects.keys().cloned().collect::<Vec<_>>(),
        "{what}"
    );
    for (oid, o) in &model.objects {
        assert!(
            view.read(oid, 0, u64::MAX).unwrap() == o.data,
            "{what}: data of {oid:?}"
        );
        assert_eq!(
            view.attrs(oid).unwrap(),
            o.attrs.clone().into_iter().collect::<Vec<_>>(),
            "{what}"
        );
        let page = view
            .omap_range(oid, Bound::Unbounded, usize::MAX, usize::MAX)
            .unwrap();
        assert_eq!(
            page.entries,
            o.omap.clone().into_iter().collect::<Vec<_>>(),
            "{what}"
        );
    }
    for (c, m) in &model.collections {
        let log: Vec<_> = m.log.clone().into_iter().collect();
        assert_eq!(view.log_entries(c).unwrap(), log, "{what}");
    }
    k
}

#[test]
fn killed_processes_lose_nothing() {
    let rounds: u64 = std::env::var("SKEP_KILL_ROUNDS")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(200);
    let dir = match std::env::var("SKEP_KILL_IN") {
        Ok(parent) => tempfile::tempdir_in(parent).unwrap(),
        Err(_) => tempfile::tempdir().unwrap(),
    };
    Store::mkfs(dir.path(), &threaded()).unwrap();
    let (mut model, mut at, mut last) = (Model::default(), 0, 0);
    let mut model_of = |k: u64| {
        while at < k {
            at += 1;
            model = model.after(&numbered(at)).unwrap();
        }
        assert_eq!(at, k, "less came back than before");
        model.clone()
    };
    for round in 0..rounds {
        let lines = if round % 5 == 4 { 0 } else { 1 + round * 37 % 40 };
        let moment =
            Duration::from_micros(round * 7919 % 3000 + u64::from(lines == 0) * (round * 101 % 9000));
        let acked = live_and_die(dir.path(), lines, moment);
        let what = format!("round {round}");
        let k = look(dir.path(), &mut model_of, &what);
        assert!(k >= acked.max(last), "{what}: {acked} was durable, {k} came back");
        last = k;
        let report = Store::check(dir.path(), &threaded()).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.problems);
    }
    let store = Store::open(dir.path(), &threaded(), nobody()).unwrap();
    compare(&store, &model_of(last), "at the end");
    println!("{rounds} processes killed, {last} transactions");
    assert!(last > rounds, "only {last} transactions in all rounds");
}

#[test]
fn threads_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    Store::mkfs(dir.path(), &threaded()).unwrap();
    let (mut model, mut g) = (Model::default(), Generator::new(4));
    let calls = Arc::new(AtomicU64::new(0));
    for life in 0..4 {
        let woken = calls.clone();
        let waker: store::Waker = Arc::new(move || {
            woken.fetch_add(1, Ordering::Relaxed);
        });
        let mut store = Store::open(dir.path(), &threaded(), waker).unwrap();
        compare(&store, &model, &format!("life {life}"));
        if life == 0 {
            store.queue(Generator::first()).unwrap();
            model = model.after(&Generator::first()).unwrap();
        }
        for i in 0..400 {
            let t = g.transaction();
            match (store.queue(t.clone()), model.after(&t)) {
                (Ok(_), Some(m)) => model = m,
                (Err(e), None) => assert!(e.is_refusal(), "{e}"),
                (r, m) => panic!("{r:?}, the model says {}", m.is_some()),
            }
            if i % 10 == 0 {
                store.kick();
            }
            if i % 50 == 0 {
                compare(&store, &model, &format!("life {life} step {i}"));
            }
        }
        store.wait(store.queued()).unwrap();
        assert_eq!(store.durable(), store.queued());
        assert!(calls.load(Ordering::Relaxed) > 0);
        if life == 0 {
            store.checkpoint().unwrap();
            assert!(store.counters().checkpoints > 0);
        }
        match life % 2 {
            0 => store.close().unwrap(),
            _ => drop(store),
        }
    }
    assert!(Store::check(dir.path(), &threaded()).unwrap().is_clean());
}
