//! Ranges of a file that owners have locked, and who waits.
//!
//! Invariants: ranges of one owner in one table do not overlap; two owners hold overlapping ranges only if both share them.

use super::request::RequestId;
use super::tx::ClientId;
use messages::fs::{FileLock, lock};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub client: ClientId,
    pub owner: u64,
    pub pid: u64,
    /// The process belongs to it.
    pub by_process: bool,
}

impl Owner {
    pub fn same(&self, o: &Owner) -> bool {
        self.client == o.client && self.owner == o.owner && (!self.by_process || self.pid == o.pid)
    }
}

/// From `start` up to, not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    pub start: u64,
    pub end: u64,
}

impl Range {
    /// A length of 0 means: to the end.
    pub fn of(start: u64, length: u64) -> Self {
        let end = match length {
            0 => u64::MAX,
            n => start.saturating_add(n),
        };
        Self { start, end }
    }

    pub fn overlaps(&self, o: &Range) -> bool {
        self.start < o.end && o.start < self.end
    }

    pub fn length(&self) -> u64 {
        match self.end {
            u64::MAX => 0,
            end => end - self.start,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub owner: Owner,
    pub range: Range,
    pub exclusive: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Waiter {
    pub request: RequestId,
    pub wish: Held,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Now,
    No,
}

#[derive(Debug, Default)]
pub struct LockTable {
    pub held: Vec<Held>,
    pub waiting: Vec<Waiter>,
}

#[derive(Debug, Default)]
pub struct FileLocks {
    pub fcntl: LockTable,
    pub flock: LockTable,
}

impl FileLocks {
    pub fn table(&mut self, is_flock: bool) -> &mut LockTable {
        match is_flock {
            true => &mut self.flock,
            false => &mut self.fcntl,
        }
    }

    pub fn is_empty(&self) -> bool {
        let empty = |t: &LockTable| t.held.is_empty() && t.waiting.is_empty();
        empty(&self.fcntl) && empty(&self.flock)
    }
}

impl LockTable {
    pub fn against(&self, owner: Owner, range: Range, exclusive: bool) -> impl Iterator<Item = &Held> {
        self.held
            .iter()
            .filter(move |h| !h.owner.same(&owner) && h.range.overlaps(&range) && (exclusive || h.exclusive))
    }

    pub fn conflict(&self, owner: Owner, range: Range, exclusive: bool) -> Option<FileLock> {
        let h = self.against(owner, range, exclusive).next()?;
        Some(FileLock {
            start: h.range.start,
            length: h.range.length(),
            client: h.owner.client,
            owner: h.owner.owner,
            pid: h.owner.pid,
            kind: if h.exclusive { lock::EXCL } else { lock::SHARED },
        })
    }

    pub fn lock(&mut self, owner: Owner, range: Range, exclusive: bool) -> Taken {
        if self.against(owner, range, exclusive).next().is_some() {
            return Taken::No;
        }
        self.put(owner, range, exclusive);
        Taken::Now
    }

    /// Takes the place of what the owner had there; what touches and is of the same kind becomes one.
    pub fn put(&mut self, owner: Owner, mut range: Range, exclusive: bool) {
        self.unlock(owner, range);
        self.held.retain(|h| {
            let touches = h.range.end == range.start || range.end == h.range.start;
            let one = h.owner.same(&owner) && h.exclusive == exclusive && touches;
            if one {
                range.start = range.start.min(h.range.start);
                range.end = range.end.max(h.range.end);
            }
            !one
        });
        self.held.push(Held {
            owner,
            range,
            exclusive,
        });
    }

    pub fn unlock(&mut self, owner: Owner, range: Range) {
        let mut rest = Vec::new();
        self.held.retain(|h| {
            if !h.owner.same(&owner) || !h.range.overlaps(&range) {
                return true;
            }
            for (start, end) in [(h.range.start, range.start), (range.end, h.range.end)] {
                if start < end {
                    rest.push(Held {
                        range: Range { start, end },
                        ..*h
                    });
                }
            }
            false
        });
        self.held.extend(rest);
    }

    pub fn wait(&mut self, request: RequestId, owner: Owner, range: Range, exclusive: bool) {
        let wish = Held {
            owner,
            range,
            exclusive,
        };
        self.waiting.push(Waiter { request, wish });
    }

    /// Waiting requests of this owner.
    pub fn interrupt(&mut self, owner: Owner) -> Vec<RequestId> {
        let mut woken = Vec::new();
        self.waiting.retain(|w| {
            let his = w.wish.owner.same(&owner);
            if his {
                woken.push(w.request);
            }
            !his
        });
        woken
    }

    /// Those whose turn has come, in order.
    pub fn grant(&mut self) -> Vec<RequestId> {
        let mut granted = Vec::new();
        let waiting = std::mem::take(&mut self.waiting);
        for w in waiting {
            let h = w.wish;
            match self.lock(h.owner, h.range, h.exclusive) {
                Taken::Now => granted.push(w.request),
                Taken::No => self.waiting.push(w),
            }
        }
        granted
    }

    pub fn forget(&mut self, client: ClientId) {
        self.held.retain(|h| h.owner.client != client);
        self.waiting.retain(|w| w.wish.owner.client != client);
    }

    pub fn restore(&mut self, client: ClientId, l: &FileLock) {
        let owner = Owner {
            client,
            owner: l.owner,
            pid: l.pid,
            by_process: l.owner >> 63 == 0,
        };
        self.put(owner, Range::of(l.start, l.length), l.kind == lock::EXCL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: u64) -> Owner {
        Owner {
            client: n,
            owner: n | 1 << 63,
            pid: 1,
            by_process: false,
        }
    }

    fn held(t: &LockTable) -> Vec<(u64, u64, u64, bool)> {
        let mut all: Vec<_> = t
            .held
            .iter()
            .map(|h| (h.range.start, h.range.end, h.owner.client, h.exclusive))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn ranges_are_split_and_joined() {
        let mut t = LockTable::default();
        let (a, b) = (owner(1), owner(2));
        assert_eq!(t.lock(a, Range::of(0, 100), true), Taken::Now);
        assert_eq!(t.lock(b, Range::of(50, 1), false), Taken::No);
        t.unlock(a, Range::of(40, 20));
        assert_eq!(held(&t), [(0, 40, 1, true), (60, 100, 1, true)]);
        assert_eq!(t.lock(b, Range::of(40, 20), false), Taken::Now);
        assert_eq!(t.lock(a, Range::of(0, 40), false), Taken::Now);
        assert_eq!(t.lock(a, Range::of(100, 0), true), Taken::Now);
        assert_eq!(
            held(&t),
            [(0, 40, 1, false), (40, 60, 2, false), (60, u64::MAX, 1, true)]
        );
        let found = t.conflict(b, Range::of(70, 1), false).unwrap();
        assert_eq!((found.start, found.length, found.client), (60, 0, 1));
        assert_eq!(t.conflict(b, Range::of(0, 10), false), None);
    }

    #[test]
    fn those_who_wait_get_their_turn_in_order() {
        let mut t = LockTable::default();
        let all = Range::of(0, 0);
        assert_eq!(t.lock(owner(1), all, true), Taken::Now);
        t.wait(7, owner(2), all, true);
        t.wait(8, owner(3), all, true);
        assert!(t.grant().is_empty());
        t.unlock(owner(1), all);
        assert_eq!(t.grant(), [7]);
        assert_eq!(t.interrupt(owner(3)), [8]);
        t.unlock(owner(2), all);
        assert!(t.grant().is_empty());
    }
}
