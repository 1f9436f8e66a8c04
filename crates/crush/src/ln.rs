//! The fixed-point logarithm behind straw2 (docs/protocol/ceph/03-placement.md, 5.3): about 2^44 * log2(u + 1).
//!
//! Three tables, generated when this crate is compiled; the tests hold their check sums. The second-order
//! table carries an error that was frozen into the protocol long ago: `ERRORS` reproduces it. The function is
//! not monotone at its top end. Neither may be repaired.

/// 2^48: what a logarithm is measured down from.
pub(crate) const LN_ONE: i64 = 1 << 48;

/// ceil(2^55 / (128 + k)).
static RECIPROCAL: [i64; 129] = reciprocals();
/// floor(2^48 * log2((128 + k) / 128)); the last entry is cut short, as the protocol has it.
static COARSE: [i64; 129] = coarse();
/// floor(2^48 * log2(1 + k / 2^15)) plus the frozen error.
static FINE: [i64; 256] = fine();

/// The error of most entries of the fine table.
const COMMON_ERROR: i64 = 0x1_4770_0000;

/// The entries of the fine table whose error is not the common one.
const ERRORS: [(usize, i64); 23] = [
    (56, 5_349_423_536),
    (127, 978_272_901),
    (134, 3_588_789_669),
    (181, 4_007_963_589),
    (184, 5_423_282_367),
    (188, 2_201_924_427),
    (193, 3_829_329_171),
    (198, 2_511_158_322),
    (199, 2_670_353_280),
    (200, 3_807_665_765),
    (207, 5_045_407_031),
    (210, 4_635_559_696),
    (212, 3_670_382_108),
    (225, 3_209_098_745),
    (227, 1_514_328_394),
    (228, 2_662_093_655),
    (229, 561_838_844),
    (231, 3_537_203_772),
    (235, 4_861_921_003),
    (236, 5_281_046_906),
    (240, 2_650_193_885),
    (241, 4_203_558_265),
    (247, 362_109_528),
];

const fn error_of(k: usize) -> i64 {
    if matches!(k, 0 | 1 | 203 | 216 | 222 | 233 | 237..=239 | 243..=246 | 248..=255) {
        return 0;
    }
    let mut i = 0;
    while i < ERRORS.len() {
        if ERRORS[i].0 == k {
            return ERRORS[i].1;
        }
        i += 1;
    }
    COMMON_ERROR
}

/// The upper 128 bits of a 256-bit product.
const fn mul_high(a: u128, b: u128) -> u128 {
    const LOW: u128 = u64::MAX as u128;
    let (ah, al, bh, bl) = (a >> 64, a & LOW, b >> 64, b & LOW);
    let cross = ah * bl + ((al * bl) >> 64);
    let cross2 = al * bh + (cross & LOW);
    ah * bh + (cross >> 64) + (cross2 >> 64)
}

/// floor(2^48 * log2(n / d)) for d <= n < 2d and d a power of two, by repeated squaring of n/d held with 127 fraction bits: the
/// error stays below 2^-70 of the result's unit, far from deciding any floor here (the check sums prove it).
const fn log2_scaled(n: u128, d: u128) -> i64 {
    // d is a power of two, so this is exact; n < 2d keeps it below 2^128.
    let mut x = n << (127 - d.trailing_zeros());
    let mut out = 0i64;
    let mut bit = 0;
    while bit < 48 {
        // The square of a number with 127 fraction bits, with 126.
        let square = mul_high(x, x);
        out <<= 1;
        if square >= 1 << 127 {
            out |= 1;
            x = square;
        } else {
            x = square << 1;
        }
        bit += 1;
    }
    out
}

const fn reciprocals() -> [i64; 129] {
    let mut t = [0; 129];
    let mut k = 0;
    while k < 129 {
        let d = 128 + k as u64;
        t[k] = (1u64 << 55).div_ceil(d) as i64;
        k += 1;
    }
    t
}

#[allow(long_running_const_eval)] // 128 logarithms of 48 squarings
const fn coarse() -> [i64; 129] {
    let mut t = [0; 129];
    let mut k = 0;
    while k < 128 {
        t[k] = log2_scaled(128 + k as u128, 128);
        k += 1;
    }
    t[128] = 0xffff_0000_0000;
    t
}

#[allow(long_running_const_eval)] // 256 logarithms of 48 squarings
const fn fine() -> [i64; 256] {
    let mut t = [0; 256];
    let mut k = 0;
    while k < 256 {
        t[k] = log2_scaled((1 << 15) + k as u128, 1 << 15) + error_of(k);
        k += 1;
    }
    t
}

/// The logarithm of `u` in 0..=65535.
#[inline]
pub fn straw2_ln(u: u16) -> i64 {
    let mut x = u32::from(u) + 1;
    let mut exponent = 15i64;
    if x & 0x1_8000 == 0 {
        // Normalize so that bit 15 is the highest.
        let shift = x.leading_zeros() - 16;
        x <<= shift;
        exponent -= i64::from(shift);
    }
    let k = ((x >> 8) - 128) as usize;
    let j = ((u64::from(x) * RECIPROCAL[k] as u64) >> 48) as usize & 0xff;
    (exponent << 44) + ((COARSE[k] + FINE[j]) >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of the tables from the protocol description; the mappings test covers the values in use.
    #[test]
    fn tables_have_the_protocols_sums() {
        assert_eq!(RECIPROCAL.iter().sum::<i64>(), 25_184_502_743_099_416);
        assert_eq!(COARSE.iter().sum::<i64>(), 20_219_628_255_001_087);
        assert_eq!(FINE.iter().sum::<i64>(), 404_690_236_986_906);
    }

    #[test]
    fn top_end_is_not_monotone() {
        assert_eq!(straw2_ln(65534), 281_474_932_780_304);
        assert_eq!(straw2_ln(65535), 281_474_708_275_200);
        assert_eq!(straw2_ln(6586), 223_163_574_013_391);
    }
}
