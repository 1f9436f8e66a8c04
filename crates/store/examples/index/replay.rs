//! Opening a store with many objects: after a clean end, and after a kill with a full log of records of one sort on
//! objects chosen at random. With `cold` the index is out of the page cache, as after a reboot.

use super::layers::{fresh, oid};
use super::{rows::Dice, usage};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Options, Store};
use types::{Op, PgId, SPgId, Transaction};

/// What a log of the default size holds.
const LOG_BYTES: u64 = 64 << 20;

fn transaction(ops: Vec<Op>) -> Transaction {
    let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
    t.ops = ops;
    t
}

/// Queues until the log has as much as a default one can have, without any checkpoint. Returns how many.
fn fill(store: &mut Store, mut next: impl FnMut() -> Vec<Op>) -> u64 {
    let before = store.counters();
    let mut n = 0;
    while store.counters().log_bytes - before.log_bytes < LOG_BYTES - (2 << 20) {
        for _ in 0..32 {
            store.queue(transaction(next())).unwrap();
            n += 1;
        }
        store.wait(store.queued()).unwrap();
    }
    assert_eq!(store.counters().checkpoints, before.checkpoints);
    n
}

pub fn measure(dir: &Path, objects: u64, cold: bool) {
    let quiet = Options {
        // Half of such a log is a full one of the default size, and starts no checkpoint.
        log_bytes: 2 * LOG_BYTES,
        host_reserve_bytes: 0,
        checkpoint_after: Duration::from_secs(3600),
        ..Options::default()
    };
    let large = Options {
        overlay_bytes: 4 << 30,
        ..quiet.clone()
    };
    let mut store = fresh(dir, &quiet);
    for n in 0..objects {
        let data = Bytes::from_static(&[7; 4096]);
        let attrs = vec![(Bytes::from_static(b"_"), data.slice(..270))];
        let (oid, offset) = (oid(n), 0);
        let write = Op::Write {
            oid: oid.clone(),
            offset,
            data,
        };
        store
            .queue(transaction(vec![write, Op::SetAttrs { oid, attrs }]))
            .unwrap();
    }
    store.checkpoint().unwrap();
    store.close().unwrap();
    let start = Instant::now();
    let mut store = Store::open(dir, &large, Arc::new(|| {})).unwrap();
    println!(
        "{objects} objects: open after a clean end {} ms",
        start.elapsed().as_millis()
    );
    let mut dice = Dice(88172645463325252);
    let data = Bytes::from_static(&[9; 4096]);
    let kinds = [
        ("4 KiB overwrites", 4096),
        ("attributes of 300 bytes", 300),
        ("omap rows of 30 bytes", 30),
    ];
    for (name, size) in kinds {
        let n = fill(&mut store, || {
            let oid = oid(dice.below(objects));
            let data = data.slice(..size);
            let key = Bytes::copy_from_slice(&dice.below(1 << 40).to_be_bytes());
            vec![match size {
                4096 => Op::Write { oid, offset: 0, data },
                300 => Op::SetAttrs {
                    oid,
                    attrs: vec![(Bytes::from_static(b"_"), data)],
                },
                _ => Op::OmapSet {
                    oid,
                    entries: vec![(key, data)],
                },
            }]
        });
        drop(store);
        if cold {
            super::uncache(dir);
        }
        let start = Instant::now();
        store = Store::open(dir, &large, Arc::new(|| {})).unwrap();
        println!(
            "replay of a full log, {n} {name}: {} ms; memory {:.0} MiB",
            start.elapsed().as_millis(),
            usage().2 / 1024.0
        );
        store.checkpoint().unwrap();
    }
    drop(store);
    std::fs::remove_dir_all(dir).unwrap();
}
