//! Random transactions, each on the store under test and on [`MemoryStore`]: both refuse it with the same error, or both show
//! the same afterwards.

use super::data::whole;
use super::rows::{check_attrs, check_rows};
use super::*;
use crate::memory::MemoryStore;
use crate::store::ObjectReads;
use std::ops::Bound;
use types::EVersion;

const TRANSACTIONS: u64 = 60;
const OPS_MAX: u64 = 6;
/// Few, so that operations meet.
const OBJECTS: [&str; 4] = ["a", "b", "c", "d"];

pub fn run<S: Subject>(s: &mut S, seed: u64) {
    let mut dice = Dice(seed);
    let mut case = Case::new(s);
    let mut expected = MemoryStore::default();
    let ops = vec![Op::CreateCollection];
    expected.submit(&Transaction { collection: PG, ops }).unwrap();
    for round in 0..TRANSACTIONS {
        let n = 1 + dice.below(OPS_MAX);
        let ops: Vec<Op> = (0..n).map(|_| dice.op(round)).collect();
        let ours = expected.submit(&Transaction {
            collection: PG,
            ops: ops.clone(),
        });
        let theirs = case.try_submit(ops.clone());
        assert_eq!(theirs.err(), ours.err(), "seed {seed}, round {round}: {ops:?}");
        if dice.below(8) == 0 {
            case.age();
        }
        compare(case.store(), &mut expected);
    }
}

fn compare(s: &mut impl ObjectReads, expected: &mut MemoryStore) {
    let from = ObjectId::replicated(HObject::min());
    let listed = s.list(&from, 99).unwrap();
    assert_eq!(listed, expected.list(&from, 99).unwrap());
    for o in &listed {
        assert!(whole(s, o) == whole(expected, o), "{}", o.object);
        check_attrs(s, o, &expected.attrs(o).unwrap());
        let rows = expected.omap_range(o, Bound::Unbounded, usize::MAX, usize::MAX);
        check_rows(s, o, &rows.unwrap().rows);
        assert_eq!(s.omap_header(o).unwrap(), expected.omap_header(o).unwrap());
    }
    assert_eq!(s.meta(PG).unwrap(), expected.meta(PG).unwrap());
    assert_eq!(s.log_entries(PG).unwrap(), expected.log_entries(PG).unwrap());
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn object(&mut self) -> ObjectId {
        oid(OBJECTS[self.below(OBJECTS.len() as u64) as usize])
    }

    /// Often at the border of a block.
    fn offset(&mut self) -> u64 {
        let block = self.below(12) * 4096;
        match self.below(3) {
            0 => block,
            1 => block + 4090 + self.below(12),
            _ => self.below(50_000),
        }
    }

    fn key(&mut self) -> Bytes {
        bytes(&format!("{}", self.below(30)))
    }

    fn value(&mut self) -> Bytes {
        let len = if self.below(10) == 0 { 6000 } else { self.below(40) };
        pattern(len as usize, self.below(99))
    }

    fn entries(&mut self) -> Vec<(Bytes, Bytes)> {
        (0..self.below(8)).map(|_| (self.key(), self.value())).collect()
    }

    fn op(&mut self, round: u64) -> Op {
        let oid = self.object();
        match self.below(24) {
            0 => Op::Touch { oid },
            1..=6 => {
                let (offset, len) = (self.offset(), self.offset() as usize);
                let data = pattern(len, self.below(99));
                Op::Write { oid, offset, data }
            }
            7 => Op::Zero {
                oid,
                offset: self.offset(),
                len: self.offset(),
            },
            8 => Op::Truncate {
                oid,
                size: self.offset(),
            },
            9 => Op::Remove { oid },
            10 | 11 => self.op_between(oid),
            12 => Op::Rename {
                src: oid,
                dst: self.object(),
            },
            13 => Op::LogAppend {
                version: EVersion::new(1, round + self.below(2)),
                entry: self.value(),
            },
            14 => Op::LogTrim {
                to: EVersion::new(1, self.below(round + 2)),
            },
            15 => Op::SetMeta { meta: self.value() },
            _ => self.op_rows(oid),
        }
    }

    fn op_between(&mut self, src: ObjectId) -> Op {
        let dst = self.object();
        if self.below(2) == 0 {
            return Op::Clone { src, dst };
        }
        let (src_offset, len, dst_offset) = (self.offset(), self.offset(), self.offset());
        Op::CloneRange {
            src,
            dst,
            src_offset,
            len,
            dst_offset,
        }
    }

    fn op_rows(&mut self, oid: ObjectId) -> Op {
        match self.below(10) {
            0 | 1 => Op::SetAttrs {
                oid,
                attrs: self.entries(),
            },
            2 => Op::RemoveAttr {
                oid,
                name: self.key(),
            },
            3 if self.below(3) == 0 => Op::RemoveAttrs { oid },
            4 => Op::OmapRemove {
                oid,
                keys: vec![self.key(), self.key()],
            },
            5 => Op::OmapRemoveRange {
                oid,
                first: self.key(),
                last: self.key(),
            },
            6 if self.below(3) == 0 => Op::OmapClear { oid },
            7 => Op::OmapSetHeader {
                oid,
                header: self.value(),
            },
            _ => Op::OmapSet {
                oid,
                entries: self.entries(),
            },
        }
    }
}
