//! CLIENT_SESSION: opening, renewing and closing a client's session.

use crate::mon::Body;
use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::BTreeMap;
use types::Utime;

/// Feature bits: a length, and so many bytes. Only the lowest 64 are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    pub bits: u64,
    /// As it travelled, so that the same bytes come out again.
    pub bytes: u32,
}

/// Bytes of a set of features that a peer may send.
const FEATURE_BYTES_MAX: usize = 64;

impl Features {
    pub const NONE: Self = Self { bits: 0, bytes: 0 };

    pub fn of(bits: u64) -> Self {
        Self { bits, bytes: 8 }
    }

    pub fn has(self, bit: u32) -> bool {
        self.bits >> bit & 1 == 1
    }
}

impl Encode for Features {
    fn encode(&self, w: &mut Writer) {
        let mut bytes = self.bits.to_le_bytes().to_vec();
        bytes.resize(self.bytes as usize, 0);
        w.blob(&bytes);
    }
}

impl Decode for Features {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self> {
        let b = r.blob()?;
        if b.len() > FEATURE_BYTES_MAX {
            return Err(r.invalid("too many features"));
        }
        let mut low = [0; 8];
        let n = b.len().min(8);
        low[..n].copy_from_slice(&b[..n]);
        Ok(Self {
            bits: u64::from_le_bytes(low),
            bytes: b.len() as u32,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MClientSession {
    pub op: u32,
    pub seq: u64,
    pub stamp: Utime,
    pub max_caps: u32,
    pub max_leases: u32,
    /// The long form (version 5) has all that follows; the short one (version 1) ends here.
    pub long: bool,
    pub metadata: BTreeMap<String, String>,
    pub features: Features,
    pub metrics: Features,
    pub flags: u32,
}

impl MClientSession {
    pub fn short(op: u32, seq: u64) -> Self {
        Self {
            op,
            seq,
            ..Self::default()
        }
    }

    pub fn long(op: u32, features: Features) -> Self {
        Self {
            op,
            long: true,
            features,
            ..Self::default()
        }
    }
}

impl Body for MClientSession {
    const KIND: u16 = 22;
    const VERSION: u16 = 5;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.op);
        w.u64(self.seq);
        w.put(&self.stamp);
        w.u32(self.max_caps);
        w.u32(self.max_leases);
        if self.long {
            w.put(&self.metadata);
            w.put(&self.features);
            w.envelope(1, 1, |w| w.put(&self.metrics));
            w.u32(self.flags);
        }
    }

    fn decode_front(version: u16, r: &mut Reader) -> Result<Self> {
        let mut body = Self {
            op: r.u32()?,
            seq: r.u64()?,
            stamp: r.get()?,
            max_caps: r.u32()?,
            max_leases: r.u32()?,
            ..Self::default()
        };
        body.long = version >= 2;
        if version >= 2 {
            body.metadata = r.get()?;
        }
        if version >= 3 {
            body.features = r.get()?;
        }
        if version >= 4 {
            body.metrics = r.envelope(1, |_, r| r.get())?;
        }
        if version >= 5 {
            body.flags = r.u32()?;
        }
        Ok(body)
    }

    fn message(&self, tid: u64) -> msgr::Message {
        let mut w = Writer::new();
        self.encode_front(&mut w);
        msgr::Message {
            kind: Self::KIND,
            version: if self.long { 5 } else { 1 },
            compat: 1,
            priority: Self::PRIORITY,
            tid,
            front: w.finish(),
            ..msgr::Message::default()
        }
    }
}
