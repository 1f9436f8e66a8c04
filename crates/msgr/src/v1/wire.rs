//! What is on the wire of messenger v1. All numbers are little-endian.
//!
//! Connect, 33 bytes: u64 features, u32 host type, u32 global seq, u32 connect seq, u32 protocol version, u32 authorizer's
//! method, u32 its length, u8 flags. Reply, 26 bytes: u8 tag, u64 features, u32 global seq, u32 connect seq, u32 protocol version,
//! u32 authorizer's length, u8 flags. Message: header (53), front, middle, data, footer (21).

use crate::{Error, Limits, Message};
use auth::CryptoKey;
use denc::{Decode, Reader, Result, Writer};
use types::EntityName;
use types::checksum::crc32c;

pub(super) const BANNER: &[u8; 9] = b"ceph v027";
pub(super) const CONNECT_LEN: usize = 33;
pub(super) const HEADER_LEN: usize = 53;
pub(super) const FOOTER_LEN: usize = 21;
/// The header without its checksum.
const HEADER_SUMMED: usize = HEADER_LEN - 4;

/// The session ends with its connection.
pub(super) const FLAG_LOSSY: u8 = 1;

/// Answers to a connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Answer {
    ResetSession = 2,
    BadProtocol = 10,
    BadAuthorizer = 11,
    Features = 12,
    /// It is accepted; sequence numbers are exchanged, and messages follow.
    Seq = 13,
    ChallengeAuthorizer = 16,
}

/// What stands before everything in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Tag {
    Close = 6,
    Message = 7,
    Ack = 8,
    Keepalive = 9,
    Keepalive2 = 14,
    Keepalive2Ack = 15,
}

impl Tag {
    pub fn from_u8(v: u8) -> Option<Self> {
        let all = [
            Self::Close,
            Self::Message,
            Self::Ack,
            Self::Keepalive,
            Self::Keepalive2,
            Self::Keepalive2Ack,
        ];
        all.into_iter().find(|t| *t as u8 == v)
    }

    /// Bytes behind the tag; of a message: its header.
    pub fn len(self) -> usize {
        match self {
            Self::Close | Self::Keepalive => 0,
            Self::Message => HEADER_LEN,
            Self::Ack | Self::Keepalive2 | Self::Keepalive2Ack => 8,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Connect {
    pub features: u64,
    pub host_type: u32,
    pub connect_seq: u32,
    pub protocol: u32,
    pub method: u32,
    pub authorizer_len: u32,
}

impl Decode for Connect {
    fn decode(r: &mut Reader) -> Result<Self> {
        let (features, host_type) = (r.u64()?, r.u32()?);
        // Its count of connections.
        r.skip(4)?;
        let connect = Self {
            features,
            host_type,
            connect_seq: r.u32()?,
            protocol: r.u32()?,
            method: r.u32()?,
            authorizer_len: r.u32()?,
        };
        // Whether it wants a session that is lossy: it gets no other.
        r.skip(1)?;
        Ok(connect)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply<'a> {
    pub answer: Answer,
    pub features: u64,
    pub global_seq: u32,
    pub connect_seq: u32,
    pub protocol: u32,
    pub authorizer: &'a [u8],
    pub flags: u8,
}

impl Reply<'_> {
    pub fn encode(&self) -> denc::Bytes {
        let mut w = Writer::new();
        w.u8(self.answer as u8);
        w.u64(self.features);
        w.u32(self.global_seq);
        w.u32(self.connect_seq);
        w.u32(self.protocol);
        w.u32(self.authorizer.len() as u32);
        w.u8(self.flags);
        w.raw(self.authorizer);
        w.finish()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub seq: u64,
    pub tid: u64,
    pub kind: u16,
    pub priority: u16,
    pub version: u16,
    /// Front, middle, data.
    pub lens: [u32; 3],
    pub data_off: u16,
    pub compat: u16,
    /// Of what stands before it.
    pub crc: u32,
}

impl Header {
    pub fn decode(b: &[u8]) -> std::result::Result<Self, Error> {
        let short = |_| Error::V1("message header is cut off".into());
        let mut r = Reader::from_slice(b);
        let mut read = || -> Result<Self> {
            let (seq, tid, kind, priority, version) = (r.u64()?, r.u64()?, r.u16()?, r.u16()?, r.u16()?);
            let lens = [r.u32()?, r.u32()?, r.u32()?];
            let data_off = r.u16()?;
            // The sender's name, which is as good as its word.
            r.skip(9)?;
            let compat = r.u16()?;
            r.skip(2)?;
            Ok(Self {
                seq,
                tid,
                kind,
                priority,
                version,
                lens,
                data_off,
                compat,
                crc: r.u32()?,
            })
        };
        let header = read().map_err(short)?;
        match header.crc == crc32c(0, &b[..HEADER_SUMMED]) {
            true => Ok(header),
            false => Err(Error::PreambleCrc),
        }
    }

    /// Refuses what is too long, before memory is taken for it.
    pub fn check(&self, limits: &Limits) -> std::result::Result<(), Error> {
        let most = [limits.front_max, limits.middle_max, limits.data_max];
        for ((what, len), max) in ["front", "middle", "data"].into_iter().zip(self.lens).zip(most) {
            let len = len as usize;
            if len > max {
                return Err(Error::TooLong { what, len, max });
            }
        }
        Ok(())
    }

    /// Bytes that follow the header.
    pub fn body_len(&self) -> usize {
        self.lens.iter().map(|l| *l as usize).sum::<usize>() + FOOTER_LEN
    }

    pub fn encode(m: &Message, seq: u64, from: EntityName) -> [u8; HEADER_LEN] {
        let mut w = Writer::with_capacity(HEADER_LEN);
        w.u64(seq);
        w.u64(m.tid);
        w.u16(m.kind);
        w.u16(m.priority);
        w.u16(m.version);
        for part in [&m.front, &m.middle, &m.data] {
            w.u32(part.len() as u32);
        }
        w.u16(m.data_off);
        w.u8(from.kind);
        w.i64(from.num);
        w.u16(m.compat);
        w.u16(0);
        let crc = crc32c(0, w.as_slice());
        w.u32(crc);
        let mut b = [0; HEADER_LEN];
        b.copy_from_slice(w.as_slice());
        b
    }
}

const FOOTER_COMPLETE: u8 = 1;
/// The data's checksum was not made.
const FOOTER_NO_CRC: u8 = 2;
const FOOTER_SIGNED: u8 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    /// Front, middle, data.
    pub crcs: [u32; 3],
    pub signature: u64,
    pub flags: u8,
}

impl Footer {
    pub fn of(parts: [&[u8]; 3]) -> Self {
        Self {
            crcs: parts.map(|p| crc32c(0, p)),
            signature: 0,
            flags: FOOTER_COMPLETE,
        }
    }

    pub fn decode(b: &[u8; FOOTER_LEN]) -> Self {
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        Self {
            crcs: [word(0), word(4), word(8)],
            signature: word(12) as u64 | (word(16) as u64) << 32,
            flags: b[20],
        }
    }

    pub fn encode(&self) -> [u8; FOOTER_LEN] {
        let mut b = [0; FOOTER_LEN];
        for (at, crc) in b.chunks_exact_mut(4).zip(self.crcs) {
            at.copy_from_slice(&crc.to_le_bytes());
        }
        b[12..20].copy_from_slice(&self.signature.to_le_bytes());
        b[20] = self.flags;
        b
    }

    /// Its sender gave the message up on the way.
    pub fn is_aborted(&self) -> bool {
        self.flags & FOOTER_COMPLETE == 0
    }

    /// The number of the first part whose checksum is wrong.
    pub fn wrong_part(&self, parts: [&[u8]; 3]) -> Option<usize> {
        (0..3).find(|i| {
            let unsummed = *i == 2 && self.flags & FOOTER_NO_CRC != 0;
            !unsummed && self.crcs[*i] != crc32c(0, parts[*i])
        })
    }

    fn signature_of(&self, key: &CryptoKey, h: &Header) -> u64 {
        let [front, middle, data] = self.crcs;
        let [front_len, middle_len, data_len] = h.lens;
        key.sign_v1([
            h.crc,
            front,
            front_len,
            middle,
            middle_len,
            data,
            data_len,
            h.seq as u32,
        ])
    }

    pub fn sign(&mut self, key: &CryptoKey, h: &Header) {
        self.signature = self.signature_of(key, h);
        self.flags |= FOOTER_SIGNED;
    }

    pub fn is_signed_by(&self, key: &CryptoKey, h: &Header) -> bool {
        let want = self.signature_of(key, h).to_le_bytes();
        let is = self.signature.to_le_bytes();
        let same = aws_lc_rs::constant_time::verify_slices_are_equal(&want, &is).is_ok();
        same & (self.flags & FOOTER_SIGNED != 0)
    }
}
