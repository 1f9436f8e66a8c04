//! One operation of a request: 38 packed bytes and its in-data (docs/protocol/ceph/04-osd.md, section 3).
//!
//! The 28-byte union stays raw, since a reply echoes it; each arm has an accessor that decodes it and a
//! constructor for clients and tests.

use crate::osd::OpCode;
use bytes::Bytes;
use denc::{Reader, Result, Writer};

/// Size of the union.
pub(super) const ARG: usize = 28;
/// Size of an operation on the wire.
pub(super) const OP_SIZE: usize = 38;
// Code, flags, union, length of the data.
const _: () = assert!(OP_SIZE == size_of::<u16>() + size_of::<u32>() + ARG + size_of::<u32>());

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsdOp {
    pub code: OpCode,
    /// See [`crate::osd::op_flag`].
    pub flags: u32,
    pub arg: [u8; ARG],
    pub indata: Bytes,
}

/// Range arm; also the truncate pair of cephfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtentArg {
    pub offset: u64,
    pub length: u64,
    pub truncate_size: u64,
    pub truncate_seq: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XattrArg {
    pub name_len: u32,
    pub value_len: u32,
    pub cmp_op: u8,
    pub cmp_mode: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PgListArg {
    pub count: u64,
    pub start_epoch: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WatchArg {
    pub cookie: u64,
    pub ver: u64,
    pub op: u8,
    pub gen_: u32,
    /// Seconds; 0 is the server's default.
    pub timeout: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllocHintArg {
    pub object_size: u64,
    pub write_size: u64,
    pub flags: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteSameArg {
    pub offset: u64,
    pub length: u64,
    pub data_length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChecksumArg {
    pub offset: u64,
    pub length: u64,
    pub chunk_size: u32,
    pub kind: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyFromArg {
    pub snap: u64,
    pub version: u64,
    pub flags: u8,
}

impl OsdOp {
    pub fn new(code: OpCode) -> Self {
        Self {
            code,
            flags: 0,
            arg: [0; ARG],
            indata: Bytes::new(),
        }
    }

    pub fn with_flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    pub fn with_data(mut self, data: impl Into<Bytes>) -> Self {
        self.indata = data.into();
        self
    }

    fn u8_at(&self, at: usize) -> u8 {
        self.arg[at]
    }
    fn u32_at(&self, at: usize) -> u32 {
        let mut b = [0; 4];
        b.copy_from_slice(&self.arg[at..at + 4]);
        u32::from_le_bytes(b)
    }
    fn u64_at(&self, at: usize) -> u64 {
        let mut b = [0; 8];
        b.copy_from_slice(&self.arg[at..at + 8]);
        u64::from_le_bytes(b)
    }
    fn put(&mut self, at: usize, b: &[u8]) {
        self.arg[at..at + b.len()].copy_from_slice(b);
    }

    pub fn extent(&self) -> ExtentArg {
        ExtentArg {
            offset: self.u64_at(0),
            length: self.u64_at(8),
            truncate_size: self.u64_at(16),
            truncate_seq: self.u32_at(24),
        }
    }
    pub fn with_extent(mut self, a: ExtentArg) -> Self {
        self.put(0, &a.offset.to_le_bytes());
        self.put(8, &a.length.to_le_bytes());
        self.put(16, &a.truncate_size.to_le_bytes());
        self.put(24, &a.truncate_seq.to_le_bytes());
        self
    }

    /// An operation on `offset~length`.
    pub fn ranged(code: OpCode, offset: u64, length: u64) -> Self {
        Self::new(code).with_extent(ExtentArg {
            offset,
            length,
            ..Default::default()
        })
    }

    pub fn xattr(&self) -> XattrArg {
        XattrArg {
            name_len: self.u32_at(0),
            value_len: self.u32_at(4),
            cmp_op: self.u8_at(8),
            cmp_mode: self.u8_at(9),
        }
    }
    /// An operation on an attribute: name and value become the in-data.
    pub fn on_xattr(code: OpCode, name: &[u8], value: &[u8], cmp_op: u8, cmp_mode: u8) -> Self {
        let mut op = Self::new(code);
        op.put(0, &(name.len() as u32).to_le_bytes());
        op.put(4, &(value.len() as u32).to_le_bytes());
        op.put(8, &[cmp_op, cmp_mode]);
        op.with_data([name, value].concat())
    }

    /// Lengths of class name, method name and input.
    pub fn call(&self) -> (usize, usize, usize) {
        (
            self.u8_at(0) as usize,
            self.u8_at(1) as usize,
            self.u32_at(3) as usize,
        )
    }
    pub fn on_class(class: &str, method: &str, input: &[u8]) -> Self {
        let mut op = Self::new(crate::osd::code::CALL);
        op.put(0, &[class.len() as u8, method.len() as u8, 0]);
        op.put(3, &(input.len() as u32).to_le_bytes());
        op.with_data([class.as_bytes(), method.as_bytes(), input].concat())
    }

    pub fn pg_list(&self) -> PgListArg {
        PgListArg {
            count: self.u64_at(0),
            start_epoch: self.u32_at(8),
        }
    }
    pub fn with_pg_list(mut self, a: PgListArg) -> Self {
        self.put(0, &a.count.to_le_bytes());
        self.put(8, &a.start_epoch.to_le_bytes());
        self
    }

    /// Snapshot of ROLLBACK; also the cookie of NOTIFY: the first 8 bytes.
    pub fn first_u64(&self) -> u64 {
        self.u64_at(0)
    }
    pub fn with_first_u64(mut self, v: u64) -> Self {
        self.put(0, &v.to_le_bytes());
        self
    }

    pub fn tmap2omap_flags(&self) -> u8 {
        self.u8_at(0)
    }
    pub fn with_tmap2omap_flags(mut self, v: u8) -> Self {
        self.put(0, &[v]);
        self
    }

    /// Version of ASSERT_VER.
    pub fn assert_ver(&self) -> u64 {
        self.u64_at(8)
    }
    pub fn with_assert_ver(mut self, v: u64) -> Self {
        self.put(8, &v.to_le_bytes());
        self
    }

    pub fn watch(&self) -> WatchArg {
        WatchArg {
            cookie: self.u64_at(0),
            ver: self.u64_at(8),
            op: self.u8_at(16),
            gen_: self.u32_at(17),
            timeout: self.u32_at(21),
        }
    }
    pub fn with_watch(mut self, a: WatchArg) -> Self {
        self.put(0, &a.cookie.to_le_bytes());
        self.put(8, &a.ver.to_le_bytes());
        self.put(16, &[a.op]);
        self.put(17, &a.gen_.to_le_bytes());
        self.put(21, &a.timeout.to_le_bytes());
        self
    }

    pub fn alloc_hint(&self) -> AllocHintArg {
        AllocHintArg {
            object_size: self.u64_at(0),
            write_size: self.u64_at(8),
            flags: self.u32_at(16),
        }
    }

    pub fn write_same(&self) -> WriteSameArg {
        WriteSameArg {
            offset: self.u64_at(0),
            length: self.u64_at(8),
            data_length: self.u64_at(16),
        }
    }
    pub fn with_write_same(mut self, a: WriteSameArg) -> Self {
        self.put(0, &a.offset.to_le_bytes());
        self.put(8, &a.length.to_le_bytes());
        self.put(16, &a.data_length.to_le_bytes());
        self
    }

    pub fn checksum(&self) -> ChecksumArg {
        ChecksumArg {
            offset: self.u64_at(0),
            length: self.u64_at(8),
            chunk_size: self.u32_at(16),
            kind: self.u8_at(20),
        }
    }
    pub fn with_checksum(mut self, a: ChecksumArg) -> Self {
        self.put(0, &a.offset.to_le_bytes());
        self.put(8, &a.length.to_le_bytes());
        self.put(16, &a.chunk_size.to_le_bytes());
        self.put(20, &[a.kind]);
        self
    }

    pub fn copy_from(&self) -> CopyFromArg {
        CopyFromArg {
            snap: self.u64_at(0),
            version: self.u64_at(8),
            flags: self.u8_at(16),
        }
    }
    pub fn with_copy_from(mut self, a: CopyFromArg) -> Self {
        self.put(0, &a.snap.to_le_bytes());
        self.put(8, &a.version.to_le_bytes());
        self.put(16, &[a.flags]);
        self
    }

    /// The packed form with `payload` as its last field.
    pub(super) fn encode_head(code: OpCode, flags: u32, arg: &[u8; ARG], payload: usize, w: &mut Writer) {
        w.u16(code.0);
        w.u32(flags);
        w.raw(arg);
        w.u32(payload as u32);
    }

    /// Reads the packed form; the in-data, `payload` bytes, comes later.
    pub(super) fn decode_head(r: &mut Reader) -> Result<(Self, usize)> {
        let code = OpCode(r.u16()?);
        let flags = r.u32()?;
        let arg = r.array()?;
        let payload = r.u32()? as usize;
        Ok((
            Self {
                code,
                flags,
                arg,
                indata: Bytes::new(),
            },
            payload,
        ))
    }
}
