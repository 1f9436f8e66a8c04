//! Recorded sessions of stock clients with a real monitor and OSD of 16.2.15, played against our side: what the client sent
//! goes in, and what comes out must be byte for byte what the real server said. And peers that mean harm.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use super::ServerConnection;
use super::wire::*;
use crate::{Error, Event, Limits, Message, ModeSwitch, Modes, ServerConfig, features};
use auth::*;
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};
use proptest::prelude::*;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, LEGACY_LEN, Utime};

fn vector(name: &str) -> Value {
    let path = format!(
        "{}/../../vectors/messenger/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn unhex(v: &Value) -> Bytes {
    hex::decode(v.as_str().unwrap()).unwrap().into()
}

/// Answers as the real one did, and remembers what it was shown.
struct Scripted {
    method: [AuthMethod; 1],
    id: u64,
    more: Option<Bytes>,
    done: Bytes,
    key: Option<CryptoKey>,
    shown: Mutex<Vec<Bytes>>,
}

impl Scripted {
    fn granted(&self) -> Step {
        Step::Done(Box::new(Granted {
            payload: self.done.clone(),
            identity: Identity {
                name: AuthName::new(EntityKind::Client, "admin"),
                global_id: self.id,
                caps: PeerCaps::AllowAll,
                key_epoch: None,
                server_challenge: None,
            },
            session_key: self.key.clone(),
            connection_secret: None,
        }))
    }
}

impl Authenticator for Scripted {
    fn methods(&self) -> &[AuthMethod] {
        &self.method
    }
    fn modes(&self) -> &[ConMode] {
        &[ConMode::Crc]
    }
    fn start(&self, _: AuthMethod, _: ConMode, payload: &Bytes, _: &Context) -> Result<Step, AuthError> {
        self.shown.lock().unwrap().push(payload.clone());
        Ok(match &self.more {
            Some(payload) => Step::More {
                payload: payload.clone(),
                pending: Pending::new(()),
            },
            None => self.granted(),
        })
    }
    fn start_v1(&self, m: AuthMethod, payload: &Bytes, cx: &Context) -> Result<(u64, Step), AuthError> {
        Ok((self.id, self.start(m, ConMode::Crc, payload, cx)?))
    }
    fn resume(&self, _: Pending, payload: &Bytes, _: &Context) -> Result<Step, AuthError> {
        self.shown.lock().unwrap().push(payload.clone());
        Ok(self.granted())
    }
}

fn entropy() -> Arc<dyn Entropy> {
    Arc::new(|b: &mut [u8]| b.fill(3))
}

const GREETING: usize = 9 + LEGACY_LEN;

fn legacy(b: &Bytes, at: usize) -> EntityAddr {
    EntityAddr::decode(&mut Reader::new(b.slice(at..))).unwrap()
}

/// Whole messages of a session that begins at `at`.
fn messages(b: &Bytes, mut at: usize) -> Vec<Message> {
    let mut out = Vec::new();
    while let Some(tag) = b.get(at).and_then(|t| Tag::from_u8(*t)) {
        let body = at + 1 + tag.len();
        at = body;
        if tag != Tag::Message || body > b.len() {
            continue;
        }
        let h = Header::decode(&b[body - HEADER_LEN..body]).unwrap();
        at += h.body_len();
        if at > b.len() {
            break;
        }
        let [front, middle, data] = h.lens.map(|l| l as usize);
        out.push(Message {
            kind: h.kind,
            version: h.version,
            compat: h.compat,
            priority: h.priority,
            tid: h.tid,
            data_off: h.data_off,
            front: b.slice(body..body + front),
            middle: b.slice(body + front..body + front + middle),
            data: b.slice(body + front + middle..body + front + middle + data),
        });
    }
    out
}

/// Plays a recording in pieces of `step`: what the server says in its turn is sent as soon as the session is open.
fn play(
    v: &Value,
    name: EntityName,
    auth: Arc<Scripted>,
    seq: u64,
    said: &[Message],
    step: usize,
) -> Vec<Message> {
    let (c2s, s2c) = (unhex(&v["c2s"]), unhex(&v["s2c"]));
    let addrs = EntityAddrVec(vec![
        EntityAddr::msgr2("127.0.0.1:3300".parse().unwrap(), 0),
        legacy(&s2c, 9),
    ]);
    let peer = legacy(&s2c, GREETING).sock.unwrap();
    let config = ServerConfig::new(name, addrs, auth.clone(), entropy());
    let mut server = ServerConnection::new(Arc::new(config), peer, seq);
    let mut out = server.output().take().to_vec();
    let mut heard = Vec::new();
    for part in c2s.chunks(step) {
        server.feed(part);
        loop {
            match server.next(Utime::ZERO).unwrap() {
                None => break,
                Some(Event::Ready(peer)) => {
                    assert_eq!(peer.name, EntityName::client(auth.id));
                    assert_eq!(peer.addrs.first().nonce, legacy(&c2s, 9).nonce);
                    assert_eq!(
                        peer.addrs.first().to_string(),
                        format!("127.0.0.1:0/{}", legacy(&c2s, 9).nonce)
                    );
                    for m in said {
                        server.send(m.clone()).unwrap();
                    }
                }
                Some(Event::Message(m)) => heard.push(m),
                Some(other) => panic!("{other:?}"),
            }
        }
        out.extend_from_slice(&server.output().take());
    }
    let whole = out.len().min(s2c.len());
    assert_eq!(hex::encode(&out[..whole]), hex::encode(&s2c[..whole]));
    assert!(s2c.len() - whole < 1200, "only {whole} of {} bytes", s2c.len());
    heard
}

const STEPS: [usize; 4] = [1, 7, 100, usize::MAX];

#[test]
fn a_real_osd_says_the_same_with_cephx() {
    let v = vector("osd-v1-cephx");
    let (c2s, s2c) = (unhex(&v["c2s"]), unhex(&v["s2c"]));
    let (first, replies) = (GREETING + CONNECT_LEN, GREETING + LEGACY_LEN);
    let key: [u8; 16] = unhex(&v["session_key"]).as_ref().try_into().unwrap();
    for step in STEPS {
        let auth = Arc::new(Scripted {
            method: [AuthMethod::Cephx],
            id: 4118,
            more: Some(s2c.slice(replies + 26..replies + 58)),
            done: s2c.slice(replies + 84..replies + 120),
            key: Some(CryptoKey::new(key, Utime::ZERO)),
            shown: Mutex::default(),
        });
        let said = messages(&s2c, replies + 128);
        assert_eq!(said.len(), 1);
        let heard = play(&v, EntityName::osd(0), auth.clone(), 4, &said, step);
        assert_eq!(
            (heard.len(), heard[0].kind, &heard[0].data[..]),
            (1, 42, &b"hello-v1\n"[..])
        );
        let shown = auth.shown.lock().unwrap();
        assert_eq!(shown[0], c2s.slice(first..first + 174));
        assert_eq!(shown[1], c2s.slice(first + 174 + 33..first + 174 + 33 + 174));
    }
}

/// The payloads of the monitor's MAuthReply.
fn replies(said: &[Message]) -> Vec<MAuthReply> {
    let replies = said.iter().filter(|m| m.kind == MAUTH_REPLY);
    replies
        .map(|m| MAuthReply::from_bytes(&m.front).unwrap())
        .collect()
}

#[test]
fn a_real_monitor_says_the_same() {
    for (name, method, rounds) in [
        ("mon-v1-cephx", AuthMethod::Cephx, 2),
        ("mon-v1-auth-none", AuthMethod::None, 1),
    ] {
        let v = vector(name);
        let s2c = unhex(&v["s2c"]);
        let said = messages(&s2c, GREETING + LEGACY_LEN + 26 + 8);
        let answers = replies(&said);
        let seq = u32::from_le_bytes(s2c[290..294].try_into().unwrap());
        for step in STEPS {
            let auth = Arc::new(Scripted {
                method: [method],
                id: answers[0].global_id,
                more: (rounds == 2).then(|| answers[0].payload.clone()),
                done: answers[rounds - 1].payload.clone(),
                key: None,
                shown: Mutex::default(),
            });
            let name = EntityName::new(EntityKind::Mon, 0);
            let heard = play(&v, name, auth.clone(), seq as u64, &said[rounds..], step);
            assert!(heard.iter().any(|m| m.kind == 15));
            let shown = auth.shown.lock().unwrap();
            // The name as over v2, behind the byte that says whom it is for.
            assert_eq!(shown[0][..5], [10, 8, 0, 0, 0]);
            assert_eq!(shown.len(), rounds);
        }
    }
}

fn none() -> Arc<Scripted> {
    Arc::new(Scripted {
        method: [AuthMethod::None],
        id: 7,
        more: None,
        done: Bytes::new(),
        key: None,
        shown: Mutex::default(),
    })
}

fn signed() -> Arc<Scripted> {
    Arc::new(Scripted {
        method: [AuthMethod::Cephx],
        id: 7,
        more: None,
        done: Bytes::new(),
        key: Some(CryptoKey::new([5; 16], Utime::ZERO)),
        shown: Mutex::default(),
    })
}

fn server(name: EntityName, auth: Arc<Scripted>) -> ServerConnection {
    let addr = |a: &str| a.parse().unwrap();
    let addrs = EntityAddrVec(vec![
        EntityAddr::msgr2(addr("127.0.0.1:6800"), 9),
        EntityAddr::legacy(addr("127.0.0.1:6801"), 9),
    ]);
    let mut config = ServerConfig::new(name, addrs, auth, entropy());
    config.limits = Limits {
        front_max: 1 << 16,
        middle_max: 1 << 10,
        data_max: 1 << 20,
    };
    let mut server = ServerConnection::new(Arc::new(config), "127.0.0.1:5000".parse().unwrap(), 1);
    server.output().take();
    server
}

fn osd(auth: Arc<Scripted>) -> ServerConnection {
    server(EntityName::osd(0), auth)
}

fn greeting(addr: &str) -> Vec<u8> {
    let mut b = BANNER.to_vec();
    b.extend_from_slice(&EntityAddr::legacy(addr.parse().unwrap(), 77).legacy_bytes());
    b
}

fn connect(features: u64, host: u32, connect_seq: u32, protocol: u32, method: u32, shown: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.u64(features);
    for n in [host, 1, connect_seq, protocol, method, shown.len() as u32] {
        w.u32(n);
    }
    w.u8(1);
    w.raw(shown);
    w.finish().to_vec()
}

/// What a client of an OSD says until its session is open.
fn handshake(method: u32) -> Vec<u8> {
    let mut b = greeting("0.0.0.0:0");
    b.extend(connect(features::SUPPORTED, 8, 0, 24, method, b"ticket"));
    b.extend_from_slice(&[0; 8]);
    b
}

fn message(m: &Message, seq: u64, key: Option<&CryptoKey>) -> Vec<u8> {
    let head = Header::encode(m, seq, EntityName::client(7));
    let mut footer = Footer::of([&m.front, &m.middle, &m.data]);
    if let Some(key) = key {
        footer.sign(key, &Header::decode(&head).unwrap());
    }
    let mut b = vec![Tag::Message as u8];
    b.extend_from_slice(&head);
    for part in [&m.front, &m.middle, &m.data] {
        b.extend_from_slice(part);
    }
    b.extend_from_slice(&footer.encode());
    b
}

fn op(data: usize) -> Message {
    Message {
        kind: 42,
        front: vec![1; 60].into(),
        middle: vec![3; 5].into(),
        data: vec![2; data].into(),
        ..Message::default()
    }
}

/// Feeds all, and gives the events until an error.
fn run(mut s: ServerConnection, bytes: &[u8], step: usize) -> (Vec<Event>, Option<Error>, Bytes) {
    let mut events = Vec::new();
    for part in bytes.chunks(step.max(1)) {
        s.feed(part);
        loop {
            match s.next(Utime::ZERO) {
                Ok(Some(e)) => events.push(e),
                Ok(None) => break,
                Err(e) => return (events, Some(e), s.output().take()),
            }
        }
    }
    (events, None, s.output().take())
}

fn good_session() -> Vec<u8> {
    let mut b = handshake(1);
    b.extend(message(&op(100), 1, None));
    b.push(Tag::Keepalive as u8);
    b.push(Tag::Keepalive2 as u8);
    b.extend_from_slice(&[9; 8]);
    // Seen already, and given up: neither is handed on.
    b.extend(message(&op(100), 1, None));
    let mut aborted = message(&op(100), 2, None);
    *aborted.last_mut().unwrap() &= !1;
    b.extend(aborted);
    b.push(Tag::Ack as u8);
    b.extend_from_slice(&[1; 8]);
    b.extend(message(&op(50_000), 9, None));
    b
}

#[test]
fn a_session_works_in_any_pieces() {
    let bytes = good_session();
    for step in [1, 3, 53, 54, 4096, bytes.len()] {
        let (events, error, out) = run(osd(none()), &bytes, step);
        assert_eq!((events.len(), error), (3, None), "step {step}");
        let Event::Ready(peer) = &events[0] else { panic!() };
        // It did not know its own ip.
        assert_eq!(peer.addrs.first().to_string(), "127.0.0.1:0/77");
        assert_eq!(events[2], Event::Message(op(50_000)));
        assert_eq!(out[out.len() - 9..], [15, 9, 9, 9, 9, 9, 9, 9, 9]);
        assert_eq!(out[0], Answer::Seq as u8);
    }
}

#[test]
fn cut_anywhere_it_waits() {
    let bytes = good_session();
    for n in (0..400).chain([bytes.len() - 1]) {
        let (events, error, _) = run(osd(none()), &bytes[..n], usize::MAX);
        assert_eq!(error, None, "cut at {n}");
        assert!(events.len() < 3);
    }
}

#[test]
fn large_data_has_a_buffer_of_its_own_that_grows_with_what_is_received() {
    let mut s = osd(none());
    s.feed(&handshake(1));
    assert!(matches!(s.next(Utime::ZERO), Ok(Some(Event::Ready(_)))));
    let bytes = message(&op(1 << 20), 1, None);
    s.feed(&bytes[..60]);
    assert_eq!(s.next(Utime::ZERO), Ok(None));
    let (have, need) = s.large_body().unwrap();
    assert_eq!((have, need), (60 - 54, bytes.len() - 54));
    s.feed(&bytes[60..]);
    assert_eq!(s.next(Utime::ZERO), Ok(Some(Event::Message(op(1 << 20)))));
    assert_eq!(s.large_body(), None);
}

#[test]
fn what_is_changed_on_the_way_is_noticed() {
    let key = CryptoKey::new([5; 16], Utime::ZERO);
    let good = message(&op(64), 1, Some(&key));
    // The tag and the flag of a message that is given up aside.
    for bit in 8..(good.len() - 1) * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let mut bytes = handshake(2);
        bytes.extend(bad);
        let (events, error, _) = run(osd(signed()), &bytes, usize::MAX);
        assert!(error.is_some() && events.len() == 1, "bit {bit}: {error:?}");
    }
}

#[test]
fn messages_without_the_right_signature_end_the_session() {
    let good = CryptoKey::new([5; 16], Utime::ZERO);
    let wrong = CryptoKey::new([6; 16], Utime::ZERO);
    for (key, error) in [
        (Some(&good), None),
        (Some(&wrong), Some(Error::MessageSignature)),
        (None, Some(Error::MessageSignature)),
    ] {
        let mut bytes = handshake(2);
        bytes.extend(message(&op(64), 1, key));
        assert_eq!(run(osd(signed()), &bytes, usize::MAX).1, error);
    }
}

/// The tag of the last answer, and the event or error.
fn answer(s: ServerConnection, bytes: &[u8]) -> (Option<u8>, Vec<Event>, Option<Error>) {
    let (events, error, out) = run(s, bytes, usize::MAX);
    (out.first().copied(), events, error)
}

#[test]
fn a_connect_that_does_not_fit_is_answered() {
    let all = features::SUPPORTED;
    for (what, c, want) in [
        ("protocol", connect(all, 8, 0, 15, 1, b"t"), Answer::BadProtocol),
        (
            "address",
            connect(all & !features::MSG_ADDR2, 8, 0, 24, 1, b"t"),
            Answer::Features,
        ),
        (
            "challenge",
            connect(all & !features::CEPHX_V2, 8, 0, 24, 2, b"t"),
            Answer::Features,
        ),
        (
            "signatures",
            connect(all & !features::MSG_AUTH, 8, 0, 24, 2, b"t"),
            Answer::Features,
        ),
        ("session", connect(all, 8, 3, 24, 1, b"t"), Answer::ResetSession),
        ("method", connect(all, 8, 0, 24, 1, b"t"), Answer::BadAuthorizer),
        ("none", connect(all, 8, 0, 24, 2, b"t"), Answer::Seq),
    ] {
        let mut bytes = greeting("127.0.0.1:0");
        bytes.extend(c);
        let (tag, _, error) = answer(osd(signed()), &bytes);
        assert_eq!((tag, error), (Some(want as u8), None), "{what}");
    }
    // It may begin anew on the same connection, and not for ever.
    let mut bytes = greeting("127.0.0.1:0");
    for _ in 0..9 {
        bytes.extend(connect(all, 8, 3, 24, 1, b"t"));
    }
    assert_eq!(
        run(osd(none()), &bytes, usize::MAX).1,
        Some(Error::TooManyAttempts(8))
    );
}

/// A manager was taken for an OSD, and no stock client got in.
#[test]
fn each_kind_of_server_has_its_protocol() {
    for (kind, right) in [(EntityKind::Mon, 15), (EntityKind::Osd, 24), (EntityKind::Mgr, 0)] {
        for protocol in [15, 24, 0] {
            let mut bytes = greeting("127.0.0.1:0");
            bytes.extend(connect(features::SUPPORTED, 8, 0, protocol, 1, b"t"));
            let (tag, _, error) = answer(server(EntityName::new(kind, 3), none()), &bytes);
            let want = match protocol == right {
                true => Answer::Seq,
                false => Answer::BadProtocol,
            };
            assert_eq!((tag, error), (Some(want as u8), None), "{kind} {protocol}");
        }
    }
}

#[test]
fn no_daemon_comes_by_v1() {
    let mut bytes = greeting("127.0.0.1:0");
    bytes.extend(connect(features::SUPPORTED, 4, 0, 24, 1, b"t"));
    assert!(matches!(
        run(osd(none()), &bytes, usize::MAX).1,
        Some(Error::V1(_))
    ));
    assert_eq!(run(osd(none()), b"ceph v2\n", usize::MAX).1, Some(Error::NotV1));
}

#[test]
fn where_clients_have_to_encrypt_none_comes_by_v1() {
    let mut config = ServerConfig::new(EntityName::osd(0), EntityAddrVec::default(), signed(), entropy());
    config.modes = ModeSwitch::new(Modes {
        clients: vec![ConMode::Secure],
        ..Modes::default()
    });
    let s = ServerConnection::new(Arc::new(config), "127.0.0.1:5000".parse().unwrap(), 1);
    let (events, error, _) = run(s, &handshake(2), usize::MAX);
    assert!(events.is_empty() && matches!(error, Some(Error::V1(_))));
}

fn mon_handshake() -> Vec<u8> {
    let mut b = greeting("127.0.0.1:0");
    b.extend(connect(features::SUPPORTED, 8, 0, 15, 0, b""));
    b.extend_from_slice(&[0; 8]);
    b
}

fn mauth(protocol: u32, methods: &[u32]) -> Message {
    let mut w = Writer::new();
    w.u8(1);
    w.put(&methods.to_vec());
    w.put(&AuthName::new(EntityKind::Client, "admin"));
    w.u64(0);
    Message {
        kind: MAUTH,
        version: 1,
        compat: 1,
        front: MAuth {
            protocol,
            payload: w.finish(),
            monmap_epoch: 0,
        }
        .to_bytes(),
        ..Message::default()
    }
}

#[test]
fn to_a_monitor_nothing_is_said_before_authentication() {
    let mon = || server(EntityName::new(EntityKind::Mon, 0), none());
    let with = |m: &Message| [mon_handshake(), message(m, 1, None)].concat();
    let subscribe = Message {
        kind: 15,
        ..Message::default()
    };
    let (events, error, _) = run(mon(), &with(&subscribe), usize::MAX);
    assert!(events.is_empty() && matches!(error, Some(Error::V1(_))));
    // Nor anything that is long.
    let long = Message {
        kind: MAUTH,
        front: vec![0; 17 << 10].into(),
        ..Message::default()
    };
    assert!(matches!(
        run(mon(), &with(&long), usize::MAX).1,
        Some(Error::TooLong { .. })
    ));
    assert!(matches!(
        run(mon(), &with(&op(1)), usize::MAX).1,
        Some(Error::TooLong { .. })
    ));
    let talk = [mon_handshake(), vec![Tag::Keepalive as u8; 100_000]].concat();
    assert!(matches!(run(mon(), &talk, 4096).1, Some(Error::TooLong { .. })));
    // A method that is not allowed is refused, and another one may be tried.
    let (events, error, _) = run(mon(), &with(&mauth(0, &[2])), usize::MAX);
    assert!(matches!(events[..], [Event::Denied(_)]) && error.is_none());
    let again = [with(&mauth(0, &[2])), message(&mauth(0, &[2, 1]), 2, None)].concat();
    let (events, error, _) = run(mon(), &again, usize::MAX);
    assert!(matches!(events[..], [Event::Denied(_), Event::Ready(_)]) && error.is_none());
}

#[test]
fn what_is_too_long_ends_the_connection_before_memory_is_taken() {
    let mut c = greeting("127.0.0.1:0");
    let mut long = connect(features::SUPPORTED, 8, 0, 24, 1, b"");
    long[28..32].copy_from_slice(&(17u32 << 10).to_le_bytes());
    c.extend(long);
    assert!(matches!(
        run(osd(none()), &c, usize::MAX).1,
        Some(Error::TooLong { .. })
    ));
    let mut bytes = handshake(1);
    bytes.extend(&message(&op((1 << 20) + 1), 1, None)[..54]);
    assert!(matches!(
        run(osd(none()), &bytes, usize::MAX).1,
        Some(Error::TooLong { .. })
    ));
}

proptest! {
    /// Whatever comes, it ends with an error or waits for more.
    #[test]
    fn mutations_do_no_harm(changes in prop::collection::vec((0usize..600, any::<u8>()), 1..6), step in 1usize..700) {
        let mut bytes = good_session();
        for (at, b) in changes {
            bytes[at] = b;
        }
        let (events, _, _) = run(osd(none()), &bytes, step);
        prop_assert!(events.len() <= 12);
    }
}
