//! The integer hash of CRUSH, "rjenkins1", for one to five arguments (docs/protocol/ceph/03-placement.md, 5.2).
//! All arithmetic is modulo 2^32; negative ids enter as two's complement.

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1_232;

/// The mixing step, shared with the string hash of object names.
#[inline(always)]
pub(crate) fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    macro_rules! line {
        ($p:ident, $q:ident, $r:ident, $shifted:expr) => {
            *$p = $p.wrapping_sub(*$q).wrapping_sub(*$r) ^ $shifted;
        };
    }
    line!(a, b, c, *c >> 13);
    line!(b, c, a, *a << 8);
    line!(c, a, b, *b >> 13);
    line!(a, b, c, *c >> 12);
    line!(b, c, a, *a << 16);
    line!(c, a, b, *b >> 5);
    line!(a, b, c, *c >> 3);
    line!(b, c, a, *a << 10);
    line!(c, a, b, *b >> 15);
}

pub fn hash1(a: u32) -> u32 {
    let (mut h, mut a, mut b, mut x, mut y) = (SEED ^ a, a, a, X, Y);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    h
}

#[inline]
pub fn hash2(a: u32, b: u32) -> u32 {
    let (mut h, mut a, mut b, mut x, mut y) = (SEED ^ a ^ b, a, b, X, Y);
    mix(&mut a, &mut b, &mut h);
    mix(&mut x, &mut a, &mut h);
    mix(&mut b, &mut y, &mut h);
    h
}

#[inline]
pub fn hash3(a: u32, b: u32, c: u32) -> u32 {
    let (mut h, mut a, mut b, mut c, mut x, mut y) = (SEED ^ a ^ b ^ c, a, b, c, X, Y);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    h
}

pub fn hash4(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let (mut h, mut a, mut b, mut c, mut d) = (SEED ^ a ^ b ^ c ^ d, a, b, c, d);
    let (mut x, mut y) = (X, Y);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut a, &mut x, &mut h);
    mix(&mut y, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut d, &mut h);
    h
}

pub fn hash5(a: u32, b: u32, c: u32, d: u32, e: u32) -> u32 {
    let (mut h, mut a, mut b, mut c, mut d, mut e) = (SEED ^ a ^ b ^ c ^ d ^ e, a, b, c, d, e);
    let (mut x, mut y) = (X, Y);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut e, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    mix(&mut d, &mut x, &mut h);
    mix(&mut y, &mut e, &mut h);
    h
}

/// The string hash that object names go through (pool `object_hash` 2, "rjenkins";
/// docs/protocol/ceph/03-placement.md, 4.1). It lives here because it shares the mixing step.
pub fn string_rjenkins(s: &[u8]) -> u32 {
    const GOLDEN: u32 = 0x9e37_79b9;
    let word = |b: &[u8]| b.iter().rev().fold(0u32, |w, x| w << 8 | u32::from(*x));
    let (mut a, mut b, mut c) = (GOLDEN, GOLDEN, 0u32);
    let mut blocks = s.chunks_exact(12);
    for k in &mut blocks {
        a = a.wrapping_add(word(&k[0..4]));
        b = b.wrapping_add(word(&k[4..8]));
        c = c.wrapping_add(word(&k[8..12]));
        mix(&mut a, &mut b, &mut c);
    }
    c = c.wrapping_add(s.len() as u32);
    for (j, byte) in blocks.remainder().iter().enumerate() {
        let v = u32::from(*byte);
        match j {
            0..=3 => a = a.wrapping_add(v << (8 * j)),
            4..=7 => b = b.wrapping_add(v << (8 * (j - 4))),
            // The lowest byte of c belongs to the length.
            _ => c = c.wrapping_add(v << (8 * (j - 7))),
        }
    }
    mix(&mut a, &mut b, &mut c);
    c
}
