//! Reading data: READ, SPARSE_READ, MAPEXT, STAT, CMPEXT, ASSERT_VER (docs/protocol/ceph/04-osd.md, 9.1, 9.5).

use crate::exec::{Done, Exec, Fail, OpResult, done};
use bytes::{Bytes, BytesMut};
use denc::Writer;
use messages::osd::{ExtentArg, OsdOp};
use types::Errno;

/// CMPEXT tells the first differing byte as this less its index.
const CMPEXT_MISMATCH: i32 = -4095;

impl Exec<'_, '_> {
    /// The readable part of a range: cut off at the size, or at the truncate size of a client that knows of
    /// a truncation which this object has not seen.
    fn readable(&self, a: &ExtentArg) -> (u64, u64) {
        let mut size = self.old.size;
        if a.truncate_seq > self.old.info.truncate_seq
            && a.offset.saturating_add(a.length) > a.truncate_size
            && size > a.truncate_size
        {
            size = a.truncate_size;
        }
        (a.offset.min(size), size)
    }

    fn read_range(&mut self, offset: u64, len: u64) -> Result<Bytes, Fail> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let data = self.ctx.store.read(self.source, offset, len)?;
        self.read_bytes += data.len() as u64;
        Ok(data)
    }

    pub fn read(&mut self, op: &OsdOp) -> OpResult {
        self.must_have_existed()?;
        let a = op.extent();
        let (offset, size) = self.readable(&a);
        let left = size - offset;
        let len = if a.length == 0 { left } else { a.length.min(left) };
        Ok(self.read_range(offset, len)?.into())
    }

    pub fn read_all(&mut self) -> OpResult {
        self.must_have_existed()?;
        Ok(self.read_range(0, self.old.size)?.into())
    }

    fn extents(&mut self, a: &ExtentArg) -> Result<Vec<(u64, u64)>, Fail> {
        let (offset, size) = self.readable(a);
        let len = a.length.min(size - offset);
        if len == 0 {
            return Ok(Vec::new());
        }
        if self.pool.erasure {
            return Ok(vec![(offset, len)]);
        }
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (first, n) in self.ctx.store.extents(self.source, offset, len)? {
            let (first, end) = (first.max(offset), (first + n).min(offset + len));
            match merged.last_mut() {
                _ if first >= end => {}
                Some(last) if last.0 + last.1 == first => last.1 += end - first,
                _ => merged.push((first, end - first)),
            }
        }
        Ok(merged)
    }

    pub fn sparse_read(&mut self, op: &OsdOp) -> OpResult {
        self.must_have_existed()?;
        let extents = self.extents(&op.extent())?;
        let total: u64 = extents.iter().map(|e| e.1).sum();
        let mut out = BytesMut::with_capacity(8 + 16 * extents.len() + total as usize);
        let mut w = Writer::with_capacity(8 + 16 * extents.len());
        w.put(&extents);
        w.u32(total as u32);
        out.extend_from_slice(w.as_slice());
        for (offset, len) in extents {
            let pieces = self.ctx.store.read_pieces(self.source, offset, len)?;
            let got: u64 = pieces.iter().map(|p| p.len() as u64).sum();
            if got != len {
                tracing::error!("{}: extent {offset}~{len} gave {got} bytes", self.source.object);
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
        let extents = self.extents(&op.extent())?;
        let mut w = Writer::with_capacity(4 + 16 * extents.len());
        w.put(&extents);
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
        let a = op.extent();
        if a.length != op.indata.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        let (offset, len) = (a.offset.min(self.old.size), a.length);
        let stored = match self.old.exists {
            true => self.read_range(offset, len.min(self.old.size - offset))?,
            false => Bytes::new(),
        };
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
        let stored = if self.old.exists {
            self.old.info.user_version
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
