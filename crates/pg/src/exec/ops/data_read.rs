//! Reading data: READ, SPARSE_READ, MAPEXT, STAT, CMPEXT, ASSERT_VER (docs/protocol/ceph/04-osd.md, 9.1, 9.5).

use crate::exec::gathered::Extent;
use crate::exec::result::{Done, Fail, OpResult, done};
use crate::exec::run::Exec;
use bytes::{Bytes, BytesMut};
use denc::Writer;
use messages::osd::OsdOp;
use std::borrow::Cow;
use std::ops::Range;
use types::Errno;

/// CMPEXT tells the first differing byte as this less its index.
const CMPEXT_MISMATCH: i32 = -4095;

/// Up to so many bytes in all, holes are told by the byte: the store knows them by its block, and to look through much would cost
/// every large read.
const LOOKED_THROUGH_MAX: u64 = 16 << 10;
/// So many zeros in a row are a hole. Fewer are data: readers that write random bytes by the block expect extents by the block,
/// as the kernel's fscrypt does, and random bytes have no such row.
const HOLE_MIN: usize = 16;
/// What has more parts between holes is told as it is stored.
const PARTS_MAX: usize = 8;

/// What is not in a hole of extents. A reader takes what is left out for zeros, so it makes no difference which of them were
/// written, which nobody remembers by the byte.
fn by_the_byte(extents: &[Extent]) -> Option<Vec<Extent>> {
    let mut out: Vec<Extent> = Vec::new();
    for e in extents {
        let bytes = match e.pieces.as_slice() {
            [one] => one.clone(),
            many => Bytes::from(many.concat()),
        };
        if bytes.len() as u64 != e.len {
            return None;
        }
        for part in parts(&bytes) {
            if out.len() == PARTS_MAX {
                return None;
            }
            out.push(Extent {
                offset: e.offset + part.start as u64,
                len: part.len() as u64,
                pieces: vec![bytes.slice(part)],
            });
        }
    }
    Some(out)
}

/// The ranges between holes, in order.
fn parts(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let mut start = at;
        loop {
            let zeros = bytes[at..]
                .iter()
                .position(|b| *b == 0)
                .map_or(bytes.len(), |n| at + n);
            let end = bytes[zeros..].iter().position(|b| *b != 0);
            let end = end.map_or(bytes.len(), |n| zeros + n);
            at = end;
            match end - zeros {
                0 => return (start < end).then_some(start..end),
                long if long >= HOLE_MIN && start < zeros => return Some(start..zeros),
                long if long >= HOLE_MIN => start = end,
                _ => {}
            }
        }
    })
}

/// Where the extents are.
fn put_map(extents: &[Extent], w: &mut Writer) {
    w.u32(extents.len() as u32);
    for e in extents {
        w.u64(e.offset);
        w.u64(e.len);
    }
}

impl Exec<'_> {
    pub fn read(&mut self, op: &OsdOp) -> OpResult {
        self.must_have_existed()?;
        Ok(self.bytes_of(op)?.into())
    }

    pub fn sparse_read(&mut self, op: &OsdOp) -> OpResult {
        self.must_have_existed()?;
        let mut extents = self.extents_of(op)?;
        let bytes = |all: &[Extent]| all.iter().map(|e| e.len).sum::<u64>();
        if bytes(&extents) <= LOOKED_THROUGH_MAX && !self.req.pool.erasure {
            extents = by_the_byte(&extents).map_or(extents, Cow::Owned);
        }
        let total = bytes(&extents);
        let mut out = BytesMut::with_capacity(8 + 16 * extents.len() + total as usize);
        let mut w = Writer::with_capacity(8 + 16 * extents.len());
        put_map(&extents, &mut w);
        w.u32(total as u32);
        out.extend_from_slice(w.as_slice());
        for Extent { offset, len, pieces } in extents.iter() {
            let got: u64 = pieces.iter().map(|p| p.len() as u64).sum();
            if got != *len {
                let object = &self.req.source.object;
                tracing::error!("{object}: extent {offset}~{len} gave {got} bytes");
                return Err(Errno::EIO.into());
            }
            self.read_bytes += got;
            pieces.iter().for_each(|p| out.extend_from_slice(p));
        }
        Ok(out.freeze().into())
    }

    /// Allocated ranges, rounded to nothing: what the store says. Length 0 gives none.
    pub fn map_extents(&mut self, op: &OsdOp) -> OpResult {
        self.must_have_existed()?;
        let extents = self.extents_of(op)?;
        let mut w = Writer::with_capacity(4 + 16 * extents.len());
        put_map(&extents, &mut w);
        Ok(w.finish().into())
    }

    pub fn stat(&mut self) -> OpResult {
        self.must_exist()?;
        let mut w = Writer::with_capacity(16);
        w.u64(self.work.new.size);
        w.put(&self.work.new.info.mtime);
        Ok(w.finish().into())
    }

    /// Bytes past the end, and a missing object, compare as zeros.
    pub fn compare_extent(&mut self, op: &OsdOp) -> OpResult {
        if op.extent().length != op.indata.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        let stored = self.bytes_of(op)?;
        let zeros = std::iter::repeat(&0u8);
        match op
            .indata
            .iter()
            .zip(stored.iter().chain(zeros))
            .position(|(a, b)| a != b)
        {
            None => done(),
            Some(at) => Err(Fail {
                rval: CMPEXT_MISMATCH - at as i32,
                out: Bytes::new(),
            }),
        }
    }

    pub fn assert_version(&mut self, op: &OsdOp) -> OpResult {
        let stored = if self.req.old.exists {
            self.req.old.info.user_version
        } else {
            0
        };
        match op.assert_ver() {
            0 => Err(Errno::EINVAL.into()),
            v if v < stored => Err(Errno::ERANGE.into()),
            v if v > stored => Err(Errno::EOVERFLOW.into()),
            _ => Ok(Done::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLE: &[u8] = &[0; HOLE_MIN];

    #[test]
    fn holes_are_told_by_the_byte() {
        let check = |pieces: &[&[u8]], want: &[(u64, &[u8])]| {
            let pieces: Vec<Bytes> = pieces.iter().map(|p| Bytes::copy_from_slice(p)).collect();
            let len = pieces.iter().map(|p| p.len() as u64).sum();
            let extent = Extent {
                offset: 100,
                len,
                pieces,
            };
            let parts = by_the_byte(&[extent]).unwrap();
            let found: Vec<_> = parts.iter().map(|e| (e.offset, e.pieces.concat())).collect();
            let want: Vec<_> = want.iter().map(|(at, b)| (*at, b.to_vec())).collect();
            assert_eq!(found, want);
            assert!(parts.iter().all(|e| e.len == e.pieces.concat().len() as u64));
        };
        check(&[HOLE, b"a", HOLE, b"b"], &[(116, b"a"), (133, b"b")]);
        check(&[b"ab", HOLE, b"\0c", HOLE], &[(100, b"ab"), (119, b"c")]);
        check(&[&HOLE[1..], b"\0\0\0"], &[]);
        check(&[b"abc", b"d"], &[(100, b"abcd")]);
        check(&[HOLE], &[]);
        check(&[], &[]);
        // Fewer zeros are data, wherever they are.
        let few = &HOLE[1..];
        let all = [few, b"a", few, b"b", few].concat();
        check(&[few, b"a", few, b"b", few], &[(100, &all)]);
        let many = Extent {
            offset: 0,
            len: 9 * (HOLE_MIN as u64 + 1),
            pieces: vec![Bytes::from([b"a", HOLE].concat().repeat(9))],
        };
        assert_eq!(by_the_byte(&[many]), None);
    }
}
