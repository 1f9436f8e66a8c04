//! Writing data, creating and deleting (docs/protocol/ceph/04-osd.md, 9.2). The primitives at the end are what class
//! methods use, too.

use crate::exec::limits::OBJECT_SIZE_MAX;
use crate::exec::result::{Fail, OpResult, done};
use crate::exec::run::Exec;
use crate::exec::work::{Change, Effect, XattrSizes};
use crate::state::object::ObjectState;
use crate::state::object_info::{AllocHint, ObjectInfo, key_of};
use bytes::Bytes;
use denc::Reader;
use messages::osd::{ExtentArg, OsdOp, op_flag};
use types::{Errno, Op};

/// What WRITESAME repeats is laid out up to about this, and written as often as needed.
const REPEATED_BYTES: u64 = 1 << 20;

fn fits(offset: u64, len: u64) -> Result<(), Fail> {
    if offset >= OBJECT_SIZE_MAX || len > OBJECT_SIZE_MAX || offset + len > OBJECT_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    Ok(())
}

impl Exec<'_> {
    /// An erasure-coded pool without overwrites takes whole stripes at the end only.
    fn erasure_append_only(&self, offset: u64) -> Result<(), Fail> {
        let stripe = u64::from(self.req.pool.stripe_width.max(1));
        let at_end = offset == self.work.new.size && offset.is_multiple_of(stripe);
        if self.req.pool.erasure && !self.req.pool.ec_overwrites && !at_end {
            return Err(Errno::EOPNOTSUPP.into());
        }
        Ok(())
    }

    fn erasure_no_overwrite(&self) -> Result<(), Fail> {
        if self.req.pool.erasure && !self.req.pool.ec_overwrites && self.work.new.exists {
            return Err(Errno::EOPNOTSUPP.into());
        }
        Ok(())
    }

    pub fn write_op(&mut self, op: &OsdOp) -> OpResult {
        let mut a = op.extent();
        if a.length != op.indata.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        fits(a.offset, a.length)?;
        self.erasure_append_only(a.offset)?;
        if (a.truncate_seq, a.truncate_size) == (1, u64::MAX) {
            (a.truncate_seq, a.truncate_size) = (0, 0);
        }
        let len = self.apply_truncate_pair(&a)?;
        self.write(a.offset, op.indata.slice(..len as usize));
        done()
    }

    /// The truncate rule of cephfs writes; how much of the write remains.
    fn apply_truncate_pair(&mut self, a: &ExtentArg) -> Result<u64, Fail> {
        let known = self.work.new.info.truncate_seq;
        if a.truncate_seq > known {
            if self.work.new.exists && self.work.new.size != a.truncate_size {
                if a.truncate_size > OBJECT_SIZE_MAX {
                    return Err(Errno::EFBIG.into());
                }
                self.truncate(a.truncate_size);
            }
            self.ensure_exists();
            self.work.new.info.truncate_seq = a.truncate_seq;
            self.work.new.info.truncate_size = a.truncate_size;
        } else if a.truncate_seq < known && a.offset + a.length > self.work.new.size {
            return Ok(self.work.new.size.saturating_sub(a.offset));
        }
        Ok(a.length)
    }

    pub fn write_full_op(&mut self, op: &OsdOp) -> OpResult {
        fits(0, op.indata.len() as u64)?;
        self.write_full(op.indata.clone());
        done()
    }

    pub fn append(&mut self, op: &OsdOp) -> OpResult {
        let offset = self.work.new.size;
        if offset + op.indata.len() as u64 > OBJECT_SIZE_MAX {
            return Err(Errno::EFBIG.into());
        }
        self.erasure_append_only(offset)?;
        self.write(offset, op.indata.clone());
        done()
    }

    pub fn write_same(&mut self, op: &OsdOp) -> OpResult {
        let a = op.write_same();
        if a.data_length == 0
            || a.data_length != op.indata.len() as u64
            || !a.length.is_multiple_of(a.data_length)
        {
            return Err(Errno::EINVAL.into());
        }
        fits(a.offset, a.length)?;
        self.erasure_append_only(a.offset)?;
        if a.length == 0 {
            self.write(a.offset, Bytes::new());
            return done();
        }
        // One piece of memory for all of it.
        let times = (REPEATED_BYTES / a.data_length)
            .max(1)
            .min(a.length / a.data_length);
        let piece = Bytes::from(op.indata.repeat(times as usize));
        let mut at = 0;
        while at < a.length {
            let len = (a.length - at).min(piece.len() as u64);
            self.write(a.offset + at, piece.slice(..len as usize));
            at += len;
        }
        done()
    }

    pub fn zero_op(&mut self, op: &OsdOp) -> OpResult {
        let a = op.extent();
        fits(a.offset, 0)?;
        self.erasure_no_overwrite()?;
        let size = self.work.new.size;
        if !self.work.new.exists || a.length == 0 || a.offset >= size {
            return done();
        }
        fits(a.offset, a.length)?;
        if a.offset + a.length >= size {
            self.truncate(a.offset);
            return done();
        }
        self.work.txn.push(Op::Zero {
            oid: self.req.head.clone(),
            offset: a.offset,
            len: a.length,
        });
        self.work.modified.insert(a.offset, a.offset + a.length);
        self.changed();
        done()
    }

    pub fn truncate_op(&mut self, op: &OsdOp) -> OpResult {
        let size = op.extent().offset;
        fits(size, 0)?;
        self.erasure_no_overwrite()?;
        if self.work.new.exists {
            self.truncate(size);
        }
        done()
    }

    pub fn trim_truncate(&mut self, op: &OsdOp) -> OpResult {
        let a = op.extent();
        self.erasure_no_overwrite()?;
        if self.work.new.exists && a.truncate_seq > self.work.new.info.truncate_seq {
            fits(a.truncate_size, 0)?;
            self.truncate(a.truncate_size);
            self.work.new.info.truncate_seq = a.truncate_seq;
            self.work.new.info.truncate_size = a.truncate_size;
        }
        done()
    }

    pub fn create_op(&mut self, op: &OsdOp) -> OpResult {
        if !op.indata.is_empty() {
            // The category of old clients: checked, not kept.
            Reader::new(op.indata.clone()).blob()?;
        }
        self.create(op.flags & op_flag::EXCL != 0)?;
        done()
    }

    pub fn delete_op(&mut self) -> OpResult {
        self.must_exist()?;
        self.remove();
        done()
    }

    pub fn set_alloc_hint(&mut self, op: &OsdOp) -> OpResult {
        let a = op.alloc_hint();
        self.ensure_exists();
        self.work.new.info.alloc_hint = Some(AllocHint {
            object_size: a.object_size,
            write_size: a.write_size,
            flags: a.flags,
        });
        self.changed();
        done()
    }

    // Primitives: limits are checked, nothing fails.

    pub fn changed(&mut self) {
        self.work.change = Change::Content;
    }

    /// Marks the object as existing; `true` if it did not. The store may still have to create it.
    fn begin_existence(&mut self) -> bool {
        self.changed();
        let new = &mut self.work.new;
        if new.exists {
            return false;
        }
        new.exists = true;
        new.size = 0;
        new.info = ObjectInfo {
            version: new.info.version,
            ..ObjectInfo::default()
        };
        true
    }

    /// Creates the object if it does not exist.
    pub fn ensure_exists(&mut self) {
        if self.begin_existence() && !self.work.new.physical {
            self.work.new.physical = true;
            self.work.txn.push(Op::Touch {
                oid: self.req.head.clone(),
            });
        }
    }

    pub fn create(&mut self, exclusive: bool) -> Result<(), Fail> {
        if exclusive && self.work.new.exists {
            return Err(Errno::EEXIST.into());
        }
        self.ensure_exists();
        Ok(())
    }

    pub fn write(&mut self, offset: u64, data: Bytes) {
        if data.is_empty() {
            self.ensure_exists();
            if offset > self.work.new.size {
                self.truncate(offset);
            }
            return;
        }
        self.begin_existence();
        let new = &mut self.work.new;
        new.physical = true;
        let end = offset + data.len() as u64;
        new.size = new.size.max(end);
        self.work.modified.insert(offset, end);
        self.work.write_bytes += data.len() as u64;
        self.work.txn.push(Op::Write {
            oid: self.req.head.clone(),
            offset,
            data,
        });
    }

    pub fn write_full(&mut self, data: Bytes) {
        let (size, len) = (self.work.new.size, data.len() as u64);
        self.work.modified.insert(0, size);
        self.write(0, data);
        if size > len {
            self.truncate(len);
        }
    }

    pub fn truncate(&mut self, size: u64) {
        let new = &mut self.work.new;
        self.work.modified.insert(size, new.size);
        new.size = size;
        self.work.txn.push(Op::Truncate {
            oid: self.req.head.clone(),
            size,
        });
        self.changed();
    }

    /// Takes the object away with its watches. Its snapset stays: the PG decides whether a whiteout does.
    pub fn remove(&mut self) {
        self.changed();
        self.work.modified.insert(0, self.work.new.size);
        if self.work.new.physical {
            self.work.txn.push(Op::Remove {
                oid: self.req.head.clone(),
            });
        }
        let gone: Vec<_> = self.work.new.info.watchers.iter().map(key_of).collect();
        if !gone.is_empty() {
            self.effects.push(Effect::Disconnect(gone));
        }
        let new = &mut self.work.new;
        *new = ObjectState {
            snapset: new.snapset.clone(),
            last_write: new.last_write,
            ..ObjectState::default()
        };
        self.work.xattrs = Some(XattrSizes::new());
    }

    /// What class methods may write: the same limits as the operations'.
    pub fn checked_write(&mut self, offset: u64, data: Bytes) -> Result<(), Fail> {
        fits(offset, data.len() as u64)?;
        self.erasure_append_only(offset)?;
        self.write(offset, data);
        Ok(())
    }

    pub fn checked_write_full(&mut self, data: Bytes) -> Result<(), Fail> {
        fits(0, data.len() as u64)?;
        self.write_full(data);
        Ok(())
    }

    pub fn checked_truncate(&mut self, size: u64) -> Result<(), Fail> {
        fits(size, 0)?;
        self.erasure_no_overwrite()?;
        if self.work.new.exists {
            self.truncate(size);
        }
        Ok(())
    }
}
