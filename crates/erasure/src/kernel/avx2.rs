//! The loop with AVX2: 32 bytes at a time, each looked up in two tables of 16 by one shuffle.
//!
//! The only unsafe code of the crate: loads and stores by pointer, and the call of what needs the feature.

#![allow(unsafe_code)]

use super::{Factor, portable};
use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

/// Bytes of a register.
const WIDTH: usize = 32;

pub(super) fn add_times(factor: &Factor, from: &[u8], to: &mut [u8]) {
    assert!(std::arch::is_x86_feature_detected!("avx2"), "chosen where it is");
    // SAFETY: the processor has AVX2, which was just asserted.
    unsafe { with_avx2(factor, from, to) }
}

/// Both tables twice, as a shuffle looks up in each half of the register for itself.
#[target_feature(enable = "avx2")]
fn table(half: &[u8; 16]) -> __m256i {
    // SAFETY: 16 readable bytes; the load wants no alignment.
    let half = unsafe { _mm_loadu_si128(half.as_ptr().cast::<__m128i>()) };
    _mm256_broadcastsi128_si256(half)
}

#[target_feature(enable = "avx2")]
fn with_avx2(factor: &Factor, from: &[u8], to: &mut [u8]) {
    let (low, high) = (table(&factor.low), table(&factor.high));
    let mask = _mm256_set1_epi8(15);
    let (mut from, mut to) = (from.chunks_exact(WIDTH), to.chunks_exact_mut(WIDTH));
    for (f, t) in from.by_ref().zip(to.by_ref()) {
        // SAFETY: each chunk is 32 bytes, which may be read; the load wants no alignment.
        let (f, old) = unsafe {
            (
                _mm256_loadu_si256(f.as_ptr().cast::<__m256i>()),
                _mm256_loadu_si256(t.as_ptr().cast::<__m256i>()),
            )
        };
        let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(f, mask));
        let of_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64(f, 4), mask));
        let sum = _mm256_xor_si256(old, _mm256_xor_si256(of_low, of_high));
        // SAFETY: the chunk is 32 bytes that are ours to write; the store wants no alignment.
        unsafe { _mm256_storeu_si256(t.as_mut_ptr().cast::<__m256i>(), sum) };
    }
    portable(factor, from.remainder(), to.into_remainder());
}
