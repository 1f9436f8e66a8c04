//! Listing a PG's objects with exact cursors (docs/protocol/ceph/04-osd.md, section 13).

use crate::Pg;
use crate::api::{ClientOp, Context};
use crate::exec::Fail;
use crate::front::checks::ALL_NAMESPACES;
use crate::state::object_info::{INFO_ATTR, ObjectInfo, user_attr};
use crate::state::range::behind;
use crate::store::{IoError, ObjectStore};
use bytes::Bytes;
use denc::{Decode, Reader, Writer};
use messages::osd::{MOSDOpReply, OsdOp, code};
use objclass::Pass;
use types::{EVersion, Errno, HObject, NOSNAP, ObjectId};

/// Entries in one answer (osd_max_pgls).
pub const ENTRIES_MAX: u64 = 1024;
/// Objects looked at for one answer; the client goes on from the cursor that it gets.
const SCAN_MAX: usize = 16 * 1024;
const PAGE: usize = 256;
/// Names in one answer, about; the client goes on from the cursor here, too.
const NAMES_BYTES_MAX: usize = 1 << 20;
/// Bytes of filtered attributes that are as much work as to look at one object.
const ATTR_BYTES_PER_LOOK: usize = 4096;

const INTERNAL_NAMESPACE: &[u8] = b".ceph-internal";

/// What one answer lists.
struct Listing {
    entries: Vec<HObject>,
    /// Where to go on; `None`: the PG is exhausted.
    next: Option<HObject>,
}

impl Pg {
    /// Whether a head is a whiteout, which no listing shows.
    pub(crate) fn is_whiteout(&self, oid: &ObjectId, store: &mut dyn ObjectStore) -> Result<bool, IoError> {
        if let Some(state) = self.front.cache.get(&oid.object) {
            return Ok(!state.exists);
        }
        let info: Option<Bytes> = store.attr(oid, INFO_ATTR)?;
        let info = info.map(|b| ObjectInfo::from_bytes(&b));
        Ok(matches!(info, Some(Ok(i)) if i.whiteout))
    }

    /// Executes a message of PG operations.
    pub(crate) fn list(&mut self, c: ClientOp, ctx: &mut Context<'_>) {
        let mut reply = MOSDOpReply::to(&c.op, self.state.pool.epoch, 0);
        // All operations of the message share it.
        let mut looks = SCAN_MAX;
        for (op, out) in c.op.ops.iter().zip(&mut reply.ops) {
            match self.list_op(&c, op, &mut looks, ctx) {
                Ok((rval, data)) => {
                    out.rval = rval;
                    out.outdata = data;
                    reply.result = rval;
                }
                Err(f) => {
                    reply.result = f.rval;
                    break;
                }
            }
        }
        let s = &self.state.meta.stats;
        let version = |v| EVersion::new(self.state.pool.epoch, v);
        reply.flags = i64::from(c.op.flags | messages::osd::flag::ACK | messages::osd::flag::ONDISK);
        reply.replay_version = version(s.version);
        reply.bad_replay_version = version(s.user_version);
        reply.user_version = s.user_version;
        self.reply(Box::new(c), self.state.last_seq, reply, ctx);
    }

    fn list_op(
        &mut self,
        c: &ClientOp,
        op: &OsdOp,
        looks: &mut usize,
        ctx: &mut Context<'_>,
    ) -> Result<(i32, Bytes), Fail> {
        match op.code {
            code::PGNLS | code::PGLS => self.names(c, op, (None, looks), Reader::new(op.indata.clone()), ctx),
            code::PGNLS_FILTER => {
                let mut r = Reader::new(op.indata.clone());
                let filter = filter_of(&mut r)?;
                self.names(c, op, (Some(filter), looks), r, ctx)
            }
            code::SCRUBLS => self.scrub_ls(&op.indata, ctx),
            code::PG_HITSET_LS => Ok((0, Bytes::from_static(&[0; 4]))),
            code::PG_HITSET_GET => Err(Errno::ENOENT.into()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn names(
        &mut self,
        c: &ClientOp,
        op: &OsdOp,
        (filter, looks): (Option<Pass>, &mut usize),
        mut input: Reader,
        ctx: &mut Context<'_>,
    ) -> Result<(i32, Bytes), Fail> {
        let handle: HObject = input.get()?;
        let old_form = op.code == code::PGLS;
        if c.op.snapid != NOSNAP {
            return Err(Errno::EINVAL.into());
        }
        let count = op.pg_list().count.min(ENTRIES_MAX) as usize;
        let listing = if handle.max {
            Listing {
                entries: Vec::new(),
                next: None,
            }
        } else if !self.state.range.contains(handle.hash) {
            return Err(Errno::EINVAL.into());
        } else if count == 0 {
            Listing {
                entries: Vec::new(),
                next: Some(handle),
            }
        } else {
            let start = HObject {
                pool: self.state.pool.id,
                ..handle
            };
            self.collect(&start, count, &c.op.oloc.nspace, (filter, looks), ctx)?
        };
        let rval = i32::from(listing.next.is_none());
        let next = listing
            .next
            .unwrap_or_else(|| self.state.range.end_cursor(self.state.pool.id));
        Ok((rval, encode(old_form, &next, &listing.entries)))
    }

    fn collect(
        &self,
        start: &HObject,
        count: usize,
        nspace: &[u8],
        (filter, looks): (Option<Pass>, &mut usize),
        ctx: &mut Context<'_>,
    ) -> Result<Listing, Fail> {
        let mut entries: Vec<HObject> = Vec::new();
        let mut cursor = start.clone();
        let mut bytes = 0;
        // Only an object with clones may be a whiteout, and its clones come before it; of the first one
        // nothing is known.
        let mut with_clones: Option<HObject> = None;
        let mut first = true;
        loop {
            let page = self.state.list_objects(&cursor, PAGE, ctx.store)?;
            let Some(last) = page.last() else {
                return Ok(Listing { entries, next: None });
            };
            cursor = behind(&last.object);
            *looks = looks.saturating_sub(page.len());
            for oid in page {
                let head = oid.object.head();
                if !oid.object.is_head() {
                    with_clones = Some(head);
                    continue;
                }
                let doubt = std::mem::take(&mut first) || with_clones.as_ref() == Some(&head);
                let shown = if nspace == ALL_NAMESPACES {
                    oid.object.nspace != INTERNAL_NAMESPACE
                } else {
                    oid.object.nspace == nspace
                };
                if !shown || (doubt && self.is_whiteout(&oid, ctx.store)?) {
                    continue;
                }
                if let Some(Pass::XattrIs { name, value }) = &filter {
                    let have = ctx.store.attr(&oid, &user_attr(name))?;
                    let read = have.as_ref().map_or(0, Bytes::len);
                    *looks = looks.saturating_sub(read / ATTR_BYTES_PER_LOOK);
                    if have.as_ref() != Some(value) {
                        continue;
                    }
                }
                let o = &oid.object;
                bytes += o.nspace.len() + o.oid.len() + o.key.len() + 12;
                if entries.len() == count || (bytes > NAMES_BYTES_MAX && !entries.is_empty()) {
                    return Ok(Listing {
                        entries,
                        next: Some(oid.object),
                    });
                }
                entries.push(oid.object);
            }
            if *looks == 0 {
                return Ok(Listing {
                    entries,
                    next: Some(cursor),
                });
            }
        }
    }
}

/// `str "pg", str "filter", str type, ...`.
fn filter_of(r: &mut Reader) -> Result<Pass, Fail> {
    let (_class, _method, kind) = (r.blob()?, r.blob()?, r.blob()?);
    Ok(objclass::parse_filter(&kind, r)?)
}

fn encode(old_form: bool, next: &HObject, entries: &[HObject]) -> Bytes {
    let mut w = Writer::with_capacity(64 + 48 * entries.len());
    if old_form {
        w.u8(1);
        w.put(next);
        w.u32(entries.len() as u32);
        for o in entries {
            w.blob(&o.oid);
            w.blob(&o.key);
        }
        return w.finish();
    }
    w.envelope(1, 1, |w| {
        w.put(next);
        w.u32(entries.len() as u32);
        for o in entries {
            w.blob(&o.nspace);
            w.blob(&o.oid);
            w.blob(&o.key);
        }
    });
    w.finish()
}
