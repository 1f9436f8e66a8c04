//! Golden vectors: each recorded message decodes to its last byte and encodes back byte for byte.

use super::*;
use bytes::Bytes;
use serde_json::Value;

const FILES: [&str; 6] = [
    "client-ops",
    "list-ops",
    "mcommand",
    "raw-client-replies",
    "resend",
    "watch-reconnect",
];

fn load(name: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/osd/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap()
}

fn message(v: &Value) -> msgr::Message {
    let num = |k: &str| v[k].as_u64().unwrap_or(0);
    let hex = |k: &str| Bytes::from(hex::decode(v[k].as_str().unwrap_or("")).unwrap());
    msgr::Message {
        kind: num("type") as u16,
        version: num("header_version") as u16,
        compat: num("compat_version") as u16,
        priority: num("priority") as u16,
        tid: num("tid"),
        front: hex("front_hex"),
        data: hex("data_hex"),
        ..Default::default()
    }
}

fn again(m: &msgr::Message) -> denc::Result<msgr::Message> {
    Ok(match m.kind {
        kind::OSD_OP => MOSDOp::from_message(m)?.to_message(),
        kind::OSD_OPREPLY => MOSDOpReply::from_message(m)?.to_message(),
        kind::WATCH_NOTIFY => MWatchNotify::from_message(m)?.to_message(),
        kind::COMMAND => MCommand::from_message(m)?.to_message(),
        kind::COMMAND_REPLY => MCommandReply::from_message(m)?.to_message(),
        kind::OSD_BACKOFF => MOSDBackoff::from_message(m)?.to_message(),
        other => panic!("message {other} in the vectors"),
    })
}

#[test]
fn vectors_both_ways() {
    let mut seen = 0;
    for file in FILES {
        for v in load(file) {
            let m = message(&v);
            let got = again(&m).unwrap_or_else(|e| panic!("{file}: {}: {e}", v["label"]));
            assert_eq!(got.front, m.front, "{file}: {}", v["label"]);
            assert_eq!(got.data, m.data, "{file}: {}", v["label"]);
            assert_eq!(
                (got.version, got.compat),
                (m.version, m.compat),
                "{file}: {}",
                v["label"]
            );
            assert_eq!(got.tid, m.tid);
            seen += 1;
        }
    }
    assert_eq!(seen, 191);
}

#[test]
fn the_fields_are_the_recorded_ones() {
    for v in load("client-ops") {
        let (m, d) = (message(&v), &v["decoded"]);
        if m.kind == kind::OSD_OP {
            let op = MOSDOp::from_message(&m).unwrap();
            assert_eq!(u64::from(op.hash), d["hash"].as_u64().unwrap());
            assert_eq!(u64::from(op.flags), d["flags"].as_u64().unwrap());
            assert_eq!(op.snapid, d["snapid"].as_u64().unwrap());
            assert_eq!(op.features, d["features"].as_u64().unwrap());
            for (o, w) in op.ops.iter().zip(d["ops"].as_array().unwrap()) {
                assert_eq!(o.code.to_string(), w["op"].as_str().unwrap());
                assert_eq!(hex::encode(&o.indata), w["in_hex"].as_str().unwrap());
            }
        } else if m.kind == kind::OSD_OPREPLY {
            let r = MOSDOpReply::from_message(&m).unwrap();
            assert_eq!(i64::from(r.result), d["result"].as_i64().unwrap());
            assert_eq!(r.user_version, d["uv"].as_u64().unwrap());
            for (o, w) in r.ops.iter().zip(d["ops"].as_array().unwrap()) {
                assert_eq!(i64::from(o.rval), w["rval"].as_i64().unwrap());
                assert_eq!(hex::encode(&o.outdata), w["out_hex"].as_str().unwrap());
            }
        }
    }
}

#[test]
fn truncated_and_mutated_messages_are_errors_or_values_never_panics() {
    for file in FILES {
        for v in load(file) {
            let m = message(&v);
            for cut in 0..m.front.len() {
                let short = msgr::Message {
                    front: m.front.slice(..cut),
                    ..m.clone()
                };
                // MCommandReply and friends may be whole before their end; most cuts are errors.
                let _ = again(&short);
                let mut bent = m.front.to_vec();
                bent[cut] ^= 0xff;
                let bent = msgr::Message {
                    front: bent.into(),
                    ..m.clone()
                };
                let _ = again(&bent);
            }
            if m.kind == kind::OSD_OP && !m.data.is_empty() {
                let short = msgr::Message {
                    data: m.data.slice(1..),
                    ..m.clone()
                };
                assert!(again(&short).is_err(), "{}: in-data beyond the data", v["label"]);
            }
        }
    }
}

#[test]
fn classes_follow_from_the_number() {
    let check = |c: OpCode, want: OpClass| assert_eq!(c.class(), want, "{c}");
    check(code::READ, OpClass::Read);
    check(code::WRITE, OpClass::Write);
    check(code::TMAPUP, OpClass::ReadWrite);
    check(code::CACHE_FLUSH, OpClass::Cache);
    check(OpCode(0), OpClass::None);
    check(OpCode(0x22ff), OpClass::Write);
    assert!(code::PGNLS.is_pg() && !code::CALL.is_pg());
}

#[test]
fn backoff_survives_the_wire() {
    let b = MOSDBackoff {
        pgid: types::SPgId::replicated(types::PgId::new(3, 7)),
        epoch: 9,
        op: BackoffOp::AckBlock,
        id: 5,
        begin: types::HObject::min(),
        end: types::HObject::max(),
    };
    assert_eq!(MOSDBackoff::from_message(&b.to_message()).unwrap(), b);
}
