//! Copies to the target what it has not of the source, with all snapshots, while clients use it.
//!
//! A group of objects is copied with the target's lock held, which goes back to whoever wants it after each group. What is decided of an
//! object holds for as long as the lock; without the exclusive-lock feature, the OSD's refusals alone keep what clients write.
//!
//! All states of an object are made out before the first of them is written, so that nobody reads an older one for longer than the writes
//! take. A group is noted in the target's header while that is so (where it has snapshots): a run that follows one that was killed ends it first.

use super::content::{Content, Piece, pieces};
use super::group::{Noted, Unfinished};
use super::source::{Key, Source, Under};
use super::times::Times;
use super::{
    EXECUTED, EXECUTING, Migration, PREPARED, Record, Records, closed, is_another_version, record_of, tell,
    wait_for_owner,
};
use crate::calls::Calls;
use crate::header::ask;
use crate::image::diff::state_at;
use crate::image::{Inner, View, detached, locked};
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
/// Bytes of one object's states that are kept before they are written: with more, readers see an older one for longer.
const STATES: usize = 8 << 20;
/// A client that wants the lock has it for so long at least, and for so many times what a group took: on each way over nobody has it
/// for a moment, and a tool that takes it then refuses it to the client, whose write fails.
const TURN: Duration = Duration::from_millis(500);
const SHARE: u32 = 3;
const TURN_MAX: Duration = Duration::from_secs(5);
/// Who keeps the lock is asked again so often, and for so long; then the task waits for its next run.
const ASK_AGAIN: Duration = Duration::from_secs(2);
const ASK_FOR: Duration = Duration::from_secs(30);
/// Of `assert_snapc_seq`: the object is older than this context.
const IS_OLDER: u8 = 0;

/// Told how many objects of how many are done.
type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

/// One that was executed already is not executed again.
pub async fn execute(
    client: &Client,
    migration: &Migration,
    unfinished: &Unfinished,
    progress: Progress<'_>,
) -> Result<()> {
    let name = &migration.target.name;
    let refused = |what: &str| Error::refused(Errno::EINVAL, format!("image '{name}' {what}"));
    let records = Records::read(client, migration).await?;
    if records.target.is_none() {
        return Err(refused("is not migrating"));
    }
    let (record, of_source) = migration.confirm(client, &records).await?;
    match record.state {
        EXECUTED => return Ok(()),
        PREPARED | EXECUTING => {}
        _ => return Err(refused("is not in ready state")),
    }
    let target = migration.open_target(client).await?;
    let done = async {
        let source = Source::open(client, &migration.source, &record, &target.inner).await?;
        let run = Run {
            client,
            migration,
            inner: &target.inner,
            end: source.objects(),
            source: Arc::new(source),
            record: &record,
            unfinished,
            progress,
        };
        // A run that was cut short at its very end: the source's record is the first of the two to say that all was copied.
        match of_source.state {
            EXECUTED => run.finish(Copied::new()).await,
            _ => run.copy_all().await,
        }
    };
    let done = done.await;
    closed(target, done).await
}

/// Objects with the versions that our last writes have made of them; of those that others have written to since, that is another.
type Copied = Vec<(u64, u64)>;

struct Run<'a> {
    client: &'a Client,
    migration: &'a Migration,
    inner: &'a Arc<Inner>,
    source: Arc<Source>,
    /// As it was when this run began.
    record: &'a Record,
    unfinished: &'a Unfinished,
    progress: Progress<'a>,
    /// Objects of the target that may need something of the source.
    end: u64,
}

impl Run<'_> {
    async fn copy_all(&self) -> Result<()> {
        let (client, migration) = (self.client, self.migration);
        // The target's first: where somebody else has carried it out meanwhile, neither record is taken back.
        let change = [PREPARED, EXECUTING];
        migration.change_target(client, &change, EXECUTING, "").await?;
        migration.change_source(client, &change, EXECUTING, "").await?;
        let has_lock = self.inner.seen().header.has(features::EXCLUSIVE_LOCK);
        // Only where there is no lock, and so bounded by the image's objects.
        let mut copied = Copied::new();
        let mut keep = |some: Copied| copied.extend(some.into_iter().filter(|_| !has_lock));
        let at_once = at_once(&self.inner.fixed.layout) as usize;
        let Noted { below, mut group } = Noted::read(self.inner).await?;
        group.truncate(at_once);
        let under = together::all(group.iter().map(|o| self.source.under(*o))).await?;
        let under = group.into_iter().zip(under).filter_map(|(o, u)| Some((o, u?)));
        let (mut from, mut percent) = (below.min(self.end), 0);
        keep(self.group(from, from, under.collect()).await?);
        while from < self.end {
            let to = self.end.min(from + LOOK);
            for group in self.lacking(from, to).await?.chunks(at_once) {
                let last = group.last().map_or(from, |(o, _)| *o);
                keep(self.group(from, last, group.to_vec()).await?);
            }
            from = to;
            (self.progress)(to, self.end);
            let so_far = to * 100 / self.end;
            if so_far > percent {
                percent = so_far;
                let text = format!("{percent}% complete");
                set_states(client, migration, &[EXECUTING], EXECUTING, &text).await?;
            }
        }
        self.finish(copied).await
    }

    /// Objects from `from` to `to` that the source has something of, but for those that have all of it.
    async fn lacking(&self, from: u64, to: u64) -> Result<Vec<(u64, Under)>> {
        let under = together::all((from..to).map(|o| self.source.under(o))).await?;
        let found: Vec<(u64, Under)> = (from..to).zip(under).filter_map(|(o, u)| Some((o, u?))).collect();
        let times = Times::new(&self.record.snap_seqs, &[])?;
        let view = self.inner.seen();
        let sets = found.iter().map(|(o, _)| async {
            match view.data.list_snaps(&self.inner.data_oid(*o)).await {
                Ok(set) => Ok(times.is_whole(&set)),
                Err(e) if e.is_not_found() => Ok(false),
                Err(e) => Err(Error::from(e)),
            }
        });
        let whole = together::all(sets).await?;
        // Read behind them: what was written behind the overlap was written after that had become so small.
        let overlap = self.inner.executing().await?.overlap;
        let is_done = |o: u64| self.inner.fixed.layout.used(o, overlap) > 0;
        let lacks = |((o, _), whole): &((u64, Under), bool)| !(*whole && is_done(*o));
        Ok(found
            .into_iter()
            .zip(whole)
            .filter(lacks)
            .map(|(found, _)| found)
            .collect())
    }

    /// Copies these, as soon as the lock can be had; then whoever wants that has his turn. `below`: objects that are done; `at`: how far the run is.
    async fn group(&self, below: u64, at: u64, group: Vec<(u64, Under)>) -> Result<Copied> {
        if group.is_empty() {
            return Ok(Copied::new());
        }
        let work = || {
            let (copying, source, group) = (self.inner.clone(), self.source.clone(), group.clone());
            let (unfinished, clock) = (self.unfinished.clone(), self.client.platform().clock.clone());
            async move {
                let _writing = copying.writing().await.map_err(wait_for_owner)?;
                let began = clock.monotonic();
                let _unfinished = unfinished.begin().await?;
                let copied = copying.copy_group(&source, below, &group).await?;
                Ok::<_, Error>((copied, clock.monotonic() - began))
            }
        };
        let (copied, took) = self.with_lock(at, work).await?;
        (self.progress)(at, self.end);
        if self.inner.is_wanted() {
            task::sleep((took * SHARE).clamp(TURN, TURN_MAX)).await;
        }
        Ok(copied)
    }

    /// Work that needs the target's lock, from its beginning again where somebody keeps that; to its end, also when this run is stopped.
    async fn with_lock<T: 'static, W>(&self, at: u64, work: impl Fn() -> W) -> Result<T>
    where
        W: Future<Output = Result<T>> + 'static,
    {
        let now = || self.client.platform().clock.monotonic();
        let asked = now();
        loop {
            match detached(work()).await {
                Err(e) if e.errno() == Errno::EBUSY && now() - asked < ASK_FOR => {
                    (self.progress)(at, self.end);
                    task::sleep(ASK_AGAIN).await;
                }
                done => return done,
            }
        }
    }

    async fn finish(&self, copied: Copied) -> Result<()> {
        let overlap = self.record.overlap;
        let work = || {
            let (ending, migration, client) =
                (self.inner.clone(), self.migration.clone(), self.client.clone());
            let (unfinished, mut copied) = (self.unfinished.clone(), copied.clone());
            async move {
                // With the lock: the client has nothing under way that reads the source when it hears that it needs that no more. librbd
                // 16.2.15 closes the source then, and ends by an assertion if a copy-up is at work on it.
                let _writing = ending.writing().await.map_err(wait_for_owner)?;
                let _unfinished = unfinished.begin().await?;
                ending.cut_again(overlap, &mut copied).await?;
                Noted::forget(&ending).await?;
                migration
                    .change_source(&client, &[EXECUTING, EXECUTED], EXECUTED, "")
                    .await?;
                migration
                    .change_target(&client, &[EXECUTING], EXECUTED, "")
                    .await?;
                tell(&ending.io, &ending.header_oid).await;
                Ok(())
            }
        };
        self.with_lock(self.end, work).await
    }
}

/// Objects of so many bytes that are worked on at once.
pub(super) fn at_once(layout: &Layout) -> u64 {
    (BYTES >> layout.order()).clamp(1, OBJECTS)
}

/// In both headers.
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

    /// With the lock held. What it gives is of use where there is none.
    async fn copy_group(
        self: &Arc<Self>,
        source: &Source,
        below: u64,
        group: &[(u64, Under)],
    ) -> Result<Copied> {
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
        if copy.times.moments.len() > 1 {
            let objects = group.iter().map(|(object, _)| *object);
            Noted::of(below, objects).write(self).await?;
        }
        let copied = group.iter().map(|(object, under)| async {
            let version = copy.object(*object, under).await?;
            Ok::<_, Error>(version.map(|version| (*object, version)))
        });
        let mut copied: Copied = together::all(copied).await?.into_iter().flatten().collect();
        if !view.header.has(features::EXCLUSIVE_LOCK) {
            self.cut_again(record.overlap, &mut copied).await?;
        }
        Ok(copied)
    }

    /// The record, if it is us who are at work.
    async fn executing(&self) -> Result<Record> {
        let record = record_of(&self.io, &self.header_oid).await?;
        let stopped = |errno| {
            Err(Error::refused(
                errno,
                "somebody has ended the migration, or aborts it",
            ))
        };
        match record {
            Some(r) if r.state == EXECUTING => Ok(r),
            // By a client: the next run finds nothing to do.
            Some(r) if r.state == EXECUTED => stopped(Errno::EBUSY),
            _ => stopped(Errno::EINVAL),
        }
    }

    /// A target without the lock may have been shrunk since these were copied, when the overlap was `overlap` at most. What a client has written
    /// since stays.
    async fn cut_again(&self, overlap: u64, copied: &mut Copied) -> Result<()> {
        if copied.is_empty() {
            return Ok(());
        }
        let now = self.executing().await?.overlap;
        if now >= overlap {
            return Ok(());
        }
        self.refresh().await?;
        let view = self.seen();
        let layout = &self.fixed.layout;
        for (object, version) in copied {
            let left = layout.used(*object, now);
            if left >= layout.used(*object, overlap) {
                continue;
            }
            let cut = Operation::new().assert_version(*version);
            let cut = match left {
                0 => cut.remove(),
                left => cut.truncate(left),
            };
            match ask(&view.data, &self.data_oid(*object), cut).await {
                Err(e) if e.is_not_found() || is_another_version(&e) => {}
                done => *version = done?.version,
            }
        }
        Ok(())
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

/// States of one object that are to be written, and what became of those before.
#[derive(Default)]
struct States {
    /// By their moments.
    made: Vec<(usize, Vec<Piece>)>,
    bytes: usize,
    begun: bool,
    version: Option<u64>,
    refused: bool,
}

impl States {
    fn add(&mut self, at: usize, made: Vec<Piece>, bytes: usize) {
        self.begun = true;
        self.bytes += bytes;
        self.made.push((at, made));
    }
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
        let mut states = States::default();
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
                if !states.begun {
                    self.target.mark(object, EXISTS).await?;
                }
                states.add(at, made, now.as_ref().map_or(0, |data| data.len()));
                if states.bytes >= STATES {
                    self.write_all(&oid, &mut states).await?;
                }
            }
            (before, key) = (now, Some(now_key));
        }
        self.write_all(&oid, &mut states).await?;
        if states.begun {
            self.mark_head(object, before.is_some(), changed).await?;
        }
        // A client may have been faster, where the target has no lock.
        if states.refused {
            let set = self.view.data.list_snaps(&oid).await?;
            self.check_snaps(object, under, &set).await?;
        }
        Ok(states.version)
    }

    async fn write_all(&self, oid: &str, states: &mut States) -> Result<()> {
        if states.made.is_empty() {
            return Ok(());
        }
        // Where somebody has ended the migration meanwhile the source may have gone: what was read of it is worth nothing then.
        self.target.executing().await?;
        states.bytes = 0;
        for (at, made) in std::mem::take(&mut states.made) {
            match self.write(oid, at, made).await? {
                Some(new) => states.version = Some(new),
                None => states.refused = true,
            }
        }
        Ok(())
    }

    /// Of an object that the target's head does not read from the source, but snapshots do (the source was larger then): a client that writes to it, since the target
    /// has grown, copies nothing for the snapshots, and their states cannot be put below its own any more. Two that differ have a clone each,
    /// unless it came between the two.
    async fn check_snaps(&self, object: u64, under: &Under, set: &SnapSet) -> Result<()> {
        if self.target.fixed.layout.used(object, self.overlap) > 0 {
            return Ok(());
        }
        let mut before: Option<(Key, Content, Option<u64>)> = None;
        for (at, moment) in self.times.moments.iter().enumerate() {
            let Some(snap) = moment.snap.filter(|s| *s != NOSNAP) else {
                continue;
            };
            let (key, clone) = (self.source.key(object, at, under), state_at(set, snap));
            let content = match &before {
                Some((same, content, _)) if *same == key => content.clone(),
                _ => self.source.content(object, at, under).await?,
            };
            let is_mixed = before
                .as_ref()
                .is_some_and(|(_, old, shared)| clone.is_some() && *shared == clone && *old != content);
            if clone.is_none() && content.is_some() || is_mixed {
                let name = self.view.header.snap(snap).map_or("", |s| s.name.as_str());
                let what = format!(
                    "object {} of the target was written before it had what snapshot '{name}' has in it: \
                     remove that snapshot from the target, or abort the migration",
                    self.target.data_oid(object)
                );
                return Err(Error::refused(Errno::EINVAL, what));
            }
            before = Some((key, content, clone));
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
