//! Time: a monotonic clock for deadlines and leases, and the wall clock for what people read.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub trait Clock: Send + Sync {
    /// Time since an arbitrary fixed point; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since the Unix epoch; may jump.
    fn wall(&self) -> Duration;
}

#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    #[allow(clippy::disallowed_methods)]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self::new())
    }
}
impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
    #[allow(clippy::disallowed_methods)]
    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}
