//! The target `objects` of crates/hostile under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    hostile::objects(data);
});
