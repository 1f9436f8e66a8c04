//! Running the operations of a message one after the other.

use crate::exec::cost::{Cost, gives_more};
use crate::exec::gathered::{Extent, Form, Gathered, Read};
use crate::exec::known::Known;
use crate::exec::plan::Shape;
use crate::exec::request::{Missing, Outcome, Request, Results};
use crate::exec::result::{Fail, OpResult, Ran, done};
use crate::exec::work::{Effect, Mark, Note, Work};
use bytes::Bytes;
use messages::osd::{OsdOp, op_flag};
use std::borrow::Cow;
use types::Errno;

/// The execution of a message: its operations, by what they work on, are methods of this in [`crate::exec::ops`].
pub(crate) struct Exec<'a> {
    pub req: &'a Request<'a>,
    pub known: &'a mut dyn Known,
    /// Unpredictable numbers.
    pub random: &'a mut dyn FnMut() -> u64,
    gathered: &'a Gathered,
    /// Where the next read is looked for first.
    next_read: usize,
    missing: Option<Missing>,
    pub work: Work,
    pub cost: Cost,
    pub effects: Vec<Effect>,
    pub notes: Vec<Note>,
    pub notify_id: u32,
    pub read_bytes: u64,
    /// Serials that class methods were given.
    pub serials: u32,
}

/// Executes the message with what its plan, and executions before, have asked for. `cost` is the plan's.
pub(crate) fn execute<'a>(
    req: &'a Request<'a>,
    cost: Cost,
    gathered: &'a Gathered,
    known: &'a mut dyn Known,
    random: &'a mut dyn FnMut() -> u64,
) -> Result<Outcome, Missing> {
    let mut exec = Exec {
        req,
        known,
        random,
        gathered,
        next_read: 0,
        missing: None,
        work: Work::on(req.old.clone()),
        cost,
        effects: Vec::new(),
        notes: Vec::new(),
        notify_id: req.notify_id,
        read_bytes: 0,
        serials: 0,
    };
    let ran = exec.run();
    match exec.missing {
        Some(missing) => Err(missing),
        None => Ok(Outcome {
            work: exec.work,
            results: Results {
                ran,
                effects: exec.effects,
                notes: exec.notes,
                notify_id: exec.notify_id,
                read_bytes: exec.read_bytes,
            },
        }),
    }
}

impl<'a> Exec<'a> {
    /// Ends early where something is missing.
    fn run(&mut self) -> Ran {
        let mut ran = Ran::default();
        let message = self.req.message;
        for (index, op) in message.ops.iter().enumerate() {
            let may_fail = op.flags & op_flag::FAILOK != 0;
            if may_fail {
                let _ = self.cost.charge(Mark::bytes(&self.work), 0);
            }
            let before = may_fail.then(|| Mark::of(&self.work, self.effects.len()));
            let result = self.one(index, op);
            if self.missing.is_some() {
                return ran;
            }
            if let (Ok(d), true) = (&result, gives_more(op)) {
                let _ = self.cost.charge(d.out.len() as u64, 0);
            }
            if self.cost.exceeded {
                // Not what was read up to here: that is as much as a message may give.
                return Ran {
                    results: Vec::new(),
                    result: Errno::E2BIG.code(),
                };
            }
            match (result, before) {
                (Ok(d), _) => {
                    ran.result = d.rval;
                    ran.results.push((d.rval, d.out));
                }
                (Err(f), Some(mark)) if !never_swallowed(f.rval) => {
                    mark.back(&mut self.work, &mut self.effects);
                    ran.result = 0;
                    ran.results.push((f.rval, f.out));
                }
                (Err(f), _) => {
                    ran.result = f.rval;
                    ran.results.push((f.rval, f.out));
                    break;
                }
            }
        }
        ran
    }

    fn miss(&mut self, read: Read) -> Fail {
        self.missing.get_or_insert(Missing(read));
        Errno::EAGAIN.into()
    }

    /// Bytes that were gathered.
    pub fn bytes(&mut self, offset: u64, len: u64) -> Result<Bytes, Fail> {
        match self.gathered.bytes(&mut self.next_read, offset, len) {
            Some(found) => Ok(found?),
            None => Err(self.miss(Read::bytes(offset, len))),
        }
    }

    /// What the plan says that the operation reads.
    pub fn planned(&self, op: &OsdOp) -> Option<Read> {
        Shape::of(self.req.old, self.req.pool).read_of(op)
    }

    /// Bytes that an operation reads; counted.
    pub fn bytes_of(&mut self, op: &OsdOp) -> Result<Bytes, Fail> {
        let Some(read) = self.planned(op) else {
            return Ok(Bytes::new());
        };
        let data = self.bytes(read.offset, read.len)?;
        self.read_bytes += data.len() as u64;
        Ok(data)
    }

    /// The extents that an operation reads.
    pub fn extents_of(&mut self, op: &OsdOp) -> Result<Cow<'a, [Extent]>, Fail> {
        let Some(read) = self.planned(op) else {
            return Ok(Cow::Owned(Vec::new()));
        };
        if read.form == Form::Bytes {
            let bytes = self.bytes(read.offset, read.len)?;
            return Ok(Cow::Owned(vec![Extent {
                offset: read.offset,
                len: read.len,
                pieces: vec![bytes],
            }]));
        }
        let gathered = self.gathered;
        match gathered.extents(&mut self.next_read, read) {
            Some(found) => Ok(Cow::Borrowed(found?)),
            None => Err(self.miss(read)),
        }
    }

    /// Runs one operation; the table of what there is.
    fn one(&mut self, index: usize, op: &OsdOp) -> OpResult {
        use messages::osd::code::*;
        match op.code {
            READ => self.read(op),
            SYNC_READ | TMAPGET | MAPEXT if self.req.pool.erasure => Err(Errno::EOPNOTSUPP.into()),
            SYNC_READ => self.read(op),
            TMAPGET => self.read(op),
            SPARSE_READ => self.sparse_read(op),
            MAPEXT => self.map_extents(op),
            STAT => self.stat(),
            CHECKSUM => self.checksum(op),
            CMPEXT => self.compare_extent(op),
            ASSERT_VER => self.assert_version(op),
            ISDIRTY => Ok(Bytes::from_static(&[1]).into()),
            GETXATTR => self.get_xattr(op),
            GETXATTRS => self.get_xattrs(),
            CMPXATTR => self.compare_xattr(op),
            OMAPGETKEYS => self.omap_keys(op),
            OMAPGETVALS => self.omap_values(op),
            OMAPGETHEADER => self.omap_header_op(),
            OMAPGETVALSBYKEYS => self.omap_by_keys(op),
            OMAP_CMP => self.omap_compare(op),
            LIST_WATCHERS => self.list_watchers(),
            LIST_SNAPS => self.list_snaps(),
            NOTIFY => self.notify(op),
            NOTIFY_ACK => self.notify_ack(op),
            CALL => self.call(op),
            _ => self.one_write(index, op),
        }
    }

    fn one_write(&mut self, index: usize, op: &OsdOp) -> OpResult {
        use messages::osd::code::*;
        match op.code {
            WRITE => self.write_op(op),
            WRITEFULL => self.write_full_op(op),
            APPEND => self.append(op),
            WRITESAME => self.write_same(op),
            ZERO => self.zero_op(op),
            TRUNCATE => self.truncate_op(op),
            TRIMTRUNC => self.trim_truncate(op),
            CREATE => self.create_op(op),
            DELETE => self.delete_op(),
            SETALLOCHINT => self.set_alloc_hint(op),
            STARTSYNC | UNDIRTY => done(),
            SETXATTR => self.set_xattr_op(op),
            RMXATTR => self.remove_xattr_op(op),
            OMAPSETVALS | OMAPSETHEADER | OMAPCLEAR | OMAPRMKEYS | OMAPRMKEYRANGE
                if self.req.pool.erasure =>
            {
                Err(Errno::EOPNOTSUPP.into())
            }
            OMAPSETVALS => self.omap_set_op(op),
            OMAPSETHEADER => self.omap_set_header_op(op),
            OMAPCLEAR => self.omap_clear(),
            OMAPRMKEYS => self.omap_remove_op(op),
            OMAPRMKEYRANGE => self.omap_remove_range(op),
            ROLLBACK => self.rollback(op),
            TMAPPUT => self.tmap_put(op),
            TMAPUP => self.tmap_update(op),
            TMAP2OMAP => self.tmap_to_omap(op),
            WATCH => self.watch(op),
            COPY_FROM | COPY_FROM2 => self.copy_from(index, op),
            _ => Err(self.refusal(op).into()),
        }
    }

    /// Operations of cache tiers and manifests (9.8): refused as 16.2 does, or as not supported.
    fn refusal(&self, op: &OsdOp) -> Errno {
        use messages::osd::code::*;
        match op.code {
            CACHE_PIN | CACHE_UNPIN | CACHE_FLUSH | CACHE_EVICT | CACHE_TRY_FLUSH => Errno::EINVAL,
            UNSET_MANIFEST if !self.work.new.exists => Errno::ENOENT,
            _ => Errno::EOPNOTSUPP,
        }
    }

    /// For reads inside a write message; a read message does not come this far on a missing object.
    pub fn must_have_existed(&self) -> Result<(), Fail> {
        if self.req.old.exists {
            Ok(())
        } else {
            Err(Errno::ENOENT.into())
        }
    }

    pub fn must_exist(&self) -> Result<(), Fail> {
        if self.work.new.exists {
            Ok(())
        } else {
            Err(Errno::ENOENT.into())
        }
    }
}

/// The client would send the operation again for ever, or wait: these codes stop a message even under FAILOK.
fn never_swallowed(rval: i32) -> bool {
    rval == Errno::EAGAIN.code() || rval == Errno::EINPROGRESS.code()
}
