//! The transactions that make an object (a head with all its clones) on a member what it is here.
//!
//! The member has said which versions it has ([`PeerBody::Listing`]); what is equal stays. Where the member's head is
//! one that the log here knows, and every write since then only wrote ranges, these ranges go; else the whole object.
//! A clone is made from its older neighbour on the member where it shares data with it, so that copies share as
//! the originals do.
//!
//! Invariant: the object info goes last, so that an object that was copied in part has no version.

use crate::broken::{self, Rule};
use crate::state::intervals::Intervals;
use crate::state::log::{EntryKind, LogEntry};
use crate::state::object::ObjectState;
use crate::state::object_info::{INFO_ATTR, SNAPSET_ATTR};
use crate::state::pg::PgState;
use crate::state::versions::Versions;
use crate::store::{IoError, ObjectStore};
use bytes::Bytes;
use std::ops::Bound;
use types::{EVersion, HObject, ObjectId, Op};

/// Data read from the store at a time: one step of a transaction.
const READ_BYTES: u64 = 1 << 20;
/// Attributes in one step.
const ATTR_BYTES: u64 = 1 << 20;
/// Rows of an omap in one step.
const OMAP_ROWS: usize = 1024;
const OMAP_BYTES: usize = 1 << 20;

/// Bytes that a step puts on the wire, roughly.
pub(crate) fn weight(op: &Op) -> u64 {
    let rows = |rows: &[(Bytes, Bytes)]| rows.iter().map(|(k, v)| k.len() + v.len() + 16).sum::<usize>();
    let payload = match op {
        Op::Write { data, .. } => data.len(),
        Op::SetAttrs { attrs, .. } => rows(attrs),
        Op::OmapSet { entries, .. } => rows(entries),
        Op::OmapSetHeader { header, .. } => header.len(),
        Op::LogAppend { entry, .. } => entry.len(),
        Op::SetMeta { meta } => meta.len(),
        _ => 0,
    };
    payload as u64 + 64
}

/// Steps for a member that has `theirs` of the object's versions. Empty: it has the same.
pub(super) fn copy_steps(
    head: &HObject,
    theirs: &Versions,
    entries: &[LogEntry],
    pg: &PgState,
    store: &mut dyn ObjectStore,
) -> Result<Vec<Op>, IoError> {
    let start = pg.object_id(head.with_snap(0));
    let (ours, _) = crate::state::versions::list_versions(&start, head, usize::MAX >> 1, store)?;
    let mut ops = Vec::new();
    for (object, _) in theirs.iter().filter(|(o, _)| !ours.iter().any(|(x, _)| x == o)) {
        let oid = pg.object_id(object.clone());
        if !broken::is(Rule::SurplusGoes) {
            ops.push(Op::Remove { oid });
        }
    }
    for (object, version) in &ours {
        let there = theirs.iter().find(|(o, _)| o == object).map(|(_, v)| *v);
        if there == Some(*version) && *version != EVersion::default() {
            continue;
        }
        let oid = pg.object_id(object.clone());
        let since = there
            .and_then(|v| ranges_since(head, v, entries))
            .filter(|_| object.is_head());
        if let Some(ranges) = since {
            range_steps(&oid, &ranges, store, &mut ops)?;
        } else if let Some(older) = neighbour(&oid, &ours, store)? {
            sharing_steps(&oid, older, store, &mut ops)?;
        } else {
            whole_steps(&oid, store, &mut ops)?;
        }
    }
    Ok(ops)
}

/// Only what writes of ranges have changed.
fn range_steps(
    oid: &ObjectId,
    ranges: &Intervals,
    store: &mut dyn ObjectStore,
    ops: &mut Vec<Op>,
) -> Result<(), IoError> {
    let state = ObjectState::load(oid, store)?;
    for (start, end) in ranges.intervals() {
        let end = (*end).min(state.size);
        if *start < end {
            write_steps(oid, *start, end - start, store, ops)?;
        }
    }
    let mut attrs = Vec::new();
    for name in [SNAPSET_ATTR, INFO_ATTR] {
        if let Some(value) = store.attr(oid, name)? {
            attrs.push((Bytes::from_static(name), value));
        }
    }
    ops.push(Op::SetAttrs {
        oid: oid.clone(),
        attrs,
    });
    Ok(())
}

/// Another object of the same PG's copy.
fn beside(oid: &ObjectId, object: HObject) -> ObjectId {
    ObjectId {
        shard: oid.shard,
        object,
    }
}

/// Steps that make the versions from `start` up to and with `to` anew wherever they are, in place of what is there;
/// a clone shares with its older neighbour among them. `None`: they weigh more than `limit`.
pub(crate) fn anew_steps(
    start: &ObjectId,
    to: &HObject,
    limit: u64,
    store: &mut dyn ObjectStore,
) -> Result<Option<Vec<Op>>, IoError> {
    let (unit, _) = crate::state::versions::list_versions(start, to, usize::MAX >> 1, store)?;
    let mut ops = Vec::new();
    let mut weighed = 0;
    for (object, _) in &unit {
        let oid = beside(start, object.clone());
        let older = neighbour(&oid, &unit, store)?;
        let bytes = allocated(&oid, older.as_ref().map(|(_, same)| same), store)?;
        if weighed + bytes > limit {
            return Ok(None);
        }
        let before = ops.len();
        match older {
            Some(older) => sharing_steps(&oid, older, store, &mut ops)?,
            None => whole_steps(&oid, store, &mut ops)?,
        }
        weighed += ops[before..].iter().map(weight).sum::<u64>();
        if weighed > limit {
            return Ok(None);
        }
    }
    Ok(Some(ops))
}

/// Whether the versions from `start` up to and with `to` hold more data than `limit`, told without reading any.
pub(crate) fn is_large(
    start: &ObjectId,
    to: &HObject,
    limit: u64,
    store: &mut dyn ObjectStore,
) -> Result<bool, IoError> {
    let (unit, _) = crate::state::versions::list_versions(start, to, usize::MAX >> 1, store)?;
    let mut bytes = 0;
    for (object, _) in &unit {
        let oid = beside(start, object.clone());
        let older = neighbour(&oid, &unit, store)?;
        bytes += allocated(&oid, older.as_ref().map(|(_, same)| same), store)?;
    }
    Ok(bytes > limit)
}

/// Data that would have to be read.
fn allocated(oid: &ObjectId, same: Option<&Intervals>, store: &mut dyn ObjectStore) -> Result<u64, IoError> {
    let size = store.stat(oid)?.map_or(0, |s| s.size);
    let mut has = Intervals::new();
    for (offset, len) in store.extents(oid, 0, size)? {
        has.insert(offset, offset + len);
    }
    Ok(same.map_or_else(|| has.total(), |same| has.minus(same).total()))
}

/// The next older clone, and the ranges in which it is the same. It comes before the object in a copy, so the
/// member has it by then.
fn neighbour(
    oid: &ObjectId,
    unit: &Versions,
    store: &mut dyn ObjectStore,
) -> Result<Option<(HObject, Intervals)>, IoError> {
    let object = &oid.object;
    let at = unit.iter().position(|(o, _)| o == object);
    let Some((older, _)) = at.and_then(|at| unit.get(at.checked_sub(1)?)) else {
        return Ok(None);
    };
    let head = ObjectState::load(&beside(oid, object.head()), store)?;
    let clone = head.snapset.clones.iter().find(|c| c.id == older.snap);
    let same = clone.map(|c| c.overlap.clone()).filter(|same| !same.is_empty());
    Ok(same.map(|same| (older.clone(), same)))
}

/// A copy of the older clone, and what differs from it.
fn sharing_steps(
    oid: &ObjectId,
    (older, same): (HObject, Intervals),
    store: &mut dyn ObjectStore,
    ops: &mut Vec<Op>,
) -> Result<(), IoError> {
    let Some(stat) = store.stat(oid)? else {
        return Ok(());
    };
    let src = beside(oid, older);
    let oid = || oid.clone();
    ops.push(Op::Clone { src, dst: oid() });
    ops.push(Op::RemoveAttrs { oid: oid() });
    ops.push(Op::OmapClear { oid: oid() });
    ops.push(Op::Truncate {
        oid: oid(),
        size: stat.size,
    });
    for (start, end) in Intervals::range(0, stat.size).minus(&same).intervals() {
        let (offset, len) = (*start, end - start);
        ops.push(Op::Zero {
            oid: oid(),
            offset,
            len,
        });
        for (offset, len) in store.extents(&oid(), offset, len)? {
            write_steps(&oid(), offset, len, store, ops)?;
        }
    }
    omap_steps(&oid(), store, ops)?;
    attr_steps(&oid(), store, ops)
}

fn whole_steps(oid: &ObjectId, store: &mut dyn ObjectStore, ops: &mut Vec<Op>) -> Result<(), IoError> {
    let Some(stat) = store.stat(oid)? else {
        return Ok(());
    };
    let oid = || oid.clone();
    ops.push(Op::Touch { oid: oid() });
    ops.push(Op::Remove { oid: oid() });
    ops.push(Op::Touch { oid: oid() });
    if stat.size > 0 {
        ops.push(Op::Truncate {
            oid: oid(),
            size: stat.size,
        });
    }
    for (offset, len) in store.extents(&oid(), 0, stat.size)? {
        write_steps(&oid(), offset, len, store, ops)?;
    }
    omap_steps(&oid(), store, ops)?;
    attr_steps(&oid(), store, ops)
}

/// All attributes, in steps of bounded size (an older build let them grow beyond what one transaction takes); the object info
/// in the last.
fn attr_steps(oid: &ObjectId, store: &mut dyn ObjectStore, ops: &mut Vec<Op>) -> Result<(), IoError> {
    let (mut attrs, mut bytes) = (Vec::new(), 0);
    let sizes = store.attr_sizes(oid)?;
    let (info, others): (Vec<_>, Vec<_>) = sizes.into_iter().partition(|(n, _)| n == INFO_ATTR);
    for (name, len) in others.into_iter().chain(info) {
        if bytes + len > ATTR_BYTES && !attrs.is_empty() {
            let attrs = std::mem::take(&mut attrs);
            ops.push(Op::SetAttrs {
                oid: oid.clone(),
                attrs,
            });
            bytes = 0;
        }
        bytes += len;
        if let Some(value) = store.attr(oid, &name)? {
            attrs.push((name, value));
        }
    }
    ops.push(Op::SetAttrs {
        oid: oid.clone(),
        attrs,
    });
    Ok(())
}

fn write_steps(
    oid: &ObjectId,
    offset: u64,
    len: u64,
    store: &mut dyn ObjectStore,
    ops: &mut Vec<Op>,
) -> Result<(), IoError> {
    let mut at = offset;
    while at < offset + len {
        // Steps end at whole pieces, so that the member writes whole blocks.
        let end = ((at / READ_BYTES + 1) * READ_BYTES).min(offset + len);
        let data = store.read(oid, at, end - at)?;
        if (data.len() as u64) < end - at {
            return Err(IoError(format!("{}: shorter than its size", oid.object)));
        }
        ops.push(Op::Write {
            oid: oid.clone(),
            offset: at,
            data,
        });
        at = end;
    }
    Ok(())
}

fn omap_steps(oid: &ObjectId, store: &mut dyn ObjectStore, ops: &mut Vec<Op>) -> Result<(), IoError> {
    let header = store.omap_header(oid)?;
    if !header.is_empty() {
        ops.push(Op::OmapSetHeader {
            oid: oid.clone(),
            header,
        });
    }
    let mut from: Option<Bytes> = None;
    loop {
        let bound = from
            .as_ref()
            .map_or(Bound::Unbounded, |k| Bound::Excluded(k.as_ref()));
        let page = store.omap_range(oid, bound, OMAP_ROWS, OMAP_BYTES)?;
        let Some((last, _)) = page.rows.last() else {
            return Ok(());
        };
        from = Some(last.clone());
        ops.push(Op::OmapSet {
            oid: oid.clone(),
            entries: page.rows,
        });
        if !page.more {
            return Ok(());
        }
    }
}

/// The ranges that were written since the head had version `v`, if that is all that happened to it. `entries`: the
/// log, ascending.
fn ranges_since(head: &HObject, v: EVersion, entries: &[LogEntry]) -> Option<Intervals> {
    let mut ranges = Intervals::new();
    let mut at = v;
    for e in entries.iter().filter(|e| e.object == *head && e.version > v) {
        if e.kind == EntryKind::Error {
            continue;
        }
        let written = e.ranges.as_ref()?;
        if e.prior_version != at {
            return None;
        }
        at = e.version;
        for (start, end) in written.intervals() {
            ranges.insert(*start, *end);
        }
    }
    (at > v).then_some(ranges)
}
