//! Calls of the classes `rbd` and `lock` as steps of operations. Their numbers and inputs: docs/protocol/ceph/05-rbd.md, 4 and 6.

use crate::lock::{EXCLUSIVE, NAME, TAG};
use client::Operation;
use denc::Writer;
use objclass::LockerId;
use types::{EntityName, Utime};

pub trait Calls: Sized {
    fn rbd(self, method: &str, input: impl FnOnce(&mut Writer)) -> Self;
    fn rbd_write(self, method: &str, input: impl FnOnce(&mut Writer)) -> Self;
    fn lock_info(self) -> Self;
    /// `cookie` and `tag`: those of the header, or none for an object map.
    fn lock(self, cookie: &str, tag: &str) -> Self;
    fn unlock(self, cookie: &str) -> Self;
    fn break_lock(self, locker: &LockerId) -> Self;
    /// Of the header's lock, to another watch's cookie.
    fn set_cookie(self, old: &str, new: &str) -> Self;
    /// A guard: fails with EBUSY unless we hold the lock of this object map.
    fn assert_map_locked(self) -> Self;
}

fn encoded(input: impl FnOnce(&mut Writer)) -> denc::Bytes {
    let mut w = Writer::new();
    input(&mut w);
    w.finish()
}

fn lock_call(op: Operation, method: &str, writes: bool, input: impl FnOnce(&mut Writer)) -> Operation {
    let body = encoded(|w| {
        w.envelope(1, 1, |w| {
            w.string(NAME);
            input(w);
        });
    });
    op.call("lock", method, &body, writes)
}

impl Calls for Operation {
    fn rbd(self, method: &str, input: impl FnOnce(&mut Writer)) -> Self {
        self.call("rbd", method, &encoded(input), false)
    }

    fn rbd_write(self, method: &str, input: impl FnOnce(&mut Writer)) -> Self {
        self.call("rbd", method, &encoded(input), true)
    }

    fn lock_info(self) -> Self {
        lock_call(self, "get_info", false, |_| {})
    }

    fn lock(self, cookie: &str, tag: &str) -> Self {
        lock_call(self, "lock", true, |w| {
            w.u8(EXCLUSIVE);
            w.string(cookie);
            w.string(tag);
            w.string("");
            w.put(&Utime::ZERO);
            w.u8(0);
        })
    }

    fn unlock(self, cookie: &str) -> Self {
        lock_call(self, "unlock", true, |w| w.string(cookie))
    }

    fn break_lock(self, locker: &LockerId) -> Self {
        lock_call(self, "break_lock", true, |w| {
            w.put::<EntityName>(&locker.entity);
            w.blob(&locker.cookie);
        })
    }

    fn set_cookie(self, old: &str, new: &str) -> Self {
        lock_call(self, "set_cookie", true, |w| {
            w.u8(EXCLUSIVE);
            w.string(old);
            w.string(TAG);
            w.string(new);
        })
    }

    fn assert_map_locked(self) -> Self {
        lock_call(self, "assert_locked", true, |w| {
            w.u8(EXCLUSIVE);
            w.string("");
            w.string("");
        })
    }
}
