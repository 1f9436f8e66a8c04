//! File locks: ranges that owners hold, who waits, and who would wait for himself.
//!
//! Invariants: ranges of one owner in one table do not overlap; two owners hold overlapping ranges only if both share them. They are not
//! kept on disk: clients bring them back after a restart.

use super::parts::locks::{Held, Owner, Range};
use super::{ClientId, Machine, RequestId};
use messages::fs::FileLock;
use std::collections::BTreeSet;

impl Machine {
    pub(crate) fn grant_flocks(&mut self, ino: u64) {
        let Some(locks) = self.flocks.get_mut(&ino) else {
            return;
        };
        let mut granted = locks.fcntl.grant();
        granted.extend(locks.flock.grant());
        if locks.is_empty() {
            self.flocks.remove(&ino);
        }
        for id in granted {
            self.wake_locker(id, 0);
        }
    }

    pub(crate) fn drop_flocks(&mut self, client: ClientId) {
        let all: Vec<u64> = self.flocks.keys().copied().collect();
        for ino in all {
            if let Some(locks) = self.flocks.get_mut(&ino) {
                locks.fcntl.forget(client);
                locks.flock.forget(client);
            }
            self.grant_flocks(ino);
        }
    }

    pub(crate) fn forget_lock_waiter(&mut self, id: RequestId) {
        for locks in self.flocks.values_mut() {
            locks.fcntl.waiting.retain(|w| w.request != id);
            locks.flock.waiting.retain(|w| w.request != id);
        }
    }

    pub(crate) fn restore_flocks(
        &mut self,
        client: ClientId,
        ino: u64,
        fcntl: &[FileLock],
        flock: &[FileLock],
    ) {
        if fcntl.is_empty() && flock.is_empty() {
            return;
        }
        let locks = self.flocks.entry(ino).or_default();
        fcntl.iter().for_each(|l| locks.fcntl.restore(client, l));
        flock.iter().for_each(|l| locks.flock.restore(client, l));
    }

    /// Whoever it would wait for waits, over others, for this owner.
    pub(crate) fn would_deadlock(&self, ino: u64, owner: Owner, range: Range, exclusive: bool) -> bool {
        let blockers = |ino: u64, h: &Held| -> Vec<Owner> {
            let Some(locks) = self.flocks.get(&ino) else {
                return Vec::new();
            };
            let all = locks.fcntl.against(h.owner, h.range, h.exclusive);
            all.map(|b| b.owner).collect()
        };
        let wish = Held {
            owner,
            range,
            exclusive,
        };
        let mut seen = BTreeSet::new();
        let mut next = blockers(ino, &wish);
        while let Some(o) = next.pop() {
            if o.same(&owner) {
                return true;
            }
            if !seen.insert(o) {
                continue;
            }
            for (ino, locks) in &self.flocks {
                for w in locks.fcntl.waiting.iter().filter(|w| w.wish.owner.same(&o)) {
                    next.extend(blockers(*ino, &w.wish));
                }
            }
        }
        false
    }
}
