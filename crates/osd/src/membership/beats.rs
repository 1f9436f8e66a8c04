//! What the shell does about its membership, with each beat and with each answer of the cluster state.

use crate::event::StateReply;
use crate::osd::Osd;
use pg::broken::{self, Rule};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use types::osdmap::{map_flag, osd_state};
use types::{EntityAddrVec, OsdId};

/// A first start does not wait longer for its peers to be reached.
const FIRST_BOOT_WAIT: Duration = Duration::from_secs(5);
/// The cluster state is asked again after an error.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Several OSDs see a lease end at the same time: each waits this much longer than the one before it.
const SPREAD: Duration = Duration::from_millis(100);
/// The same where lifelines end; the first of many that see it is enough, and it may be gone, too.
const SPREAD_GONE: Duration = Duration::from_millis(5);
const SPREAD_GONE_MAX: u32 = 20;
/// The option that says for how long a flush may take, in seconds, and its smallest value.
pub const HUNG_DISK_OPTION: &str = "osd_hung_disk_timeout";
const HUNG_DISK_MIN: Duration = Duration::from_secs(1);

impl Osd {
    /// False: what clients ask is held back, and no answer leaves.
    pub fn serving(&self) -> bool {
        self.membership.serving()
    }

    /// Five times a second.
    pub fn on_beat(&mut self) {
        let heard = self.membership.pulse.heard();
        self.heed_pulse();
        self.ask_lease();
        for osd in self.links.beat(self.placement.epoch(), &heard) {
            self.peer_down(osd);
        }
        self.links.step();
        self.watch_disk();
        self.look_for_dead();
        self.heed_gone();
        self.heed_accusers();
        self.heed_operator();
        self.come_up();
        self.expire_early();
        self.expire_fetches();
        self.look_after_copy_reads();
        self.tell_silent();
    }

    /// It was marked down while the loop hung.
    fn heed_pulse(&mut self) {
        self.membership.at_fault |= self.membership.pulse.is_fenced();
    }

    /// Gets a lease where there is none, or none any more.
    fn ask_lease(&mut self) {
        let now = self.clock.monotonic();
        let s = &mut self.membership;
        match &s.lease {
            Some(lease) if !lease.has_ended() => {}
            _ if !s.leasing
                && (s.touched + ASK_AGAIN <= now || s.lease.is_none() && s.touched == s.began) =>
            {
                (s.leasing, s.touched) = (true, now);
                let (cluster, replies) = (self.cluster.clone(), self.state_replies.clone());
                let (id, run, times) = (self.id, s.run, s.times);
                io::task::spawn_local(async move {
                    let _ = replies.send(StateReply::Leased(cluster.osd_lease(id, run, times).await));
                });
            }
            _ => {}
        }
    }

    pub fn on_state_reply(&mut self, reply: StateReply) -> Result<(), metastore::Error> {
        let id = self.id;
        match reply {
            StateReply::Proposed => self.proposing = false,
            StateReply::Merged => self.merge_committed(),
            StateReply::Marked(osds) => self.membership.marking.retain(|o| !osds.contains(o)),
            StateReply::SteppedDown => {
                self.membership.stepping_down = false;
                self.come_up();
            }
            StateReply::Leased(result) => {
                self.membership.leasing = false;
                match result {
                    Ok(lease) => {
                        self.membership.pulse.hold(&lease);
                        self.membership.lease = Some(lease);
                        self.bury_earlier_run();
                    }
                    Err(e) => tracing::warn!("osd.{id}: no lease: {e}"),
                }
                self.come_up();
            }
            StateReply::Booted(result) => {
                self.membership.booting = false;
                self.booted(result)?;
            }
        }
        Ok(())
    }

    /// The lease is this run's: the one that the map has up is gone, and with it what it said of others. Who starts at the same
    /// time would wait to reach it.
    fn bury_earlier_run(&mut self) {
        if !self.membership.booted {
            self.flush_report();
            self.step_down("it was started again");
        }
    }

    fn booted(&mut self, result: Result<types::Epoch, metastore::Error>) -> Result<(), metastore::Error> {
        let id = self.id;
        let epoch = match result {
            Ok(epoch) => epoch,
            Err(e) if !self.membership.booted => return Err(e),
            Err(e) => {
                self.membership.not_before = self.clock.monotonic() + ASK_AGAIN;
                tracing::warn!("osd.{id}: is marked down, and cannot come back: {e}");
                return Ok(());
            }
        };
        self.membership.noticed = false;
        let at = &self.membership.boot.client_addrs;
        match std::mem::replace(&mut self.membership.booted, true) {
            false => tracing::info!("osd.{id}: up at {at} in epoch {epoch}"),
            true => tracing::warn!("osd.{id}: was marked down while it lives; up again in epoch {epoch}"),
        }
        self.on_cluster();
        self.flush_report();
        if let Some((ready, addr)) = self.membership.ready.take() {
            let _ = ready.send(addr);
        }
        Ok(())
    }

    /// Boots, where the map has it down and nothing speaks against it.
    pub fn come_up(&mut self) {
        let now = self.clock.monotonic();
        let map = self.cluster.osdmap();
        let s = &self.membership;
        let valid = s.lease.as_ref().is_some_and(|l| l.is_valid(now));
        if s.booting || s.hung || s.stepping_down || s.pulse.is_fenced() || !valid || now < s.not_before {
            return;
        }
        if s.booted {
            let kept_down = map.has_flag(map_flag::NOUP)
                || map
                    .osd(self.id)
                    .is_none_or(|o| o.state & (osd_state::NOUP | osd_state::DESTROYED) != 0);
            if map.is_up(self.id) || !map.exists(self.id) || kept_down {
                return;
            }
            if !s.noticed {
                let at = self.membership.return_at(now);
                let s = &mut self.membership;
                (s.noticed, s.not_before) = (true, at);
                let wait = (at - now).as_secs();
                tracing::warn!(
                    "osd.{}: is marked down; comes back in {wait} s at the earliest",
                    self.id
                );
                if wait > 0 {
                    return;
                }
            }
        }
        // Those without a lease are gone, whatever the map says of them: after a power cut that is everybody.
        let leased = self.cluster.leased();
        let wanted = self.links.wanted().filter(|o| leased.contains(o)).count();
        let reached = self.reached().iter().filter(|o| leased.contains(o)).count();
        let alone = wanted > 0 && reached * 2 <= wanted;
        if alone && (self.membership.booted || now < self.membership.began + FIRST_BOOT_WAIT) {
            return;
        }
        self.membership.booting = true;
        let (cluster, replies, boot) = (
            self.cluster.clone(),
            self.state_replies.clone(),
            self.membership.boot.clone(),
        );
        io::task::spawn_local(async move {
            let _ = replies.send(StateReply::Booted(cluster.osd_boot(&boot).await));
        });
    }

    /// A batch that the disk does not take: whoever needs an answer gets it from another copy.
    fn watch_disk(&mut self) {
        let now = self.clock.monotonic();
        let engine = &self.store.engine;
        let (queued, durable) = (engine.queued(), engine.durable());
        let s = &mut self.membership;
        if s.unflushed.is_none_or(|(seq, _)| seq <= durable) {
            s.unflushed = (queued > durable).then_some((queued, now));
        }
        let since = s.unflushed.map_or(now, |(_, at)| at);
        // Asked only when it may matter: this is looked at five times a second.
        let hangs = now >= since + HUNG_DISK_MIN && now >= since + self.hung_after();
        let s = &mut self.membership;
        match (hangs, s.hung) {
            (true, false) => {
                s.hung = true;
                let secs = (now - since).as_secs();
                tracing::error!(
                    "osd.{}: the disk has not ended a flush for {secs} s: stepping down",
                    self.id
                );
                self.membership.at_fault = true;
                self.step_down("its disk hangs");
            }
            (false, true) => {
                s.hung = false;
                tracing::warn!("osd.{}: the disk has ended its flush", self.id);
            }
            _ => {}
        }
    }

    /// How long a flush may take.
    pub fn hung_after(&self) -> Duration {
        let said = self.option(HUNG_DISK_OPTION);
        let seconds = said.and_then(|v| v.parse().ok()).map(Duration::from_secs);
        seconds.map_or(self.membership.hung_after, |d| d.max(HUNG_DISK_MIN))
    }

    /// Marks this OSD down; it goes on living.
    fn step_down(&mut self, why: &'static str) {
        if self.membership.stepping_down || !self.cluster.osdmap().is_up(self.id) {
            return;
        }
        self.membership.stepping_down = true;
        let (cluster, replies, id) = (self.cluster.clone(), self.state_replies.clone(), self.id);
        io::task::spawn_local(async move {
            if let Err(e) = cluster.step_down(id, why).await {
                tracing::warn!("osd.{id}: not marked down: {e}");
            }
            let _ = replies.send(StateReply::SteppedDown);
        });
    }

    /// Others whose lease has ended surely do not serve.
    fn look_for_dead(&mut self) {
        let now = self.clock.monotonic();
        if !self.membership.serving() {
            return;
        }
        let (map, leased) = (self.cluster.osdmap(), self.cluster.leased());
        let up: Vec<OsdId> = map.osd_ids().filter(|o| map.is_up(*o)).collect();
        let hasty = match broken::is(Rule::Fence) {
            true => self.membership.silent.clone(),
            false => BTreeSet::new(),
        };
        let live = |o: &&OsdId| **o == self.id || leased.contains(o) && !hasty.contains(o);
        let place = up.iter().filter(live).position(|o| *o == self.id).unwrap_or(0) as u32;
        let s = &mut self.membership;
        let dead: BTreeSet<OsdId> = up.iter().filter(|o| !live(o)).copied().collect();
        s.unleased.retain(|o, _| dead.contains(o));
        for osd in &dead {
            s.unleased.entry(*osd).or_insert(now);
        }
        let due = |(osd, at): (&OsdId, &Duration)| {
            (now >= *at + SPREAD * place && !s.marking.contains(osd)).then_some(*osd)
        };
        for osd in s.unleased.iter().filter_map(due).collect::<Vec<_>>() {
            s.marking.insert(osd);
            let (cluster, replies, id) = (self.cluster.clone(), self.state_replies.clone(), self.id);
            io::task::spawn_local(async move {
                match cluster.mark_unleased_down(&[osd]).await {
                    Ok(true) => tracing::info!("osd.{id}: osd.{osd}'s lease has ended"),
                    Ok(false) => {}
                    Err(e) => tracing::warn!("osd.{id}: osd.{osd} not marked down: {e}"),
                }
                let _ = replies.send(StateReply::Marked(vec![osd]));
            });
        }
    }

    /// Lifelines have ended: the processes are gone, and nothing serves there. Asked again with each beat, as long as the map has
    /// them up there: the cluster state may not have answered.
    pub fn heed_gone(&mut self) {
        let gone: Vec<_> = self.links.gone().map(|(o, addrs)| (o, addrs.clone())).collect();
        for (osd, addrs) in gone {
            self.mark_gone(osd, addrs);
        }
    }

    fn mark_gone(&mut self, osd: OsdId, addrs: EntityAddrVec) {
        let map = self.cluster.osdmap();
        if !map.is_up(osd) || !self.membership.marking.insert(osd) {
            return;
        }
        let before = |o: &OsdId| *o < self.id && *o != osd && map.is_up(*o);
        let place = (map.osd_ids().filter(before).count() as u32).min(SPREAD_GONE_MAX);
        let (cluster, replies, id) = (self.cluster.clone(), self.state_replies.clone(), self.id);
        io::task::spawn_local(async move {
            io::task::sleep(SPREAD_GONE * place).await;
            if cluster.osdmap().is_up(osd)
                && let Err(e) = cluster.mark_gone_down(osd, &addrs).await
            {
                tracing::warn!("osd.{id}: osd.{osd} not marked down: {e}");
            }
            let _ = replies.send(StateReply::Marked(vec![osd]));
        });
    }

    /// More peers call this OSD silent than it reaches: it is the one that is cut off.
    fn heed_accusers(&mut self) {
        let map = self.cluster.osdmap();
        if !map.is_up(self.id) {
            return;
        }
        let (stats, leased) = (self.cluster.stats(), self.cluster.leased());
        let accuses = |(osd, report): (&OsdId, &Arc<cluster::OsdReport>)| {
            *osd != self.id && map.is_up(*osd) && leased.contains(osd) && report.silent.contains(&self.id)
        };
        let accusers = stats.osds.iter().filter(|r| accuses(*r)).count();
        if accusers > self.reached().len() {
            tracing::warn!("osd.{}: {accusers} peers do not hear it: stepping down", self.id);
            self.membership.at_fault = true;
            self.step_down("its peers do not hear it");
        }
    }

    /// Peers that hear this OSD and answer, its loop or its pulse.
    fn reached(&self) -> BTreeSet<OsdId> {
        let mut reached = self.membership.pulse.heard();
        let wanted: BTreeSet<OsdId> = self.links.wanted().collect();
        reached.retain(|o| wanted.contains(o));
        reached.extend(self.links.open());
        reached
    }

    /// Peers that neither their loop nor their pulse speaks for.
    pub fn silent(&self) -> BTreeSet<OsdId> {
        let heard = self.membership.pulse.heard();
        self.links.silent().filter(|o| !heard.contains(o)).collect()
    }

    /// An operator wants it down: it says so itself, since only it knows from when on it serves no more. Then it comes
    /// back, as after any other time that it was marked down.
    pub fn heed_operator(&mut self) {
        if self.cluster.state().is_asked_down(self.id) {
            self.step_down("an operator asked for it");
        }
    }

    /// Who is silent is told at once, not only with the next report.
    fn tell_silent(&mut self) {
        let silent = self.silent();
        if silent != self.membership.silent {
            self.membership.silent = silent;
            self.flush_report();
        }
    }
}
