//! Proposals: a primary wants another configuration of its PG.

use super::needs::Needs;
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
    /// In a pool of shards: who has which one then. None of copies, whose positions say nothing.
    pub acting: Option<Vec<Option<OsdId>>>,
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
    #[error("fewer than min_size would be in sync, or fewer of them up than have all objects together")]
    TooFew,
    #[error("the positions are not those of the set, or one that was in sync would have another")]
    Misplaced,
}

impl PgProposal {
    pub fn batches(all: &[Self]) -> impl Iterator<Item = &[Self]> {
        all.chunks(BATCH_MAX)
    }

    /// What the configuration becomes in a map of `epoch`. Settling gives copies their positions.
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
            acting: self.acting.as_ref().unwrap_or(&self.expect.acting).clone(),
            created: self.expect.created,
            life: self.expect.life.clone(),
        }
    }

    /// True if the positions are not those that `now` may have next: of shards each of the set has one, who was in sync its
    /// own.
    fn is_misplaced(&self, now: &PgConfig, needs: &Needs) -> bool {
        let acting = match (&self.acting, needs.coded) {
            (None, false) => return false,
            (Some(acting), true) => acting,
            _ => return true,
        };
        let mut standing: Vec<OsdId> = acting.iter().copied().flatten().collect();
        let mut set = self.in_sync.clone();
        standing.sort_unstable();
        set.sort_unstable();
        let moves = |(at, o): (usize, &Option<OsdId>)| {
            o.is_some_and(|o| self.in_sync.contains(&o) && acting.get(at) != Some(&Some(o)))
        };
        standing != set
            || acting.iter().skip(needs.size).any(Option::is_some)
            || now.acting.iter().enumerate().any(moves)
    }

    /// True if too few would be left. Who leaves does so only where the others have all objects, and are there to say so.
    fn leaves_too_few(&self, now: &PgConfig, map: &OsdMap, needs: &Needs) -> bool {
        let leaves = now.in_sync.iter().any(|o| !self.in_sync.contains(o));
        let alive = self.in_sync.iter().filter(|o| map.is_up(**o)).count();
        self.in_sync.len() < needs.least.min(now.in_sync.len()) || leaves && alive < needs.enough
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
        let needs = Needs::of(map, p.pg);
        if p.is_misplaced(now, &needs) {
            return Some(Refusal::Misplaced);
        }
        p.leaves_too_few(now, map, &needs).then_some(Refusal::TooFew)
    }
}
