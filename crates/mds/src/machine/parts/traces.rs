//! Backtraces that are to be written, and those under way.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::PoolId;

/// So long after it was made or renamed: what lives shorter costs nothing.
const RIPE: Duration = Duration::from_secs(5);
/// Written at once, besides those that take long.
const AT_ONCE: usize = 16;
/// One that takes longer waits for its own placement group, perhaps for hours; others go on.
const LONG: Duration = Duration::from_secs(5);
/// So many may take long at a time.
const LONG_MAX: usize = 4096;
/// So many may be due; then what makes another one due waits.
const DUE_MAX: usize = 1 << 17;

/// One object's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    pub ino: u64,
    pub pool: PoolId,
    pub namespace: String,
    pub object: String,
    pub parent: Bytes,
    pub layout: Bytes,
    pub snap_seq: u64,
    pub snaps: Vec<u64>,
}

/// Under way since then.
#[derive(Debug)]
struct Running {
    since: Duration,
    /// It changed meanwhile.
    again: bool,
}

/// Invariant: an inode is in `due` as long as its row says that it is; one under way is not in `queue`.
#[derive(Debug, Default)]
pub struct Traces {
    due: BTreeSet<u64>,
    queue: VecDeque<(u64, Duration)>,
    running: BTreeMap<u64, Running>,
    /// Those that take long.
    slow: BTreeSet<u64>,
    written: BTreeSet<u64>,
}

impl Traces {
    pub fn mark(&mut self, ino: u64, now: Duration) {
        if let Some(running) = self.running.get_mut(&ino) {
            running.again = true;
        } else if self.due.insert(ino) || self.written.remove(&ino) {
            self.queue.push_back((ino, now));
        }
    }

    pub fn is_running(&self, ino: u64) -> bool {
        self.running.contains_key(&ino)
    }

    pub fn is_full(&self) -> bool {
        self.due.len() >= DUE_MAX
    }

    /// The next one whose time has come.
    pub fn next(&mut self, now: Duration) -> Option<u64> {
        let (ino, since) = *self.queue.front()?;
        if self.running.len() - self.slow.len() >= AT_ONCE || now < since + RIPE {
            return None;
        }
        self.queue.pop_front();
        Some(ino)
    }

    pub fn begin(&mut self, ino: u64, now: Duration) {
        let again = false;
        self.running.insert(ino, Running { since: now, again });
    }

    /// Looks which take long.
    pub fn look(&mut self, now: Duration) {
        let long = self.running.iter().filter(|(_, r)| now >= r.since + LONG);
        let long = long.map(|(ino, _)| *ino).filter(|ino| !self.slow.contains(ino));
        let long: Vec<u64> = long.take(LONG_MAX - self.slow.len()).collect();
        self.slow.extend(long);
    }

    /// What it needs is being read.
    pub fn later(&mut self, ino: u64, now: Duration) {
        self.queue.push_back((ino, now));
    }

    /// There is nothing to write any more.
    pub fn drop(&mut self, ino: u64) {
        self.written.insert(ino);
    }

    pub fn end(&mut self, ino: u64, now: Duration) {
        self.slow.remove(&ino);
        match self.running.remove(&ino).map(|r| r.again) {
            Some(true) => self.queue.push_back((ino, now)),
            Some(false) => drop(self.written.insert(ino)),
            None => {}
        }
    }

    /// Those that are due no more.
    pub fn take_written(&mut self) -> BTreeSet<u64> {
        let written = std::mem::take(&mut self.written);
        for ino in &written {
            self.due.remove(ino);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_changes_while_it_is_written_is_written_again() {
        let (mut t, later) = (Traces::default(), RIPE);
        t.mark(7, Duration::ZERO);
        t.mark(7, Duration::ZERO);
        assert_eq!(t.next(Duration::ZERO), None);
        assert_eq!(t.next(later), Some(7));
        t.begin(7, later);
        t.mark(7, later);
        t.end(7, later);
        assert!(t.take_written().is_empty());
        assert_eq!(t.next(later * 2), Some(7));
        t.begin(7, later);
        t.end(7, later);
        t.mark(7, later);
        assert!(t.take_written().is_empty(), "it changed before that was noted");
        assert_eq!(t.next(later * 2), Some(7));
        t.begin(7, later);
        t.end(7, later);
        assert_eq!(t.take_written().into_iter().collect::<Vec<_>>(), [7]);
        assert_eq!(t.next(later * 9), None);
    }

    #[test]
    fn only_so_many_are_under_way() {
        let mut t = Traces::default();
        for ino in 0..100 {
            t.mark(ino, Duration::ZERO);
        }
        let begin = |t: &mut Traces, now: Duration| {
            let next = |t: &mut Traces| t.next(now).inspect(|ino| t.begin(*ino, now));
            std::iter::from_fn(|| next(t)).collect::<Vec<u64>>()
        };
        let first = begin(&mut t, RIPE);
        assert_eq!(first.len(), AT_ONCE);
        t.look(RIPE);
        assert!(begin(&mut t, RIPE).is_empty());
        // Nothing is heard of them: the others go on.
        t.look(RIPE + LONG);
        let second = begin(&mut t, RIPE + LONG);
        assert_eq!(second.len(), AT_ONCE);
        t.end(first[0], RIPE + LONG);
        assert!(begin(&mut t, RIPE + LONG).is_empty());
        t.end(second[0], RIPE + LONG);
        assert_eq!(begin(&mut t, RIPE + LONG).len(), 1);
        let late = RIPE + LONG * 2;
        for _ in 0..9 {
            t.look(late);
            begin(&mut t, late);
        }
        assert_eq!(
            (t.slow.len(), t.running.len()),
            (2 * AT_ONCE - 1, 3 * AT_ONCE - 1)
        );
    }
}
