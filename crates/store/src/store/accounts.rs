//! The store's space: what it says of it, and that its books agree.
//!
//! Three of them are kept: the allocator's bits, its counts of free blocks, and the pools' usage.

use super::Store;
use crate::onode::BLOCK;
use crate::{PoolUsage, StatFs};
use std::collections::BTreeMap;
use types::PoolId;

impl Store {
    pub fn statfs(&self) -> StatFs {
        let first = self.superblock.data_offset / BLOCK;
        let taken = self.state.alloc.blocks().max(first) - self.state.alloc.free() - first;
        let used = taken - self.state.freed_blocks();
        let total = self.total_blocks();
        // Of what pools share one may have less than nothing.
        let sum = |f: fn(&PoolUsage) -> u64| {
            let all = self.state.usage.values().map(f);
            all.fold(0u64, u64::wrapping_add)
        };
        StatFs {
            total: total * BLOCK,
            used: used * BLOCK,
            // While others have taken the host's space nothing more is written, free as the file may be.
            available: match self.state.host_low {
                true => 0,
                false => total.saturating_sub(used + self.reserve_blocks()) * BLOCK,
            },
            stored: sum(|u| u.stored),
            omap_bytes: sum(|u| u.omap_bytes),
            compressed: sum(|u| u.compressed),
            compressed_allocated: sum(|u| u.compressed_allocated),
            compressed_original: sum(|u| u.compressed_original),
            index_bytes: self.index.bytes(),
            log_bytes: self.superblock.log_bytes,
        }
    }

    pub fn usage(&self) -> BTreeMap<PoolId, PoolUsage> {
        let used = self
            .state
            .usage
            .iter()
            .filter(|(_, u)| **u != PoolUsage::default());
        used.map(|(p, u)| (*p, *u)).collect()
    }

    /// Blocks that are taken and that no pool's usage counts; modulo 2^64, as the usage is.
    pub(super) fn unbooked_blocks(&self) -> u64 {
        let first = self.superblock.data_offset / BLOCK;
        let taken = self.state.alloc.blocks().max(first) - self.state.alloc.free() - first;
        let booked = self.state.usage.values().map(|u| u.allocated);
        let booked = booked.fold(0u64, u64::wrapping_add) / BLOCK;
        taken.wrapping_sub(self.state.freed_blocks()).wrapping_sub(booked)
    }

    /// Panics unless the allocator and the pools' usage agree about what is taken: as much as they did when the store was opened.
    pub(super) fn check_accounts(&self) {
        let active = &self.state.active;
        self.state.alloc.check(active.groups.iter().copied());
        assert_eq!(
            active.freed.iter().map(|(_, len)| len).sum::<u64>(),
            active.freed_blocks,
            "the runs that were freed sum up to the blocks that were"
        );
        assert_eq!(
            self.unbooked_blocks(),
            self.unbooked,
            "every block that was taken or freed since the start is in a pool's usage"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Seq};
    use bytes::Bytes;
    use io::disk::sim::SimDisk;
    use std::sync::Arc;
    use types::{EVersion, Epoch, HObject, NOSNAP, ObjectId, Op, PgId, SPgId, Transaction};

    fn oid() -> ObjectId {
        let o = HObject::new(1, 7, Bytes::new(), Bytes::new(), "o".into(), NOSNAP);
        ObjectId::replicated(o)
    }

    fn queue(store: &mut Store, ops: Vec<Op>) -> Seq {
        let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
        t.ops = ops;
        store.queue(t).unwrap()
    }

    fn write(offset: u64) -> Op {
        Op::Write {
            oid: oid(),
            offset,
            data: Bytes::from(vec![1; 8192]),
        }
    }

    /// A store that has written something, and has something to write.
    fn store() -> Store {
        let disk = SimDisk::new();
        let options = Options {
            threads: false,
            host_reserve_bytes: 0,
            log_bytes: 1 << 20,
            grow_bytes: 4 << 20,
            ..Options::default()
        };
        Store::mkfs_on(Arc::new(disk.clone()), &options).unwrap();
        let mut store = Store::open_on(Arc::new(disk), &options, Arc::new(|| {})).unwrap();
        queue(&mut store, vec![Op::CreateCollection, write(0)]);
        store.checkpoint().unwrap();
        queue(&mut store, vec![write(16384)]);
        store
    }

    #[test]
    fn books_that_agree_pass() {
        store().checkpoint().unwrap();
    }

    /// One pool's blob, cut into two parts: a write that fails over it, then a rename to another pool.
    #[test]
    fn blobs_are_counted_once_and_given_back() {
        let mut s = store();
        let packed = crate::Compression {
            algorithm: crate::Algorithm::Lz4,
            min_blob: 8192,
            max_blob: 65536,
            required_ratio: 0.875,
        };
        let mut dice = io::disk::sim::Dice::new(1);
        let data: Vec<u8> = (0..65536)
            .map(|i| if i < 32768 { dice.roll() as u8 } else { 0 })
            .collect();
        let all = || {
            let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
            t.ops.push(Op::Write {
                oid: oid(),
                offset: 0,
                data: data.clone().into(),
            });
            t
        };
        s.queue_compressed(all(), Some(packed)).unwrap();
        queue(&mut s, vec![write(16384)]);
        let usage = s.usage()[&1];
        let (blob, kept) = (usage.compressed_allocated, usage.allocated);
        assert!(blob > 32768 && kept == blob + 8192, "{usage:?}");

        // Its blocks' counts do not fit: it cannot be written over.
        let o = s.state.object(&oid()).unwrap().unwrap();
        let last = o.extents.iter().next().unwrap().disk().end - 1;
        let refs = s.state.active.refs.insert(last, 0);
        assert_eq!(refs, Some(1));
        let free = s.state.alloc.free();
        s.queue_compressed(all(), Some(packed)).unwrap_err();
        assert_eq!(s.state.alloc.free(), free, "a refused write keeps no blocks");
        s.check_accounts();
        s.state.active.refs.insert(last, 1);

        let mut dst = oid();
        dst.object.pool = 2;
        queue(&mut s, vec![Op::Rename { src: oid(), dst }]);
        let usage = s.usage();
        assert!(!usage.contains_key(&1), "{usage:?}");
        assert_eq!(
            (usage[&2].compressed_allocated, usage[&2].allocated),
            (blob, kept)
        );
        s.checkpoint().unwrap();
    }

    #[test]
    #[should_panic(expected = "every block that was taken or freed since the start is in a pool's usage")]
    fn a_block_that_no_pool_counts_is_noticed() {
        let mut s = store();
        s.state.usage.get_mut(&1).unwrap().allocated -= BLOCK;
        s.checkpoint().unwrap();
    }

    #[test]
    #[should_panic(expected = "the runs that were freed sum up to the blocks that were")]
    fn a_freed_run_that_was_lost_is_noticed() {
        let mut s = store();
        queue(&mut s, vec![Op::Remove { oid: oid() }]);
        s.state.active.freed.pop();
        s.checkpoint().unwrap();
    }

    #[test]
    #[should_panic(expected = "blocks are freed once")]
    fn a_block_freed_twice_is_noticed_before_the_index_says_so() {
        let mut s = store();
        queue(&mut s, vec![Op::Remove { oid: oid() }]);
        let run = s.state.active.freed[0];
        s.state.active.freed.push(run);
        s.state.active.freed_blocks += run.1;
        // The book that would notice first agrees.
        s.unbooked = s.unbooked_blocks();
        s.checkpoint().unwrap();
    }

    #[test]
    #[should_panic(expected = "entries of a log ascend")]
    fn entries_of_a_log_out_of_order_are_noticed() {
        let mut s = store();
        let version = |n| EVersion {
            epoch: 1 as Epoch,
            version: n,
        };
        for n in [1, 2] {
            queue(
                &mut s,
                vec![Op::LogAppend {
                    version: version(n),
                    entry: Bytes::from_static(b"x"),
                }],
            );
        }
        s.state.active.logs.values_mut().for_each(|log| log.swap(0, 1));
        s.checkpoint().unwrap();
    }

    #[test]
    #[should_panic(expected = "a checkpoint follows the last one")]
    fn numbers_that_fall_are_noticed() {
        let mut s = store();
        s.state.next_nid = 0;
        s.checkpoint().unwrap();
    }

    #[test]
    #[should_panic(expected = "the log's tail moves forward, to its head at most")]
    fn a_tail_ahead_of_the_head_is_noticed() {
        store().committer.set_tail(1 << 40);
    }
}
