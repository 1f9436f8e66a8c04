//! SCRUBLS: what the last scrub found, in the form that `rados list-inconsistent-obj` reads (docs/protocol/osd.md).
//!
//! The object info that it shows is made from ours: Ceph's has fields that Skep does not keep (prior version, digests).

use crate::Pg;
use crate::api::Context;
use crate::backend::findings::{Inconsistent, Side, shard_error};
use crate::exec::Fail;
use crate::state::object::ObjectState;
use bytes::Bytes;
use denc::{Reader, Writer};
use types::{EVersion, Errno, HObject};

/// Objects in one answer.
const ENTRIES_MAX: u64 = 1000;
/// The name under which Ceph keeps the object info.
const INFO_NAME: &str = "_";

/// Flags of Ceph's object info.
const DIRTY: u32 = 1 << 2;
const OMAP: u32 = 1 << 3;
const WHITEOUT: u32 = 1 << 1;

/// What the client asks.
struct Query {
    interval: u32,
    snapsets: bool,
    after: (Bytes, Bytes, u64),
    max: u64,
}

fn query(input: &Bytes) -> denc::Result<Query> {
    Reader::new(input.clone()).envelope(1, |_, r| {
        Ok(Query {
            interval: r.u32()?,
            snapsets: r.u32()? != 0,
            after: (r.blob()?, r.blob()?, r.u64()?),
            max: r.u64()?,
        })
    })
}

/// Where an object stands in the answers: by namespace, name, snapshot.
fn place(o: &HObject) -> (Bytes, Bytes, u64) {
    (o.nspace.clone(), o.oid.clone(), o.snap)
}

impl Pg {
    pub(crate) fn scrub_ls(&self, input: &Bytes, ctx: &mut Context<'_>) -> Result<(i32, Bytes), Fail> {
        let q = query(input)?;
        let interval = self.backend.group().interval;
        if q.interval != 0 && q.interval != interval {
            return Err(Errno::EAGAIN.into());
        }
        let found = self.scrub.found.as_ref().ok_or(Errno::ENOENT)?;
        let mut rows: Vec<&Inconsistent> = Vec::new();
        if !q.snapsets {
            let (name, nspace, snap) = q.after;
            let after = (nspace, name, snap);
            let first = after.1.is_empty();
            rows.extend(found.values().filter(|w| first || place(&w.object) > after));
            rows.sort_by_key(|w| place(&w.object));
            rows.truncate(q.max.min(ENTRIES_MAX) as usize);
        }
        let mut w = Writer::with_capacity(64 + 512 * rows.len());
        w.envelope(1, 1, |w| {
            w.u32(interval);
            w.u32(rows.len() as u32);
            for row in rows {
                let oid = self.state.object_id(row.object.clone());
                let state = ObjectState::load(&oid, ctx.store).ok().filter(|s| s.physical);
                let mut one = Writer::with_capacity(512);
                object(row, state.as_ref(), self.backend.group().me, &mut one);
                w.blob(&one.finish());
            }
        });
        Ok((0, w.finish()))
    }
}

fn object(row: &Inconsistent, state: Option<&ObjectState>, primary: i32, w: &mut Writer) {
    w.envelope(2, 2, |w| {
        w.u64(row.errors);
        w.envelope(1, 1, |w| {
            w.blob(&row.object.oid);
            w.blob(&row.object.nspace);
            w.blob(&row.object.key);
            w.u64(row.object.snap);
        });
        w.u64(state.map_or(0, |s| s.info.user_version));
        w.u32(row.sides.len() as u32);
        for side in &row.sides {
            w.envelope(1, 1, |w| {
                w.i32(side.osd);
                // -1 where the pool is replicated.
                w.u8(side.shard as u8);
            });
            w.envelope(3, 3, |w| {
                w.u64(side.errors);
                w.bool(side.osd == primary);
                if side.errors & shard_error::MISSING == 0 {
                    copy(row, side, state, w);
                }
            });
        }
        w.u64(row.union_errors());
    });
}

/// One copy that is there.
fn copy(row: &Inconsistent, side: &Side, state: Option<&ObjectState>, w: &mut Writer) {
    let unknown = shard_error::INFO_MISSING | shard_error::INFO_CORRUPTED;
    let info = state.filter(|_| side.errors & unknown == 0);
    w.u32(u32::from(info.is_some()));
    let (size, version) = match &side.digest {
        Some(d) => (d.size, d.version),
        None => (state.map_or(0, |s| s.size), EVersion::default()),
    };
    if let Some(state) = info {
        w.string(INFO_NAME);
        let mut raw = Writer::with_capacity(320);
        object_info(&row.object, state, version, &mut raw);
        w.blob(&raw.finish());
    }
    w.u64(size);
    let digest = |w: &mut Writer, d: Option<u32>| {
        w.bool(d.is_some());
        w.u32(d.unwrap_or(0));
    };
    digest(w, side.digest.as_ref().and_then(|d| d.omap));
    digest(w, side.digest.as_ref().and_then(|d| d.data));
    w.bool(info.is_some() && row.good == Some(side.osd));
}

/// The object info as Ceph 16 writes it.
fn object_info(object: &HObject, state: &ObjectState, version: EVersion, w: &mut Writer) {
    let info = &state.info;
    w.envelope(17, 8, |w| {
        w.put(object);
        w.envelope(6, 3, |w| {
            w.i64(object.pool);
            w.i32(-1);
            w.blob(&object.key);
            w.blob(&object.nspace);
            w.i64(-1);
        });
        // Category, which nobody uses.
        w.u32(0);
        w.put(&version);
        w.put(&EVersion::default());
        w.put(&info.last_reqid);
        w.u64(state.size);
        w.put(&info.mtime);
        match object.is_head() {
            true => w.put(&crate::state::object_info::NO_REQID),
            false => w.u32(0),
        }
        w.u64(u64::from(info.truncate_seq));
        w.u64(info.truncate_size);
        // Not lost; no watchers in the old form.
        w.bool(false);
        w.u32(0);
        w.put(&EVersion::new(0, info.user_version));
        w.bool(false);
        // Watchers have a form of their own, which nobody reads here.
        w.u32(0);
        let set = |on: bool, bit: u32| if on { bit } else { 0 };
        w.u32(DIRTY | set(info.omap, OMAP) | set(info.whiteout, WHITEOUT));
        w.put(&info.mtime);
        // No digests.
        w.u32(u32::MAX);
        w.u32(u32::MAX);
        let hint = info.alloc_hint.unwrap_or_default();
        w.u64(hint.object_size);
        w.u64(hint.write_size);
        w.u32(hint.flags);
    });
}
