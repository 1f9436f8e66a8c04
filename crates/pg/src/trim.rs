//! Removing the clones of removed snapshots: a walk over the PG's objects.
//!
//! A pass walks all objects of the PG in small steps, one per tick, and takes every removed snapshot out of
//! every snapset it meets; then it notes these snapshots as trimmed. It keeps its cursor in memory only: after
//! a restart the pass begins again, which costs time and changes nothing. A PG without clones has nothing to
//! walk for.

use crate::Pg;
use crate::api::Context;
use crate::count::{RETRY_REST, STEP_REST};
use crate::pool::SnapIntervals;
use crate::state::object::ObjectState;
use crate::state::object_info::SNAPSET_ATTR;
use crate::state::range::behind;
use bytes::Bytes;
use denc::Encode;
use std::sync::Arc;
use std::time::Duration;
use types::{HObject, NOSNAP, Op, Transaction};

/// Objects looked at in one step.
const STEP_OBJECTS: usize = 128;

#[derive(Debug)]
pub(crate) struct Trim {
    snaps: SnapIntervals,
    cursor: HObject,
    pub next_at: Duration,
}

impl Pg {
    /// Takes over what the map lists as removed, and starts a pass if there is something new.
    pub(crate) fn note_removed_snaps(&mut self, now: Duration) {
        self.state.meta.removed.union(&self.state.pool.removed_snaps);
        if self.trim.is_some() {
            return;
        }
        let snaps = self.state.meta.removed.minus(&self.state.meta.trimmed);
        if !snaps.is_empty() {
            self.trim = Some(Trim {
                snaps,
                cursor: self.state.range.start_cursor(self.state.pool.id).with_snap(0),
                next_at: now,
            });
        }
    }

    pub(crate) fn trim_step(&mut self, ctx: &mut Context<'_>) {
        if self.count.is_some() || self.trim.as_ref().is_none_or(|t| t.next_at > ctx.now) {
            return;
        }
        let Some(mut trim) = self.trim.take() else { return };
        let more = match self.state.meta.stats.clones {
            0 => Ok(false),
            _ => self.trim_some(&mut trim, ctx),
        };
        match more {
            Ok(true) => {
                trim.next_at = ctx.now + STEP_REST;
                self.trim = Some(trim);
            }
            Ok(false) => self.trim_done(trim, ctx),
            Err(()) => {
                trim.next_at = ctx.now + RETRY_REST;
                self.trim = Some(trim);
            }
        }
    }

    /// One step; whether there is more to do.
    fn trim_some(&mut self, trim: &mut Trim, ctx: &mut Context<'_>) -> Result<bool, ()> {
        let found = self
            .state
            .list_objects(&trim.cursor, STEP_OBJECTS, ctx.store)
            .map_err(|e| tracing::error!("pg {}: trimming snapshots: {e}", self.state.id))?;
        let Some(last) = found.last() else {
            return Ok(false);
        };
        let end = behind(&last.object);
        // An object's clones come right before its head: only heads behind clones need a look.
        let mut head_at: Option<HObject> = None;
        for oid in &found {
            if oid.object.snap < NOSNAP {
                let head = oid.object.head();
                if head_at.as_ref() != Some(&head) {
                    self.trim_object(&head, &trim.snaps, ctx)?;
                    head_at = Some(head);
                }
            }
        }
        trim.cursor = end;
        Ok(true)
    }

    fn trim_object(
        &mut self,
        head: &HObject,
        snaps: &SnapIntervals,
        ctx: &mut Context<'_>,
    ) -> Result<(), ()> {
        let oid = self.state.object_id(head.clone());
        let old = self
            .take(&oid, ctx)
            .map_err(|e| tracing::error!("pg {}: trimming snapshots: {e}", self.state.id))?;
        let Some((set, gone)) = old.snapset.trim(snaps) else {
            self.put_back(head.clone(), old);
            return Ok(());
        };
        let mut ops: Vec<Op> = gone
            .iter()
            .map(|id| Op::Remove {
                oid: self.state.object_id(head.with_snap(*id)),
            })
            .collect();
        let mut new = (*old).clone();
        if set.clones.is_empty() && !old.exists {
            ops.push(Op::Remove { oid: oid.clone() });
            new = ObjectState::default();
        } else {
            ops.push(Op::SetAttrs {
                oid: oid.clone(),
                attrs: vec![(Bytes::from_static(SNAPSET_ATTR), set.to_bytes())],
            });
            new.snapset = Arc::new(set);
        }
        for id in gone {
            self.front.forget(&head.with_snap(id));
        }
        self.write_internal(&oid, old, new, ops, ctx)
            .map(|_| ())
            .ok_or(())
    }

    /// The pass is over: remember it, and look for snapshots removed meanwhile.
    fn trim_done(&mut self, trim: Trim, ctx: &mut Context<'_>) {
        let before = self.state.meta.trimmed.clone();
        self.state.meta.trimmed.union(&trim.snaps);
        let mut txn = Transaction::new(self.state.id);
        txn.ops.push(self.state.meta_op());
        if self.submit_txn(txn, None, ctx).is_err() {
            self.state.meta.trimmed = before;
            self.trim = Some(Trim {
                next_at: ctx.now + RETRY_REST,
                ..trim
            });
            return;
        }
        self.note_removed_snaps(ctx.now);
    }
}
