//! The writer: an output buffer, and the feature bits of the peer that will read it.

use crate::{Bytes, BytesMut, Encode};

#[derive(Debug)]
pub struct Writer {
    buf: BytesMut,
    features: u64,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// A writer for a peer with every feature (the form that files and same-release peers use).
    pub fn new() -> Self {
        Self::with_features(u64::MAX)
    }

    pub fn with_features(features: u64) -> Self {
        Self {
            buf: BytesMut::new(),
            features,
        }
    }

    pub fn with_capacity(n: usize) -> Self {
        Self {
            buf: BytesMut::with_capacity(n),
            features: u64::MAX,
        }
    }

    pub fn features(&self) -> u64 {
        self.features
    }

    /// True if the peer has all of `bits`.
    pub fn has(&self, bits: u64) -> bool {
        self.features & bits == bits
    }

    pub fn len(&self) -> usize {
        self.buf.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    pub fn finish(self) -> Bytes {
        self.buf.freeze()
    }

    pub fn put<T: Encode + ?Sized>(&mut self, v: &T) {
        v.encode(self);
    }

    pub fn raw(&mut self, b: &[u8]) {
        self.buf.extend_from_slice(b);
    }
    pub fn u8(&mut self, v: u8) {
        self.raw(&[v]);
    }
    pub fn u16(&mut self, v: u16) {
        self.raw(&v.to_le_bytes());
    }
    pub fn u32(&mut self, v: u32) {
        self.raw(&v.to_le_bytes());
    }
    pub fn u64(&mut self, v: u64) {
        self.raw(&v.to_le_bytes());
    }
    pub fn i32(&mut self, v: i32) {
        self.raw(&v.to_le_bytes());
    }
    pub fn i64(&mut self, v: i64) {
        self.raw(&v.to_le_bytes());
    }
    pub fn bool(&mut self, v: bool) {
        self.u8(v as u8);
    }

    pub fn zeros(&mut self, n: usize) {
        self.buf.resize(self.buf.len() + n, 0);
    }

    /// A `u32` length and the bytes.
    pub fn blob(&mut self, b: &[u8]) {
        self.u32(b.len() as u32);
        self.raw(b);
    }

    pub fn string(&mut self, s: &str) {
        self.blob(s.as_bytes());
    }

    /// A versioned struct; the length is filled in after `body`.
    pub fn envelope(&mut self, version: u8, compat: u8, body: impl FnOnce(&mut Writer)) {
        self.u8(version);
        self.u8(compat);
        self.sized(body);
    }

    /// A `u32` length, filled in after `body`, in front of what `body` writes.
    pub fn sized(&mut self, body: impl FnOnce(&mut Writer)) {
        let at = self.buf.len();
        self.u32(0);
        body(self);
        let len = (self.buf.len() - at - 4) as u32;
        self.patch_u32(at, len);
    }

    /// Overwrites four bytes written before (lengths, checksums).
    pub fn patch_u32(&mut self, at: usize, v: u32) {
        self.buf[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }
}
