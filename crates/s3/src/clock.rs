//! Time and randomness, as this crate asks for them.

use crate::record::Tag;
use io::Random;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
pub struct Clock {
    clock: Arc<dyn io::Clock>,
    random: Arc<dyn Random>,
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl Clock {
    pub fn new(clock: Arc<dyn io::Clock>, random: Arc<dyn Random>) -> Self {
        Self { clock, random }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.clock.wall().as_millis() as u64
    }

    pub fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    pub fn random_u64(&self) -> u64 {
        self.random.u64()
    }

    pub fn tag(&self) -> Tag {
        Tag(self.random.bytes())
    }

    pub fn fill(&self, buf: &mut [u8]) {
        self.random.fill(buf);
    }
}
