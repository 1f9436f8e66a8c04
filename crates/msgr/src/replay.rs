//! Recorded sessions played against both sides: what real peers sent goes in, and what we answer must be
//! byte for byte what their real counterparts answered. Credentials are scripted here; that they are the
//! right ones is tested in `auth`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use crate::client::ClientEvent;
use crate::frame::{Limits, Tag};
use crate::gcm::Gcm;
use crate::payload::*;
use crate::reader::{Frame, FrameReader};
use crate::*;
use auth::*;
use bytes::Bytes;
use denc::Decode;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use types::{AuthName, EntityKind, EntityName, Utime};

/// One recorded connection with its keys.
struct Recorded {
    c2s: Bytes,
    s2c: Bytes,
    client: Vec<Frame>,
    server: Vec<Frame>,
    session_key: Option<CryptoKey>,
    secret: Option<ConnectionSecret>,
}

fn vector(name: &str) -> Value {
    let path = format!(
        "{}/../../vectors/messenger/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn unhex(v: &Value) -> Option<Bytes> {
    v.as_str().map(|s| hex::decode(s).unwrap().into())
}

/// All frames of one direction. Encryption begins with AUTH_SIGNATURE.
fn frames(stream: &Bytes, revision: Revision, secret: Option<Gcm>) -> Vec<Frame> {
    let mut r = FrameReader::new();
    r.revision = revision;
    r.open_session(Limits::default());
    r.feed(stream);
    r.take_raw(26).unwrap();
    let mut gcm = secret;
    let mut out: Vec<Frame> = Vec::new();
    while let Some(f) = r.next_frame().unwrap() {
        if matches!(f.tag, Tag::AuthDone | Tag::AuthRequestMore) && gcm.is_some() {
            r.set_secure(gcm.take());
        }
        out.push(f);
    }
    assert!(r.peek_raw().is_empty(), "bytes left over");
    out
}

impl Recorded {
    fn new(v: &Value, session_key: &Value, secret: &Value) -> Self {
        let (c2s, s2c) = (unhex(&v["c2s"]).unwrap(), unhex(&v["s2c"]).unwrap());
        let revision = match c2s[10] & s2c[10] & 1 {
            0 => Revision::V20,
            _ => Revision::V21,
        };
        let secret = unhex(secret).map(|b| ConnectionSecret(b.as_ref().try_into().unwrap()));
        let key = unhex(session_key).map(|b| CryptoKey::new(b.as_ref().try_into().unwrap(), Utime::ZERO));
        let c = secret.as_ref().map(|s| Gcm::client_to_server(s, revision));
        let s = secret.as_ref().map(|s| Gcm::server_to_client(s, revision));
        Self {
            client: frames(&c2s, revision, c),
            server: frames(&s2c, revision, s),
            c2s,
            s2c,
            session_key: key,
            secret,
        }
    }

    fn of(frames: &[Frame], tag: Tag) -> Option<&Bytes> {
        frames.iter().find(|f| f.tag == tag).map(|f| &f.segments[0])
    }

    fn get<T: Decode>(frames: &[Frame], tag: Tag) -> T {
        T::from_bytes(Self::of(frames, tag).unwrap()).unwrap()
    }

    /// Messages of one side, each with how many of the other's had been received.
    fn messages(frames: &[Frame]) -> VecDeque<(u64, Message)> {
        let messages = frames.iter().filter(|f| f.tag == Tag::Message);
        messages
            .map(|f| {
                let mut ack = [0; 8];
                ack.copy_from_slice(&f.segments[0][28..36]);
                let (_, m) = Message::from_segments(f.segments.clone());
                (u64::from_le_bytes(ack), m)
            })
            .collect()
    }

    fn script(&self) -> Scripted {
        let more = |f: &[Frame], t| Self::of(f, t).map(|b| Bytes::from_bytes(b).unwrap());
        let request: AuthRequest = Self::get(&self.client, Tag::AuthRequest);
        let done: AuthDone = Self::get(&self.server, Tag::AuthDone);
        Scripted {
            method: AuthMethod::from_u32(request.method).unwrap(),
            server_more: more(&self.server, Tag::AuthReplyMore),
            client_more: more(&self.client, Tag::AuthRequestMore),
            request,
            done,
            session_key: self.session_key.clone(),
            secret: self.secret.clone(),
            modes: [ConMode::Crc, ConMode::Secure],
            heard: Mutex::new(Vec::new()),
        }
    }

    fn server_connection(&self) -> ServerConnection {
        let hello: Hello = Self::get(&self.server, Tag::Hello);
        let ident: ServerIdent = Self::get(&self.server, Tag::ServerIdent);
        let name = EntityName {
            kind: hello.entity_type,
            num: ident.gid,
        };
        let entropy: Arc<dyn Entropy> = Arc::new(|b: &mut [u8]| b.fill(0));
        let mut config = ServerConfig::new(name, ident.addrs, Arc::new(self.script()), entropy);
        config.required = ident.required;
        config.supported = ident.supported;
        ServerConnection::new(Arc::new(config), hello.peer_addr.sock.unwrap(), ident.global_seq)
    }

    fn client_connection(&self) -> ClientConnection<Scripted> {
        let ident: ClientIdent = Self::get(&self.client, Tag::ClientIdent);
        let hello: Hello = Self::get(&self.server, Tag::Hello);
        let script = self.script();
        let kind = EntityKind::from_u32(hello.entity_type as u32).unwrap();
        let entropy: Arc<dyn Entropy> = Arc::new(|b: &mut [u8]| b.fill(0));
        let mut config = ClientConfig::new(kind, ident.target, ident.addrs.first().nonce, entropy);
        config.modes = script
            .request
            .modes
            .iter()
            .map(|m| ConMode::from_u32(*m).unwrap())
            .collect();
        config.gid = ident.gid;
        config.global_seq = ident.global_seq;
        config.supported = ident.supported;
        config.required = ident.required;
        config.flags = ident.flags;
        config.cookie = ident.cookie;
        config.msgr2_features = self.c2s[10] as u64;
        ClientConnection::new(config, script)
    }

    /// Feeds the client's bytes in steps of `step`; our server must answer with the server's bytes.
    fn check_server(&self, step: usize) {
        let mut conn = self.server_connection();
        let mut answers = Self::messages(&self.server);
        let mut want = Self::messages(&self.client);
        let (mut got, mut out, mut open) = (0, Vec::new(), false);
        for part in self.c2s.chunks(step) {
            conn.feed(part);
            while let Some(e) = conn.next(Utime::ZERO).unwrap() {
                match e {
                    Event::Ready(peer) => {
                        open = true;
                        assert_eq!(peer.secure, self.secret.is_some());
                    }
                    Event::Message(m) => {
                        assert_eq!(m, want.pop_front().unwrap().1);
                        got += 1;
                    }
                    Event::Resumed(_) => panic!("a session of before"),
                    Event::Denied(e) => panic!("{e}"),
                }
                while open && answers.front().is_some_and(|(ack, _)| *ack == got) {
                    conn.send(answers.pop_front().unwrap().1).unwrap();
                }
            }
            out.extend_from_slice(&conn.output().take());
        }
        assert!(want.is_empty() && answers.is_empty());
        assert_eq!(hex::encode(out), hex::encode(&self.s2c));
    }

    /// The same the other way round.
    fn check_client(&self, step: usize) {
        let mut conn = self.client_connection();
        let mut requests = Self::messages(&self.client);
        let mut want = Self::messages(&self.server);
        let (mut got, mut out, mut open) = (0, Vec::new(), false);
        for part in self.s2c.chunks(step) {
            conn.feed(part);
            while let Some(e) = conn.next(Utime::ZERO).unwrap() {
                match e {
                    ClientEvent::Ready(_) => open = true,
                    ClientEvent::Message(m) => {
                        assert_eq!(m, want.pop_front().unwrap().1);
                        got += 1;
                    }
                }
                while open && requests.front().is_some_and(|(ack, _)| *ack == got) {
                    conn.send(requests.pop_front().unwrap().1).unwrap();
                }
            }
            out.extend_from_slice(&conn.output().take());
        }
        assert!(want.is_empty() && requests.is_empty());
        assert_eq!(hex::encode(out), hex::encode(&self.c2s));
    }

    fn check(&self) {
        for step in [1, 7, 100, usize::MAX] {
            self.check_server(step);
            self.check_client(step);
        }
    }
}

/// Says on either side what was recorded, and checks what it hears.
struct Scripted {
    method: AuthMethod,
    modes: [ConMode; 2],
    request: AuthRequest,
    server_more: Option<Bytes>,
    client_more: Option<Bytes>,
    done: AuthDone,
    session_key: Option<CryptoKey>,
    secret: Option<ConnectionSecret>,
    heard: Mutex<Vec<Bytes>>,
}

impl Scripted {
    fn finish(&self) -> Step {
        Step::Done(Box::new(Granted {
            payload: self.done.payload.clone(),
            identity: Identity {
                name: AuthName::new(EntityKind::Client, "admin"),
                global_id: self.done.global_id,
                caps: PeerCaps::AllowAll,
                key_epoch: None,
                server_challenge: None,
            },
            session_key: self.session_key.clone(),
            connection_secret: self.secret.clone(),
        }))
    }
}

impl Authenticator for Scripted {
    fn methods(&self) -> &[AuthMethod] {
        std::slice::from_ref(&self.method)
    }
    fn modes(&self) -> &[ConMode] {
        &self.modes
    }
    fn start(&self, _: AuthMethod, mode: ConMode, payload: &Bytes, _: &Context) -> Result<Step, AuthError> {
        assert_eq!(mode as u32, self.done.mode, "the client's first allowed mode");
        assert_eq!(payload, &self.request.payload);
        self.heard.lock().unwrap().push(payload.clone());
        Ok(match &self.server_more {
            Some(m) => Step::More {
                payload: m.clone(),
                pending: Pending::new(()),
            },
            None => self.finish(),
        })
    }
    fn resume(&self, _: Pending, payload: &Bytes, _: &Context) -> Result<Step, AuthError> {
        assert_eq!(Some(payload), self.client_more.as_ref());
        Ok(self.finish())
    }
}

impl ClientAuth for Scripted {
    fn method(&self) -> AuthMethod {
        self.method
    }
    fn request(&mut self, _: EntityKind, _: &Context) -> Result<Bytes, AuthError> {
        Ok(self.request.payload.clone())
    }
    fn more(&mut self, payload: &Bytes, _: &Context) -> Result<Bytes, AuthError> {
        assert_eq!(Some(payload), self.server_more.as_ref());
        Ok(self.client_more.clone().unwrap())
    }
    fn done(&mut self, global_id: u64, mode: ConMode, payload: &Bytes) -> Result<ClientDone, AuthError> {
        assert_eq!((global_id, mode as u32), (self.done.global_id, self.done.mode));
        assert_eq!(payload, &self.done.payload);
        Ok(ClientDone {
            session_key: self.session_key.clone(),
            connection_secret: self.secret.clone(),
        })
    }
}

/// The frames that the vector lists are those that we read.
fn check_frames(listed: &Value, frames: &[Frame]) {
    let listed: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter(|f| f["segments"].is_array())
        .collect();
    assert_eq!(listed.len(), frames.len());
    for (want, got) in listed.iter().zip(frames) {
        if let Some(tag) = want["tag"].as_u64() {
            assert_eq!(tag, got.tag as u64);
        }
        let mut segments: Vec<_> = want["segments"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| unhex(s).unwrap())
            .collect();
        segments.resize(4, Bytes::new());
        assert_eq!(segments, got.segments);
    }
}

#[test]
fn monitor_without_authentication() {
    let v = vector("mon-auth-none-crc");
    let r = Recorded::new(&v, &Value::Null, &Value::Null);
    check_frames(&v["frames_c2s"], &r.client);
    check_frames(&v["frames_s2c"], &r.server);
    r.check();
}

#[test]
fn monitor_with_cephx_and_encryption() {
    let v = vector("mon-cephx-secure");
    let i = &v["info"];
    let r = Recorded::new(&v, &i["auth_session_key"], &i["connection_secret"]);
    check_frames(&v["frames_c2s_plaintext"], &r.client);
    check_frames(&v["frames_s2c_plaintext"], &r.server);
    r.check();
}

#[test]
fn osd_with_cephx() {
    let v = vector("osd-cephx-crc");
    let r = Recorded::new(&v, &v["osd_session_key"], &Value::Null);
    check_frames(&v["frames_c2s"], &r.client);
    check_frames(&v["frames_s2c"], &r.server);
    r.check();
}

#[test]
fn revision_20_in_both_modes() {
    for name in ["mon-msgr2.0-crc", "mon-msgr2.0-secure"] {
        let v = vector(name);
        let r = Recorded::new(&v, &v["auth_session_key"], &v["connection_secret"]);
        // The client of this recording was a throw-away one with flags of its own in message headers, so
        // only the real monitor's half is a reference.
        for step in [1, 7, 100, usize::MAX] {
            r.check_server(step);
        }
    }
}

#[test]
fn frames_of_a_stateful_session() {
    let v = vector("mds-stateful-reconnect");
    for c in v["connections"].as_array().unwrap() {
        for dir in ["c2s", "s2c"] {
            let frames = frames(&unhex(&c[dir]).unwrap(), Revision::V21, None);
            check_frames(&c[format!("frames_{dir}")], &frames);
        }
    }
}

#[test]
fn a_message_in_every_framing() {
    let secret = ConnectionSecret(std::array::from_fn(|i| i as u8));
    let data = |n: usize| Bytes::from((0..n).map(|i| i as u8).collect::<Vec<_>>());
    let sizes = [
        (0, 0, 0),
        (5, 0, 0),
        (16, 3, 0),
        (0, 0, 7),
        (100, 0, 4096),
        (1, 1, 1),
        (300, 40, 200_000),
    ];
    for revision in [Revision::V20, Revision::V21] {
        for secure in [false, true] {
            let mut out = Output::default();
            let mut w = crate::writer::FrameWriter::new();
            let mut r = FrameReader::new();
            w.revision = revision;
            r.revision = revision;
            r.open_session(Limits::default());
            if secure {
                w.set_secure(Some(Gcm::server_to_client(&secret, revision)));
                r.set_secure(Some(Gcm::server_to_client(&secret, revision)));
            }
            for (front, middle, tail) in sizes {
                let m = Message {
                    kind: 42,
                    front: data(front),
                    middle: data(middle),
                    data: data(tail),
                    ..Message::default()
                };
                let rest = [m.front.clone(), m.middle.clone(), m.data.clone()];
                w.frame(&mut out, Tag::Message, &m.header(1, 0), rest).unwrap();
                r.feed(&out.take());
                let f = r.next_frame().unwrap().unwrap();
                assert_eq!(Message::from_segments(f.segments).1, m, "{revision:?} {secure}");
            }
        }
    }
}

#[test]
fn a_frame_that_its_sender_gave_up_is_skipped() {
    let mut out = Output::default();
    let mut w = crate::writer::FrameWriter::new();
    let m = Message {
        front: Bytes::from_static(b"front"),
        ..Message::default()
    };
    for _ in 0..2 {
        let rest = [m.front.clone(), Bytes::new(), Bytes::new()];
        w.frame(&mut out, Tag::Message, &m.header(1, 0), rest).unwrap();
    }
    let whole = out.take();
    let check = |status: u8, want: Result<usize, Error>| {
        let mut bytes = whole.to_vec();
        bytes[32 + 45 + 5] = status;
        let mut r = FrameReader::new();
        r.open_session(Limits::default());
        r.feed(&bytes);
        let mut n = 0;
        let got = loop {
            match r.next_frame() {
                Ok(Some(_)) => n += 1,
                Ok(None) => break Ok(n),
                Err(e) => break Err(e),
            }
        };
        assert_eq!(got, want, "{status:#x}");
    };
    check(0x0e, Ok(2));
    check(0xfe, Ok(2));
    check(0x01, Ok(1));
    check(0x00, Err(Error::LateStatus(0)));
    check(0x02, Err(Error::LateStatus(2)));
}

#[test]
fn addresses_and_checksums() {
    let v = vector("primitives");
    for a in v["entity_addr_t"].as_array().unwrap() {
        let bytes = unhex(&a["hex"]).unwrap();
        let addr = types::EntityAddr::from_bytes(&bytes).unwrap();
        let text = a["text"].as_str().unwrap();
        let (text, legacy) = match text.split_once(" in the legacy form") {
            Some((text, _)) => (text, true),
            None => (text, false),
        };
        assert_eq!(addr.to_string(), text.trim_start_matches("(any) "));
        // The legacy form is only read.
        assert_eq!(denc::Encode::to_bytes(&addr) == bytes, !legacy, "{text}");
    }
    for c in v["crc32c_raw"].as_array().unwrap() {
        let number = |v: &Value| u32::from_str_radix(v.as_str().unwrap(), 16).unwrap();
        let got = types::checksum::crc32c(number(&c["seed"]), &unhex(&c["data"]).unwrap());
        assert_eq!(got, number(&c["crc"]));
    }
}
