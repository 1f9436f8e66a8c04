//! restic's locks: many may write at once; whoever removes is alone.
//!
//! A lock of a process of this machine that is gone, or one that nobody renewed for [`STALE_AFTER`], does not count.

use crate::folder::Kind;
use crate::forms::{Id, LockFile};
use crate::repository::Repository;
use crate::{Error, Result, time};
use std::sync::{Arc, Mutex, PoisonError};

const STALE_AFTER: u64 = 30 * 60;
const RENEW_AFTER: u64 = 5 * 60;

/// Held until it is dropped.
pub struct Lock {
    /// Of which nothing was known when the lock was taken.
    repo: Arc<Repository>,
    exclusive: bool,
    /// The file, and when it was written.
    held: Mutex<(Id, u64)>,
}

impl Lock {
    pub fn take(repo: &Arc<Repository>, exclusive: bool) -> Result<Self> {
        refuse_conflict(repo, exclusive, None)?;
        let now = repo.env.now();
        let id = write(repo, exclusive, now)?;
        let lock = Self {
            repo: Arc::new(repo.fresh()),
            exclusive,
            held: Mutex::new((id, now)),
        };
        // Somebody may have come at the same time: then neither goes on.
        refuse_conflict(repo, exclusive, Some(id))?;
        Ok(lock)
    }

    /// What is to be worked on under the lock: what other handles know of the repository may be gone.
    pub fn repo(&self) -> &Arc<Repository> {
        &self.repo
    }

    /// To be called now and then by work that is long.
    pub fn renew(&self) -> Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.repo.env.now();
        if now.saturating_sub(held.1) < RENEW_AFTER {
            return Ok(());
        }
        let new = write(&self.repo, self.exclusive, now)?;
        self.repo.folder.remove(Kind::Lock, &held.0)?;
        *held = (new, now);
        Ok(())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // One that stays is stale as soon as this process ends.
        let _ = self.repo.folder.remove(Kind::Lock, &held.0);
    }
}

fn write(repo: &Repository, exclusive: bool, now: u64) -> Result<Id> {
    let file = LockFile {
        time: time::seconds(now),
        exclusive,
        hostname: io::files::hostname(),
        username: "skep".into(),
        pid: std::process::id(),
    };
    repo.write_json(Kind::Lock, &file)
}

fn refuse_conflict(repo: &Repository, exclusive: bool, own: Option<Id>) -> Result<()> {
    for id in repo.folder.list(Kind::Lock)? {
        if own == Some(id) {
            continue;
        }
        let lock: LockFile = match repo.read_json(Kind::Lock, &id) {
            Ok(lock) => lock,
            // It went meanwhile.
            Err(_) if repo.folder.length(Kind::Lock, &id)?.is_none() => continue,
            Err(e) => return Err(e),
        };
        if is_stale(&lock, repo.env.now()) {
            if lock.hostname == io::files::hostname() {
                repo.folder.remove(Kind::Lock, &id)?;
            }
            continue;
        }
        if exclusive || lock.exclusive {
            return Err(Error::refused(format!(
                "process {} on {} works on the repository since {}{}; try again when it has ended",
                lock.pid,
                lock.hostname,
                lock.time,
                if lock.exclusive { ", alone" } else { "" }
            )));
        }
    }
    Ok(())
}

fn is_stale(lock: &LockFile, now: u64) -> bool {
    let here = lock.hostname == io::files::hostname() && lock.pid > 0;
    let old = time::parse(&lock.time).is_none_or(|at| now.saturating_sub(at) > STALE_AFTER);
    old || here && !io::files::is_running(lock.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, Password};

    #[test]
    fn whoever_removes_is_alone() {
        let dir = tempfile::tempdir().unwrap();
        let password = Password::new("x").unwrap();
        let root = dir.path().join("r");
        let repo = Arc::new(Repository::create(&root, &password, Environment::system()).unwrap());
        let one = Lock::take(&repo, false).unwrap();
        let two = Lock::take(&repo, false).unwrap();
        assert!(Lock::take(&repo, true).is_err());
        drop((one, two));
        let alone = Lock::take(&repo, true).unwrap();
        assert!(Lock::take(&repo, false).is_err());
        drop(alone);
        assert!(repo.folder.list(Kind::Lock).unwrap().is_empty());
    }

    #[test]
    fn locks_of_the_dead_do_not_count() {
        let lock = |hostname: &str, pid| LockFile {
            time: time::seconds(10_000),
            exclusive: true,
            hostname: hostname.into(),
            username: String::new(),
            pid,
        };
        let here = io::files::hostname();
        assert!(!is_stale(&lock(&here, std::process::id()), 10_000));
        assert!(
            is_stale(&lock(&here, i32::MAX as u32), 10_000),
            "no process has this number"
        );
        assert!(!is_stale(&lock("elsewhere", 1), 10_000 + STALE_AFTER));
        assert!(is_stale(&lock("elsewhere", 1), 10_001 + STALE_AFTER));
    }
}
