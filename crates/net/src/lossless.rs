//! Lossless sessions (`msgr::Sessions`) between their owner and the connections that carry them. The owner names a session by the
//! number of its first connection, and hears of no other.
//!
//! Invariant: what a connection took from the socket is handed to the owner, in order, whatever becomes of that connection: until the
//! owner has it, it waits here. So a message that was acknowledged is never lost, and one that comes again is known.

use msgr::Sessions;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use tokio::sync::{Notify, mpsc};

/// `E`: what the owner hears.
pub(crate) struct Lossless<E> {
    pub sessions: Rc<RefCell<Sessions>>,
    /// For the owner: one event for each connection at most, since a connection that has one waits until it is taken.
    inbox: RefCell<BTreeMap<u64, VecDeque<E>>>,
    /// Sessions have ended.
    pub news: Notify,
}

/// The owner has gone.
pub(crate) struct NoOwner;

impl<E> Lossless<E> {
    pub fn new() -> Self {
        Self {
            sessions: Rc::default(),
            inbox: RefCell::default(),
            news: Notify::new(),
        }
    }

    pub fn put(&self, session: u64, event: E) {
        self.inbox
            .borrow_mut()
            .entry(session)
            .or_default()
            .push_back(event);
    }

    fn has_some(&self, session: u64) -> bool {
        self.inbox.borrow().contains_key(&session)
    }

    fn pop(&self, session: u64) -> Option<E> {
        let mut inbox = self.inbox.borrow_mut();
        let waiting = inbox.get_mut(&session)?;
        let event = waiting.pop_front();
        if waiting.is_empty() {
            inbox.remove(&session);
        }
        event
    }

    /// Hands on all that waits. Given up in the middle, it loses nothing.
    pub async fn deliver(&self, session: u64, events: &mpsc::Sender<E>) -> Result<(), NoOwner> {
        while self.has_some(session) {
            let permit = events.reserve().await.map_err(|_| NoOwner)?;
            if let Some(event) = self.pop(session) {
                permit.send(event);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// What a connection took that was cut while its owner was busy comes before what the next one takes.
    #[test]
    fn what_a_cut_connection_took_is_heard_first() {
        io::task::block_on(async {
            let lossless = Lossless::new();
            let (events, mut heard) = mpsc::channel(1);
            lossless.put(1, 0);
            assert!(lossless.deliver(1, &events).await.is_ok());
            lossless.put(1, 1);
            {
                let mut waits = std::pin::pin!(lossless.deliver(1, &events));
                let given_up = io::task::timeout(Duration::ZERO, &mut waits).await;
                assert!(given_up.is_err(), "the owner has not taken the first");
            }
            // The task of the first, at its end, and the second connection.
            let (first, second) = (lossless.deliver(1, &events), async {
                assert!(lossless.deliver(1, &events).await.is_ok());
                for n in 2..20 {
                    lossless.put(1, n);
                    assert!(lossless.deliver(1, &events).await.is_ok());
                }
            });
            let owner = async {
                let mut all = Vec::new();
                while all.len() < 20 {
                    all.push(heard.recv().await.unwrap());
                }
                all
            };
            let (ended, (), all) = tokio::join!(first, second, owner);
            assert!(ended.is_ok() && !lossless.has_some(1));
            assert_eq!(all, (0..20).collect::<Vec<_>>());
        })
        .unwrap();
    }
}
