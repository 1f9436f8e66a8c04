//! Taking a member's copy in place of the one here.
//!
//! Invariants: what comes touches the object that was asked for and nothing else, and is of the version that is known here;
//! what the log says was removed is not taken; it is one transaction, and is read again before anybody counts on it.

use crate::backend::replicated::Replicated;
use crate::backend::{Anew, Lent};
use crate::state::log::{EntryKind, LogEntry};
use crate::state::object::ObjectState;
use crate::state::object_info::{INFO_ATTR, ObjectInfo};
use crate::state::pg::PgState;
use crate::store::IoError;
use denc::Decode;
use types::{EVersion, HObject, ObjectId, Op, Transaction};

/// Data read at a time to look at what was repaired.
const READ_BYTES: u64 = 1 << 20;

impl Replicated {
    /// Puts what a member gave in the place of what is here, and reads it. `as_of`: the log's newest version when it was
    /// asked.
    pub(super) fn take_copy(
        &mut self,
        (from, to): (&HObject, &HObject),
        mut txn: Transaction,
        as_of: EVersion,
        ctx: &mut Lent<'_>,
    ) -> Result<(), String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let versions = self.versions_in(from, to, &txn, ctx.pg)?;
        for (object, version) in &versions {
            match self.version_here(object, ctx) {
                Some(want) if want != *version => {
                    return Err(format!("{object}: it has version {version} there, not {want}"));
                }
                // A clone, which may have been trimmed since.
                None if self.was_written(&to.head(), as_of, ctx) => {
                    return Err(format!("{object}: it was changed meanwhile"));
                }
                _ => {}
            }
        }
        let start = ctx.pg.object_id(from.clone());
        let here = crate::backend::digest::versions_of(&start, to, ctx.store).map_err(|e| text(&e))?;
        for gone in here.into_iter().filter(|o| !versions.iter().any(|(v, _)| v == o)) {
            let oid = ctx.pg.object_id(gone);
            txn.ops.push(Op::Remove { oid });
        }
        let seq = ctx.store.submit(&txn).map_err(|e| text(&e))?;
        ctx.pg.last_seq = seq;
        self.look_again(&to.head(), &versions, seq, ctx)
    }

    /// The versions that a transaction makes; refused if it does anything else.
    fn versions_in(
        &self,
        from: &HObject,
        to: &HObject,
        txn: &Transaction,
        pg: &PgState,
    ) -> Result<Vec<(HObject, EVersion)>, String> {
        let mut out: Vec<(HObject, EVersion)> = Vec::new();
        let inside = |o: &ObjectId| o.shard == pg.id.shard && *from <= o.object && o.object <= *to;
        for op in &txn.ops {
            let oid = match op {
                Op::Clone { src, dst } if inside(src) => dst,
                Op::Touch { oid }
                | Op::Write { oid, .. }
                | Op::Zero { oid, .. }
                | Op::Truncate { oid, .. }
                | Op::Remove { oid }
                | Op::RemoveAttrs { oid }
                | Op::OmapClear { oid }
                | Op::OmapSetHeader { oid, .. }
                | Op::OmapSet { oid, .. } => oid,
                Op::SetAttrs { oid, attrs } => {
                    let info = attrs.iter().find(|(n, _)| n == INFO_ATTR);
                    let info = info.map(|(_, v)| ObjectInfo::from_bytes(v));
                    let Some(Ok(info)) = info else {
                        return Err(format!("{}: it has no object info there", oid.object));
                    };
                    out.push((oid.object.clone(), info.version));
                    oid
                }
                _ => return Err("it came with steps that do not belong to it".into()),
            };
            if txn.collection != pg.id || !inside(oid) {
                return Err("it came with steps for other objects".into());
            }
        }
        match out.is_empty() {
            true => Err("it is not there".into()),
            false => Ok(out),
        }
    }

    /// Which version the object has, as far as anybody here knows; of a removed one that of its removal, which no copy
    /// has but a head that stays for its clones.
    pub(super) fn version_here(&self, object: &HObject, ctx: &mut Lent<'_>) -> Option<EVersion> {
        if let Some(version) = ctx.front.version(object) {
            return Some(version);
        }
        let oid = ctx.pg.object_id(object.clone());
        let there = crate::backend::digest::version_now(&oid, ctx.store);
        if there != EVersion::default() {
            return Some(there);
        }
        // Only heads are named by log entries.
        let entries = ctx.pg.log_since(None, ctx.store).ok()?;
        let of_it = |e: &&LogEntry| e.object == *object && e.kind != EntryKind::Error;
        entries.iter().rev().find(of_it).map(|e| e.version)
    }

    /// What was put there can be read.
    fn look_again(
        &mut self,
        head: &HObject,
        versions: &[(HObject, EVersion)],
        seq: u64,
        ctx: &mut Lent<'_>,
    ) -> Result<(), String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        self.forget_replaced(head, versions, seq, ctx)
            .map_err(|e| text(&e))?;
        for (object, _) in versions {
            let oid = ctx.pg.object_id(object.clone());
            let size = ObjectState::load(&oid, ctx.store).map_err(|e| text(&e))?.size;
            let mut at = 0;
            while at < size {
                let data = ctx.store.read(&oid, at, READ_BYTES).map_err(|e| text(&e))?;
                at += (data.len() as u64).max(1);
            }
        }
        Ok(())
    }

    /// What was put there by transaction `seq` is what the next operation finds.
    pub(super) fn forget_replaced(
        &mut self,
        head: &HObject,
        versions: &[(HObject, EVersion)],
        seq: u64,
        ctx: &mut Lent<'_>,
    ) -> Result<(), IoError> {
        let named = |o: &HObject| versions.iter().any(|(v, _)| v == o);
        let clones: Vec<HObject> = versions
            .iter()
            .map(|(o, _)| o)
            .filter(|o| !o.is_head())
            .cloned()
            .collect();
        let mut anew = Anew {
            pg: ctx.pg,
            store: ctx.store,
            now: ctx.now,
        };
        match ctx.front.replaced(head, &clones, seq, &mut anew) {
            // It is bad itself, and its own turn comes.
            Err(_) if !named(head) => Ok(()),
            other => other,
        }
    }
}
