//! Feature bits: what a 16.2.15 daemon advertises, which every client from 16 to 20 has been released
//! against (docs/protocol/ceph/01-messenger.md, section 4). Missing bits do not fail; they silently downgrade
//! encodings.

/// Advertised in SERVER_IDENT by every entity.
pub const SUPPORTED: u64 = 0x3f01_cfbd_fffd_ffff;
/// Required of clients: addresses in the modern form.
pub const REQUIRED: u64 = MSG_ADDR2;

pub const SUBSCRIBE2: u64 = 1 << 4;
/// Of messenger v1: a successful connect is answered with SEQ.
pub const RECONNECT_SEQ: u64 = 1 << 6;
pub const OBJECTLOCATOR: u64 = 1 << 8;
pub const OSDREPLYMUX: u64 = 1 << 12;
pub const SERVER_LUMINOUS: u64 = 1 << 21;
/// Of messenger v1: messages are signed.
pub const MSG_AUTH: u64 = 1 << 23;
pub const NEW_OSDOP_ENCODING: u64 = 1 << 56;
pub const SERVER_JEWEL: u64 = 1 << 57;
pub const MSG_ADDR2: u64 = 1 << 59;
/// Of messenger v1: authorizers answer a challenge.
pub const CEPHX_V2: u64 = 1 << 61;

/// Features of the banner: framing 2.1.
pub const MSGR2_REVISION_1: u64 = 1;
