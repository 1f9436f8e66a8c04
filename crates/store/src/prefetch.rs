//! Reads of data that go on beside the owner, so that a cold block does not hold up its thread.
//!
//! A *ticket* stands for the reads that one range needs; what they bring is kept until the ticket is
//! released, and reads find it there before they ask the disk. Bound: `bytes_max` under way and kept.
//!
//! Invariant: what is kept is what the disk holds: [`Prefetches::outdated`] drops all that a checkpoint
//! wrote or freed, also of reads that are still under way.

use crate::generation::Generation;
use crate::onode::BLOCK;
use crate::values::Ticket;
use bytes::Bytes;
use io::disk::{ReadDone, ReadQueue};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use types::numbers::NumberMap;

/// One read of the disk; a longer run is several.
const READ_BLOCKS: u64 = 256;
/// So many begin at once, while their owner still looks for more: the disk should not idle meanwhile. Each submission rings the
/// device's doorbell, which in a virtual machine costs several microseconds.
const SUBMIT_READS: u32 = 8;
/// Kept pieces looked at for one block: several tickets may have read overlapping runs.
const LOOK_BACK: usize = 8;

#[derive(Debug)]
struct Read {
    ticket: Ticket,
    block: u64,
    blocks: u64,
    /// The disk changed since it began.
    stale: bool,
}

/// What a ticket that was not released stands for.
#[derive(Debug)]
struct Wanted {
    /// Reads that it still waits for.
    left: usize,
    /// First blocks of its reads; most tickets have one.
    first: u64,
    more: Vec<u64>,
}

#[derive(Debug, Default)]
pub struct Prefetches {
    queue: Option<Box<dyn ReadQueue>>,
    unsubmitted: u32,
    tickets: NumberMap<Ticket, Wanted>,
    /// By token.
    reads: NumberMap<u64, Read>,
    kept: BTreeMap<(u64, Ticket), Bytes>,
    last: u64,
    bytes: u64,
    bytes_max: u64,
    done: Vec<ReadDone>,
}

impl Prefetches {
    /// Of reads under way, and of what they brought.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn new(queue: Option<Box<dyn ReadQueue>>, bytes_max: u64) -> Self {
        Self {
            queue,
            bytes_max,
            ..Self::default()
        }
    }

    pub fn is_off(&self) -> bool {
        self.queue.is_none() || self.bytes >= self.bytes_max
    }

    /// Begins reading these runs (block, count); None: there is no room for them.
    pub fn start(&mut self, runs: &[(u64, u64)]) -> Option<Ticket> {
        let queue = self.queue.as_mut()?;
        let bytes: u64 = runs.iter().map(|(_, n)| n * BLOCK).sum();
        if bytes == 0 || self.bytes + bytes > self.bytes_max {
            return None;
        }
        self.bytes += bytes;
        self.last += 1;
        let ticket = self.last;
        let mut starts = Vec::new();
        for (start, len) in runs {
            let mut at = *start;
            while at < start + len {
                let blocks = READ_BLOCKS.min(start + len - at);
                self.last += 1;
                let read = Read {
                    ticket,
                    block: at,
                    blocks,
                    stale: false,
                };
                queue.push(self.last, at * BLOCK, (blocks * BLOCK) as usize);
                self.reads.insert(self.last, read);
                starts.push(at);
                self.unsubmitted += 1;
                at += blocks;
            }
        }
        let wanted = Wanted {
            left: starts.len(),
            first: runs[0].0,
            more: starts.split_off(1),
        };
        self.tickets.insert(ticket, wanted);
        if self.unsubmitted >= SUBMIT_READS {
            self.submit();
        }
        Some(ticket)
    }

    pub fn submit(&mut self) {
        if let Some(q) = self.queue.as_mut().filter(|_| self.unsubmitted > 0) {
            self.unsubmitted = 0;
            q.submit();
        }
    }

    /// Tickets that have all their reads now.
    pub fn completed(&mut self) -> Vec<Ticket> {
        let mut ended = Vec::new();
        let Some(queue) = self.queue.as_mut().filter(|_| !self.reads.is_empty()) else {
            return ended;
        };
        queue.completed(&mut self.done);
        for done in self.done.drain(..) {
            let Some(read) = self.reads.remove(&done.token) else {
                continue;
            };
            let wanted = self.tickets.get_mut(&read.ticket);
            match (wanted.is_some() && !read.stale, done.data) {
                (true, Ok(data)) => {
                    // Extents of one object may share blocks, which were then read twice.
                    if let Some(old) = self.kept.insert((read.block, read.ticket), data) {
                        self.bytes -= old.len() as u64;
                    }
                }
                // Not wanted, outdated or failed: the reader asks the disk, and tells.
                _ => self.bytes -= read.blocks * BLOCK,
            }
            if let Some(w) = wanted {
                w.left -= 1;
                if w.left == 0 {
                    ended.push(read.ticket);
                }
            }
        }
        ended
    }

    pub fn release(&mut self, ticket: Ticket) {
        let Some(wanted) = self.tickets.remove(&ticket) else {
            return;
        };
        for start in std::iter::once(wanted.first).chain(wanted.more) {
            if let Some(data) = self.kept.remove(&(start, ticket)) {
                self.bytes -= data.len() as u64;
            }
        }
    }

    /// The data from `block` on that one kept piece has, and whether the piece is this block alone.
    pub fn find(&self, block: u64) -> Option<(Bytes, bool)> {
        let before = self.kept.range(..=(block, Ticket::MAX)).rev().take(LOOK_BACK);
        before
            .filter_map(|((start, _), data)| {
                let skip = (block - start) * BLOCK;
                let alone = data.len() as u64 == BLOCK;
                (skip < data.len() as u64).then(|| (data.slice(skip as usize..), alone))
            })
            .next()
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The generation is on the disk now: what was read of its blocks before is not what they hold.
    pub fn outdated(&mut self, g: &Generation) {
        if self.reads.is_empty() && self.kept.is_empty() {
            return;
        }
        let mut freed: Vec<(u64, u64)> = g.freed.clone();
        freed.sort_unstable();
        let touched = |start: u64, len: u64| {
            let behind = freed.partition_point(|(s, _)| *s < start + len);
            // Freed runs do not overlap: only the last one before the end can reach into the run.
            let hit = behind > 0 && freed[behind - 1].0 + freed[behind - 1].1 > start;
            hit || (start..start + len).any(|b| g.blocks.contains_key(&b))
        };
        for r in self.reads.values_mut() {
            r.stale |= touched(r.block, r.blocks);
        }
        let bytes = &mut self.bytes;
        self.kept.retain(|(start, _), data| {
            let len = data.len() as u64;
            let keep = !touched(*start, len / BLOCK);
            if !keep {
                *bytes -= len;
            }
            keep
        });
    }

    /// Blocks until a read has ended, or none is under way.
    pub fn wait(&mut self) -> std::io::Result<()> {
        match self.queue.as_mut().filter(|_| !self.reads.is_empty()) {
            Some(q) => q.wait(),
            None => Ok(()),
        }
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref().and_then(|q| q.fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each read ends at once.
    #[derive(Debug, Default)]
    struct Zeros(Vec<ReadDone>);

    impl ReadQueue for Zeros {
        fn push(&mut self, token: u64, _: u64, len: usize) {
            let data = Ok(vec![0; len].into());
            self.0.push(ReadDone { token, data });
        }
        fn submit(&mut self) {}
        fn completed(&mut self, out: &mut Vec<ReadDone>) {
            out.append(&mut self.0);
        }
        fn wait(&mut self) -> std::io::Result<()> {
            Ok(())
        }
        fn fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    #[test]
    fn what_is_read_twice_is_counted_once_and_let_go() {
        let max = 64 * BLOCK;
        let mut p = Prefetches::new(Some(Box::new(Zeros::default())), max);
        // More often than the bound has room for, if any of it were to stay.
        for _ in 0..100 {
            let ticket = p.start(&[(5, 3), (9, 1), (5, 3), (5, 1)]).unwrap();
            assert_eq!(p.completed(), [ticket]);
            let kept: u64 = p.kept.values().map(|d| d.len() as u64).sum();
            assert_eq!(p.bytes(), kept);
            p.release(ticket);
            assert_eq!(p.bytes(), 0);
        }
        assert!(p.is_empty() && !p.is_off());
    }
}
