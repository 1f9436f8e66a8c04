//! Seeds of the targets, made from the recorded vectors.

use crate::classes::methods;
use crate::frames::sessions;
use crate::maps as map;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../vectors")
        .join(name)
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&fs::read(dir(name)).unwrap()).unwrap()
}

fn unhex(v: &Value) -> Vec<u8> {
    hex::decode(v.as_str().unwrap_or("")).unwrap()
}

/// The files of a folder that end in `suffix`, in order of their names.
fn files(folder: &str, suffix: &str) -> Vec<(String, Vec<u8>)> {
    let paths = fs::read_dir(dir(folder)).unwrap().map(|e| e.unwrap().path());
    let mut found: Vec<_> = paths
        .filter_map(|p| Some((p.file_name()?.to_str()?.to_string(), p)))
        .filter(|(name, _)| name.ends_with(suffix))
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect();
    found.sort();
    found
}

fn prefixed(head: &[&[u8]], body: &[u8]) -> Vec<u8> {
    let mut out = head.concat();
    out.extend_from_slice(body);
    out
}

/// Splits a recorded stream of revision 2.1 in crc mode into the frame list of the target; messages keep header and
/// front.
pub fn frame_list(stream: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut at = 26;
    while at + 32 <= stream.len() {
        let (tag, count) = (stream[at], usize::from(stream[at + 1]));
        let len = |i: usize| {
            u32::from_le_bytes(stream[at + 2 + 6 * i..at + 6 + 6 * i].try_into().unwrap()) as usize
        };
        let lens = [len(0), len(1), len(2), len(3)];
        let body = at + 32;
        let crc = if lens[0] > 0 { 4 } else { 0 };
        let front = body + lens[0] + crc;
        let head = stream.get(body..body + lens[0])?;
        let front = stream.get(front..front + lens[1])?;
        let total = head.len() + front.len();
        out.extend_from_slice(&prefixed(&[&[tag], &(total as u16).to_le_bytes(), head], front));
        at = body + lens.iter().sum::<usize>() + crc + if count > 1 { 13 } else { 0 };
    }
    Some(out)
}

/// Sessions of messenger v1: made ones, and what recorded clients said, against everybody.
pub fn legacy() -> Vec<Vec<u8>> {
    let mut seeds = crate::legacy::sessions();
    for (name, _) in files("messenger", ".json") {
        if name.contains("-v1-") {
            let stream = unhex(&json(&format!("messenger/{name}"))["c2s"]);
            seeds.extend([0u8, 1, 2].map(|victim| prefixed(&[&[victim << 1]], &stream)));
        }
    }
    seeds
}

pub fn frames() -> Vec<Vec<u8>> {
    let mut seeds = sessions();
    for (name, _) in files("messenger", ".json") {
        let v = json(&format!("messenger/{name}"));
        for (direction, clientward) in [("c2s", false), ("s2c", true)] {
            let stream = unhex(&v[direction]);
            if stream.is_empty() {
                continue;
            }
            // The raw bytes against everybody, the parsed frames too where they can be parsed.
            let who: &[u8] = if clientward { &[3] } else { &[0, 1, 2] };
            for victim in who {
                seeds.push(prefixed(&[&[victim << 1]], &stream));
                if let Some(list) = frame_list(&stream).filter(|_| name.contains("-crc")) {
                    seeds.push(prefixed(&[&[victim << 1 | 1]], &list));
                }
            }
        }
    }
    seeds
}

fn message(kind: u16, version: u16, front: &[u8], data: &[u8]) -> Vec<u8> {
    let len = (front.len() as u32).to_le_bytes();
    prefixed(&[&kind.to_le_bytes(), &version.to_le_bytes(), &len, front], data)
}

/// Message numbers of the files in vectors/monitor, by the beginning of their names; the longest fits.
const MONITOR_KINDS: &[(&str, u16, u16)] = &[
    ("command-osd-version", 97, 1),
    ("command-osd-version_reply", 98, 1),
    ("config", 62, 1),
    ("fs_map", 45, 1),
    ("fsmap_user", 103, 1),
    ("get_version", 19, 1),
    ("get_version_reply", 20, 1),
    ("getpoolstats", 58, 1),
    ("getpoolstats_reply", 59, 2),
    ("log", 68, 1),
    ("mds_map", 21, 1),
    ("mgr_map", 0x704, 1),
    ("mgr_close", 0x70e, 1),
    ("mgr_command", 0x709, 1),
    ("mgr_command_reply", 0x70a, 1),
    ("mgr_configure", 0x703, 3),
    ("mgr_report", 0x702, 9),
    ("mon_command", 50, 1),
    ("mon_map", 4, 1),
    ("osd_map", 41, 4),
    ("ping", 2, 1),
    ("poolop", 49, 4),
    ("statfs", 13, 2),
    ("subscribe", 15, 3),
];

/// Of the file system's, what clients say of leases.
const FS_LEASE: u16 = 0x311;

pub fn messages() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (name, _) in files("osd", ".json") {
        let v = json(&format!("osd/{name}"));
        for m in v
            .as_array()
            .into_iter()
            .flatten()
            .filter(|m| m["front_hex"].is_string())
        {
            let number = |k: &str| m[k].as_u64().unwrap_or(0) as u16;
            let (front, data) = (unhex(&m["front_hex"]), unhex(&m["data_hex"]));
            seeds.push(message(number("type"), number("header_version"), &front, &data));
        }
    }
    let recorded = fs::read_to_string(dir("filesystem/messages.jsonl")).unwrap();
    for line in recorded.lines() {
        let m: Value = serde_json::from_str(line).unwrap();
        if m["type"] == FS_LEASE {
            seeds.push(message(FS_LEASE, 1, &unhex(&m["front"]), &[]));
        }
    }
    for (name, front) in files("monitor", ".front.bin") {
        let stem = name.trim_end_matches(".front.bin");
        let data = fs::read(dir("monitor").join(format!("{stem}.data.bin"))).unwrap_or_default();
        let kinds = MONITOR_KINDS.iter().filter(|k| stem.starts_with(k.0));
        if let Some((_, kind, version)) = kinds.max_by_key(|k| k.0.len()) {
            // Answers of the monitor to commands and pool operations have the number after the question's, or before.
            for kind in [kind.wrapping_sub(1), *kind, kind + 1] {
                seeds.push(message(kind, *version, &front, &data));
            }
        }
    }
    seeds
}

pub fn maps() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut add = |kind: u8, bytes: &[u8]| seeds.push(prefixed(&[&[kind]], bytes));
    for (_, bytes) in files("placement/crush", ".bin") {
        add(map::CRUSH, &bytes);
    }
    for (_, bytes) in files("placement/crush", ".txt") {
        add(map::CRUSH_TEXT, &bytes);
    }
    for (_, bytes) in files("placement/osdmap", ".bin") {
        add(map::OSDMAP, &bytes);
    }
    let chain = fs::read(dir("placement/inc_chain.bin")).unwrap();
    for row in json("placement/inc_chain.json").as_array().unwrap() {
        let number = |k: &str| row[k].as_u64().unwrap() as usize;
        add(
            map::INCREMENTAL,
            &chain[number("offset")..number("offset") + number("len")],
        );
    }
    for (kind, name, skip) in [
        (map::MONMAP, "mon_map", 4),
        (map::MGRMAP, "mgr_map-minimal", 0),
        (map::FSMAP, "fs_map", 4),
    ] {
        let front = fs::read(dir("monitor").join(format!("{name}.front.bin"))).unwrap();
        add(kind, &front[skip..]);
    }
    seeds
}

/// Calls in a seed before the calls of another object begin a new one: many objects were called once only.
const CALLS: usize = 16;
/// Bytes after which a seed ends.
const CALLS_LEN: usize = 4000;

/// The recorded calls in their order.
pub fn classes() -> Vec<Vec<u8>> {
    let numbers: Vec<_> = methods().map(|(class, method)| (class, method.name)).collect();
    let mut seeds = Vec::new();
    for name in [
        "cls_rbd_replay.json",
        "cls_other_replay.json",
        "cls_extra_replay.json",
    ] {
        let v = json(&format!("rbd/{name}"));
        let steps = v.as_array().or_else(|| v["steps"].as_array()).unwrap();
        let mut oid = "";
        let (mut seed, mut calls) = (Vec::new(), 0);
        for step in steps.iter().filter(|s| s["op"] == "call") {
            if step["oid"].as_str().unwrap() != oid && calls >= CALLS || seed.len() > CALLS_LEN {
                seeds.push(std::mem::take(&mut seed));
                calls = 0;
            }
            if calls == 0 {
                oid = step["oid"].as_str().unwrap();
            }
            let named = (step["cls"].as_str().unwrap(), step["method"].as_str().unwrap());
            if let Some(number) = numbers.iter().position(|n| *n == named) {
                calls += 1;
                let input = unhex(&step["in"]);
                let (number, len) = ((number as u16).to_le_bytes(), (input.len() as u16).to_le_bytes());
                seed.extend_from_slice(&prefixed(&[&number, &len], &input));
            }
        }
        seeds.push(seed);
    }
    seeds.retain(|s| !s.is_empty());
    seeds
}
