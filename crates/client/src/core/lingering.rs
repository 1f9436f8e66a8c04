//! Watches and notifies in motion: registered, pinged, registered again elsewhere, lost, ended
//! (docs/protocol/ceph/04-osd.md, 12.3 to 12.5 and 12.7).

use super::inflight::Owner;
use super::op::{Outcome, Served};
use super::target::{Need, Place, Target, Way};
use super::watch::{Heard, Kind, Linger, PING_EVERY, WatchEvent};
use super::{Answer, Core, Effect, OpId, Tid, WatchId};
use crate::{Error, Result};
use messages::osd::{MPing, MWatchNotify};
use types::{Errno, OsdId};

impl Core {
    pub(super) fn watch(&mut self, id: OpId, place: Place, kind: Kind) {
        if let Err(e) = place.check() {
            return self.tell(id, Err(e));
        }
        let now = self.now.mono;
        let linger = Linger {
            place,
            kind,
            waiter: Some(id),
            registered: false,
            generation: 0,
            target: None,
            registering: None,
            ping: None,
            ping_at: now,
            confirmed: now,
            ping_sent: now,
        };
        match self.lingers.add(linger) {
            Some(watch) => self.register(watch),
            None => self.tell(id, Err(Error::Busy)),
        }
    }

    /// Sends it, for the first time or again, unless that is under way.
    pub(super) fn register(&mut self, watch: WatchId) {
        let Some(linger) = self.lingers.get_mut(watch) else {
            return;
        };
        if linger.registering.is_some() {
            return;
        }
        if linger.registered {
            linger.generation += 1;
        }
        linger.target = None;
        let request = linger.registration(watch.0);
        let ping = linger.ping.take();
        if let Some(tid) = ping {
            self.take(tid);
        }
        // It may be refused at once, and the linger gone with it.
        let tid = self.start(Owner::Linger(watch), request);
        if self.inflight.get(tid).is_some()
            && let Some(linger) = self.lingers.get_mut(watch)
        {
            linger.registering = Some(tid);
        }
    }

    /// What was its operation is another one now.
    pub(super) fn renamed(&mut self, owner: Owner, tid: Tid) {
        match owner {
            Owner::Linger(watch) => {
                if let Some(l) = self.lingers.get_mut(watch) {
                    l.registering = Some(tid);
                }
            }
            Owner::Ping(watch) => {
                if let Some(l) = self.lingers.get_mut(watch) {
                    l.ping = Some(tid);
                }
            }
            Owner::User(_) | Owner::Nobody => {}
        }
    }

    pub(super) fn renamed_none(&mut self, watch: WatchId) {
        if let Some(l) = self.lingers.get_mut(watch) {
            l.registering = None;
        }
    }

    pub(super) fn ping_dropped(&mut self, watch: WatchId) {
        if let Some(l) = self.lingers.get_mut(watch) {
            l.ping = None;
        }
    }

    pub(super) fn registered(&mut self, watch: WatchId, told: Result<Outcome>, target: Option<Target>) {
        let now = self.now.mono;
        let Some(linger) = self.lingers.get_mut(watch) else {
            return;
        };
        linger.registering = None;
        let is_watch = linger.is_watch();
        match told {
            Ok(_) => {
                linger.registered = true;
                linger.target = target;
                linger.confirmed = now;
                linger.ping_at = now + PING_EVERY;
                if is_watch {
                    let waiter = linger.waiter.take();
                    self.wake_at(now + PING_EVERY);
                    if let Some(id) = waiter {
                        self.tell(id, Ok(Answer::Watching(watch)));
                    }
                }
            }
            Err(e) if is_watch && linger.registered => self.lose(watch, &e),
            Err(e) => {
                let waiter = self.lingers.remove(watch).and_then(|l| l.waiter);
                if let Some(id) = waiter {
                    self.tell(id, Err(e));
                }
            }
        }
    }

    /// The watch is gone, and its owner hears so.
    fn lose(&mut self, watch: WatchId, why: &Error) {
        let Some(linger) = self.lingers.remove(watch) else {
            return;
        };
        for tid in [linger.registering, linger.ping].into_iter().flatten() {
            self.take(tid);
        }
        let errno = match why.errno() {
            Errno::ENOENT => Errno::ENOTCONN,
            other => other,
        };
        // The OSD may still have it, for another connection of ours.
        if errno == Errno::ETIMEDOUT {
            self.start(Owner::Nobody, linger.end(watch.0));
        }
        let event = WatchEvent::Lost(errno);
        self.effects.push_back(Effect::Watch { watch, event });
    }

    pub(super) fn hear(&mut self, m: &msgr::Message) {
        let Ok(m) = MWatchNotify::from_message(m) else {
            return;
        };
        match self.lingers.hear(m) {
            None => {}
            Some((watch, Heard::Event(WatchEvent::Lost(errno)))) => {
                self.lose(watch, &Error::invalid(errno, "watch"));
            }
            Some((watch, Heard::Event(event))) => {
                self.effects.push_back(Effect::Watch { watch, event });
            }
            Some((watch, Heard::Completed(waiter, told))) => {
                // The operation's own reply may still be under way.
                let of_it = |o: &super::inflight::Op| o.owner == Owner::Linger(watch);
                for tid in self.inflight.which(of_it) {
                    self.take(tid);
                }
                if let Some(id) = waiter {
                    self.tell(id, told.map(Answer::Notified));
                }
            }
        }
    }

    pub(super) fn ack(&mut self, id: OpId, watch: WatchId, notify_id: u64, reply: &[u8]) {
        match self.lingers.get(watch) {
            Some(l) => {
                let request = l.ack(watch.0, notify_id, reply);
                self.start(Owner::User(id), request);
            }
            None => self.tell(id, Err(Error::invalid(Errno::ENOTCONN, "the watch is gone"))),
        }
    }

    pub(super) fn unwatch(&mut self, id: Option<OpId>, watch: WatchId) {
        let Some(linger) = self.lingers.remove(watch) else {
            if let Some(id) = id {
                let nothing = Outcome {
                    served: Served::default(),
                    result: 0,
                    version: 0,
                    steps: Vec::new(),
                };
                self.tell(id, Ok(Answer::Outcome(nothing)));
            }
            return;
        };
        let sent = linger
            .registering
            .and_then(|t| self.take(t))
            .is_some_and(|op| op.sends > 0);
        if let Some(tid) = linger.ping {
            self.take(tid);
        }
        if !linger.is_watch() {
            return;
        }
        let owner = id.map_or(Owner::Nobody, Owner::User);
        if id.is_some() || sent || linger.registered {
            self.start(owner, linger.end(watch.0));
        }
    }

    // Motion

    /// Those that are registered where the present map does not have them any more.
    pub(super) fn moved_lingers(&mut self, over: bool) -> Vec<WatchId> {
        let Some(map) = self.maps.now().cloned() else {
            return Vec::new();
        };
        let need = Need {
            writes: true,
            though_full: true,
            any: None,
        };
        let resting = self.lingers.which(|l| l.registered && l.registering.is_none());
        let placements = &mut self.placements;
        let lingers = &self.lingers;
        let moved = |id: &WatchId| {
            let Some(l) = lingers.get(*id) else { return false };
            let way = placements.way(&map, &l.place, need);
            over || l.target.clone().map(Way::To) != Some(way)
        };
        let mut moved = moved;
        resting.into_iter().filter(|id| moved(id)).collect()
    }

    /// The session with `osd` broke: what was registered over it is registered again.
    pub(super) fn lost_lingers(&mut self, osd: OsdId) {
        let there = |l: &Linger| l.target.as_ref().is_some_and(|t| t.osd == osd);
        for watch in self.lingers.which(|l| l.registering.is_none() && there(l)) {
            self.register(watch);
        }
    }

    pub(super) fn ping_watches(&mut self) {
        let now = self.now.mono;
        let due = self
            .lingers
            .which(|l| l.is_watch() && l.registered && l.ping_at <= now);
        let mut osds = std::collections::BTreeSet::new();
        for watch in due {
            let Some(l) = self.lingers.get_mut(watch) else {
                continue;
            };
            l.ping_at = now + PING_EVERY;
            let idle = l.ping.is_none() && l.registering.is_none();
            let request = idle.then(|| l.pinging(watch.0));
            osds.extend(l.target.as_ref().map(|t| t.osd));
            self.wake_at(now + PING_EVERY);
            let Some(request) = request else { continue };
            if let Some(l) = self.lingers.get_mut(watch) {
                l.ping_sent = now;
            }
            let tid = self.start(Owner::Ping(watch), request);
            if self.inflight.get(tid).is_some()
                && let Some(l) = self.lingers.get_mut(watch)
            {
                l.ping = Some(tid);
            }
        }
        for osd in osds {
            if let Some(conn) = self.sessions.of(osd).and_then(|s| s.open()) {
                self.send(conn, MPing.to_message());
            }
        }
    }

    pub(super) fn pinged(&mut self, watch: WatchId, told: Result<Outcome>) {
        let Some(l) = self.lingers.get_mut(watch) else {
            return;
        };
        l.ping = None;
        match told {
            Ok(_) => l.confirmed = l.ping_sent,
            Err(e) => self.lose(watch, &e),
        }
    }

    /// How long ago the OSD was known to have the watch; None: it is lost.
    pub fn confirmed(&self, watch: WatchId) -> Option<std::time::Duration> {
        let l = self.lingers.get(watch)?;
        Some(self.now.mono.saturating_sub(l.confirmed))
    }
}
