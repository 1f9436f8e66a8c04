//! Looking at a stretch of objects here: what each is by its digests, and what is wrong with it by itself.
//!
//! Vocabulary: a *light* look takes versions, sizes and attributes; a *deep* one reads all data and omap, which makes
//! the store check every checksum. Data comes in pieces that are read ahead beside the loop: a walk *waits* while
//! the disk reads its next piece, and is told by [`Walk::ended`].
//!
//! Of a shard it takes the sum of its units, which goes with the code: whether shards fit one another shows in their sums.
//!
//! Bounds: [`WALK_OBJECTS_MAX`] objects; one piece of [`PIECE`] bytes at a time; omaps in pages.

use crate::state::object_info::{INFO_ATTR, ObjectInfo, SNAPSET_ATTR};
use crate::state::snapset::SnapSet;
use crate::state::versions::list_versions;
use crate::store::{IoError, ObjectStore, Ticket};
use bytes::Bytes;
use denc::Decode;
use erasure::Sum;
use messages::osd::peer_scrub::{ObjectDigest, fault};
use std::collections::VecDeque;
use std::ops::Bound;
use types::checksum::crc32c;
use types::{EVersion, HObject, ObjectId};

/// Objects of one walk.
pub(crate) const WALK_OBJECTS_MAX: usize = 1024;
/// Data read at a time; above what the store keeps in its cache, so that a deep look is one at the disk.
const PIECE: u64 = 512 << 10;
const OMAP_ROWS: usize = 1024;
const OMAP_BYTES: usize = 1 << 20;
const SEED: u32 = 0xffff_ffff;

/// An object whose data is being read.
#[derive(Debug)]
struct Reading {
    oid: ObjectId,
    digest: ObjectDigest,
    at: u64,
    crc: u32,
    /// Of a shard's units.
    sum: Option<Sum>,
    /// Snapset of the head: what it says of the sizes of clones.
    ticket: Option<Ticket>,
}

#[derive(Debug)]
pub(crate) struct Walk {
    deep: bool,
    todo: VecDeque<ObjectId>,
    now: Option<Reading>,
    done: Vec<ObjectDigest>,
    next: Option<HObject>,
    waits: bool,
    /// Data bytes read.
    pub bytes: u64,
}

impl Walk {
    /// The objects from `start` up to and with `to`.
    pub fn begin(
        start: &ObjectId,
        to: &HObject,
        deep: bool,
        store: &mut dyn ObjectStore,
    ) -> Result<Self, IoError> {
        let last = ObjectId {
            shard: start.shard,
            object: to.clone(),
        };
        let mut found = store.list_within(start, &last, WALK_OBJECTS_MAX + 1)?;
        let inside = |o: &ObjectId| o.shard == start.shard && o.object.pool == start.object.pool;
        let end = found.iter().position(|o| !inside(o)).unwrap_or(found.len());
        found.truncate(end);
        let next = (found.len() > WALK_OBJECTS_MAX).then(|| found[WALK_OBJECTS_MAX].object.clone());
        found.truncate(WALK_OBJECTS_MAX);
        Ok(Self {
            deep,
            todo: found.into(),
            now: None,
            done: Vec::new(),
            next,
            waits: false,
            bytes: 0,
        })
    }

    /// Goes on until the disk has to be waited for; true when all was looked at.
    pub fn go_on(&mut self, store: &mut dyn ObjectStore) -> bool {
        loop {
            if self.waits {
                return false;
            }
            if let Some(mut r) = self.now.take() {
                let more = self.read_piece(&mut r, store);
                match more {
                    true => self.now = Some(r),
                    false => self.done.push(finish(r, store)),
                }
                continue;
            }
            let Some(oid) = self.todo.pop_front() else {
                return true;
            };
            let digest = light(&oid, store);
            match self.deep && digest.faults & fault::STAT == 0 {
                false => self.done.push(digest),
                true => {
                    self.now = Some(Reading {
                        sum: (oid.shard >= 0).then(Sum::default),
                        oid,
                        digest,
                        at: 0,
                        crc: SEED,
                        ticket: None,
                    });
                }
            }
        }
    }

    /// One piece more, or the wish for it; false: there is none, or it cannot be read.
    fn read_piece(&mut self, r: &mut Reading, store: &mut dyn ObjectStore) -> bool {
        let len = PIECE.min(r.digest.size - r.at);
        if len == 0 {
            return false;
        }
        if r.ticket.is_none() {
            // What rots is the disk: a copy in memory proves nothing for it.
            store.uncache(&r.oid, r.at, len);
            r.ticket = store.prefetch(&r.oid, r.at, len);
            if r.ticket.is_some() {
                self.waits = true;
                return true;
            }
        }
        let read = store.read(&r.oid, r.at, len);
        if let Some(t) = r.ticket.take() {
            store.release(t);
        }
        match read {
            Ok(data) if data.len() as u64 == len => {
                r.crc = crc32c(r.crc, &data);
                if let Some(sum) = &mut r.sum {
                    sum.add(&data);
                }
                r.at += len;
                self.bytes += len;
                true
            }
            // Shorter: it was truncated meanwhile, which its version tells.
            Ok(_) => {
                r.digest.changed = true;
                false
            }
            Err(_) => {
                r.digest.faults |= fault::READ;
                r.digest.bad_offset = r.at;
                false
            }
        }
    }

    /// A read of the disk has ended; true if it was this walk's.
    pub fn ended(&mut self, ticket: Ticket) -> bool {
        let ours = self.waits && self.now.as_ref().is_some_and(|r| r.ticket == Some(ticket));
        self.waits &= !ours;
        ours
    }

    /// What was found, and the first object that there was no room for.
    pub fn into_found(self) -> (Vec<ObjectDigest>, Option<HObject>) {
        (self.done, self.next)
    }

    /// It is not wanted any more.
    pub fn leave(self, store: &mut dyn ObjectStore) {
        if let Some(t) = self.now.and_then(|r| r.ticket) {
            store.release(t);
        }
    }
}

/// The version that the object has now; 0'0 if there is none to read.
pub(crate) fn version_now(oid: &ObjectId, store: &mut dyn ObjectStore) -> EVersion {
    let info = store.attr(oid, INFO_ATTR).ok().flatten();
    info.and_then(|b| ObjectInfo::from_bytes(&b).ok())
        .map_or(EVersion::default(), |i| i.version)
}

/// The data was read: omap, and whether all of this was one object.
fn finish(r: Reading, store: &mut dyn ObjectStore) -> ObjectDigest {
    let mut d = r.digest;
    if d.faults & fault::READ == 0 {
        d.data = Some(r.crc);
        d.units = r.sum.map(Sum::value);
    }
    match omap_digest(&r.oid, store) {
        Ok(crc) => d.omap = Some(crc),
        Err(_) => d.faults |= fault::STAT,
    }
    d.changed |= version_now(&r.oid, store) != d.version;
    d
}

fn omap_digest(oid: &ObjectId, store: &mut dyn ObjectStore) -> Result<u32, IoError> {
    let mut crc = field(SEED, &store.omap_header(oid)?);
    let mut from: Option<Bytes> = None;
    loop {
        let bound = from
            .as_ref()
            .map_or(Bound::Unbounded, |k| Bound::Excluded(k.as_ref()));
        let page = store.omap_range(oid, bound, OMAP_ROWS, OMAP_BYTES)?;
        for (k, v) in &page.rows {
            crc = field(field(crc, k), v);
        }
        match page.rows.into_iter().next_back() {
            Some((last, _)) if page.more => from = Some(last),
            _ => return Ok(crc),
        }
    }
}

/// With its length, so that no two lists of fields are the same bytes.
fn field(crc: u32, bytes: &[u8]) -> u32 {
    crc32c(crc32c(crc, &(bytes.len() as u64).to_le_bytes()), bytes)
}

/// What can be told without data and omap.
fn light(oid: &ObjectId, store: &mut dyn ObjectStore) -> ObjectDigest {
    let mut d = ObjectDigest::of(oid.object.clone());
    let stat = store.stat(oid);
    let attrs = store.attrs(oid);
    let (Ok(Some(stat)), Ok(attrs)) = (stat, attrs) else {
        d.faults |= fault::STAT;
        return d;
    };
    d.size = stat.size;
    (d.attrs, d.names) = (SEED, SEED);
    for (name, value) in &attrs {
        d.names = field(d.names, name);
        d.attrs = field(field(d.attrs, name), value);
    }
    let get = |name: &[u8]| attrs.iter().find(|(n, _)| n == name).map(|(_, v)| v);
    match get(INFO_ATTR).map(ObjectInfo::from_bytes) {
        None => d.faults |= fault::INFO_MISSING,
        Some(Err(_)) => d.faults |= fault::INFO_CORRUPTED,
        Some(Ok(info)) => d.version = info.version,
    }
    let snapset = get(SNAPSET_ATTR).map(SnapSet::from_bytes);
    if oid.object.is_head() {
        if matches!(snapset, Some(Err(_))) {
            d.faults |= fault::SNAPSET_CORRUPTED;
        }
    } else {
        d.faults |= clone_faults(oid, d.size, store);
    }
    d
}

/// Whether the head's snapset knows the clone, and as large as it is.
fn clone_faults(oid: &ObjectId, size: u64, store: &mut dyn ObjectStore) -> u32 {
    let head = ObjectId {
        shard: oid.shard,
        object: oid.object.head(),
    };
    let raw = store.attr(&head, SNAPSET_ATTR).ok().flatten();
    // A head without a readable one is said of the head.
    let Some(Ok(set)) = raw.map(|b| SnapSet::from_bytes(&b)) else {
        return 0;
    };
    match set.clones.iter().find(|c| c.id == oid.object.snap) {
        Some(c) if c.size != size => fault::SIZE_INFO,
        _ => 0,
    }
}

/// Objects and versions of a unit, for those who repair it.
pub(crate) fn versions_of(
    start: &ObjectId,
    to: &HObject,
    store: &mut dyn ObjectStore,
) -> Result<Vec<HObject>, IoError> {
    let (unit, _) = list_versions(start, to, WALK_OBJECTS_MAX, store)?;
    Ok(unit.into_iter().map(|(o, _)| o).collect())
}
