//! The copy that a migration consists of (docs/protocol/ceph/05-rbd.md, 10.3): object by object whatever the target has not, as
//! each of its snapshots and the head see it.
//!
//! Each state of an object is written under the snapshots before it, oldest first, as if it had come about in the target. What
//! the object knows of snapshots says how far it came: so a copy that was cut short goes on where it was, and what a client wrote
//! meanwhile (it brings in all of the object before) is left as it is.
//!
//! Clients may use the target meanwhile: the exclusive lock is given to whoever asks for it between two batches. Without that
//! feature nothing would keep a client's copy of an object and ours apart: then nobody else may have the target open.

use super::migration::{open_end, seen_in};
use super::open::{At, Mode};
use super::{Image, Inner, View, detached, locked};
use crate::calls::Calls;
use crate::delta::{self, Piece};
use crate::header::{Header, ask};
use crate::migration::{self, Ends, Migration};
use crate::{Error, Result, features, together};
use bytes::{Bytes, BytesMut};
use client::core::SnapSet;
use client::{IoCtx, Operation, SnapContext};
use objclass::rbd::object_map::{CLEAN, EXISTS, NONEXISTENT};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Errno, NOSNAP};

/// Bytes of objects that are copied at once: of each, two states are held. And how many objects.
const BATCH_BYTES: u64 = 32 << 20;
const BATCH_MAX: u64 = 16;
/// Of `assert_snapc_seq`: the object knows of none as new as that.
const IS_NEWER: u8 = 0;

/// Copies all that the target of a prepared migration has not; also one that was cut short. `progress` is told how many objects of
/// how many are done.
pub async fn execute(ends: &Ends, progress: impl Fn(u64, u64)) -> Result<()> {
    let target = open_target(ends).await?;
    let done = target.inner.copy_source(ends, progress).await;
    let closed = target.close().await;
    done.and(closed).map_err(not_gone)
}

/// For whoever takes an image that is gone for one that is done with: this one is there, and what is missing is something else.
pub(super) fn not_gone(e: Error) -> Error {
    match e.is_not_found() {
        true => Error::refused(Errno::EIO, e.to_string()),
        false => e,
    }
}

pub(super) async fn open_target(ends: &Ends) -> Result<Image> {
    let mode = Mode {
        read_only: false,
        migrates: true,
        depth: 0,
    };
    let image = open_end(&ends.target, At::Head, mode).await?;
    image.inner.begin_watch().await?;
    Ok(image)
}

/// A point in time that the target shows.
struct Point {
    /// Its snapshot, or [`NOSNAP`].
    snap: u64,
    /// What it is of the source's.
    seen: u64,
    /// The newest snapshot before it; 0: none.
    after: u64,
}

/// Oldest first.
fn points(header: &Header, record: &Migration) -> Vec<Point> {
    let ids = header.snaps.iter().rev().map(|s| s.id).chain([NOSNAP]);
    let mut after = 0;
    let point = |snap| {
        let seen = seen_in(record, snap);
        let before = std::mem::replace(&mut after, snap);
        Point {
            snap,
            seen,
            after: before,
        }
    };
    ids.map(point).collect()
}

/// The source, open at all that the target shows of it.
struct Source {
    head: Image,
    /// Where its objects cannot be taken one by one.
    at: Option<BTreeMap<u64, Image>>,
}

/// An object as the target has it.
struct Present {
    /// The newest snapshot that it knows of.
    seq: u64,
    data: Option<Bytes>,
}

impl Inner {
    async fn copy_source(self: &Arc<Self>, ends: &Ends, progress: impl Fn(u64, u64)) -> Result<()> {
        let Some((source, end)) = self.begin_copy(ends).await? else {
            return Ok(());
        };
        let batch = (BATCH_BYTES / self.fixed.layout.object_size()).clamp(1, BATCH_MAX);
        let (mut from, mut percent) = (0, 0);
        while from < end {
            let to = end.min(from + batch);
            let (inner, source) = (self.clone(), source.clone());
            detached(async move { inner.copy_batch(&source, from, to).await }).await?;
            progress(to, end);
            from = to;
            let now = from * 100 / end;
            if now != percent {
                percent = now;
                let text = format!("{percent}% complete");
                ends.source.set_state(migration::EXECUTING, &text).await?;
                ends.target.set_state(migration::EXECUTING, &text).await?;
            }
        }
        let _alone = self.alone().await?;
        ends.source.set_state(migration::EXECUTED, "").await?;
        ends.target.set_state(migration::EXECUTED, "").await?;
        self.changed().await
    }

    /// The source and the number of objects; None: all was copied before.
    async fn begin_copy(&self, ends: &Ends) -> Result<Option<(Arc<Source>, u64)>> {
        let _alone = self.alone().await?;
        self.refresh().await?;
        let view = self.seen();
        let record = record_of(&view)?;
        match record.state {
            migration::EXECUTED => return Ok(None),
            migration::PREPARED | migration::EXECUTING => {}
            state => {
                let what = format!("the migration is not ready to be executed (state {state})");
                return Err(Error::refused(Errno::EINVAL, what));
            }
        }
        ends.source.set_state(migration::EXECUTING, "").await?;
        ends.target.set_state(migration::EXECUTING, "").await?;
        let mode = Mode {
            migrates: true,
            ..Mode::behind(self.depth)
        };
        let head = open_end(&ends.source, At::Head, mode).await?;
        let alike = head.inner.fixed.layout == self.fixed.layout && !record.flatten;
        let mut at = BTreeMap::new();
        for point in points(&view.header, record).iter().filter(|_| !alike) {
            let image = match point.seen {
                NOSNAP => head.clone(),
                snap => open_end(&ends.source, At::Snap(snap), mode).await?,
            };
            at.insert(point.seen, image);
        }
        let shown = points(&view.header, record).into_iter().map(|p| p.snap);
        let most = shown.map(|snap| view.header.overlap_at(snap)).max().unwrap_or(0);
        let source = Source {
            head,
            at: (!alike).then_some(at),
        };
        Ok(Some((Arc::new(source), self.fixed.layout.objects(most))))
    }

    async fn copy_batch(&self, source: &Source, from: u64, to: u64) -> Result<()> {
        let _writing = self.writing().await?;
        let view = self.seen();
        let record = record_of(&view)?;
        if !view.header.has(features::EXCLUSIVE_LOCK) && self.io.watchers(&self.header_oid).await?.len() > 1 {
            let what = "somebody has the image open, and it has no exclusive lock to keep his writes and the copy apart";
            return Err(Error::refused(Errno::EBUSY, what));
        }
        let points = points(&view.header, record);
        let (view, points) = (&view, &points[..]);
        together::all((from..to).map(|object| self.copy_object(view, source, points, object))).await?;
        Ok(())
    }

    async fn copy_object(
        &self,
        view: &Arc<View>,
        source: &Source,
        points: &[Point],
        object: u64,
    ) -> Result<()> {
        let oid = self.data_oid(object);
        let known = exists(view.beneath.list_snaps(&oid).await)?;
        let changes = points
            .iter()
            .scan(None, |last, p| Some(last.replace(p.seen) != Some(p.seen)));
        let newest = points.iter().zip(changes).filter(|(_, changes)| *changes);
        let newest = newest.map(|(p, _)| p.after).max().unwrap_or(0);
        let mut present = None;
        if let Some(set) = known {
            if set.seq >= newest {
                return Ok(());
            }
            present = Some(Present {
                seq: set.seq,
                data: exists(view.beneath.read(&oid, 0, 0).await)?.map(delta::trimmed),
            });
        }
        let versions = self.versions(view, source, points, object).await?;
        if versions.iter().all(Option::is_none) {
            return Ok(());
        }
        self.mark_points(view, points, object, &versions).await?;
        self.write_points(view, source, points, object, present).await
    }

    /// For each point which version of the object it sees; None: there is none.
    async fn versions(
        &self,
        view: &View,
        source: &Source,
        points: &[Point],
        object: u64,
    ) -> Result<Vec<Option<u64>>> {
        let mut versions = Vec::with_capacity(points.len());
        if source.at.is_none() {
            let set = exists(source.list(object).await)?;
            let version = |point: &Point| set.as_ref().and_then(|s| version_at(s, point.seen));
            versions.extend(points.iter().map(version));
            return Ok(versions);
        }
        let (mut last, mut seen, mut number) = (None, None, 0);
        for point in points {
            if seen.replace(point.seen) != Some(point.seen) {
                let next = self.source_state(view, source, point, object).await?;
                number += u64::from(next != last);
                last = next;
            }
            versions.push(last.as_ref().map(|_| number));
        }
        Ok(versions)
    }

    /// Writes one state after the other; the maps know of them.
    async fn write_points(
        &self,
        view: &Arc<View>,
        source: &Source,
        points: &[Point],
        object: u64,
        present: Option<Present>,
    ) -> Result<()> {
        let (reached, mut last) = match present {
            Some(present) => (Some(present.seq), present.data),
            None => (None, None),
        };
        let mut seen = None;
        for point in points {
            if seen.replace(point.seen) == Some(point.seen) || reached.is_some_and(|seq| point.after < seq) {
                continue;
            }
            // Whoever wrote that may have had other snapshots before him: it is made to be what it should.
            let guarded = reached != Some(point.after);
            let next = self.source_state(view, source, point, object).await?;
            let pieces = delta::between(last.as_ref(), next.as_ref(), self.fixed.layout.object_size());
            if !pieces.is_empty() {
                self.write_state(view, object, point, pieces, guarded).await?;
            }
            last = next;
        }
        Ok(())
    }

    async fn write_state(
        &self,
        view: &View,
        object: u64,
        point: &Point,
        pieces: Vec<Piece>,
        guarded: bool,
    ) -> Result<()> {
        let ids = view.header.snaps.iter().map(|s| s.id);
        let before = ids.filter(|id| *id <= point.after).collect();
        let mut io = view.beneath.clone();
        io.set_snap_context(SnapContext::new(point.after, before)?);
        let mut op = Operation::new();
        if guarded {
            op = op.rbd_write("assert_snapc_seq", |w| {
                w.u64(point.after);
                w.u8(IS_NEWER);
            });
        }
        let removes = pieces.contains(&Piece::Remove);
        if !removes {
            op = self.hint(op);
        }
        let op = pieces.into_iter().fold(op, |op, piece| piece.add_to(op));
        match ask(&io, &self.data_oid(object), op).await {
            // Somebody else brought it in.
            Err(e) if e.errno() == Errno::ERANGE => Ok(()),
            Err(e) if e.is_not_found() && removes => Ok(()),
            done => done.map(drop),
        }
    }

    /// None: there is no such object at that point.
    async fn source_state(
        &self,
        view: &View,
        source: &Source,
        point: &Point,
        object: u64,
    ) -> Result<Option<Bytes>> {
        let header = &view.header;
        if object >= self.fixed.layout.objects(header.size_at(point.snap)) {
            return Ok(None);
        }
        // With a parent behind it an object of zeros is not the same as none.
        let hides = header.parent.is_some();
        let data = match &source.at {
            None => {
                let inner = &source.head.inner;
                let io = source.raw(point.seen);
                let read = io.read(inner.data_oid(object), 0, 0).await;
                let Some(data) = exists(read)? else {
                    return Ok(None);
                };
                data
            }
            Some(images) => {
                let image = images.get(&point.seen);
                let missing = || Error::refused(Errno::EAGAIN, "a snapshot is not what it was");
                let length = self.fixed.layout.used(object, header.overlap_at(point.snap));
                self.through(image.ok_or_else(missing)?, object, length).await?
            }
        };
        let data = delta::trimmed(data);
        Ok((hides || !data.is_empty()).then_some(data))
    }

    /// An object's bytes out of the source, whatever its layout and what is behind it.
    async fn through(&self, image: &Image, object: u64, length: u64) -> Result<Bytes> {
        let size = image.size().await?;
        let mut all = BytesMut::new();
        for (at, n) in self.fixed.layout.ranges(object, 0, length) {
            let start = all.len();
            let there = n.min(size.saturating_sub(at));
            if there > 0 {
                let inner = &image.inner;
                all.extend_from_slice(&inner.read_range(&inner.seen(), at, there).await?);
            }
            all.resize(start + n as usize, 0);
        }
        Ok(all.freeze())
    }

    /// The maps of the head and the snapshots say that it is there, before it is.
    async fn mark_points(
        &self,
        view: &Arc<View>,
        points: &[Point],
        object: u64,
        versions: &[Option<u64>],
    ) -> Result<()> {
        let header = &view.header;
        if !header.has(features::OBJECT_MAP) {
            return Ok(());
        }
        let mut last = None;
        for (point, version) in points.iter().zip(versions.iter().copied()) {
            let before = std::mem::replace(&mut last, version);
            if version.is_none() || object >= self.fixed.layout.objects(header.size_at(point.snap)) {
                continue;
            }
            let state = match before == version && header.has(features::FAST_DIFF) {
                true => CLEAN,
                false => EXISTS,
            };
            self.mark_point(point.snap, object, state).await?;
        }
        Ok(())
    }

    async fn mark_point(&self, snap: u64, object: u64, state: u8) -> Result<()> {
        if snap != NOSNAP {
            return self.mark_in_snap(snap, object, state).await;
        }
        if locked(&self.map).is_none() {
            return Ok(());
        }
        let _one = self.marks[Self::shard(object)].lock().await;
        self.update_map(object, object + 1, state, Some(NONEXISTENT))
            .await
    }
}

impl Source {
    fn raw(&self, snap: u64) -> IoCtx {
        let mut io = self.head.inner.seen().beneath.clone();
        io.set_read_snap((snap != NOSNAP).then_some(snap));
        io
    }

    async fn list(&self, object: u64) -> client::Result<SnapSet> {
        let inner = &self.head.inner;
        self.raw(NOSNAP).list_snaps(inner.data_oid(object)).await
    }
}

/// Which version of an object is seen at a snapshot, or by the head.
fn version_at(set: &SnapSet, snap: u64) -> Option<u64> {
    if let Some(clone) = set.clones.iter().find(|c| c.id != NOSNAP && c.id >= snap) {
        return clone.snaps.contains(&snap).then_some(clone.id);
    }
    let head = set.clones.iter().find(|c| c.id == NOSNAP)?;
    (snap == NOSNAP || snap > set.seq).then_some(head.id)
}

fn record_of(view: &View) -> Result<&Migration> {
    let record = view.header.source();
    record.ok_or_else(|| Error::refused(Errno::EINVAL, "the image is not the target of a migration"))
}

fn exists<T>(read: client::Result<T>) -> Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e.into()),
    }
}
