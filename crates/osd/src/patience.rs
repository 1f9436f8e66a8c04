//! For how long a peer's silence is taken for load: learned from how it spoke until now.
//!
//! Time is counted in heartbeats of ours, so that our own standstill is never the peer's silence. Invariant: never less than
//! [`BEATS_MIN`], never more than [`BEATS_MAX`]; a peer that always answered at once gets the least.

/// 1 s.
pub const BEATS_MIN: u32 = 5;
/// 3 s: one that is cut off is noticed by then, however slow it was before.
pub const BEATS_MAX: u32 = 15;
/// Mean deviations beyond the mean that are not yet remarkable.
const DEVIATIONS: f32 = 4.0;

/// The mean of the gaps between a peer's words and their mean deviation, as TCP has them for round trips.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Patience {
    mean: f32,
    deviation: f32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            mean: 1.0,
            deviation: 0.0,
        }
    }
}

impl Patience {
    /// The peer spoke, after so many heartbeats without a word.
    pub fn heard(&mut self, gap: u32) {
        let off = gap as f32 - self.mean;
        self.mean += off / 8.0;
        self.deviation += (off.abs() - self.deviation) / 4.0;
    }

    /// Heartbeats without a word that are load; one more is silence.
    pub fn beats(&self) -> u32 {
        let beats = (self.mean + DEVIATIONS * self.deviation).ceil() as u32;
        beats.clamp(BEATS_MIN, BEATS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(gaps: &[u32]) -> u32 {
        let mut p = Patience::default();
        gaps.iter().for_each(|g| p.heard(*g));
        p.beats()
    }

    #[test]
    fn a_peer_that_was_slow_gets_more_time_and_loses_it_again() {
        assert_eq!(after(&[]), BEATS_MIN);
        assert_eq!(after(&[1; 100]), BEATS_MIN);
        // One stall is forgotten; a peer that stalls again and again is known to.
        assert_eq!(after(&[&[5][..], &[1; 20]].concat()), BEATS_MIN);
        let slow = after(&[1, 5, 1, 4, 5, 1, 5, 3, 5, 5]);
        assert!((8..=BEATS_MAX).contains(&slow), "{slow}");
        assert_eq!(after(&[&[5, 1, 4, 5, 1, 5][..], &[1; 40]].concat()), BEATS_MIN);
    }

    #[test]
    fn patience_has_an_end() {
        assert_eq!(after(&[100; 50]), BEATS_MAX);
        assert_eq!(after(&[u32::MAX; 50]), BEATS_MAX);
    }
}
