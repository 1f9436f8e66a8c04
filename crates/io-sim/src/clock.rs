//! Clocks of hosts: virtual time, shifted and drifting. Timers do not drift, only what is read here does.

use io::Clock;
use std::time::Duration;
use tokio::time::Instant;

/// 2026-01-01: where the wall clocks of a simulation begin.
const EPOCH_S: u64 = 1_767_225_600;

#[derive(Debug, Clone)]
pub struct SimClock {
    start: Instant,
    /// How far the wall clock is ahead.
    skew: Duration,
    /// How much faster both clocks run, in millionths.
    drift_ppm: i32,
}

impl SimClock {
    pub(crate) fn new(start: Instant, skew: Duration, drift_ppm: i32) -> Self {
        Self {
            start,
            skew,
            drift_ppm,
        }
    }
}

impl Clock for SimClock {
    fn monotonic(&self) -> Duration {
        let real = self.start.elapsed().as_nanos() as i128;
        let read = real + real * i128::from(self.drift_ppm) / 1_000_000;
        // From one second on: a monotonic clock that reads zero is rare in life.
        Duration::from_secs(1) + Duration::from_nanos(read as u64)
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(EPOCH_S) + self.skew + self.monotonic()
    }
}
