//! Follows the store: what other processes committed, the OSDs' reports, and who holds a lease.
//!
//! Invariants: another writer's commit is taken in from its changes alone ([`cluster::load::advance`]); everything is
//! read again only when changes were missed. A snapshot never goes back.

use super::ClusterHandle;
use super::rows::advance;
use crate::kv::{Error, Event, Range, Result, Revision};
use bytes::Bytes;
use cluster::{ClusterStats, MonReport, OsdReport, keys};
use denc::Decode;
use io::turns::Turns;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use types::OsdId;

/// What a turn of the follower does, for the log of those that take long (`io::turns`).
const PARTS: [&str; 2] = ["sets of reports and leases", "sets of changes"];
const LIVE: usize = 0;
const STATE: usize = 1;

/// Up to which revision of the store.
#[derive(Debug, Default)]
struct UpTo(Revision);

impl fmt::Display for UpTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", up to revision {}", self.0)
    }
}

impl ClusterHandle {
    /// Follows the store until it closes, or fails. One task at a time does: another one waits, and takes its place
    /// when it has ended.
    pub async fn follow(&self) -> Result<()> {
        let _turn = self.shared.follow.lock().await;
        loop {
            let (rows, revision) = self.shared.store.range(Range::prefix(keys::LIVE)).await?;
            let mut stats = ClusterStats {
                version: revision,
                ..ClusterStats::default()
            };
            let mut leased = BTreeSet::new();
            for kv in rows {
                note_report(&mut stats, &kv.key, Some(&kv.value));
                note_mon(&mut stats, &kv.key, Some(&kv.value));
                note_lease(&mut leased, &kv.key, true);
                note_mds(&mut stats, &kv.key, true);
            }
            stats.leased = Arc::new(leased.clone());
            self.shared.stats.send_replace(Arc::new(stats));
            self.publish_leased(leased);
            // A commit between our snapshot and this revision is not among the changes to come.
            self.catch_up().await?;
            match self.follow_from(revision).await {
                Err(Error::Compacted(_)) => {
                    tracing::info!("changes of the cluster state were missed: reading all of it");
                    self.reload().await?;
                }
                other => return other,
            }
        }
    }

    /// Loads the state anew if another writer was here since the snapshot.
    pub(super) async fn catch_up(&self) -> Result<()> {
        let newest = self
            .shared
            .store
            .get(keys::VERSION)
            .await?
            .map_or(0, |kv| kv.revision);
        match newest > self.state().revision {
            true => self.reload().await,
            false => Ok(()),
        }
    }

    async fn follow_from(&self, revision: u64) -> Result<()> {
        let mut watch = self.shared.store.watch(Range::prefix(""), revision)?;
        let mut turns: Turns<UpTo, { PARTS.len() }> = Turns::new(&PARTS);
        loop {
            let events = watch.next().await?;
            turns.begin(self.shared.clock.monotonic());
            io::panics::point("follow");
            self.take_live(&events);
            turns.did(LIVE, self.shared.clock.monotonic());
            let newest = events
                .iter()
                .filter(|e| e.key == keys::VERSION)
                .map(|e| e.revision)
                .max()
                .unwrap_or(0);
            let state = self.state();
            if newest > state.revision {
                match advance(&state, &events) {
                    Ok(next) => self.publish(Arc::new(next)),
                    Err(e) => {
                        tracing::warn!("changes of the cluster state do not fit ({e}): reading all of it");
                        self.reload().await?;
                        // That waits for the store, and is no turn.
                        continue;
                    }
                }
            }
            *turns.about() = UpTo(newest);
            let values = events.iter().filter_map(|e| e.value.as_ref());
            turns.brought(values.map(|v| v.len()).sum());
            let now = self.shared.clock.monotonic();
            turns.did(STATE, now);
            if let Some(line) = turns.end(now) {
                tracing::warn!("following the cluster state: {line}");
            }
        }
    }

    fn take_live(&self, events: &[Event]) {
        let (mut stats, mut leased) = (None, None);
        for event in events {
            let of_mon = event.key.starts_with(keys::LIVE_MON);
            if of_mon || event.key.starts_with(keys::LIVE_OSD) {
                let s = stats.get_or_insert_with(|| (*self.stats()).clone());
                s.version = event.revision;
                match of_mon {
                    true => note_mon(s, &event.key, event.value.as_ref()),
                    false => note_report(s, &event.key, event.value.as_ref()),
                }
            } else if event.key.starts_with(keys::LIVE_MDS) {
                let s = stats.get_or_insert_with(|| (*self.stats()).clone());
                note_mds(s, &event.key, event.value.is_some());
            } else if event.key.starts_with(keys::LIVE_LEASE) {
                let l = leased.get_or_insert_with(|| (*self.leased()).clone());
                note_lease(l, &event.key, event.value.is_some());
            }
        }
        if let Some(leased) = &leased {
            let s = stats.get_or_insert_with(|| (*self.stats()).clone());
            s.leased = Arc::new(leased.clone());
        }
        if let Some(stats) = stats {
            self.shared.stats.send_replace(Arc::new(stats));
        }
        if let Some(leased) = leased {
            self.publish_leased(leased);
        }
    }

    fn publish_leased(&self, leased: BTreeSet<OsdId>) {
        self.shared.leased.send_if_modified(|old| {
            let changed = **old != leased;
            if changed {
                *old = Arc::new(leased);
            }
            changed
        });
    }
}

fn note_lease(leased: &mut BTreeSet<OsdId>, key: &str, live: bool) {
    let Some(Ok(id)) = key.strip_prefix(keys::LIVE_LEASE).map(str::parse) else {
        return;
    };
    match live {
        true => leased.insert(id),
        false => leased.remove(&id),
    };
}

fn note_mds(stats: &mut ClusterStats, key: &str, live: bool) {
    let Some(Ok(gid)) = key.strip_prefix(keys::LIVE_MDS).map(str::parse) else {
        return;
    };
    let all = Arc::make_mut(&mut stats.leased_mds);
    match live {
        true => all.insert(gid),
        false => all.remove(&gid),
    };
}

fn note_mon(stats: &mut ClusterStats, key: &str, value: Option<&Bytes>) {
    let Some(name) = key.strip_prefix(keys::LIVE_MON) else {
        return;
    };
    match value.map(MonReport::from_bytes) {
        Some(Ok(report)) => drop(stats.mons.insert(name.to_string(), report)),
        Some(Err(e)) => tracing::warn!(mon = name, "what it says of itself cannot be read: {e}"),
        None => drop(stats.mons.remove(name)),
    }
}

fn note_report(stats: &mut ClusterStats, key: &str, value: Option<&Bytes>) {
    let Some(Ok(id)) = key.strip_prefix(keys::LIVE_OSD).map(str::parse) else {
        return;
    };
    match value.map(OsdReport::from_bytes) {
        Some(Ok(report)) => stats.note(id, report),
        Some(Err(e)) => tracing::warn!(osd = id, "report cannot be read: {e}"),
        None => stats.forget(id),
    }
}
