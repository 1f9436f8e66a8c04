//! What every role of a node is given: clock and randomness, and what the machine allows.

use crate::Settings;
use auth::Entropy;
use io::{Clock, Random, SystemClock, SystemRandom};
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Platform {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub hostname: String,
    /// Descriptors that this process may have.
    pub descriptors: u64,
}

/// Descriptors of each OSD and of everything else, apart from connections of clients.
const OWN_DESCRIPTORS: u64 = 256;
/// Connections of each listener, however few descriptors there are.
const CONNECTIONS_MIN: u64 = 128;

impl Platform {
    pub fn system() -> Self {
        Self {
            clock: SystemClock::shared(),
            random: SystemRandom::shared(),
            hostname: io::files::hostname(),
            descriptors: io::socket::raise_descriptors(),
        }
    }

    /// Connections of each listener: of the OSDs, the monitor and the manager.
    pub fn connections_max(&self, settings: &Settings) -> usize {
        let listeners = u64::from(settings.osds) + 2;
        let fair = (self.descriptors / listeners).saturating_sub(OWN_DESCRIPTORS);
        let most = fair.clamp(CONNECTIONS_MIN, net::CONNECTIONS_MAX as u64);
        if most < 1024 {
            tracing::warn!(
                "{} descriptors are allowed (ulimit -n): at most {most} connections to each OSD and monitor",
                self.descriptors
            );
        }
        most as usize
    }

    pub fn entropy(&self) -> Arc<dyn Entropy> {
        let random = self.random.clone();
        Arc::new(move |buf: &mut [u8]| random.fill(buf))
    }
}
