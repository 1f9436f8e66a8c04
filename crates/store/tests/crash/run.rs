//! One run of a store on a disk that loses power, with the model at every transaction number, and the
//! verification of what every cut would have left.
//!
//! A *cut* here is one survivor: a disk as some cut at some call would leave it. Each is opened (that
//! replays the log), must hold the model as of some number from the last acknowledged to the last queued,
//! and then goes one of three ways by turns: the offline check at once; more work, another power cut and
//! the check; or cuts while it opens, works on and makes its first checkpoint.

use crate::common::*;
use bytes::Bytes;
use io::disk::sim::{SimDisk, Survival};
use std::time::Duration;
use store::{Compression, Store};
use types::{EVersion, Op, Transaction};

pub struct Run {
    pub disk: SimDisk,
    pub store: Store,
    /// By transaction number, the newest last; numbers before the run began hold what it began with.
    pub history: Vec<Model>,
    pub cuts: u64,
    pub label: String,
    /// Of all that it queues.
    pub compression: Option<Compression>,
}

impl Run {
    pub fn new(label: String) -> Self {
        Self::on(fresh(), &Model::default(), label)
    }

    /// Opens what is on the disk, which is `model`.
    pub fn on(disk: SimDisk, model: &Model, label: String) -> Self {
        let store = open(&disk);
        let history = vec![model.clone(); store.queued() as usize + 1];
        Self {
            disk,
            store,
            history,
            cuts: 0,
            label,
            compression: None,
        }
    }

    pub fn compressed(self, compression: Option<Compression>) -> Self {
        Self { compression, ..self }
    }

    pub fn model(&self) -> &Model {
        self.history.last().unwrap()
    }

    pub fn queue(&mut self, t: Transaction) {
        let wanted = self.model().after(&t);
        match (self.store.queue_compressed(t.clone(), self.compression), wanted) {
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

    /// Does some work and verifies what every cut in it would have left.
    pub fn step(&mut self, work: impl FnOnce(&mut Self)) {
        let acked = self.store.durable();
        work(self);
        self.verify(acked);
    }

    /// One piece of the log's or the helper's work; false when there is none.
    pub fn pump(&mut self) -> bool {
        let mut any = false;
        self.step(|r| any = r.store.pump_log());
        if !any {
            self.step(|r| any = r.store.pump_helper());
        }
        any
    }

    /// Lets a checkpoint begin, without any of its work.
    pub fn begin_checkpoint(&mut self) {
        self.step(|r| {
            r.store.tick(Duration::ZERO);
            r.store.tick(Duration::from_secs(1000));
        });
    }

    /// Verifies all survivors kept since the last call; `acked` was durable when they began to be.
    pub fn verify(&mut self, acked: u64) {
        for s in self.disk.survivors() {
            self.cuts += 1;
            let what = format!("{} cut {}", self.label, self.cuts);
            match self.cuts % 8 {
                0..=4 => {
                    check(&s.copy(), &what);
                    drop(self.opened(&s, acked, &what));
                }
                5 | 6 => self.works_on(&s, acked, &what),
                _ => self.cut_again(&s, acked, &what),
            }
        }
    }

    /// Opens a survivor, which must hold a legal state.
    fn opened(&self, s: &SimDisk, acked: u64, what: &str) -> Store {
        let store = open(s);
        let k = store.queued();
        assert!(k >= acked, "{what}: {acked} was durable, only {k} came back");
        assert!((k as usize) < self.history.len(), "{what}: {k} was never queued");
        compare(&store, &self.history[k as usize], what);
        store
    }

    /// The survivor takes more work, which is then there after another cut that spares nothing unflushed.
    fn works_on(&self, s: &SimDisk, acked: u64, what: &str) {
        let mut store = self.opened(s, acked, what);
        let (work, model) = more_work(&self.history[store.queued() as usize]);
        let seq = store.queue_compressed(work, self.compression).unwrap();
        store.wait(seq).unwrap();
        if self.cuts.is_multiple_of(16) {
            store.checkpoint().unwrap();
        }
        // Before the drop: that closes the index cleanly, which a cut does not.
        let next = s.survivor_of(Survival::Nothing);
        drop(store);
        check(&next.copy(), what);
        let store = open(&next);
        assert_eq!(
            store.queued(),
            seq,
            "{what}: what was acknowledged in the next life"
        );
        compare(&store, &model, what);
    }

    /// Cuts while the survivor opens, works and makes a checkpoint.
    fn cut_again(&mut self, s: &SimDisk, acked: u64, what: &str) {
        s.sample_each(self.cuts, [40, 40, 80]);
        let mut store = self.opened(s, acked, what);
        let k = store.queued();
        let (work, model) = more_work(&self.history[k as usize]);
        store.queue_compressed(work, self.compression).unwrap();
        store.checkpoint().unwrap();
        drop(store);
        for s in s.survivors() {
            self.cuts += 1;
            let store = open(&s);
            let j = store.queued();
            let legal = if j == k + 1 {
                Some(&model)
            } else {
                self.history.get(j as usize)
            };
            assert!(
                j >= acked && j <= k + 1,
                "{what}: {acked} was durable, then {k} came back, and {j} after a second cut"
            );
            compare(&store, legal.unwrap(), what);
        }
    }
}

/// A transaction that fits behind any state, and the state behind it.
fn more_work(model: &Model) -> (Transaction, Model) {
    let mut t = Transaction::new(coll(0));
    let version = match model.collections.get(&coll(0)) {
        Some(c) => EVersion::new(c.head.epoch, c.head.version + 1),
        None => {
            t.ops.push(Op::CreateCollection);
            EVersion::new(1, 1)
        }
    };
    let (a, b) = (oid(0), oid(2));
    let bytes = |len: usize, v: u8| Bytes::from(vec![v; len]);
    t.ops.extend([
        Op::LogAppend {
            version,
            entry: bytes(20, 1),
        },
        Op::Write {
            oid: a.clone(),
            offset: 3000,
            data: bytes(14_000, 251),
        },
        Op::OmapSet {
            oid: a.clone(),
            entries: vec![(bytes(2, 1), bytes(30, 2))],
        },
        Op::Clone {
            src: a.clone(),
            dst: b,
        },
        Op::Write {
            oid: a,
            offset: 100,
            data: bytes(200, 252),
        },
    ]);
    let after = model.after(&t).unwrap();
    (t, after)
}

fn brief(t: &Transaction) -> String {
    let ops: Vec<String> = t
        .ops
        .iter()
        .map(|op| format!("{op:?}").chars().take(150).collect())
        .collect();
    ops.join("; ")
}
