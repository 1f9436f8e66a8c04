//! Where a gateway counts what becomes of events.

use crate::meters::{EventsPerf, Meters, RgwPerf};
use std::sync::Arc;

/// Why an event is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Its topic's queue had no room.
    Full,
    /// It could not be told for too long.
    Old,
    /// Its topic was removed.
    Gone,
}

/// Clones are the same.
#[derive(Debug, Clone)]
pub struct Figures {
    rgw: Arc<RgwPerf>,
    events: Arc<EventsPerf>,
}

impl Figures {
    pub fn new(meters: &Meters) -> Self {
        Self {
            rgw: meters.rgw.clone(),
            events: meters.events.clone(),
        }
    }

    pub fn triggered(&self) {
        self.rgw.pubsub_event_triggered.inc();
    }

    /// In place of `before` so many wait in a shard.
    pub fn waiting(&self, before: u64, after: u64) {
        let gauge = &self.events.waiting;
        gauge.set((gauge.get() + after).saturating_sub(before));
    }

    /// So many are in the queues that this gateway tells.
    pub fn queued(&self, events: u64) {
        self.events.queued.set(events);
    }

    pub fn lost(&self, why: Lost, events: u64) {
        self.rgw.pubsub_event_lost.add(events);
        match why {
            Lost::Full => self.events.dropped_full.add(events),
            Lost::Old => self.events.dropped_old.add(events),
            Lost::Gone => self.events.dropped_gone.add(events),
        }
    }

    /// An event is on its way to an endpoint, as long as what this gives is there.
    pub fn pushing(&self) -> Pushing {
        let gauge = &self.rgw.pubsub_push_pending;
        gauge.set(gauge.get() + 1);
        Pushing(self.rgw.clone())
    }

    /// An endpoint has taken an event, or has not.
    pub fn pushed(&self, taken: bool) {
        match taken {
            true => self.rgw.pubsub_push_ok.inc(),
            false => self.rgw.pubsub_push_failed.inc(),
        }
    }
}

#[derive(Debug)]
pub struct Pushing(Arc<RgwPerf>);

impl Drop for Pushing {
    fn drop(&mut self) {
        let gauge = &self.0.pubsub_push_pending;
        gauge.set(gauge.get().saturating_sub(1));
    }
}
