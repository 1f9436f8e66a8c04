//! How fast this OSD's primaries copy objects to members that are not in sync: a budget of bytes per second, given out
//! by risk (fewest copies first), that yields to clients.
//!
//! Vocabulary: a *grant* lets a PG take on one object; what it costs comes back as [`Recovery::copied`]. The *profile*
//! is the operator's `osd_recovery_profile`: gentle, normal or urgent.
//!
//! Invariants: while clients wait twice as long as they did without recovery, the rate is halved at each step, to 1/16 at
//! least; `urgent` knows no limit. Members of `in_sync` need no grant. Bound: what one [`BURST`] of the rate covers.

use crate::osd::Osd;
use pg::{CopyNeed, Input};
use std::time::Duration;
use types::osdmap::map_flag;
use types::{AuthName, EntityKind, PgId};

/// Time between two rounds of grants.
pub const STEP: Duration = Duration::from_millis(50);
/// The budget does not pile up for longer.
const BURST: Duration = Duration::from_millis(250);
/// What an object is taken to cost before any was copied.
const OBJECT_BYTES: u64 = 1 << 20;
const OBJECT_BYTES_MIN: u64 = 16 << 10;
/// Objects granted in one round whatever they cost.
const ROUND_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Gentle,
    Normal,
    Urgent,
}

impl Profile {
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("gentle") => Self::Gentle,
            Some("urgent") => Self::Urgent,
            _ => Self::Normal,
        }
    }

    /// Bytes per second when clients do not mind.
    fn rate(self) -> u64 {
        match self {
            Self::Gentle => 32 << 20,
            Self::Normal => 200 << 20,
            Self::Urgent => 4 << 30,
        }
    }
}

#[derive(Debug)]
pub struct Recovery {
    /// Bytes that may be copied now; below zero after a large object.
    budget: i64,
    filled: Duration,
    /// 16ths of the profile's rate.
    share: u32,
    /// A grant's mean cost: copied and granted, both halved now and then.
    copied: u64,
    granted: u64,
    /// Clients' operations: microseconds now, and what is usual without recovery.
    latency_us: f64,
    usual_us: f64,
    next: Option<Duration>,
    /// Since the start, for reports.
    pub bytes: u64,
    pub objects: u64,
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            budget: 0,
            filled: Duration::ZERO,
            share: SHARES,
            copied: OBJECT_BYTES,
            granted: 1,
            latency_us: 0.0,
            usual_us: 0.0,
            next: None,
            bytes: 0,
            objects: 0,
        }
    }
}

const SHARES: u32 = 16;

impl Recovery {
    pub fn copied(&mut self, bytes: u64) {
        self.budget -= bytes as i64;
        self.copied += bytes;
        self.bytes += bytes;
        if self.granted > 1024 {
            (self.copied, self.granted) = (self.copied / 2, self.granted / 2);
        }
    }

    /// A client's operation was answered after so long.
    pub fn answered(&mut self, after: Duration) {
        let us = after.as_micros() as f64;
        self.latency_us += (us - self.latency_us) / 64.0;
    }

    pub fn latency(&self) -> Duration {
        Duration::from_micros(self.latency_us as u64)
    }

    fn object_bytes(&self) -> u64 {
        (self.copied / self.granted.max(1)).max(OBJECT_BYTES_MIN)
    }

    /// Objects that may be taken on now.
    fn allowance(&mut self, now: Duration, profile: Profile) -> usize {
        let rate = profile.rate() / u64::from(SHARES) * u64::from(self.share);
        let full = (rate as u128 * BURST.as_millis() / 1000) as i64;
        let passed = now.saturating_sub(self.filled).min(BURST);
        self.filled = now;
        self.budget += (rate as u128 * passed.as_millis() / 1000) as i64;
        self.budget = self.budget.min(full);
        if self.budget <= 0 {
            return 0;
        }
        ((self.budget as u64 / self.object_bytes()) as usize).clamp(1, ROUND_MAX)
    }

    /// More or less, as clients fare.
    fn steer(&mut self, profile: Profile) {
        let slow = self.usual_us > 0.0 && self.latency_us > 2.0 * self.usual_us;
        self.share = match profile {
            Profile::Urgent => SHARES,
            _ if slow => (self.share / 2).max(1),
            _ => (self.share + 1).min(SHARES),
        };
    }

    /// Nothing is being copied: this is how fast clients are without.
    fn idle(&mut self) {
        self.usual_us = self.latency_us;
        self.share = SHARES;
    }
}

/// Whether the operator lets it be copied at all.
fn allowed(need: &CopyNeed, flags: u32, whole: bool) -> bool {
    let set = |flag: u32| flags & flag != 0;
    match need.backfill {
        true => !(set(map_flag::NOBACKFILL) || set(map_flag::NOREBALANCE) && whole),
        false => !set(map_flag::NORECOVER),
    }
}

impl Osd {
    pub fn recovery_timer(&self) -> Option<Duration> {
        self.recovery.next
    }

    /// A round of grants, when it is time.
    pub fn recover(&mut self) {
        let now = self.clock.monotonic();
        if self.recovery.next.is_some_and(|at| now < at) {
            return;
        }
        self.recovery.next = Some(now + STEP);
        let flags = self.placement.state.osdmap.flags;
        let mut needs: Vec<(CopyNeed, PgId)> = Vec::new();
        for (id, pg) in self.pgs() {
            let Some(need) = pg.wants_to_copy() else { continue };
            let whole = pg.group().in_sync.len() >= pg.group().size as usize;
            if allowed(&need, flags, whole) {
                needs.push((need, id));
            }
        }
        if needs.is_empty() {
            return self.recovery.idle();
        }
        let me = AuthName::new(EntityKind::Osd, self.id.to_string());
        let profile = Profile::parse(
            self.placement
                .state
                .option(&me, "osd_recovery_profile")
                .as_deref(),
        );
        self.recovery.steer(profile);
        let mut left = self.recovery.allowance(now, profile);
        needs.sort_by_key(|(need, id)| (need.in_sync, need.backfill, *id));
        for (need, id) in needs {
            let objects = need.objects.min(left);
            if objects == 0 {
                break;
            }
            left -= objects;
            self.recovery.granted += objects as u64;
            self.recovery.objects += objects as u64;
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

    #[test]
    fn the_rate_is_kept_and_yields() {
        let mut r = Recovery::default();
        let (mut granted, mut now) = (0, Duration::from_secs(5));
        for _ in 0..200 {
            r.steer(Profile::Gentle);
            let n = r.allowance(now, Profile::Gentle);
            r.granted += n as u64;
            (0..n).for_each(|_| r.copied(1 << 20));
            granted += n;
            now += STEP;
        }
        // 10 s at 32 MiB/s, and what a burst adds.
        assert!((300..=340).contains(&granted), "{granted}");
        r.usual_us = 100.0;
        r.latency_us = 500.0;
        (0..10).for_each(|_| r.steer(Profile::Normal));
        assert_eq!(r.share, 1);
        r.latency_us = 150.0;
        (0..20).for_each(|_| r.steer(Profile::Normal));
        assert_eq!(r.share, SHARES);
    }
}
