//! How much a connection may have in flight: messages handed to the owner and not yet done with.

use std::cell::Cell;
use std::rc::Rc;
use tokio::sync::Notify;

/// What all connections of one listener may have in flight together.
#[derive(Debug)]
pub(crate) struct TotalBudget {
    bytes: Cell<usize>,
    bytes_max: usize,
    freed: Notify,
}

impl TotalBudget {
    pub fn new(bytes_max: usize) -> Rc<Self> {
        Rc::new(Self {
            bytes: Cell::new(0),
            bytes_max,
            freed: Notify::new(),
        })
    }
}

#[derive(Debug)]
pub(crate) struct Budget {
    messages: Cell<usize>,
    bytes: Cell<usize>,
    messages_max: usize,
    bytes_max: usize,
    freed: Notify,
    total: Rc<TotalBudget>,
}

impl Budget {
    pub fn new(messages_max: usize, bytes_max: usize, total: Rc<TotalBudget>) -> Rc<Self> {
        Rc::new(Self {
            messages: Cell::new(0),
            bytes: Cell::new(0),
            messages_max,
            bytes_max,
            freed: Notify::new(),
            total,
        })
    }

    /// One message more may be larger than the whole budget, but then it is alone.
    fn fits(&self, bytes: usize) -> bool {
        let own = self.bytes.get();
        let all = self.total.bytes.get();
        self.messages.get() < self.messages_max
            && (own == 0 || own + bytes <= self.bytes_max)
            && (own == 0 || all + bytes <= self.total.bytes_max)
    }

    /// Waits until a message of `bytes` may come in. A connection with nothing in flight always may.
    pub async fn room_for(&self, bytes: usize) {
        while !self.fits(bytes) {
            tokio::select! {
                biased;
                () = self.freed.notified() => {}
                () = self.total.freed.notified() => {}
            }
        }
    }

    pub fn take(self: &Rc<Self>, bytes: usize) -> Permit {
        self.messages.set(self.messages.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        self.total.bytes.set(self.total.bytes.get() + bytes);
        Permit {
            budget: self.clone(),
            bytes,
        }
    }
}

/// A message's weight on its connection; dropping it lets the connection read on. Keep it until the
/// operation is answered.
#[derive(Debug)]
pub struct Permit {
    budget: Rc<Budget>,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let b = &self.budget;
        b.messages.set(b.messages.get() - 1);
        b.bytes.set(b.bytes.get() - self.bytes);
        b.total.bytes.set(b.total.bytes.get() - self.bytes);
        b.freed.notify_one();
        b.total.freed.notify_waiters();
    }
}
