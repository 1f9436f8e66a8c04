//! How the exclusive lock is taken, as a state machine without I/O (docs/protocol/ceph/05-rbd.md, 10.1 and section 6).
//!
//! [`Acquisition::heard`] takes what came of the last action and gives the next one. An owner that is alive is asked to hand the
//! lock over, again and again; one whose watch is gone is fenced (blocklisted) before its lock is broken.
//!
//! Invariants: no lock is broken whose owner was seen watching after the lock was last read. Attempts are bounded by
//! [`ROUNDS_MAX`].

use bytes::Bytes;
use objclass::{LockInfo, LockerId};
use types::{EntityAddr, EntityName, Errno};

pub const NAME: &str = "rbd_lock";
pub const TAG: &str = "internal";
pub const EXCLUSIVE: u8 = 1;
/// Between two rounds there is a pause of about a second.
pub const ROUNDS_MAX: u32 = 120;

/// What the lock of the header is taken with: tells which watch its owner has.
pub fn cookie(watch: u64) -> String {
    format!("auto {watch}")
}

/// The watch that an owner's cookie names; None: a person took the lock.
pub fn watch_of(cookie: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(cookie).ok()?;
    text.strip_prefix("auto ")?.parse().ok()
}

/// Who holds the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub entity: EntityName,
    pub cookie: Bytes,
    pub addr: EntityAddr,
}

impl Holder {
    /// Of a lock's state; locks of this name that do not lock exclusively have several.
    pub fn of(info: &LockInfo) -> Option<Self> {
        let (LockerId { entity, cookie }, locker) = info.lockers.iter().next()?;
        Some(Self {
            entity: *entity,
            cookie: cookie.clone(),
            addr: locker.addr,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read the lock, then [`Heard::Lock`].
    Read,
    /// Take it: [`Heard::Tried`].
    Try,
    /// Does this holder's watch exist? [`Heard::Watching`]
    Watchers(Holder),
    /// Ask its owner for it: [`Heard::Answered`].
    Request,
    /// Until it is released, or a while: [`Heard::Done`].
    Wait,
    /// Have the cluster refuse this client, and wait for the map that says so: [`Heard::Done`].
    Fence(Holder),
    /// [`Heard::Done`], also where it was gone.
    Break(Holder),
    Acquired,
    GiveUp(Errno, String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Lock(LockInfo),
    Tried(std::result::Result<(), Errno>),
    Watching(bool),
    /// What the owner said; None: nobody said anything.
    Answered(Option<i32>),
    Done,
}

#[derive(Debug)]
pub struct Acquisition {
    me: EntityName,
    cookie: Bytes,
    rounds: u32,
    doing: Action,
    /// Its watch was seen to be gone; the lock is read once more before that counts.
    suspect: Option<Holder>,
}

impl Acquisition {
    /// To be begun with [`Action::Read`].
    pub fn new(me: EntityName, cookie: String) -> Self {
        Self {
            me,
            cookie: cookie.into(),
            rounds: 0,
            doing: Action::Read,
            suspect: None,
        }
    }

    pub fn heard(&mut self, heard: Heard) -> Action {
        let next = self.next(heard);
        self.doing = next.clone();
        next
    }

    fn next(&mut self, heard: Heard) -> Action {
        match (&self.doing, heard) {
            (Action::Read, Heard::Lock(info)) => self.read(&info),
            (Action::Try, Heard::Tried(done)) => match done {
                Ok(()) | Err(Errno::EEXIST) => Action::Acquired,
                Err(Errno::EBUSY) => self.again(Action::Read),
                Err(e) => Action::GiveUp(e, "the exclusive lock".into()),
            },
            (Action::Watchers(_), Heard::Watching(true)) => {
                self.suspect = None;
                Action::Request
            }
            (Action::Watchers(holder), Heard::Watching(false)) => match &self.suspect {
                Some(suspect) if suspect == holder => match holder.entity == self.me {
                    // A watch of our own that ended; we would not fence ourselves.
                    true => Action::Break(holder.clone()),
                    false => Action::Fence(holder.clone()),
                },
                _ => {
                    self.suspect = Some(holder.clone());
                    Action::Read
                }
            },
            (Action::Request, Heard::Answered(Some(r))) if r == Errno::EROFS.code() => Action::GiveUp(
                Errno::EROFS,
                "the owner of the exclusive lock does not give it away".into(),
            ),
            (Action::Request, Heard::Answered(_)) => Action::Wait,
            (Action::Wait, Heard::Done) => self.again(Action::Read),
            (Action::Fence(holder), Heard::Done) => Action::Break(holder.clone()),
            (Action::Break(_), Heard::Done) => {
                self.suspect = None;
                Action::Try
            }
            (doing, heard) => Action::GiveUp(Errno::EIO, format!("{heard:?} in answer to {doing:?}")),
        }
    }

    fn read(&mut self, info: &LockInfo) -> Action {
        let Some(holder) = Holder::of(info) else {
            return Action::Try;
        };
        if holder.entity == self.me && holder.cookie == self.cookie {
            return Action::Acquired;
        }
        if info.tag != TAG || info.kind != EXCLUSIVE || watch_of(&holder.cookie).is_none() {
            let cookie = String::from_utf8_lossy(&holder.cookie).into_owned();
            let what = format!("{} holds a lock on it, '{cookie}'", holder.entity);
            return Action::GiveUp(Errno::EBUSY, what);
        }
        Action::Watchers(holder)
    }

    fn again(&mut self, action: Action) -> Action {
        self.rounds += 1;
        match self.rounds > ROUNDS_MAX {
            true => Action::GiveUp(
                Errno::ETIMEDOUT,
                "the owner of the exclusive lock keeps it".into(),
            ),
            false => action,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use objclass::LockerInfo;
    use types::Utime;

    const ME: EntityName = EntityName { kind: 8, num: 1 };

    fn info(num: i64, cookie: &str, tag: &str) -> LockInfo {
        let id = LockerId {
            entity: EntityName { kind: 8, num },
            cookie: Bytes::copy_from_slice(cookie.as_bytes()),
        };
        let locker = LockerInfo {
            expiration: Utime::ZERO,
            addr: EntityAddr::BLANK,
            description: Bytes::new(),
        };
        LockInfo {
            lockers: [(id, locker)].into(),
            kind: EXCLUSIVE,
            tag: Bytes::copy_from_slice(tag.as_bytes()),
        }
    }

    /// Plays what is heard, and names the actions.
    fn play(script: Vec<Heard>) -> Vec<String> {
        let mut a = Acquisition::new(ME, cookie(7));
        let name = |action: Action| {
            let text = format!("{action:?}");
            text.split(['(', ' ']).next().unwrap_or_default().to_string()
        };
        script.into_iter().map(|h| name(a.heard(h))).collect()
    }

    fn free() -> Heard {
        Heard::Lock(LockInfo::default())
    }

    fn held() -> Heard {
        Heard::Lock(info(2, "auto 9", TAG))
    }

    #[test]
    fn a_free_lock_is_taken() {
        assert_eq!(play(vec![free(), Heard::Tried(Ok(()))]), ["Try", "Acquired"]);
        let mine = Heard::Lock(info(1, "auto 7", TAG));
        assert_eq!(play(vec![mine]), ["Acquired"]);
    }

    #[test]
    fn an_owner_that_lives_is_asked() {
        let script = vec![
            held(),
            Heard::Watching(true),
            Heard::Answered(Some(0)),
            Heard::Done,
            free(),
            Heard::Tried(Err(Errno::EBUSY)),
            held(),
            Heard::Watching(true),
            Heard::Answered(None),
            Heard::Done,
        ];
        assert_eq!(
            play(script),
            [
                "Watchers", "Request", "Wait", "Read", "Try", "Read", "Watchers", "Request", "Wait", "Read"
            ]
        );
    }

    #[test]
    fn one_that_refuses_keeps_it() {
        let no = Heard::Answered(Some(Errno::EROFS.code()));
        assert_eq!(
            play(vec![held(), Heard::Watching(true), no]),
            ["Watchers", "Request", "GiveUp"]
        );
    }

    #[test]
    fn a_dead_owner_is_fenced_first() {
        let script = vec![
            held(),
            Heard::Watching(false),
            held(),
            Heard::Watching(false),
            Heard::Done,
            Heard::Done,
            Heard::Tried(Ok(())),
        ];
        assert_eq!(
            play(script),
            [
                "Watchers", "Read", "Watchers", "Fence", "Break", "Try", "Acquired"
            ]
        );
    }

    /// Between reading the lock and looking for the watch it may have changed hands.
    #[test]
    fn another_owner_is_looked_at_anew() {
        let other = Heard::Lock(info(3, "auto 4", TAG));
        let script = vec![held(), Heard::Watching(false), other, Heard::Watching(false)];
        assert_eq!(play(script), ["Watchers", "Read", "Watchers", "Read"]);
    }

    #[test]
    fn our_own_watch_that_ended_is_not_fenced() {
        let old = || Heard::Lock(info(1, "auto 5", TAG));
        let script = vec![old(), Heard::Watching(false), old(), Heard::Watching(false)];
        assert_eq!(play(script), ["Watchers", "Read", "Watchers", "Break"]);
    }

    #[test]
    fn locks_of_people_are_left_alone() {
        for lock in [info(2, "mine", ""), info(2, "auto 9", ""), info(2, "auto x", TAG)] {
            assert_eq!(play(vec![Heard::Lock(lock)]), ["GiveUp"]);
        }
    }

    #[test]
    fn an_owner_that_never_gives_it_away_ends_the_attempt() {
        let mut a = Acquisition::new(ME, cookie(7));
        for _ in 0..ROUNDS_MAX {
            a.heard(held());
            a.heard(Heard::Watching(true));
            a.heard(Heard::Answered(Some(0)));
            assert_eq!(a.heard(Heard::Done), Action::Read);
        }
        a.heard(held());
        a.heard(Heard::Watching(true));
        a.heard(Heard::Answered(Some(0)));
        assert!(matches!(
            a.heard(Heard::Done),
            Action::GiveUp(Errno::ETIMEDOUT, _)
        ));
    }
}
