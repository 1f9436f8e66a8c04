//! The recorded results of Ceph's own tools (vectors/placement, see its README), byte for byte.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use crush::CrushMap;
use denc::{Decode, Encode};
use serde_json::Value;
use std::path::PathBuf;

fn dir() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/placement"))
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(dir().join(name)).unwrap()).unwrap()
}

fn map_names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir().join("crush"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|x| x == "bin"))
        .map(|p| p.file_stem().unwrap().to_str().unwrap().to_string())
        .collect();
    names.sort();
    assert_eq!(names.len(), 14);
    names
}

fn map_bytes(name: &str) -> Bytes {
    std::fs::read(dir().join(format!("crush/{name}.bin")))
        .unwrap()
        .into()
}

fn load(name: &str) -> CrushMap {
    CrushMap::from_bytes(&map_bytes(name)).unwrap()
}

#[test]
fn hashes() {
    let h = json("hashes.json");
    let ints = h["int"].as_array().unwrap();
    assert!(ints.len() > 20);
    let words = |v: &Value| -> Vec<u32> {
        v.as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_u64().unwrap() as u32)
            .collect()
    };
    for row in ints {
        let (a, want) = (words(&row[0]), words(&row[1]));
        let got = vec![
            crush::hash1(a[0]),
            crush::hash2(a[0], a[1]),
            crush::hash3(a[0], a[1], a[2]),
            crush::hash4(a[0], a[1], a[2], a[3]),
            crush::hash5(a[0], a[1], a[2], a[3], a[4]),
        ];
        assert_eq!(got, want, "{a:?}");
    }
    for row in h["str"].as_array().unwrap() {
        let bytes = hex::decode(row[0].as_str().unwrap()).unwrap();
        assert_eq!(
            u64::from(crush::string_rjenkins(&bytes)),
            row[1].as_u64().unwrap()
        );
    }
}

#[test]
fn logarithm() {
    let ln = json("ln.json");
    for s in ln["samples"].as_array().unwrap() {
        let u = s[0].as_u64().unwrap() as u16;
        assert_eq!(crush::straw2_ln(u), s[1].as_i64().unwrap(), "ln({u})");
    }
}

#[test]
fn binary_maps_round_trip() {
    for name in map_names() {
        assert_eq!(load(&name).to_bytes(), map_bytes(&name), "{name}");
        load(&name).validate().unwrap();
    }
}

#[test]
fn every_recorded_mapping() {
    let m = json("mappings.json");
    let recorded = std::fs::read(dir().join("mappings.bin")).unwrap();
    let mut checked = 0;
    for case in m["cases"].as_array().unwrap() {
        let name = case[0].as_str().unwrap();
        let number = |i: usize| case[i].as_u64().unwrap() as usize;
        let (rule, count, set, x0, n, offset) =
            (number(1), number(2), number(3), number(4), number(5), number(6));
        let map = load(name);
        let mut weights = vec![0x10000u32; map.max_devices as usize];
        for (osd, w) in m["maps"][name]["weight_sets"][set].as_object().unwrap() {
            let osd: usize = osd.parse().unwrap();
            if osd < weights.len() {
                weights[osd] = w.as_u64().unwrap() as u32;
            }
        }
        let args = m["maps"][name]["choose_args"].as_i64().unwrap_or(0);
        for i in 0..n {
            let got = map.do_rule(rule as u32, (x0 + i) as u32, count, &weights, args);
            let mut row = vec![254u8; count];
            for (cell, item) in row.iter_mut().zip(&got) {
                *cell = if *item == crush::ITEM_NONE {
                    255
                } else {
                    *item as u8
                };
            }
            let want = &recorded[offset + i * count..offset + (i + 1) * count];
            assert_eq!(
                row,
                want,
                "{name} rule {rule} x {} size {count} weights {set}",
                x0 + i
            );
            checked += 1;
        }
    }
    assert!(checked >= 27_120, "{checked}");
}

fn text(name: &str) -> String {
    std::fs::read_to_string(dir().join(format!("crush/{name}.txt"))).unwrap()
}

#[test]
fn text_is_what_crushtool_prints() {
    for name in map_names() {
        assert_eq!(load(&name).decompile(), text(&name), "{name}");
    }
}

/// Weights have three decimals in the text, so sums come back a little different, and with them the weights of
/// buckets in other buckets; tests/maps compares the bytes with those of crushtool's own compilation.
#[test]
fn compiled_text_gives_the_map_back() {
    let without_sums = |text: &str| -> String {
        let mut out = String::new();
        for line in text.lines().filter(|l| !l.starts_with("\t# weight")) {
            let of_bucket = line.starts_with("\titem ") && !line.starts_with("\titem osd.");
            out += if of_bucket {
                line.split(" weight ").next().unwrap()
            } else {
                line
            };
            out.push('\n');
        }
        out
    };
    let mut exact = 0;
    for name in map_names() {
        let map = crush::compile(&text(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        map.validate().unwrap();
        assert_eq!(
            without_sums(&map.decompile()),
            without_sums(&text(&name)),
            "{name}"
        );
        assert_eq!(
            map.iter_buckets().count(),
            load(&name).iter_buckets().count(),
            "{name}"
        );
        exact += usize::from(map.to_bytes() == map_bytes(&name));
    }
    assert!(exact >= 1, "{exact}");
}

#[test]
fn bad_texts_are_refused_with_their_line() {
    let check = |text: &str, line: usize, words: &str| {
        let e = crush::compile(text).unwrap_err();
        assert!(e.line == line && e.message.contains(words), "{text:?}: {e}");
    };
    check("tunable nonsense 1", 1, "unknown");
    check("device 0 a\ndevice 0 b", 2, "twice");
    check("device 99999999 a", 1, "not within");
    check(
        "type 1 host\nhost h {\nid -2000000000\nalg straw2\n}",
        3,
        "not within",
    );
    check(
        "type 1 host\nhost h { id -1 alg straw2 item x }",
        2,
        "not defined",
    );
    check("type 1 host\nhost h { id -1 alg straw3 }", 2, "unknown");
    check(
        "type 1 host\nrule r { id 0 type replicated step emit }\nhost h { id -1 alg straw2 }",
        3,
        "before",
    );
    check("rule r {", 1, "the end");
    check(
        "type 1 host\nhost h { id -1 alg straw2 }\nchoose_args 0 { { bucket_id -1 ids [ 1 ] } }",
        3,
        "0 items",
    );
}
