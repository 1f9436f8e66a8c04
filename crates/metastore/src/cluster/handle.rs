//! The handle that monitors and OSDs share: the newest snapshot, and commits.
//!
//! A handle is `Clone + Send + Sync`; each thread keeps one. Readers never wait: snapshots come from watch
//! channels. Writers of one process queue on a lock (so they seldom lose the compare), writers of other
//! processes are met by compare-and-swap. One task of the process runs [`ClusterHandle::follow`], which
//! brings in what others wrote and the OSDs' reports.
//!
//! Invariant: a snapshot is published only after the transaction that made it is durable.

use super::changes::{Change, Changes};
use super::history::MapHistory;
use super::keys;
use super::load::load;
use super::state::ClusterState;
use super::stats::{ClusterStats, OsdReport};
use crate::kv::{Compare, Error, LeaseId, Metastore, Range, Result, Txn, TxnOp, TxnOutcome, VALUE_BYTES_MAX};
use auth::RotatingSecrets;
use denc::{Decode, Encode};
use io::Clock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use types::osdmap::OsdMap;
use types::{EntityAddrVec, EntityKind, Epoch, OsdId, Utime, Uuid};

/// Times a decision is made again because another writer was faster.
const RETRIES_MAX: usize = 64;
/// An OSD's report, and with it its sign of life, ends this long after the last renewal.
pub const REPORT_TTL: Duration = Duration::from_secs(30);

/// Global ids below it are not given to clients.
pub const FIRST_GLOBAL_ID: u64 = 4100;

/// What an OSD says when it begins to serve.
#[derive(Debug, Clone)]
pub struct OsdBoot {
    pub id: OsdId,
    /// Identity of its data directory.
    pub uuid: Uuid,
    pub client_addrs: EntityAddrVec,
    pub cluster_addrs: EntityAddrVec,
    pub hb_back_addrs: EntityAddrVec,
    pub hb_front_addrs: EntityAddrVec,
    /// Size of its disk: gives the CRUSH weight of a new OSD (1.0 per TiB).
    pub size_bytes: u64,
    pub host: String,
    /// "hdd", "ssd", "nvme" or empty.
    pub device_class: String,
    pub features: u64,
    pub metadata: BTreeMap<String, String>,
}

/// A commit that happened, or that turned out to change nothing.
#[derive(Debug)]
pub struct Committed<R> {
    pub reply: R,
    /// The snapshot that holds the change.
    pub state: Arc<ClusterState>,
    pub changed: bool,
}

struct Shared {
    store: Arc<dyn Metastore>,
    clock: Arc<dyn Clock>,
    state: watch::Sender<Arc<ClusterState>>,
    osdmap: watch::Sender<Arc<OsdMap>>,
    stats: watch::Sender<Arc<ClusterStats>>,
    commit: tokio::sync::Mutex<()>,
    report_leases: Mutex<BTreeMap<OsdId, LeaseId>>,
}

#[derive(Clone)]
pub struct ClusterHandle {
    shared: Arc<Shared>,
}

impl ClusterHandle {
    /// Opens the cluster in `store`; None when none was created there yet.
    pub async fn open(store: Arc<dyn Metastore>, clock: Arc<dyn Clock>) -> Result<Option<Self>> {
        let (rows, _) = store.range(Range::prefix("")).await?;
        let Some(state) = load(&rows)? else {
            return Ok(None);
        };
        let (osdmap, _) = watch::channel(state.osdmap.clone());
        let (state, _) = watch::channel(Arc::new(state));
        let (stats, _) = watch::channel(Arc::default());
        let shared = Shared {
            store,
            clock,
            state,
            osdmap,
            stats,
            commit: tokio::sync::Mutex::new(()),
            report_leases: Mutex::default(),
        };
        Ok(Some(Self {
            shared: Arc::new(shared),
        }))
    }

    pub fn state(&self) -> Arc<ClusterState> {
        self.shared.state.borrow().clone()
    }
    pub fn subscribe_state(&self) -> watch::Receiver<Arc<ClusterState>> {
        self.shared.state.subscribe()
    }
    pub fn osdmap(&self) -> Arc<OsdMap> {
        self.shared.osdmap.borrow().clone()
    }
    /// The newest OSD map; changes only when the epoch does.
    pub fn subscribe_osdmap(&self) -> watch::Receiver<Arc<OsdMap>> {
        self.shared.osdmap.subscribe()
    }
    /// Encoded increments and full maps by epoch, for pushing maps to peers.
    pub fn history(&self) -> Arc<MapHistory> {
        self.state().history.clone()
    }
    pub fn stats(&self) -> Arc<ClusterStats> {
        self.shared.stats.borrow().clone()
    }
    pub fn subscribe_stats(&self) -> watch::Receiver<Arc<ClusterStats>> {
        self.shared.stats.subscribe()
    }

    #[cfg(test)]
    pub(crate) fn store_for_tests(&self) -> Arc<dyn Metastore> {
        self.shared.store.clone()
    }

    pub fn now(&self) -> Utime {
        Utime::from_unix(self.shared.clock.wall())
    }

    /// Decides and commits: `decide` is a pure function of the state, run again when the state moved on.
    /// When it wants no change nothing is written.
    pub async fn commit<R>(
        &self,
        mut decide: impl FnMut(&ClusterState) -> (Changes, R),
    ) -> Result<Committed<R>> {
        let _turn = self.shared.commit.lock().await;
        for _ in 0..RETRIES_MAX {
            let state = self.state();
            let (changes, reply) = decide(&state);
            if changes.is_empty() {
                return Ok(Committed {
                    reply,
                    state,
                    changed: false,
                });
            }
            let (mut next, ops) = state.apply(changes, self.now())?;
            let compare = Compare::Revision {
                key: keys::VERSION.into(),
                revision: state.revision,
            };
            match self
                .shared
                .store
                .txn(Txn {
                    compares: vec![compare],
                    ops,
                })
                .await?
            {
                TxnOutcome::Committed(revision) => {
                    next.revision = revision;
                    let state = Arc::new(next);
                    self.publish(state.clone());
                    return Ok(Committed {
                        reply,
                        state,
                        changed: true,
                    });
                }
                TxnOutcome::Conflict => self.reload().await?,
            }
        }
        Err(Error::Storage(format!(
            "gave up after losing {RETRIES_MAX} races against other writers"
        )))
    }

    async fn reload(&self) -> Result<()> {
        let (rows, _) = self.shared.store.range(Range::prefix("")).await?;
        let state = load(&rows)?.ok_or_else(|| Error::Storage("the cluster was removed".into()))?;
        if state.revision > self.state().revision {
            self.publish(Arc::new(state));
        }
        Ok(())
    }

    fn publish(&self, state: Arc<ClusterState>) {
        let map = state.osdmap.clone();
        self.shared.state.send_replace(state);
        self.shared.osdmap.send_if_modified(|old| {
            let newer = map.epoch > old.epoch;
            if newer {
                *old = map;
            }
            newer
        });
    }

    /// Follows the store until it closes: other writers' commits, the OSDs' reports, the end of leases.
    /// Exactly one task per process runs this.
    pub async fn follow(&self) -> Result<()> {
        loop {
            let (rows, revision) = self.shared.store.range(Range::prefix(keys::LIVE_OSD)).await?;
            let mut stats = ClusterStats {
                version: revision,
                ..ClusterStats::default()
            };
            for kv in rows {
                note_report(&mut stats, &kv.key, Some(&kv.value));
            }
            self.shared.stats.send_replace(Arc::new(stats));
            // A commit between our snapshot and this revision is not among the changes to come.
            self.catch_up().await?;
            match self.follow_from(revision).await {
                Err(Error::Compacted(_)) => {
                    let _turn = self.shared.commit.lock().await;
                    self.reload().await?;
                }
                other => return other,
            }
        }
    }

    /// Loads the state anew if another writer was here since the snapshot.
    async fn catch_up(&self) -> Result<()> {
        let _turn = self.shared.commit.lock().await;
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
        loop {
            let events = watch.next().await?;
            let mut stats = None;
            let mut newest_version = 0;
            for event in &events {
                if event.key.starts_with(keys::LIVE_OSD) {
                    let s = stats.get_or_insert_with(|| (*self.stats()).clone());
                    s.version = event.revision;
                    note_report(s, &event.key, event.value.as_ref());
                } else if event.key == keys::VERSION {
                    newest_version = event.revision;
                }
            }
            if let Some(stats) = stats {
                self.shared.stats.send_replace(Arc::new(stats));
            }
            if newest_version > self.state().revision {
                let _turn = self.shared.commit.lock().await;
                if newest_version > self.state().revision {
                    self.reload().await?;
                }
            }
        }
    }

    /// Lets leases end whose time has come. Call it about once a second from one task.
    pub async fn maintain(&self) -> Result<()> {
        self.shared.store.maintain().await
    }

    /// Publishes an OSD's report and renews its sign of life. Call it every few seconds.
    pub async fn publish_stats(&self, id: OsdId, report: &OsdReport) -> Result<()> {
        let lease = self.report_lease(id).await?;
        let key = keys::live_osd(id);
        let op = TxnOp::Put {
            key,
            value: encode_report(id, report),
            lease: Some(lease),
        };
        self.shared
            .store
            .txn(Txn {
                compares: vec![],
                ops: vec![op],
            })
            .await
            .map(|_| ())
    }

    async fn report_lease(&self, id: OsdId) -> Result<LeaseId> {
        let known = self
            .shared
            .report_leases
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
            .copied();
        if let Some(lease) = known
            && self.shared.store.lease_renew(lease).await.is_ok()
        {
            return Ok(lease);
        }
        let lease = self.shared.store.lease_grant(REPORT_TTL).await?;
        self.shared
            .report_leases
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, lease);
        Ok(lease)
    }

    /// The secrets that open tickets for a service ("osd", "mgr"); they change about once an hour, so look again
    /// when the state changes.
    pub fn service_secrets(&self, service: EntityKind) -> RotatingSecrets {
        self.state().rotating.get(service).cloned().unwrap_or_default()
    }

    /// Takes a range of global ids that nobody had before, also not before a restart.
    pub async fn reserve_global_ids(&self, count: u64) -> Result<std::ops::Range<u64>> {
        let done = self
            .commit(|state| {
                let range = state.global_id_limit..state.global_id_limit + count;
                (Changes::one(Change::GlobalIdLimit(range.end)), range)
            })
            .await?;
        Ok(done.reply)
    }

    /// Marks OSDs down whose reports have ended, of those that are up in the map. Returns whom.
    pub async fn mark_silent_down(&self, silent: &[OsdId]) -> Result<()> {
        self.commit(|state| (super::boot::down(state, silent, self.now()), ()))
            .await
            .map(|_| ())
    }

    /// Marks an OSD up at its addresses; creates it first when its id is new. Returns the epoch in which it
    /// is up.
    ///
    /// An OSD that was killed is still up in the map, at its old address. It is marked down first, in an epoch
    /// of its own: clients send what they had in flight again only when they see the PG's interval change, and
    /// a mere change of address loses those operations for ever.
    pub async fn osd_boot(&self, boot: &OsdBoot) -> Result<Epoch> {
        self.commit(|state| (super::boot::down_if_moved(state, boot, self.now()), ()))
            .await?;
        let done = self
            .commit(|state| super::boot::decide(state, boot, self.now()))
            .await?;
        done.reply
            .map(|()| done.state.osdmap.epoch)
            .map_err(Error::Storage)
    }

    /// Marks an OSD down (clean stop). Nothing happens if it is down already.
    pub async fn osd_down(&self, id: OsdId) -> Result<Epoch> {
        let lease = self
            .shared
            .report_leases
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
        if let Some(lease) = lease {
            self.shared.store.lease_revoke(lease).await?;
        }
        let done = self
            .commit(|state| (super::boot::down(state, &[id], self.now()), ()))
            .await?;
        Ok(done.state.osdmap.epoch)
    }
}

/// The report, without the details of some placement groups if it would be too large for the store.
fn encode_report(id: OsdId, report: &OsdReport) -> bytes::Bytes {
    let whole = report.to_bytes();
    if whole.len() <= VALUE_BYTES_MAX {
        return whole;
    }
    tracing::warn!(
        osd = id,
        pgs = report.pgs.len(),
        bytes = whole.len(),
        "report is too large: cut to half"
    );
    let mut half = report.clone();
    half.pgs = report
        .pgs
        .iter()
        .take(report.pgs.len() / 2)
        .map(|(k, v)| (*k, v.clone()))
        .collect();
    half.purged_snaps.retain(|pg, _| half.pgs.contains_key(pg));
    match report.pgs.is_empty() {
        true => whole,
        false => encode_report(id, &half),
    }
}

fn note_report(stats: &mut ClusterStats, key: &str, value: Option<&bytes::Bytes>) {
    let Some(Ok(id)) = key.strip_prefix(keys::LIVE_OSD).map(str::parse) else {
        return;
    };
    match value.map(OsdReport::from_bytes) {
        Some(Ok(report)) => stats.note(id, report),
        Some(Err(e)) => tracing::warn!(osd = id, "report cannot be read: {e}"),
        None => stats.forget(id),
    }
}
