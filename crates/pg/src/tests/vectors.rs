//! The recorded requests of a stock client, and what 16.2.15 answered (vectors/osd/client-ops.json).

use super::*;
use serde_json::Value;

#[test]
fn the_recorded_session_gets_the_recorded_answers() {
    let path = format!("{}/../../vectors/osd/client-ops.json", env!("CARGO_MANIFEST_DIR"));
    let all: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let message = |v: &Value| msgr::Message {
        kind: v["type"].as_u64().unwrap() as u16,
        version: v["header_version"].as_u64().unwrap() as u16,
        tid: v["tid"].as_u64().unwrap(),
        front: hex::decode(v["front_hex"].as_str().unwrap()).unwrap().into(),
        data: hex::decode(v["data_hex"].as_str().unwrap()).unwrap().into(),
        ..Default::default()
    };
    let replies: std::collections::HashMap<u64, MOSDOpReply> = all
        .iter()
        .map(message)
        .filter(|m| m.kind == messages::osd::kind::OSD_OPREPLY)
        .map(|m| (m.tid, MOSDOpReply::from_message(&m).unwrap()))
        .collect();
    let mut rig = Rig::new();
    let mut notify_id = Bytes::new();
    let mut compared = 0;
    for v in &all {
        let m = message(v);
        if m.kind != messages::osd::kind::OSD_OP {
            continue;
        }
        let mut req = MOSDOp::from_message(&m).unwrap();
        let want = &replies[&req.tid];
        if want.result == Errno::EAGAIN.code() {
            continue;
        }
        (req.pgid, req.oloc.pool) = (rig.pg.id(), POOL);
        let label = v["label"].as_str().unwrap();
        for op in req.ops.iter_mut().filter(|op| op.code == code::NOTIFY_ACK) {
            op.indata = [&notify_id, &op.indata[8..]].concat().into();
        }
        let got = rig.answer(req.clone());
        assert_eq!(got.result, want.result, "{label}");
        assert_eq!(got.oid, want.oid, "{label}");
        assert_eq!(got.retry_attempt, want.retry_attempt, "{label}");
        assert_eq!(got.flags, want.flags, "flags of {label}");
        assert_eq!(got.ops.len(), want.ops.len(), "{label}");
        for (g, w) in got.ops.iter().zip(&want.ops) {
            assert_eq!(g.rval, w.rval, "{label}: {}", g.code);
            match g.code {
                code::NOTIFY => {
                    notify_id = g.outdata.clone();
                    assert_eq!(notify_id.len(), 8);
                }
                // Its time is the client's clock then; the request carries it.
                _ => assert_eq!(g.outdata, w.outdata, "{label}: {}", g.code),
            }
        }
        compared += 1;
    }
    assert!(compared > 45, "{compared} requests compared");
}
