//! The one loop that everything is made of: `to ^= coefficient * from`, byte by byte.
//!
//! A product with a fixed coefficient is the sum of two table look-ups, one for each half of the byte: 16 entries each, which
//! fit into one register. With AVX2 32 bytes are looked up at a time.

#[cfg(target_arch = "x86_64")]
mod avx2;

use crate::field::mul;

/// Products of a coefficient with the 16 low and the 16 high halves of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Factor {
    low: [u8; 16],
    high: [u8; 16],
}

impl Factor {
    pub fn new(coefficient: u8) -> Self {
        let table = |shift: u32| std::array::from_fn(|n| mul(coefficient, (n as u8) << shift));
        Self {
            low: table(0),
            high: table(4),
        }
    }

    fn times(&self, byte: u8) -> u8 {
        self.low[usize::from(byte & 15)] ^ self.high[usize::from(byte >> 4)]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Portable,
    /// Only where the processor has it.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

/// How the loop runs. All give the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel(How);

impl Kernel {
    pub const PORTABLE: Self = Self(How::Portable);

    /// The fastest of this processor.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Self(How::Avx2);
        }
        Self::PORTABLE
    }

    /// `to ^= factor * from`; the two are of one length.
    pub(crate) fn add_times(self, factor: &Factor, from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "units of one length");
        match self.0 {
            How::Portable => portable(factor, from, to),
            #[cfg(target_arch = "x86_64")]
            How::Avx2 => avx2::add_times(factor, from, to),
        }
    }
}

fn portable(factor: &Factor, from: &[u8], to: &mut [u8]) {
    for (t, f) in to.iter_mut().zip(from) {
        *t ^= factor.times(*f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_its_products() {
        for c in 0..=255 {
            let factor = Factor::new(c);
            for b in 0..=255 {
                assert_eq!(factor.times(b), mul(c, b), "{c} * {b}");
            }
        }
    }

    #[test]
    fn all_kernels_give_the_same_bytes() {
        let bytes = |salt: usize| (0..300).map(move |n| (n * 7 + salt * 31 + n / 5) as u8);
        for len in (0..100).chain([127, 128, 129, 255, 256, 257, 300]) {
            // Any alignment.
            for skip in [0, 1, 7].into_iter().filter(|s| *s <= len) {
                for c in [0, 1, 2, 0x1d, 0x8e, 255] {
                    let from: Vec<u8> = bytes(c.into()).take(len).collect();
                    let mut one: Vec<u8> = bytes(3).take(len).collect();
                    let mut other = one.clone();
                    let factor = Factor::new(c);
                    Kernel::PORTABLE.add_times(&factor, &from[skip..], &mut one[skip..]);
                    Kernel::best().add_times(&factor, &from[skip..], &mut other[skip..]);
                    assert_eq!(one, other, "{c}, {len} bytes, from {skip} on");
                }
            }
        }
    }
}
