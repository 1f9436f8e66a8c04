//! Backtraces that are to be written, and those under way.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::PoolId;

/// So long after it was made or renamed: what lives shorter costs nothing.
const RIPE: Duration = Duration::from_secs(5);
/// Written at once.
const AT_ONCE: usize = 16;
/// So many may be due; then changes wait.
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

/// Invariant: an inode is in `due` as long as its row says that it is; one under way is not in `queue`.
#[derive(Debug, Default)]
pub struct Traces {
    due: BTreeSet<u64>,
    queue: VecDeque<(u64, Duration)>,
    /// Under way; true: it changed since.
    running: BTreeMap<u64, bool>,
    written: BTreeSet<u64>,
}

impl Traces {
    pub fn mark(&mut self, ino: u64, now: Duration) {
        if let Some(again) = self.running.get_mut(&ino) {
            *again = true;
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
        if self.running.len() >= AT_ONCE || now < since + RIPE {
            return None;
        }
        self.queue.pop_front();
        Some(ino)
    }

    pub fn begin(&mut self, ino: u64) {
        self.running.insert(ino, false);
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
        match self.running.remove(&ino) {
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
        t.begin(7);
        t.mark(7, later);
        t.end(7, later);
        assert!(t.take_written().is_empty());
        assert_eq!(t.next(later * 2), Some(7));
        t.begin(7);
        t.end(7, later);
        t.mark(7, later);
        assert!(t.take_written().is_empty(), "it changed before that was noted");
        assert_eq!(t.next(later * 2), Some(7));
        t.begin(7);
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
        let mut begun = 0;
        while let Some(ino) = t.next(RIPE) {
            t.begin(ino);
            begun += 1;
        }
        assert_eq!(begun, AT_ONCE);
    }
}
