//! Reading data: READ, SPARSE_READ, MAPEXT, STAT, CMPEXT, ASSERT_VER (docs/protocol/ceph/04-osd.md, 9.1, 9.5).

use crate::exec::cost::BLOCK;
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
/// So many zeros in a row, within a block, are a hole; in a block that is told in part, as the last of an object, any number.
/// Fewer are data: readers that write random bytes by the block expect extents by the block, as the kernel's fscrypt does,
/// and random bytes have no such row. A whole block of zeros is data, for somebody has written it.
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
        for part in parts(e.offset, &bytes) {
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

/// The ranges between holes of bytes that lie at `offset` of an object.
fn parts(offset: u64, bytes: &[u8]) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut push = |part: Range<usize>| match out.last_mut() {
        Some(last) if last.end == part.start => last.end = part.end,
        _ if part.is_empty() => {}
        _ => out.push(part),
    };
    let mut at = 0;
    while at < bytes.len() {
        let left = BLOCK - (offset + at as u64) % BLOCK;
        let block = at..bytes.len().min(at + left as usize);
        at = block.end;
        let whole = block.len() as u64 == BLOCK;
        let mut data = block.start;
        for hole in holes(&bytes[block.clone()]) {
            if whole && !(HOLE_MIN..block.len()).contains(&hole.len()) {
                continue;
            }
            push(data..block.start + hole.start);
            data = block.start + hole.end;
        }
        push(data..block.end);
    }
    out
}

/// Rows of zeros.
fn holes(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + bytes[at..].iter().position(|b| *b == 0)?;
        let end = bytes[start..].iter().position(|b| *b != 0);
        at = end.map_or(bytes.len(), |n| start + n);
        Some(start..at)
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
        check(&[b"\0a\0b"], &[(101, b"a"), (103, b"b")]);
        check(&[b"ab\0", b"\0c\0"], &[(100, b"ab"), (104, b"c")]);
        check(&[b"abc", b"d"], &[(100, b"abcd")]);
        check(&[b"\0\0"], &[]);
        check(&[], &[]);
        let many = Extent {
            offset: 0,
            len: 18,
            pieces: vec![Bytes::from_static(b"a\0a\0a\0a\0a\0a\0a\0a\0a\0")],
        };
        assert_eq!(by_the_byte(&[many]), None);
    }

    #[test]
    fn whole_blocks_are_told_by_long_rows() {
        let block = BLOCK as usize;
        let mut data = vec![0; 3 * block];
        data[..100].fill(1);
        data[2 * block + 50] = 1;
        let found = parts(7 * BLOCK, &data);
        assert_eq!(found, [0..100, block..2 * block, 2 * block + 50..2 * block + 51]);
        // What is told of a block in part is no whole block, zeros or not.
        assert_eq!(
            parts(7 * BLOCK + 1, &data[1..block]),
            std::slice::from_ref(&(0..99))
        );
        assert!(parts(1, &data[block + 1..2 * block]).is_empty());
        // Few zeros are as good as data.
        data[..block].fill(1);
        (data[0], data[block - 1]) = (0, 0);
        data[77..77 + HOLE_MIN - 1].fill(0);
        assert_eq!(
            parts(BLOCK, &data[..block]).as_slice(),
            std::slice::from_ref(&(0..block))
        );
        data[77 + HOLE_MIN - 1] = 0;
        assert_eq!(parts(BLOCK, &data[..block]), [0..77, 77 + HOLE_MIN..block]);
    }
}
