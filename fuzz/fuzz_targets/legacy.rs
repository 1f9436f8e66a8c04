//! The target `legacy` of crates/hostile under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    hostile::legacy(data);
});
