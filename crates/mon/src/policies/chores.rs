//! What a monitor does about once a second and waits for: signs of life, ids and secrets for tickets, the manager's part,
//! upkeep. One round at a time, beside the monitor's loop.
//!
//! Invariant: every change is decided from the state and committed by compare-and-swap, so that another monitor that does
//! the same does no harm. Not here: what is due (`upkeep`, `auto_out`, `evening`).

use crate::policies::auto_out::DownWatch;
use crate::policies::evening::{self, Evening};
use crate::policies::upkeep;
use crate::policies::upkeep::Silence;
use auth::{KeyServer, ServiceSecrets};
use cluster::{Change, Changes, ClusterState, ClusterStats, Instance, MonReport};
use io::Clock;
use metastore::{ClusterHandle, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::Utime;
use types::clusterlog::LogLevel;
use types::mgrmap::{MgrMap, Standby};

/// Global ids taken from the cluster state at once, and how few may be left before more are taken.
pub const GLOBAL_IDS_PER_RANGE: u64 = 10_000;
const GLOBAL_IDS_LOW: u64 = 5_000;
/// Nobody else is served meanwhile: longer than this is told.
const THOUGHT_LONG: Duration = Duration::from_secs(1);

/// New secrets of the key server, and those in whose place they are to come.
pub struct Rotation {
    pub secrets: ServiceSecrets,
    pub before: Arc<ServiceSecrets>,
}

pub struct Chores {
    pub cluster: ClusterHandle,
    pub clock: Arc<dyn Clock>,
    pub keys: Arc<KeyServer>,
    /// What this monitor says of itself to the others.
    pub report: MonReport,
    /// Those who have a session here, while anybody is fenced.
    pub sessions: Vec<Instance>,
    pub silence: Silence,
    pub down: DownWatch,
    pub evening: Evening,
}

impl Chores {
    /// `records`: lines for the channel `audit` of the cluster log.
    pub async fn round(
        &mut self,
        rotation: Option<Rotation>,
        records: Vec<(LogLevel, String)>,
    ) -> Result<()> {
        self.cluster.maintain().await?;
        if !records.is_empty() {
            let now = self.now();
            let lines = |state: &ClusterState| {
                let line = |(level, text): &(LogLevel, String)| {
                    Change::Audit(state.log_entry(now, *level, text.clone()))
                };
                let list = records.iter().map(line).collect();
                (
                    Changes {
                        list,
                        ..Changes::default()
                    },
                    (),
                )
            };
            self.cluster.commit(lines).await?;
        }
        self.cluster.publish_mon(&self.report).await?;
        self.refill_global_ids().await?;
        // Another monitor carried out the command.
        self.cluster.fence(&self.sessions).await?;
        if let Some(rotation) = rotation {
            self.rotate_secrets(&rotation).await?;
        }
        self.stand_for_manager().await?;
        let (state, stats, now) = (self.cluster.state(), self.cluster.stats(), self.now());
        if !self.leads(&state, &stats) {
            return Ok(());
        }
        let verdicts = self.down.look(&state, &stats, self.clock.monotonic().as_secs());
        for (osd, why) in &verdicts.kept {
            tracing::warn!(osd, "is down for long and stays in: {why}");
        }
        let out = verdicts.out;
        if !upkeep::due(&state, &stats, &out, now).is_empty() {
            self.cluster
                .commit(|state| (upkeep::due(state, &stats, &out, now), ()))
                .await?;
        }
        let silent = self
            .silence
            .due(&state.osdmap, &stats, self.clock.monotonic().as_secs());
        if !silent.is_empty() {
            tracing::warn!(osds = ?silent, "OSDs that report no more are marked down");
            self.cluster.mark_silent_down(&silent).await?;
        }
        self.cluster.mark_mds_gone().await?;
        self.cluster.mark_asked_down().await?;
        self.even_out().await
    }

    /// Numbers of placement groups, and bytes on OSDs.
    async fn even_out(&mut self) -> Result<()> {
        let (state, stats, now) = (self.cluster.state(), self.cluster.stats(), self.now());
        let began = self.clock.monotonic();
        let due = self.evening.due(&state, began.as_secs());
        if due.is_empty() {
            return Ok(());
        }
        let mut thought = evening::think(due, &state, &stats);
        thought.took = self.clock.monotonic().saturating_sub(began);
        if thought.took > THOUGHT_LONG {
            tracing::warn!(took = ?thought.took, "deciding what evens the cluster out kept the monitor waiting");
        }
        if thought.changes(&state, now).is_empty() {
            return Ok(());
        }
        let decide = |state: &ClusterState| (thought.changes(state, now), ());
        self.cluster.commit(decide).await.map(drop)
    }

    fn now(&self) -> Utime {
        Utime::from_unix(self.clock.wall())
    }

    /// The living monitor of the lowest rank does what has to be done once.
    fn leads(&self, state: &ClusterState, stats: &ClusterStats) -> bool {
        let own = &self.report.name;
        let first = state
            .monmap
            .by_rank()
            .find(|i| i.name == *own || stats.mons.contains_key(&i.name));
        first.is_none_or(|i| i.name == *own)
    }

    /// The manager's part goes to the leader when the one that has it lives no more; the others stand by.
    async fn stand_for_manager(&self) -> Result<()> {
        let (state, stats, now) = (self.cluster.state(), self.cluster.stats(), self.now());
        // Before the first look at the others nobody is known to be gone.
        if !stats.mons.contains_key(&self.report.name) || !self.leads(&state, &stats) {
            return Ok(());
        }
        let wanted = |state: &ClusterState| managers(&state.mgrmap, &self.report, &stats.mons, now);
        if wanted(&state).is_none() {
            return Ok(());
        }
        self.cluster
            .commit(|state| {
                let change = wanted(state).map(|m| Change::MgrMap(Box::new(m)));
                (change.map_or_else(Changes::none, Changes::one), ())
            })
            .await
            .map(drop)
    }

    async fn refill_global_ids(&self) -> Result<()> {
        if self.keys.remaining_global_ids() < GLOBAL_IDS_LOW {
            let ids = self.cluster.reserve_global_ids(GLOBAL_IDS_PER_RANGE).await?;
            self.keys.grant_global_ids(ids.start, ids.end);
        }
        Ok(())
    }

    /// New secrets are durable before a ticket is made with them: the monitor takes them from the state.
    async fn rotate_secrets(&self, rotation: &Rotation) -> Result<()> {
        let decide = |state: &ClusterState| {
            // Another monitor may have rotated them: then its secrets count.
            let changes = match *state.rotating == *rotation.before {
                true => Changes::one(Change::Rotating(Box::new(rotation.secrets.clone()))),
                false => Changes::none(),
            };
            (changes, ())
        };
        self.cluster.commit(decide).await.map(drop)
    }
}

/// The manager map as it should be, if it is not: the active one lives, and all others that live stand by.
fn managers(
    now_map: &MgrMap,
    own: &MonReport,
    live: &BTreeMap<String, MonReport>,
    now: Utime,
) -> Option<MgrMap> {
    let mut next = now_map.clone();
    let lives = live.values().any(|m| m.mgr_gid == now_map.active_gid);
    if !lives || !now_map.available {
        next = MgrMap::active(0, &own.mgr_name, own.mgr_gid, own.mgr_addrs.clone(), now);
    }
    let standby = |m: &MonReport| Standby {
        gid: m.mgr_gid,
        name: m.mgr_name.clone(),
        old_modules: Default::default(),
        available_modules: Vec::new(),
        mgr_features: now_map.active_mgr_features,
    };
    next.standbys = live
        .values()
        .filter(|m| m.mgr_gid != next.active_gid)
        .map(|m| (m.mgr_gid, standby(m)))
        .collect();
    next.epoch = now_map.epoch;
    (next != *now_map).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, gid: u64) -> MonReport {
        MonReport {
            name: name.into(),
            mgr_name: format!("mgr-{name}"),
            mgr_gid: gid,
            ..MonReport::default()
        }
    }

    fn live(of: &[&MonReport]) -> BTreeMap<String, MonReport> {
        of.iter().map(|m| (m.name.clone(), (*m).clone())).collect()
    }

    #[test]
    fn the_managers_part_moves_only_when_its_holder_is_gone() {
        let (a, b, c) = (report("a", 10), report("b", 20), report("c", 30));
        let now = Utime { sec: 5, nsec: 0 };
        let first = managers(&MgrMap::default(), &a, &live(&[&a]), now).unwrap();
        assert_eq!((first.active_name.as_str(), first.active_gid), ("mgr-a", 10));
        assert!(first.available);
        // Others stand by; nothing more to change then.
        let three = managers(&first, &a, &live(&[&a, &b, &c]), now).unwrap();
        assert_eq!(three.active_gid, 10);
        assert_eq!(three.standbys.keys().copied().collect::<Vec<_>>(), [20, 30]);
        assert_eq!(managers(&three, &a, &live(&[&a, &b, &c]), now), None);
        // Its holder is gone: the leader that looks takes it.
        let next = managers(&three, &b, &live(&[&b, &c]), now).unwrap();
        assert_eq!((next.active_gid, next.standbys.len()), (20, 1));
        // The old one comes back with a new identity and stands by.
        let back = report("a", 40);
        let last = managers(&next, &back, &live(&[&back, &b, &c]), now).unwrap();
        assert_eq!((last.active_gid, last.standbys.len()), (20, 2));
    }
}
