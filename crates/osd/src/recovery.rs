//! How fast this OSD's primaries copy objects to members that are not in sync: a budget of bytes per second, given out
//! by risk (what an operator forces, then the fewest copies first), that yields to clients.
//!
//! Vocabulary: a *grant* lets a PG take on one object; what it costs comes back as [`Recovery::copied`]. The *profile*
//! is the operator's `osd_recovery_profile`: gentle, normal or urgent.
//!
//! Invariants: how the budget yields is [`crate::pace`]'s; `urgent` knows no limit. Members of `in_sync` need no grant.

mod rounds;

use crate::pace::Pace;
use pg::CopyNeed;
use std::time::Duration;
use types::osdmap::map_flag;

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
    pub const OPTION: &str = "osd_recovery_profile";

    pub fn name(self) -> &'static str {
        match self {
            Self::Gentle => "gentle",
            Self::Normal => "normal",
            Self::Urgent => "urgent",
        }
    }

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
    pace: Pace,
    /// A grant's mean cost: copied and granted, both halved now and then.
    copied: u64,
    granted: u64,
    next: Option<Duration>,
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            pace: Pace::default(),
            copied: OBJECT_BYTES,
            granted: 1,
            next: None,
        }
    }
}

impl Recovery {
    pub fn copied(&mut self, bytes: u64) {
        self.pace.used(bytes);
        self.copied += bytes;
        if self.granted > 1024 {
            (self.copied, self.granted) = (self.copied / 2, self.granted / 2);
        }
    }

    fn object_bytes(&self) -> u64 {
        (self.copied / self.granted.max(1)).max(OBJECT_BYTES_MIN)
    }

    /// Objects that the budget covers.
    fn allowance(&self) -> usize {
        match u64::try_from(self.pace.budget()) {
            Ok(bytes) if bytes > 0 => ((bytes / self.object_bytes()) as usize).clamp(1, ROUND_MAX),
            _ => 0,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::{Latency, STEP};

    #[test]
    fn grants_follow_what_objects_cost() {
        let mut r = Recovery::default();
        assert_eq!(r.allowance(), 0);
        let (mut granted, mut now) = (0, Duration::from_secs(5));
        for _ in 0..200 {
            now += STEP;
            r.pace.step(now, now, &Latency::default(), Profile::Gentle.rate());
            let n = r.allowance();
            r.granted += n as u64;
            (0..n).for_each(|_| r.copied(4 << 20));
            granted += n;
        }
        // 10 s at 32 MiB/s, and what a burst adds.
        assert!((75..=90).contains(&granted), "{granted}");
    }
}
