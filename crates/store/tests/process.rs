//! The real disk and the helper threads: concurrency, kill -9 of a writing process, restarts.
//!
//! `SKEP_KILL_ROUNDS` sets how often a process is killed (default 12).

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

mod common;

use bytes::Bytes;
use common::*;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Options, Store};
use types::{EVersion, Op, Transaction};

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
    t.ops.push(match n % 7 {
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
    loop {
        for _ in 0..5 {
            let n = store.queued() + 1;
            assert_eq!(store.queue(numbered(n)).unwrap(), n);
        }
        store.kick();
        std::thread::sleep(std::time::Duration::from_micros(300));
        println!("durable {}", store.durable());
    }
}

#[test]
fn killed_processes_lose_nothing() {
    let rounds: u64 = std::env::var("SKEP_KILL_ROUNDS")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(12);
    let dir = tempfile::tempdir().unwrap();
    Store::mkfs(dir.path(), &threaded()).unwrap();
    let (mut model, mut at) = (Model::default(), 0);
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kill_child", "--exact", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acked = 0;
        let wanted = 5 + round * 37 % 200;
        for _ in 0..wanted {
            let line = lines.next().expect("the writer lives").unwrap();
            if let Some((_, n)) = line.split_once("durable ") {
                acked = n.trim().parse().unwrap();
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            if let Some((_, n)) = line.split_once("durable ") {
                acked = n.trim().parse().unwrap_or(acked);
            }
        }
        let store = Store::open(dir.path(), &threaded(), nobody()).unwrap();
        let k = store.queued();
        assert!(
            k >= acked && k >= at,
            "round {round}: {acked} was durable, {k} came back"
        );
        while at < k {
            at += 1;
            model = model.after(&numbered(at)).unwrap();
        }
        compare(&store, &model, &format!("round {round}"));
        drop(store);
        let report = Store::check(dir.path(), &threaded()).unwrap();
        assert!(report.is_clean(), "round {round}: {:?}", report.problems);
    }
    assert!(at > 100, "only {at} transactions in all rounds");
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
