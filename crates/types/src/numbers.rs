//! Tables by numbers that nobody outside chooses: block numbers, tickets, connections. Their hash is two instructions, where the
//! standard one, which withstands keys that somebody picks to collide, is a function call for each part of a key.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Multiplicative.
#[derive(Debug, Default, Clone)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        let x = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 32);
    }
}

pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;
