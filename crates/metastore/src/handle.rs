//! The handle that monitors and OSDs share: the newest snapshot, and commits.
//!
//! A handle is `Clone + Send + Sync`; each thread keeps one. Readers never wait: snapshots come from watch
//! channels. Writers of one process queue on a lock (so they seldom lose the compare), writers of other
//! processes are met by compare-and-swap: a decision is a pure function of the snapshot, so it is simply made again when
//! another writer was faster. One task of the process runs [`ClusterHandle::follow`]
//! (`follow.rs`), which brings in what others wrote and the OSDs' reports. What OSDs do is in `osds.rs`.
//!
//! Invariant: a snapshot is published only after the transaction that made it is durable.

mod copies;
mod create;
mod follow;
mod mds;
mod monitors;
mod osds;
mod rows;
#[cfg(test)]
mod tests;

pub use create::create_cluster;

use crate::broken::{self, Rule};
use crate::kv::{Compare, Error, LeaseId, Metastore, Range, Result, Txn, TxnOp, TxnOutcome};
use auth::RotatingSecrets;
use bytes::Bytes;
use cluster::{Change, Changes, ClusterState, ClusterStats, Instance, MapHistory, keys};
use io::Clock;
use rows::{load, op};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use types::osdmap::OsdMap;
use types::{EntityKind, OsdId, Utime};

/// Times a decision is made again because another writer was faster. With the pauses between them, enough for a thousand
/// writers at once (power comes back to all hosts).
const RETRIES_MAX: usize = 256;
/// After so many in a row there are pauses, each up to twice as long as the one before: of many writers that try again at
/// once, all but one lose again.
const RETRIES_AT_ONCE: usize = 3;
const PAUSE_MAX: Duration = Duration::from_millis(256);
/// What a commit that was beaten waits for the follower before it reads everything itself.
const FOLLOW_WAIT: Duration = Duration::from_millis(300);

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
    /// Held by who follows the store.
    follow: tokio::sync::Mutex<()>,
    /// The OSDs that hold a lease.
    leased: watch::Sender<Arc<BTreeSet<OsdId>>>,
    report_leases: Mutex<BTreeMap<OsdId, LeaseId>>,
    /// Leases of this process' monitors (one, but in tests) by name.
    mon_leases: Mutex<BTreeMap<String, (LeaseId, Bytes)>>,
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
        let (leased, _) = watch::channel(Arc::default());
        let shared = Shared {
            store,
            clock,
            state,
            osdmap,
            stats,
            leased,
            commit: tokio::sync::Mutex::new(()),
            follow: tokio::sync::Mutex::new(()),
            report_leases: Mutex::default(),
            mon_leases: Mutex::default(),
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

    /// The OSDs that hold a lease now: one that is not among them surely does not serve.
    pub fn leased(&self) -> Arc<BTreeSet<OsdId>> {
        self.shared.leased.borrow().clone()
    }
    pub fn subscribe_leased(&self) -> watch::Receiver<Arc<BTreeSet<OsdId>>> {
        self.shared.leased.subscribe()
    }

    /// All durable keys as of one moment, in order: for a copy of the whole state.
    pub async fn rows(&self) -> Result<Vec<(String, bytes::Bytes)>> {
        let (rows, _) = self.shared.store.range(Range::prefix("")).await?;
        let durable = rows.into_iter().filter(|kv| !kv.key.starts_with(keys::LIVE));
        Ok(durable.map(|kv| (kv.key, kv.value)).collect())
    }

    /// Why the store lets changes wait, if it does and knows.
    pub fn trouble(&self) -> Option<String> {
        self.shared.store.trouble()
    }

    /// The process is going to end: what the store does not answer soon fails from now on.
    pub fn close(&self) {
        self.shared.store.close();
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
        let mut moved = self.subscribe_state();
        for lost in 0..RETRIES_MAX {
            let pause = self.pause(lost);
            if !pause.is_zero() {
                io::task::sleep(pause).await;
            }
            let state = moved.borrow_and_update().clone();
            let (mut changes, reply) = decide(&state);
            let mut unleased = std::mem::take(&mut changes.unleased);
            let unleased_mds = std::mem::take(&mut changes.unleased_mds);
            if broken::is(Rule::LeaseEnded) {
                unleased.clear();
            }
            if changes.is_empty() {
                return Ok(Committed {
                    reply,
                    state,
                    changed: false,
                });
            }
            let (mut next, writes) = state.apply(changes, self.now())?;
            let ops = writes.into_iter().map(op).collect();
            let at = |key: String, revision| Compare::Revision { key, revision };
            let mut compares = vec![at(keys::VERSION.into(), state.revision)];
            compares.extend(unleased.iter().map(|id| at(keys::live_lease(*id), 0)));
            compares.extend(unleased_mds.iter().map(|gid| at(keys::live_mds(*gid), 0)));
            let done = match self.shared.store.txn(Txn { compares, ops }).await {
                // It may have happened or not: what is there now is decided on again. A decision that finds its own
                // effect there wants no change, or says that it is done already.
                Err(Error::Unknown(why)) => {
                    tracing::warn!("a commit's outcome is unknown ({why}): deciding again");
                    self.reload().await?;
                    continue;
                }
                done => done?,
            };
            match done {
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
                TxnOutcome::Conflict => {
                    self.no_lease_of(&unleased).await?;
                    self.no_lease_of_mds(&unleased_mds).await?;
                    // The follower brings in what the other writer did, which is less than everything.
                    if io::task::timeout(FOLLOW_WAIT, moved.changed()).await.is_err() {
                        self.reload().await?;
                    }
                }
            }
        }
        Err(Error::Storage(format!(
            "gave up after losing {RETRIES_MAX} races against other writers"
        )))
    }

    /// Before the next try of a commit that has lost so often. Two writers seldom draw the same.
    fn pause(&self, lost: usize) -> Duration {
        let Some(doublings) = lost.checked_sub(RETRIES_AT_ONCE) else {
            return Duration::ZERO;
        };
        let most = PAUSE_MAX.min(Duration::from_millis(2 << doublings.min(16)));
        // Nobody has to be unable to predict it.
        let now = self.shared.clock.monotonic().as_nanos() as u64;
        let mixed = now.wrapping_add(lost as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        most.mul_f64((mixed >> 32) as f64 / f64::from(u32::MAX))
    }

    /// Sets a leased key in place of what is there. Compared, so that it happens once: a copy that comes late must not put
    /// an earlier run's lease under the key again, with whose end the key would vanish while its owner lives.
    async fn put_leased(&self, key: &str, value: bytes::Bytes, lease: LeaseId) -> Result<()> {
        for _ in 0..RETRIES_MAX {
            let there = self.shared.store.get(key).await?;
            if there
                .as_ref()
                .is_some_and(|kv| kv.lease == Some(lease) && kv.value == value)
            {
                return Ok(());
            }
            let as_seen = Compare::Revision {
                key: key.into(),
                revision: there.map_or(0, |kv| kv.revision),
            };
            let txn = Txn {
                compares: match broken::is(Rule::KeySetOnce) {
                    true => Vec::new(),
                    false => vec![as_seen],
                },
                ops: vec![TxnOp::Put {
                    key: key.into(),
                    value: value.clone(),
                    lease: Some(lease),
                }],
            };
            match self.shared.store.txn(txn).await {
                Ok(TxnOutcome::Committed(_)) => return Ok(()),
                Ok(TxnOutcome::Conflict) => {}
                Err(Error::Unknown(why)) => tracing::warn!("{key}: outcome unknown ({why}): looking"),
                Err(e) => return Err(e),
            }
        }
        Err(Error::Storage(format!(
            "gave up setting {key} after {RETRIES_MAX} tries"
        )))
    }

    async fn reload(&self) -> Result<()> {
        let (rows, _) = self.shared.store.range(Range::prefix("")).await?;
        let state = load(&rows)?.ok_or_else(|| Error::Storage("the cluster was removed".into()))?;
        self.publish(Arc::new(state));
        Ok(())
    }

    /// Makes `state` the snapshot unless there is a newer one.
    fn publish(&self, state: Arc<ClusterState>) {
        let map = state.osdmap.clone();
        self.shared.state.send_if_modified(|old| {
            let newer = state.revision > old.revision;
            if newer {
                *old = state;
            }
            newer
        });
        self.shared.osdmap.send_if_modified(|old| {
            let newer = map.epoch > old.epoch;
            if newer {
                *old = map;
            }
            newer
        });
    }

    /// Lets leases end whose time has come. Call it about once a second from one task.
    pub async fn maintain(&self) -> Result<()> {
        self.shared.store.maintain().await
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

    /// These have the addresses that they have: whoever of them is on the blocklist is fenced under any other, too.
    pub async fn fence(&self, seen: &[Instance]) -> Result<()> {
        let now = self.now();
        if self.state().fence(seen, now).is_empty() {
            return Ok(());
        }
        let decide = |state: &ClusterState| (state.fence(seen, now), ());
        self.commit(decide).await.map(drop)
    }
}
