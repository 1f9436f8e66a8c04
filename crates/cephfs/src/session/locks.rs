//! File locks that owners here hold: kept to be said again to the next server, which has them from its clients alone.
//!
//! Invariant: what is kept of an inode is what the server has answered, in its order.

use super::ranges::{LOCKS_MAX, lock_of, put, request_of};
use super::{Pending, Session};
use messages::fs::{FileLock, MClientRequest, lock, op};
use tokio::sync::oneshot;

impl Session {
    /// There is no room for what it asks for.
    pub(super) fn refuses_lock(&self, m: &MClientRequest) -> bool {
        let a = &m.args;
        let takes =
            m.op == op::SETFILELOCK && a.u8_at(0) == lock::FCNTL && a.u8_at(1) != lock::UNLOCK;
        takes && self.held.get(&m.path.ino).is_some_and(|h| h.locks.len() >= LOCKS_MAX)
    }

    /// The answer to a request, which may have been about a lock.
    pub(super) fn hear_lock(&mut self, tid: u64, result: i32) {
        let is_about = |p: &&Pending| p.request.op == op::SETFILELOCK && result == 0;
        let Some(p) = self.pending.get(&tid).filter(is_about) else {
            return;
        };
        let (ino, args) = (p.request.path.ino, p.request.args);
        if args.u8_at(0) != lock::FCNTL {
            // Who waited was interrupted.
            return;
        }
        let new = lock_of(&args);
        match self.held.get_mut(&ino) {
            Some(h) => {
                put(&mut h.locks, new);
                let locked = !h.locks.is_empty();
                h.open.send_if_modified(|o| {
                    o.locked = locked;
                    false
                });
            }
            None if new.kind != lock::UNLOCK => self.unlock(ino, &new),
            None => {}
        }
    }

    /// Nobody has the file open any more.
    pub(super) fn unlock(&mut self, ino: u64, l: &FileLock) {
        let l = FileLock {
            kind: lock::UNLOCK,
            ..*l
        };
        let request = Box::new(request_of(op::SETFILELOCK, lock::FCNTL, ino, &l, false));
        self.begin(request, None, oneshot::channel().0);
    }
}
