//! What clients did in the last minutes: samples of the cluster's rates, for the curves of the overview.
//!
//! Bound: [`SAMPLES`] samples, one every [`EVERY`].

use std::collections::VecDeque;
use std::time::Duration;

pub const EVERY: Duration = Duration::from_secs(5);
pub const SAMPLES: usize = 180;

/// Rates per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    pub at: Duration,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
}

impl History {
    pub fn push(&mut self, sample: Sample) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The oldest first, those of the last minutes alone: there may be gaps, when nobody was logged in.
    pub fn recent(&self, now: Duration) -> Vec<Sample> {
        let oldest = now.saturating_sub(EVERY * SAMPLES as u32);
        self.samples.iter().filter(|s| s.at >= oldest).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_minutes_are_kept() {
        let mut h = History::default();
        for n in 0..1000 {
            h.push(Sample {
                at: Duration::from_secs(5 * n),
                ..Sample::default()
            });
        }
        assert_eq!(h.samples.len(), SAMPLES);
        assert_eq!(h.recent(Duration::from_secs(4995)).len(), SAMPLES);
        assert_eq!(h.recent(Duration::from_secs(4995 + 601)).len(), SAMPLES - 120);
    }
}
