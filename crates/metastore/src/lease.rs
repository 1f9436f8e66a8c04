//! A lease as its owner sees it: what an OSD reads to know whether it may still serve.
//!
//! Invariants, for every implementation ([`crate::conformance`] checks them):
//! - [`Lease::valid_until`] is the owner's own monotonic clock at the moment of *sending* the last renewal that the
//!   store confirmed, plus the lease's time to live, less the margin. The store counts from receiving it, so
//!   the lease's keys vanish later than that, as long as the two clocks' rates differ by less than margin / ttl.
//! - It never goes back while the lease lives, and is zero for ever once the store said that the lease has ended.
//! - Nothing renews by itself: the owner calls [`Lease::touch`], from where it knows that it gets on, so an owner that hangs loses
//!   its lease even if the process lives. A touch never waits.
//!
//! Who declares the owner dead waits until its leased key has vanished. Nobody but the owner revokes a lease: the
//! others could not tell when the owner knows of it.
//!
//! Not here: what is leased, and what the owner does when its time is over.

use crate::broken::{self, Rule};
use crate::kv::LeaseId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a lease lives without a renewal, and how much earlier its owner stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// Whole seconds; etcd rounds up, and has a shortest of 2 s.
    pub ttl: Duration,
    /// Taken off the owner's side: clock rates, and what the owner does between looking and acting.
    pub margin: Duration,
}

/// Time stamps of the renewals, shared between the owner and what renews: for implementations of the store.
#[derive(Debug)]
pub struct Renewals {
    times: LeaseTimes,
    /// Nanoseconds of the owner's clock when the last confirmed renewal was sent.
    sent: AtomicU64,
    ended: AtomicBool,
}

impl Renewals {
    pub fn new(times: LeaseTimes, granted_at: Duration) -> Arc<Self> {
        Arc::new(Self {
            times,
            sent: AtomicU64::new(granted_at.as_nanos() as u64),
            ended: AtomicBool::new(false),
        })
    }

    /// The store confirmed a renewal that was sent at `sent`.
    pub fn confirm(&self, sent: Duration) {
        self.sent.fetch_max(sent.as_nanos() as u64, Ordering::AcqRel);
    }

    /// The store said that the lease is no more.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// When the store's side may end at the earliest.
    pub fn ends(&self) -> Duration {
        Duration::from_nanos(self.sent.load(Ordering::Acquire)) + self.times.ttl
    }
}

/// A handle; clones share the lease. Dropping all of them stops the renewals, and the lease ends by itself.
#[derive(Clone)]
pub struct Lease {
    id: LeaseId,
    renewals: Arc<Renewals>,
    renew: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("id", &self.id)
            .field("renewals", &self.renewals)
            .finish()
    }
}

impl Lease {
    pub fn new(id: LeaseId, renewals: Arc<Renewals>, renew: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { id, renewals, renew }
    }

    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// As the store granted it; may be longer than asked for.
    pub fn ttl(&self) -> Duration {
        self.renewals.times.ttl
    }

    /// When the last renewal that the store confirmed was sent, by the owner's monotonic clock.
    pub fn last_renewal(&self) -> Duration {
        Duration::from_nanos(self.renewals.sent.load(Ordering::Acquire))
    }

    /// Until when the owner may act, by its own monotonic clock. Zero once the lease has ended.
    pub fn valid_until(&self) -> Duration {
        if self.has_ended() && !broken::is(Rule::EndedIsEnded) {
            return Duration::ZERO;
        }
        let margin = match broken::is(Rule::LeaseMargin) {
            true => Duration::ZERO,
            false => self.renewals.times.margin,
        };
        self.renewals.ends().saturating_sub(margin)
    }

    pub fn is_valid(&self, now: Duration) -> bool {
        now < self.valid_until()
    }

    /// True once the store said so; then only a new lease helps. An owner whose time is over without this
    /// may still be renewed: the store could not be reached.
    pub fn has_ended(&self) -> bool {
        self.renewals.has_ended()
    }

    /// Asks for a renewal and returns at once. Call it about four times within the time to live.
    pub fn touch(&self) {
        (self.renew)();
    }
}
