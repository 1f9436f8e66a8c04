//! What each PG's log and object cache may take of the OSD's memory: half is shared evenly, half goes to those that are
//! written to.
//!
//! A log is the memory of answered requests, by which a write that its client sends again is not done twice. What it is good
//! for is time: a PG that is written to fast needs a longer one than one that rests. So the shares follow the writes of the last
//! seconds, and where the bound is near, logs of PGs at rest are trimmed without a write ([`Pg::trim_log`]).
//!
//! Bounds: all logs and all caches together stay within their accounts, except that each PG keeps a minimum
//! (100 entries of the log, a few objects).

use crate::osd::Osd;
use crate::slot::Role;
use pg::Pg;
use types::SPgId;

/// PGs trimmed in one round: each is a transaction.
const TRIMMED_MAX: usize = 64;

/// The part of `bytes` that is due to one of `n`, whose activity is `own` of `all`.
fn share(bytes: u64, n: u64, own: u64, all: u64) -> u64 {
    let even = bytes / 2 / n.max(1);
    match all {
        0 => 2 * even,
        _ => even + (u128::from(bytes / 2) * u128::from(own) / u128::from(all)) as u64,
    }
}

impl Osd {
    /// Once a second, and when there are other PGs.
    pub fn share_memory(&mut self) {
        let (mut n, mut all) = (0, 0);
        for slot in self.slots.values_mut() {
            if let Role::Primary(pg) = &slot.role {
                slot.activity.count(pg.stats().writes);
                (n, all) = (n + 1, all + slot.activity.recent);
            }
        }
        let (logs, objects) = (self.meters.logs.bytes_max(), self.meters.objects.bytes_max());
        for slot in self.slots.values_mut() {
            let own = slot.activity.recent;
            if let Role::Primary(pg) = &mut slot.role {
                pg.allow(share(logs, n, own, all), share(objects, n, own, all));
            }
        }
    }

    /// Where logs have little room left, those that are too long are cut: the longest first.
    pub fn trim_logs(&mut self) {
        let (bytes, max) = (self.meters.logs.bytes(), self.meters.logs.bytes_max());
        if bytes <= max / 8 * 7 {
            return;
        }
        let mut longest: Vec<(u64, SPgId)> = self.pgs().map(|(id, pg)| (pg.memory().0, id)).collect();
        longest.sort_unstable();
        for (_, id) in longest.into_iter().rev().take(TRIMMED_MAX) {
            self.store.lend(id);
            if let Some(slot) = self.slots.get_mut(&id)
                && let Role::Primary(pg) = &mut slot.role
            {
                Pg::trim_log(pg, &mut self.store);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_writes_and_stay_within_the_whole() {
        let recent = [0u64, 0, 30, 10];
        let all = recent.iter().sum();
        let shares: Vec<u64> = recent.iter().map(|r| share(8000, 4, *r, all)).collect();
        assert_eq!(shares, [1000, 1000, 4000, 2000]);
        assert_eq!(share(8000, 4, 0, 0), 2000, "nobody writes");
        assert_eq!(share(8000, 0, 0, 0), 8000);
    }
}
