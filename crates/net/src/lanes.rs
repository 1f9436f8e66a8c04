//! Lanes: two ends of one connection in the same process hand each other their messages through memory.
//!
//! Who dials *offers* a lane under the address that its end of the connection has; who was dialled *takes* it when the
//! handshake has shown who dials. So whoever is at the other end has proved itself as on any connection, the
//! connection stays open beside the lane, and its end is the lane's. From the end of the handshake on no message goes over the
//! connection itself.
//!
//! Invariants: messages arrive in their order, each once; what was said before the end of the connection is heard before it.
//! An offer that nobody takes (a proxy, another process) leaves the connection as it is. Bounds: what waits in a lane counts as the
//! sender's output, and has its bounds.

use msgr::{Message, Peer};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use types::EntityAddr;

/// The sender is told when less waits again.
const LOW_BYTES: usize = 64 << 10;

/// One direction.
#[derive(Default)]
struct Way {
    queue: Mutex<Queue>,
    /// For the receiver: it was empty.
    news: Notify,
    /// For the sender: it had become long, and is short again.
    drained: Notify,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
}

impl Way {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end.
pub(crate) struct Lane {
    out: Arc<Way>,
    back: Arc<Way>,
}

impl Lane {
    fn pair() -> (Self, Self) {
        let (there, back) = (Arc::<Way>::default(), Arc::<Way>::default());
        let far = Self {
            out: back.clone(),
            back: there.clone(),
        };
        (Self { out: there, back }, far)
    }

    pub fn send(&self, m: Message) {
        let mut queue = self.out.lock();
        let first = queue.messages.is_empty();
        queue.bytes += m.size();
        queue.messages.push_back(m);
        drop(queue);
        if first {
            self.out.news.notify_one();
        }
    }

    /// Bytes that the other end has not taken.
    pub fn queued_bytes(&self) -> usize {
        self.out.lock().bytes
    }

    pub fn receive(&self) -> Option<Message> {
        let mut queue = self.back.lock();
        let m = queue.messages.pop_front()?;
        let before = queue.bytes;
        queue.bytes -= m.size();
        let drained = before > LOW_BYTES && queue.bytes <= LOW_BYTES;
        drop(queue);
        if drained {
            self.back.drained.notify_one();
        }
        Some(m)
    }

    /// Something may have come.
    pub async fn news(&self) {
        self.back.news.notified().await;
    }

    /// What waited has become less.
    pub async fn drained(&self) {
        self.out.drained.notified().await;
    }
}

/// Something may have come on a lane; never where there is none.
pub(crate) async fn news(lane: Option<&Lane>) {
    match lane {
        Some(lane) => lane.news().await,
        None => std::future::pending().await,
    }
}

/// What waited on a lane has become less; never where there is none.
pub(crate) async fn drained(lane: Option<&Lane>) {
    match lane {
        Some(lane) => lane.drained().await,
        None => std::future::pending().await,
    }
}

/// Where the dialler's end is, whom it dialled, and which OSD it says that it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub from: SocketAddr,
    pub to: EntityAddr,
    pub osd: u64,
}

impl Ends {
    pub fn new(from: SocketAddr, to: EntityAddr, osd: u64) -> Self {
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        Self { from, to, osd }
    }

    /// Of an OSD's connection that was accepted, by a server that is known as `to`.
    pub fn of(peer: &Peer, to: EntityAddr) -> Option<Self> {
        Some(Self::new(peer.sock, to, peer.name.num.try_into().ok()?))
    }
}

struct Offered {
    lane: Option<Lane>,
    taken: Arc<AtomicBool>,
}

/// The lanes that are offered in a process; shared by those that are to have some.
#[derive(Clone, Default)]
pub struct Lanes(Arc<Mutex<HashMap<Ends, Offered>>>);

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lanes({} offered)", self.lock().len())
    }
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, HashMap<Ends, Offered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the time of a handshake.
    pub(crate) fn offer(&self, ends: Ends) -> Offer {
        let (near, far) = Lane::pair();
        let taken = Arc::new(AtomicBool::new(false));
        let offered = Offered {
            lane: Some(far),
            taken: taken.clone(),
        };
        self.lock().insert(ends.clone(), offered);
        Offer {
            lanes: self.clone(),
            ends,
            near: Some(near),
            taken,
        }
    }

    /// To be called before the dialler learns that the handshake has ended.
    pub(crate) fn take(&self, ends: &Ends) -> Option<Lane> {
        let mut lanes = self.lock();
        let offered = lanes.get_mut(ends)?;
        offered.taken.store(true, Ordering::Release);
        offered.lane.take()
    }
}

/// The dialler's, until the handshake has ended.
pub(crate) struct Offer {
    lanes: Lanes,
    ends: Ends,
    near: Option<Lane>,
    taken: Arc<AtomicBool>,
}

impl Offer {
    /// The lane, if the other end has taken it.
    pub fn end(mut self) -> Option<Lane> {
        self.near.take().filter(|_| self.taken.load(Ordering::Acquire))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lock();
        let own = lanes
            .get(&self.ends)
            .is_some_and(|o| Arc::ptr_eq(&o.taken, &self.taken));
        if own {
            lanes.remove(&self.ends);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn ends(port: u16, osd: u64) -> Ends {
        let to = EntityAddr::msgr2(([127, 0, 0, 1], 6800).into(), 7);
        Ends::new(([127, 0, 0, 1], port).into(), to, osd)
    }

    fn message(tid: u64, bytes: usize) -> Message {
        Message {
            tid,
            data: vec![0; bytes].into(),
            ..Message::default()
        }
    }

    #[test]
    fn only_an_offer_that_was_taken_becomes_a_lane() {
        let lanes = Lanes::default();
        let offer = lanes.offer(ends(1, 3));
        assert!(lanes.take(&ends(2, 3)).is_none(), "another connection");
        assert!(lanes.take(&ends(1, 4)).is_none(), "another OSD");
        assert!(offer.end().is_none(), "nobody took it");
        assert!(lanes.take(&ends(1, 3)).is_none(), "it is withdrawn");
        let offer = lanes.offer(ends(1, 3));
        let far = lanes.take(&ends(1, 3)).unwrap();
        assert!(lanes.take(&ends(1, 3)).is_none(), "taken once");
        let near = offer.end().unwrap();
        assert!(lanes.lock().is_empty());
        (1..=3).for_each(|tid| near.send(message(tid, 10)));
        far.send(message(9, 0));
        let got: Vec<u64> = std::iter::from_fn(|| far.receive()).map(|m| m.tid).collect();
        assert_eq!(got, [1, 2, 3]);
        assert_eq!(near.receive().unwrap().tid, 9);
        assert_eq!((near.queued_bytes(), far.queued_bytes()), (0, 0));
    }

    #[test]
    fn a_newer_offer_is_not_withdrawn_with_the_older() {
        let lanes = Lanes::default();
        let old = lanes.offer(ends(1, 3));
        let new = lanes.offer(ends(1, 3));
        drop(old);
        let _far = lanes.take(&ends(1, 3)).unwrap();
        assert!(new.end().is_some());
    }

    #[test]
    fn the_sender_hears_when_a_long_queue_is_short_again() {
        io::task::block_on(async {
            let lanes = Lanes::default();
            let offer = lanes.offer(ends(1, 3));
            let far = lanes.take(&ends(1, 3)).unwrap();
            let near = offer.end().unwrap();
            let soon = std::time::Duration::from_millis(1);
            near.send(message(1, LOW_BYTES));
            near.send(message(2, 10));
            far.receive().unwrap();
            io::task::timeout(soon, near.drained()).await.unwrap();
            far.receive().unwrap();
            assert!(io::task::timeout(soon, near.drained()).await.is_err(), "once");
            far.news().await;
            assert!(io::task::timeout(soon, far.news()).await.is_err(), "all was seen");
        })
        .unwrap();
    }
}
