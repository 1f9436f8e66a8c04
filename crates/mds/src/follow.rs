//! What was read of the journal: at a start at once, by a standby that follows the server bit by bit.
//!
//! Vocabulary: a segment is *whole* once nothing is appended to it any more, which is known when the next one is there. A journal is *still*
//! once nobody can append to it: who wrote it is fenced.
//!
//! Invariants: what is held is what the first bytes of consecutive segments say, the first of them the journal's first; objects of the journal are
//! only appended to, so that stays true, but for the end of the last one: an append that nobody was told of may be undone. Who goes on from it in a
//! still journal reads the last segment again, and has what one has who reads all of it.
//!
//! Not here: reads (`keeper`), when (`serve`); rows, which are read from the pool when they are wanted, by the server that begins.

use crate::journal::{self, Replayed};
use crate::machine::Start;
use crate::row::Row;
use bytes::Bytes;
use std::collections::BTreeMap;

/// A piece of an object: from there to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    pub segment: u64,
    pub offset: u64,
}

#[derive(Debug, Default)]
struct Held {
    bytes: u64,
    memory: u64,
    all: Replayed,
}

/// Of a change besides its row.
const CHANGE_BYTES: usize = 120;

/// About how much memory transactions take: what was read stays, too, since names and attributes are parts of it.
fn memory(bytes: &Bytes, all: &Replayed) -> u64 {
    let row = |change: &journal::Change| change.1.as_ref().map_or(0, Row::cost);
    let changes = all.iter().flat_map(|(_, changes)| changes);
    let decoded: usize = changes.map(|c| CHANGE_BYTES + row(c)).sum();
    (bytes.len() + decoded) as u64
}

impl Held {
    fn add(&mut self, bytes: &Bytes) -> denc::Result<()> {
        let all = journal::parse(bytes)?;
        self.bytes += bytes.len() as u64;
        self.memory += memory(bytes, &all);
        self.all.extend(all);
        Ok(())
    }
}

#[derive(Debug, Default)]
pub struct Followed {
    first: u64,
    segments: BTreeMap<u64, Held>,
    /// The last segment was read to its end since the last pause.
    at_end: bool,
    /// The segment behind the last one, while that is read to its end once more: something may have come before this one was begun.
    ahead: Option<Bytes>,
    still: bool,
    /// What did not make sense was read once more from the beginning since the last end.
    doubted: bool,
}

impl Followed {
    /// Where the journal begins now. What lies before it is written back; where it goes back, or has left us behind, nothing of ours is worth
    /// anything.
    pub fn begins(&mut self, first: u64) {
        self.first = first;
        let kept = self.segments.split_off(&first);
        self.segments = kept;
        if self.segments.keys().next().is_none_or(|n| *n != first) {
            self.forget();
        }
    }

    /// Nobody writes any more: the last segment once more, since the end of it may have been undone, then to the end, and no segment twice.
    pub fn is_still(&mut self) {
        self.segments.pop_last();
        self.still = true;
        self.at_end = false;
        self.ahead = None;
    }

    fn forget(&mut self) {
        self.segments.clear();
        self.at_end = false;
        self.ahead = None;
    }

    /// The journal does not make sense. True: that may be due to what was held, so all of it is read again; once until there was an end.
    pub fn doubt(&mut self) -> bool {
        let again = !self.doubted && self.segments.values().any(|s| s.bytes > 0);
        self.doubted = true;
        self.forget();
        again
    }

    /// About how much memory it takes.
    pub fn memory(&self) -> u64 {
        self.segments.values().map(|s| s.memory).sum()
    }

    /// Bytes of the journal that are held.
    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|s| s.bytes).sum()
    }

    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// What is to be read next.
    pub fn want(&self) -> Want {
        let Some((last, held)) = self.segments.last_key_value() else {
            return Want {
                segment: self.first,
                offset: 0,
            };
        };
        match self.at_end && self.ahead.is_none() {
            true => Want {
                segment: last + 1,
                offset: 0,
            },
            false => Want {
                segment: *last,
                offset: held.bytes,
            },
        }
    }

    /// What was read (None: there is no such segment). False: that was the end, for now.
    pub fn heard(&mut self, bytes: Option<&Bytes>) -> denc::Result<bool> {
        let segment = self.want().segment;
        let Some(bytes) = bytes else {
            let behind = self.segments.contains_key(&segment);
            if behind {
                // It was trimmed meanwhile.
                self.forget();
            } else {
                self.doubted = false;
            }
            self.at_end = false;
            return Ok(behind);
        };
        let is_next = self
            .segments
            .keys()
            .next_back()
            .is_some_and(|last| *last < segment);
        if is_next && !self.still {
            self.ahead = Some(bytes.clone());
            return Ok(true);
        }
        self.segments.entry(segment).or_default().add(bytes)?;
        self.at_end = true;
        if let Some(next) = self.ahead.take() {
            self.segments.entry(segment + 1).or_default().add(&next)?;
        }
        Ok(true)
    }

    /// What a server begins with.
    pub fn fill(self, start: &mut Start) {
        for (n, held) in self.segments {
            let first = held.all.first().map_or(start.next_tx, |(tx, _)| *tx);
            let next = held.all.last().map_or(0, |(tx, _)| *tx + 1);
            start.next_tx = start.next_tx.max(next);
            start.segments.push((n, held.bytes, first));
            start.journal.extend(held.all);
            start.next_segment = n + 1;
            start.is_new = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Batch;
    use crate::row::{Dentry, Inode, Key};

    /// A journal in a pool, with who writes it.
    struct Pool {
        first: u64,
        last: u64,
        next_tx: u64,
        objects: BTreeMap<u64, Vec<u8>>,
        seed: u64,
    }

    impl Pool {
        fn new(seed: u64) -> Self {
            Self {
                first: 1,
                last: 1,
                next_tx: 1,
                objects: BTreeMap::new(),
                seed,
            }
        }

        fn below(&mut self, n: u64) -> u64 {
            self.seed = self
                .seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (self.seed >> 33) % n
        }

        fn append(&mut self, transactions: u64) {
            let mut batch = Batch::default();
            for _ in 0..transactions {
                let key = Key::dentry(1, &Bytes::from(format!("f{}", self.next_tx % 7)));
                let row = Row::Dentry(Dentry {
                    ino: self.next_tx,
                    ..Dentry::default()
                });
                batch.add(self.next_tx, &[(key, (self.next_tx % 5 > 0).then_some(row))]);
                self.next_tx += 1;
            }
            self.objects.entry(self.last).or_default().extend(batch.take().0);
        }

        /// One thing that a server does: an append, another segment, a trim (the head first, as the keeper does), a start anew.
        fn step(&mut self) {
            match self.below(10) {
                0..5 => {
                    let n = 1 + self.below(3);
                    self.append(n);
                }
                5..8 if self.objects.contains_key(&self.last) => self.last += 1,
                8 => self.first += self.below(self.last - self.first + 1),
                9 if self.objects.contains_key(&self.last) => {
                    self.last += 1;
                    self.next_tx += journal::LIFE;
                }
                // What was trimmed goes some time after the head has said so.
                _ => self.objects = self.objects.split_off(&self.first),
            }
        }

        fn read(&self, want: Want) -> Option<Bytes> {
            let object = self.objects.get(&want.segment)?;
            let from = object.len().min(want.offset as usize);
            Some(Bytes::copy_from_slice(&object[from..]))
        }

        /// All that is there, as who begins in a still journal reads it.
        fn begin(&self, mut from: Followed) -> Start {
            from.is_still();
            from.begins(self.first);
            while from.heard(self.read(from.want()).as_ref()).unwrap() {}
            let mut start = Start {
                next_segment: self.first,
                is_new: true,
                ..Start::default()
            };
            from.fill(&mut start);
            start
        }
    }

    fn check(pool: &Pool, followed: Followed) {
        let (cold, warm) = (pool.begin(Followed::default()), pool.begin(followed));
        assert_eq!(cold.journal, warm.journal);
        assert_eq!(cold.segments, warm.segments);
        assert_eq!(
            (cold.next_segment, cold.next_tx, cold.is_new),
            (warm.next_segment, warm.next_tx, warm.is_new)
        );
        // And what is cold is what was written.
        let all: Vec<u8> = (pool.first..)
            .map_while(|n| pool.objects.get(&n))
            .flatten()
            .copied()
            .collect();
        assert_eq!(cold.journal, journal::parse(&all.into()).unwrap());
    }

    /// Between any two reads of the follower the server goes on; it takes over at any moment, also in the middle of its reads.
    #[test]
    fn a_follower_begins_with_what_a_cold_start_reads() {
        let mut warm = 0;
        for seed in 0..2000 {
            let (mut pool, mut followed) = (Pool::new(seed), Followed::default());
            for _ in 0..pool.below(60) {
                match pool.below(4) {
                    0 => followed.begins(pool.first),
                    1 => pool.step(),
                    _ if followed.first == 0 => {}
                    _ => drop(followed.heard(pool.read(followed.want()).as_ref()).unwrap()),
                }
            }
            warm += usize::from(followed.segments() > 0);
            check(&pool, followed);
        }
        assert!(warm > 500, "{warm} followers had something");
    }

    /// It had looked for the next segment when this one was not at its end yet.
    #[test]
    fn what_came_before_the_next_segment_was_begun_is_not_passed_over() {
        let (mut pool, mut followed) = (Pool::new(0), Followed::default());
        followed.begins(1);
        pool.append(1);
        assert!(followed.heard(pool.read(followed.want()).as_ref()).unwrap());
        pool.append(1);
        pool.last = 2;
        pool.append(1);
        while followed.heard(pool.read(followed.want()).as_ref()).unwrap() {}
        assert_eq!(followed.segments.values().map(|s| s.all.len()).sum::<usize>(), 3);
        check(&pool, followed);
    }

    /// Nobody was told of the last append, and its OSD died: another was made in its place.
    #[test]
    fn an_append_that_was_undone_is_not_begun_with() {
        let (mut pool, mut followed) = (Pool::new(0), Followed::default());
        pool.append(1);
        pool.last = 2;
        pool.append(1);
        let (before, next_tx) = (pool.objects.clone(), pool.next_tx);
        pool.append(2);
        followed.begins(1);
        while followed.heard(pool.read(followed.want()).as_ref()).unwrap() {}
        assert_eq!(followed.segments(), 2);
        (pool.objects, pool.next_tx) = (before, next_tx);
        pool.append(3);
        check(&pool, followed);
    }

    #[test]
    fn what_makes_no_sense_is_read_once_more_before_it_is_called_damaged() {
        let (mut pool, mut followed) = (Pool::new(0), Followed::default());
        pool.append(3);
        followed.begins(1);
        assert!(followed.heard(pool.read(followed.want()).as_ref()).unwrap());
        assert!(!followed.heard(None).unwrap());
        let garbage = Bytes::from_static(&[7; 40]);
        assert!(followed.heard(Some(&garbage)).is_err());
        assert!(followed.doubt(), "it held something");
        let first = Want {
            segment: 1,
            offset: 0,
        };
        assert_eq!((followed.bytes(), followed.want()), (0, first));
        assert!(followed.heard(Some(&garbage)).is_err());
        assert!(!followed.doubt(), "it held nothing");
        while followed.heard(pool.read(followed.want()).as_ref()).unwrap() {}
        // It made sense since then.
        assert!(followed.doubt());
        followed.heard(pool.read(followed.want()).as_ref()).unwrap();
        assert!(!followed.doubt(), "once until there was an end");
    }

    #[test]
    fn what_is_held_counts_as_what_it_takes_in_memory() {
        let mut batch = Batch::default();
        for n in 1..=1000 {
            batch.add(n, &[(Key::inode(n), Some(Row::Inode(Inode::default().into())))]);
        }
        let bytes = batch.take().0;
        let mut followed = Followed::default();
        followed.begins(1);
        followed.heard(Some(&bytes)).unwrap();
        assert_eq!(followed.bytes(), bytes.len() as u64);
        assert!(followed.memory() > followed.bytes() + 1000 * std::mem::size_of::<Inode>() as u64);
        followed.begins(2);
        assert_eq!(followed.memory(), 0);
    }

    #[test]
    fn what_was_trimmed_is_let_go_and_who_fell_behind_begins_anew() {
        let (mut pool, mut followed) = (Pool::new(0), Followed::default());
        for n in 1..6 {
            pool.last = n;
            pool.append(2);
        }
        followed.begins(1);
        while followed.heard(pool.read(followed.want()).as_ref()).unwrap() {}
        assert_eq!(followed.segments(), 5);
        followed.begins(4);
        assert_eq!(followed.segments(), 2);
        followed.begins(9);
        assert_eq!((followed.segments(), followed.bytes()), (0, 0));
        assert_eq!(
            followed.want(),
            Want {
                segment: 9,
                offset: 0
            }
        );
        followed.begins(4);
        assert_eq!(
            followed.want(),
            Want {
                segment: 4,
                offset: 0
            }
        );
    }
}
