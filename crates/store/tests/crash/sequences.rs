//! Every sequence of up to three operations out of an alphabet that has all kinds, with cuts at every call.
//!
//! They begin on a prepared store: objects in the index, some of them sharing blocks, others only in the
//! log. How log and checkpoint are driven between the operations is one of four *schedules*: sequences of
//! one and two operations run under all four, those of three under one each, chosen by their number.

use crate::common::*;
use crate::run::Run;
use bytes::Bytes;
use io::disk::sim::{Dice, SimDisk};
use std::sync::OnceLock;
use store::{Algorithm, Compression};
use types::{EVersion, Op, SPgId, Transaction};

pub const SCHEDULES: u64 = 4;

fn bytes(len: usize, v: u8) -> Bytes {
    Bytes::from(vec![v; len])
}

fn write(n: u64, offset: u64, len: usize, v: u8) -> Op {
    Op::Write {
        oid: oid(n),
        offset,
        data: bytes(len, v),
    }
}

fn one(c: SPgId, ops: Vec<Op>) -> Transaction {
    Transaction { collection: c, ops }
}

/// The store that all sequences begin with, its model, and how much of it a checkpoint holds: one that compresses nothing, and
/// one in which objects share a blob.
pub fn prepared(compression: Option<Compression>) -> (SimDisk, Model) {
    static PREPARED: [OnceLock<(SimDisk, Model)>; 2] = [const { OnceLock::new() }; 2];
    let (disk, model) = PREPARED[usize::from(compression.is_some())].get_or_init(|| {
        let compression = compression.map(|c| Compression {
            algorithm: Algorithm::Lz4,
            max_blob: 16 << 10,
            ..c
        });
        let mut run = Run::new("preparation".into()).compressed(compression);
        run.queue(one(coll(1), vec![Op::CreateCollection]));
        run.queue(Generator::first());
        let (a, b) = (oid(0), oid(2));
        let entries = |v: u8| (1..5).map(|k| (bytes(2, k), bytes(20, v + k))).collect();
        let entry = |n| Op::LogAppend {
            version: EVersion::new(1, n),
            entry: bytes(25, n as u8),
        };
        let mut ops = vec![write(0, 0, 20_000, 101), write(4, 0, 6000, 102)];
        ops.extend([
            Op::SetAttrs {
                oid: a.clone(),
                attrs: vec![(bytes(1, 1), bytes(9, 1)), (bytes(1, 2), bytes(9, 2))],
            },
            Op::OmapSet {
                oid: a.clone(),
                entries: entries(10),
            },
            Op::OmapSetHeader {
                oid: a.clone(),
                header: bytes(7, 7),
            },
            Op::Clone { src: a, dst: b },
            Op::SetMeta { meta: bytes(12, 3) },
        ]);
        ops.extend((1..4).map(entry));
        run.queue(one(coll(0), ops));
        run.store.checkpoint().unwrap();
        let late = vec![
            write(0, 4096, 4096, 103),
            write(2, 9000, 300, 104),
            Op::OmapSet {
                oid: oid(0),
                entries: vec![(bytes(2, 9), bytes(5, 9))],
            },
            entry(4),
        ];
        run.queue(one(coll(0), late));
        run.store.wait(run.store.queued()).unwrap();
        (run.disk.copy(), run.model().clone())
    });
    (disk.copy(), model.clone())
}

/// Every kind of operation, on three objects that exist (0 and 2 share blocks) and one that does not (6).
/// The match below fails to compile when a kind is added; a test sees that none is missing here.
pub fn alphabet() -> Vec<(u32, Op)> {
    let (a, b, c, d) = (oid(0), oid(2), oid(4), oid(6));
    let key = |k: u8| bytes(2, k);
    let mut ops = vec![
        Op::Touch { oid: d.clone() },
        write(0, 700, 512, 1),
        write(0, 4096, 4096, 2),
        write(0, 3000, 6000, 3),
        write(0, 0, 16_384, 4),
        write(2, 4096, 4096, 5),
        write(6, 10_000, 9000, 6),
        Op::Zero {
            oid: a.clone(),
            offset: 500,
            len: 9000,
        },
        Op::Truncate {
            oid: a.clone(),
            size: 5000,
        },
        Op::Truncate {
            oid: a.clone(),
            size: 30_000,
        },
        Op::Remove { oid: a.clone() },
        Op::Remove { oid: b.clone() },
        Op::SetAttrs {
            oid: a.clone(),
            attrs: vec![(bytes(1, 1), bytes(10, 7)), (bytes(1, 3), bytes(9, 8))],
        },
        Op::RemoveAttr {
            oid: a.clone(),
            name: bytes(1, 1),
        },
        Op::RemoveAttrs { oid: a.clone() },
        Op::OmapSet {
            oid: a.clone(),
            entries: vec![(key(1), bytes(9, 9)), (key(7), bytes(9, 10))],
        },
        Op::OmapRemove {
            oid: a.clone(),
            keys: vec![key(2), key(7)],
        },
        Op::OmapRemoveRange {
            oid: a.clone(),
            first: key(2),
            last: key(4),
        },
        Op::OmapClear { oid: a.clone() },
        Op::OmapSetHeader {
            oid: a.clone(),
            header: bytes(8, 11),
        },
        Op::Clone {
            src: a.clone(),
            dst: b.clone(),
        },
        Op::Clone {
            src: c.clone(),
            dst: d.clone(),
        },
        Op::CloneRange {
            src: a.clone(),
            dst: c.clone(),
            src_offset: 0,
            len: 9000,
            dst_offset: 4096,
        },
        Op::CloneRange {
            src: a.clone(),
            dst: b,
            src_offset: 100,
            len: 7000,
            dst_offset: 50,
        },
        Op::Rename { src: a, dst: d },
        Op::CreateCollection,
        Op::RemoveCollection,
        Op::SetMeta { meta: bytes(20, 12) },
        Op::LogAppend {
            version: EVersion::new(0, 0),
            entry: bytes(30, 13),
        },
        Op::LogTrim {
            to: EVersion::new(1, 3),
        },
    ];
    let collection = |op: &Op| match op {
        Op::CreateCollection => 2,
        Op::RemoveCollection => 1,
        _ => 0,
    };
    ops.drain(..).map(|op| (collection(&op), op)).collect()
}

/// A name for each kind; the compiler asks for one when a kind is added.
pub fn kind(op: &Op) -> &'static str {
    match op {
        Op::Touch { .. } => "Touch",
        Op::Write { .. } => "Write",
        Op::Zero { .. } => "Zero",
        Op::Truncate { .. } => "Truncate",
        Op::Remove { .. } => "Remove",
        Op::SetAttrs { .. } => "SetAttrs",
        Op::RemoveAttr { .. } => "RemoveAttr",
        Op::RemoveAttrs { .. } => "RemoveAttrs",
        Op::OmapSet { .. } => "OmapSet",
        Op::OmapRemove { .. } => "OmapRemove",
        Op::OmapRemoveRange { .. } => "OmapRemoveRange",
        Op::OmapClear { .. } => "OmapClear",
        Op::OmapSetHeader { .. } => "OmapSetHeader",
        Op::Clone { .. } => "Clone",
        Op::CloneRange { .. } => "CloneRange",
        Op::Rename { .. } => "Rename",
        Op::CreateCollection => "CreateCollection",
        Op::RemoveCollection => "RemoveCollection",
        Op::SetMeta { .. } => "SetMeta",
        Op::LogAppend { .. } => "LogAppend",
        Op::LogTrim { .. } => "LogTrim",
    }
}
pub const KINDS: usize = 21;

/// How many sequences of one length there are.
pub fn count(len: u32) -> u64 {
    (alphabet().len() as u64).pow(len)
}

/// Survivors of each sort kept at each call, in thousandths.
pub type Shares = [u64; 3];

/// Runs one sequence under one schedule, after `prepare` had the disk; returns how many cuts were verified.
pub fn sequence(len: u32, number: u64, schedule: u64, shares: Shares, prepare: impl Fn(&SimDisk)) -> u64 {
    let compression = compression(number);
    let (disk, model) = prepared(compression);
    let disk = with_queues(disk, number);
    let label = format!("sequence {number} of {len}, schedule {schedule}");
    prepare(&disk);
    let mut run = Run::on(disk, &model, label).compressed(compression);
    run.disk.sample_each(number, shares);
    let alphabet = alphabet();
    let n = alphabet.len() as u64;
    for i in 0..len {
        if i + 1 == len {
            // Cuts in what came before are those of shorter sequences.
            run.disk.sample_each(number, shares.map(|s| (s * 6).min(3000)));
        }
        let (c, mut op) = alphabet[(number / n.pow(i) % n) as usize].clone();
        let t = Transaction::new(coll(c));
        if let Op::LogAppend { version, .. } = &mut op {
            *version = EVersion::new(1, 5 + u64::from(i));
        }
        run.step(|r| r.queue(Transaction { ops: vec![op], ..t }));
        drive(&mut run, schedule, i + 1 == len);
    }
    run.disk.sample_each(number, shares);
    run.begin_checkpoint();
    while run.pump() {}
    let acked = run.store.durable();
    assert_eq!(acked, run.store.queued());
    compare(&run.store, run.model(), &run.label);
    // All is flushed and the checkpoint is through: this is what a cut leaves now.
    let left = run.disk.survivor(number);
    let store = open(&left);
    assert_eq!(store.queued(), acked);
    compare(&store, run.model(), &run.label);
    run.cuts + 1
}

/// What happens behind an operation.
fn drive(run: &mut Run, schedule: u64, last: bool) {
    match schedule {
        // Each is durable before the next comes.
        0 => while run.pump() {},
        // All in one batch.
        1 if !last => {}
        1 => while run.pump() {},
        // A checkpoint begins behind each, and is at work while the next comes.
        2 => {
            run.begin_checkpoint();
            for _ in 0..3 {
                run.pump();
            }
        }
        // Writes, not waited for, and all is put to its place before the last.
        _ => {
            run.step(|r| r.store.kick());
            if !last {
                run.begin_checkpoint();
                while run.pump() {}
            }
        }
    }
}

/// Which schedule a long sequence runs under.
pub fn schedule_of(number: u64) -> u64 {
    Dice::new(number).below(SCHEDULES)
}
