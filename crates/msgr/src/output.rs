//! Bytes to be written to the socket, in order: small pieces are gathered, large ones are kept as they
//! are, so that one vectored write takes a batch of frames without copying their data.

use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Pieces below this are copied together: a slice of its own costs more than the copy.
const COPY_BELOW: usize = 4096;
/// Size in which the gathering buffer grows.
const GATHER: usize = 16 << 10;

#[derive(Debug, Default)]
pub struct Output {
    chunks: VecDeque<Bytes>,
    tail: BytesMut,
    len: usize,
}

impl Output {
    /// Bytes not yet taken.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn put(&mut self, b: &[u8]) {
        if self.tail.capacity() - self.tail.len() < b.len() {
            self.flush_tail();
            self.tail.reserve(b.len().max(GATHER));
        }
        self.tail.extend_from_slice(b);
        self.len += b.len();
    }

    pub(crate) fn put_bytes(&mut self, b: Bytes) {
        if b.len() < COPY_BELOW {
            return self.put(&b);
        }
        self.flush_tail();
        self.len += b.len();
        self.chunks.push_back(b);
    }

    fn flush_tail(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(self.tail.split().freeze());
        }
    }

    /// Fills `slices` with the first pieces; gives how many.
    pub fn slices<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.flush_tail();
        let mut n = 0;
        for (slot, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slot = IoSlice::new(chunk);
            n += 1;
        }
        n
    }

    /// Forgets the first `n` bytes, which have been written.
    pub fn advance(&mut self, mut n: usize) {
        self.len -= n;
        while n > 0 {
            let Some(first) = self.chunks.front_mut() else {
                return;
            };
            if first.len() > n {
                first.advance(n);
                return;
            }
            n -= first.len();
            self.chunks.pop_front();
        }
    }

    /// All of it as one buffer: for tests and for shells without vectored writes.
    pub fn take(&mut self) -> Bytes {
        self.flush_tail();
        let mut out = BytesMut::with_capacity(self.len);
        for c in self.chunks.drain(..) {
            out.extend_from_slice(&c);
        }
        self.len = 0;
        out.freeze()
    }
}
