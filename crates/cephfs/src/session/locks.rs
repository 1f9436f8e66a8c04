//! File locks that owners here hold: kept to be said again to the next server, which has them from its clients alone.
//!
//! Invariant: what is kept of an inode is what the server has answered, in its order.

use super::held::{Shared, lost};
use super::ranges::{LOCKS_MAX, is_lock, lock_of, put, request_of, splits};
use super::{Answer, Pending, Session};
use messages::fs::{FileLock, MClientRequest, lock, op};
use std::sync::Arc;
use tokio::sync::oneshot;

impl Session {
    /// `open`: what the asking handle holds, which may be of a session that was lost.
    pub(super) fn begin_lock(
        &mut self,
        request: Box<MClientRequest>,
        open: &Shared,
        reply: oneshot::Sender<crate::Result<Answer>>,
    ) {
        let held = self.held.get(&request.path.ino);
        match held.is_some_and(|h| Arc::ptr_eq(&h.open, open)) {
            true => self.begin(request, None, reply),
            false => drop(reply.send(Err(lost()))),
        }
    }

    /// There is no room for what it asks for. What is given back at a close needs none.
    pub(super) fn refuses_lock(&self, m: &MClientRequest) -> bool {
        let full = self.held.get(&m.path.ino).filter(|h| h.locks.len() >= LOCKS_MAX);
        let Some(h) = full.filter(|_| is_lock(m)) else {
            return false;
        };
        let new = lock_of(&m.args);
        new.kind != lock::UNLOCK || splits(&h.locks, &new)
    }

    /// The answer to a request, which may have been about a lock.
    pub(super) fn hear_lock(&mut self, tid: u64, result: i32) {
        let is_about = |p: &&Pending| is_lock(&p.request) && result == 0;
        let Some(p) = self.pending.get(&tid).filter(is_about) else {
            return;
        };
        let (ino, new) = (p.request.path.ino, lock_of(&p.request.args));
        let heard = p.reply.as_ref().is_some_and(|reply| !reply.is_closed());
        let is_held = match self.held.get_mut(&ino) {
            Some(h) => {
                put(&mut h.locks, new);
                let locked = !h.locks.is_empty();
                h.open.send_if_modified(|o| {
                    o.locked = locked;
                    false
                });
                true
            }
            None => false,
        };
        if new.kind != lock::UNLOCK && !(is_held && (heard || self.asks_again(tid, ino, new.owner))) {
            self.unlock(ino, &new);
        }
    }

    /// The owner has asked for more since, so he is there, and gives back all he has when he closes the file.
    fn asks_again(&self, tid: u64, ino: u64, owner: u64) -> bool {
        let of_owner =
            |m: &MClientRequest| is_lock(m) && m.path.ino == ino && lock_of(&m.args).owner == owner;
        self.pending.range(tid + 1..).any(|(_, p)| of_owner(&p.request))
    }

    /// Nobody has the file open any more, or nobody waits any more.
    pub(super) fn unlock(&mut self, ino: u64, l: &FileLock) {
        let l = FileLock {
            kind: lock::UNLOCK,
            ..*l
        };
        let request = Box::new(request_of(op::SETFILELOCK, lock::FCNTL, ino, &l, false));
        self.begin(request, None, oneshot::channel().0);
    }
}
