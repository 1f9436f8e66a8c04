//! SETFILELOCK and GETFILELOCK.

use super::{Answer, Phase, Request};
use crate::machine::parts::locks::{Owner, Range, Taken};
use crate::machine::{Machine, Result, Stop};
use bytes::Bytes;
use denc::Encode;
use messages::fs::{FileLock, lock};
use types::Errno;

/// Newer clients set it: then the process is no part of who owns a lock.
const OWNER_BIT: u64 = 1 << 63;

struct Asked {
    rule: u8,
    kind: u8,
    owner: Owner,
    range: Range,
    waits: bool,
}

fn asked(r: &Request) -> Asked {
    let a = r.m.args;
    let (owner, pid) = (a.u64_at(2), a.u64_at(10));
    Asked {
        rule: a.u8_at(0),
        kind: a.u8_at(1),
        owner: Owner {
            client: r.client,
            owner,
            pid,
            by_process: owner & OWNER_BIT == 0,
        },
        range: Range::of(a.u64_at(18), a.u64_at(26)),
        waits: a.u8_at(34) != 0,
    }
}

impl Machine {
    pub(crate) fn setfilelock(&mut self, r: &mut Request) -> Result<Answer> {
        match r.phase {
            Phase::Woken(0) => return Ok(Answer::default()),
            Phase::Woken(e) => return Err(Errno(e).into()),
            Phase::Locking => return Err(Stop::Wait),
            _ => {}
        }
        let inode = self.live(r)?;
        let a = asked(r);
        let is_flock = match a.rule {
            lock::FCNTL | lock::FCNTL_INTR => false,
            lock::FLOCK | lock::FLOCK_INTR => true,
            _ => return Err(Errno::EINVAL.into()),
        };
        if matches!(a.rule, lock::FCNTL_INTR | lock::FLOCK_INTR) {
            self.interrupt(inode.ino, is_flock, a.owner);
            return Ok(Answer::default());
        }
        let locks = self.flocks.entry(inode.ino).or_default();
        if a.kind == lock::UNLOCK {
            locks.table(is_flock).unlock(a.owner, a.range);
            self.grant_flocks(inode.ino);
            return Ok(Answer::default());
        }
        if !matches!(a.kind, lock::SHARED | lock::EXCL) {
            return Err(Errno::EINVAL.into());
        }
        let exclusive = a.kind == lock::EXCL;
        match locks.table(is_flock).lock(a.owner, a.range, exclusive) {
            Taken::Now => {
                self.grant_flocks(inode.ino);
                Ok(Answer::default())
            }
            Taken::No if !a.waits => Err(Errno::EAGAIN.into()),
            Taken::No => {
                if !is_flock && self.would_deadlock(inode.ino, a.owner, a.range, exclusive) {
                    return Err(Errno::EDEADLK.into());
                }
                let locks = self.flocks.entry(inode.ino).or_default();
                locks.table(is_flock).wait(r.id, a.owner, a.range, exclusive);
                r.phase = Phase::Locking;
                Err(Stop::Wait)
            }
        }
    }

    pub(crate) fn getfilelock(&mut self, r: &mut Request) -> Result<Answer> {
        let inode = self.live(r)?;
        let a = asked(r);
        let is_flock = match a.rule {
            lock::FCNTL => false,
            lock::FLOCK => true,
            _ => return Err(Errno::EINVAL.into()),
        };
        let exclusive = a.kind == lock::EXCL;
        let table = self.flocks.entry(inode.ino).or_default().table(is_flock);
        let found = table.conflict(a.owner, a.range, exclusive).unwrap_or(FileLock {
            start: r.m.args.u64_at(18),
            length: r.m.args.u64_at(26),
            client: r.client,
            owner: a.owner.owner,
            pid: a.owner.pid,
            kind: lock::UNLOCK,
        });
        let extra: Bytes = found.to_bytes();
        Ok(Answer {
            extra,
            ..Answer::default()
        })
    }

    fn interrupt(&mut self, ino: u64, is_flock: bool, owner: Owner) {
        let Some(locks) = self.flocks.get_mut(&ino) else {
            return;
        };
        for id in locks.table(is_flock).interrupt(owner) {
            self.wake_locker(id, Errno::EINTR.0);
        }
    }

    pub(crate) fn wake_locker(&mut self, id: u64, error: i32) {
        if let Some(r) = self.requests.get_mut(&id) {
            r.phase = Phase::Woken(error);
            self.runnable.push_back(id);
        }
    }
}
