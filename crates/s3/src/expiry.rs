//! Removes objects and aborts uploads whose time has come by their bucket's lifecycle: a walk over the bucket after each midnight, and
//! after each change of its settings.
//!
//! How far a walk has come is durable (a row beside the bucket's record), so that any gateway goes on with it; who walks has it for
//! a while alone. That saves work, no more: all that is done here can be done twice.
//!
//! An object goes only if it is, in the same operation, the one that was judged; before each few the bucket must be as it was, so
//! that rules which were taken back remove nothing any more. A row that cannot be read is logged and passed by.
//!
//! Bounds: [`ROWS_MAX`] rows of a bucket at a time, a page of them in memory, [`AT_ONCE`] removals at the same time.

use crate::buckets::{Buckets, Known};
use crate::index::Position;
use crate::lifecycle::{self, Kind, Rule};
use crate::objects::Objects;
use crate::rados::{PAGE, Pool};
use crate::record::{Entry, Upload, escape, unescape, upload_of};
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use io::task;

/// Rows that are looked at before other buckets have their turn.
const ROWS_MAX: usize = if cfg!(test) { 20 } else { 10_000 };
const AT_ONCE: usize = 16;
/// Who walks has the bucket so long (milliseconds), and stops at half of it; or for so many days, where those are short.
const LEASE: u64 = 5 * 60 * 1000;
const LEASE_DAYS: u64 = 8;
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
}

denc::envelope_denc!(Walk, 1, 1, { settings, begun, class, at, including, tries, until });

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
        }
    }

    fn kind(&self) -> Option<Kind> {
        match self.class {
            b'e' => Some(Kind::Objects),
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
            self.class = if self.class == b'e' { b'u' } else { 0 };
            Position::start()
        });
        (self.at, self.including) = (next.at, next.including);
    }
}

/// What is to go.
#[derive(Debug, Clone)]
enum Due {
    Object(String, Box<Entry>),
    Upload(String, String),
}

impl<P: Pool> Expiry<P> {
    /// Goes on with the walk over a bucket, if there is one to do.
    pub async fn run(&self, name: &str, done: &mut Done) -> Result<()> {
        let known = self.buckets.known(name).await?;
        let acts = |kind| lifecycle::scope(&known.settings.of.lifecycle, kind).is_some();
        if known.bucket.deleting != 0 || !(acts(Kind::Objects) || acts(Kind::Uploads)) {
            return Ok(());
        }
        let seen = self.buckets.walk(&known.bucket.id).await?;
        let Some(mut walk) = self.next(&known, seen.as_ref()) else {
            return Ok(());
        };
        walk.until = self.clock.now_ms() + self.lease();
        let taken = walk.to_bytes();
        let set = |from, to| self.buckets.set_walk((name, &known.bucket), from, to);
        if !set(seen.as_ref(), taken.clone()).await? {
            return Ok(());
        }
        let walked = self.go(name, &known, &mut walk, done).await;
        walk.until = 0;
        set(Some(&taken), walk.to_bytes()).await?;
        walked
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
            None if walk.settings == settings && walk.begun / self.day == now / self.day => None,
            None => Some(fresh),
        }
    }

    async fn go(&self, name: &str, known: &Known, walk: &mut Walk, done: &mut Done) -> Result<()> {
        let rules = &known.settings.of.lifecycle;
        let mut looked = 0;
        while let Some(kind) = walk.kind() {
            let Some(scope) = lifecycle::scope(rules, kind) else {
                walk.go_on(None);
                continue;
            };
            let (index, id) = (&self.objects.index, &known.bucket.id);
            let page = index
                .rows(id, walk.class, &escape(&scope), &walk.position(), PAGE)
                .await?;
            let judged = page.rows.iter().filter_map(|(rest, value)| {
                self.judge(kind, rules, rest, value).unwrap_or_else(|e| {
                    tracing::warn!("s3: lifecycle of {name}: {}: {e}", rest.escape_ascii());
                    None
                })
            });
            let due: Vec<Due> = judged.collect();
            for some in due.chunks(AT_ONCE) {
                if self.buckets.get(name).await? != known.bucket {
                    return Ok(());
                }
                if let Err(e) = self.remove(id, some, done).await {
                    walk.tries += 1;
                    if walk.tries < TRIES_MAX {
                        return Err(e);
                    }
                    tracing::warn!("s3: lifecycle of {name}: {e}");
                }
            }
            looked += page.rows.len().max(1);
            walk.go_on(page.next);
            if looked >= ROWS_MAX || self.clock.now_ms() + self.lease() / 2 >= walk.until {
                return Ok(());
            }
        }
        Ok(())
    }

    fn judge(&self, kind: Kind, rules: &[Rule], rest: &Bytes, value: &Bytes) -> Result<Option<Due>> {
        let damaged = || Error::Damaged("a key that is no text".into());
        let now = self.clock.now_ms();
        Ok(match kind {
            Kind::Objects => {
                let (key, entry) = (unescape(rest).ok_or_else(damaged)?, Entry::from_bytes(value)?);
                let end = lifecycle::expires(rules, &key, &entry, self.day);
                end.is_some_and(|(at, _)| at <= now)
                    .then(|| Due::Object(key, Box::new(entry)))
            }
            Kind::Uploads => {
                let row = [b"u", &rest[..]].concat();
                let ((key, id), upload) = (upload_of(&row).ok_or_else(damaged)?, Upload::from_bytes(value)?);
                let end = lifecycle::aborts(rules, &key, upload.begun, self.day);
                end.is_some_and(|at| at <= now).then_some(Due::Upload(key, id))
            }
        })
    }

    /// All of them are tried; the last error.
    async fn remove(&self, bucket: &str, some: &[Due], done: &mut Done) -> Result<()> {
        let begun = some.iter().cloned().map(|due| {
            let (objects, bucket) = (self.objects.clone(), bucket.to_string());
            task::spawn_local(async move {
                match due {
                    Due::Object(key, entry) => {
                        let gone = objects.delete_seen(&bucket, &key, &entry).await?;
                        Ok((u64::from(gone), 0))
                    }
                    Due::Upload(key, id) => match objects.abort((&bucket, &key, &id)).await {
                        Ok(()) => Ok((0, 1)),
                        Err(Error::NoSuchUpload) => Ok((0, 0)),
                        Err(e) => Err(e),
                    },
                }
            })
        });
        let begun: Vec<_> = begun.collect();
        let mut result = Ok(());
        for task in begun {
            match task.await.unwrap_or(Err(Error::Busy("the gateway is stopping"))) {
                Ok((expired, aborted)) => {
                    done.expired += expired;
                    done.aborted += aborted;
                }
                Err(e) => result = Err(e),
            }
        }
        result
    }
}
