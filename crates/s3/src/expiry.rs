//! Removes objects, moves them to other storage classes, and aborts uploads, whose time has come by their bucket's lifecycle: a walk over
//! the bucket after each midnight, and after each change of its settings. Where objects may end by themselves (Swift's `X-Delete-At`) there is a walk each hour.
//!
//! How far a walk has come is durable (a row beside the bucket's record), so that any gateway goes on with it; who walks has it for
//! a while alone. That saves work, no more: all that is done here can be done twice.
//!
//! An object goes only if it is, in the same operation, the one that was judged; before each few the bucket must be as it was, so
//! that rules which were taken back remove nothing any more. A row that cannot be read is logged and passed by.
//!
//! Who moves what is large says so while it does: another does not begin with the same meanwhile. Moves have a turn of each round; what is not begun
//! then waits for the next one, so that a pool that takes nothing (it is full) does not keep removals waiting, nor other buckets.
//!
//! Bounds: [`ROWS_MAX`] rows of a bucket at a time, a page of them in memory, [`AT_ONCE`] removals and [`MOVES_AT_ONCE`] moves at the same time.

use crate::buckets::{Buckets, Known};
use crate::history::Versioning;
use crate::index::Position;
use crate::lifecycle::{self, Kind, Rule};
use crate::notify::{Asker, How, Notice};
use crate::objects::Objects;
use crate::rados::{PAGE, Pool};
use crate::record::{Entry, Older, Upload, escape, older_of, unescape, upload_of};
use crate::settings::Settings;
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};
use io::task::{self, TaskHandle};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Rows that are looked at before other buckets have their turn.
const ROWS_MAX: usize = if cfg!(test) { 20 } else { 10_000 };
const AT_ONCE: usize = 16;
/// Each has the memory of an upload.
const MOVES_AT_ONCE: usize = 2;
/// Moves of a bucket begin for so long of a round (milliseconds).
const MOVE_TURN: u64 = 60_000;
/// Who walks has the bucket so long (milliseconds), and stops at half of it; or for so many days, where those are short.
const LEASE: u64 = 5 * 60 * 1000;
const LEASE_DAYS: u64 = 8;
/// Walks of a day over a bucket with objects that end by themselves.
const ENDING_PER_DAY: u64 = 24;
/// A page whose removals failed so often is passed by, until the next walk.
const TRIES_MAX: u8 = 3;

pub struct Expiry<P> {
    pub objects: Objects<P>,
    pub buckets: Buckets<P>,
    pub clock: Clock,
    /// Milliseconds of a day.
    pub day: u64,
}

/// What was done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    pub expired: u64,
    pub moved: u64,
    pub aborted: u64,
}

/// A walk, under way or over.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Walk {
    /// The number of the bucket's settings, and the time, when it began.
    settings: u64,
    begun: u64,
    /// The class of rows where it is; 0: it is over.
    class: u8,
    at: Bytes,
    including: bool,
    tries: u8,
    /// Somebody walks, until then.
    until: u64,
    /// Within the versions of a key, escaped: how many that are not the current one were passed.
    newer: (Bytes, u32),
}

pub const WITH_NEWER: u8 = 2;

impl Encode for Walk {
    fn encode(&self, w: &mut Writer) {
        w.envelope(WITH_NEWER, 1, |w| {
            w.put(&self.settings);
            w.put(&self.begun);
            w.put(&self.class);
            w.put(&self.at);
            w.put(&self.including);
            w.put(&self.tries);
            w.put(&self.until);
            w.put(&self.newer);
        });
    }
}

impl Decode for Walk {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(WITH_NEWER, |version, r| {
            Ok(Self {
                settings: r.get()?,
                begun: r.get()?,
                class: r.get()?,
                at: r.get()?,
                including: r.get()?,
                tries: r.get()?,
                until: r.get()?,
                newer: if version < WITH_NEWER {
                    Default::default()
                } else {
                    r.get()?
                },
            })
        })
    }
}

impl Walk {
    fn new(settings: u64, begun: u64) -> Self {
        Self {
            settings,
            begun,
            class: b'e',
            at: Bytes::new(),
            including: true,
            tries: 0,
            until: 0,
            newer: Default::default(),
        }
    }

    fn kind(&self) -> Option<Kind> {
        match self.class {
            b'e' => Some(Kind::Objects),
            b'v' => Some(Kind::Versions),
            b'u' => Some(Kind::Uploads),
            _ => None,
        }
    }

    fn position(&self) -> Position {
        Position {
            at: self.at.clone(),
            including: self.including,
        }
    }

    fn go_on(&mut self, next: Option<Position>) {
        self.tries = 0;
        let next = next.unwrap_or_else(|| {
            self.newer = Default::default();
            self.class = match self.class {
                b'e' => b'v',
                b'v' => b'u',
                _ => 0,
            };
            Position::start()
        });
        (self.at, self.including) = (next.at, next.including);
    }
}

/// What is to go.
#[derive(Debug, Clone)]
enum Due {
    Object(String, Box<Entry>),
    /// If so many that are not the current one are newer.
    Version(String, Box<Older>, u32),
    Upload(String, String),
    /// To a storage class.
    Move(String, Box<Entry>, String),
    MoveVersion(String, Box<Older>, u32, String),
}

impl Due {
    fn key(&self) -> &str {
        let (Self::Object(key, _)
        | Self::Version(key, ..)
        | Self::Upload(key, _)
        | Self::Move(key, ..)
        | Self::MoveVersion(key, ..)) = self;
        key
    }
}

/// What all keys begin with that a walk looks at.
fn scope(settings: &Settings, kind: Kind) -> Option<String> {
    match settings.ending && kind == Kind::Objects {
        true => Some(String::new()),
        false => lifecycle::scope(&settings.lifecycle, kind),
    }
}

impl<P: Pool> Expiry<P> {
    /// Goes on with the walk over a bucket, if there is one to do.
    pub async fn run(&self, name: &str, done: &mut Done) -> Result<()> {
        let known = self.buckets.known(name).await?;
        let acts = |kind| scope(&known.settings.of, kind).is_some();
        let any = [Kind::Objects, Kind::Versions, Kind::Uploads]
            .into_iter()
            .any(acts);
        if known.bucket.deleting != 0 || !any {
            return Ok(());
        }
        let seen = self.buckets.walk(&known.bucket.id).await?;
        let Some(mut walk) = self.next(&known, seen.as_ref()) else {
            return Ok(());
        };
        walk.until = self.clock.now_ms() + self.lease();
        let mut taken = walk.to_bytes();
        let set = |from, to| self.buckets.set_walk((name, &known.bucket), from, to);
        if !set(seen.as_ref(), taken.clone()).await? {
            return Ok(());
        }
        let walked = self.go(name, &known, (&mut walk, &mut taken), done).await;
        walk.until = 0;
        set(Some(&taken), walk.to_bytes()).await?;
        walked
    }

    /// Has the bucket for longer, without having come further by what is durable. False: another has it, or it is no longer as it was.
    async fn hold(&self, name: &str, known: &Known, (walk, taken): (&mut Walk, &mut Bytes)) -> Result<bool> {
        walk.until = self.clock.now_ms() + self.lease();
        let mut longer = Walk::from_bytes(taken)?;
        longer.until = walk.until;
        let longer = longer.to_bytes();
        let set = self
            .buckets
            .set_walk((name, &known.bucket), Some(taken), longer.clone());
        let held = set.await?;
        if held {
            *taken = longer;
        }
        Ok(held)
    }

    fn lease(&self) -> u64 {
        LEASE.min(self.day.saturating_mul(LEASE_DAYS))
    }

    fn next(&self, known: &Known, seen: Option<&Bytes>) -> Option<Walk> {
        let (now, settings) = (self.clock.now_ms(), known.bucket.settings);
        let fresh = Walk::new(settings, now);
        // One that cannot be read begins anew.
        let Some(walk) = seen.and_then(|raw| Walk::from_bytes(raw).ok()) else {
            return Some(fresh);
        };
        // A clock that is far ahead takes nothing for long.
        let held = walk.until > now && walk.until <= now + self.lease();
        match walk.kind() {
            _ if held => None,
            Some(_) => Some(walk),
            None if walk.settings == settings
                && walk.begun / self.day == now / self.day
                && !(known.settings.of.ending
                    && now.saturating_sub(walk.begun) >= self.day / ENDING_PER_DAY) =>
            {
                None
            }
            None => Some(fresh),
        }
    }

    async fn go(
        &self,
        name: &str,
        known: &Known,
        (walk, taken): (&mut Walk, &mut Bytes),
        done: &mut Done,
    ) -> Result<()> {
        let rules = &known.settings.of.lifecycle;
        let (mut looked, end) = (0, walk.until - self.lease() / 2);
        let moving = Turn::new(self.clock.now_ms() + MOVE_TURN);
        while let Some(kind) = walk.kind() {
            let Some(scope) = scope(&known.settings.of, kind) else {
                walk.go_on(None);
                continue;
            };
            let (index, id) = (&self.objects.index, &known.bucket.id);
            let page = index
                .rows(id, walk.class, &escape(&scope), &walk.position(), PAGE)
                .await?;
            let mut newer = walk.newer.clone();
            let due = self.due(name, kind, rules, &page.rows, &mut newer);
            for (n, some) in due.chunks(AT_ONCE).enumerate() {
                // What was done is not due any more.
                if n > 0 && self.clock.now_ms() >= end {
                    return Ok(());
                }
                if self.buckets.now(name).await? != known.bucket {
                    return Ok(());
                }
                let acting = joined(self.begin((name, known), some, &moving), done);
                let held = (&mut *walk, &mut *taken);
                match self.through(name, known, held, acting, &moving).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(e) => {
                        walk.tries += 1;
                        if walk.tries < TRIES_MAX {
                            return Err(e);
                        }
                        tracing::warn!("s3: lifecycle of {name}: {e}");
                    }
                }
            }
            // Those that did not begin are due still.
            if moving.put_off() && walk.tries < TRIES_MAX {
                return Ok(());
            }
            looked += page.rows.len().max(1);
            walk.newer = newer;
            walk.go_on(page.next);
            if looked >= ROWS_MAX || self.clock.now_ms() >= end {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for what has begun, and has the bucket meanwhile. False: it is another's, or is no longer as it was.
    async fn through(
        &self,
        name: &str,
        known: &Known,
        (walk, taken): (&mut Walk, &mut Bytes),
        acting: impl Future<Output = Result<()>>,
        moving: &Turn,
    ) -> Result<bool> {
        let mut acting = std::pin::pin!(acting);
        loop {
            if let Ok(acted) = task::timeout(self.hold_every(), acting.as_mut()).await {
                return acted.map(|()| true);
            }
            let held = self.hold(name, known, (&mut *walk, &mut *taken)).await;
            if self.clock.now_ms() >= moving.until {
                moving.begin.close();
            }
            if !matches!(held, Ok(true)) {
                // What has begun ends by itself; no further move begins.
                moving.begin.close();
                return acting.await.and(held);
            }
        }
    }

    /// What of a page is to go.
    fn due(
        &self,
        name: &str,
        kind: Kind,
        rules: &[Rule],
        rows: &[(Bytes, Bytes)],
        newer: &mut (Bytes, u32),
    ) -> Vec<Due> {
        let mut due = Vec::new();
        for (n, (rest, value)) in rows.iter().enumerate() {
            let judged = match kind {
                Kind::Versions => self.judge_version(rules, &rows[n..], newer),
                Kind::Objects => self.judge_object(rules, rest, value),
                Kind::Uploads => self.judge_upload(rules, rest, value),
            };
            due.extend(judged.unwrap_or_else(|e| {
                tracing::warn!("s3: lifecycle of {name}: {}: {e}", rest.escape_ascii());
                None
            }));
        }
        due
    }

    fn is_over(&self, end: Option<u64>) -> bool {
        end.is_some_and(|at| at <= self.clock.now_ms())
    }

    fn judge_object(&self, rules: &[Rule], rest: &Bytes, value: &Bytes) -> Result<Option<Due>> {
        let (key, entry) = (unescape(rest).ok_or_else(no_text)?, Entry::from_bytes(value)?);
        let end = lifecycle::expires(rules, &key, &entry, self.day);
        if self.is_over(end.map(|(at, _)| at)) || entry.attributes.has_ended(self.clock.now_ms()) {
            return Ok(Some(Due::Object(key, Box::new(entry))));
        }
        let times = (self.day, self.clock.now_ms());
        let class = lifecycle::moves_to(rules, &key, &entry, times).map(str::to_string);
        Ok(class.map(|class| Due::Move(key, Box::new(entry), class)))
    }

    /// The first of these rows. `newer`: how many of its key were passed that are not the current version.
    fn judge_version(
        &self,
        rules: &[Rule],
        rows: &[(Bytes, Bytes)],
        newer: &mut (Bytes, u32),
    ) -> Result<Option<Due>> {
        let Some((rest, value)) = rows.first() else {
            return Ok(None);
        };
        let (escaped, _) = older_of(rest).ok_or_else(no_text)?;
        if newer.0 != escaped {
            *newer = (escaped.clone(), 0);
        }
        let older = Older::from_bytes(value)?;
        let key = unescape(&escaped).ok_or_else(no_text)?;
        let keep = match older.since {
            // Whether it is all there is the removal sees; that it is not is mostly seen here.
            0 => {
                let next = rows.get(1).and_then(|(rest, _)| older_of(rest));
                let followed = next.is_some_and(|(key, _)| key == escaped);
                let end = lifecycle::marker_expires(rules, &key, &older.entry, self.day);
                self.is_over(end.filter(|_| !followed)).then_some(0)
            }
            _ => {
                let times = (self.day, self.clock.now_ms());
                let keep = lifecycle::older_over(rules, &key, &older, newer.1, times);
                let to = lifecycle::older_moves_to(rules, &key, &older, newer.1, times);
                newer.1 = newer.1.saturating_add(1);
                if let (None, Some((class, keep))) = (keep, to) {
                    let class = class.to_string();
                    return Ok(Some(Due::MoveVersion(key, Box::new(older), keep, class)));
                }
                keep
            }
        };
        Ok(keep.map(|keep| Due::Version(key, Box::new(older), keep)))
    }

    fn judge_upload(&self, rules: &[Rule], rest: &Bytes, value: &Bytes) -> Result<Option<Due>> {
        let row = [b"u", &rest[..]].concat();
        let ((key, id), upload) = (upload_of(&row).ok_or_else(no_text)?, Upload::from_bytes(value)?);
        let end = lifecycle::aborts(rules, &key, upload.begun, self.day);
        Ok(self.is_over(end).then_some(Due::Upload(key, id)))
    }

    /// All of them are tried. Those of one key one after the other: they change the same rows.
    fn begin(&self, (name, known): (&str, &Known), some: &[Due], moving: &Arc<Turn>) -> Vec<Acting> {
        let of_keys = some.chunk_by(|a, b| a.key() == b.key());
        if self.clock.now_ms() >= moving.until {
            moving.begin.close();
        }
        let begun = of_keys.map(|dues| {
            let key = dues.first().map(Due::key).unwrap_or_default();
            let of = (name, known.bucket.owner.as_str(), key);
            let rules = &known.settings.of.notifications;
            let notice = Notice::of(rules, of, How::Expire, &Asker::default());
            let (objects, bucket) = (self.objects.telling(notice), known.bucket.id.clone());
            let (dues, versioning) = (dues.to_vec(), known.settings.of.versioning);
            let moving = moving.clone();
            task::spawn_local(async move {
                let (mut done, mut result) = (Done::default(), Ok(()));
                for due in dues {
                    let of = (bucket.as_str(), versioning);
                    if let Err(e) = act(&objects, of, due, &moving, &mut done).await {
                        result = Err(e);
                    }
                }
                (done, result)
            })
        });
        begun.collect()
    }

    /// How often is said that the bucket is walked still, while something takes long.
    fn hold_every(&self) -> Duration {
        Duration::from_millis(MOVE_TURN.min(self.lease() / 4))
    }
}

/// What lets moves begin in a round.
struct Turn {
    /// Closed: no further one begins.
    begin: Semaphore,
    /// When that is to be (milliseconds since 1970).
    until: u64,
    late: AtomicBool,
}

impl Turn {
    fn new(until: u64) -> Arc<Self> {
        Arc::new(Self {
            begin: Semaphore::new(MOVES_AT_ONCE),
            until,
            late: AtomicBool::new(false),
        })
    }

    /// A move came when no further one began.
    fn put_off(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }
}

type Acting = TaskHandle<(Done, Result<()>)>;

/// The last error.
async fn joined(begun: Vec<Acting>, done: &mut Done) -> Result<()> {
    let mut result = Ok(());
    for task in begun {
        let stopping = |_| (Done::default(), Err(Error::Busy("the gateway is stopping")));
        let (some, of_key) = task.await.unwrap_or_else(stopping);
        done.expired += some.expired;
        done.moved += some.moved;
        done.aborted += some.aborted;
        result = of_key.and(result);
    }
    result
}

/// Moves what is due, if it is still so. A class that takes nothing new any more moves nothing.
async fn move_one<P: Pool>(objects: &Objects<P>, bucket: &str, due: &Due, moving: &Turn) -> Result<bool> {
    let (Due::Move(key, _, class) | Due::MoveVersion(key, .., class)) = due else {
        return Ok(false);
    };
    let Ok(_turn) = moving.begin.acquire().await else {
        moving.late.store(true, Ordering::Relaxed);
        return Ok(false);
    };
    let Some(place) = objects.data.classes().open_to(class).await? else {
        return Ok(false);
    };
    let (of, to) = ((bucket, key.as_str()), (class.as_str(), place));
    let moved = match due {
        Due::MoveVersion(_, older, keep, _) => objects.move_older(of, (older, *keep), to).await,
        Due::Move(_, entry, _) => objects.move_current(of, entry, to).await,
        _ => Ok(false),
    };
    match moved {
        // It went while it was copied.
        Err(e) if e.is_not_found() => Ok(false),
        other => other,
    }
}

async fn act<P: Pool>(
    objects: &Objects<P>,
    (bucket, versioning): (&str, Versioning),
    due: Due,
    moving: &Turn,
    done: &mut Done,
) -> Result<()> {
    match due {
        Due::Move(..) | Due::MoveVersion(..) => {
            let moved = move_one(objects, bucket, &due, moving).await?;
            done.moved += u64::from(moved);
        }
        Due::Object(key, entry) => {
            let gone = objects.delete_seen(bucket, &key, &entry, versioning).await?;
            done.expired += u64::from(gone);
        }
        Due::Version(key, older, keep) => {
            let gone = objects.remove_seen(bucket, &key, (&older, keep)).await?;
            done.expired += u64::from(gone);
        }
        Due::Upload(key, id) => match objects.abort((bucket, &key, &id)).await {
            Ok(()) => done.aborted += 1,
            Err(Error::NoSuchUpload) => {}
            Err(e) => return Err(e),
        },
    }
    Ok(())
}

fn no_text() -> Error {
    Error::Damaged("a key that is no text".into())
}
