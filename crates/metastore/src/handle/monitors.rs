//! Which monitors live: each says so under a leased key, with what the others must know of it.
//!
//! Monitors share the cluster's state and hold no elections. The living one of the lowest rank leads: it does what has
//! to be done once (upkeep), and is the first in line for the manager's part. Two that lead for a moment do no harm:
//! all that they do is decided from the state and committed by compare-and-swap.

use super::ClusterHandle;
use crate::kv::Result;
use cluster::{MonReport, keys};
use denc::Encode;
use std::sync::PoisonError;
use std::time::Duration;

/// A monitor that does not renew its sign of life is gone after this long.
pub const MON_TTL: Duration = Duration::from_secs(5);

impl ClusterHandle {
    /// Says that a monitor of this process lives. Call it about once a second; what it says is written at the first
    /// call, when it has changed, and again when the lease was lost.
    pub async fn publish_mon(&self, report: &MonReport) -> Result<()> {
        let leases = || {
            self.shared
                .mon_leases
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let known = leases().get(&report.name).cloned();
        let bytes = report.to_bytes();
        let mut lease = None;
        if let Some((held, said)) = known
            && self.shared.store.lease_renew(held).await.is_ok()
        {
            if said == bytes {
                return Ok(());
            }
            lease = Some(held);
        }
        let lease = match lease {
            Some(held) => held,
            None => self.shared.store.lease_grant(MON_TTL).await?,
        };
        self.put_leased(&keys::live_mon(&report.name), bytes.clone(), lease)
            .await?;
        leases().insert(report.name.clone(), (lease, bytes));
        Ok(())
    }

    /// A monitor of this process stops: the others know at once.
    pub async fn mon_gone(&self, name: &str) -> Result<()> {
        let lease = self
            .shared
            .mon_leases
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
        match lease {
            Some((lease, _)) => self.shared.store.lease_revoke(lease).await,
            None => Ok(()),
        }
    }
}
