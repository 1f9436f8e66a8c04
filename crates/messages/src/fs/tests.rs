//! Recorded messages both ways, and bytes that nobody would send.

use super::*;
use crate::mon::Body;
use bytes::Bytes;
use msgr::Message;
use serde_json::Value;
use std::collections::BTreeSet;

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../vectors/filesystem/messages.jsonl"
);

fn recorded() -> Vec<(String, Message)> {
    let text = std::fs::read_to_string(FILE).unwrap();
    let hex = |v: &Value| Bytes::from(hex::decode(v.as_str().unwrap()).unwrap());
    let one = |line: &str| {
        let v: Value = serde_json::from_str(line).unwrap();
        let message = Message {
            kind: v["type"].as_u64().unwrap() as u16,
            version: v["header_version"].as_u64().unwrap() as u16,
            compat: v["header_compat"].as_u64().unwrap() as u16,
            priority: v["priority"].as_u64().unwrap() as u16,
            tid: v["tid"].as_u64().unwrap(),
            front: hex(&v["front"]),
            middle: hex(&v["middle"]),
            data: hex(&v["data"]),
            ..Message::default()
        };
        (v["name"].as_str().unwrap().to_string(), message)
    };
    text.lines().map(one).collect()
}

/// Decodes, encodes again, compares, and tries what nobody would send.
fn check<T: Body + std::fmt::Debug>(name: &str, m: &Message) {
    let body = T::from_message(m).unwrap_or_else(|e| panic!("{name}: {e}"));
    let again = body.message(m.tid);
    assert_eq!(hex::encode(&again.front), hex::encode(&m.front), "{name}");
    assert_eq!(again.middle, m.middle, "{name}");
    assert_eq!(again.data, m.data, "{name}");
    assert_eq!((again.version, again.compat), (m.version, m.compat), "{name}");
    for len in 0..m.front.len() {
        let front = m.front.slice(..len);
        let _ = T::from_message(&Message { front, ..m.clone() });
    }
    for at in 0..m.front.len() {
        let mut front = m.front.to_vec();
        front[at] ^= 0xff;
        let front = front.into();
        let _ = T::from_message(&Message { front, ..m.clone() });
    }
    for len in 0..m.data.len() {
        let data = m.data.slice(..len);
        let _ = T::from_message(&Message { data, ..m.clone() });
    }
}

#[test]
fn every_recorded_message_comes_out_as_it_went_in() {
    let mut seen = BTreeSet::new();
    for (name, m) in recorded() {
        match m.kind {
            MClientSession::KIND => check::<MClientSession>(&name, &m),
            MClientRequest::KIND => check::<MClientRequest>(&name, &m),
            MClientReply::KIND => check::<MClientReply>(&name, &m),
            MClientCaps::KIND => check::<MClientCaps>(&name, &m),
            MClientCapRelease::KIND => check::<MClientCapRelease>(&name, &m),
            MClientLease::KIND => check::<MClientLease>(&name, &m),
            MClientSnap::KIND => check::<MClientSnap>(&name, &m),
            MClientQuota::KIND => check::<MClientQuota>(&name, &m),
            MClientReconnect::KIND => check::<MClientReconnect>(&name, &m),
            MClientReclaim::KIND => check::<MClientReclaim>(&name, &m),
            MClientReclaimReply::KIND => check::<MClientReclaimReply>(&name, &m),
            _ => continue,
        }
        seen.insert(m.kind);
    }
    assert_eq!(seen.len(), 11, "{seen:?}");
}

fn find(name: &str) -> Message {
    recorded().into_iter().find(|(n, _)| n == name).unwrap().1
}

#[test]
fn fields_mean_what_the_recording_says() {
    let r = MClientRequest::from_message(&find("mkdir-request")).unwrap();
    assert_eq!((r.op, r.path.ino, &r.path.path[..]), (op::MKDIR, 1, &b"d1"[..]));
    assert_eq!(r.releases[0].caps, cap::PIN | cap::AS | cap::LS | cap::XS);
    let r = MClientRequest::from_message(&find("setattr-size-request")).unwrap();
    assert_eq!(r.args.setattr().mask & setattr::SIZE, setattr::SIZE);
    assert_eq!(Args::of_setattr(&r.args.setattr()), r.args);
    let m = MClientReply::from_message(&find("create-reply-unsafe")).unwrap();
    let target = m.trace.target.unwrap();
    assert_eq!(
        (target.ino, target.max_size, target.mode),
        (1_099_511_627_777, 4 << 20, 0o100_644)
    );
    assert!(!m.safe);
    let m = MClientCaps::from_message(&find("caps-revoke")).unwrap();
    assert_eq!((m.op, m.seq, m.cap_id), (cap_op::REVOKE, 2, 1));
    let m = MClientReconnect::from_message(&find("reconnect")).unwrap();
    assert!(m.caps.iter().any(|c| !c.flock.is_empty()));
    let m = MClientSnap::from_message(&find("snap-split")).unwrap();
    let mut trace = denc::Reader::new(m.trace);
    let realm: Realm = trace.get().unwrap();
    assert_eq!((realm.seq, realm.snaps), (2, vec![2]));
}
