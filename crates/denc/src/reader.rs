//! The reader: a position in received bytes with a hard end.

use crate::{Bytes, Decode};

/// What is wrong with received bytes, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{need} bytes needed at offset {at}, {left} left")]
    Short { at: usize, need: usize, left: usize },
    #[error("count {count} at offset {at} cannot fit into the {left} bytes left")]
    Count { at: usize, count: usize, left: usize },
    #[error("encoding at offset {at} needs a decoder of version {compat}, this one knows {known}")]
    TooNew { at: usize, compat: u8, known: u8 },
    #[error("{what} at offset {at}")]
    Invalid { at: usize, what: &'static str },
}

pub type Result<T> = std::result::Result<T, Error>;

/// Header of a versioned struct; `end` is the absolute offset behind its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    pub version: u8,
    pub compat: u8,
    pub end: usize,
}

/// Reads from a shared buffer; blobs come out as slices of it, without a copy.
#[derive(Debug, Clone)]
pub struct Reader {
    buf: Bytes,
    at: usize,
    end: usize,
    features: u64,
}

impl Reader {
    /// A reader over all of `buf`, with all feature bits set.
    pub fn new(buf: Bytes) -> Self {
        let end = buf.len();
        Self {
            buf,
            at: 0,
            end,
            features: u64::MAX,
        }
    }

    pub fn from_slice(buf: &[u8]) -> Self {
        Self::new(Bytes::copy_from_slice(buf))
    }

    pub fn with_features(mut self, features: u64) -> Self {
        self.features = features;
        self
    }

    pub fn features(&self) -> u64 {
        self.features
    }

    pub fn position(&self) -> usize {
        self.at
    }

    pub fn remaining(&self) -> usize {
        self.end - self.at
    }

    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The next `n` bytes, shared with the buffer.
    pub fn bytes(&mut self, n: usize) -> Result<Bytes> {
        self.need(n)?;
        let out = self.buf.slice(self.at..self.at + n);
        self.at += n;
        Ok(out)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.need(N)?;
        let mut out = [0u8; N];
        out.copy_from_slice(&self.buf[self.at..self.at + N]);
        self.at += N;
        Ok(out)
    }

    pub fn skip(&mut self, n: usize) -> Result<()> {
        self.need(n)?;
        self.at += n;
        Ok(())
    }

    /// All that is left.
    pub fn rest(&mut self) -> Bytes {
        let out = self.buf.slice(self.at..self.end);
        self.at = self.end;
        out
    }

    pub fn get<T: Decode>(&mut self) -> Result<T> {
        T::decode(self)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array()?))
    }
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }

    /// A `u32` length and that many bytes (string, buffer list).
    pub fn blob(&mut self) -> Result<Bytes> {
        let n = self.u32()? as usize;
        self.bytes(n)
    }

    /// A string that must be UTF-8 (names of pools, services, users; object names are blobs).
    pub fn string(&mut self) -> Result<String> {
        let at = self.at;
        let raw = self.blob()?;
        String::from_utf8(raw.to_vec()).map_err(|_| Error::Invalid {
            at,
            what: "string is not UTF-8",
        })
    }

    /// An element count, refused when `count * min_size` bytes cannot follow.
    pub fn count(&mut self, min_size: usize) -> Result<usize> {
        let at = self.at;
        let count = self.u32()? as usize;
        if count
            .checked_mul(min_size.max(1))
            .is_none_or(|n| n > self.remaining())
        {
            return Err(Error::Count {
                at,
                count,
                left: self.remaining(),
            });
        }
        Ok(count)
    }

    /// An error at the present offset.
    pub fn invalid(&self, what: &'static str) -> Error {
        Error::Invalid { at: self.at, what }
    }

    /// Opens a versioned struct; reads inside it should go through [`Reader::envelope`] where possible.
    pub fn open(&mut self, known: u8) -> Result<Envelope> {
        let at = self.at;
        let version = self.u8()?;
        let compat = self.u8()?;
        if compat > known {
            return Err(Error::TooNew { at, compat, known });
        }
        let len = self.u32()? as usize;
        self.need(len)?;
        Ok(Envelope {
            version,
            compat,
            end: self.at + len,
        })
    }

    /// Decodes a versioned struct: `body(version, reader)` cannot read past its end, and a tail that it
    /// leaves is skipped. `known` is the newest version the body understands.
    pub fn envelope<T>(&mut self, known: u8, body: impl FnOnce(u8, &mut Reader) -> Result<T>) -> Result<T> {
        let env = self.open(known)?;
        let outer = std::mem::replace(&mut self.end, env.end);
        let out = body(env.version, self);
        self.end = outer;
        let out = out?;
        self.at = env.end;
        Ok(out)
    }

    /// Runs `body` on the next `n` bytes alone and goes on behind them.
    pub fn limited<T>(&mut self, n: usize, body: impl FnOnce(&mut Reader) -> Result<T>) -> Result<T> {
        self.need(n)?;
        let stop = self.at + n;
        let outer = std::mem::replace(&mut self.end, stop);
        let out = body(self);
        self.end = outer;
        let out = out?;
        self.at = stop;
        Ok(out)
    }

    fn need(&self, n: usize) -> Result<()> {
        if n > self.remaining() {
            return Err(Error::Short {
                at: self.at,
                need: n,
                left: self.remaining(),
            });
        }
        Ok(())
    }
}
