//! Units in pieces: what one is made of (its *outline*), and parts of its objects, as far as they can be read here.
//!
//! Whoever has a copy gives them: a member at the primary's question, the primary to itself.
//!
//! Invariants: a part is given only of the version that was asked for; what is given was read, and checked by the store,
//! now. Of data that cannot be read all the readable bytes before it are given, so that another copy may go on from there.
//!
//! Bounds: [`PIECE_BYTES`] of data, [`ROW_BYTES`] of omap in a piece; [`OBJECTS_MAX`] objects in a unit.

use crate::backend::digest::version_now;
use crate::state::object_info::SNAPSET_ATTR;
use crate::state::snapset::SnapSet;
use crate::state::versions::list_versions;
use crate::store::{IoError, ObjectStore, Ticket};
use denc::Decode;
use messages::osd::peer_scrub::{Outline, OutlineItem, Part};
use std::ops::Bound;
use types::{EVersion, Errno, HObject, ObjectId, Op};

/// What one transaction of a repair may weigh; a store takes 16 MiB. Little in unit tests, so that their objects may be
/// small and yet made in pieces.
pub(crate) const FIX_BYTES_MAX: u64 = if cfg!(test) { 48 << 10 } else { 12 << 20 };
/// Data in one piece: one transaction, one message, one read ahead. Little in unit tests.
pub(crate) const PIECE_BYTES: u64 = if cfg!(test) { 16 << 10 } else { 4 << 20 };
/// Data read from the store at a time, and the size of one step.
const READ_BYTES: u64 = 1 << 20;
/// The blocks that a store can read or not.
const BLOCK: u64 = 4096;
const ROWS: usize = 4096;
const ROW_BYTES: usize = 2 << 20;
const OBJECTS_MAX: usize = 1024;

/// Versions and sizes of the objects from `start` up to and with `to`. An error also where the head speaks of a clone that
/// is not here: a copy that lacks a part says nothing of the whole.
pub(crate) fn outline(
    start: &ObjectId,
    to: &HObject,
    store: &mut dyn ObjectStore,
) -> Result<Outline, IoError> {
    let bad = |what: &str| IoError(format!("{to}: {what}"));
    let (unit, more) = list_versions(start, to, OBJECTS_MAX, store)?;
    if more.is_some() {
        return Err(bad("it has too many clones"));
    }
    let head = ObjectId {
        shard: start.shard,
        object: to.head(),
    };
    let snapset = store.attr(&head, SNAPSET_ATTR)?.unwrap_or_default();
    if start.object != *to {
        let set = decode_snapset(&snapset).map_err(|_| bad("its snapset does not decode"))?;
        let has = |o: &HObject| unit.iter().any(|(x, _)| x == o);
        if !has(to) || !set.clones.iter().all(|c| has(&to.with_snap(c.id))) {
            return Err(bad("not all of it is here"));
        }
    }
    if unit.is_empty() || unit.iter().any(|(_, v)| *v == EVersion::default()) {
        return Err(bad("it has no object info"));
    }
    let mut items = Vec::with_capacity(unit.len());
    for (object, version) in unit {
        let oid = ObjectId {
            shard: start.shard,
            object,
        };
        let size = store.stat(&oid)?.map_or(0, |s| s.size);
        let object = oid.object;
        items.push(OutlineItem {
            object,
            version,
            size,
        });
    }
    Ok(Outline { items, snapset })
}

pub(crate) fn decode_snapset(raw: &bytes::Bytes) -> denc::Result<SnapSet> {
    match raw.is_empty() {
        true => Ok(SnapSet::default()),
        false => SnapSet::from_bytes(raw),
    }
}

/// Begins to read what [`piece`] will need.
pub(crate) fn prefetch(oid: &ObjectId, part: &Part, store: &mut dyn ObjectStore) -> Option<Ticket> {
    match part {
        Part::Data { offset, len } => store.prefetch(oid, *offset, (*len).min(PIECE_BYTES)),
        Part::Omap { .. } | Part::Attrs => None,
    }
}

/// The steps that make a part of the object what it is, and what is left of the part.
pub(crate) fn piece(
    oid: &ObjectId,
    version: EVersion,
    part: &Part,
    store: &mut dyn ObjectStore,
) -> Result<(Vec<Op>, Option<Part>), Errno> {
    let here = version_now(oid, store);
    if here != version {
        // Without one to read nothing is known of what is here.
        return Err(if here == EVersion::default() {
            Errno::EIO
        } else {
            Errno::ESTALE
        });
    }
    let given = match part {
        Part::Data { offset, len } => data(oid, *offset, *len, store),
        Part::Omap { after } => omap(oid, after.as_deref(), store),
        Part::Attrs => store.attrs(oid).map(|attrs| {
            let oid = oid.clone();
            (vec![Op::SetAttrs { oid, attrs }], None)
        }),
    };
    given.map_err(|e| {
        tracing::info!("{}: a part of it cannot be given: {e}", oid.object);
        Errno::EIO
    })
}

type Given = Result<(Vec<Op>, Option<Part>), IoError>;

fn data(oid: &ObjectId, offset: u64, len: u64, store: &mut dyn ObjectStore) -> Given {
    let size = store.stat(oid)?.map_or(0, |s| s.size);
    let all = offset.saturating_add(len);
    let end = all.min(size).min(offset.saturating_add(PIECE_BYTES));
    let mut ops = Vec::new();
    let mut at = offset;
    if offset >= end {
        return Ok((ops, None));
    }
    let rest = |at: u64| {
        let len = all.min(size) - at;
        (len > 0).then_some(Part::Data { offset: at, len })
    };
    for (start, length) in store.extents(oid, offset, end - offset)? {
        hole(oid, at, start, &mut ops);
        at = start;
        while at < start + length {
            let stop = ((at / READ_BYTES + 1) * READ_BYTES).min(start + length);
            let read = store.read(oid, at, stop - at);
            let (bytes, broken) = match read {
                Ok(bytes) if bytes.len() as u64 == stop - at => (bytes, None),
                Ok(_) => return Err(IoError(format!("{}: shorter than its size", oid.object))),
                Err(e) => (readable(oid, at, stop, store), Some(e)),
            };
            let given = bytes.len() as u64;
            if given > 0 {
                let (oid, offset) = (oid.clone(), at);
                ops.push(Op::Write {
                    oid,
                    offset,
                    data: bytes,
                });
            }
            at += given;
            match broken {
                Some(e) if at == offset => return Err(e),
                Some(_) => return Ok((ops, rest(at))),
                None => {}
            }
        }
    }
    hole(oid, at, end, &mut ops);
    Ok((ops, rest(end)))
}

fn hole(oid: &ObjectId, from: u64, to: u64, ops: &mut Vec<Op>) {
    if from < to {
        ops.push(Op::Zero {
            oid: oid.clone(),
            offset: from,
            len: to - from,
        });
    }
}

/// Of a range that cannot be read whole what lies before its first bad block.
fn readable(oid: &ObjectId, from: u64, to: u64, store: &mut dyn ObjectStore) -> bytes::Bytes {
    let mut out = bytes::BytesMut::new();
    let mut at = from;
    while at < to {
        let stop = ((at / BLOCK + 1) * BLOCK).min(to);
        match store.read(oid, at, stop - at) {
            Ok(bytes) if bytes.len() as u64 == stop - at => out.extend_from_slice(&bytes),
            _ => break,
        }
        at = stop;
    }
    out.freeze()
}

fn omap(oid: &ObjectId, after: Option<&[u8]>, store: &mut dyn ObjectStore) -> Given {
    let mut ops = Vec::new();
    if after.is_none() {
        let header = store.omap_header(oid)?;
        if !header.is_empty() {
            let oid = oid.clone();
            ops.push(Op::OmapSetHeader { oid, header });
        }
    }
    let bound = after.map_or(Bound::Unbounded, Bound::Excluded);
    let page = store.omap_range(oid, bound, ROWS, ROW_BYTES)?;
    let last = page.rows.last().map(|(k, _)| k.clone());
    if last.is_some() {
        ops.push(Op::OmapSet {
            oid: oid.clone(),
            entries: page.rows,
        });
    }
    let next = page.more.then_some(Part::Omap { after: last });
    Ok((ops, next))
}
