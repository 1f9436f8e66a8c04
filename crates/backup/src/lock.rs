//! restic's locks: many may write at once; whoever removes is alone.
//!
//! Whoever holds one renews it, and looks before he removes or names anything whether he still holds it without a gap
//! ([`Lock::check`]). The lock of a process of this machine that is gone does not count. Any other does, however old it is: clocks
//! differ, and its holder may be slow; [`unlock`] takes those away that were not renewed for [`STALE_AFTER`].

use crate::folder::Kind;
use crate::forms::{Id, LockFile};
use crate::repository::Repository;
use crate::{Error, Result, time};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const STALE_AFTER: u64 = 30 * 60;
const RENEW_AFTER: u64 = 5 * 60;
/// A lock that was not renewed for so long is not relied on any more: others may soon take it away.
const RELIED_ON: u64 = STALE_AFTER - RENEW_AFTER;
const LOOK_EVERY: Duration = match cfg!(test) {
    true => Duration::from_millis(5),
    false => Duration::from_secs(20),
};

/// Held until it is dropped, and renewed by a thread of its own.
pub struct Lock {
    shared: Arc<Shared>,
    renewing: Option<(Sender<()>, JoinHandle<()>)>,
}

struct Shared {
    /// Of which nothing was known when the lock was taken.
    repo: Arc<Repository>,
    exclusive: bool,
    /// None: nothing is locked, since nothing shall be written.
    held: Mutex<Option<Held>>,
}

struct Held {
    file: Id,
    /// When it was written: by the wall clock, which jumps, and by the other, which stands still while a machine sleeps.
    wall: u64,
    monotonic: u64,
    /// Why it cannot be relied on any more.
    lost: Option<String>,
}

impl Lock {
    pub fn take(repo: &Arc<Repository>, exclusive: bool) -> Result<Self> {
        refuse_conflict(repo, exclusive, None)?;
        let held = write(repo, exclusive)?;
        let file = held.file;
        let mut lock = Self {
            shared: Arc::new(Shared {
                repo: Arc::new(repo.fresh()),
                exclusive,
                held: Mutex::new(Some(held)),
            }),
            renewing: None,
        };
        // Somebody may have come at the same time: then neither goes on.
        refuse_conflict(repo, exclusive, Some(file))?;
        let (end, ended) = channel::<()>();
        let shared = lock.shared.clone();
        let thread = io::thread::spawn("backup-lock", move || {
            while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                // It is tried again; what has to know asks [`Lock::check`].
                let _ = shared.renew();
            }
        });
        let thread = thread.map_err(|e| Error::refused(format!("a thread: {e}")))?;
        lock.renewing = Some((end, thread));
        Ok(lock)
    }

    /// For who only reads: none where [`Repository::set_lock`] says so.
    pub fn to_read(repo: &Arc<Repository>) -> Result<Self> {
        if repo.locks() {
            return Self::take(repo, false);
        }
        Ok(Self {
            shared: Arc::new(Shared {
                repo: Arc::new(repo.fresh()),
                exclusive: false,
                held: Mutex::new(None),
            }),
            renewing: None,
        })
    }

    /// What is to be worked on under the lock: what other handles know of the repository may be gone.
    pub fn repo(&self) -> &Arc<Repository> {
        &self.shared.repo
    }

    /// Refuses unless it is held, and was without a gap: whatever was read under it is true still.
    pub fn check(&self) -> Result<()> {
        let mut held = self.shared.held();
        match held.as_mut() {
            Some(held) => self.shared.check(held),
            None => Err(Error::refused("nothing is written without a lock")),
        }
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, held: &mut Held) -> Result<()> {
        if held.lost.is_none() {
            let age = held.age(&self.repo);
            if age > RELIED_ON {
                held.lost = Some(format!("it was not renewed for {}", time::duration(age)));
            } else if self.repo.folder.length(Kind::Lock, &held.file)?.is_none() {
                held.lost = Some("somebody took it away".into());
            }
        }
        match &held.lost {
            None => Ok(()),
            Some(why) => Err(Error::refused(format!(
                "the lock on the repository was lost ({why}), and others may have worked on it meanwhile"
            ))),
        }
    }

    fn renew(&self) -> Result<()> {
        let mut held = self.held();
        let Some(held) = held.as_mut().filter(|h| h.age(&self.repo) >= RENEW_AFTER) else {
            return Ok(());
        };
        self.check(held)?;
        let old = std::mem::replace(held, write(&self.repo, self.exclusive)?);
        self.repo.folder.remove(Kind::Lock, &old.file)
    }
}

impl Held {
    fn age(&self, repo: &Repository) -> u64 {
        let clock = &repo.env.clock;
        let by_wall = clock.wall().as_secs().saturating_sub(self.wall);
        by_wall.max(clock.monotonic().as_secs().saturating_sub(self.monotonic))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.renewing.take() {
            drop(end);
            let _ = thread.join();
        }
        if let Some(held) = &*self.shared.held() {
            // One that stays does not count as soon as this process ends.
            let _ = self.shared.repo.folder.remove(Kind::Lock, &held.file);
        }
    }
}

fn write(repo: &Repository, exclusive: bool) -> Result<Held> {
    let (wall, monotonic) = (repo.env.now(), repo.env.clock.monotonic().as_secs());
    let file = LockFile {
        time: time::seconds(wall),
        exclusive,
        hostname: io::files::hostname(),
        username: "skep".into(),
        pid: std::process::id(),
    };
    Ok(Held {
        file: repo.write_json(Kind::Lock, &file)?,
        wall,
        monotonic,
        lost: None,
    })
}

fn locks(repo: &Repository) -> Result<Vec<(Id, LockFile)>> {
    let mut all = Vec::new();
    for id in repo.folder.list(Kind::Lock)? {
        match repo.read_json(Kind::Lock, &id) {
            Ok(lock) => all.push((id, lock)),
            // It went meanwhile.
            Err(_) if repo.folder.length(Kind::Lock, &id)?.is_none() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

fn refuse_conflict(repo: &Repository, exclusive: bool, own: Option<Id>) -> Result<()> {
    for (id, lock) in locks(repo)? {
        if own == Some(id) {
            continue;
        }
        if is_dead(&lock) {
            repo.folder.remove(Kind::Lock, &id)?;
            continue;
        }
        if !exclusive && !lock.exclusive {
            continue;
        }
        let alone = if lock.exclusive { ", alone" } else { "" };
        let who = format!("process {} on {}", lock.pid, lock.hostname);
        return Err(match is_old(&lock, repo.env.now()) {
            false => Error::Busy(format!(
                "{who} works on the repository since {}{alone}; try again when it has ended",
                lock.time
            )),
            true => Error::refused(format!(
                "{who} has locked the repository{alone}, and did not renew that since {}; if it has ended, \
                 `skep backup unlock {}` takes its lock away",
                lock.time,
                repo.root().display()
            )),
        });
    }
    Ok(())
}

/// Takes locks away whose holders are gone, or did not renew them for [`STALE_AFTER`]: whose they were.
pub fn unlock(repo: &Repository) -> Result<Vec<String>> {
    let mut gone = Vec::new();
    for (id, lock) in locks(repo)? {
        if is_dead(&lock) || is_old(&lock, repo.env.now()) {
            repo.folder.remove(Kind::Lock, &id)?;
            gone.push(format!(
                "process {} on {}, of {}",
                lock.pid, lock.hostname, lock.time
            ));
        }
    }
    Ok(gone)
}

/// Its process was one of this machine, and is gone.
fn is_dead(lock: &LockFile) -> bool {
    lock.hostname == io::files::hostname() && lock.pid > 0 && !io::files::is_running(lock.pid)
}

fn is_old(lock: &LockFile, now: u64) -> bool {
    time::parse(&lock.time).is_none_or(|at| now.saturating_sub(at) > STALE_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, Password};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Goes on when it is told to.
    struct Hand(AtomicU64);

    impl io::Clock for Hand {
        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::SeqCst))
        }
        fn wall(&self) -> Duration {
            self.monotonic()
        }
    }

    fn repository() -> (tempfile::TempDir, Arc<Hand>, Arc<Repository>) {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(Hand(AtomicU64::new(1_795_692_245)));
        let env = Environment {
            clock: clock.clone(),
            ..Environment::system()
        };
        let password = Password::new("x").unwrap();
        let repo = Repository::create(&dir.path().join("r"), &password, env).unwrap();
        (dir, clock, Arc::new(repo))
    }

    fn files(repo: &Repository) -> Vec<Id> {
        repo.folder.list(Kind::Lock).unwrap()
    }

    #[test]
    fn whoever_removes_is_alone() {
        let (_dir, _, repo) = repository();
        let one = Lock::take(&repo, false).unwrap();
        let two = Lock::take(&repo, false).unwrap();
        assert!(matches!(Lock::take(&repo, true), Err(Error::Busy(_))));
        drop((one, two));
        let alone = Lock::take(&repo, true).unwrap();
        assert!(matches!(Lock::take(&repo, false), Err(Error::Busy(_))));
        drop(alone);
        assert!(files(&repo).is_empty());
    }

    #[test]
    fn a_lock_renews_itself() {
        let (_dir, clock, repo) = repository();
        let lock = Lock::take(&repo, true).unwrap();
        for _ in 0..20 {
            let before = files(&repo);
            clock.0.fetch_add(RENEW_AFTER, Ordering::SeqCst);
            let renewed = || files(&repo).len() == 1 && files(&repo) != before;
            let looks = (0..12_000).any(|_| {
                std::thread::park_timeout(LOOK_EVERY);
                renewed()
            });
            assert!(looks, "within a minute");
            lock.check().unwrap();
        }
        drop(lock);
        assert!(files(&repo).is_empty());
    }

    #[test]
    fn a_lock_that_was_lost_is_known() {
        let (_dir, clock, repo) = repository();
        let said = |lock: &Lock| lock.check().unwrap_err().to_string();
        let lock = Lock::take(&repo, false).unwrap();
        repo.folder.remove(Kind::Lock, &files(&repo)[0]).unwrap();
        assert!(said(&lock).contains("somebody took it away"), "{}", said(&lock));
        drop(lock);
        // The machine slept: nobody else saw it, and it is no better when it is renewed now.
        let lock = Lock::take(&repo, false).unwrap();
        clock.0.fetch_add(RELIED_ON + 1, Ordering::SeqCst);
        assert!(said(&lock).contains("was not renewed"), "{}", said(&lock));
        let _ = lock.shared.renew();
        assert!(said(&lock).contains("was not renewed"), "{}", said(&lock));
    }

    #[test]
    fn locks_of_the_dead_do_not_count_and_old_ones_do() {
        let (_dir, clock, repo) = repository();
        let lock = |hostname: &str, pid| LockFile {
            time: time::seconds(repo.env.now()),
            exclusive: true,
            hostname: hostname.into(),
            username: String::new(),
            pid,
        };
        // No process has this number.
        let dead = lock(&io::files::hostname(), i32::MAX as u32);
        repo.write_json(Kind::Lock, &dead).unwrap();
        drop(Lock::take(&repo, true).unwrap());
        assert!(files(&repo).is_empty());

        repo.write_json(Kind::Lock, &lock("elsewhere", 1)).unwrap();
        assert!(matches!(Lock::take(&repo, false), Err(Error::Busy(_))));
        assert!(unlock(&repo).unwrap().is_empty());
        clock.0.fetch_add(STALE_AFTER + 1, Ordering::SeqCst);
        let said = Lock::take(&repo, false).err().unwrap().to_string();
        assert!(said.contains("on elsewhere") && said.contains("unlock"), "{said}");
        assert_eq!(files(&repo).len(), 1, "it is left alone");
        assert_eq!(unlock(&repo).unwrap().len(), 1);
        drop(Lock::take(&repo, true).unwrap());
    }

    #[test]
    fn who_reads_needs_no_lock() {
        let (_dir, _, repo) = repository();
        let mut open = repo.fresh();
        open.set_lock(false);
        let lock = Lock::to_read(&Arc::new(open)).unwrap();
        assert!(files(&repo).is_empty());
        assert!(lock.check().is_err(), "nothing is written under it");
    }
}
