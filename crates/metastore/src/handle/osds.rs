//! What OSDs do with the cluster state: come up, report, hold the lease that lets them serve, go down.

use super::ClusterHandle;
use crate::broken::{self, Rule};
use crate::kv::{Error, LeaseId, Result, Txn, TxnOp, VALUE_BYTES_MAX};
use crate::lease::{Lease, LeaseTimes};
use cluster::boot::{OsdBoot, decide, down, down_if_moved};
use cluster::{OsdReport, keys};
use denc::Encode;
use std::sync::PoisonError;
use std::time::Duration;
use types::{Epoch, OsdId};

/// An OSD's report, and with it its sign of life, ends this long after the last renewal.
pub const REPORT_TTL: Duration = Duration::from_secs(30);

impl ClusterHandle {
    /// A lease that lets OSD `id` serve; `run` tells this run of it from earlier ones. Call it once the OSD's
    /// store is open, whose lock ended an earlier run of the same OSD: the new lease takes the old one's place.
    /// The owner touches it as long as its loop turns, and serves while [`Lease::is_valid`]. The snapshot is then as new as the lease.
    pub async fn osd_lease(&self, id: OsdId, run: u32, times: LeaseTimes) -> Result<Lease> {
        let lease = self.shared.store.lease_hold(times).await?;
        self.put_leased(&keys::live_lease(id), run.to_string().into(), lease.id())
            .await?;
        // It may have been marked down after an earlier lease of its had ended, and another may serve in its place: it
        // must know before it serves again. From here on the lease stands against that.
        if !broken::is(Rule::CaughtUp) {
            self.catch_up().await?;
        }
        Ok(lease)
    }

    /// Gives a lease back: from then on the OSD must not serve.
    pub async fn end_lease(&self, lease: &Lease) -> Result<()> {
        self.shared.store.lease_revoke(lease.id()).await
    }

    /// Why a commit that needs these leases to have ended failed, if it was that.
    pub(super) async fn no_lease_of(&self, osds: &[OsdId]) -> Result<()> {
        for id in osds {
            if self.shared.store.get(&keys::live_lease(*id)).await?.is_some() {
                return Err(Error::LeaseHeld(*id));
            }
        }
        Ok(())
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

    /// Marks OSDs down whose reports have ended, of those that are up in the map. One that holds its lease may serve
    /// all the same, and stays up: to mark it down would let another one serve beside it.
    pub async fn mark_silent_down(&self, silent: &[OsdId]) -> Result<()> {
        let leased = self.leased();
        let unleased: Vec<OsdId> = silent.iter().copied().filter(|o| !leased.contains(o)).collect();
        self.mark_unleased_down(&unleased).await.map(drop)
    }

    /// Marks an OSD up at its addresses; creates it first when its id is new. Returns the epoch in which it
    /// is up.
    ///
    /// An OSD that was killed is still up in the map, at its old address. It is marked down first, in an epoch
    /// of its own: clients send what they had in flight again only when they see the PG's interval change, and
    /// a mere change of address loses those operations for ever.
    pub async fn osd_boot(&self, boot: &OsdBoot) -> Result<Epoch> {
        self.commit(|state| (down_if_moved(state, boot, self.now()), ()))
            .await?;
        let done = self.commit(|state| decide(state, boot, self.now())).await?;
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
        let done = self.commit(|state| (down(state, &[id], self.now()), ())).await?;
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
    half.no_room.retain(|pg, _| half.pgs.contains_key(pg));
    match report.pgs.is_empty() {
        true => whole,
        false => encode_report(id, &half),
    }
}
