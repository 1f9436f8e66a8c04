//! Rounds of scrubs: what is due begins, what runs gets its next stretch.

use super::{DAY, Options, Running, due};
use crate::osd::Osd;
use crate::pace::STEP;
use pg::{Input, ScrubOrder, ScrubResult, ScrubView};
use std::collections::BTreeMap;
use std::time::Duration;
use types::SPgId;
use types::osdmap::map_flag;
use types::pool::pool_flag;

/// How often it is looked whether a scrub is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Wishes carried out at a time.
const ASKED_MAX: usize = 2;
/// Bytes per second, of all copies together: when somebody waits for it, and at least.
const RATE_ASKED: u64 = 256 << 20;
const RATE_LEAST: u64 = 16 << 20;
/// Scheduled scrubs go this much faster than the promise asks for.
const AHEAD: u64 = 4;
/// Sixteenths of the rate that are left beside those who have reservations: less than one in [`AHEAD`] would break the promise.
const BESIDE_RESERVED: u32 = 4;

impl Osd {
    pub fn scrub_timer(&self) -> Option<Duration> {
        self.scrubs.next
    }

    /// A round: what is due begins, what runs gets its next stretch.
    pub fn scrub(&mut self) {
        let now = self.clock.monotonic();
        if self.scrubs.next.is_some_and(|at| now < at) {
            return;
        }
        if now >= self.scrubs.look_at {
            self.scrubs.look_at = now + LOOK_EVERY;
            self.begin_scrubs();
        }
        if self.scrubs.running.is_empty() {
            self.scrubs.pace.idle(&self.clients);
            self.scrubs.next = Some(self.scrubs.look_at);
            return;
        }
        self.scrubs.next = Some(now + STEP);
        let (wall, rate) = (self.clock.wall(), self.scrub_rate());
        let most = self.qos.sixteenths().max(BESIDE_RESERVED);
        self.scrubs.pace.at_most(most);
        if self.scrubs.pace.step(now, wall, &self.clients, rate) {
            self.grant_scrubs();
        }
    }

    /// Bytes per second: as fast as the promise asks for, and more where somebody waits.
    fn scrub_rate(&self) -> u64 {
        if self.scrubs.running.values().any(|r| r.wish.is_some()) {
            return RATE_ASKED;
        }
        let period = self
            .scrubs
            .options
            .as_ref()
            .map_or(DAY as f64, |o| o.deep_interval);
        let copies = |g: &pg::Group| g.in_sync.len() as u64;
        let bytes: u64 = self
            .pgs()
            .map(|(_, p)| p.stats().bytes.max(0) as u64 * copies(p.group()))
            .sum();
        let promised = (bytes as f64 / period.max(1.0)) as u64;
        promised.saturating_mul(AHEAD).clamp(RATE_LEAST, RATE_ASKED)
    }

    fn grant_scrubs(&mut self) {
        // A stretch of each in turn, while the budget lasts.
        loop {
            let mut granted = false;
            for pg in self.scrubs.running.keys().copied().collect::<Vec<_>>() {
                if self.scrubs.pace.budget() <= 0 {
                    return;
                }
                if self.led(pg).is_some_and(|p| p.scrub_view().wants_grant) {
                    granted = true;
                    self.drive(pg, Input::ScrubGrant);
                }
            }
            if !granted {
                return;
            }
        }
    }

    /// Begins what operators asked for, and what is due.
    fn begin_scrubs(&mut self) {
        let state = self.cluster.state();
        // Once a second: one look at the central configuration is enough for all of them.
        let central = state.options_of(&self.auth_name());
        let options = Options::of(|name| {
            let told = self.told_options.get(name).map(String::as_str);
            told.or_else(|| central.get(name).map(|s| s.value))
                .map(str::to_string)
        });
        self.scrubs.options = Some(options.clone());
        let wall = self.wall();
        // Those that were given up, or that are led by another OSD now.
        let views: BTreeMap<SPgId, ScrubView> = self.pgs().map(|(id, pg)| (id, pg.scrub_view())).collect();
        let runs = |pg: &SPgId| views.get(pg).is_some_and(|v| v.running.is_some());
        self.scrubs.running.retain(|pg, _| runs(pg));
        for (pg, view) in views.iter().filter(|(_, v)| v.ready && v.stamps.at.is_zero()) {
            tracing::debug!("pg {pg}: its scrub periods begin: {:?}", view.stamps);
            self.turn(*pg, |role, ctx| role.begin_scrub_periods(ctx));
        }
        for (pg, wish) in state.scrubs.iter() {
            let asked = self.scrubs.running.values().filter(|r| r.wish.is_some()).count();
            if asked >= ASKED_MAX {
                break;
            }
            let Some(pg) = self.leading(*pg) else { continue };
            let free = views.get(&pg).is_some_and(|v| v.ready) && !self.scrubs.running.contains_key(&pg);
            if free {
                let (deep, repair) = (wish.deep || wish.repair, wish.repair);
                self.begin_scrub(pg, ScrubOrder { deep, repair }, Some(wish.number));
            }
        }
        self.begin_asked(&views);
        let repairs = std::mem::take(&mut self.scrubs.to_repair);
        for pg in repairs
            .into_iter()
            .filter(|pg| views.get(pg).is_some_and(|v| v.ready))
        {
            let order = ScrubOrder {
                deep: true,
                repair: true,
            };
            self.begin_scrub(pg, order, None);
        }
        let map = &state.osdmap;
        for (pg, view) in &views {
            if self.scrubs.running.len() >= options.scrubs {
                break;
            }
            let Some(pool) = map.pool(pg.pg.pool) else {
                continue;
            };
            let light = !map.has_flag(map_flag::NOSCRUB) && pool.flags & pool_flag::NOSCRUB == 0;
            let deep = !map.has_flag(map_flag::NODEEP_SCRUB) && pool.flags & pool_flag::NODEEP_SCRUB == 0;
            if let Some(order) = due(pg.pg, view, &options.for_pool(pool), wall, light, deep) {
                self.begin_scrub(*pg, order, None);
            }
        }
    }

    /// Those that this OSD was told to begin.
    fn begin_asked(&mut self, views: &BTreeMap<SPgId, ScrubView>) {
        for (pg, deep) in std::mem::take(&mut self.scrubs.asked) {
            match views.get(&pg) {
                Some(view) if view.ready && view.running.is_none() => {
                    self.begin_scrub(pg, ScrubOrder { deep, repair: false }, None);
                }
                // Not now, but soon: it is led here.
                Some(_) => drop(self.scrubs.asked.insert(pg, deep)),
                None => {}
            }
        }
    }

    fn begin_scrub(&mut self, pg: SPgId, order: ScrubOrder, wish: Option<u64>) {
        if self.scrubs.running.contains_key(&pg) {
            return;
        }
        self.drive(pg, Input::Scrub(order));
        if self.led(pg).is_some_and(|p| p.scrub_view().running.is_some()) {
            self.scrubs.running.insert(pg, Running { order, wish });
            self.flush_report();
        }
    }

    pub fn scrub_ended(&mut self, pg: SPgId, result: ScrubResult) {
        self.meters.osd.scrubs.inc();
        let running = self.scrubs.running.remove(&pg);
        let left = result.errors.saturating_sub(result.fixed);
        let options = self.scrubs.options.as_ref().filter(|o| o.auto_repair);
        if !result.order.repair && left > 0 && options.is_some_and(|o| left <= o.auto_repair_errors) {
            self.scrubs.to_repair.insert(pg);
        }
        // The next one begins without delay.
        self.scrubs.look_at = Duration::ZERO;
        self.flush_report();
        let Some(Running {
            order,
            wish: Some(number),
        }) = running
        else {
            return;
        };
        tracing::debug!("pg {pg}: {order:?} was asked for, and is done");
        let cluster = self.cluster.clone();
        io::task::spawn_local(async move {
            if let Err(e) = cluster.scrub_done(pg.pg, number).await {
                tracing::warn!("pg {pg}: a wish to scrub stays, and will be carried out again: {e}");
            }
        });
    }
}
