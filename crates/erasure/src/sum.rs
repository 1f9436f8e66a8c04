//! A sum over one shard's bytes that goes with the code: what holds of the units holds of their sums.
//!
//! The bytes are the coefficients of a polynomial, which is taken modulo one of degree 8; the sum is the 8 bytes of the rest. All of that is
//! linear over the field, as the code is: the sum of a parity shard is made of the sums of the data shards as its bytes are made of their
//! bytes, wherever all are of one length. So whether k + m shards fit one another shows in 8 bytes of each, and which of them does not fit
//! can be told wherever enough others are left.
//!
//! Invariant: the modulus is primitive (a test proves it): a wrong byte, or two that are wrong at different places, never go unseen, and what is
//! random does in one of 2^64 cases. The modulus is part of what OSDs tell one another: it stays what it is.

use crate::field::mul;

/// Coefficients of the modulus below that of x^8, which is 1; the lowest first.
const MODULUS: [u8; 8] = [27, 241, 171, 100, 76, 130, 128, 5];

/// What a coefficient of x^8 comes to.
const REDUCED: [u64; 256] = reduced();

const fn reduced() -> [u64; 256] {
    let mut table = [0; 256];
    let mut top = 0;
    while top < 256 {
        let mut n = 0;
        while n < 8 {
            table[top] |= (mul(top as u8, MODULUS[n]) as u64) << (8 * n);
            n += 1;
        }
        top += 1;
    }
    table
}

/// The sum of what was added so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum(u64);

impl Sum {
    /// Bytes behind those that were added before.
    pub fn add(&mut self, bytes: &[u8]) {
        for b in bytes {
            let top = (self.0 >> 56) as usize;
            self.0 = (self.0 << 8) ^ REDUCED[top] ^ u64::from(*b);
        }
    }

    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Code;

    fn sum(bytes: &[u8]) -> u64 {
        let mut sum = Sum::default();
        sum.add(bytes);
        sum.value()
    }

    fn bytes(n: usize, seed: usize) -> Vec<u8> {
        (0..n).map(|i| ((i * 31 + seed * 77) % 253) as u8).collect()
    }

    #[test]
    fn sums_of_units_are_coded_as_the_units_are() {
        for (k, m) in [(2, 1), (4, 2), (8, 4)] {
            let code = Code::reed_solomon(k, m).unwrap();
            let data: Vec<Vec<u8>> = (0..k).map(|n| bytes(1000, n)).collect();
            let units: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let parity = code.encode(&units).unwrap();
            let sums: Vec<[u8; 8]> = data.iter().map(|d| sum(d).to_le_bytes()).collect();
            let sums: Vec<&[u8]> = sums.iter().map(|s| &s[..]).collect();
            let want: Vec<Vec<u8>> = parity.iter().map(|p| sum(p).to_le_bytes().to_vec()).collect();
            assert_eq!(code.encode(&sums).unwrap(), want, "{k} + {m}");
        }
    }

    #[test]
    fn it_is_the_same_in_whatever_pieces_it_is_made() {
        let all = bytes(1000, 3);
        let mut pieces = Sum::default();
        all.chunks(7).for_each(|c| pieces.add(c));
        assert_eq!(pieces.value(), sum(&all));
        assert_eq!(sum(&[]), 0);
        // What OSDs tell one another.
        assert_eq!(sum(&[1, 2, 3]), 0x01_0203);
        assert_eq!(sum(&[1, 0, 0, 0, 0, 0, 0, 0, 0]), 0x0580_824c_64ab_f11b);
    }

    fn times(a: u64, b: u64) -> u64 {
        // Horner, over the bytes of b.
        b.to_be_bytes().iter().fold(0, |sum: u64, coefficient| {
            let shifted = (sum << 8) ^ REDUCED[(sum >> 56) as usize];
            let scaled = a.to_le_bytes().map(|c| mul(c, *coefficient));
            shifted ^ u64::from_le_bytes(scaled)
        })
    }

    /// x to this power, modulo the modulus.
    fn power(mut n: u64) -> u64 {
        let (mut out, mut square) = (1, 256);
        while n > 0 {
            if n & 1 == 1 {
                out = times(out, square);
            }
            square = times(square, square);
            n >>= 1;
        }
        out
    }

    /// x has the order 2^64 - 1, which only a primitive modulus gives: 3 * 5 * 17 * 257 * 641 * 65537 * 6700417.
    #[test]
    fn the_modulus_is_primitive() {
        assert_eq!(power(u64::MAX), 1);
        for prime in [3, 5, 17, 257, 641, 65537, 6_700_417] {
            assert_eq!(u64::MAX % prime, 0);
            assert_ne!(power(u64::MAX / prime), 1, "{prime}");
        }
    }
}
