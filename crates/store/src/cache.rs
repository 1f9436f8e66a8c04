//! Verified data blocks in memory, for reads: the host's page cache is bypassed.
//!
//! Slots of 4 KiB with a clock hand: a block that was not asked for again since it came goes first, so a scan
//! does not push out what is used. A slot keeps the memory that the disk filled, without a copy. Bound: the
//! number of slots.
//!
//! Invariant (the owner's duty): a block is removed before its content on the disk can change.

use crate::onode::BLOCK;
use bytes::Bytes;
use types::numbers::NumberMap;

#[derive(Debug, Default)]
struct Slot {
    /// None: free.
    held: Option<(u64, Bytes)>,
    /// Since the hand passed.
    asked: bool,
}

#[derive(Debug, Default)]
pub struct BlockCache {
    slots: Vec<Slot>,
    by_block: NumberMap<u64, usize>,
    free: Vec<usize>,
    hand: usize,
    slots_max: usize,
}

impl BlockCache {
    pub fn new(bytes_max: u64) -> Self {
        Self {
            slots_max: (bytes_max / BLOCK) as usize,
            ..Self::default()
        }
    }

    pub fn bytes(&self) -> u64 {
        self.by_block.len() as u64 * BLOCK
    }

    pub fn contains(&self, block: u64) -> bool {
        self.by_block.contains_key(&block)
    }

    /// Copies the block out; false: it is not here.
    pub fn get(&mut self, block: u64, out: &mut [u8]) -> bool {
        let page = self.page(block);
        if let Some(data) = &page {
            out.copy_from_slice(data);
        }
        page.is_some()
    }

    /// The block as it is held.
    pub fn page(&mut self, block: u64) -> Option<Bytes> {
        let slot = self.by_block.get(&block).copied()?;
        let slot = &mut self.slots[slot];
        slot.asked = true;
        slot.held.as_ref().map(|(_, data)| data.clone())
    }

    /// `data` is the whole of its memory: a part would hold on to all of it.
    pub fn put(&mut self, block: u64, data: Bytes) {
        let slot = match self.by_block.get(&block).copied().or_else(|| self.slot()) {
            Some(slot) => slot,
            None => return,
        };
        self.slots[slot] = Slot {
            held: Some((block, data)),
            asked: false,
        };
        self.by_block.insert(block, slot);
    }

    /// A slot to fill: a free one, a new one, or the first behind the hand that nobody asked for.
    fn slot(&mut self) -> Option<usize> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.slots.len() < self.slots_max {
            self.slots.push(Slot::default());
            return Some(self.slots.len() - 1);
        }
        // Two rounds: the first one may clear every mark.
        for _ in 0..2 * self.slots.len() {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let s = &mut self.slots[slot];
            if std::mem::take(&mut s.asked) {
                continue;
            }
            if let Some((block, _)) = s.held.take() {
                self.by_block.remove(&block);
            }
            return Some(slot);
        }
        None
    }

    pub fn remove(&mut self, block: u64) {
        if let Some(slot) = self.by_block.remove(&block) {
            self.slots[slot] = Slot::default();
            self.free.push(slot);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by_block.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(n: u64) -> Bytes {
        vec![n as u8; BLOCK as usize].into()
    }

    #[test]
    fn keeps_what_is_asked_for() {
        let mut c = BlockCache::new(4 * BLOCK);
        let mut out = block(0).to_vec();
        (1..=4).for_each(|n| c.put(n, block(n)));
        assert!(c.get(2, &mut out) && out == block(2));
        (10..13).for_each(|n| c.put(n, block(n)));
        assert!(c.contains(2), "asked for");
        assert_eq!(c.by_block.len(), 4);
        c.remove(2);
        assert!(!c.get(2, &mut out));
        c.put(2, block(9));
        assert!(c.get(2, &mut out) && out == block(9));
        for n in 0..100 {
            c.put(n, block(n));
            assert!(c.get(n, &mut out) && out == block(n), "{n}");
            assert!(c.by_block.len() <= 4);
        }
    }

    #[test]
    fn no_slab_keeps_nothing() {
        let mut c = BlockCache::new(0);
        c.put(1, block(1));
        assert!(!c.contains(1));
    }
}
