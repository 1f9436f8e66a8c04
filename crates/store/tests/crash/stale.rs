//! What a life left unfinished in the log never comes back in a later life.
//!
//! Two cuts. The first leaves a batch of which something is missing: a sector of its records, or direct
//! extents that its flush was to cover. The store opens without it. The next life then writes exactly what
//! was missing (the same data, to the same blocks or to the same place in the log), and the second cut keeps
//! that and loses the rest. Without the flushed marker that begins each life, the old batch would be whole
//! now, and a transaction that was never acknowledged, and that the life between had not seen, would appear.
//! Random cuts do not find this: it needs the second life to repeat the first.

use crate::common::*;
use crate::run::Run;
use crate::sequences;
use bytes::Bytes;
use io::disk::sim::SimDisk;
use types::{Op, Transaction};

/// As a direct extent; in the record over two sectors, several, and several blocks.
pub const LENGTHS: [usize; 4] = [8192, 600, 2000, 7000];
/// Survivors at each call of both lives.
const TORN: u64 = 16;

/// Metadata that tells the lives apart, then data that is the same in both.
fn work(life: u8, len: usize) -> Transaction {
    let mut t = Transaction::new(coll(0));
    t.ops = vec![
        Op::SetMeta {
            meta: Bytes::from(vec![life; 40]),
        },
        Op::Write {
            oid: oid(6),
            offset: 0,
            data: Bytes::from(vec![77; len]),
        },
    ];
    t
}

/// Survivors of two lives with that much data in each; returns the number of second cuts.
pub fn two_lives(len: usize, prepare: impl Fn(&SimDisk)) -> u64 {
    let (disk, model) = sequences::prepared(None);
    prepare(&disk);
    let mut first = Run::on(disk, &model, format!("first life, {len} bytes"));
    first.disk.sample_each(1, [0, 0, TORN * 1000]);
    first.queue(work(1, len));
    while first.store.pump_log() {}
    let mut cuts = 0;
    for (i, left) in first.disk.survivors().into_iter().enumerate() {
        prepare(&left);
        let mut second = Run::on(left, &model, format!("second life {i}, {len} bytes"));
        if second.store.queued() as usize == first.history.len() - 1 {
            continue; // All of it survived.
        }
        second.disk.sample_each(i as u64, [0, 0, TORN * 1000]);
        second.queue(work(2, len));
        let acked = second.store.durable();
        while second.store.pump_log() {}
        second.verify(acked);
        cuts += second.cuts;
    }
    cuts
}

#[test]
fn an_unfinished_batch_never_comes_back() {
    let mut cuts = 0;
    for len in LENGTHS {
        cuts += two_lives(len, |_| {});
    }
    println!("{cuts} second cuts");
    assert!(cuts > 500);
}
