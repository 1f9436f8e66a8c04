//! Maps that somebody may send or inject: what decodes must also be safe to use.
//!
//! Input: one byte that chooses the map, then its encoding. OSD maps and incrementals get their checksum put right,
//! so that mutations reach the decoder behind it.

use crate::take::take;
use bytes::Bytes;
use crush::CrushMap;
use denc::{Decode, Encode};
use types::checksum::crc32c;
use types::{FsMap, Incremental, MgrMap, MonMap, OsdMap, PgId, Uuid};

/// The kinds in the order of their numbers.
pub const CRUSH: u8 = 0;
pub const OSDMAP: u8 = 1;
pub const INCREMENTAL: u8 = 2;
pub const MONMAP: u8 = 3;
pub const MGRMAP: u8 = 4;
pub const FSMAP: u8 = 5;
pub const CRUSH_TEXT: u8 = 6;
const KINDS: usize = 7;

/// Length and checksum of an OSD map's outer envelope; `tail` bytes follow the checksum.
fn fix_checksum(map: &mut [u8], tail: usize) {
    let Some(at) = map.len().checked_sub(4 + tail).filter(|at| *at >= 6) else {
        return;
    };
    let len = (map.len() - 6) as u32;
    map[2..6].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c(crc32c(u32::MAX, &map[..at]), &map[at + 4..]);
    map[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// True, or it panics.
fn use_crush(map: &CrushMap) -> bool {
    let weights = [0x10000; 64];
    for rule in map.rule_ids().take(2) {
        assert!(map.do_rule(rule, 77, 3, &weights, 0).len() <= 3);
    }
    let _ = map.decompile();
    let _ = map.validate();
    let again = CrushMap::from_bytes(&map.to_bytes());
    assert!(again.is_ok(), "crush map: does not read what it wrote: {again:?}");
    true
}

fn use_osdmap(map: &OsdMap) -> bool {
    for pool in map.pools.keys().take(4) {
        if let Some((_, pg)) = map.object_to_pg(*pool, b"", b"", b"foo") {
            assert!(map.pg_mapping(pg).raw.len() <= 255);
        }
    }
    let _ = map.pg_mapping(PgId::new(i64::MAX, 3));
    assert!(
        OsdMap::from_bytes(&map.to_bytes()).is_ok(),
        "OSD map: does not read what it wrote"
    );
    true
}

fn round<T: Decode + Encode>(bytes: &Bytes, what: &str) -> bool {
    let decoded = T::from_bytes(bytes);
    if let Ok(v) = &decoded {
        assert!(
            T::from_bytes(&v.to_bytes()).is_ok(),
            "{what}: does not read what it wrote"
        );
    }
    decoded.is_ok()
}

pub fn maps(mut data: &[u8]) -> bool {
    let kind = (take::<1>(&mut data) % KINDS) as u8;
    let mut bytes = data.to_vec();
    match kind {
        OSDMAP => fix_checksum(&mut bytes, 0),
        INCREMENTAL => fix_checksum(&mut bytes, 4),
        _ => {}
    }
    let bytes = Bytes::from(bytes);
    match kind {
        CRUSH => CrushMap::from_bytes(&bytes).is_ok_and(|map| use_crush(&map)),
        OSDMAP => OsdMap::from_bytes(&bytes).is_ok_and(|map| use_osdmap(&map)),
        INCREMENTAL => Incremental::from_bytes(&bytes).is_ok_and(|inc| {
            let mut map = OsdMap::empty(Uuid::default());
            map.epoch = inc.epoch.wrapping_sub(1);
            if map.apply(&inc).is_ok() {
                use_osdmap(&map);
            }
            true
        }),
        MONMAP => round::<MonMap>(&bytes, "monitor map"),
        MGRMAP => round::<MgrMap>(&bytes, "manager map"),
        FSMAP => round::<FsMap>(&bytes, "file system map"),
        _ => crush::compile(&String::from_utf8_lossy(&bytes)).is_ok_and(|map| use_crush(&map)),
    }
}
