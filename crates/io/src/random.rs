//! Randomness: keys, challenges, ids.

use std::sync::Arc;

pub trait Random: Send + Sync {
    /// Fills `buf` with bytes that nobody can predict.
    fn fill(&self, buf: &mut [u8]);
}

impl dyn Random + '_ {
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut b = [0; N];
        self.fill(&mut b);
        b
    }
    pub fn u32(&self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }
    pub fn u64(&self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

/// The operating system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl SystemRandom {
    pub fn shared() -> Arc<dyn Random> {
        Arc::new(Self)
    }
}

impl Random for SystemRandom {
    fn fill(&self, buf: &mut [u8]) {
        // Without randomness no key is safe: stopping is the only honest answer.
        aws_lc_rs::rand::fill(buf).expect("the system's random generator works");
    }
}
