//! Compound operations: steps on one object, executed in order and together
//! (docs/protocol/ceph/04-osd.md, sections 3, 8 and 9).
//!
//! Invariants: an [`Operation`] holds at most [`STEPS_MAX`] steps and [`DATA_MAX`] bytes, or says so when it is submitted.
//! The steps' numbers are those of the outcome's.
//!
//! Not here: where it goes (`target`), when it is sent (`inflight`), what outputs mean (`outcome`).

pub use super::outcome::{Outcome, Served, Step};
use crate::{Error, Result};
use bytes::Bytes;
use denc::{Encode, Writer};
use messages::osd::{
    ChecksumArg, CopyFromArg, ExtentArg, OpClass, OsdOp, WatchArg, WriteSameArg, code, flag, op_flag,
};
use std::collections::{BTreeMap, BTreeSet};
use types::{Errno, ObjectLocator, PoolId, Utime};

/// More are refused: far beyond what a caller means.
pub const STEPS_MAX: usize = 4096;
/// What an OSD takes in one message by default (`osd_max_write_size`).
pub const DATA_MAX: usize = 90 << 20;

/// How a stored value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cmp {
    Eq = 1,
    Ne = 2,
    Gt = 3,
    Gte = 4,
    Lt = 5,
    Lte = 6,
}

const CMP_STRING: u8 = 1;
const CMP_U64: u8 = 2;

/// Of CHECKSUM; the number is that of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    XxHash32(u32),
    XxHash64(u64),
    Crc32c(u32),
}

/// What WATCH does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WatchOp {
    Unwatch = 0,
    Watch = 3,
    Reconnect = 5,
    Ping = 7,
}

#[derive(Debug, Clone, Default)]
pub struct Operation {
    pub(crate) steps: Vec<OsdOp>,
    pub(crate) flags: u32,
    pub(crate) mtime: Option<Utime>,
    /// The first step that could not be built.
    broken: Option<Error>,
}

impl Operation {
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of steps, which is the number of the next one.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub fn steps(&self) -> &[OsdOp] {
        &self.steps
    }

    /// A step that has no method of its own.
    pub fn raw(mut self, step: OsdOp) -> Self {
        self.steps.push(step);
        self
    }

    /// The last step may fail without the rest.
    pub fn fail_ok(self) -> Self {
        self.step_flags(op_flag::FAILOK)
    }

    /// Flags of the last step, hints among them.
    pub fn step_flags(mut self, flags: u32) -> Self {
        if let Some(last) = self.steps.last_mut() {
            last.flags |= flags;
        }
        self
    }

    /// Flags of the message ([`messages::osd::flag`]).
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags |= flags;
        self
    }

    /// The object's modification time, in place of now.
    pub fn mtime(mut self, at: Utime) -> Self {
        self.mtime = Some(at);
        self
    }

    fn refuse(mut self, errno: Errno, what: &'static str) -> Self {
        self.broken.get_or_insert(Error::invalid(errno, what));
        self
    }

    // Reading data

    /// `length` 0: to the object's end.
    pub fn read(self, offset: u64, length: u64) -> Self {
        self.raw(OsdOp::ranged(code::READ, offset, length))
    }

    pub fn sparse_read(self, offset: u64, length: u64) -> Self {
        self.raw(OsdOp::ranged(code::SPARSE_READ, offset, length))
    }

    pub fn map_extents(self, offset: u64, length: u64) -> Self {
        self.raw(OsdOp::ranged(code::MAPEXT, offset, length))
    }

    pub fn stat(self) -> Self {
        self.raw(OsdOp::new(code::STAT))
    }

    /// The same step on the wire as [`Self::stat`]: the operation fails with ENOENT where there is no object.
    pub fn assert_exists(self) -> Self {
        self.stat()
    }

    pub fn assert_version(self, version: u64) -> Self {
        self.raw(OsdOp::new(code::ASSERT_VER).with_assert_ver(version))
    }

    /// One checksum per `chunk` bytes, 0: one over all. `length` 0 with `offset` 0: the whole object.
    pub fn checksum(self, kind: Checksum, offset: u64, length: u64, chunk: u32) -> Self {
        let (number, init) = match kind {
            Checksum::XxHash32(v) => (0, v.to_bytes()),
            Checksum::XxHash64(v) => (1, v.to_bytes()),
            Checksum::Crc32c(v) => (2, v.to_bytes()),
        };
        let arg = ChecksumArg {
            offset,
            length,
            chunk_size: chunk,
            kind: number,
        };
        self.raw(OsdOp::new(code::CHECKSUM).with_checksum(arg).with_data(init))
    }

    /// Fails at the first byte that differs; see [`Outcome::mismatch`].
    pub fn cmp_extent(self, offset: u64, expected: impl Into<Bytes>) -> Self {
        let expected = expected.into();
        self.raw(OsdOp::ranged(code::CMPEXT, offset, expected.len() as u64).with_data(expected))
    }

    // Writing data

    pub fn write(self, offset: u64, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.raw(OsdOp::ranged(code::WRITE, offset, data.len() as u64).with_data(data))
    }

    pub fn write_full(self, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.raw(OsdOp::ranged(code::WRITEFULL, 0, data.len() as u64).with_data(data))
    }

    pub fn append(self, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.raw(OsdOp::ranged(code::APPEND, 0, data.len() as u64).with_data(data))
    }

    /// `pattern` again and again over `length` bytes, which is a multiple of its length.
    pub fn write_same(self, offset: u64, length: u64, pattern: impl Into<Bytes>) -> Self {
        let pattern = pattern.into();
        let arg = WriteSameArg {
            offset,
            length,
            data_length: pattern.len() as u64,
        };
        self.raw(
            OsdOp::new(code::WRITESAME)
                .with_write_same(arg)
                .with_data(pattern),
        )
    }

    /// Of a length of 0 nothing is sent: some OSDs do not survive it.
    pub fn zero(self, offset: u64, length: u64) -> Self {
        match length {
            0 => self.refuse(Errno::EINVAL, "zeroing of no bytes"),
            _ => self.raw(OsdOp::ranged(code::ZERO, offset, length)),
        }
    }

    pub fn truncate(self, size: u64) -> Self {
        self.raw(OsdOp::ranged(code::TRUNCATE, size, 0))
    }

    /// The truncation of file systems: only if `seq` is above the object's.
    pub fn trim_truncate(self, size: u64, seq: u32) -> Self {
        let arg = ExtentArg {
            truncate_size: size,
            truncate_seq: seq,
            ..Default::default()
        };
        self.raw(OsdOp::new(code::TRIMTRUNC).with_extent(arg))
    }

    /// `exclusive`: fails with EEXIST where there is one.
    pub fn create(self, exclusive: bool) -> Self {
        let flags = if exclusive { op_flag::EXCL } else { 0 };
        self.raw(OsdOp::new(code::CREATE).with_flags(flags))
    }

    pub fn remove(self) -> Self {
        self.raw(OsdOp::new(code::DELETE))
    }

    /// Expected sizes in bytes, and flags of the hint (docs/protocol/ceph/04-osd.md, section 3). Never fails.
    pub fn alloc_hint(self, object_size: u64, write_size: u64, flags: u32) -> Self {
        let mut op = OsdOp::new(code::SETALLOCHINT).with_flags(op_flag::FAILOK);
        op.arg[0..8].copy_from_slice(&object_size.to_le_bytes());
        op.arg[8..16].copy_from_slice(&write_size.to_le_bytes());
        op.arg[16..20].copy_from_slice(&flags.to_le_bytes());
        self.raw(op)
    }

    /// Makes the object a copy of another. `version` 0: of whatever version it is.
    pub fn copy_from(self, from: &CopySource, version: u64) -> Self {
        let arg = CopyFromArg {
            snap: from.snap,
            version,
            flags: 0,
        };
        let mut w = Writer::new();
        w.blob(&from.oid);
        w.put(&ObjectLocator {
            pool: from.pool,
            key: from.key.clone(),
            nspace: from.nspace.clone(),
            hash: -1,
        });
        self.raw(
            OsdOp::new(code::COPY_FROM)
                .with_copy_from(arg)
                .with_data(w.finish()),
        )
    }

    pub fn rollback(self, snap: u64) -> Self {
        self.raw(OsdOp::new(code::ROLLBACK).with_first_u64(snap))
    }

    // Attributes

    pub fn get_xattr(self, name: &[u8]) -> Self {
        self.raw(OsdOp::on_xattr(code::GETXATTR, name, b"", 0, 0))
    }

    pub fn get_xattrs(self) -> Self {
        self.raw(OsdOp::new(code::GETXATTRS))
    }

    /// Changes a trivial map by these commands (docs/protocol/osd.md, Trivial maps).
    pub fn update_tmap(self, commands: impl Into<Bytes>) -> Self {
        self.raw(OsdOp::new(code::TMAPUP).with_data(commands))
            .flags(flag::WRITE)
    }

    pub fn set_xattr(self, name: &[u8], value: &[u8]) -> Self {
        self.raw(OsdOp::on_xattr(code::SETXATTR, name, value, 0, 0))
    }

    pub fn remove_xattr(self, name: &[u8]) -> Self {
        self.raw(OsdOp::on_xattr(code::RMXATTR, name, b"", 0, 0))
    }

    /// True if `operand cmp stored`, as byte strings; false fails the operation with ECANCELED.
    pub fn cmp_xattr(self, name: &[u8], cmp: Cmp, operand: &[u8]) -> Self {
        let op = OsdOp::on_xattr(code::CMPXATTR, name, operand, cmp as u8, CMP_STRING);
        self.raw(op)
    }

    /// As [`Self::cmp_xattr`], with the stored text read as a decimal number.
    pub fn cmp_xattr_u64(self, name: &[u8], cmp: Cmp, operand: u64) -> Self {
        let operand = operand.to_le_bytes();
        self.raw(OsdOp::on_xattr(
            code::CMPXATTR,
            name,
            &operand,
            cmp as u8,
            CMP_U64,
        ))
    }

    // Omap

    /// Keys above `after`, at most `max`: fewer may come, see [`Step::omap_keys`].
    pub fn omap_keys(self, after: &[u8], max: u64) -> Self {
        let mut w = Writer::new();
        w.blob(after);
        w.u64(max);
        self.raw(OsdOp::new(code::OMAPGETKEYS).with_data(w.finish()))
    }

    /// Keys above `after` that begin with `prefix`, with their values.
    pub fn omap_values(self, after: &[u8], prefix: &[u8], max: u64) -> Self {
        let mut w = Writer::new();
        w.blob(after);
        w.u64(max);
        w.blob(prefix);
        self.raw(OsdOp::new(code::OMAPGETVALS).with_data(w.finish()))
    }

    pub fn omap_values_by_keys(self, keys: &BTreeSet<Bytes>) -> Self {
        self.raw(OsdOp::new(code::OMAPGETVALSBYKEYS).with_data(keys.to_bytes()))
    }

    pub fn omap_header(self) -> Self {
        self.raw(OsdOp::new(code::OMAPGETHEADER))
    }

    pub fn set_omap(self, values: &BTreeMap<Bytes, Bytes>) -> Self {
        self.raw(OsdOp::new(code::OMAPSETVALS).with_data(values.to_bytes()))
    }

    pub fn set_omap_header(self, header: impl Into<Bytes>) -> Self {
        self.raw(OsdOp::new(code::OMAPSETHEADER).with_data(header))
    }

    pub fn remove_omap_keys(self, keys: &BTreeSet<Bytes>) -> Self {
        self.raw(OsdOp::new(code::OMAPRMKEYS).with_data(keys.to_bytes()))
    }

    /// Keys from `begin` on and below `end`.
    pub fn remove_omap_range(self, begin: &[u8], end: &[u8]) -> Self {
        let mut w = Writer::new();
        w.blob(begin);
        w.blob(end);
        self.raw(OsdOp::new(code::OMAPRMKEYRANGE).with_data(w.finish()))
    }

    /// Keys and header.
    pub fn clear_omap(self) -> Self {
        self.raw(OsdOp::new(code::OMAPCLEAR))
    }

    /// True if `stored cmp operand` for every key; only Eq, Gt and Lt. False fails the operation with ECANCELED.
    pub fn cmp_omap(self, expected: &BTreeMap<Bytes, (Bytes, Cmp)>) -> Self {
        if expected
            .values()
            .any(|(_, c)| !matches!(c, Cmp::Eq | Cmp::Gt | Cmp::Lt))
        {
            return self.refuse(Errno::EINVAL, "omap values compare with Eq, Gt and Lt only");
        }
        let mut w = Writer::new();
        w.u32(expected.len() as u32);
        for (key, (operand, cmp)) in expected {
            w.blob(key);
            w.blob(operand);
            w.i32(*cmp as i32);
        }
        self.raw(OsdOp::new(code::OMAP_CMP).with_data(w.finish()))
    }

    // The rest

    /// A method of a class. Whether it writes is the server's to know: `writes` decides how the message is sent, and a
    /// method that writes needs it.
    pub fn call(self, class: &str, method: &str, input: &[u8], writes: bool) -> Self {
        if class.len() > usize::from(u8::MAX) || method.len() > usize::from(u8::MAX) {
            return self.refuse(Errno::EINVAL, "names of classes and methods end at 255 bytes");
        }
        let way = if writes { flag::WRITE } else { flag::READ };
        self.raw(OsdOp::on_class(class, method, input)).flags(way)
    }

    /// To be asked with [`types::SNAPDIR`] as the snapshot, alone.
    pub fn list_snaps(self) -> Self {
        self.raw(OsdOp::new(code::LIST_SNAPS))
    }

    pub fn list_watchers(self) -> Self {
        self.raw(OsdOp::new(code::LIST_WATCHERS))
    }

    pub(crate) fn watch(self, what: WatchOp, cookie: u64, generation: u32, timeout: u32) -> Self {
        self.raw(OsdOp::new(code::WATCH).with_watch(WatchArg {
            cookie,
            ver: 0,
            op: what as u8,
            gen_: generation,
            timeout,
        }))
    }

    /// `timeout` in seconds.
    pub(crate) fn notify(self, cookie: u64, timeout: u32, payload: &[u8]) -> Self {
        let mut w = Writer::new();
        w.u32(1);
        w.u32(timeout);
        w.blob(payload);
        self.raw(
            OsdOp::new(code::NOTIFY)
                .with_first_u64(cookie)
                .with_data(w.finish()),
        )
    }

    pub(crate) fn notify_ack(self, notify_id: u64, cookie: u64, reply: &[u8]) -> Self {
        let mut w = Writer::new();
        w.u64(notify_id);
        w.u64(cookie);
        w.blob(reply);
        self.raw(OsdOp::new(code::NOTIFY_ACK).with_data(w.finish()))
    }

    /// True if anything in it writes: by the steps, and of a method by what its caller said.
    pub fn writes(&self) -> bool {
        let by_step = |op: &OsdOp| matches!(op.code.class(), OpClass::Write | OpClass::ReadWrite);
        self.flags & flag::WRITE != 0 || self.steps.iter().any(by_step)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if let Some(e) = &self.broken {
            return Err(e.clone());
        }
        if self.steps.len() > STEPS_MAX {
            return Err(Error::invalid(Errno::E2BIG, "too many steps"));
        }
        if self.data_len() > DATA_MAX {
            return Err(Error::invalid(Errno::EMSGSIZE, "too much data for one message"));
        }
        let whole = |n: u64| if n == 0 { READ_MAX } else { n };
        let read: u64 = self.reads().fold(0, |sum, n| sum.saturating_add(whole(n)));
        match read > READ_MAX {
            true => Err(Error::invalid(
                Errno::E2BIG,
                "reads of more than an object may hold",
            )),
            false => Ok(()),
        }
    }

    /// Lengths of what is read; 0: all.
    fn reads(&self) -> impl Iterator<Item = u64> {
        let of = |op: &OsdOp| matches!(op.code, code::READ | code::SPARSE_READ | code::SYNC_READ);
        self.steps
            .iter()
            .filter(move |op| of(op))
            .map(|op| op.extent().length)
    }

    pub(crate) fn data_len(&self) -> usize {
        self.steps.iter().map(|op| op.indata.len()).sum()
    }

    /// Bytes that it may hold here: what it brings, and what its reads may bring.
    pub(crate) fn cost(&self) -> usize {
        let out = |n| match n {
            0 => WHOLE_GUESS,
            n => n.min(READ_MAX) as usize,
        };
        self.data_len() + self.reads().map(out).sum::<usize>()
    }
}

/// What a read of a whole object counts, whose size is not known yet.
const WHOLE_GUESS: usize = 4 << 20;
/// No object is larger.
const READ_MAX: u64 = 128 << 20;

/// What a copy is made from.
#[derive(Debug, Clone)]
pub struct CopySource {
    pub pool: PoolId,
    pub nspace: Bytes,
    pub key: Bytes,
    pub oid: Bytes,
    /// [`types::NOSNAP`]: the head.
    pub snap: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_is_known_by_its_steps_and_by_its_caller() {
        for (op, want) in [
            (Operation::new().read(0, 1).stat(), false),
            (Operation::new().stat().remove(), true),
            (Operation::new().call("lock", "get_info", b"", false), false),
            (Operation::new().call("lock", "lock", b"", true), true),
            (Operation::new().watch(WatchOp::Ping, 1, 0, 0), true),
        ] {
            assert_eq!(op.writes(), want, "{op:?}");
        }
    }

    #[test]
    fn what_cannot_be_said_is_refused_before_it_is_sent() {
        let long = "x".repeat(256);
        for (op, want) in [
            (Operation::new().call(&long, "m", b"", false), Errno::EINVAL),
            (Operation::new().zero(0, 0), Errno::EINVAL),
            (
                Operation::new().cmp_omap(&BTreeMap::from([(Bytes::new(), (Bytes::new(), Cmp::Ne))])),
                Errno::EINVAL,
            ),
            (Operation::new().write(0, vec![0; DATA_MAX + 1]), Errno::EMSGSIZE),
            (Operation::new().read(0, 0).read(0, 1), Errno::E2BIG),
            (Operation::new().read(0, READ_MAX + 1), Errno::E2BIG),
        ] {
            assert_eq!(op.check().map_err(|e| e.errno()), Err(want));
        }
    }

    #[test]
    fn an_operation_costs_what_it_brings_and_what_it_reads() {
        assert_eq!(Operation::new().write(5, vec![0; 7]).read(0, 100).cost(), 107);
        assert_eq!(Operation::new().read(0, 0).cost(), WHOLE_GUESS);
        assert_eq!(Operation::new().read(0, u64::MAX).cost(), READ_MAX as usize);
    }
}
