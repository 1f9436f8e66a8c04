//! How many bytes wait to be written to the clients of one listener: answers that they have not taken yet, and answers
//! promised to operations that are being worked on.
//!
//! Invariants: a connection's large answers are promised before they are made, so that what is queued stays within
//! `window` for one and `bytes_max` for all, and one answer more where a connection has nothing waiting. A quarter
//! is kept for connections that have nothing waiting. What is queued, promised or not, is bounded by twice `bytes_max` and
//! one answer of the largest kind ([`ANSWER_MAX`]): then the connection with the most is ended. What goes to other OSDs is
//! on an account of its own, and bounded by what they ask: nobody waits for it here.
//!
//! While an answer finds no room, whoever has the most, of those that take less than [`crate::PACE_BYTES_PER_S`], is ended
//! (`connections`).

use crate::budget::{PACE_BYTES_PER_S, pace};
use account::Account;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The largest answer: a whole object, and something beside it.
pub(crate) const ANSWER_MAX: usize = 132 << 20;

#[derive(Debug)]
pub(crate) struct Outputs {
    /// Queued and promised.
    bytes: Cell<usize>,
    queued: Cell<usize>,
    account: Arc<Account>,
    /// Of what goes to other OSDs.
    peers: Arc<Account>,
    stall: Duration,
    /// Something found no room since the last look.
    pub pressed: Cell<bool>,
    /// An owner wants to hear when there is room again.
    pub starved: Cell<bool>,
}

impl Outputs {
    pub fn new(account: Arc<Account>, peers: Arc<Account>, stall: Duration) -> Rc<Self> {
        Rc::new(Self {
            bytes: Cell::new(0),
            queued: Cell::new(0),
            account,
            peers,
            stall,
            pressed: Cell::new(false),
            starved: Cell::new(false),
        })
    }

    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    fn bytes_max(&self) -> usize {
        self.account.bytes_max() as usize
    }

    fn set_bytes(&self, bytes: usize) {
        self.bytes.set(bytes);
        self.account.set(bytes as u64);
    }

    pub fn is_full(&self) -> bool {
        let full = self.bytes.get() >= self.bytes_max();
        if full {
            self.pressed.set(true);
        }
        full
    }

    pub fn is_far_beyond(&self) -> bool {
        self.queued.get() > 2 * self.bytes_max() + ANSWER_MAX
    }

    pub fn has_room(&self) -> bool {
        self.bytes.get() <= self.bytes_max() / 2
    }
}

/// Where a queue is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Peer,
    /// Its connection has ended.
    Gone,
}

/// One connection's part.
#[derive(Debug)]
pub(crate) struct Output {
    total: Rc<Outputs>,
    queued: Cell<usize>,
    promised: Cell<usize>,
    side: Cell<Side>,
    /// Bytes written in all.
    written: Cell<u64>,
    /// When it was last seen, and what was written by then.
    seen: Cell<Option<(Duration, u64)>>,
    /// An answer found no room.
    pub choked: Cell<bool>,
}

impl Output {
    pub fn new(total: Rc<Outputs>) -> Self {
        Self {
            total,
            queued: Cell::new(0),
            promised: Cell::new(0),
            side: Cell::new(Side::Client),
            written: Cell::new(0),
            seen: Cell::new(None),
            choked: Cell::new(false),
        }
    }

    /// The queue is so long now.
    pub fn is_queued(&self, bytes: usize) {
        let before = self.queued.replace(bytes);
        match self.side.get() {
            Side::Client => {
                self.total.set_bytes(self.total.bytes.get() + bytes - before);
                self.total.queued.set(self.total.queued.get() + bytes - before);
            }
            Side::Peer => {
                let peers = &self.total.peers;
                peers.set((peers.bytes() + bytes as u64).saturating_sub(before as u64));
            }
            Side::Gone => {}
        }
    }

    pub fn has_written(&self, bytes: usize) {
        self.written.set(self.written.get() + bytes as u64);
    }

    /// It is another OSD's: what goes to it frees memory elsewhere, and waits for no client.
    pub fn set_peer(&self) {
        self.leave(Side::Peer);
        self.total.peers.take(self.queued.get() as u64);
    }

    /// Its connection has ended, and its queue with it.
    pub fn set_gone(&self) {
        self.leave(Side::Gone);
    }

    fn leave(&self, to: Side) {
        let queued = self.queued.get();
        match self.side.replace(to) {
            Side::Client => {
                self.total
                    .set_bytes(self.total.bytes.get() - queued - self.promised.get());
                self.total.queued.set(self.total.queued.get() - queued);
            }
            Side::Peer => self.total.peers.give(queued as u64),
            Side::Gone => {}
        }
    }

    fn is_client(&self) -> bool {
        self.side.get() == Side::Client
    }

    /// Something waits already, and all that clients have not taken is at its bound: nothing more is to be made for this one.
    pub fn has_to_wait(&self) -> bool {
        let waits = self.is_client() && self.waiting() > 0 && self.total.is_full();
        if waits {
            self.total.starved.set(true);
        }
        waits
    }

    pub fn waiting(&self) -> usize {
        self.queued.get() + self.promised.get()
    }

    /// Takes room for an answer of `bytes`; false: there is none now.
    pub fn promise(&self, bytes: usize, window: usize) -> bool {
        if self.is_client() {
            let (own, all, max) = (self.waiting(), self.total.bytes.get(), self.total.bytes_max());
            let fits = match own {
                // An answer larger than the whole is alone.
                0 => all + bytes <= max || all <= max / 4,
                _ => own + bytes <= window && all + bytes <= max - max / 4,
            };
            if !fits {
                self.choked.set(true);
                self.total.starved.set(true);
                self.total.account.wait.inc();
                // Its own window is its own affair.
                if own == 0 || own + bytes <= window {
                    self.total.pressed.set(true);
                }
                return false;
            }
            self.total.set_bytes(all + bytes);
        }
        self.promised.set(self.promised.get() + bytes);
        true
    }

    pub fn keep(&self, bytes: usize) {
        self.promised.set(self.promised.get() - bytes);
        if self.is_client() {
            self.total.set_bytes(self.total.bytes.get() - bytes);
        }
    }

    /// True if nearly nothing was taken of what waits for a while.
    pub fn stalls(&self, now: Duration) -> bool {
        let written = self.written.get();
        let stall = self.total.stall;
        match self.seen.get() {
            Some((at, _)) if now < at + stall => false,
            Some((_, before)) => {
                self.seen.set(Some((now, written)));
                self.queued.get() > 0 && written - before < pace(PACE_BYTES_PER_S, stall)
            }
            None => {
                self.seen.set(Some((now, written)));
                false
            }
        }
    }

    /// Nobody waits: what was seen counts no more.
    pub fn forget(&self) {
        self.seen.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: usize = 16;

    fn total() -> Rc<Outputs> {
        Outputs::new(Account::alone(32), Account::alone(32), Duration::from_secs(5))
    }

    #[test]
    fn answers_are_promised_within_the_window_and_the_total() {
        let all = total();
        let conns: Vec<Output> = (0..5).map(|_| Output::new(all.clone())).collect();
        assert!(conns[0].promise(8, WINDOW) && conns[0].promise(8, WINDOW));
        assert!(!conns[0].promise(1, WINDOW), "its window");
        assert!(!all.pressed.get(), "and nobody else's affair");
        assert!(conns[1].promise(8, WINDOW) && !conns[1].promise(1, WINDOW));
        assert!(all.pressed.get());
        // What is kept for those with nothing waiting.
        assert!(conns[2].promise(8, WINDOW) && !conns[3].promise(8, WINDOW));
        assert_eq!(all.bytes(), 32);
        conns[0].keep(8);
        conns[0].is_queued(4);
        assert!(conns[3].promise(4, WINDOW));
        conns.iter().for_each(Output::set_gone);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn one_answer_larger_than_all_is_alone() {
        let all = total();
        let (big, other) = (Output::new(all.clone()), Output::new(all.clone()));
        assert!(big.promise(100, WINDOW));
        assert!(!other.promise(1, WINDOW) && all.is_full());
        big.keep(100);
        assert!(other.promise(1, WINDOW));
    }

    /// Who read a whole object from an OSD with a small budget was cut off, again and again.
    #[test]
    fn the_largest_answer_is_not_far_beyond() {
        let all = total();
        let reader = Output::new(all.clone());
        assert!(reader.promise(ANSWER_MAX, WINDOW));
        // For a moment it is both, promised and queued.
        reader.is_queued(ANSWER_MAX);
        assert!(!all.is_far_beyond());
        reader.keep(ANSWER_MAX);
        reader.is_queued(ANSWER_MAX + 64);
        assert!(!all.is_far_beyond());
        reader.is_queued(ANSWER_MAX + 65);
        assert!(all.is_far_beyond());
        reader.set_gone();
        assert!(!all.is_far_beyond());
    }

    #[test]
    fn other_osds_have_an_account_of_their_own() {
        let all = total();
        let peer = Output::new(all.clone());
        peer.is_queued(10);
        peer.set_peer();
        peer.is_queued(1000);
        assert!(peer.promise(1000, WINDOW));
        peer.keep(1000);
        assert_eq!((all.bytes(), all.peers.bytes()), (0, 1000));
        peer.is_queued(7);
        assert_eq!(all.peers.bytes(), 7);
        peer.set_gone();
        peer.is_queued(1000);
        assert_eq!(all.peers.bytes(), 0);
    }

    #[test]
    fn nothing_more_is_made_for_who_does_not_take_what_there_is() {
        let all = total();
        let (slow, other) = (Output::new(all.clone()), Output::new(all.clone()));
        slow.is_queued(31);
        assert!(!slow.has_to_wait());
        slow.is_queued(32);
        assert!(slow.has_to_wait() && !other.has_to_wait());
        assert!(all.starved.get());
    }

    #[test]
    fn who_takes_nothing_stalls_and_who_takes_some_does_not() {
        let all = total();
        let (slow, good, idle) = (
            Output::new(all.clone()),
            Output::new(all.clone()),
            Output::new(all),
        );
        slow.is_queued(10);
        good.is_queued(10);
        let at = Duration::from_secs;
        for c in [&slow, &good, &idle] {
            assert!(!c.stalls(at(1)) && !c.stalls(at(5)));
        }
        slow.has_written(1000);
        good.has_written(8 << 20);
        assert!(slow.stalls(at(6)) && !good.stalls(at(6)) && !idle.stalls(at(6)));
        slow.forget();
        assert!(!slow.stalls(at(20)));
    }
}
