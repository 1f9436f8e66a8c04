//! Randomness that the seed knows.

use crate::Dice;
use io::Random;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
pub struct SimRandom(Mutex<Dice>);

impl SimRandom {
    pub fn shared(seed: u64) -> Arc<dyn Random> {
        Arc::new(Self(Mutex::new(Dice::new(seed))))
    }
}

impl Random for SimRandom {
    fn fill(&self, buf: &mut [u8]) {
        let mut dice = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for part in buf.chunks_mut(8) {
            let word = dice.roll().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}
