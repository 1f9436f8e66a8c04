//! The object map while we hold the lock: loaded, kept true, given up where it cannot be
//! (docs/protocol/ceph/05-rbd.md, 4.7, 5 and 10).
//!
//! In memory an object is never said to be absent, or unchanged, when the stored map may say otherwise: a future that is dropped
//! leaves the careful state behind.

use super::{Inner, View, locked};
use crate::calls::Calls;
use crate::header::{Header, ask};
use crate::{Result, features, names};
use client::Operation;
use denc::Reader;
use objclass::LockInfo;
use objclass::rbd::object_map::{CLEAN, EXISTS, NONEXISTENT, ObjectMap, PENDING};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing::warn;
use types::{Errno, NOSNAP};

/// Somebody else may take the lock of the map between our attempts.
const LOCK_TRIES: u32 = 8;

impl Inner {
    /// What the map says; None: there is none, or nothing is known.
    pub(super) fn known(&self, object: u64) -> Option<u8> {
        locked(&self.map).as_ref().and_then(|m| m.get(object))
    }

    /// Locks and loads it; called once we hold the header's lock.
    pub(super) async fn load_map(&self, header: &Header) -> Result<()> {
        *locked(&self.map) = None;
        if !header.has_valid_map() {
            return Ok(());
        }
        self.lock_map().await?;
        match self.read_map(NOSNAP).await {
            Ok(map) if map.entries() >= self.fixed.layout.objects(header.size) => {
                *locked(&self.map) = Some(map);
                Ok(())
            }
            Ok(_) => self.give_map_up(NOSNAP, "it is smaller than the image").await,
            Err(e) if fatal(e.errno()) => Err(e),
            Err(e) => self.give_map_up(NOSNAP, &e.to_string()).await,
        }
    }

    async fn lock_map(&self) -> Result<()> {
        let oid = self.map_oid();
        for _ in 0..LOCK_TRIES {
            match ask(&self.io, &oid, Operation::new().lock("", "")).await {
                Ok(_) => return Ok(()),
                Err(e) if e.errno() == Errno::EEXIST => return Ok(()),
                Err(e) if e.errno() == Errno::EBUSY => {}
                Err(e) => return Err(e),
            }
            // Who holds the header's lock owns the map: what is left of others is broken.
            let done = ask(&self.io, &oid, Operation::new().lock_info()).await?;
            let info: LockInfo = Reader::new(done.step(0)?.data.clone()).get()?;
            for locker in info.lockers.keys() {
                let broken = ask(&self.io, &oid, Operation::new().break_lock(locker)).await;
                crate::error::or_missing(broken.map(drop))?;
            }
        }
        Err(crate::Error::refused(
            Errno::EBUSY,
            "others keep taking the object map's lock",
        ))
    }

    pub(super) async fn unlock_map(&self) -> Result<()> {
        let had = locked(&self.map).take();
        if had.is_none() {
            return Ok(());
        }
        let done = ask(&self.io, &self.map_oid(), Operation::new().unlock("")).await;
        crate::error::or_missing(done.map(drop))
    }

    pub(super) async fn read_map(&self, snap: u64) -> Result<ObjectMap> {
        let oid = names::object_map(&self.id, snap);
        let done = ask(&self.io, &oid, Operation::new().rbd("object_map_load", |_| {})).await?;
        Ok(ObjectMap::decode(&mut Reader::new(done.step(0)?.data.clone()))?)
    }

    /// The map says that the object exists, and has changed, before it does.
    pub(super) async fn mark(&self, object: u64, state: u8) -> Result<()> {
        if matches!(self.known(object), None | Some(EXISTS)) {
            return Ok(());
        }
        let _one = self.marks[Self::shard(object)].lock().await;
        if self.known(object) == Some(state) {
            return Ok(());
        }
        self.update_map(object, object + 1, state, None).await
    }

    /// Objects `first..end` that are `filter` become `state`, stored and in memory. The caller excludes others.
    pub(super) async fn update_map(&self, first: u64, end: u64, state: u8, filter: Option<u8>) -> Result<()> {
        // Objects beyond the image's end have no entry.
        let Some(end) = locked(&self.map).as_ref().map(|m| end.min(m.entries())) else {
            return Ok(());
        };
        if first >= end {
            return Ok(());
        }
        let apply = || {
            if let Some(map) = locked(&self.map).as_mut() {
                map.update(first, end, state, filter);
            }
        };
        if state == PENDING {
            apply();
        }
        let op = Operation::new()
            .assert_map_locked()
            .rbd_write("object_map_update", |w| {
                w.u64(first);
                w.u64(end);
                w.u8(state);
                w.put(&filter);
            });
        self.change_map(op).await?;
        apply();
        Ok(())
    }

    /// A change of the stored map of the head. Where it fails the map is given up; the image goes on without it.
    async fn change_map(&self, op: Operation) -> Result<()> {
        match ask(&self.io, &self.map_oid(), op).await {
            Ok(_) => Ok(()),
            Err(e) if fatal(e.errno()) => Err(e),
            Err(e) => self.give_map_up(NOSNAP, &e.to_string()).await,
        }
    }

    /// Says in the header that the map of the head or of a snapshot cannot be believed.
    pub(super) async fn give_map_up(&self, snap: u64, why: &str) -> Result<()> {
        warn!(image = %self.id, why, "the object map is invalid");
        let invalid = features::OBJECT_MAP_INVALID | features::FAST_DIFF_INVALID;
        let op = Operation::new().rbd_write("set_flags", |w| {
            w.u64(invalid);
            w.u64(invalid);
            w.u64(snap);
        });
        ask(&self.io, &self.header_oid, op).await?;
        self.stale.store(true, Ordering::Release);
        if snap == NOSNAP {
            *locked(&self.map) = None;
        }
        Ok(())
    }

    pub(super) async fn resize_map(&self, objects: u64) -> Result<()> {
        if locked(&self.map).is_none() {
            return Ok(());
        }
        let op = Operation::new()
            .assert_map_locked()
            .rbd_write("object_map_resize", |w| {
                w.u64(objects);
                w.u8(NONEXISTENT);
            });
        self.change_map(op).await?;
        if let Some(map) = locked(&self.map).as_mut() {
            map.resize(objects, NONEXISTENT);
        }
        Ok(())
    }

    /// A snapshot was made: its map is the head's, in which all is unchanged now.
    pub(super) async fn snap_map(&self, header: &Header, snap: u64) -> Result<()> {
        if locked(&self.map).is_none() {
            return Ok(());
        }
        let copied = async {
            let stored = self.io.read(self.map_oid(), 0, 0).await?;
            let oid = names::object_map(&self.id, snap);
            self.io.write_full(oid, stored).await
        };
        if let Err(e) = copied.await {
            let e = crate::Error::from(e);
            return match fatal(e.errno()) {
                true => Err(e),
                false => self.give_map_up(snap, &e.to_string()).await,
            };
        }
        if !header.has(features::FAST_DIFF) {
            return Ok(());
        }
        let op = Operation::new()
            .assert_map_locked()
            .rbd_write("object_map_snap_add", |_| {});
        self.change_map(op).await?;
        if let Some(map) = locked(&self.map).as_mut() {
            map.snap_added();
        }
        Ok(())
    }

    /// A snapshot goes: what changed between it and the next newer one (or the head) shows there.
    pub(super) async fn unsnap_map(&self, header: &Header, snap: u64) -> Result<()> {
        if !header.has(features::OBJECT_MAP) {
            return Ok(());
        }
        let newer = header.snaps.iter().map(|s| s.id).filter(|id| *id > snap).min();
        let next = newer.unwrap_or(NOSNAP);
        let used = next != NOSNAP || locked(&self.map).is_some();
        if header.has(features::FAST_DIFF) && used {
            match self.read_map(snap).await {
                Ok(removed) => self.merge_into(next, removed).await?,
                Err(e) if fatal(e.errno()) => return Err(e),
                Err(e) => self.give_map_up(next, &e.to_string()).await?,
            }
        }
        let removed = self.io.remove(names::object_map(&self.id, snap)).await;
        crate::error::or_missing(removed.map_err(Into::into))
    }

    async fn merge_into(&self, next: u64, removed: ObjectMap) -> Result<()> {
        let input = removed.encode(false);
        let merge = |op: Operation| op.rbd_write("object_map_snap_remove", |w| w.raw(&input));
        if next == NOSNAP {
            self.change_map(merge(Operation::new().assert_map_locked()))
                .await?;
            if let Some(map) = locked(&self.map).as_mut() {
                map.snap_removed(removed);
            }
            return Ok(());
        }
        let oid = names::object_map(&self.id, next);
        match ask(&self.io, &oid, merge(Operation::new())).await {
            Ok(_) => Ok(()),
            Err(e) if fatal(e.errno()) => Err(e),
            Err(e) => self.give_map_up(next, &e.to_string()).await,
        }
    }

    /// The parent's data are about to appear in the object in all snapshots that see the parent there.
    pub(super) async fn mark_snaps(&self, view: &Arc<View>, object: u64) -> Result<()> {
        let header = &view.header;
        if !header.has(features::OBJECT_MAP) {
            return Ok(());
        }
        // Oldest first: it is there from that one on, and unchanged in the later ones that see as much of the parent.
        let (mut state, mut seen) = (EXISTS, None);
        for snap in header.snaps.iter().rev() {
            let used = self.fixed.layout.used(object, snap.overlap);
            if seen.replace(used).is_some_and(|before| before != used) {
                state = EXISTS;
            }
            let now = state;
            // Also after one that is too small to have the object: what it would have is the same clone.
            if header.has(features::FAST_DIFF) {
                state = CLEAN;
            }
            if object >= self.fixed.layout.objects(snap.size) {
                continue;
            }
            self.mark_at(snap.id, object, now).await?;
        }
        Ok(())
    }

    /// In the map of a snapshot, where the object is absent so far.
    pub(super) async fn mark_at(&self, snap: u64, object: u64, state: u8) -> Result<()> {
        let oid = names::object_map(&self.id, snap);
        let op = Operation::new().rbd_write("object_map_update", |w| {
            w.u64(object);
            w.u64(object + 1);
            w.u8(state);
            w.put(&Some(NONEXISTENT));
        });
        match ask(&self.io, &oid, op).await {
            Ok(_) => Ok(()),
            Err(e) if fatal(e.errno()) => Err(e),
            Err(e) => self.give_map_up(snap, &e.to_string()).await,
        }
    }
}

/// Nothing of ours is accepted any more, or nothing comes back: no reason to distrust the map.
fn fatal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::EBLOCKLISTED | Errno::ETIMEDOUT | Errno::ENOTCONN | Errno::EACCES | Errno::EPERM
    )
}
