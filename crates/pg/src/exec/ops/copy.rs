//! COPY_FROM: the object becomes a copy of another (docs/protocol/ceph/04-osd.md, 9.6).
//!
//! A source in the same store is copied by reference; one of another OSD is fetched before the message is
//! executed, and comes in whole.

use crate::exec::cost::{STEPS_MAX, shared_blocks};
use crate::exec::gathered::{Gathered, Read};
use crate::exec::known::Known;
use crate::exec::ops::omap::HEADER_MAX;
use crate::exec::ops::xattr::xattrs_fit;
use crate::exec::request::{CopySource, ObjectCopy};
use crate::exec::result::{Fail, OpResult, done};
use crate::exec::run::Exec;
use crate::exec::work::XattrSizes;
use crate::state::object::ObjectState;
use crate::state::object_info::{user_attr, user_name};
use crate::state::snapset::Resolved;
use bytes::Bytes;
use denc::Reader;
use messages::osd::{OsdOp, code};
use std::ops::Bound;
use types::{Errno, HObject, NOSNAP, ObjectId, ObjectLocator, Op};

/// FLUSH, IGNORE_OVERLAY, IGNORE_CACHE, MAP_SNAP_CLONE, RWORDERED, TRUNCATE_SEQ.
const KNOWN_FLAGS: u8 = 63;
const TRUNCATE_SEQ: u8 = 32;

/// Rows of a source's omap taken at a time.
const OMAP_STEP: usize = 1024;
const OMAP_STEP_BYTES: usize = 8 << 20;
/// An omap larger than this is not copied (E2BIG): it would have to fit into one transaction.
const OMAP_BYTES_MAX: usize = 64 << 20;
const OMAP_ROWS_MAX: usize = STEPS_MAX as usize;

/// Whether the operation makes its object a copy of another.
pub(crate) fn copies(op: &OsdOp) -> bool {
    matches!(op.code, code::COPY_FROM | code::COPY_FROM2)
}

/// The decoded in-data.
pub(crate) struct Source {
    pub oid: Bytes,
    pub oloc: ObjectLocator,
    pub truncate: Option<(u32, u64)>,
}

pub(crate) fn source_of(op: &OsdOp) -> Result<Source, Fail> {
    let a = op.copy_from();
    if a.flags & !KNOWN_FLAGS != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut r = Reader::new(op.indata.clone());
    let (oid, oloc) = (r.blob()?, r.get()?);
    let truncate = if op.code == code::COPY_FROM2 && a.flags & TRUNCATE_SEQ != 0 {
        Some((r.u32()?, r.u64()?))
    } else {
        None
    };
    Ok(Source { oid, oloc, truncate })
}

/// Finds what `object` (a head, or a snapshot of it) is in the store.
pub(crate) fn resolve(
    object: &HObject,
    shard: i8,
    known: &mut dyn Known,
) -> Result<(ObjectId, ObjectState), Fail> {
    let id = |object| ObjectId { shard, object };
    let head_id = id(object.head());
    let head = known.object(&head_id)?;
    let found = match head.snapset.resolve(object.snap) {
        Resolved::Head => (head_id, head),
        Resolved::Clone(clone) => {
            let clone = id(object.with_snap(clone));
            let state = known.object(&clone)?;
            (clone, state)
        }
        Resolved::Absent => return Err(Errno::ENOENT.into()),
    };
    if !found.1.exists {
        return Err(Errno::ENOENT.into());
    }
    Ok(found)
}

fn user_attrs(oid: &ObjectId, known: &mut dyn Known) -> Result<Vec<(Bytes, Bytes)>, Fail> {
    let all = known.attrs(oid)?;
    Ok(all
        .into_iter()
        .filter_map(|(n, v)| Some((user_name(&n)?, v)))
        .collect())
}

fn whole_omap(oid: &ObjectId, known: &mut dyn Known) -> Result<Vec<(Bytes, Bytes)>, Fail> {
    let mut all: Vec<(Bytes, Bytes)> = Vec::new();
    let mut bytes = 0;
    loop {
        let from = all.last().map(|(k, _)| k.clone());
        let from = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let page = known.omap_range(oid, from, OMAP_STEP, OMAP_STEP_BYTES)?;
        bytes += page.rows.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        if bytes > OMAP_BYTES_MAX || all.len() + page.rows.len() > OMAP_ROWS_MAX {
            return Err(Errno::E2BIG.into());
        }
        all.extend(page.rows);
        if !page.more {
            return Ok(all);
        }
    }
}

/// What an [`export`] reads of the object's data.
pub(crate) fn export_reads(state: &ObjectState) -> Option<Read> {
    (state.size > 0).then(|| Read::bytes(0, state.size))
}

/// Everything of an object of this store (as [`resolve`] found it), for another OSD.
pub(crate) fn export(
    oid: &ObjectId,
    state: &ObjectState,
    gathered: &Gathered,
    known: &mut dyn Known,
) -> Result<Box<ObjectCopy>, Fail> {
    let data = match export_reads(state) {
        Some(read) => gathered
            .bytes(&mut 0, read.offset, read.len)
            .ok_or(Errno::EIO)??,
        None => Bytes::new(),
    };
    let (omap_header, omap) = omap_of(oid, state, known)?;
    Ok(Box::new(ObjectCopy {
        user_version: state.info.user_version,
        mtime: state.info.mtime,
        data,
        attrs: user_attrs(oid, known)?,
        omap_header,
        omap,
    }))
}

/// Header and rows.
type Omap = (Bytes, Vec<(Bytes, Bytes)>);

fn omap_of(oid: &ObjectId, state: &ObjectState, known: &mut dyn Known) -> Result<Omap, Fail> {
    match state.info.omap {
        true => Ok((known.omap_header(oid)?, whole_omap(oid, known)?)),
        false => Ok(Omap::default()),
    }
}

impl Exec<'_> {
    pub fn copy_from(&mut self, index: usize, op: &OsdOp) -> OpResult {
        let (a, source) = (op.copy_from(), source_of(op)?);
        let req = self.req;
        match req.sources.get(&index) {
            None | Some(CopySource::Nowhere) => return Err(Errno::ENOENT.into()),
            Some(CopySource::Here(o) | CopySource::Fetched(o, _))
                if a.snap == NOSNAP && *o == req.head.object =>
            {
                return Err(Errno::EINVAL.into());
            }
            Some(CopySource::Here(o)) => {
                let (copy, data) = self.local_copy(o, a.version)?;
                self.become_copy(&copy, data, source.truncate)?;
            }
            Some(CopySource::Fetched(_, Err(e))) => return Err((*e).into()),
            Some(CopySource::Fetched(_, Ok(copy))) => {
                check_version(a.version, copy.user_version)?;
                self.become_copy(copy, Data::Bytes(copy.data.clone()), source.truncate)?;
            }
        }
        done()
    }

    /// The copy without its data, which is shared inside the store.
    fn local_copy(&mut self, object: &HObject, version: u64) -> Result<(ObjectCopy, Data), Fail> {
        let (oid, state) = resolve(object, self.req.head.shard, self.known)?;
        if oid == *self.req.head {
            return Err(Errno::EINVAL.into());
        }
        check_version(version, state.info.user_version)?;
        self.cost.charge(0, shared_blocks(state.size))?;
        let (omap_header, omap) = omap_of(&oid, &state, self.known)?;
        let copy = ObjectCopy {
            user_version: state.info.user_version,
            mtime: state.info.mtime,
            data: Bytes::new(),
            attrs: user_attrs(&oid, self.known)?,
            omap_header,
            omap,
        };
        Ok((copy, Data::Of(oid, state.size)))
    }

    fn become_copy(
        &mut self,
        copy: &ObjectCopy,
        data: Data,
        truncate: Option<(u32, u64)>,
    ) -> Result<(), Fail> {
        let rows = copy.attrs.iter().chain(&copy.omap);
        let bytes: usize = rows.map(|(k, v)| k.len() + v.len()).sum();
        self.cost
            .charge(bytes as u64, (copy.attrs.len() + copy.omap.len()) as u64)?;
        let xattrs = copy.attrs.iter().map(|(n, v)| (user_attr(n), v.len() as u64));
        let xattrs: XattrSizes = xattrs.collect();
        if !xattrs_fit(&xattrs) || copy.omap_header.len() > HEADER_MAX {
            return Err(Errno::E2BIG.into());
        }
        let has_omap = !copy.omap.is_empty() || !copy.omap_header.is_empty();
        if has_omap && self.req.pool.erasure {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let watchers = std::mem::take(&mut self.work.new.info.watchers);
        if self.work.new.exists {
            self.remove();
        }
        self.ensure_exists();
        self.work.xattrs = Some(xattrs);
        let new = &mut self.work.new;
        new.info.watchers = watchers;
        (new.info.truncate_seq, new.info.truncate_size) = truncate.unwrap_or_default();
        new.info.omap = has_omap;
        self.work.user_version = Some(copy.user_version);
        self.work.mtime = Some(copy.mtime);
        let dst = self.req.head.clone();
        match data {
            Data::Bytes(data) if !data.is_empty() => self.write(0, data),
            Data::Of(src, len) if len > 0 => {
                self.work.new.size = len;
                self.work.modified.insert(0, len);
                self.work.txn.push(Op::CloneRange {
                    src,
                    dst: dst.clone(),
                    src_offset: 0,
                    len,
                    dst_offset: 0,
                });
                // A hole at the source's end shares nothing and must count all the same.
                self.work.txn.push(Op::Truncate {
                    oid: dst.clone(),
                    size: len,
                });
            }
            _ => {}
        }
        if !copy.attrs.is_empty() {
            let attrs = copy.attrs.iter().map(|(n, v)| (user_attr(n), v.clone()));
            self.work.txn.push(Op::SetAttrs {
                oid: dst.clone(),
                attrs: attrs.collect(),
            });
        }
        if !copy.omap_header.is_empty() {
            self.work.txn.push(Op::OmapSetHeader {
                oid: dst.clone(),
                header: copy.omap_header.clone(),
            });
        }
        if !copy.omap.is_empty() {
            self.work.txn.push(Op::OmapSet {
                oid: dst,
                entries: copy.omap.clone(),
            });
        }
        Ok(())
    }
}

/// Where the data of a copy comes from.
enum Data {
    Bytes(Bytes),
    Of(ObjectId, u64),
}

/// ASSERT_VER's rule on the source.
fn check_version(asked: u64, stored: u64) -> Result<(), Fail> {
    match asked {
        0 => Ok(()),
        v if v < stored => Err(Errno::ERANGE.into()),
        v if v > stored => Err(Errno::EOVERFLOW.into()),
        _ => Ok(()),
    }
}
