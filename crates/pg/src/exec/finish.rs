//! From what a write message came to, to its transaction: versions, clones, whiteouts, the object info, the log entry.

use crate::broken::{self, Rule};
use crate::exec::request::Request;
use crate::exec::result::Ran;
use crate::exec::snap_context::SnapContext;
use crate::exec::work::{Change, Work};
use crate::pool::PoolView;
use crate::state::intervals::Intervals;
use crate::state::log::{EntryKind, LogEntry};
use crate::state::object::ObjectState;
use crate::state::object_info::{INFO_ATTR, NO_REQID, SNAPSET_ATTR};
use crate::state::snapset::{CloneInfo, SnapSet};
use crate::state::stats::StatsDelta;
use bytes::Bytes;
use denc::Encode;
use messages::osd::{MOSDOp, flag};
use std::sync::Arc;
use types::{EVersion, Errno, ObjectId, Op};

/// Output of one operation of a write under RETURNVEC.
pub const RETURN_MAX: usize = 64;
/// Values and outputs of all its operations, which the log keeps.
const RETURNS_MAX: usize = 8 << 10;
/// What one value takes of that without its output.
const RETURN_BYTES: usize = 8;
/// Values of a failed message's operations that the log keeps; a duplicate is told 0 for those behind.
const RETURNS_KEPT: usize = 1024;
/// Ranges of a write that its log entry keeps; a copy that lacks one with more gets the object whole.
const RANGES_MAX: usize = 256;

/// Where the PG's log stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogHead {
    /// Of the entries to come.
    pub epoch: u32,
    /// The newest entry's.
    pub version: u64,
    pub user_version: u64,
}

impl LogHead {
    /// A version, `step` after the last one used.
    fn next(&self, step: u64) -> EVersion {
        EVersion::new(self.epoch, self.version + step)
    }
}

/// What a write message leads to.
#[derive(Debug)]
pub(crate) enum Written {
    /// To be answered with this; nothing remembers it.
    Refused(Errno),
    /// It failed and changes nothing but the log, which remembers the failure.
    Failed(Box<LogEntry>),
    Done(Box<Finished>),
}

#[derive(Debug)]
pub(crate) struct Finished {
    /// The transaction, but for the log entry.
    pub ops: Vec<Op>,
    pub new: ObjectState,
    pub entry: LogEntry,
}

/// Completes a write. Its results may turn into a failure: they do not fit the log.
pub(crate) fn finish(req: &Request<'_>, work: Work, ran: &mut Ran, log: LogHead) -> Written {
    if ran.result >= 0 && !returns_fit(req.message, ran) {
        *ran = overflown(ran);
    }
    if ran.result < 0 {
        return Written::Failed(Box::new(failure(req, ran, log)));
    }
    match success(req, work, ran, log) {
        Ok(finished) => Written::Done(Box::new(finished)),
        Err(e) => Written::Refused(e),
    }
}

/// An entry with what all of a message have in common.
fn entry(req: &Request<'_>, ran: &Ran, (version, user_version): (EVersion, u64), log: LogHead) -> LogEntry {
    LogEntry {
        kind: EntryKind::Modify,
        version,
        prior_version: req.old.info.version,
        object: req.head.object.clone(),
        reqid: req.message.effective_reqid(req.client.name),
        user_version,
        last_user_version: log.user_version.max(user_version),
        mtime: req.message.mtime,
        result: ran.result,
        clone: 0,
        returns: remembered(req.message, ran),
        delta: StatsDelta::default(),
        ranges: None,
        instance: req.client.instance,
    }
}

fn failure(req: &Request<'_>, ran: &Ran, log: LogHead) -> LogEntry {
    let user_version = match req.old.exists {
        true => req.old.info.user_version,
        false if ran.result == Errno::ENOENT.code() => log.user_version,
        false => 0,
    };
    LogEntry {
        kind: EntryKind::Error,
        ..entry(req, ran, (log.next(1), user_version), log)
    }
}

fn success(req: &Request<'_>, mut work: Work, ran: &Ran, log: LogHead) -> Result<Finished, Errno> {
    let (m, old) = (req.message, req.old);
    let clone = match req.context {
        Some(context) => clone_and_overlap(req.head, old, &mut work, context),
        None => 0,
    };
    let version = log.next(if clone == 0 { 1 } else { 2 });
    set_versions(req, &mut work, version, log);
    let ranges = ranges_of(old, &work, clone);
    let user_version = match (work.change, work.new.exists) {
        (Change::Content, false) if !old.exists => 0,
        (Change::Content, _) => work.user_version.unwrap_or(0),
        _ => old.info.user_version,
    };
    write_attrs(req.head, old, &mut work);
    let mut delta = StatsDelta::between(old, &work.new);
    full_check(m, req.pool, &delta)?;
    delta.write_bytes = work.write_bytes;
    let deleted = old.exists && !work.new.exists;
    let entry = LogEntry {
        kind: if deleted {
            EntryKind::Delete
        } else {
            EntryKind::Modify
        },
        result: if m.has(flag::RETURNVEC) { ran.result } else { 0 },
        clone,
        delta,
        ranges,
        ..entry(req, ran, (version, user_version), log)
    };
    Ok(Finished {
        ops: work.txn,
        new: work.new,
        entry,
    })
}

/// A change of the PG's own: logged, no request. `ops` are its steps, which are completed here.
pub(crate) fn internal(
    oid: &ObjectId,
    old: &ObjectState,
    new: &mut ObjectState,
    ops: &mut Vec<Op>,
    log: LogHead,
) -> LogEntry {
    let version = log.next(1);
    if new.physical {
        // A version stands for what the object is, watches and clones included: copies are compared by it.
        new.info.version = version;
        ops.push(Op::SetAttrs {
            oid: oid.clone(),
            attrs: vec![(Bytes::from_static(INFO_ATTR), new.info.to_bytes())],
        });
    }
    let user_version = old.info.user_version;
    LogEntry {
        kind: EntryKind::Internal,
        version,
        prior_version: old.info.version,
        object: oid.object.clone(),
        reqid: NO_REQID,
        user_version,
        last_user_version: log.user_version.max(user_version),
        mtime: old.info.mtime,
        result: 0,
        clone: 0,
        returns: Vec::new(),
        delta: StatsDelta::between(old, new),
        ranges: None,
        instance: 0,
    }
}

/// 11.3: a clone if the context has snapshots that the head has not seen, and what the clones share.
/// The id of the new clone, or 0.
fn clone_and_overlap(head: &ObjectId, old: &ObjectState, work: &mut Work, context: &SnapContext) -> u64 {
    if work.change != Change::Content {
        return 0;
    }
    let snaps = if old.exists {
        old.snapset.clone_needed(&context.snaps)
    } else {
        Vec::new()
    };
    let touches_clones = !old.snapset.clones.is_empty() && !work.modified.is_empty();
    if snaps.is_empty() && context.seq <= old.snapset.seq && !touches_clones {
        return 0;
    }
    let set = Arc::make_mut(&mut work.new.snapset);
    let mut clone = 0;
    if snaps.is_empty() {
        set.head_changed(&work.modified);
    } else {
        clone = context.seq;
        let dst = ObjectId {
            shard: head.shard,
            object: head.object.with_snap(clone),
        };
        let make = Op::Clone {
            src: head.clone(),
            dst,
        };
        work.txn.insert(0, make);
        set.clones.push(CloneInfo {
            id: clone,
            snaps,
            size: old.size,
            overlap: Intervals::range(0, old.size).minus(&work.modified),
        });
    }
    set.seq = set.seq.max(context.seq);
    clone
}

/// Puts versions, time and request id into the new object info.
fn set_versions(req: &Request<'_>, work: &mut Work, version: EVersion, log: LogHead) {
    if work.change == Change::Nothing {
        return;
    }
    let m = req.message;
    let info = &mut work.new.info;
    if work.change == Change::Content {
        let last = log.user_version.max(req.old.info.user_version);
        let user = work.user_version.unwrap_or((last + 1).max(version.version));
        work.user_version = Some(user);
        info.user_version = user;
    }
    info.version = version;
    info.last_reqid = m.effective_reqid(req.client.name);
    match work.mtime {
        Some(mtime) => info.mtime = mtime,
        None if !m.mtime.is_zero() => info.mtime = m.mtime,
        None => {}
    }
}

/// What the message wrote, where it did nothing else.
fn ranges_of(old: &ObjectState, work: &Work, clone: u64) -> Option<Intervals> {
    let writes = |op: &Op| matches!(op, Op::Write { .. }) || broken::is(Rule::RangesOnly);
    let only_wrote = clone == 0 && old.exists && work.txn.iter().all(writes);
    let few = work.modified.intervals().len() <= RANGES_MAX;
    (only_wrote && few && work.change == Change::Content).then(|| work.modified.clone())
}

/// The last steps of the transaction: object info and snapset, or the whiteout, or nothing.
fn write_attrs(head: &ObjectId, old: &ObjectState, work: &mut Work) {
    if work.change == Change::Nothing {
        return;
    }
    let new = &mut work.new;
    if !new.exists {
        if new.snapset.clones.is_empty() {
            if new.physical {
                work.txn.push(Op::Remove { oid: head.clone() });
            }
            new.physical = false;
            new.snapset = Arc::new(SnapSet::default());
            new.info = Default::default();
            return;
        }
        if !new.physical {
            work.txn.push(Op::Touch { oid: head.clone() });
            new.physical = true;
            work.snapset_lost = true;
        }
        new.info.whiteout = true;
    }
    let mut attrs = vec![(Bytes::from_static(INFO_ATTR), new.info.to_bytes())];
    let fresh =
        !old.physical || work.snapset_lost || work.txn.iter().any(|op| matches!(op, Op::Remove { .. }));
    if !new.snapset.is_default() && (fresh || new.snapset != old.snapset) {
        attrs.push((Bytes::from_static(SNAPSET_ATTR), new.snapset.to_bytes()));
    }
    work.txn.push(Op::SetAttrs {
        oid: head.clone(),
        attrs,
    });
}

/// 14.1: a client that asks for it (FULL_TRY) is told that a full pool does not take more. One that does
/// not has sent this before it knew of the full pool, and is served.
fn full_check(m: &MOSDOp, pool: &PoolView, delta: &StatsDelta) -> Result<(), Errno> {
    if !m.has(flag::FULL_TRY) || m.has(flag::FULL_FORCE) || !delta.grows() {
        return Ok(());
    }
    if pool.full_quota {
        return Err(Errno::EDQUOT);
    }
    if pool.full {
        return Err(Errno::ENOSPC);
    }
    Ok(())
}

/// Under RETURNVEC the output of an operation is limited, since it is remembered, and so is that of all.
fn returns_fit(m: &MOSDOp, ran: &Ran) -> bool {
    let all = ran.results.iter().map(|(_, out)| RETURN_BYTES + out.len());
    let each = ran.results.iter().all(|(_, out)| out.len() <= RETURN_MAX);
    !m.has(flag::RETURNVEC) || each && all.sum::<usize>() <= RETURNS_MAX
}

/// Of a write whose output does not fit: EOVERFLOW, also as the result of those operations that returned too much.
fn overflown(ran: &Ran) -> Ran {
    let code = Errno::EOVERFLOW.code();
    let rval = |(rval, out): &(i32, Bytes)| if out.len() > RETURN_MAX { code } else { *rval };
    Ran {
        results: ran.results.iter().map(|r| (rval(r), Bytes::new())).collect(),
        result: code,
    }
}

/// What a duplicate under RETURNVEC will be told.
fn remembered(m: &MOSDOp, ran: &Ran) -> Vec<(i32, Bytes)> {
    if !m.has(flag::RETURNVEC) {
        return Vec::new();
    }
    // The outputs of a failed write may be large; its duplicates get the values only.
    let fits = |out: &Bytes| ran.result >= 0 && out.len() <= 64;
    let keep = |(rval, out): &(i32, Bytes)| (*rval, if fits(out) { out.clone() } else { Bytes::new() });
    ran.results.iter().take(RETURNS_KEPT).map(keep).collect()
}
