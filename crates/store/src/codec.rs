//! Bytes on disk: variable-length integers, byte strings, object names. For log records and index rows.
//!
//! Invariants: the encoding of a value depends on nothing but the value; decoding never reads past the
//! input and allocates no more than the input holds.

use bytes::Bytes;
use types::{EVersion, HObject, ObjectId, SPgId};

/// What was wrong with encoded bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad(pub &'static str);

pub type Decoded<T> = std::result::Result<T, Bad>;

/// LEB128: seven bits a byte, low bits first.
pub fn put_u(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

pub fn put_bytes(out: &mut Vec<u8>, b: &[u8]) {
    put_u(out, b.len() as u64);
    out.extend_from_slice(b);
}

/// Small negatives are small.
fn put_i(out: &mut Vec<u8>, v: i64) {
    put_u(out, ((v << 1) ^ (v >> 63)) as u64);
}

pub fn put_oid(out: &mut Vec<u8>, oid: &ObjectId) {
    let o = &oid.object;
    out.push(oid.shard as u8);
    put_i(out, o.pool);
    out.extend_from_slice(&o.hash.to_le_bytes());
    // NOSNAP and SNAPDIR become 0 and 1.
    put_u(out, o.snap.wrapping_add(2));
    put_bytes(out, &o.nspace);
    put_bytes(out, &o.key);
    put_bytes(out, &o.oid);
}

pub fn put_version(out: &mut Vec<u8>, v: EVersion) {
    put_u(out, u64::from(v.epoch));
    put_u(out, v.version);
}

pub fn put_collection(out: &mut Vec<u8>, c: &SPgId) {
    put_i(out, c.pg.pool);
    put_u(out, u64::from(c.pg.seed));
    out.push(c.shard as u8);
}

/// A cursor over encoded bytes; byte strings come out as slices of them.
#[derive(Debug, Clone)]
pub struct Input {
    buf: Bytes,
    at: usize,
}

impl Input {
    pub fn new(buf: Bytes) -> Self {
        Self { buf, at: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.at == self.buf.len()
    }

    pub fn take(&mut self, n: usize) -> Decoded<Bytes> {
        if n > self.buf.len() - self.at {
            return Err(Bad("cut short"));
        }
        self.at += n;
        Ok(self.buf.slice(self.at - n..self.at))
    }

    /// All that is left.
    pub fn rest(&mut self) -> Bytes {
        let out = self.buf.slice(self.at..);
        self.at = self.buf.len();
        out
    }

    pub fn u8(&mut self) -> Decoded<u8> {
        let b = *self.buf.get(self.at).ok_or(Bad("cut short"))?;
        self.at += 1;
        Ok(b)
    }

    pub fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let raw = self.buf.get(self.at..self.at + N).ok_or(Bad("cut short"))?;
        self.at += N;
        raw.try_into().map_err(|_| Bad("cut short"))
    }

    pub fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u(&mut self) -> Decoded<u64> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.u8()?;
            v |= u64::from(b & 0x7f) << shift;
            if b & 0x80 == 0 {
                return Ok(v);
            }
        }
        Err(Bad("integer too long"))
    }

    pub fn i(&mut self) -> Decoded<i64> {
        let v = self.u()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    pub fn bytes(&mut self) -> Decoded<Bytes> {
        let n = usize::try_from(self.u()?).map_err(|_| Bad("length"))?;
        self.take(n)
    }

    pub fn oid(&mut self) -> Decoded<ObjectId> {
        let shard = self.u8()? as i8;
        let pool = self.i()?;
        let hash = self.u32()?;
        let snap = self.u()?.wrapping_sub(2);
        let (nspace, key, oid) = (self.bytes()?, self.bytes()?, self.bytes()?);
        Ok(ObjectId {
            shard,
            object: HObject {
                key,
                oid,
                snap,
                hash,
                max: false,
                nspace,
                pool,
            },
        })
    }

    pub fn version(&mut self) -> Decoded<EVersion> {
        let epoch = u32::try_from(self.u()?).map_err(|_| Bad("epoch"))?;
        Ok(EVersion::new(epoch, self.u()?))
    }

    pub fn collection(&mut self) -> Decoded<SPgId> {
        let pool = self.i()?;
        let seed = u32::try_from(self.u()?).map_err(|_| Bad("seed"))?;
        Ok(SPgId {
            pg: types::PgId::new(pool, seed),
            shard: self.u8()? as i8,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back() {
        for v in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_u(&mut out, v);
            put_i(&mut out, v as i64);
            let mut r = Input::new(out.into());
            assert_eq!((r.u(), r.i()), (Ok(v), Ok(v as i64)));
            assert!(r.is_empty() && r.u().is_err());
        }
    }

    #[test]
    fn lengths_beyond_the_input_are_refused() {
        let mut out = Vec::new();
        put_u(&mut out, u64::MAX);
        assert!(Input::new(out.into()).bytes().is_err());
    }
}
