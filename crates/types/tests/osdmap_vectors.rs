//! OSD maps recorded from Ceph 16.2.15: encodings byte for byte, placement PG for PG.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use denc::{Decode, Encode};
use serde_json::Value;
use std::path::PathBuf;
use types::osdmap::{UpActing, osd_state};
use types::{Incremental, OsdMap, PgId, Uuid};

fn dir() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/placement"))
}

fn read(name: &str) -> Bytes {
    std::fs::read(dir().join(name)).unwrap().into()
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&read(name)).unwrap()
}

fn map_names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir().join("osdmap"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|x| x == "bin"))
        .map(|p| format!("osdmap/{}", p.file_stem().unwrap().to_str().unwrap()))
        .collect();
    names.sort();
    assert_eq!(names.len(), 13);
    names
}

fn load(name: &str) -> OsdMap {
    OsdMap::from_bytes(&read(&format!("{name}.bin"))).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn full_maps_round_trip() {
    let full = ["full_46", "full_72", "full_93"].map(String::from);
    for name in map_names().into_iter().chain(full) {
        assert_eq!(load(&name).to_bytes(), read(&format!("{name}.bin")), "{name}");
    }
}

#[test]
fn one_flipped_bit_is_refused() {
    let good = read("osdmap/minimal.bin");
    for at in [40, good.len() / 2, good.len() - 1] {
        let mut bad = good.to_vec();
        bad[at] ^= 1;
        assert!(OsdMap::from_bytes(&bad.into()).is_err(), "byte {at}");
    }
}

/// `[3,2147483647,4]`
fn set_text(set: &[i32]) -> String {
    let words: Vec<String> = set.iter().map(i32::to_string).collect();
    format!("[{}]", words.join(","))
}

#[test]
fn placement_of_every_recorded_pg() {
    let mut checked = 0;
    for name in map_names() {
        let mut map = load(&name);
        if name.ends_with("simple3") || name.ends_with("fromconf") {
            // Their OSDs do not exist; the tool ran with --mark-up-in.
            for (slot, weight) in map.osds.iter_mut().zip(&mut map.osd_weight) {
                slot.state |= osd_state::EXISTS | osd_state::UP;
                *weight = 0x10000;
            }
        }
        let recorded = String::from_utf8(read(&format!("{name}.pgs")).to_vec()).unwrap();
        for line in recorded.lines().filter(|l| !l.is_empty()) {
            let pg: PgId = line.split(' ').next().unwrap().parse().unwrap();
            let m = map.pg_mapping(pg);
            let UpActing {
                up,
                up_primary,
                acting,
                acting_primary,
            } = m.sets;
            let got = format!(
                "{pg} raw ({}, p{}) up ({}, p{up_primary}) acting ({}, p{acting_primary})",
                set_text(&m.raw),
                m.raw_primary,
                set_text(&up),
                set_text(&acting),
            );
            assert_eq!(got, line, "{name}");
            checked += 1;
        }
    }
    assert!(checked >= 1_665, "{checked}");
}

#[test]
fn incrementals_round_trip_and_lead_to_the_monitors_maps() {
    let chain = read("inc_chain.bin");
    let rows = json("inc_chain.json");
    let mut map = OsdMap::empty(Uuid::default());
    for row in rows.as_array().unwrap() {
        let number = |k: &str| row[k].as_u64().unwrap() as usize;
        let bytes = chain.slice(number("offset")..number("offset") + number("len"));
        let inc = Incremental::from_bytes(&bytes).unwrap();
        let epoch = inc.epoch;
        assert_eq!(epoch as usize, number("epoch"));
        assert_eq!(inc.to_bytes(), bytes, "incremental {epoch}");
        map.apply(&inc).unwrap();
        let (full, crc) = map.encode_for(u64::MAX);
        assert_eq!(crc, inc.full_crc, "map {epoch}");
        if [46, 72, 93].contains(&epoch) {
            assert_eq!(full, read(&format!("full_{epoch}.bin")));
        }
    }
    assert_eq!(map.epoch, 93);
}

#[test]
fn objects_to_pgs() {
    let o = json("objects.json");
    let map = load("osdmap/craft_stress1");
    let mut checked = 0;
    for row in o["rows"].as_array().unwrap() {
        let pool = row[0].as_i64().unwrap();
        let name = row[1].as_str().unwrap();
        let (raw, pg) = map.object_to_pg(pool, b"", b"", name.as_bytes()).unwrap();
        assert_eq!(u64::from(raw), row[2].as_u64().unwrap(), "{name}");
        assert_eq!(u64::from(pg.seed), row[3].as_u64().unwrap(), "{name}");
        let acting: Vec<i32> = row[4]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_i64().map_or(crush::ITEM_NONE, |n| n as i32))
            .collect();
        assert_eq!(map.pg_to_up_acting(pg).acting, acting, "{name}");
        checked += 1;
    }
    assert!(checked >= 400, "{checked}");
    let pool = types::PgPool {
        pg_num: 12,
        pgp_num: 12,
        ..Default::default()
    };
    for row in o["ns_key_rows"].as_array().unwrap() {
        let text = |i: usize| row[i].as_str().unwrap().as_bytes();
        let raw = pool.object_to_raw(text(2), text(3), text(1));
        assert_eq!(u64::from(raw), row[4].as_u64().unwrap(), "{row}");
        assert_eq!(u64::from(pool.raw_to_pg(raw)), row[5].as_u64().unwrap(), "{row}");
    }
}

#[test]
fn string_hash_linux() {
    for row in json("hashes.json")["str"].as_array().unwrap() {
        let bytes = hex::decode(row[0].as_str().unwrap()).unwrap();
        let got = types::pool::string_hash_linux(&bytes);
        assert_eq!(u64::from(got), row[2].as_u64().unwrap(), "{row}");
    }
}
