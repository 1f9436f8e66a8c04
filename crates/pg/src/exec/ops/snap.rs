//! ROLLBACK and LIST_SNAPS (docs/protocol/ceph/04-osd.md, 11.5, 11.6). Cloning on write: [`crate::exec::finish`].

use crate::exec::cost::{CLONED_ROWS_MAX, STEPS_MAX, rows_to_clone, shared_blocks};
use crate::exec::result::{OpResult, done};
use crate::exec::run::Exec;
use crate::state::intervals::Intervals;
use crate::state::snapset::Resolved;
use messages::osd::OsdOp;
use types::{Errno, ObjectId, Op};

impl Exec<'_> {
    pub fn list_snaps(&mut self) -> OpResult {
        let head = self.req.old.exists.then_some(self.req.old.size);
        Ok(self.req.old.snapset.list(head).into())
    }

    pub fn rollback(&mut self, op: &OsdOp) -> OpResult {
        match self.work.new.snapset.resolve(op.first_u64()) {
            Resolved::Clone(id) => self.rollback_to(id),
            Resolved::Head => {
                if self.work.new.exists {
                    self.changed();
                }
                done()
            }
            Resolved::Absent if !self.work.new.exists => done(),
            Resolved::Absent if !self.work.new.info.watchers.is_empty() => Err(Errno::EBUSY.into()),
            Resolved::Absent => {
                self.remove();
                done()
            }
        }
    }

    fn rollback_to(&mut self, clone: u64) -> OpResult {
        let src = ObjectId {
            shard: self.req.head.shard,
            object: self.req.head.object.with_snap(clone),
        };
        let then = self.known.object(&src)?;
        if !then.physical {
            tracing::error!(
                "{}: the snapset lists a clone that the store does not have",
                src.object
            );
            return Err(Errno::EIO.into());
        }
        let rows = rows_to_clone(&src, &then, self.known)?;
        // A fraction of what a row costs that comes in: at most one each message, if they are many.
        let steps = shared_blocks(then.size) + rows * STEPS_MAX / CLONED_ROWS_MAX / 2;
        self.cost.charge(0, steps)?;
        self.work.xattrs = Some(self.user_sizes(&src)?);
        let new = &mut self.work.new;
        let all = Intervals::range(0, new.size.max(then.size));
        // Nothing may be taken for common that an earlier operation of this message has changed.
        let common = new.snapset.common_with_head(clone).minus(&self.work.modified);
        self.work.modified.union(&all.minus(&common));
        new.physical = true;
        new.exists = true;
        new.size = then.size;
        new.info.whiteout = false;
        new.info.omap = then.info.omap;
        new.info.truncate_seq = then.info.truncate_seq;
        new.info.truncate_size = then.info.truncate_size;
        new.info.alloc_hint = then.info.alloc_hint;
        self.work.snapset_lost = true;
        self.work.txn.push(Op::Clone {
            src,
            dst: self.req.head.clone(),
        });
        self.changed();
        done()
    }
}
