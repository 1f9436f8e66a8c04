//! Reading data: READ, SPARSE_READ, MAPEXT, STAT, CMPEXT, ASSERT_VER (docs/protocol/ceph/04-osd.md, 9.1, 9.5).

use crate::exec::gathered::Extent;
use crate::exec::result::{Done, Fail, OpResult, done};
use crate::exec::run::Exec;
use bytes::{Bytes, BytesMut};
use denc::Writer;
use messages::osd::OsdOp;
use types::Errno;

/// CMPEXT tells the first differing byte as this less its index.
const CMPEXT_MISMATCH: i32 = -4095;

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
        let extents = self.extents_of(op)?;
        let total: u64 = extents.iter().map(|e| e.len).sum();
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
