//! Every byte of a map is hostile: mutated vectors must not panic, hang, or take memory out of proportion to
//! their length, whether they decode or not, and neither may anything that is then done with them.
//!
//! Mutations are deterministic (a seed per vector and round), so a failure names its input.

#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)] // the measuring allocator below

use bytes::Bytes;
use crush::CrushMap;
use denc::{Decode, Encode};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::PathBuf;
use types::checksum::crc32c;
use types::{FsMap, Incremental, MgrMap, MonMap, OsdMap, PgId, Uuid};

/// Counts what the present thread holds, and the most it held.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(by: isize) {
    // `try_with` since memory is also freed while a thread ends.
    let _ = HELD.try_with(|h| {
        h.set(h.get() + by);
        let _ = PEAK.try_with(|p| p.set(p.get().max(h.get())));
    });
}

// SAFETY: hands every call on to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        count(l.size() as isize);
        unsafe { System.alloc(l) }
    }
    unsafe fn dealloc(&self, p: *mut u8, l: Layout) {
        count(-(l.size() as isize));
        unsafe { System.dealloc(p, l) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that a decoder may hold per byte of input, beside a fixed part. Small structs with empty
/// containers in them are what costs most per byte.
const BYTES_PER_BYTE: isize = 64;
const FIXED_BYTES: isize = 64 * 1024;

fn decode_measured<T: Decode>(input: &Bytes, what: &str) -> Option<T> {
    let before = HELD.get();
    PEAK.set(before);
    let out = T::from_bytes(input).ok();
    let took = PEAK.get() - before;
    let limit = FIXED_BYTES + BYTES_PER_BYTE * input.len() as isize;
    assert!(
        took <= limit,
        "{what}: {took} bytes held for {} of input",
        input.len()
    );
    out
}

/// xorshift64*, seeded per input.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.roll() % n.max(1) as u64) as usize
    }
}

/// One to four changes: a flipped bit, an extreme word, a cut, a doubled piece.
fn mutate(input: &[u8], seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut out = input.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(out.len());
        match dice.below(6) {
            0 | 1 => out[at] ^= 1 << dice.below(8),
            2 | 3 => {
                let words = [0u32, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x10000, 255];
                let word = words[dice.below(words.len())].to_le_bytes();
                for (o, b) in out[at..].iter_mut().zip(word) {
                    *o = b;
                }
            }
            4 => out.truncate(at.max(8)),
            _ => {
                let end = (at + dice.below(64)).min(out.len());
                let piece = out[at..end].to_vec();
                out.splice(at..at, piece);
            }
        }
    }
    out
}

/// Makes the checksum right again, so that a mutation gets past it; `tail` bytes follow it.
fn fix_crc(map: &mut [u8], tail: usize) {
    let Some(at) = map.len().checked_sub(4 + tail).filter(|at| *at >= 6) else {
        return;
    };
    let len = (map.len() - 6) as u32;
    map[2..6].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c(crc32c(u32::MAX, &map[..at]), &map[at + 4..]);
    map[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn dir(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors")).join(name)
}

fn vectors(folder: &str, suffix: &str) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = std::fs::read_dir(dir(folder))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.to_str().unwrap().ends_with(suffix))
        .map(|p| {
            (
                p.file_name().unwrap().to_str().unwrap().to_string(),
                std::fs::read(&p).unwrap(),
            )
        })
        .collect();
    found.sort();
    found
}

/// Everything that a server does with a CRUSH map that somebody sent.
fn use_crush(map: &CrushMap) {
    let weights = vec![0x10000; 64];
    for rule in map.rule_ids().take(2) {
        assert!(map.do_rule(rule, 77, 3, &weights, 0).len() <= 3);
    }
    let _ = map.decompile();
    let _ = map.validate();
    let _ = map.roots(false);
    let _ = map.location_of(0);
    let mut edited = map.clone();
    let _ = edited.add_osd(5, 0x10000, &[("host", "fresh"), ("root", "default")]);
    let _ = edited.set_device_class(0, "ssd");
    let _ = edited.reweight_item("osd.0", 0x8000);
    let _ = edited.remove_item("osd.1");
    let again = CrushMap::from_bytes(&map.to_bytes()).unwrap();
    assert_eq!(again.buckets, map.buckets);
}

fn use_map(map: &OsdMap) {
    for pool in map.pools.keys().take(4) {
        let (_, pg) = map.object_to_pg(*pool, b"", b"", b"foo").unwrap();
        let m = map.pg_mapping(pg);
        assert!(m.raw.len() <= 255);
    }
    let _ = map.pg_mapping(PgId::new(i64::MAX, 3));
    let _ = map.num_up_osds();
    let again = OsdMap::from_bytes(&map.to_bytes()).unwrap();
    assert_eq!(again.osds, map.osds);
}

/// Mutated inputs that still decode are a good part: else the test would only test checksums.
struct Tally {
    decoded: usize,
    refused: usize,
}

impl Tally {
    fn new() -> Self {
        Self {
            decoded: 0,
            refused: 0,
        }
    }

    fn add<T>(&mut self, out: Option<T>) -> Option<T> {
        match out {
            Some(_) => self.decoded += 1,
            None => self.refused += 1,
        }
        out
    }

    fn check(&self, what: &str) {
        let (d, r) = (self.decoded, self.refused);
        assert!(d > r / 20 && r > d / 20, "{what}: {d} decoded, {r} refused");
    }
}

#[test]
fn crush_maps() {
    let mut tally = Tally::new();
    for (name, good) in vectors("placement/crush", ".bin") {
        for seed in 0..100 {
            let bad = Bytes::from(mutate(&good, seed));
            if let Some(map) = tally.add(decode_measured::<CrushMap>(&bad, &name)) {
                use_crush(&map);
            }
        }
    }
    tally.check("crush");
}

#[test]
fn crush_texts() {
    let mut compiled = 0;
    for (_, good) in vectors("placement/crush", ".txt") {
        for seed in 0..200 {
            let bad = mutate(&good, seed);
            if let Ok(map) = crush::compile(&String::from_utf8_lossy(&bad)) {
                compiled += 1;
                use_crush(&map);
            }
        }
    }
    assert!(compiled > 50, "{compiled}");
}

#[test]
fn osd_maps() {
    let mut tally = Tally::new();
    for (name, good) in vectors("placement/osdmap", ".bin") {
        for seed in 0..300 {
            let mut bad = mutate(&good, seed);
            fix_crc(&mut bad, 0);
            if let Some(map) = tally.add(decode_measured::<OsdMap>(&bad.into(), &name)) {
                use_map(&map);
            }
        }
    }
    tally.check("osdmap");
}

#[test]
fn incrementals() {
    let chain = std::fs::read(dir("placement/inc_chain.bin")).unwrap();
    let rows = std::fs::read(dir("placement/inc_chain.json")).unwrap();
    let rows: serde_json::Value = serde_json::from_slice(&rows).unwrap();
    let mut map = OsdMap::empty(Uuid::default());
    let mut tally = Tally::new();
    for row in rows.as_array().unwrap() {
        let number = |k: &str| row[k].as_u64().unwrap() as usize;
        let good = &chain[number("offset")..number("offset") + number("len")];
        for seed in 0..60 {
            let mut bad = mutate(good, seed);
            fix_crc(&mut bad, 4);
            let what = format!("incremental {row}");
            if let Some(inc) = tally.add(decode_measured::<Incremental>(&bad.into(), &what)) {
                let mut next = map.clone();
                if next.apply(&inc).is_ok() {
                    use_map(&next);
                } else {
                    assert_eq!(next.epoch, map.epoch);
                }
            }
        }
        let inc = Incremental::from_bytes(&Bytes::copy_from_slice(good)).unwrap();
        map.apply(&inc).unwrap();
    }
    tally.check("incrementals");
}

#[test]
fn monitor_manager_and_file_system_maps() {
    fn check<T: Decode + Encode>(front: &str, skip: usize) {
        let good = std::fs::read(dir("monitor").join(format!("{front}.front.bin"))).unwrap();
        let mut tally = Tally::new();
        for seed in 0..2_000 {
            let bad = Bytes::from(mutate(&good[skip..], seed));
            if let Some(v) = tally.add(decode_measured::<T>(&bad, front)) {
                assert!(T::from_bytes(&v.to_bytes()).is_ok(), "{front} {seed}");
            }
        }
        tally.check(front);
    }
    check::<MonMap>("mon_map", 4);
    check::<MgrMap>("mgr_map-minimal", 0);
    check::<FsMap>("fs_map", 4);
}
