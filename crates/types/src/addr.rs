//! Addresses of entities, in the modern form and the vector form (docs/protocol/ceph/01-messenger.md, 2.2, 2.3).
//!
//! Equality is on kind, nonce and socket address together: it is an identity, not only a place to dial.

use denc::{Decode, Encode, Reader, Result, Writer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum AddrKind {
    None = 0,
    Legacy = 1,
    Msgr2 = 2,
    Any = 3,
    /// Range blocklist entries; the nonce is the prefix length.
    Cidr = 4,
}

impl AddrKind {
    fn from_u32(v: u32) -> Option<Self> {
        Some(match v {
            0 => Self::None,
            1 => Self::Legacy,
            2 => Self::Msgr2,
            3 => Self::Any,
            4 => Self::Cidr,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntityAddr {
    pub kind: AddrKind,
    pub nonce: u32,
    pub sock: Option<SocketAddr>,
}

/// Size of the form of messenger v1.
pub const LEGACY_LEN: usize = 136;
/// The same behind its marker byte.
const LEGACY_REST: usize = LEGACY_LEN - 1;
/// The socket's address at its end.
const LEGACY_SOCK: usize = 128;

impl EntityAddr {
    pub const BLANK: Self = Self {
        kind: AddrKind::None,
        nonce: 0,
        sock: None,
    };

    pub fn msgr2(sock: SocketAddr, nonce: u32) -> Self {
        Self {
            kind: AddrKind::Msgr2,
            nonce,
            sock: Some(sock),
        }
    }

    pub fn legacy(sock: SocketAddr, nonce: u32) -> Self {
        Self {
            kind: AddrKind::Legacy,
            nonce,
            sock: Some(sock),
        }
    }

    /// The form of messenger v1: what decodes as [`AddrKind::Legacy`]. Family and port are both big-endian in it.
    pub fn legacy_bytes(&self) -> [u8; LEGACY_LEN] {
        let mut b = [0; LEGACY_LEN];
        b[4..8].copy_from_slice(&self.nonce.to_le_bytes());
        let sock = self.sock_bytes();
        let at = LEGACY_LEN - LEGACY_SOCK;
        b[at..at + sock.len].copy_from_slice(sock.as_slice());
        b[at..at + 2].reverse();
        b
    }

    /// `[v1:|v2:|any:]IP[:PORT][/NONCE]`, as people and programs name who shall be fenced.
    pub fn from_text(text: &str) -> Option<Self> {
        let rest = ["v1:", "v2:", "any:"]
            .iter()
            .find_map(|p| text.strip_prefix(p))
            .unwrap_or(text);
        let (place, nonce) = rest.split_once('/').unwrap_or((rest, "0"));
        let nonce = nonce.parse().ok()?;
        let sock = match place.parse::<SocketAddr>() {
            Ok(sock) => sock,
            Err(_) => SocketAddr::new(place.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, 0),
        };
        Some(Self {
            kind: AddrKind::Any,
            nonce,
            sock: Some(sock),
        })
    }

    /// Names one running client: it has a host, a nonce (0 stands for all of a host), and no port (daemons have one).
    pub fn is_client(&self) -> bool {
        let host = |s: SocketAddr| s.port() == 0 && !s.ip().is_unspecified() && !s.ip().is_multicast();
        self.nonce != 0 && self.kind != AddrKind::Cidr && self.sock.is_some_and(host)
    }

    /// The bytes of the sockaddr: family little-endian, port big-endian.
    fn sock_bytes(&self) -> SockBytes {
        let mut b = SockBytes {
            bytes: [0; SOCK_MAX],
            len: 0,
        };
        match self.sock {
            None => {}
            Some(SocketAddr::V4(a)) => {
                b.push(&2u16.to_le_bytes());
                b.push(&a.port().to_be_bytes());
                b.push(&a.ip().octets());
                b.push(&[0; 8]);
            }
            Some(SocketAddr::V6(a)) => {
                b.push(&10u16.to_le_bytes());
                b.push(&a.port().to_be_bytes());
                b.push(&a.flowinfo().to_le_bytes());
                b.push(&a.ip().octets());
                b.push(&a.scope_id().to_le_bytes());
            }
        }
        b
    }

    fn decode_sock(r: &mut Reader, len: usize) -> Result<Option<SocketAddr>> {
        if len == 0 {
            return Ok(None);
        }
        r.limited(len, |r| {
            let family = r.u16()?;
            match family {
                0 => Ok(None),
                2 if len >= 8 => {
                    let port = u16::from_be_bytes(r.array()?);
                    let ip = Ipv4Addr::from(r.array::<4>()?);
                    Ok(Some(SocketAddr::new(IpAddr::V4(ip), port)))
                }
                10 if len >= 28 => {
                    let port = u16::from_be_bytes(r.array()?);
                    let flow = r.u32()?;
                    let ip = Ipv6Addr::from(r.array::<16>()?);
                    let scope = r.u32()?;
                    Ok(Some(SocketAddr::V6(SocketAddrV6::new(ip, port, flow, scope))))
                }
                _ => Err(r.invalid("unknown address family")),
            }
        })
    }

    fn decode_legacy(r: &mut Reader) -> Result<Self> {
        r.limited(LEGACY_REST, |r| {
            r.skip(3)?;
            let nonce = r.u32()?;
            let family = u16::from_be_bytes(r.array()?);
            let port = u16::from_be_bytes(r.array()?);
            let sock = match family {
                2 => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(r.array::<4>()?)), port)),
                10 => {
                    r.skip(4)?;
                    Some(SocketAddr::new(
                        IpAddr::V6(Ipv6Addr::from(r.array::<16>()?)),
                        port,
                    ))
                }
                _ => None,
            };
            Ok(Self {
                kind: AddrKind::Legacy,
                nonce,
                sock,
            })
        })
    }

    fn decode_marked(marker: u8, r: &mut Reader) -> Result<Self> {
        match marker {
            0 => Self::decode_legacy(r),
            1 => r.envelope(1, |_, r| {
                let kind = AddrKind::from_u32(r.u32()?).ok_or_else(|| r.invalid("unknown address type"))?;
                let nonce = r.u32()?;
                let len = r.u32()? as usize;
                if len > 128 {
                    return Err(r.invalid("socket address too long"));
                }
                Ok(Self {
                    kind,
                    nonce,
                    sock: Self::decode_sock(r, len)?,
                })
            }),
            _ => Err(r.invalid("unknown address marker")),
        }
    }

    /// The place alone, as JSON output shows it: `127.0.0.1:6800`.
    pub fn place(&self) -> String {
        match self.sock {
            Some(s) => s.to_string(),
            None => "(unrecognized address family 0)".to_string(),
        }
    }

    /// Place and nonce without the kind: `127.0.0.1:6800/4242`.
    pub fn place_and_nonce(&self) -> String {
        format!("{}/{}", self.place(), self.nonce)
    }
}

/// Size of an IPv6 socket address.
const SOCK_MAX: usize = 28;

struct SockBytes {
    bytes: [u8; SOCK_MAX],
    len: usize,
}

impl SockBytes {
    fn push(&mut self, b: &[u8]) {
        self.bytes[self.len..self.len + b.len()].copy_from_slice(b);
        self.len += b.len();
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl PartialOrd for EntityAddr {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for EntityAddr {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The order that maps keyed by address have on the wire: raw memory
        // (docs/protocol/ceph/03-placement.md, section 0), so numbers compare by their little-endian bytes.
        (self.kind as u32)
            .swap_bytes()
            .cmp(&(other.kind as u32).swap_bytes())
            .then_with(|| self.nonce.swap_bytes().cmp(&other.nonce.swap_bytes()))
            .then_with(|| self.sock_bytes().as_slice().cmp(other.sock_bytes().as_slice()))
    }
}

impl Encode for EntityAddr {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.envelope(1, 1, |w| {
            w.u32(self.kind as u32);
            w.u32(self.nonce);
            w.blob(self.sock_bytes().as_slice());
        });
    }
}

impl Decode for EntityAddr {
    const MIN_SIZE: usize = 19;
    fn decode(r: &mut Reader) -> Result<Self> {
        let marker = r.u8()?;
        Self::decode_marked(marker, r)
    }
}

/// As Ceph prints it: `v2:127.0.0.1:3300/0`; kind "any" has no prefix; a blank one is `-`.
impl fmt::Display for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            AddrKind::None => return f.write_str("-"),
            AddrKind::Legacy => f.write_str("v1:")?,
            AddrKind::Msgr2 => f.write_str("v2:")?,
            AddrKind::Cidr => f.write_str("cidr:")?,
            AddrKind::Any => {}
        }
        match self.sock {
            Some(s) => write!(f, "{s}/{}", self.nonce),
            None => write!(f, ":/{}", self.nonce),
        }
    }
}

/// All addresses of one entity, in the order in which clients are to try them: v2 first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityAddrVec(pub Vec<EntityAddr>);

impl EntityAddrVec {
    pub fn one(addr: EntityAddr) -> Self {
        Self(vec![addr])
    }
    /// The address of messenger v2, and behind it that of v1, if there is one: clients dial the first that they know.
    pub fn with_legacy(addr: EntityAddr, legacy: Option<EntityAddr>) -> Self {
        Self(std::iter::once(addr).chain(legacy).collect())
    }
    pub fn first(&self) -> EntityAddr {
        self.0.first().copied().unwrap_or(EntityAddr::BLANK)
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where to dial by messenger v2, which is all that we dial by; where there is none, the first.
    pub fn msgr2_or_first(&self) -> EntityAddr {
        let msgr2 = self.0.iter().find(|a| a.kind == AddrKind::Msgr2);
        msgr2.copied().unwrap_or_else(|| self.first())
    }

    /// In brackets even when it is one address, as in `mon_host`.
    pub fn bracketed(&self) -> String {
        let all: Vec<String> = self.0.iter().map(EntityAddr::to_string).collect();
        format!("[{}]", all.join(","))
    }

    /// The address that fields of older output show: the v1 one if there is one, else the first.
    pub fn legacy_or_first(&self) -> EntityAddr {
        let legacy = self.0.iter().find(|a| a.kind == AddrKind::Legacy);
        legacy.copied().unwrap_or_else(|| self.first())
    }
}

impl Encode for EntityAddrVec {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.put(&self.0);
    }
}

impl Decode for EntityAddrVec {
    fn decode(r: &mut Reader) -> Result<Self> {
        match r.u8()? {
            2 => Ok(Self(Vec::decode(r)?)),
            marker => Ok(Self(vec![EntityAddr::decode_marked(marker, r)?])),
        }
    }
}

/// `[v2:1.2.3.4:3300/0,v1:1.2.3.4:6789/0]`, or the bare address when there is one.
impl fmt::Display for EntityAddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("-"),
            [one] => write!(f, "{one}"),
            _ => f.write_str(&self.bracketed()),
        }
    }
}
