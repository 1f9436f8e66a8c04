//! Long random sequences against the reference model, with checkpoints, pauses, clean restarts, power cuts
//! and full disks between, shrunk when they fail.
//!
//! Each case has its own bounds: the usual ones, the least that work, or a file that is soon full.
//! `PROPTEST_CASES` sets how many cases there are (default 256).

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

mod common;

use common::*;
use io::disk::sim::{Call, Dice, SimDisk};
use proptest::prelude::*;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use store::{Compression, Error, Options, Store};

#[derive(Debug, Clone)]
enum Step {
    /// A transaction of the generator's, from that seed.
    Work(u64),
    /// So many pieces of log and helper work.
    Pump(u8),
    Kick,
    /// A checkpoint begins; the work on it goes on by and by.
    Tick,
    Checkpoint,
    Restart,
    /// The power fails; what survives of the unflushed is chosen by the seed.
    Cut(u64),
    /// The next few allocations of the host find no space.
    NoSpace(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => any::<u64>().prop_map(Step::Work),
        4 => (1..30u8).prop_map(Step::Pump),
        2 => Just(Step::Kick),
        1 => Just(Step::Tick),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Restart),
        1 => any::<u64>().prop_map(Step::Cut),
        1 => (1..4u8).prop_map(Step::NoSpace),
    ]
}

fn bounds(which: u8) -> Options {
    match which {
        0 => options(),
        // Everything stalls at once.
        1 => Options {
            overlay_bytes: 24 << 10,
            waiting_bytes: 16 << 10,
            record_cache_bytes: 1,
            block_cache_bytes: 0,
            index_cache_bytes: 1,
            grow_bytes: 64 << 10,
            ..options()
        },
        // Soon full: 40 blocks of data.
        _ => Options {
            max_bytes: Some((64 << 10) + (256 << 10) + (160 << 10)),
            grow_bytes: 32 << 10,
            ..options()
        },
    }
}

struct Case {
    options: Options,
    disk: SimDisk,
    store: Store,
    /// By transaction number.
    history: Vec<Model>,
    generator: Generator,
    compression: Option<Compression>,
}

impl Case {
    fn new(which: u8, compression: Option<Compression>) -> Self {
        let (options, disk) = (bounds(which), with_queues(fresh(), u64::from(which)));
        let store = Store::open_on(Arc::new(disk.clone()), &options, nobody()).unwrap();
        let mut case = Self {
            options,
            disk,
            store,
            history: vec![Model::default()],
            generator: Generator::new(0),
            compression,
        };
        case.queue(&Generator::first());
        case
    }

    fn model(&self) -> &Model {
        self.history.last().unwrap()
    }

    fn queue(&mut self, t: &types::Transaction) {
        match (
            self.store.queue_compressed(t, self.compression),
            self.model().after(t),
        ) {
            (Ok(seq), Some(m)) => {
                self.history.push(m);
                assert_eq!(seq as usize, self.history.len() - 1);
            }
            (Err(e), None) => assert!(e.is_refusal(), "{e}"),
            (Err(Error::NoSpace { .. } | Error::TooBig { .. }), Some(_)) => {}
            (r, m) => panic!("{r:?}, the model says {}", m.is_some()),
        }
    }

    /// What is on the disk now, opened; it holds the transactions up to at least `acked`.
    fn reopen(&mut self, disk: SimDisk, acked: u64) {
        check(&disk.copy(), "reopened");
        self.disk = disk;
        self.store = Store::open_on(Arc::new(self.disk.clone()), &self.options, nobody()).unwrap();
        let k = self.store.queued();
        assert!(
            k >= acked && (k as usize) < self.history.len(),
            "{acked} was durable, {k} came back"
        );
        self.history.truncate(k as usize + 1);
        compare(&self.store, self.model(), "reopened");
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Work(seed) => {
                self.generator.dice = Dice::new(*seed);
                let t = self.generator.transaction();
                self.queue(&t);
            }
            Step::Pump(n) => {
                for _ in 0..*n {
                    self.store.pump();
                }
            }
            Step::Kick => self.store.kick(),
            Step::Tick => {
                self.store.tick(Duration::ZERO);
                self.store.tick(Duration::from_secs(1000));
            }
            Step::Checkpoint => self.store.checkpoint().unwrap(),
            Step::Restart => {
                let acked = self.store.queued();
                self.store.wait(acked).unwrap();
                self.store.checkpoint().unwrap();
                self.reopen(self.disk.survivor_of(io::disk::sim::Survival::Nothing), acked);
            }
            Step::Cut(seed) => {
                let acked = self.store.durable();
                self.reopen(self.disk.survivor(*seed), acked);
            }
            Step::NoSpace(n) => {
                self.disk
                    .fail_times(Call::Allocate, "block", 0, u64::from(*n), ErrorKind::StorageFull);
            }
        }
    }
}

fn run(which: u8, compression: Option<Compression>, steps: &[Step]) {
    let mut case = Case::new(which, compression);
    for (i, step) in steps.iter().enumerate() {
        case.step(step);
        if i % 8 == 0 {
            compare(&case.store, case.model(), &format!("step {i}"));
        }
    }
    compare(&case.store, case.model(), "at the end");
    case.disk.heal();
    let Case {
        store, disk, history, ..
    } = case;
    store.close().unwrap();
    check(&disk, "after a clean end");
    compare(&open(&disk), history.last().unwrap(), "after a clean end");
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 3000, ..ProptestConfig::default() })]
    #[test]
    fn behaves_as_the_model(which in 0..3u8, packed in 0..100u64, steps in prop::collection::vec(step(), 1..250)) {
        run(which, compression(packed), &steps);
    }
}

/// What is written over keeps a blob until its last part goes; that is bounded: an object takes less than twice what it would as
/// it is, whatever is written where.
#[test]
fn blobs_written_over_at_random_leave_bounded_garbage() {
    use bytes::Bytes;
    use types::{Op, Transaction};
    const BLOCKS: u64 = 128;
    let disk = fresh();
    let mut store = open(&disk);
    store.queue(Generator::first()).unwrap();
    let mut dice = Dice::new(4);
    let mut noise = |blocks: u64| {
        (0..blocks * 4096)
            .map(|_| dice.below(256) as u8)
            .collect::<Vec<_>>()
    };
    // A quarter of each blob can be saved, so that what is left of one is dear.
    let data: Vec<u8> = (0..BLOCKS / 4)
        .flat_map(|_| [noise(3), vec![0; 4096]].concat())
        .collect();
    let part = noise(3);
    let write = |offset: u64, data: &[u8]| {
        let mut t = Transaction::new(coll(0));
        t.ops.push(Op::Write {
            oid: oid(0),
            offset,
            data: Bytes::copy_from_slice(data),
        });
        t
    };
    let packed = store::Compression {
        algorithm: store::Algorithm::Lz4,
        min_blob: 8192,
        max_blob: 64 << 10,
        required_ratio: 0.875,
    };
    store.queue_compressed(write(0, &data), Some(packed)).unwrap();
    let usage = |s: &Store| s.usage()[&1];
    let whole = usage(&store);
    assert_eq!(whole.compressed_original, BLOCKS * 4096);
    assert!(whole.allocated * 8 <= BLOCKS * 4096 * 7, "{whole:?}");
    let (mut dice, mut most) = (Dice::new(9), 0);
    for i in 0..1500 {
        let at = dice.below(BLOCKS);
        let len = (1 + dice.below(3)).min(BLOCKS - at);
        let compression = (dice.below(4) == 0).then_some(packed);
        store
            .queue_compressed(write(at * 4096, &part[..len as usize * 4096]), compression)
            .unwrap();
        let now = usage(&store);
        assert_eq!(now.stored, BLOCKS * 4096);
        assert!(now.allocated < 2 * now.stored, "{i}: {now:?}");
        most = most.max(now.allocated);
        if i % 100 == 0 {
            store.checkpoint().unwrap();
        }
    }
    assert!(most > whole.allocated, "parts of blobs were kept");
    let end = usage(&store);
    assert_eq!(
        (end.compressed_original, end.compressed_allocated, end.compressed),
        (0, 0, 0)
    );
    assert_eq!(end.allocated, BLOCKS * 4096, "nothing is left of the blobs");
    store.close().unwrap();
    check(&disk, "written over");
}

/// The same for what compresses, written over by blobs: however they lie over each other, and also when their length changes.
#[test]
fn blobs_written_over_by_blobs_leave_bounded_garbage() {
    use bytes::Bytes;
    use types::{Op, Transaction};
    const BLOCKS: u64 = 256;
    let mut dice = Dice::new(5);
    // A quarter of each block can be saved.
    let noise: Vec<u8> = (0..BLOCKS * 4096)
        .map(|i| if i % 4096 < 3072 { dice.roll() as u8 } else { 0 })
        .collect();
    let run = |blob_blocks: u64, writes: &mut dyn Iterator<Item = (u64, u64, Option<u64>)>| {
        let options = Options {
            max_bytes: Some(16 << 20),
            ..options()
        };
        let disk = SimDisk::new();
        Store::mkfs_on(Arc::new(disk.clone()), &options).unwrap();
        let mut store = Store::open_on(Arc::new(disk.clone()), &options, nobody()).unwrap();
        store.queue(Generator::first()).unwrap();
        let mut write = |from: u64, to: u64, blob_blocks: Option<u64>| {
            let mut t = Transaction::new(coll(0));
            t.ops.push(Op::Write {
                oid: oid(0),
                offset: from * 4096,
                data: Bytes::copy_from_slice(&noise[..((to - from) * 4096) as usize]),
            });
            let packed = blob_blocks.map(|n| Compression {
                algorithm: store::Algorithm::Lz4,
                min_blob: 8192,
                max_blob: n * 4096,
                required_ratio: 0.875,
            });
            store.queue_compressed(t, packed).unwrap();
            let now = store.usage()[&1];
            assert!(now.allocated < 2 * now.stored, "[{from}, {to}): {now:?}");
            if from % 16 == 0 {
                store.checkpoint().unwrap();
            }
        };
        write(0, BLOCKS, Some(blob_blocks));
        writes.for_each(|(from, to, n)| write(from, to, n));
        assert!(store.usage()[&1].compressed > 0, "nothing is compressed");
        store.close().unwrap();
        assert!(Store::check_on(Arc::new(disk), &options).unwrap().is_clean());
    };
    // Each leaves a block of the one before it.
    for n in [16, 128] {
        run(n, &mut (1..n - 1).map(|k| (k, n, Some(n))));
    }
    // All are written over but their ends, and then by smaller ones in what is not theirs any more.
    let smaller = [64, 32, 16, 8].into_iter().flat_map(|n| {
        let over = (0..BLOCKS)
            .step_by(2 * n)
            .map(move |at| (at, at + 2 * n as u64 - 1, None));
        over.chain(
            (0..BLOCKS)
                .step_by(2 * n)
                .map(move |at| (at, at + n as u64, Some(n as u64))),
        )
    });
    run(128, &mut smaller.collect::<Vec<_>>().into_iter());
    for seed in 0..4 {
        let mut dice = Dice::new(seed);
        let any = std::iter::from_fn(|| {
            let from = dice.below(BLOCKS);
            let to = BLOCKS.min(from + 1 + dice.below(40));
            let n = [None, Some(4), Some(16), Some(24), Some(128)][dice.below(5) as usize];
            Some((from, to, n))
        });
        run(16, &mut any.take(300));
    }
}
