//! How many bytes of messages the connections of one listener may hold: those that are being received, and those handed to
//! the owner and not yet done with.
//!
//! Vocabulary: a *body* is what a large frame has beyond its head. It is charged slice by slice ([`msgr::BODY_SLICE`]), each
//! before its first byte is read; a body without room waits, in line, with its socket unread. A body of more than one slice
//! is *long*. Small frames lie in the connection's receive buffer, and are charged when they are handed on.
//!
//! Invariants: bodies and messages hold no more than `bytes_max`, the small messages of connections that hold nothing else
//! apart, and one message more at a time: the one that is *beyond* the bound, without which bodies that all wait for their
//! next slice would wait for each other. Long bodies have half of the bytes, so others never wait for them; a quarter is kept
//! for connections that have nothing in flight. Who waits is served in order, among their like.
//!
//! While somebody waits, a body has to go on: [`TotalBudget::look`] ends connections whose bodies do not.

use account::Account;
use msgr::BODY_SLICE;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// What a body has to receive, and a peer to take, each second while others wait for its memory; measured over
/// [`crate::Options::stall`].
pub const PACE_BYTES_PER_S: u64 = 256 << 10;
/// The same for the body beyond the bound, for which all other long ones wait.
pub const PACE_BEYOND_BYTES_PER_S: u64 = 4 << 20;

/// A pace for a span of time.
pub(crate) fn pace(bytes_per_s: u64, span: Duration) -> u64 {
    bytes_per_s * span.as_millis() as u64 / 1000
}

/// What all connections of one listener may have in flight together.
#[derive(Debug)]
pub(crate) struct TotalBudget {
    bytes: Cell<usize>,
    /// Of these: of long bodies.
    long: Cell<usize>,
    /// Where all of it is charged; what bounds `bytes`.
    account: Arc<Account>,
    stall: Duration,
    /// The connection whose message may be beyond the bound.
    beyond: Cell<Option<u64>>,
    /// What that one holds: not in `bytes`.
    beyond_bytes: Cell<usize>,
    /// Connections whose bodies wait for room, in order.
    line: RefCell<VecDeque<Rc<Budget>>>,
    connections: RefCell<BTreeMap<u64, Weak<Budget>>>,
    freed: Notify,
}

impl TotalBudget {
    pub fn new(account: Arc<Account>, stall: Duration) -> Rc<Self> {
        Rc::new(Self {
            bytes: Cell::new(0),
            long: Cell::new(0),
            account,
            stall,
            beyond: Cell::new(None),
            beyond_bytes: Cell::new(0),
            line: RefCell::default(),
            connections: RefCell::default(),
            freed: Notify::new(),
        })
    }

    pub fn bytes(&self) -> usize {
        self.bytes.get() + self.beyond_bytes.get()
    }

    fn bytes_max(&self) -> usize {
        self.account.bytes_max() as usize
    }

    fn set_bytes(&self, bytes: usize) {
        self.bytes.set(bytes);
        self.account.set(self.bytes() as u64);
    }

    fn set_beyond_bytes(&self, bytes: usize) {
        self.beyond_bytes.set(bytes);
        self.account.set(self.bytes() as u64);
    }

    fn add(&self, bytes: usize) {
        self.set_bytes(self.bytes.get() + bytes);
    }

    fn give(&self, bytes: usize) {
        self.set_bytes(self.bytes.get() - bytes);
        self.call();
    }

    /// Wakes all who may have their turn.
    fn call(&self) {
        let line = self.line.borrow();
        if !line.is_empty() {
            let mut called = [false; 4];
            for b in line.iter() {
                let (long, holds) = b.class();
                let class = usize::from(long) * 2 + usize::from(holds);
                if !std::mem::replace(&mut called[class], true) {
                    b.freed.notify_one();
                }
            }
        }
        self.freed.notify_waiters();
    }

    /// The first of its like; those that have nothing in flight go before those that do.
    fn is_turn_of(&self, b: &Budget) -> bool {
        let line = self.line.borrow();
        let (long, holds) = b.class();
        let mut like = line
            .iter()
            .filter(|o| o.class().0 == long && (holds || !o.class().1));
        like.next().is_some_and(|first| first.id == b.id)
    }

    /// Nothing is beyond the bound any more, if it was `connection`'s.
    fn back(&self, connection: u64, bytes: usize) {
        if self.beyond.get() == Some(connection) {
            self.beyond.set(None);
            self.set_beyond_bytes(self.beyond_bytes.get() - bytes);
            self.call();
        }
    }

    /// To be called about once a second: while bodies wait for room, ends connections that hold it and do not go on.
    pub fn look(&self, now: Duration) {
        if self.line.borrow().is_empty() {
            return;
        }
        for b in self.all() {
            b.look(now, self.beyond.get() == Some(b.id));
        }
    }

    /// What was seen counts no more.
    pub fn forget(&self) {
        self.all().iter().for_each(|b| b.seen.set(None));
    }

    fn all(&self) -> Vec<Rc<Budget>> {
        let connections = self.connections.borrow();
        connections.values().filter_map(Weak::upgrade).collect()
    }
}

/// A body that is being received, as [`TotalBudget::look`] saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    body: u64,
    received: usize,
    at: Duration,
}

#[derive(Debug)]
pub(crate) struct Budget {
    id: u64,
    messages: Cell<usize>,
    bytes: Cell<usize>,
    messages_max: usize,
    bytes_max: usize,
    /// Another OSD: what it sends frees memory elsewhere, so it does not wait in line.
    pub is_peer: Cell<bool>,
    /// Number of the present body, and its bytes received; even numbers are no body.
    body: Cell<(u64, usize)>,
    long: Cell<bool>,
    in_line: Cell<bool>,
    seen: Cell<Option<Seen>>,
    freed: Notify,
    /// Told when its body has to give up its memory.
    pub stalled: Notify,
    total: Rc<TotalBudget>,
}

impl Budget {
    pub fn new(id: u64, messages_max: usize, bytes_max: usize, total: Rc<TotalBudget>) -> Rc<Self> {
        let b = Rc::new(Self {
            id,
            messages: Cell::new(0),
            bytes: Cell::new(0),
            messages_max,
            bytes_max,
            is_peer: Cell::new(false),
            body: Cell::new((0, 0)),
            long: Cell::new(false),
            in_line: Cell::new(false),
            seen: Cell::new(None),
            freed: Notify::new(),
            stalled: Notify::new(),
            total,
        });
        b.total.connections.borrow_mut().insert(id, Rc::downgrade(&b));
        b
    }

    fn look(&self, now: Duration, beyond: bool) {
        let (body, received) = self.body.get();
        let stall = self.total.stall;
        let fresh = Seen {
            body,
            received,
            at: now,
        };
        // One that waits for room is not to blame.
        let busy = body % 2 == 1 && !self.in_line.get();
        let before = self.seen.get().filter(|s| busy && s.body == body);
        let Some(before) = before else {
            return self.seen.set(Some(fresh));
        };
        if now < before.at + stall {
            return;
        }
        let wanted = match beyond {
            true => PACE_BEYOND_BYTES_PER_S,
            false => PACE_BYTES_PER_S,
        };
        if ((received - before.received) as u64) < pace(wanted, stall) {
            self.stalled.notify_one();
        }
        self.seen.set(Some(fresh));
    }

    /// Its body is long; it has messages in flight.
    fn class(&self) -> (bool, bool) {
        (self.long.get(), self.bytes.get() > 0)
    }

    /// A small message may come in. A connection with nothing in flight always has room for one.
    fn fits_small(&self) -> bool {
        let own = self.bytes.get();
        self.messages.get() < self.messages_max
            && (own == 0 || own <= self.bytes_max && self.total.bytes.get() <= self.total.bytes_max())
    }

    /// Waits until a small message may come in.
    pub async fn room(&self) {
        if !self.fits_small() {
            self.total.account.wait.inc();
        }
        while !self.fits_small() {
            tokio::select! {
                biased;
                () = self.freed.notified() => {}
                () = self.total.freed.notified() => {}
            }
        }
    }

    /// What the connection has in flight leaves room for a body of `upto` bytes; alone it may be larger than all that a
    /// connection may have.
    fn fits_own(&self, upto: usize) -> bool {
        let own = self.bytes.get();
        self.messages.get() < self.messages_max && (own == 0 || own + upto <= self.bytes_max)
    }

    /// `more` bytes of a body may be received.
    fn fits(&self, more: usize) -> bool {
        let (long, holds) = self.class();
        if self.is_peer.get() && !holds {
            return true;
        }
        let total = &self.total;
        let max = total.bytes_max();
        let kept = if holds { max / 4 } else { 0 };
        total.bytes.get() + more + kept <= max && (!long || total.long.get() + more <= max / 2)
    }

    fn take_message(&self, bytes: usize) {
        self.messages.set(self.messages.get() + 1);
        let items = &self.total.account.items;
        items.set(items.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// The weight of a small message.
    pub fn take(self: &Rc<Self>, bytes: usize) -> Permit {
        self.take_message(bytes);
        self.total.add(bytes);
        Permit {
            budget: self.clone(),
            bytes,
            beyond: false,
        }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.total.connections.borrow_mut().remove(&self.id);
    }
}

/// A place in the line; left when dropped.
struct Place(Rc<Budget>);

impl Place {
    fn take(budget: &Rc<Budget>) -> Self {
        budget.total.line.borrow_mut().push_back(budget.clone());
        budget.in_line.set(true);
        Self(budget.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let total = &self.0.total;
        total.line.borrow_mut().retain(|b| b.id != self.0.id);
        self.0.in_line.set(false);
        self.0.seen.set(None);
        total.call();
    }
}

/// The memory of one body; given back when dropped, or turned into its message's [`Permit`].
#[derive(Debug)]
pub(crate) struct Body {
    budget: Rc<Budget>,
    held: usize,
    beyond: bool,
}

impl Body {
    /// One of `need` bytes in all begins.
    pub fn begin(budget: &Rc<Budget>, need: usize) -> Self {
        budget.body.set((budget.body.get().0 + 1, 0));
        budget.long.set(need > BODY_SLICE);
        Self {
            budget: budget.clone(),
            held: 0,
            beyond: false,
        }
    }

    /// Waits until the body may hold `upto` bytes, of which it has received `received`.
    pub async fn room(&mut self, received: usize, upto: usize) {
        let b = self.budget.clone();
        b.body.set((b.body.get().0, received));
        let more = upto.saturating_sub(self.held);
        if more == 0 {
            return;
        }
        while !b.fits_own(self.held + more) {
            b.freed.notified().await;
        }
        if b.is_peer.get() {
            while !b.fits(more) {
                tokio::select! {
                    biased;
                    () = b.freed.notified() => {}
                    () = b.total.freed.notified() => {}
                }
            }
            return self.grow(more);
        }
        if self.beyond || b.total.line.borrow().is_empty() && b.fits(more) {
            return self.grow(more);
        }
        b.total.account.wait.inc();
        let _place = Place::take(&b);
        while !(b.total.is_turn_of(&b) && (b.fits(more) || self.goes_beyond())) {
            b.freed.notified().await;
        }
        // Charged before the next in line looks.
        self.grow(more);
    }

    fn grow(&mut self, more: usize) {
        self.held += more;
        let total = &self.budget.total;
        if self.beyond {
            return total.set_beyond_bytes(total.beyond_bytes.get() + more);
        }
        total.add(more);
        if self.budget.long.get() {
            total.long.set(total.long.get() + more);
        }
    }

    /// With nothing in flight it may go beyond the bound where nobody else is.
    fn goes_beyond(&mut self) -> bool {
        let total = self.budget.total.clone();
        if self.budget.bytes.get() > 0 || total.beyond.get().is_some() {
            return false;
        }
        let held = self.let_go();
        total.beyond.set(Some(self.budget.id));
        (self.beyond, self.held) = (true, 0);
        self.grow(held);
        true
    }

    /// Gives back what it holds within the bound.
    fn let_go(&mut self) -> usize {
        let (b, held) = (&self.budget, std::mem::take(&mut self.held));
        if held > 0 {
            if b.long.get() {
                b.total.long.set(b.total.long.get() - held);
            }
            b.total.give(held);
        }
        held
    }

    /// Bytes that may be received.
    pub fn held(&self) -> usize {
        self.held
    }

    /// The message has come, and weighs this much from now on.
    pub fn into_permit(mut self, bytes: usize) -> Permit {
        let b = self.budget.clone();
        b.take_message(bytes);
        match self.beyond {
            true => {
                let all = b.total.beyond_bytes.get();
                b.total
                    .set_beyond_bytes(all + bytes - std::mem::take(&mut self.held));
            }
            false => {
                b.total.add(bytes);
                self.let_go();
            }
        }
        // It stays beyond until the message is done with.
        let beyond = std::mem::take(&mut self.beyond);
        Permit {
            budget: b,
            bytes,
            beyond,
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let id = self.budget.id;
        match self.beyond {
            true => self.budget.total.back(id, self.held),
            false => drop(self.let_go()),
        }
        let b = &self.budget;
        b.body.set((b.body.get().0 + 1, 0));
        b.long.set(false);
    }
}

/// A message's weight on its connection; dropping it lets the connection read on. Keep it until the
/// operation is answered.
#[derive(Debug)]
pub struct Permit {
    budget: Rc<Budget>,
    bytes: usize,
    beyond: bool,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let b = &self.budget;
        b.messages.set(b.messages.get() - 1);
        let items = &b.total.account.items;
        items.set(items.get().saturating_sub(1));
        b.bytes.set(b.bytes.get() - self.bytes);
        b.freed.notify_one();
        match self.beyond {
            true => b.total.back(b.id, self.bytes),
            false => b.total.give(self.bytes),
        }
    }
}
