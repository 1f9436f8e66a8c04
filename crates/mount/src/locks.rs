//! Locks on bytes of files (fcntl), as the kernel and as the file system have them.
//!
//! An owner is a process, or an open file (`F_OFD_SETLK`). The kernel says at each close which process's locks go; those of open files
//! are known by the handle that they were taken by, and go with it.

use cephfs::File;
use fuser::Errno;
use io::task;
use messages::fs::{FileLock, lock};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Of fcntl(2).
const F_RDLCK: i32 = 0;
const F_WRLCK: i32 = 1;
const F_UNLCK: i32 = 2;
/// The kernel's last byte of all files.
const LAST: u64 = i64::MAX as u64;
/// The kernel tells who waits of no signal (`fuser` does not hand that on), so those who wait are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// More than that are looked at as much more rarely: all are looked at by the thread that carries out what the kernel asks.
const LOOKED_AT: u32 = 32;

/// Who waits for locks.
#[derive(Debug, Default)]
pub struct Waiting(AtomicU32);

impl Waiting {
    fn look_every(&self) -> Duration {
        LOOK_EVERY * (self.0.load(Ordering::Relaxed) / LOOKED_AT).max(1)
    }
}

/// `end`: the last byte.
pub fn wished(owner: u64, pid: u32, (start, end): (u64, u64), kind: i32) -> Result<FileLock, Errno> {
    let kind = match kind {
        F_RDLCK => lock::SHARED,
        F_WRLCK => lock::EXCL,
        F_UNLCK => lock::UNLOCK,
        _ => return Err(Errno::EINVAL),
    };
    if end < start {
        return Err(Errno::EINVAL);
    }
    Ok(FileLock {
        start,
        length: if end >= LAST { 0 } else { end - start + 1 },
        client: 0,
        owner,
        pid: u64::from(pid),
        kind,
    })
}

/// All that an owner has of a file.
pub fn all_of(owner: u64) -> FileLock {
    FileLock {
        owner,
        kind: lock::UNLOCK,
        ..FileLock::default()
    }
}

/// First and last byte, kind, and the process, if it is one of this machine.
pub fn shown(found: Option<&FileLock>, client: u64) -> (u64, u64, i32, u32) {
    let Some(l) = found else {
        return (0, 0, F_UNLCK, 0);
    };
    let end = match l.length {
        0 => LAST,
        n => l.start.saturating_add(n - 1).min(LAST),
    };
    let kind = if l.kind == lock::EXCL { F_WRLCK } else { F_RDLCK };
    let pid = if l.client == client { l.pid } else { 0 };
    (l.start, end, kind, u32::try_from(pid).unwrap_or(0))
}

/// `thread`: who waits for the lock, if it is to be waited for.
pub async fn set(file: &File, wish: &FileLock, thread: Option<u32>, all: &Waiting) -> cephfs::Result<()> {
    match thread {
        Some(thread) if wish.kind != lock::UNLOCK => {
            all.0.fetch_add(1, Ordering::Relaxed);
            let done = file.wait_for_lock(wish, signaled(thread, all)).await;
            all.0.fetch_sub(1, Ordering::Relaxed);
            done
        }
        _ => file.lock(wish).await,
    }
}

/// A thread has a signal to hear: seen twice, as another thread of its process may hear it.
async fn signaled(thread: u32, all: &Waiting) {
    let mut before = false;
    loop {
        task::sleep(all.look_every()).await;
        let now = thread != 0 && io::signals::is_pending(thread).unwrap_or(false);
        if now && before {
            return;
        }
        before = now;
    }
}

/// Who took locks by which handle.
#[derive(Debug, Default)]
pub struct Owners(Mutex<HashMap<u64, BTreeSet<u64>>>);

impl Owners {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, BTreeSet<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, fh: u64, owner: u64) {
        self.all().entry(fh).or_default().insert(owner);
    }

    /// An owner closes a handle. Whether he may hold locks: also by others of his handles, whose locks on the same file go with any of them.
    /// A process that was forked has an owner of its own, which holds none.
    pub fn closes(&self, fh: u64, owner: u64) -> bool {
        let mut all = self.all();
        let may_hold = all.values().any(|owners| owners.contains(&owner));
        if let Some(owners) = all.get_mut(&fh) {
            owners.remove(&owner);
            if owners.is_empty() {
                all.remove(&fh);
            }
        }
        may_hold
    }

    /// A handle is gone.
    pub fn take(&self, fh: u64) -> BTreeSet<u64> {
        self.all().remove(&fh).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_said_with_their_last_byte_and_with_their_length() {
        let l = wished(5, 9, (10, 19), F_WRLCK).unwrap();
        assert_eq!(
            (l.start, l.length, l.owner, l.pid, l.kind),
            (10, 10, 5, 9, lock::EXCL)
        );
        let l = FileLock { client: 3, ..l };
        assert_eq!(shown(Some(&l), 3), (10, 19, F_WRLCK, 9));
        assert_eq!(shown(Some(&l), 4), (10, 19, F_WRLCK, 0));
        let all = wished(5, 9, (0, LAST), F_RDLCK).unwrap();
        assert_eq!((all.length, shown(Some(&all), 1).1), (0, LAST));
        assert_eq!(shown(None, 1).2, F_UNLCK);
        assert!(wished(5, 9, (0, 1), 7).is_err() && wished(5, 9, (2, 1), F_RDLCK).is_err());
    }

    #[test]
    fn many_that_wait_are_looked_at_more_rarely() {
        for (waiting, every) in [(0, LOOK_EVERY), (LOOKED_AT, LOOK_EVERY), (512, LOOK_EVERY * 16)] {
            assert_eq!(Waiting(AtomicU32::new(waiting)).look_every(), every);
        }
    }

    #[test]
    fn owners_go_with_their_handle() {
        let owners = Owners::default();
        owners.add(1, 10);
        owners.add(1, 11);
        owners.add(2, 10);
        owners.closes(1, 10);
        owners.closes(2, 10);
        assert_eq!(owners.take(1), [11].into());
        assert!(owners.take(1).is_empty() && owners.all().is_empty());
    }

    #[test]
    fn who_never_locked_has_nothing_to_give_back() {
        let owners = Owners::default();
        owners.add(1, 10);
        assert!(!owners.closes(1, 11), "forked by owner 10, with handle 1");
        assert!(owners.closes(2, 10), "another handle, maybe of the same file");
        assert!(owners.closes(1, 10));
        assert!(!owners.closes(1, 10));
    }
}
