//! The preamble of a frame, the tags, and the limits (docs/protocol/ceph/01-messenger.md, 3.3 and 3.6).
//!
//! Preamble, 32 bytes: u8 tag, u8 segment count, 4 x { u32 length, u16 alignment }, u8 flags, u8 reserved,
//! u32 crc32c(0, bytes 0..27). Lengths are those of the segments without padding.

use crate::Error;
use types::checksum::crc32c;

pub(crate) const PREAMBLE_LEN: usize = 32;
const _: () = assert!(PREAMBLE_LEN == 1 + 1 + 4 * (4 + 2) + 1 + 1 + 4);
/// Bytes of a message's header, its segment 0.
pub(crate) const HEADER_LEN: usize = 41;
// Sequence number, id, type, priority, version, padding, offset of the data, acknowledged, flags, compat, reserved.
const _: () = assert!(HEADER_LEN == 8 + 8 + 2 + 2 + 2 + 4 + 2 + 8 + 1 + 2 + 2);
/// Seed of the checksums over segments; the preamble's own has seed 0.
pub(crate) const SEGMENT_SEED: u32 = u32::MAX;
const FLAG_COMPRESSED: u8 = 1;

/// Longest frame that is no message. A ticket with long capabilities must fit.
pub const CONTROL_FRAME_MAX: usize = 16 << 10;

/// What a message may be at most. Anything longer closes the connection before memory is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub front_max: usize,
    pub middle_max: usize,
    /// The largest legal write is 90 MiB; frames allow 4 GiB.
    pub data_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            front_max: 16 << 20,
            middle_max: 16 << 20,
            data_max: 100 << 20,
        }
    }
}

macro_rules! tags {
    ($($name:ident = $v:expr),* $(,)?) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Tag { $($name = $v),* }

        impl Tag {
            pub fn from_u8(v: u8) -> Option<Self> {
                match v { $($v => Some(Self::$name),)* _ => None }
            }
        }
    };
}
tags! {
    Hello = 1, AuthRequest = 2, AuthBadMethod = 3, AuthReplyMore = 4, AuthRequestMore = 5, AuthDone = 6,
    AuthSignature = 7, ClientIdent = 8, ServerIdent = 9, IdentMissingFeatures = 10, SessionReconnect = 11,
    SessionReset = 12, SessionRetry = 13, SessionRetryGlobal = 14, SessionReconnectOk = 15, Wait = 16,
    Message = 17, Keepalive2 = 18, Keepalive2Ack = 19, Ack = 20, CompressionRequest = 21,
    CompressionDone = 22,
}

/// How frames are laid out; both banners decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revision {
    V20,
    V21,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub tag: Tag,
    pub count: usize,
    pub lens: [usize; 4],
}

/// Alignment hints as every peer sends them: data for a page, the rest for a word.
const ALIGNMENTS: [u16; 4] = [8, 8, 8, 4096];

impl Preamble {
    /// For segments of these lengths; trailing empty ones are not counted, at least one is.
    pub fn new(tag: Tag, lens: [usize; 4]) -> Self {
        let count = lens.iter().rposition(|l| *l > 0).map_or(1, |i| i + 1);
        Self { tag, count, lens }
    }

    pub fn encode(&self) -> [u8; PREAMBLE_LEN] {
        let mut b = [0; PREAMBLE_LEN];
        b[0] = self.tag as u8;
        b[1] = self.count as u8;
        for (i, align) in ALIGNMENTS.iter().enumerate().take(self.count) {
            let at = 2 + 6 * i;
            b[at..at + 4].copy_from_slice(&(self.lens[i] as u32).to_le_bytes());
            b[at + 4..at + 6].copy_from_slice(&align.to_le_bytes());
        }
        let crc = crc32c(0, &b[..28]);
        b[28..].copy_from_slice(&crc.to_le_bytes());
        b
    }

    pub fn decode(b: &[u8; PREAMBLE_LEN]) -> Result<Self, Error> {
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        if word(28) != crc32c(0, &b[..28]) {
            return Err(Error::PreambleCrc);
        }
        let tag = Tag::from_u8(b[0]).ok_or(Error::UnknownTag(b[0]))?;
        if b[26] & FLAG_COMPRESSED != 0 {
            return Err(Error::Compressed);
        }
        let count = b[1] as usize;
        if !(1..=4).contains(&count) || (tag != Tag::Message && count != 1) {
            return Err(Error::SegmentCount(b[1]));
        }
        let mut lens = [0; 4];
        for (i, len) in lens.iter_mut().enumerate().take(count) {
            *len = word(2 + 6 * i) as usize;
        }
        if count > 1 && lens[count - 1] == 0 {
            return Err(Error::EmptyTail);
        }
        Ok(Self { tag, count, lens })
    }

    /// Refuses what is too long, or a message before its time.
    pub fn check(&self, limits: Option<&Limits>) -> Result<(), Error> {
        if self.tag != Tag::Message {
            return within("control frame", self.lens[0], CONTROL_FRAME_MAX);
        }
        let Some(limits) = limits else {
            return Err(Error::Unexpected {
                tag: self.tag,
                state: "the session is not open",
            });
        };
        if self.lens[0] != HEADER_LEN {
            return Err(Error::HeaderLength(self.lens[0]));
        }
        within("front", self.lens[1], limits.front_max)?;
        within("middle", self.lens[2], limits.middle_max)?;
        within("data", self.lens[3], limits.data_max)
    }
}

fn within(what: &'static str, len: usize, max: usize) -> Result<(), Error> {
    if len > max {
        return Err(Error::TooLong { what, len, max });
    }
    Ok(())
}

/// To the next multiple of the cipher's block.
pub(crate) fn padded(len: usize) -> usize {
    len.next_multiple_of(16)
}
