//! What metadata servers do with the cluster state: hold the lease that lets them serve, become standbys, say where they
//! stand, fence clients, leave. What all of it makes of the map: [`cluster::files`].

use super::ClusterHandle;
use super::copies::UNLEASED_MAX;
use crate::kv::{Error, Result};
use crate::lease::{Lease, LeaseTimes};
use auth::{CryptoKey, EntityAuth};
use cluster::changes::Change;
use cluster::files::{self, MdsBoot, MdsDaemon};
use cluster::{Changes, ClusterState, keys};
use types::fsmap::MdsState;
use types::{AuthName, EntityAddr, Epoch, Utime};

/// How long a client stays fenced that did not give its capabilities back.
const CLIENT_FENCED_SECONDS: u32 = 60 * 60;

impl ClusterHandle {
    /// A lease that lets the metadata server `gid` serve. It comes before [`ClusterHandle::mds_boot`]: a daemon in the map
    /// without a lease is gone.
    pub async fn mds_lease(&self, gid: u64, name: &str, times: LeaseTimes) -> Result<Lease> {
        let lease = self.shared.store.lease_hold(times).await?;
        let value = bytes::Bytes::copy_from_slice(name.as_bytes());
        self.put_leased(&keys::live_mds(gid), value, lease.id()).await?;
        Ok(lease)
    }

    /// Makes a standby of a new run of a metadata server. The inner error is why the cluster does not want it.
    pub async fn mds_boot(
        &self,
        gid: u64,
        name: &str,
        addr: EntityAddr,
        daemon: &MdsDaemon,
    ) -> Result<std::result::Result<(), String>> {
        let boot = MdsBoot {
            gid,
            name,
            addr,
            daemon,
        };
        self.commit_or_say(|state| files::boot(state, &boot, self.now()))
            .await
    }

    /// The metadata server says where it stands: durable, and published, before this returns. The inner error: the rank is not its
    /// own any more.
    pub async fn mds_report(&self, gid: u64, at: MdsState) -> Result<std::result::Result<(), String>> {
        self.commit_or_say(|state| files::report(state, gid, at, self.now()))
            .await
    }

    /// It stops, and another may take its rank at once.
    pub async fn mds_leave(&self, gid: u64) -> Result<()> {
        self.commit(|state| (files::leave(state, gid, self.now()), ()))
            .await
            .map(drop)
    }

    /// Those whose leases have ended lose what they held.
    pub async fn mark_mds_gone(&self) -> Result<()> {
        let live = self.stats().leased_mds.clone();
        let silent = |state: &ClusterState| -> Vec<u64> {
            let all = state.fsmap.daemons().map(|i| i.gid);
            all.filter(|gid| !live.contains(gid)).collect()
        };
        if silent(&self.state()).is_empty() {
            return Ok(());
        }
        let decide = |state: &ClusterState| {
            let gone: Vec<u64> = silent(state).into_iter().take(UNLEASED_MAX).collect();
            let mut changes = files::fail(state, &gone, "lives no more", self.now());
            changes.unleased_mds = gone;
            (changes, ())
        };
        match self.commit(decide).await {
            // It has come up meanwhile.
            Ok(_) | Err(Error::MdsLives(_)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The key of `name`: the one that the cluster has, or else `new`, which it has from now on.
    pub async fn daemon_key(&self, name: &AuthName, new: &EntityAuth) -> Result<CryptoKey> {
        let decide = |state: &ClusterState| {
            let mut changes = Changes::none();
            if let Some(entity) = state.auth.get(name) {
                return (changes, entity.key.clone());
            }
            changes.push(Change::AuthPut {
                name: name.clone(),
                entity: new.clone(),
            });
            (changes, new.key.clone())
        };
        Ok(self.commit(decide).await?.reply)
    }

    /// Completes when `key` is neither the key of `name` nor its pending one any more: who came with it begins anew. Who
    /// has no key waits for ever.
    pub async fn key_replaced(&self, name: &AuthName, key: Option<&CryptoKey>) {
        let Some(key) = key else {
            return std::future::pending().await;
        };
        let mut states = self.subscribe_state();
        let replaced = states.wait_for(|s| !s.auth.opens(name, key)).await.is_ok();
        if !replaced {
            // The state has ended, and with it the process.
            std::future::pending::<()>().await;
        }
    }

    /// Puts a client's instance on the blocklist; the epoch of the OSD map that has it.
    pub async fn fence_client(&self, client: EntityAddr) -> Result<Epoch> {
        let entry = client.to_blocklist_form();
        let decide = |state: &ClusterState| {
            let mut changes = Changes::none();
            if !state.osdmap.blocklist.contains_key(&entry) {
                let now = self.now();
                let until = Utime {
                    sec: now.sec.saturating_add(CLIENT_FENCED_SECONDS),
                    ..now
                };
                changes.inc(state, now).new_blocklist.insert(entry, until);
            }
            (changes, ())
        };
        let done = self.commit(decide).await?;
        Ok(done.state.osdmap.epoch)
    }

    async fn commit_or_say(
        &self,
        decide: impl Fn(&ClusterState) -> std::result::Result<Changes, String>,
    ) -> Result<std::result::Result<(), String>> {
        let done = self
            .commit(|state| match decide(state) {
                Ok(changes) => (changes, Ok(())),
                Err(why) => (Changes::none(), Err(why)),
            })
            .await?;
        Ok(done.reply)
    }

    /// Why a commit that needs these leases to have ended failed, if it was that.
    pub(super) async fn no_lease_of_mds(&self, gids: &[u64]) -> Result<()> {
        for gid in gids {
            if self.shared.store.get(&keys::live_mds(*gid)).await?.is_some() {
                return Err(Error::MdsLives(*gid));
            }
        }
        Ok(())
    }
}
