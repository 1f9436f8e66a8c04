//! What OSDs commit about each other and about their PGs' copies: proposals, scrubs that are done, and who is down.

use super::ClusterHandle;
use crate::broken::{self, Rule};
use crate::kv::{Error, Result, TXN_COMPARES_MAX};
use cluster::boot::{down_for, down_unless_kept};
use cluster::{Changes, ClusterState, MergeRefusal, PgMerge, PgProposal, Refusal};
use types::osdmap::OsdSlot;
use types::{EntityAddrVec, OsdId, PgId};

/// Leases that one commit can ask to have ended, beside the state's version.
pub(super) const UNLEASED_MAX: usize = TXN_COMPARES_MAX - 4;

impl ClusterHandle {
    /// Commits what can be committed of `wishes`, in batches; what became of each. Those behind an error were not
    /// tried.
    pub async fn propose(&self, wishes: &[PgProposal]) -> Result<Vec<(PgId, Option<Refusal>)>> {
        let mut fates = Vec::with_capacity(wishes.len());
        for batch in PgProposal::batches(wishes) {
            let done = self.commit(|state| state.accept(batch)).await?;
            fates.extend(done.reply);
        }
        Ok(fates)
    }

    /// Merges two PGs that their primary has brought to rest.
    pub async fn merge(&self, merge: &PgMerge) -> Result<Option<MergeRefusal>> {
        let done = self.commit(|state| state.accept_merge(merge, self.now())).await?;
        Ok(done.reply)
    }

    /// Marks those of `osds` down that are up and hold no lease any more: they surely do not serve. An operator's
    /// `nodown` keeps them. False if one of them has its lease again.
    pub async fn mark_unleased_down(&self, osds: &[OsdId]) -> Result<bool> {
        // In as many commits as it takes: each of them stands for itself.
        for some in osds.chunks(UNLEASED_MAX) {
            let decide = |state: &ClusterState| {
                let mut changes = down_unless_kept(state, some, self.now(), "its lease has ended");
                changes.unleased = some.to_vec();
                (changes, ())
            };
            match self.commit(decide).await {
                Ok(_) => {}
                Err(Error::LeaseHeld(_)) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Marks `osd` down if it is up in the map at `addrs`: the process that was there is gone.
    pub async fn mark_gone_down(&self, osd: OsdId, addrs: &EntityAddrVec) -> Result<()> {
        self.commit(|state| {
            let named = |o: &OsdSlot| o.cluster_addrs == *addrs || broken::is(Rule::GoneByAddress);
            let there = state.osdmap.osd(osd).is_some_and(named);
            let changes = match there {
                true => down_unless_kept(state, &[osd], self.now(), "its process is gone"),
                false => Changes::none(),
            };
            (changes, ())
        })
        .await
        .map(drop)
    }

    /// Marks those down that an operator asked to go down and that hold no lease: they cannot do it themselves.
    pub async fn mark_asked_down(&self) -> Result<()> {
        let leased = self.leased();
        let state = self.state();
        let dead = |o: &OsdId| state.is_asked_down(*o) && !leased.contains(o);
        let dead: Vec<OsdId> = state.asked_down.keys().copied().filter(dead).collect();
        match dead.is_empty() {
            true => Ok(()),
            false => self.mark_unleased_down(&dead).await.map(drop),
        }
    }

    /// Marks an OSD down on its own word: it goes on living, but must not serve.
    pub async fn step_down(&self, osd: OsdId, why: &str) -> Result<()> {
        self.commit(|state| (down_for(state, &[osd], self.now(), why), ()))
            .await
            .map(drop)
    }

    /// A scrub that somebody asked for was carried out.
    pub async fn scrub_done(&self, pg: PgId, number: u64) -> Result<()> {
        self.commit(|state| (state.scrub_done(pg, number), ()))
            .await
            .map(drop)
    }
}
