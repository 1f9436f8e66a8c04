//! Copies to the target what it has not of the source, with all snapshots, while clients use it.
//!
//! A group of objects is copied with the target's lock held, which goes back to whoever wants it after each group. What is decided of an
//! object holds for as long as the lock; without the exclusive-lock feature, the OSD's refusals alone keep what clients write.

use super::content::{Content, Piece, pieces};
use super::source::{Source, Under};
use super::times::Times;
use super::{
    EXECUTED, EXECUTING, Migration, PREPARED, Record, Records, closed, is_another_version, record_of, tell,
};
use crate::calls::Calls;
use crate::header::ask;
use crate::image::diff::state_at;
use crate::image::{Image, Inner, View, detached, locked};
use crate::{Error, Layout, Result, features, together};
use client::core::SnapSet;
use client::{Client, Operation};
use io::task;
use objclass::rbd::object_map::{CLEAN, EXISTS, NONEXISTENT};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::{Errno, NOSNAP};

/// Objects of the source that are looked at before any of them is copied.
const LOOK: u64 = 256;
/// Bytes of objects that are copied at once, and such objects.
const BYTES: u64 = 32 << 20;
const OBJECTS: u64 = 8;
/// A client that wants the lock has it for so long at least, and for so many times what a group took: on each way over nobody has it
/// for a moment, and a tool that takes it then refuses it to the client, whose write fails.
const TURN: Duration = Duration::from_millis(500);
const SHARE: u32 = 3;
/// Of `assert_snapc_seq`: the object is older than this context.
const IS_OLDER: u8 = 0;

/// Told how many objects of how many are done.
type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

/// One that was executed already is not executed again.
pub async fn execute(client: &Client, migration: &Migration, progress: Progress<'_>) -> Result<()> {
    let name = &migration.target.name;
    let refused = |what: &str| Error::refused(Errno::EINVAL, format!("image '{name}' {what}"));
    let records = Records::read(client, migration).await?;
    if records.target.is_none() {
        return Err(refused("is not migrating"));
    }
    let (record, _) = migration.confirm(client, &records).await?;
    match record.state {
        EXECUTED => return Ok(()),
        PREPARED | EXECUTING => {}
        _ => return Err(refused("is not in ready state")),
    }
    let target = migration.open_target(client).await?;
    let done = copy_all(client, migration, &record, &target, progress).await;
    closed(target, done).await
}

async fn copy_all(
    client: &Client,
    migration: &Migration,
    record: &Record,
    target: &Image,
    progress: Progress<'_>,
) -> Result<()> {
    let inner = &target.inner;
    let source = Source::open(client, &migration.source, record, inner).await?;
    let source = Arc::new(source);
    let ready = [PREPARED, EXECUTING, EXECUTED];
    set_states(client, migration, &ready, EXECUTING, "").await?;
    let (end, mut percent) = (source.objects(), 0);
    let at_once = at_once(&inner.fixed.layout);
    let now = || client.platform().clock.monotonic();
    let mut from = 0;
    while from < end {
        let to = end.min(from + LOOK);
        let under = together::all((from..to).map(|o| source.under(o))).await?;
        let found = (from..to).zip(under).filter_map(|(o, u)| Some((o, u?)));
        let found: Vec<(u64, Under)> = found.collect();
        for group in found.chunks(at_once as usize) {
            let (source, group) = (source.clone(), group.to_vec());
            let last = group.last().map_or(from, |(o, _)| *o);
            let (copying, began) = (inner.clone(), now());
            detached(async move { copying.copy_group(&source, &group).await }).await?;
            progress(last, end);
            if inner.is_wanted() {
                task::sleep(TURN.max((now() - began) * SHARE)).await;
            }
        }
        from = to;
        progress(to, end);
        let so_far = to * 100 / end;
        if so_far > percent {
            percent = so_far;
            let text = format!("{percent}% complete");
            set_states(client, migration, &[EXECUTING], EXECUTING, &text).await?;
        }
    }
    let (ending, migration, client) = (inner.clone(), migration.clone(), client.clone());
    detached(async move {
        // With the lock: the client has nothing under way that reads the source when it hears that it needs that no more. librbd
        // 16.2.15 closes the source then, and ends by an assertion if a copy-up is at work on it.
        let _writing = ending.writing().await.map_err(wait_for_owner)?;
        set_states(&client, &migration, &[EXECUTING], EXECUTED, "").await?;
        tell(&ending.io, &ending.header_oid).await;
        Ok(())
    })
    .await
}

/// Objects of so many bytes that are worked on at once.
pub(super) fn at_once(layout: &Layout) -> u64 {
    (BYTES >> layout.order()).clamp(1, OBJECTS)
}

/// In both headers, the source's first, as Ceph does it.
async fn set_states(client: &Client, migration: &Migration, from: &[u8], to: u8, text: &str) -> Result<()> {
    migration.change_source(client, from, to, text).await?;
    migration.change_target(client, from, to, text).await
}

impl Inner {
    /// Somebody asks for the lock, or has it again.
    fn is_wanted(&self) -> bool {
        let is_kept = self.seen().header.has(features::EXCLUSIVE_LOCK);
        is_kept && (self.releasing.load(Ordering::Acquire) || locked(&self.held).is_none())
    }

    async fn copy_group(self: &Arc<Self>, source: &Source, group: &[(u64, Under)]) -> Result<()> {
        let _writing = self.writing().await.map_err(wait_for_owner)?;
        let view = self.seen();
        let record = self.executing().await?;
        source.set_overlap(record.overlap);
        let ids: Vec<u64> = view.header.snaps.iter().map(|s| s.id).collect();
        let copy = Copy {
            target: self,
            view: &view,
            source,
            overlap: record.overlap,
            times: &Times::new(&record.snap_seqs, &ids)?,
        };
        let copied = group.iter().map(|(object, under)| async {
            let version = copy.object(*object, under).await?;
            Ok::<_, Error>((*object, version))
        });
        let copied = together::all(copied).await?;
        match view.header.has(features::EXCLUSIVE_LOCK) {
            true => Ok(()),
            false => self.cut_again(record.overlap, &copied).await,
        }
    }

    /// The record, if it is us who are at work.
    async fn executing(&self) -> Result<Record> {
        let record = record_of(&self.io, &self.header_oid).await?;
        let stopped = || Error::refused(Errno::EINVAL, "somebody has ended the migration, or aborts it");
        record.filter(|r| r.state == EXECUTING).ok_or_else(stopped)
    }

    /// A target without the lock may have been shrunk while the group was copied. `copied`: objects, with the versions that our last writes
    /// have made of them: what a client has written since stays.
    async fn cut_again(&self, overlap: u64, copied: &[(u64, Option<u64>)]) -> Result<()> {
        let now = self.executing().await?.overlap;
        if now >= overlap {
            return Ok(());
        }
        self.refresh().await?;
        let view = self.seen();
        let layout = &self.fixed.layout;
        for (object, version) in copied {
            let left = layout.used(*object, now);
            let Some(version) = version.filter(|_| left < layout.used(*object, overlap)) else {
                continue;
            };
            let cut = Operation::new().assert_version(version);
            let cut = match left {
                0 => cut.remove(),
                left => cut.truncate(left),
            };
            match ask(&view.data, &self.data_oid(*object), cut).await {
                Err(e) if e.is_not_found() || is_another_version(&e) => {}
                done => drop(done?),
            }
        }
        Ok(())
    }
}

/// Somebody keeps the lock: it is waited for, as for one who has the image open.
fn wait_for_owner(e: Error) -> Error {
    match e.errno() {
        Errno::EROFS => Error::refused(Errno::EBUSY, e.to_string()),
        _ => e,
    }
}

/// A group of objects on its way, by what the target's header said when it began.
struct Copy<'a> {
    target: &'a Inner,
    view: &'a Arc<View>,
    source: &'a Source,
    /// That of the record.
    overlap: u64,
    times: &'a Times,
}

impl Copy<'_> {
    /// The version that the last write has made; None: nothing was written.
    async fn object(&self, object: u64, under: &Under) -> Result<Option<u64>> {
        let oid = self.target.data_oid(object);
        match self.view.data.list_snaps(&oid).await {
            Ok(set) if self.times.is_whole(&set) => {
                self.check_snaps(object, under, &set).await?;
                return Ok(None);
            }
            Err(e) if !e.is_not_found() => return Err(e.into()),
            _ => {}
        }
        let size = self.target.fixed.layout.object_size();
        let mut before: Content = None;
        let mut key = None;
        // Since the newest snapshot of the target that is behind us.
        let mut changed = false;
        let mut written = false;
        let (mut version, mut refused) = (None, false);
        for (at, moment) in self.times.moments.iter().enumerate() {
            let now_key = self.source.key(object, at, under);
            let now = match key.as_ref() == Some(&now_key) {
                true => before.clone(),
                false => self.source.content(object, at, under).await?,
            };
            let made = pieces(&before, &now, size);
            changed |= !made.is_empty();
            changed = self
                .mark_snaps(object, moment.snap, now.is_some(), changed)
                .await?;
            if !made.is_empty() {
                if !written {
                    self.target.mark(object, EXISTS).await?;
                }
                written = true;
                match self.write(&oid, at, made).await? {
                    Some(new) => version = Some(new),
                    None => refused = true,
                }
            }
            (before, key) = (now, Some(now_key));
        }
        if written {
            self.mark_head(object, before.is_some(), changed).await?;
        }
        // A client may have been faster, where the target has no lock.
        if refused {
            let set = self.view.data.list_snaps(&oid).await?;
            self.check_snaps(object, under, &set).await?;
        }
        Ok(version)
    }

    /// Of an object that the target's head does not read from the source, but snapshots do (the source was larger then): a client that writes to it, since the target
    /// has grown, copies nothing for the snapshots, and their states cannot be put below its own any more.
    async fn check_snaps(&self, object: u64, under: &Under, set: &SnapSet) -> Result<()> {
        if self.target.fixed.layout.used(object, self.overlap) > 0 {
            return Ok(());
        }
        for (at, moment) in self.times.moments.iter().enumerate() {
            let Some(snap) = moment.snap.filter(|s| *s != NOSNAP) else {
                continue;
            };
            if state_at(set, snap).is_none() && self.source.content(object, at, under).await?.is_some() {
                let name = self.view.header.snap(snap).map_or("", |s| s.name.as_str());
                let what = format!(
                    "object {} of the target was written before it had what snapshot '{name}' has in it: \
                     remove that snapshot from the target, or abort the migration",
                    self.target.data_oid(object)
                );
                return Err(Error::refused(Errno::EINVAL, what));
            }
        }
        Ok(())
    }

    /// The maps of the target's snapshots that see a state: its own one; behind the head, those that were made since `prepare`. Whether
    /// something has changed since the last of them.
    async fn mark_snaps(
        &self,
        object: u64,
        seen: Option<u64>,
        is_there: bool,
        changed: bool,
    ) -> Result<bool> {
        let header = &self.view.header;
        let oldest_first = header.snaps.iter().rev();
        let sees = |id: u64| match seen {
            Some(NOSNAP) => id > self.times.cut,
            other => other == Some(id),
        };
        let mut changed = changed;
        for snap in oldest_first.filter(|s| sees(s.id)) {
            let has_entry = object < self.target.fixed.layout.objects(snap.size);
            if is_there && has_entry && header.has(features::OBJECT_MAP) {
                let state = self.state(changed);
                self.target.mark_at(snap.id, object, state).await?;
            }
            changed = false;
        }
        Ok(changed)
    }

    fn state(&self, changed: bool) -> u8 {
        match changed || !self.view.header.has(features::FAST_DIFF) {
            true => EXISTS,
            false => CLEAN,
        }
    }

    async fn mark_head(&self, object: u64, is_there: bool, changed: bool) -> Result<()> {
        let target = self.target;
        let _one = target.marks[Inner::shard(object)].lock().await;
        let state = if is_there {
            self.state(changed)
        } else {
            NONEXISTENT
        };
        match state {
            EXISTS => Ok(()),
            state => target.update_map(object, object + 1, state, Some(EXISTS)).await,
        }
    }

    /// One state, and the version that this makes. None: the object is as far already, by an earlier attempt, or by a client.
    async fn write(&self, oid: &str, moment: usize, made: Vec<Piece>) -> Result<Option<u64>> {
        let context = &self.times.moments[moment].context;
        let size = self.target.fixed.layout.object_size();
        let op = Operation::new().rbd_write("assert_snapc_seq", |w| {
            w.u64(context.seq());
            w.u8(IS_OLDER);
        });
        let removes = made.first() == Some(&Piece::Remove);
        let op = match removes {
            true => op,
            false => op.alloc_hint(size, size, 0),
        };
        let op = made.into_iter().fold(op, |op, piece| piece.add_to(op));
        let mut io = self.view.beneath.clone();
        io.set_snap_context(context.clone());
        match ask(&io, oid, op).await {
            Err(e) if e.errno() == Errno::ERANGE || removes && e.is_not_found() => Ok(None),
            done => Ok(Some(done?.version)),
        }
    }
}
