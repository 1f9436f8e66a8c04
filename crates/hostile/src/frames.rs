//! What comes in on a socket, from before authentication on.
//!
//! Input: one byte of mode, then bytes. Mode bit 0: the bytes are a list of frames {u8 tag, u16 length, payload},
//! which get a banner and right checksums, so that the handshake itself is reached. Else they go in as they are.
//! Bits 1 and 2: who is attacked (a server that asks for no authentication, for cephx, for a ticket; a client).

use crate::seeds::frame_list;
use crate::take::{take, take_bytes};
use auth::{
    AllowNone, Authenticator, ConMode, Context, EntityAuth, Entropy, KeyDb, KeyServer, KeyServerConfig,
};
use auth::{CephxClient, ClientAuth, CryptoKey, NoneClient, ServiceSecrets, TicketVerifier};
use msgr::{ClientConfig, ClientConnection, Limits, Message, ServerConfig, ServerConnection};
use std::sync::Arc;
use types::checksum::crc32c;
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, Utime};

pub const NOW: Utime = Utime {
    sec: 1_795_000_000,
    nsec: 0,
};
const BANNER: &[u8] = b"ceph v2\n\x10\x00\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const TAG_MESSAGE: u8 = 17;

/// The most that a connection may have to say to one input: answers to a bounded number of attempts.
pub const OUTPUT_MAX: usize = 1 << 20;

fn entropy() -> Arc<dyn Entropy> {
    Arc::new(|b: &mut [u8]| b.fill(3))
}

fn addr() -> EntityAddr {
    EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 9)
}

fn key() -> CryptoKey {
    CryptoKey::new([7; 16], Utime::ZERO)
}

fn authenticator(which: usize) -> Arc<dyn Authenticator> {
    let config = KeyServerConfig::default();
    let entropy = entropy();
    let context = Context {
        now: NOW,
        entropy: &*entropy,
    };
    let mut secrets = ServiceSecrets::default();
    secrets.rotate(config.auth_ttl, config.service_ttl, &context);
    match which {
        0 => Arc::new(AllowNone),
        1 => {
            let mut db = KeyDb::default();
            db.entities
                .insert(admin(), EntityAuth::new(key()).with_cap("mon", "allow *"));
            let server = KeyServer::new(config, db, secrets);
            server.grant_global_ids(4000, 5000);
            Arc::new(server)
        }
        _ => {
            let of_osds = secrets.get(EntityKind::Osd).cloned().unwrap_or_default();
            Arc::new(TicketVerifier::new(
                EntityKind::Osd,
                vec![ConMode::Secure, ConMode::Crc],
                of_osds,
            ))
        }
    }
}

/// A server that asks for no authentication (0), a monitor (1) and an OSD that ask for cephx.
pub fn config(which: usize) -> Arc<ServerConfig> {
    let name = if which == 1 {
        EntityName::new(EntityKind::Mon, 0)
    } else {
        EntityName::osd(0)
    };
    let mut config = ServerConfig::new(name, EntityAddrVec::one(addr()), authenticator(which), entropy());
    config.limits = Limits {
        front_max: 1 << 16,
        middle_max: 1 << 12,
        data_max: 1 << 20,
    };
    Arc::new(config)
}

fn server(which: usize) -> ServerConnection {
    ServerConnection::new(config(which), "127.0.0.1:5000".parse().unwrap(), 1)
}

fn admin() -> AuthName {
    AuthName::new(EntityKind::Client, "admin")
}

fn none_client() -> NoneClient {
    NoneClient {
        name: admin(),
        global_id: 12,
    }
}

fn client<A: ClientAuth>(of: EntityKind, auth: A) -> ClientConnection<A> {
    let mut config = ClientConfig::new(of, addr(), 5, entropy());
    config.modes = vec![ConMode::Crc];
    ClientConnection::new(config, auth)
}

/// What both sides say until the session is open, and two messages of the client; as seeds.
fn session<A: ClientAuth>(which: usize, auth: A) -> [Vec<u8>; 2] {
    let of = if which == 1 {
        EntityKind::Mon
    } else {
        EntityKind::Osd
    };
    let (mut c, mut s) = (client(of, auth), server(which));
    let (mut c2s, mut s2c) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let out = c.output().take();
        c2s.extend_from_slice(&out);
        s.feed(&out);
        while s.next(NOW).unwrap().is_some() {}
        let out = s.output().take();
        s2c.extend_from_slice(&out);
        c.feed(&out);
        if c.next(NOW).unwrap().is_some() {
            break;
        }
    }
    for n in [10u8, 200] {
        let front = vec![n; usize::from(n)].into();
        let message = Message {
            kind: 42,
            front,
            ..Message::default()
        };
        c.send(message).unwrap();
    }
    c2s.extend_from_slice(&c.output().take());
    [c2s, s2c]
}

/// Whole sessions of our own client, without authentication and with cephx, raw and as lists of frames.
pub fn sessions() -> Vec<Vec<u8>> {
    let none = session(0, none_client());
    let cephx = session(1, CephxClient::new(admin(), key()));
    let [from_client, from_server] = none;
    let mut seeds = Vec::new();
    for (victim, stream) in [(0u8, from_client), (3, from_server), (1, cephx[0].clone())] {
        seeds.push([&[victim << 1], &stream[..]].concat());
        let list = frame_list(&stream).unwrap();
        seeds.push([&[victim << 1 | 1], &list[..]].concat());
    }
    seeds
}

/// One frame of revision 2.1 with right checksums. A message gets its payload as header (41 bytes) and front.
pub fn frame(tag: u8, payload: &[u8], out: &mut Vec<u8>) {
    let (head, front) = match tag {
        TAG_MESSAGE => payload.split_at(payload.len().min(41)),
        _ => (payload, &payload[..0]),
    };
    let start = out.len();
    let count = if front.is_empty() { 1 } else { 2 };
    out.extend_from_slice(&[tag, count]);
    for len in [head.len(), front.len(), 0, 0] {
        out.extend_from_slice(&(len as u32).to_le_bytes());
        out.extend_from_slice(&8u16.to_le_bytes());
    }
    out.extend_from_slice(&[0, 0]);
    let crc = crc32c(0, &out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
    if !head.is_empty() {
        out.extend_from_slice(head);
        out.extend_from_slice(&crc32c(u32::MAX, head).to_le_bytes());
    }
    if count > 1 {
        out.extend_from_slice(front);
        out.push(0x0e);
        out.extend_from_slice(&crc32c(u32::MAX, front).to_le_bytes());
        out.extend_from_slice(&[0; 8]);
    }
}

fn stream(mode: usize, mut data: &[u8]) -> Vec<u8> {
    if mode & 1 == 0 {
        return data.to_vec();
    }
    let mut out = BANNER.to_vec();
    while !data.is_empty() {
        let tag = take::<1>(&mut data) as u8;
        let len = take::<2>(&mut data);
        frame(tag, take_bytes(&mut data, len), &mut out);
    }
    out
}

pub fn frames(mut data: &[u8]) -> bool {
    let mode = take::<1>(&mut data);
    let bytes = stream(mode, data);
    // In pieces, as from a socket.
    let piece = [1, 33, 4096][bytes.len() % 3];
    let (mut said, mut opened) = (0, false);
    match mode >> 1 & 3 {
        3 => {
            let mut c = client(EntityKind::Osd, none_client());
            for part in bytes.chunks(piece) {
                c.feed(part);
                while let Ok(Some(_)) = c.next(NOW) {
                    opened = true;
                }
                said += c.output().take().len();
            }
        }
        which => {
            let mut s = server(which);
            'input: for part in bytes.chunks(piece) {
                s.feed(part);
                loop {
                    match s.next(NOW) {
                        Ok(Some(_)) => opened |= s.is_open(),
                        Ok(None) => break,
                        // The shell closes the connection here.
                        Err(_) => break 'input,
                    }
                }
                said += s.output().take().len();
            }
        }
    }
    assert!(
        said <= OUTPUT_MAX + 2 * bytes.len(),
        "{said} bytes said to {} bytes",
        bytes.len()
    );
    opened
}
