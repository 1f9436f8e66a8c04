//! One message of the messenger: header fields and three segments. Bodies are typed in `messages`.
//!
//! Header ("header2", 41 bytes): u64 seq, u64 tid, u16 type, u16 priority, u16 version, u32 pre-padding,
//! u16 data offset, u64 acknowledged seq, u8 flags, u16 compat version, u16 reserved.

use crate::frame::HEADER_LEN;
use bytes::Bytes;

/// What real peers put into the flags: complete, and no checksum of its own.
const FLAGS: u8 = 3;

/// A received front or data up to this size is copied out of the receive buffer.
const OWN_FRONT_UPTO: usize = 16 << 10;
const OWN_DATA_UPTO: usize = 1 << 10;

fn own(b: Bytes, upto: usize) -> Bytes {
    match b.len() {
        0 => Bytes::new(),
        n if n <= upto => Bytes::copy_from_slice(&b),
        _ => b,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Message number, e.g. 42 for OSD_OP.
    pub kind: u16,
    pub version: u16,
    pub compat: u16,
    pub priority: u16,
    pub tid: u64,
    pub data_off: u16,
    pub front: Bytes,
    pub middle: Bytes,
    pub data: Bytes,
}

impl Message {
    /// Bytes of its segments; what it weighs against a connection's budget.
    pub fn size(&self) -> usize {
        HEADER_LEN + self.front.len() + self.middle.len() + self.data.len()
    }

    pub(crate) fn header(&self, seq: u64, ack_seq: u64) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[0..8].copy_from_slice(&seq.to_le_bytes());
        b[8..16].copy_from_slice(&self.tid.to_le_bytes());
        b[16..18].copy_from_slice(&self.kind.to_le_bytes());
        b[18..20].copy_from_slice(&self.priority.to_le_bytes());
        b[20..22].copy_from_slice(&self.version.to_le_bytes());
        b[26..28].copy_from_slice(&self.data_off.to_le_bytes());
        b[28..36].copy_from_slice(&ack_seq.to_le_bytes());
        b[36] = FLAGS;
        b[37..39].copy_from_slice(&self.compat.to_le_bytes());
        b
    }

    /// The number that a frame's header acknowledges.
    pub(crate) fn acknowledged(header: &[u8]) -> u64 {
        let mut b = [0; 8];
        b.copy_from_slice(&header[28..36]);
        u64::from_le_bytes(b)
    }

    /// The sequence number and the message, from a frame whose header has been found long enough.
    pub(crate) fn from_segments([h, front, middle, data]: [Bytes; 4]) -> (u64, Self) {
        let u16_at = |at: usize| u16::from_le_bytes([h[at], h[at + 1]]);
        let u64_at = |at: usize| {
            let mut b = [0; 8];
            b.copy_from_slice(&h[at..at + 8]);
            u64::from_le_bytes(b)
        };
        let message = Self {
            kind: u16_at(16),
            version: u16_at(20),
            compat: u16_at(37),
            priority: u16_at(18),
            tid: u64_at(8),
            data_off: u16_at(26),
            front,
            middle,
            data,
        };
        (u64_at(0), message.owned())
    }

    /// Small segments get memory of their own: an owner may keep an object's name from a front for hours
    /// (in a PG log, say), and a slice would pin the whole buffer received with it, megabytes of data
    /// included.
    pub(crate) fn owned(mut self) -> Self {
        self.front = own(self.front, OWN_FRONT_UPTO);
        self.data = own(self.data, OWN_DATA_UPTO);
        self
    }
}
