//! Rounds of grants: which PGs take on how many objects now.

use super::{Profile, allowed};
use crate::osd::Osd;
use crate::pace::{SHARES, STEP};
use cluster::Forced;
use pg::{CopyNeed, Input};
use std::collections::BTreeMap;
use std::time::Duration;
use types::pgstats::pg_state;
use types::{PoolId, SPgId};

/// Its place among those that want to copy: first what an operator forces, of the kind that it wants, then the fewest copies.
fn place(forced: &BTreeMap<PoolId, Forced>, need: &CopyNeed, id: &SPgId) -> (bool, usize, bool, SPgId) {
    let flag = match need.backfill {
        true => pg_state::FORCED_BACKFILL,
        false => pg_state::FORCED_RECOVERY,
    };
    let flags = forced.get(&id.pg.pool).map_or(0, |f| f.flags(id.pg.seed));
    (flags & flag == 0, need.in_sync, need.backfill, *id)
}

impl Osd {
    pub fn recovery_timer(&self) -> Option<Duration> {
        self.recovery.next
    }

    /// What the operator has set.
    pub fn recovery_profile(&self) -> Profile {
        Profile::parse(self.option(Profile::OPTION).as_deref())
    }

    /// A round of grants, when it is time.
    pub fn recover(&mut self) {
        let now = self.clock.monotonic();
        if self.recovery.next.is_some_and(|at| now < at) {
            return;
        }
        self.recovery.next = Some(now + STEP);
        let peers = &self.meters.net.peers;
        if peers.bytes() > peers.bytes_max() / 2 {
            // What was sent has to leave first; the next round asks again.
            peers.wait.inc();
            return;
        }
        let flags = self.placement.state.osdmap.flags;
        let mut needs: Vec<(CopyNeed, SPgId)> = Vec::new();
        for (id, pg) in self.pgs() {
            let Some(need) = pg.wants_to_copy() else { continue };
            let whole = pg.group().in_sync.len() >= pg.group().size as usize;
            if allowed(&need, flags, whole) {
                needs.push((need, id));
            }
        }
        if needs.is_empty() {
            return self.recovery.pace.idle(&self.clients);
        }
        let profile = self.recovery_profile();
        let wall = self.clock.wall();
        // Data of which there is one copy left goes before anybody's latency.
        let most = match needs.iter().any(|(need, _)| need.in_sync <= 1) {
            true => SHARES,
            false => self.qos.sixteenths(),
        };
        self.recovery.pace.at_most(most);
        match profile {
            Profile::Urgent => self.recovery.pace.step_regardless(now, profile.rate()),
            _ if self.recovery.pace.step(now, wall, &self.clients, profile.rate()) => {}
            _ => return,
        }
        let mut left = self.recovery.allowance();
        let forced: BTreeMap<PoolId, Forced> = self.cluster.state().all_forced().collect();
        needs.sort_by_key(|(need, id)| place(&forced, need, id));
        for (need, id) in needs {
            let objects = need.objects.min(left);
            if objects == 0 {
                break;
            }
            left -= objects;
            self.recovery.granted += objects as u64;
            self.meters.osd.recovery_ops.add(objects as u64);
            if let Some(slot) = self.slots.get_mut(&id) {
                slot.recovered.0 += objects as i64;
            }
            self.drive(id, Input::Grant { objects });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PgId;

    #[test]
    fn what_is_forced_comes_first_then_the_fewest_copies() {
        let need = |in_sync, backfill| CopyNeed {
            in_sync,
            backfill,
            objects: 1,
        };
        let pg = |seed| SPgId::replicated(PgId::new(1, seed));
        let mut all = [
            (need(2, false), pg(0)),
            (need(1, true), pg(1)),
            (need(1, false), pg(2)),
            (need(2, true), pg(3)),
            (need(3, true), pg(4)),
        ];
        let mut order = |forced: &Forced| {
            let forced = BTreeMap::from([(1, forced.clone())]);
            all.sort_by_key(|(need, id)| place(&forced, need, id));
            all.iter().map(|(_, id)| id.pg.seed).collect::<Vec<_>>()
        };
        let mut forced = Forced::default();
        assert_eq!(order(&forced), [2, 1, 0, 3, 4]);
        forced.set_of(true).insert(4);
        assert_eq!(order(&forced), [4, 2, 1, 0, 3]);
        // Of the other kind: no reason to go first.
        forced.set_of(false).insert(3);
        assert_eq!(order(&forced), [4, 2, 1, 0, 3]);
        forced.set_of(true).insert(3);
        assert_eq!(order(&forced), [3, 4, 2, 1, 0]);
    }
}
