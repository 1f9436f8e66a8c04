//! The field of 256 elements in which the code computes: bytes as polynomials over two elements, modulo
//! x^8 + x^4 + x^3 + x^2 + 1.
//!
//! Sums are XOR, so that an element is its own negative. x (the byte 2) generates all elements but 0: products are sums of
//! logarithms.

/// The modulus, x^8 among it.
const MODULUS: u16 = 0x11d;
/// Elements but 0, and so the order of the generator.
const ORDER: usize = 255;

/// Powers of the generator, twice over so that a sum of two logarithms needs no reduction; and logarithms (of 0 there is none).
const TABLES: ([u8; 2 * ORDER], [u8; 256]) = tables();

const fn tables() -> ([u8; 2 * ORDER], [u8; 256]) {
    let mut powers = [0; 2 * ORDER];
    let mut logs = [0; 256];
    let mut element: u16 = 1;
    let mut n = 0;
    while n < ORDER {
        powers[n] = element as u8;
        powers[n + ORDER] = element as u8;
        logs[element as usize] = n as u8;
        element <<= 1;
        if element & 0x100 != 0 {
            element ^= MODULUS;
        }
        n += 1;
    }
    (powers, logs)
}

const fn log(a: u8) -> usize {
    TABLES.1[a as usize] as usize
}

pub const fn mul(a: u8, b: u8) -> u8 {
    match a == 0 || b == 0 {
        true => 0,
        false => TABLES.0[log(a) + log(b)],
    }
}

/// None: 0 has none.
pub fn inverse(a: u8) -> Option<u8> {
    (a != 0).then(|| TABLES.0[ORDER - log(a)])
}

/// `a` times itself `n` times; 1 for n = 0, also of 0.
pub fn power(a: u8, n: usize) -> u8 {
    match (a, n) {
        (_, 0) => 1,
        (0, _) => 0,
        _ => TABLES.0[log(a) * n % ORDER],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: shift and reduce.
    fn slow(a: u8, b: u8) -> u8 {
        let (mut a, mut sum) = (u16::from(a), 0);
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                sum ^= a;
            }
            a <<= 1;
            if a & 0x100 != 0 {
                a ^= MODULUS;
            }
        }
        sum as u8
    }

    #[test]
    fn products_are_those_of_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), slow(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert_eq!(inverse(0), None);
        for a in 1..=255 {
            assert_eq!(mul(a, inverse(a).unwrap()), 1, "{a}");
        }
    }

    #[test]
    fn powers_are_repeated_products() {
        for a in 0..=255 {
            let mut want = 1;
            for n in 0..600 {
                assert_eq!(power(a, n), want, "{a}^{n}");
                want = mul(want, a);
            }
        }
    }
}
