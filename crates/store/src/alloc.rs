//! Which blocks of the data file are taken: one bit each, in memory; rows of it go to the index at
//! checkpoints.
//!
//! Vocabulary: a *group* is the unit of rows, 8192 blocks (32 MiB); a *zone* is 16 blocks, aligned: what a
//! sparse object takes its blocks from, so that its later neighbours can lie beside them.
//!
//! A group is *raw* while some of it was perhaps never written since the host gave it: writing there makes a flush
//! drag the host's journal along. Small writes go elsewhere; large ones too while there is much else, and fill the
//! raw ones when there is not. This is a preference, known only as long as the store is open.
//!
//! Invariants: a block that a durable checkpoint or a log record since may refer to is never free here;
//! freed blocks are cleared only once the checkpoint that frees them is durable (the caller's duty).
//!
//! Cost: 32 MiB of memory for each TiB of file.

/// Blocks a group.
pub const GROUP: u64 = 8192;
const WORDS: usize = (GROUP / 64) as usize;
/// Words looked at for a better run once some free run is known.
const SEARCH_WORDS: usize = 1024;
const ZONE: u64 = 16;

/// Written space that large writes leave to small ones while there is raw space.
const SMALL_BLOCKS: u64 = GROUP;

/// What blocks are taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    SmallWrite,
    /// Written at once and whole.
    LargeWrite,
}

#[derive(Debug, Default)]
pub struct Allocator {
    words: Vec<u64>,
    group_free: Vec<u32>,
    raw: Vec<bool>,
    /// What is free of these groups went back to the host, as far as it could.
    given: Vec<bool>,
    /// Free blocks in raw groups.
    raw_free: u64,
    blocks: u64,
    /// Blocks at the file's head that are nobody's: superblock and log.
    first: u64,
    free: u64,
    cursor: u64,
    raw_cursor: u64,
    zone_cursor: u64,
}

impl Allocator {
    /// `blocks` in the file, those below `first` taken (superblock and log).
    pub fn new(first: u64, blocks: u64) -> Self {
        let mut a = Self::default();
        a.extend(blocks, false);
        a.mark(0, first);
        (a.first, a.cursor, a.raw_cursor, a.zone_cursor) = (first, first, first, first);
        a
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    pub fn free(&self) -> u64 {
        self.free
    }

    /// Free blocks that were written before.
    pub fn written_free(&self) -> u64 {
        self.free - self.raw_free
    }

    /// Free blocks that large writes would like to take.
    pub fn large_free(&self) -> u64 {
        self.raw_free + self.written_free().saturating_sub(SMALL_BLOCKS)
    }

    /// The file has grown to `blocks`; `raw`: without being written there.
    pub fn extend(&mut self, blocks: u64, raw: bool) {
        if blocks <= self.blocks {
            return;
        }
        let groups = blocks.div_ceil(GROUP) as usize;
        // Bits behind the end count as taken.
        self.words.resize(groups * WORDS, u64::MAX);
        self.group_free.resize(groups, 0);
        self.raw.resize(groups, raw);
        self.given.resize(groups, false);
        if raw {
            // Where the end lay inside a group, that is raw now as a whole.
            self.set_raw((self.blocks / GROUP) as usize);
        }
        let old = std::mem::replace(&mut self.blocks, blocks);
        self.clear(old, blocks - old);
    }

    fn set_raw(&mut self, group: usize) {
        if !std::mem::replace(&mut self.raw[group], true) {
            self.raw_free += u64::from(self.group_free[group]);
        }
    }

    /// The host took these blocks back: they are as if never written.
    pub fn punched(&mut self, start: u64, len: u64) {
        (start / GROUP..(start + len).div_ceil(GROUP)).for_each(|g| self.set_raw(g as usize));
    }

    /// True if the host could have back some of what is free, in runs of at least `min`.
    pub fn can_give(&self, min: u64) -> bool {
        let mut groups = self.group_free.iter().zip(&self.given);
        groups.any(|(free, given)| !given && u64::from(*free) >= min)
    }

    /// Takes free runs of at least `min` blocks, about `max` blocks in all, for the host to have them back; they are
    /// cleared like other blocks that a checkpoint frees.
    pub fn give(&mut self, min: u64, max: u64) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        let mut sum = 0;
        for group in 0..self.group_free.len() {
            if sum >= max {
                break;
            }
            if self.given[group] || u64::from(self.group_free[group]) < min {
                continue;
            }
            let (mut at, end) = (group as u64 * GROUP, (group as u64 + 1) * GROUP);
            while at < end.min(self.blocks) {
                let n = self.free_run(at, end - at);
                if n >= min {
                    self.mark(at, n);
                    out.push((at, n));
                    sum += n;
                }
                at += n.max(1);
            }
            self.given[group] = true;
        }
        out
    }

    pub fn is_taken(&self, block: u64) -> bool {
        self.words
            .get((block / 64) as usize)
            .is_none_or(|w| w >> (block % 64) & 1 == 1)
    }

    /// Takes a run; false (and nothing is changed) where some of it is taken or behind the end.
    pub fn mark(&mut self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len).filter(|e| *e <= self.blocks) else {
            return false;
        };
        if self.free_run(start, len) < len {
            return false;
        }
        self.each_word(start, end, |w, mask| *w |= mask);
        self.count(start, end, false);
        true
    }

    /// Frees a run, all of which must be taken.
    pub fn clear(&mut self, start: u64, len: u64) {
        self.each_word(start, start + len, |w, mask| {
            assert_eq!(
                *w & mask,
                mask,
                "only taken blocks are freed, which blocks {start}+{len} are not"
            );
            *w &= !mask;
        });
        self.count(start, start + len, true);
    }

    fn each_word(&mut self, start: u64, end: u64, mut f: impl FnMut(&mut u64, u64)) {
        let mut at = start;
        while at < end {
            let (word, bit) = ((at / 64) as usize, at % 64);
            let n = (64 - bit).min(end - at);
            let mask = if n == 64 { u64::MAX } else { ((1 << n) - 1) << bit };
            f(&mut self.words[word], mask);
            at += n;
        }
    }

    fn count(&mut self, start: u64, end: u64, freed: bool) {
        let mut at = start;
        while at < end {
            let n = (GROUP - at % GROUP).min(end - at);
            let group = (at / GROUP) as usize;
            let g = &mut self.group_free[group];
            let raw = if self.raw[group] { n } else { 0 };
            if freed {
                *g += n as u32;
                self.free += n;
                self.raw_free += raw;
            } else {
                assert!(
                    u64::from(*g) >= n && self.raw_free >= raw,
                    "no more blocks of allocation group {group} are taken than are free: {n} of {g}"
                );
                *g -= n as u32;
                self.free -= n;
                self.raw_free -= raw;
                self.given[group] = false;
                // Full: all of it is or will be written.
                self.raw[group] &= *g > 0;
            }
            at += n;
        }
        assert!(
            self.raw_free <= self.free && self.free <= self.blocks,
            "free blocks are a part of all: {} raw, {} free, {} in all",
            self.raw_free,
            self.free,
            self.blocks
        );
    }

    /// Panics unless in these groups, and in the sum of all, taken and free blocks make up the whole.
    pub fn check(&self, groups: impl Iterator<Item = u32>) {
        for group in groups {
            let first = group as usize * WORDS;
            let taken: u32 = self.words[first..first + WORDS]
                .iter()
                .map(|w| w.count_ones())
                .sum();
            let free = self.group_free[group as usize];
            assert_eq!(
                u64::from(taken) + u64::from(free),
                GROUP,
                "taken and free blocks of allocation group {group} make up the whole: {taken} and {free}"
            );
        }
        let free: u64 = self.group_free.iter().map(|n| u64::from(*n)).sum();
        assert_eq!(free, self.free, "the groups' free blocks sum up to the store's");
    }

    /// Free blocks from `start` on, at most `max`.
    fn free_run(&self, start: u64, max: u64) -> u64 {
        let mut n = 0;
        while n < max {
            let at = start + n;
            let Some(w) = self.words.get((at / 64) as usize) else {
                break;
            };
            let bit = at % 64;
            let zeros = u64::from((w >> bit).trailing_zeros()).min(64 - bit);
            n += zeros;
            if zeros < 64 - bit {
                break;
            }
        }
        n.min(max)
    }

    /// Takes what is free at exactly `start`, at most `max` blocks; returns how many.
    pub fn take_at(&mut self, start: u64, max: u64, purpose: For) -> u64 {
        let group = (start / GROUP) as usize;
        if purpose == For::SmallWrite && self.raw.get(group).is_some_and(|r| *r) {
            return 0;
        }
        let n = self.free_run(start, max);
        if n > 0 {
            self.mark(start, n);
        }
        n
    }

    /// Takes a run of up to `len` blocks, near the last one taken for the same purpose.
    pub fn take(&mut self, len: u64, purpose: For) -> Option<(u64, u64)> {
        let raw = purpose == For::LargeWrite && self.written_free() < SMALL_BLOCKS + len;
        let (start, n) = self.take_from(len, raw).or_else(|| self.take_from(len, !raw))?;
        self.mark(start, n);
        Some((start, n))
    }

    fn take_from(&mut self, len: u64, raw: bool) -> Option<(u64, u64)> {
        if raw && self.raw_free == 0 {
            return None;
        }
        let cursor = if raw { self.raw_cursor } else { self.cursor };
        let (start, n) = self
            .search(cursor, self.blocks, len, raw)
            .or_else(|| self.search(0, cursor, len, raw))?;
        *if raw {
            &mut self.raw_cursor
        } else {
            &mut self.cursor
        } = start + n;
        Some((start, n))
    }

    /// The first run of `len` in `[from, to)`, or the longest found within bounded search.
    fn search(&self, from: u64, to: u64, len: u64, raw: bool) -> Option<(u64, u64)> {
        let (mut at, mut best, mut budget) = (from, None::<(u64, u64)>, SEARCH_WORDS);
        while at < to {
            let group = (at / GROUP) as usize;
            if self.group_free[group] == 0 || self.raw[group] != raw {
                at = (at / GROUP + 1) * GROUP;
                continue;
            }
            let (w, bit) = (self.words[(at / 64) as usize], at % 64);
            let taken = u64::from((!w >> bit).trailing_zeros()).min(64 - bit);
            if taken > 0 {
                at += taken;
                if best.is_some() {
                    budget -= 1;
                    if budget == 0 {
                        break;
                    }
                }
                continue;
            }
            let run = self.free_run(at, len.min(to - at));
            if best.is_none_or(|(_, n)| run > n) {
                best = Some((at, run));
            }
            if run == len {
                break;
            }
            at += run;
        }
        best
    }

    /// Takes one block inside a zone of which nothing is taken, at the zone's `offset`-th place.
    pub fn take_zone(&mut self, offset: u64) -> Option<u64> {
        let mut at = self.zone_cursor.next_multiple_of(ZONE);
        let mut budget = SEARCH_WORDS * 4;
        while at + ZONE <= self.blocks && budget > 0 {
            let group = (at / GROUP) as usize;
            if self.group_free[group] < ZONE as u32 || self.raw[group] {
                at = (at / GROUP + 1) * GROUP;
            } else if self.words[(at / 64) as usize] >> (at % 64) & 0xffff == 0 {
                let block = at + offset % ZONE;
                self.mark(block, 1);
                self.zone_cursor = at + ZONE;
                return Some(block);
            } else {
                at += ZONE;
            }
            budget -= 1;
        }
        self.zone_cursor = if at + ZONE > self.blocks { 0 } else { at };
        None
    }

    /// A group's bits as they go to the index: 1 KiB; what lies before the first data block or behind
    /// the file's end is 0 there.
    pub fn row(&self, group: u32) -> Vec<u8> {
        let first = group as usize * WORDS;
        let mut out = Vec::with_capacity(WORDS * 8);
        for (i, w) in self.words[first..first + WORDS].iter().enumerate() {
            let base = (first + i) as u64 * 64;
            let below = |end: u64| match end.saturating_sub(base) {
                n if n >= 64 => u64::MAX,
                n => (1 << n) - 1,
            };
            let mask = below(self.blocks) & !below(self.first);
            out.extend_from_slice(&(w & mask).to_le_bytes());
        }
        out
    }

    /// Takes what an index row says. False where it overlaps what is taken, or is not a row.
    pub fn load(&mut self, group: u32, row: &[u8]) -> bool {
        let base = u64::from(group) * GROUP;
        if row.len() != WORDS * 8 || base >= self.blocks {
            return false;
        }
        for (i, raw) in row.chunks_exact(8).enumerate() {
            let mut w = u64::from_le_bytes(raw.try_into().unwrap_or_default());
            while w != 0 {
                let bit = u64::from(w.trailing_zeros());
                let n = u64::from((w >> bit).trailing_ones());
                let start = base + i as u64 * 64 + bit;
                if !self.mark(start, n) {
                    return false;
                }
                w = if bit + n == 64 {
                    0
                } else {
                    w >> (bit + n) << (bit + n)
                };
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_and_frees() {
        let mut a = Allocator::new(10, 1000);
        assert_eq!(a.free(), 990);
        let s = For::SmallWrite;
        assert_eq!(a.take(100, s), Some((10, 100)));
        assert_eq!(a.take(5, s), Some((110, 5)));
        a.clear(10, 100);
        assert_eq!(a.take_at(50, 1000, s), 60);
        assert!(!a.mark(50, 1) && !a.mark(999, 2));
        assert_eq!(a.take(1000, s), Some((115, 885)));
        assert_eq!(a.take(100, s), Some((10, 40)));
        assert_eq!((a.take(1, s), a.free()), (None, 0));
        a.extend(1010, false);
        assert_eq!(a.take(100, s), Some((1000, 10)));
    }

    #[test]
    fn large_writes_go_to_raw_groups() {
        let mut a = Allocator::new(10, GROUP);
        a.extend(3 * GROUP, true);
        assert_eq!(a.raw_free, 2 * GROUP);
        assert_eq!(a.take(64, For::LargeWrite), Some((GROUP, 64)));
        assert_eq!(a.take(1, For::SmallWrite), Some((10, 1)));
        assert_eq!(a.take_at(GROUP + 64, 1, For::SmallWrite), 0);
        assert_eq!(a.take_at(GROUP + 64, 1, For::LargeWrite), 1);
        assert_eq!(a.take_zone(0), Some(16));
        // What is full is not raw any more; and each takes of the other's when its own is gone.
        assert_eq!(
            a.take(2 * GROUP, For::LargeWrite),
            Some((GROUP + 65, 2 * GROUP - 65))
        );
        assert_eq!(a.raw_free, 0);
        assert!(a.take(1, For::LargeWrite).is_some_and(|(at, _)| at < GROUP));
        a.clear(2 * GROUP, GROUP);
        assert_eq!(a.raw_free, 0);
        a.punched(2 * GROUP, 64);
        assert_eq!(a.raw_free, GROUP);
        while a.take(GROUP, For::SmallWrite).is_some() {}
        assert_eq!((a.free(), a.raw_free), (0, 0));
    }

    #[test]
    fn what_is_free_is_given_once() {
        let mut a = Allocator::new(10, 2 * GROUP);
        a.mark(100, 7);
        a.mark(GROUP + 32, 1);
        assert!(a.can_give(64));
        let runs = a.give(64, 4 * GROUP);
        assert_eq!(runs, [(10, 90), (107, GROUP - 107), (GROUP + 33, GROUP - 33)]);
        assert_eq!(a.free(), 32);
        runs.iter().for_each(|(at, n)| a.clear(*at, *n));
        assert!(!a.can_give(64) && a.give(64, GROUP).is_empty());
        // What was used since may be given again.
        let (at, n) = a.take(64, For::LargeWrite).unwrap();
        a.clear(at, n);
        assert!(a.can_give(64));
        assert_eq!(a.give(64, 1).len(), 1 + usize::from(at < GROUP));
    }

    #[test]
    fn large_writes_leave_written_space_to_small_ones() {
        let mut a = Allocator::new(0, 3 * GROUP);
        a.extend(4 * GROUP, true);
        // Raw space is not touched while much else is free.
        let large = For::LargeWrite;
        assert_eq!(a.large_free(), 3 * GROUP);
        assert_eq!(a.take(GROUP, large), Some((0, GROUP)));
        assert_eq!(a.take(GROUP, large), Some((GROUP, GROUP)));
        assert_eq!(a.take(64, large), Some((3 * GROUP, 64)));
        assert_eq!(a.large_free(), GROUP - 64);
        a.clear(0, 64);
        assert_eq!(a.take(64, large), Some((2 * GROUP, 64)));
    }

    #[test]
    fn zones_keep_room_for_neighbours() {
        let mut a = Allocator::new(16, 64);
        assert_eq!(a.take_zone(3), Some(19));
        assert_eq!(a.take_zone(19), Some(35));
        assert_eq!(a.take_zone(0), Some(48));
        assert_eq!(a.take_zone(0), None);
        assert_eq!(a.take_at(20, 1, For::SmallWrite), 1);
    }

    #[test]
    #[should_panic(expected = "only taken blocks are freed, which blocks 12+2 are not")]
    fn what_is_free_cannot_be_freed() {
        let mut a = Allocator::new(10, 1000);
        a.mark(12, 1);
        a.clear(12, 2);
    }

    #[test]
    #[should_panic(expected = "taken and free blocks of allocation group 0 make up the whole: 7201 and 990")]
    fn a_bit_that_flipped_is_noticed() {
        let mut a = Allocator::new(10, 1000);
        a.check([0].into_iter());
        a.words[0] &= !1;
        a.check([0].into_iter());
    }

    #[test]
    fn rows_come_back() {
        let mut a = Allocator::new(100, GROUP + 500);
        a.mark(200, 77);
        a.mark(GROUP + 3, 400);
        let mut b = Allocator::new(100, GROUP + 500);
        assert!(b.load(0, &a.row(0)) && b.load(1, &a.row(1)));
        assert_eq!((a.words, a.free), (b.words, b.free));
    }
}
