//! Proposals: a primary wants another configuration of its PG.

use super::{PgConfig, PgConfigs};
use crate::broken::{self, Rule};
use types::osdmap::OsdMap;
use types::{Epoch, OsdId, PgId};

/// PGs in one commit: each may touch a row of its own, of which a transaction takes about a hundred.
const BATCH_MAX: usize = 80;

/// One PG's wish, which holds only for the configuration that it expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgProposal {
    pub pg: PgId,
    pub expect: PgConfig,
    pub in_sync: Vec<OsdId>,
    /// Another one than before begins a new interval. So does a proposal of what is: after it no earlier one can
    /// come true.
    pub primary: OsdId,
}

/// Why a proposal is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the configuration is another one by now")]
    Moved,
    #[error("the set is empty, names an OSD twice or does not hold its primary")]
    Malformed,
    #[error("osd.{0} is not up")]
    Down(OsdId),
    #[error("the new primary osd.{0} was not in sync")]
    NotInSync(OsdId),
    #[error("fewer than min_size would be in sync")]
    TooFew,
}

impl PgProposal {
    pub fn batches(all: &[Self]) -> impl Iterator<Item = &[Self]> {
        all.chunks(BATCH_MAX)
    }

    /// What the configuration becomes in a map of `epoch`. Settling gives it its positions.
    pub(super) fn config(&self, epoch: Epoch) -> PgConfig {
        let mut in_sync = self.in_sync.clone();
        in_sync.retain(|o| *o != self.primary);
        in_sync.insert(0, self.primary);
        PgConfig {
            interval: match self.primary == self.expect.primary
                && (in_sync != self.expect.in_sync || broken::is(Rule::SameIsNew))
            {
                true => self.expect.interval,
                false => epoch,
            },
            in_sync,
            primary: self.primary,
            acting: self.expect.acting.clone(),
            created: self.expect.created,
            life: self.expect.life.clone(),
        }
    }
}

impl PgConfigs {
    /// Why `p` cannot be carried out now; None: it can.
    pub fn refuses(&self, map: &OsdMap, p: &PgProposal) -> Option<Refusal> {
        let now = match self.get(p.pg) {
            Some(now) if now.is_expected(&p.expect) => now,
            Some(now) if now.primary == p.expect.primary && broken::is(Rule::Expected) => now,
            _ => return Some(Refusal::Moved),
        };
        let twice = |(at, o): (usize, &OsdId)| p.in_sync[..at].contains(o);
        if !p.in_sync.contains(&p.primary) || p.in_sync.iter().enumerate().any(twice) {
            return Some(Refusal::Malformed);
        }
        if p.primary != now.primary && !now.in_sync.contains(&p.primary) {
            return Some(Refusal::NotInSync(p.primary));
        }
        let new = p.in_sync.iter().filter(|o| !now.in_sync.contains(o));
        let down = |o: &&OsdId| !map.is_up(**o) && !broken::is(Rule::OnlyUpJoins);
        if let Some(down) = new.chain([&p.primary]).find(down) {
            return Some(Refusal::Down(*down));
        }
        let least = super::settle::min_size(map, p.pg).min(now.in_sync.len());
        (p.in_sync.len() < least).then_some(Refusal::TooFew)
    }
}
