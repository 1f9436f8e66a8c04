//! What compression costs and saves: `cargo run -p store --example compression -- DIR [rounds=3]`
//!
//! Objects of 4 MiB of text like a server's log are written, and read back in a cold store by 4 MiB and by 4 KiB, once without
//! compression and once with each algorithm. Printed are the least of the rounds for processor time (user and system, all
//! threads), and the bytes of the disk.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

use bytes::Bytes;
use io::disk::sim::Dice;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{Algorithm, Compression, Options, Store};
use types::{HObject, NOSNAP, ObjectId, Op, PgId, SPgId, Transaction};

const OBJECT: usize = 4 << 20;
const OBJECTS: u64 = 32;
const SMALL_READS: u64 = 4000;

/// As tests/store/test_compression.py makes it.
fn text() -> Bytes {
    let words = [
        "error",
        "warning",
        "info",
        "connection",
        "from",
        "client",
        "closed",
        "opened",
        "osd",
        "request",
    ];
    let mut dice = Dice::new(1);
    let mut out = String::new();
    while out.len() < OBJECT {
        let mut word = || words[dice.below(10) as usize];
        let line = format!("{:010} {} {} {} ", out.len(), word(), word(), word());
        out += &format!("{line}{:08x}\n", dice.below(1 << 32));
    }
    let mut out = out.into_bytes();
    out.truncate(OBJECT);
    out.into()
}

/// Processor time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let behind_name = stat.rsplit(") ").next().unwrap();
    let fields: Vec<&str> = behind_name.split(' ').collect();
    // utime and stime, in ticks.
    let ticks = |i: usize| fields[i].parse::<u64>().unwrap();
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

fn oid(n: u64) -> ObjectId {
    let name = Bytes::from(n.to_string());
    ObjectId::replicated(HObject::new(
        1,
        n as u32,
        Bytes::new(),
        Bytes::new(),
        name,
        NOSNAP,
    ))
}

/// Processor time a MiB written, a MiB read by 4 MiB, a 4 KiB read; bytes on the disk.
fn round(dir: &Path, text: &Bytes, algorithm: Option<Algorithm>) -> [f64; 4] {
    let dir = dir.join("compression");
    let _ = std::fs::remove_dir_all(&dir);
    let options = Options::for_memory(256 << 20);
    Store::mkfs(&dir, &options).unwrap();
    let mut store = Store::open(&dir, &options, Arc::new(|| {})).unwrap();
    let compression = algorithm.map(|algorithm| Compression {
        algorithm,
        min_blob: 8 << 10,
        max_blob: 64 << 10,
        required_ratio: 0.875,
    });
    let transaction = |op| Transaction {
        collection: SPgId::replicated(PgId::new(1, 0)),
        ops: vec![op],
    };
    store.queue(transaction(Op::CreateCollection)).unwrap();
    let before = cpu();
    for n in 0..OBJECTS {
        let write = Op::Write {
            oid: oid(n),
            offset: 0,
            data: text.clone(),
        };
        let seq = store.queue_compressed(transaction(write), compression).unwrap();
        store.wait(seq).unwrap();
    }
    let written = cpu() - before;
    let used = store.usage()[&1].allocated;
    store.close().unwrap();
    let store = Store::open(&dir, &options, Arc::new(|| {})).unwrap();
    let before = cpu();
    for n in 0..OBJECTS {
        assert!(store.read(&oid(n), 0, OBJECT as u64).unwrap() == text);
    }
    let read = cpu() - before;
    let (before, mut dice) = (cpu(), Dice::new(2));
    for _ in 0..SMALL_READS {
        let (n, block) = (dice.below(OBJECTS), dice.below(OBJECT as u64 / 4096));
        let got = store.read(&oid(n), block * 4096, 4096).unwrap();
        assert!(got == text[block as usize * 4096..][..4096]);
    }
    let small = cpu() - before;
    drop(store);
    std::fs::remove_dir_all(&dir).unwrap();
    let mib = ((OBJECTS * OBJECT as u64) >> 20) as f64;
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    [
        ms(written) / mib,
        ms(read) / mib,
        ms(small) * 1e3 / SMALL_READS as f64,
        used as f64,
    ]
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("a directory on the disk to be measured");
    let rounds = args
        .next()
        .and_then(|r| r.strip_prefix("rounds=")?.parse().ok())
        .unwrap_or(3);
    let text = text();
    println!("           write ms/MiB   read ms/MiB   4 KiB read us   of the disk");
    let all = std::iter::once(None).chain(Algorithm::ALL.map(Some));
    for algorithm in all {
        let mut least = [f64::MAX; 4];
        for _ in 0..rounds {
            let found = round(Path::new(&dir), &text, algorithm);
            least.iter_mut().zip(found).for_each(|(l, f)| *l = l.min(f));
        }
        let part = least[3] * 100.0 / (OBJECTS * OBJECT as u64) as f64;
        let name = algorithm.map_or("none".into(), |a| format!("{a:?}"));
        println!(
            "{name:<10} {:>12.2} {:>13.2} {:>15.1} {part:>12.1}%",
            least[0], least[1], least[2]
        );
    }
}
