//! Cephx against what real clients and daemons said: recorded envelopes, proofs, tickets and renewals
//! decode with the recorded keys, and encode back to the same bytes.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use auth::{CryptoKey, GrantedTicket, MAuth, MAuthReply};
use denc::{Bytes, Decode, Encode, Reader, Writer};
use serde_json::Value;
use types::Utime;

fn vector(name: &str) -> Value {
    let path = format!(
        "{}/../../vectors/messenger/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn bytes(v: &Value) -> Bytes {
    hex::decode(v.as_str().unwrap()).unwrap().into()
}

fn key(v: &Value) -> CryptoKey {
    CryptoKey::new(bytes(v).as_ref().try_into().unwrap(), Utime::ZERO)
}

fn number(v: &Value) -> u64 {
    u64::from_str_radix(v.as_str().unwrap(), 16).unwrap()
}

#[test]
fn key_text_envelope_and_proof() {
    let v = &vector("primitives")["cephx"];
    let text = v["key_base64"].as_str().unwrap();
    let k = CryptoKey::from_text(text).unwrap();
    assert_eq!(k.secret().as_slice(), bytes(&v["key_secret"]).as_ref());
    assert_eq!(k.to_text(), text);
    let (sc, cc) = (
        number(&v["example_server_challenge"]),
        number(&v["example_client_challenge"]),
    );
    let sealed = k.seal(|w| {
        w.u64(sc);
        w.u64(cc);
    });
    assert_eq!(sealed, bytes(&v["example_enc_bl"]));
    assert_eq!(k.decrypt(&sealed).unwrap(), bytes(&v["example_plaintext"]));
    assert_eq!(k.proof(sc, cc), number(&v["example_proof"]));
    let other = CryptoKey::new([7; 16], Utime::ZERO);
    assert!(other.open(&sealed, |r| r.u64()).is_err());
}

#[test]
fn bad_key_texts() {
    let aes256k = vector("primitives")["cephx_aes256k"]["key_base64"]
        .as_str()
        .unwrap()
        .to_string();
    let check = |text: &str| assert!(CryptoKey::from_text(text).is_err(), "{text}");
    check(&aes256k);
    check("");
    check("not base64!");
    check("AQBi9AFr/pxTBRAAa+GBz80ec69zu2LAI3OV");
    check("AQBi9AFr/pxTBRAAa+GBz80ec69zu2LAI3OVGAAA");
}

#[test]
fn proof_of_a_real_client() {
    let i = &vector("mon-cephx-secure")["info"];
    let k = CryptoKey::from_text(i["key_base64"].as_str().unwrap()).unwrap();
    // Here the numbers are hex in wire order.
    let number = |name: &str| u64::from_le_bytes(bytes(&i[name]).as_ref().try_into().unwrap());
    let got = k.proof(number("server_challenge"), number("client_challenge"));
    assert_eq!(got, number("proof"));
}

/// One ticket reply: decodes with the keys, and the decoded tickets encode to the same bytes.
fn check_reply(r: &mut Reader, principal: &CryptoKey, wrap: Option<&CryptoKey>) -> Vec<GrantedTicket> {
    let before = r.clone();
    let tickets = GrantedTicket::decode_reply(r, principal, wrap).unwrap();
    let len = before.remaining() - r.remaining();
    let mut w = Writer::new();
    GrantedTicket::encode_reply(&mut w, principal, wrap, &tickets);
    assert_eq!(w.finish(), before.clone().bytes(len).unwrap());
    tickets
}

#[test]
fn tickets_of_a_real_monitor() {
    let v = vector("mon-cephx-secure");
    let i = &v["info"];
    let k = CryptoKey::from_text(i["key_base64"].as_str().unwrap()).unwrap();
    let frames = v["frames_s2c_plaintext"].as_array().unwrap();
    let done = frames.iter().find(|f| f["name"] == "AUTH_DONE").unwrap();
    let mut r = Reader::new(bytes(&done["segments"][0]));
    r.skip(16).unwrap();
    assert_eq!(r.u16(), Ok(0x100));
    assert_eq!(r.i32(), Ok(0));
    let auth = check_reply(&mut r, &k, None);
    assert_eq!(auth.len(), 1);
    assert_eq!((auth[0].service, auth[0].blob.secret_id), (32, 2));
    let session = key(&i["auth_session_key"]);
    assert_eq!(auth[0].session_key.secret(), session.secret());
    let mut cbl = Reader::new(r.blob().unwrap());
    let secret = session.open(&cbl.blob().unwrap(), |r| r.blob()).unwrap();
    assert_eq!(secret, bytes(&i["connection_secret"]));
    let extra = check_reply(&mut Reader::new(r.blob().unwrap()), &session, None);
    assert!(r.is_empty());
    let services: Vec<u32> = extra.iter().map(|t| t.service).collect();
    assert_eq!(services, [1, 4, 16]);
    for t in &extra {
        let want = &i["extra_tickets"][t.service.to_string()];
        assert_eq!(t.session_key.secret(), key(&want["session_key"]).secret());
        assert_eq!(t.blob.secret_id, want["secret_id"].as_u64().unwrap());
        assert_eq!(t.blob.blob, bytes(&want["ticket"]));
        assert_eq!(t.validity.sec as u64, want["validity"].as_u64().unwrap());
    }
}

#[test]
fn renewals_of_a_real_client() {
    let v = vector("cephx-renewal-mauth");
    let k = CryptoKey::from_text(v["key_base64"].as_str().unwrap()).unwrap();
    let sessions = v["auth_session_keys_in_order"].as_array().unwrap();
    let (first, second) = (key(&sessions[0]), key(&sessions[1]));
    let mut services = 0;
    for item in v["items_c2s"].as_array().unwrap() {
        if item["message_type"] != 17 {
            continue;
        }
        let front = bytes(&item["front"]);
        let m = MAuth::from_bytes(&front).unwrap();
        assert_eq!(m.to_bytes(), front);
        services += u32::from(m.payload.starts_with(&[0x00, 0x02]));
    }
    assert_eq!(services, 3);
    let fronts = v["items_s2c"].as_array().unwrap().iter();
    let fronts: Vec<_> = fronts
        .filter(|i| i["message_type"] == 18)
        .map(|i| bytes(&i["front"]))
        .collect();
    let mut session = first.clone();
    for front in &fronts {
        let m = MAuthReply::from_bytes(front).unwrap();
        assert_eq!(&m.to_bytes(), front);
        let mut r = Reader::new(m.payload);
        let kind = r.u16().unwrap();
        assert_eq!(r.i32(), Ok(0));
        if kind == 0x200 {
            let got = check_reply(&mut r, &session, None);
            assert_eq!(got.len(), 3);
        } else {
            let got = check_reply(&mut r, &k, Some(&first));
            assert_eq!(got[0].session_key.secret(), second.secret());
            assert_eq!(r.u32(), Ok(0));
            session = second.clone();
            check_reply(&mut Reader::new(r.blob().unwrap()), &session, None);
        }
        assert!(r.is_empty());
    }
    assert_eq!(fronts.len(), 4);
}
