//! Rounds of grants: which PGs take on how many objects now.

use super::{Profile, allowed};
use crate::osd::Osd;
use crate::pace::STEP;
use pg::{CopyNeed, Input};
use std::time::Duration;
use types::SPgId;

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
        match profile {
            Profile::Urgent => self.recovery.pace.step_regardless(now, profile.rate()),
            _ if self.recovery.pace.step(now, wall, &self.clients, profile.rate()) => {}
            _ => return,
        }
        let mut left = self.recovery.allowance();
        needs.sort_by_key(|(need, id)| (need.in_sync, need.backfill, *id));
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
