//! What is due when: hunting, dialling again, sending again, giving up, pings, tickets.
//!
//! Times are rounded up to [`GRAIN`], so that deadlines of many operations are few timers.

use super::inflight::State;
use super::mon::{self, Asker, Question};
use super::resend::LAGGY;
use super::session::Link;
use super::{Core, Waiting};
use crate::Error;
use std::time::Duration;
use types::EntityKind;

const GRAIN: Duration = Duration::from_millis(10);

impl Core {
    pub(super) fn wake_at(&mut self, at: Duration) {
        let up = at.as_nanos().next_multiple_of(GRAIN.as_nanos());
        self.wakes
            .insert(Duration::from_nanos(u64::try_from(up).unwrap_or(u64::MAX)));
    }

    /// Does what is due.
    pub(super) fn tick(&mut self) {
        let now = self.now.mono;
        self.hunt();
        if self.wakes.first().is_some_and(|at| *at <= now) {
            self.wakes = self.wakes.split_off(&(now + Duration::from_nanos(1)));
            self.dial_due();
            self.again_due();
            self.give_up_due();
            self.ping_watches();
            self.lag();
            self.mon_due();
        }
        self.stop_if_due();
    }

    fn hunt(&mut self) {
        let (dial, given_up) = self.mon.hunt(self.now.mono);
        for conn in given_up {
            self.hang_up(conn);
        }
        for addr in dial {
            let conn = self.dial(EntityKind::Mon, addr);
            self.mon.trying(conn, addr);
        }
        if let Some(at) = self.mon.hunt_at {
            self.wake_at(at);
        }
    }

    fn dial_due(&mut self) {
        for osd in self.sessions.ids() {
            if matches!(self.sessions.of(osd).map(|s| s.link), Some(Link::Wait(_))) {
                self.dial_osd(osd);
            }
        }
        self.dial_mgr();
    }

    fn again_due(&mut self) {
        let now = self.now.mono;
        for tid in self
            .inflight
            .which(|op| matches!(op.state, State::Again(at) if at <= now))
        {
            self.go(tid);
        }
    }

    fn give_up_due(&mut self) {
        let now = self.now.mono;
        let late = |d: Option<Duration>| d.is_some_and(|d| d <= now);
        for tid in self.inflight.which(|op| late(op.deadline)) {
            self.finish(tid, Err(Error::TimedOut));
        }
        for tid in self.commands.overdue(now) {
            self.finish_command(tid, Err(Error::TimedOut));
        }
        for asked in self.mon.overdue(now) {
            if let Asker::User(id) | Asker::Latest(id) = asked.asker {
                self.tell(id, Err(Error::TimedOut));
            }
        }
        let (over, rest) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|w: &Waiting| late(w.deadline));
        self.waiting = rest;
        let over: Vec<Waiting> = over;
        for w in over {
            self.tell(w.id, Err(Error::TimedOut));
        }
    }

    /// Looks after what is under way from now on.
    pub(super) fn watch_lag(&mut self) {
        if self.lag_at.is_none() {
            let at = self.now.mono + LAGGY;
            self.lag_at = Some(at);
            self.wake_at(at);
        }
    }

    /// Something without an answer for long: there may be a newer map.
    fn lag(&mut self) {
        let now = self.now.mono;
        if self.lag_at.is_none_or(|at| now < at) {
            return;
        }
        self.lag_at = None;
        if self.inflight.is_empty() && self.lingers.is_empty() && self.commands.is_empty() {
            return;
        }
        let old = now.saturating_sub(LAGGY);
        if self.inflight.iter().any(|(_, op)| op.since <= old) || self.commands.any_since(old) {
            self.want_map();
        }
        let at = now + LAGGY;
        self.lag_at = Some(at);
        self.wake_at(at);
    }

    fn mon_due(&mut self) {
        let now = self.now.mono;
        if self.mon.is_silent(now) {
            tracing::debug!("the monitor says nothing: another one is tried");
            self.leave_mon();
            return self.hunt();
        }
        if self.mon.pings(now) {
            if !self.mon.is_asking(Asker::Ping) {
                let what = "osdmap".to_string();
                self.ask(Asker::Ping, Question::Version { what }, None);
            }
            if let Some(at) = self.mon.ping_at() {
                self.wake_at(at);
            }
        }
        let entropy = self.entropy.clone();
        match self.mon.renewal(now, &mon::context(self.now.wall, &*entropy)) {
            Ok(message) => self.send_mon(message),
            Err(e) => {
                tracing::debug!("{e}: the session with the monitor is opened again");
                self.leave_mon();
                self.hunt();
            }
        }
        if let Some(at) = self.mon.renew_at() {
            self.wake_at(at);
        }
    }
}
