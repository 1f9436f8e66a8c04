//! Data that does not go through the log: straight to fresh extents, under the flush of the batch that refers to them.

use crate::onode::BLOCK;
use crate::values::Seq;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Whole blocks for a place that nothing refers to yet.
#[derive(Debug, Clone)]
pub struct Direct {
    pub offset: u64,
    pub data: Bytes,
}

/// Direct extents that are perhaps not on the disk yet: reads take them from here.
#[derive(Debug, Default)]
pub struct Inflight {
    by_block: BTreeMap<u64, Bytes>,
    order: VecDeque<(Seq, u64)>,
}

impl Inflight {
    pub fn add(&mut self, seq: Seq, block: u64, data: Bytes) {
        self.by_block.insert(block, data);
        self.order.push_back((seq, block));
    }
    pub fn is_empty(&self) -> bool {
        self.by_block.is_empty()
    }
    pub fn landed(&mut self, durable: Seq) {
        while let Some((seq, block)) = self.order.front().copied().filter(|(s, _)| *s <= durable) {
            let _ = seq;
            self.by_block.remove(&block);
            self.order.pop_front();
        }
    }
    /// The data from `block` on that one extent has, if it is waiting.
    pub fn find(&self, block: u64) -> Option<Bytes> {
        let (start, data) = self.by_block.range(..=block).next_back()?;
        let skip = ((block - start) * BLOCK) as usize;
        (skip < data.len()).then(|| data.slice(skip..))
    }
}
