//! What comes in on a port of messenger v1, from before authentication on.
//!
//! Input: one byte of mode, then bytes. Mode bit 0: the bytes are a list of {u8 what, u16 length, payload}, where 0 is sent as it is
//! and anything else becomes a message with right checksums (its kind the first two bytes, its front the rest), so that what stands
//! behind them is reached. Else they go in as they are. Bits 1 and 2: who is attacked, as with v2.

use crate::frames::{NOW, OUTPUT_MAX, config};
use crate::take::{take, take_bytes};
use types::checksum::crc32c;
use types::{AuthName, EntityAddr, EntityKind, LEGACY_LEN};

const BANNER: &[u8] = b"ceph v027";
const CONNECT_LEN: usize = 33;
const HEADER_LEN: usize = 53;
const TAG_MESSAGE: u8 = 7;
const MAUTH: u16 = 17;
/// A method's number: no authentication, cephx.
const NONE: u32 = 1;
const CEPHX: u32 = 2;

/// A message with right checksums and no signature.
fn message(seq: u64, mut payload: &[u8], out: &mut Vec<u8>) {
    let kind = take::<2>(&mut payload) as u16;
    out.push(TAG_MESSAGE);
    let start = out.len();
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    for word in [kind, 127, 1] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for len in [payload.len() as u32, 0, 0] {
        out.extend_from_slice(&len.to_le_bytes());
    }
    // Offset of the data, the sender (a client), the oldest version that can read it, padding.
    out.extend_from_slice(&[0, 0, EntityKind::Client as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let crc = crc32c(0, &out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
    debug_assert_eq!(out.len() - start, HEADER_LEN);
    out.extend_from_slice(payload);
    out.extend_from_slice(&crc32c(0, payload).to_le_bytes());
    out.extend_from_slice(&[0; 16]);
    // Complete.
    out.push(1);
}

fn stream(mode: usize, mut data: &[u8]) -> Vec<u8> {
    if mode & 1 == 0 {
        return data.to_vec();
    }
    let (mut out, mut seq) = (Vec::new(), 0);
    while !data.is_empty() {
        let what = take::<1>(&mut data);
        let len = take::<2>(&mut data);
        let payload = take_bytes(&mut data, len);
        if what == 0 {
            out.extend_from_slice(payload);
        } else {
            seq += 1;
            message(seq, payload, &mut out);
        }
    }
    out
}

pub fn legacy(mut data: &[u8]) -> bool {
    let mode = take::<1>(&mut data);
    let bytes = stream(mode, data);
    let piece = [1, 33, 4096][bytes.len() % 3];
    let peer = "127.0.0.1:5000".parse().unwrap();
    let mut server = msgr::v1::ServerConnection::new(config(mode >> 1 & 3), peer, 1);
    let (mut said, mut opened) = (0, false);
    'input: for part in bytes.chunks(piece) {
        server.feed(part);
        loop {
            match server.next(NOW) {
                Ok(Some(_)) => opened |= server.is_open(),
                Ok(None) => break,
                // The shell closes the connection here.
                Err(_) => break 'input,
            }
        }
        said += server.output().take().len();
    }
    assert!(
        said <= OUTPUT_MAX + 2 * bytes.len(),
        "{said} bytes said to {} bytes",
        bytes.len()
    );
    opened
}

fn item(what: u8, payload: &[u8]) -> Vec<u8> {
    [&[what][..], &(payload.len() as u16).to_le_bytes(), payload].concat()
}

/// Banner, address, connect and what is shown with it.
fn greeting(protocol: u32, method: u32, shown: &[u8]) -> Vec<u8> {
    let mut out = BANNER.to_vec();
    let addr = EntityAddr::legacy("127.0.0.1:0".parse().unwrap(), 77).legacy_bytes();
    debug_assert_eq!(addr.len(), LEGACY_LEN);
    out.extend_from_slice(&addr);
    let start = out.len();
    out.extend_from_slice(&msgr::features::SUPPORTED.to_le_bytes());
    for word in [
        EntityKind::Client as u32,
        1,
        0,
        protocol,
        method,
        shown.len() as u32,
    ] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.push(1);
    debug_assert_eq!(out.len() - start, CONNECT_LEN);
    out.extend_from_slice(shown);
    out
}

/// What a client says to an OSD of its name, as its authorizer, and to a monitor in its first MAuth.
fn name_of(client: &AuthName, id: u64) -> Vec<u8> {
    let mut out = (client.kind as u32).to_le_bytes().to_vec();
    out.extend_from_slice(&(client.id.len() as u32).to_le_bytes());
    out.extend_from_slice(client.id.as_bytes());
    out.extend_from_slice(&id.to_le_bytes());
    out
}

fn mauth(methods: &[u32], client: &AuthName) -> Vec<u8> {
    let mut first = vec![1];
    first.extend_from_slice(&(methods.len() as u32).to_le_bytes());
    for m in methods {
        first.extend_from_slice(&m.to_le_bytes());
    }
    first.extend_from_slice(&name_of(client, 0));
    let mut out = MAUTH.to_le_bytes().to_vec();
    // Version, monitor and its session, of all messages to monitors; then method 0 and the payload, and the map's epoch.
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[0xff; 2]);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(first.len() as u32).to_le_bytes());
    out.extend_from_slice(&first);
    out.extend_from_slice(&1u32.to_le_bytes());
    out
}

/// Sessions of our making: with an OSD and a monitor that ask for no authentication, and the first words to ones that do; as lists,
/// and as bytes.
pub fn sessions() -> Vec<Vec<u8>> {
    let admin = AuthName::new(EntityKind::Client, "admin");
    let shown = [&[1][..], &name_of(&admin, 12)].concat();
    let seq = [0; 8];
    let keepalive = [14, 1, 2, 3, 4, 5, 6, 7, 8];
    let op = [&42u16.to_le_bytes()[..], &[7; 200]].concat();
    let lists = [
        (0u8, greeting(24, NONE, &shown), None),
        (1, greeting(15, CEPHX, &[]), Some(mauth(&[CEPHX, NONE], &admin))),
        (2, greeting(24, CEPHX, &[1; 174]), None),
    ];
    let mut seeds = Vec::new();
    for (victim, greeting, mauth) in lists {
        let mut list = item(0, &greeting);
        list.extend(item(0, &seq));
        list.extend(mauth.iter().flat_map(|m| item(1, m)));
        list.extend(item(1, &op));
        list.extend(item(0, &keepalive));
        list.extend(item(1, &op));
        let raw = stream(1, &list);
        seeds.push([&[victim << 1 | 1], &list[..]].concat());
        seeds.push([&[victim << 1], &raw[..]].concat());
    }
    seeds
}
