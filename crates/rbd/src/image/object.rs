//! One data object: read, changed, removed; with the object map before it and the parent behind it
//! (docs/protocol/ceph/05-rbd.md, 10.2 and 11).

use super::{Inner, View};
use crate::calls::Calls;
use crate::error::or_missing;
use crate::{Error, Result, features};
use bytes::Bytes;
use client::{IoCtx, Operation, SnapContext};
use objclass::rbd::object_map::{EXISTS, NONEXISTENT, PENDING};
use std::sync::Arc;
use types::NOSNAP;

/// What a write does to one object.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write(u64, Bytes),
    /// Offset and length.
    Zero(u64, u64),
    /// Nothing: only the parent's data are brought in.
    Touch,
}

impl Change {
    fn covers(&self, size: u64) -> bool {
        match self {
            Self::Write(at, data) => *at == 0 && data.len() as u64 == size,
            Self::Zero(at, n) => *at == 0 && *n == size,
            Self::Touch => false,
        }
    }

    /// Its steps; `hides`: the object has to be there, so that nothing is seen of the parent.
    fn add_to(&self, op: Operation, size: u64, hides: bool) -> Operation {
        match self {
            Self::Write(_, data) if self.covers(size) => op.write_full(data.clone()),
            Self::Write(at, data) => op.write(*at, data.clone()),
            Self::Zero(..) if self.covers(size) && hides => op.create(false).truncate(0),
            Self::Zero(at, n) if at + n == size => op.truncate(*at),
            Self::Zero(at, n) => op.zero(*at, *n),
            Self::Touch => op.write(0, Bytes::new()),
        }
    }
}

async fn run(io: &IoCtx, oid: &str, op: Operation) -> Result<()> {
    let done = io.operate(oid, op).await.and_then(client::Outcome::done);
    done.map(drop).map_err(|e| Error::from(e).about(oid))
}

impl Inner {
    fn hint(&self, op: Operation) -> Operation {
        let size = self.fixed.layout.object_size();
        op.alloc_hint(size, size, 0)
    }

    /// Bytes of the object below which the head, or a snapshot, may read from the parent; 0: the head does not, and snapshots may go
    /// on reading there. A snapshot of a time when the image was larger may see more of the parent than the head does. Such
    /// a one has to have that itself if a flatten shall free it of the parent, or if the head's part is brought in.
    fn parent_used(&self, view: &View, object: u64) -> u64 {
        let (layout, header) = (&self.fixed.layout, &view.header);
        let of_head = layout.used(object, header.overlap_at(NOSNAP));
        if of_head == 0 && !header.has(features::DEEP_FLATTEN) {
            return 0;
        }
        let of_snaps = header.snaps.iter().map(|s| layout.used(object, s.overlap));
        of_snaps.max().unwrap_or(0).max(of_head)
    }

    /// At most `length` bytes; those that are missing at the end are zeros.
    pub(super) async fn read_object(
        &self,
        view: &Arc<View>,
        object: u64,
        offset: u64,
        length: u64,
    ) -> Result<Bytes> {
        if self.known(object) != Some(NONEXISTENT) {
            match view.data.read(self.data_oid(object), offset, length).await {
                Err(e) if e.is_not_found() => {}
                other => return Ok(other?),
            }
        }
        self.read_parent(view, self.snap, object, offset, length).await
    }

    /// Changes an object; the caller holds the gate, and the lock.
    pub(super) async fn change(&self, view: &Arc<View>, object: u64, change: Change) -> Result<()> {
        let size = self.fixed.layout.object_size();
        let below = self.parent_used(view, object);
        let known = self.known(object);
        if let Change::Zero(..) = change
            && below == 0
        {
            if known == Some(NONEXISTENT) {
                return Ok(());
            }
            if change.covers(size) {
                return self.remove_object(view, object).await;
            }
        }
        self.mark(object, EXISTS).await?;
        let oid = self.data_oid(object);
        let is_new = known != Some(EXISTS) && matches!(change, Change::Write(..));
        let hinted = |op: Operation| if is_new { self.hint(op) } else { op };
        if below == 0 {
            let op = change.add_to(hinted(Operation::new()), size, false);
            return run(&view.data, &oid, op).await;
        }
        // What covers the whole object needs nothing of the parent, but snapshots may.
        let alone = change.covers(size) && view.header.snaps.is_empty();
        if known != Some(NONEXISTENT) || alone {
            let _shared = self.copyups[Self::shard(object)].read().await;
            let guard = match alone {
                true => Operation::new(),
                false => Operation::new().assert_exists(),
            };
            match run(&view.data, &oid, change.add_to(hinted(guard), size, true)).await {
                Err(e) if e.is_not_found() => {}
                other => return other,
            }
        }
        let _alone = self.copyups[Self::shard(object)].write().await;
        self.copy_up(view, object, &change).await
    }

    /// Brings the parent's data into an object that is missing, and changes it. If it is there by now, it is only changed.
    async fn copy_up(&self, view: &Arc<View>, object: u64, change: &Change) -> Result<()> {
        let (layout, oid) = (&self.fixed.layout, self.data_oid(object));
        let size = layout.object_size();
        let of_head = layout.used(object, view.header.overlap_at(NOSNAP));
        let most = self.parent_used(view, object);
        let parent = self.read_parent_below(view, object, most).await?;
        let data = match parent.iter().all(|b| *b == 0) {
            true => Bytes::new(),
            false => parent,
        };
        let copyup = |data: Bytes| {
            let length = data.len() as u64;
            self.hint(Operation::new().rbd_write("sparse_copyup", |w| {
                let extents: Vec<(u64, u64)> = if length > 0 { vec![(0, length)] } else { Vec::new() };
                w.put(&extents);
                w.blob(&data);
            }))
        };
        if view.header.snaps.is_empty() || data.is_empty() {
            let op = change.add_to(copyup(data), size, true);
            return run(&view.data, &oid, op).await;
        }
        // Its snapshots see the same: it is written as if before the first of them.
        self.mark_snaps(view, object).await?;
        run(&view.beneath, &oid, copyup(data)).await?;
        self.cut_between_snaps(view, object).await?;
        let op = match most > of_head {
            true => Operation::new().truncate(of_head),
            false => Operation::new(),
        };
        run(&view.data, &oid, change.add_to(op, size, true)).await
    }

    /// An object that holds what the oldest snapshot sees of the parent is cut to what each later one does, where the image had been
    /// shrunk between the two, as if that had been done then.
    async fn cut_between_snaps(&self, view: &Arc<View>, object: u64) -> Result<()> {
        let (layout, oid) = (&self.fixed.layout, self.data_oid(object));
        let snaps = &view.header.snaps;
        for (at, pair) in snaps.windows(2).enumerate().rev() {
            let (newer, older) = (&pair[0], &pair[1]);
            let left = layout.used(object, newer.overlap);
            if left < layout.used(object, older.overlap) {
                let ids = snaps[at + 1..].iter().map(|s| s.id).collect();
                let mut io = view.beneath.clone();
                io.set_snap_context(SnapContext::new(older.id, ids)?);
                run(&io, &oid, Operation::new().truncate(left)).await?;
            }
        }
        Ok(())
    }

    /// Removes an object that nothing of a parent would show through.
    pub(super) async fn remove_object(&self, view: &Arc<View>, object: u64) -> Result<()> {
        let _one = self.marks[Self::shard(object)].lock().await;
        if self.known(object) == Some(NONEXISTENT) {
            return Ok(());
        }
        self.update_map(object, object + 1, PENDING, None).await?;
        let removed = view.data.remove(self.data_oid(object)).await;
        or_missing(removed.map_err(Into::into))?;
        self.update_map(object, object + 1, NONEXISTENT, Some(PENDING))
            .await
    }

    /// Cuts the object to its first `length` bytes.
    pub(super) async fn truncate_object(&self, view: &Arc<View>, object: u64, length: u64) -> Result<()> {
        if self.known(object) == Some(NONEXISTENT) {
            return Ok(());
        }
        self.mark(object, EXISTS).await?;
        let oid = self.data_oid(object);
        run(&view.data, &oid, Operation::new().truncate(length)).await
    }
}
