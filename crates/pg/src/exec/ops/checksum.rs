//! CHECKSUM: checksums of ranges by the server (docs/protocol/ceph/04-osd.md, 9.1).

use super::xxhash::{xxh32, xxh64};
use crate::exec::result::{Done, OpResult};
use crate::exec::run::Exec;
use denc::{Reader, Writer};
use messages::osd::OsdOp;
use types::Errno;
use types::checksum::crc32c;

const XXHASH32: u8 = 0;
const XXHASH64: u8 = 1;
const CRC32C: u8 = 2;

impl Exec<'_> {
    pub fn checksum(&mut self, op: &OsdOp) -> OpResult {
        self.must_have_existed()?;
        let a = op.checksum();
        let mut r = Reader::new(op.indata.clone());
        let init = match a.kind {
            XXHASH32 | CRC32C => u64::from(r.u32()?),
            XXHASH64 => r.u64()?,
            _ => return Err(Errno::EINVAL.into()),
        };
        let chunk = u64::from(a.chunk_size);
        if chunk != 0 && (a.length == 0 || !a.length.is_multiple_of(chunk)) {
            return Err(Errno::EINVAL.into());
        }
        let data = self.bytes_of(op)?;
        if data.is_empty() {
            return Ok(Done::default());
        }
        let chunk = if chunk == 0 { data.len() } else { chunk as usize };
        let mut w = Writer::with_capacity(4 + data.len().div_ceil(chunk) * 8);
        w.u32(data.len().div_ceil(chunk) as u32);
        for part in data.chunks(chunk) {
            match a.kind {
                XXHASH32 => w.u32(xxh32(part, init as u32)),
                XXHASH64 => w.u64(xxh64(part, init)),
                _ => w.u32(crc32c(init as u32, part)),
            }
        }
        Ok(w.finish().into())
    }
}
