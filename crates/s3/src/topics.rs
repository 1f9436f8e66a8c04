//! Topics: where a user's events go, and the queues of what has not been told yet.
//!
//! ```text
//! in `topics`:          t USER 00 NAME    Topic
//!                       x ID              (since): the queue of a topic that is being made, or was removed
//! in `topic.ID`:        q                 Queue: how many of the events' rows there are, and what was dropped
//!                       l                 Lease: who tells what is in it
//!                       e NUMBER G NN     Event, as `notify` has it, for the NNth of those whom it is told
//! ```
//!
//! All changes of a queue expect `q` as it was seen, so the number of its rows is exact. Rows are named as they were in their shard: what is brought twice is there once,
//! unless it was told in between.
//!
//! Bounds: [`TOPICS_MAX`] topics of a user; [`ROWS_MAX`] events of a topic, and [`BYTES_MAX`]: what finds no room is dropped, and counted.

use crate::accounts::{all_rows, ensure};
use crate::rados::{Change, Look, PAGE, Pool, Span};
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use io::task;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub const TOPICS: &str = "topics";
/// The version of all rows here.
pub const FORM: u8 = 1;
pub const TOPICS_MAX: usize = 20;
pub const ROWS_MAX: u64 = if cfg!(test) { 200 } else { 50_000 };
pub const BYTES_MAX: u64 = 16 << 20;
/// Who tells what is in a queue has it for so long (milliseconds).
pub const LEASE: u64 = 15_000;
/// A topic that has not been made within so long (milliseconds) is not made any more.
const MADE_WITHIN: u64 = 60_000;
/// Set in the time of a queue that is being removed.
const BURYING: u64 = 1 << 63;
const TRIES_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Names its queue: a topic that is made again under the same name has another.
    pub id: String,
    pub owner: String,
    pub name: String,
    pub endpoint: String,
    /// Is in each event.
    pub opaque: String,
    pub created: u64,
}

denc::envelope_denc!(Topic, FORM, FORM, { id, owner, name, endpoint, opaque, created });

/// What is said of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    pub rows: u64,
    /// Of events.
    pub bytes: u64,
    /// Events that were dropped since there was no room.
    pub full: u64,
    /// And since they could not be told for too long.
    pub old: u64,
}

denc::envelope_denc!(Queue, FORM, FORM, { rows, bytes, full, old });

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Lease {
    by: u64,
    /// Milliseconds since 1970.
    until: u64,
}

denc::envelope_denc!(Lease, FORM, FORM, { by, until });

/// Rows, in order.
#[derive(Debug)]
pub struct Page {
    pub rows: Vec<(Bytes, Bytes)>,
    /// There are more behind.
    pub more: bool,
    /// How many the queue has in all.
    pub queued: u64,
}

/// A part of a queue as it was at one moment, with what was said of it then.
#[derive(Debug)]
pub struct Part {
    pub said: Option<Bytes>,
    pub rows: Vec<(Bytes, Bytes)>,
    pub more: bool,
}

/// What is to be told.
#[derive(Debug)]
pub enum Taken {
    Page(Page),
    /// Another tells it.
    Others,
}

/// What was told, or was dropped.
#[derive(Debug, Default)]
pub struct Done {
    pub told: BTreeSet<Bytes>,
    pub old: BTreeSet<Bytes>,
}

impl Done {
    pub fn count(&self) -> usize {
        self.told.len() + self.old.len()
    }
}

fn prefix_of(owner: &str) -> Bytes {
    [b"t", owner.as_bytes(), &[0]].concat().into()
}

fn topic_row(owner: &str, name: &str) -> Bytes {
    [&prefix_of(owner)[..], name.as_bytes()].concat().into()
}

fn dead_row(id: &str) -> Bytes {
    [b"x", id.as_bytes()].concat().into()
}

fn queue_name(id: &str) -> String {
    format!("topic.{id}")
}

fn queue_row() -> Bytes {
    Bytes::from_static(b"q")
}

fn lease_row() -> Bytes {
    Bytes::from_static(b"l")
}

fn read(row: &Bytes, raw: &Bytes) -> Option<Topic> {
    let topic = Topic::from_bytes(raw);
    let said = |e: &denc::Error| {
        tracing::error!(
            "s3: topic {}: a record that cannot be read: {e}",
            row.escape_ascii()
        );
    };
    topic.inspect_err(said).ok()
}

/// One that cannot be read is taken for empty: events are worth more than their count.
fn queue_of(raw: Option<&Bytes>) -> Queue {
    raw.and_then(|raw| Queue::from_bytes(raw).ok())
        .unwrap_or_default()
}

fn lease_of(raw: Option<&Bytes>) -> Lease {
    raw.and_then(|raw| Lease::from_bytes(raw).ok())
        .unwrap_or_default()
}

#[derive(Clone)]
pub struct Topics<P> {
    pool: P,
    clock: Clock,
}

impl<P: Pool> Topics<P> {
    pub fn new(pool: P, clock: Clock) -> Self {
        Self { pool, clock }
    }

    /// Makes a topic, or changes the one of that name.
    pub async fn create(&self, owner: &str, name: &str, endpoint: &str, opaque: &str) -> Result<Topic> {
        ensure(&self.pool, TOPICS).await?;
        let row = topic_row(owner, name);
        for _ in 0..TRIES_MAX {
            let seen = self
                .pool
                .look(TOPICS, Look::keys([&row]))
                .await?
                .values
                .remove(&row);
            let old = seen.as_ref().map(Topic::from_bytes).transpose()?;
            let change = Change::default().expecting(&row, seen.as_ref());
            let (topic, change) = match old {
                Some(old) => {
                    let topic = Topic {
                        endpoint: endpoint.to_string(),
                        opaque: opaque.to_string(),
                        ..old
                    };
                    (topic, change)
                }
                None => {
                    if self.of(owner).await?.len() >= TOPICS_MAX {
                        return Err(Error::Invalid(format!("a user has at most {TOPICS_MAX} topics")));
                    }
                    let topic = Topic {
                        id: self.clock.tag().to_string(),
                        owner: owner.to_string(),
                        name: name.to_string(),
                        endpoint: endpoint.to_string(),
                        opaque: opaque.to_string(),
                        created: self.clock.now_ms(),
                    };
                    // If this is cut off a queue is left that is named as dead already.
                    let (dead, made) = (dead_row(&topic.id), topic.created.to_bytes());
                    let named = Change::default().setting(&dead, made.clone());
                    self.pool.change(TOPICS, named).await?;
                    ensure(&self.pool, &queue_name(&topic.id)).await?;
                    (topic, change.expecting(&dead, Some(&made)).unsetting(&dead))
                }
            };
            let change = change.setting(&row, topic.to_bytes());
            match self.pool.change(TOPICS, change).await {
                Err(e) if e.is_conflict() => {}
                other => return other.map(|()| topic),
            }
        }
        Err(Error::Conflict("others change the same topic"))
    }

    pub async fn get(&self, owner: &str, name: &str) -> Result<Option<Topic>> {
        Ok(self.named(owner, [name]).await?.pop())
    }

    /// Those of these names that there are.
    pub async fn named<'a>(
        &self,
        owner: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<Topic>> {
        let look = Look {
            keys: names.into_iter().map(|name| topic_row(owner, name)).collect(),
            ..Look::default()
        };
        let seen = match self.pool.look(TOPICS, look).await {
            Err(e) if e.is_not_found() => return Ok(Vec::new()),
            other => other?,
        };
        let topics = seen.values.values().map(|raw| Ok(Topic::from_bytes(raw)?));
        topics.collect()
    }

    async fn below(&self, prefix: &Bytes) -> Result<Vec<(Bytes, Bytes)>> {
        match all_rows(&self.pool, TOPICS, prefix).await {
            Err(e) if e.is_not_found() => Ok(Vec::new()),
            other => other,
        }
    }

    /// A user's, in order.
    pub async fn of(&self, owner: &str) -> Result<Vec<Topic>> {
        let rows = self.below(&prefix_of(owner)).await?;
        let topics = rows.iter().map(|(_, raw)| Ok(Topic::from_bytes(raw)?));
        topics.collect()
    }

    /// All, but for those that cannot be read.
    pub async fn all(&self) -> Result<Vec<Topic>> {
        let rows = self.below(&Bytes::from_static(b"t")).await?;
        Ok(rows.iter().filter_map(|(row, raw)| read(row, raw)).collect())
    }

    /// All as they lie.
    pub async fn rows(&self) -> Result<Vec<(Bytes, Bytes)>> {
        self.below(&Bytes::from_static(b"t")).await
    }

    /// What of a queue comes behind this row; to look at alone.
    pub async fn part(&self, id: &str, after: &Bytes) -> Result<Part> {
        let prefix = Bytes::from_static(b"e");
        let mut look = Look::keys([&queue_row()]);
        look.page = Some(Span::new(after.max(&prefix), &prefix, PAGE));
        let mut seen = self.pool.look(&queue_name(id), look).await?;
        Ok(Part {
            said: seen.values.remove(&queue_row()),
            rows: seen.rows,
            more: seen.more,
        })
    }

    /// With what has not been told yet.
    pub async fn delete(&self, owner: &str, name: &str) -> Result<()> {
        let row = topic_row(owner, name);
        for _ in 0..TRIES_MAX {
            let Some(topic) = self.get(owner, name).await? else {
                return Ok(());
            };
            let dead = (self.clock.now_ms() | BURYING).to_bytes();
            let change = Change::default()
                .expecting(&row, Some(&topic.to_bytes()))
                .unsetting(&row)
                .setting(&dead_row(&topic.id), dead);
            match self.pool.change(TOPICS, change).await {
                Err(e) if e.is_conflict() => {}
                other => {
                    other?;
                    return self.bury(&topic.id).await;
                }
            }
        }
        Err(Error::Conflict("others change the same topic"))
    }

    async fn bury(&self, id: &str) -> Result<()> {
        self.pool.remove(&queue_name(id)).await?;
        let gone = Change::default().unsetting(&dead_row(id));
        self.pool.change(TOPICS, gone).await
    }

    /// Removes queues that were left.
    pub async fn sweep(&self) -> Result<()> {
        let mut last = Ok(());
        for (row, raw) in self.below(&Bytes::from_static(b"x")).await? {
            if let Err(e) = self.sweep_one(&row, &raw).await {
                last = Err(e);
            }
        }
        last
    }

    async fn sweep_one(&self, row: &Bytes, raw: &Bytes) -> Result<()> {
        let (id, since) = (
            String::from_utf8_lossy(&row[1..]).into_owned(),
            u64::from_bytes(raw)?,
        );
        if (since & !BURYING).saturating_add(MADE_WITHIN) > self.clock.now_ms() {
            return Ok(());
        }
        if since & BURYING == 0 {
            // From now on it cannot be made any more.
            let change = Change::default()
                .expecting(row, Some(raw))
                .setting(row, (since | BURYING).to_bytes());
            match self.pool.change(TOPICS, change).await {
                Err(e) if e.is_conflict() => return Ok(()),
                other => other?,
            }
        }
        self.bury(&id).await
    }

    /// Others were faster: not all of them at once again.
    async fn outrun(&self) {
        task::sleep(Duration::from_millis(1 + self.clock.random_u64() % 8)).await;
    }

    pub async fn queue(&self, id: &str) -> Result<Queue> {
        let look = Look::keys([&queue_row()]);
        match self.pool.look(&queue_name(id), look).await {
            Err(e) if e.is_not_found() => Ok(Queue::default()),
            other => Ok(queue_of(other?.values.get(&queue_row()))),
        }
    }

    /// Adds events, by the names of their rows, as far as there is room for them; how many were dropped.
    pub async fn add(&self, id: &str, events: &BTreeMap<Bytes, Bytes>) -> Result<u64> {
        for _ in 0..TRIES_MAX {
            let mut look = Look::keys([&queue_row()]);
            look.keys.extend(events.keys().cloned());
            let seen = self.pool.look(&queue_name(id), look).await?.values;
            let old = seen.get(&queue_row());
            let was = queue_of(old);
            let new: Vec<_> = events
                .iter()
                .filter(|(row, _)| !seen.contains_key(*row))
                .collect();
            if new.is_empty() {
                return Ok(0);
            }
            let mut queue = was;
            let mut change = Change::default().expecting(&queue_row(), old);
            for (row, event) in new {
                let bytes = event.len() as u64;
                if queue.rows >= ROWS_MAX || queue.bytes + bytes > BYTES_MAX {
                    queue.full += 1;
                    continue;
                }
                (queue.rows, queue.bytes) = (queue.rows + 1, queue.bytes + bytes);
                change = change.expecting(row, None).setting(row, event.clone());
            }
            let change = change.setting(&queue_row(), queue.to_bytes());
            match self.pool.change(&queue_name(id), change).await {
                Err(e) if e.is_conflict() => self.outrun().await,
                other => {
                    other?;
                    // Not with each of very many.
                    if queue.full > 0 && (was.full == 0 || was.full / 1000 != queue.full / 1000) {
                        tracing::warn!(
                            "s3: topic queue {id} is full: {} events were dropped so far",
                            queue.full
                        );
                    }
                    return Ok(queue.full - was.full);
                }
            }
        }
        Err(Error::Busy("others write to the same topic"))
    }

    /// What comes after `after`, for who has the queue from now on, or still.
    pub async fn take(&self, id: &str, after: &Bytes, max: u64, by: u64) -> Result<Taken> {
        let prefix = Bytes::from_static(b"e");
        let mut look = Look::keys([&lease_row(), &queue_row()]);
        look.page = Some(Span::new(after.max(&prefix), &prefix, max));
        let seen = self.pool.look(&queue_name(id), look).await?;
        let (old, now) = (seen.values.get(&lease_row()), self.clock.now_ms());
        let lease = lease_of(old);
        // A clock that is far ahead takes nothing for long.
        let held = lease.until > now && lease.until <= now + LEASE;
        if held && lease.by != by {
            return Ok(Taken::Others);
        }
        let page = Page {
            queued: queue_of(seen.values.get(&queue_row())).rows,
            more: seen.more,
            rows: seen.rows,
        };
        if page.rows.is_empty() {
            return Ok(Taken::Page(page));
        }
        let lease = Lease {
            by,
            until: now + LEASE,
        };
        let change = Change::default()
            .expecting(&lease_row(), old)
            .setting(&lease_row(), lease.to_bytes());
        match self.pool.change(&queue_name(id), change).await {
            Err(e) if e.is_conflict() => Ok(Taken::Others),
            other => other.map(|()| Taken::Page(page)),
        }
    }

    /// Takes away what was told, and what was dropped; whoever has the queue has it on, or no longer. False: it is another's. With how many it has dropped itself.
    pub async fn settle(&self, id: &str, done: &Done, (by, on): (u64, bool)) -> Result<(bool, u64)> {
        for _ in 0..TRIES_MAX {
            let mut look = Look::keys([&queue_row(), &lease_row()]);
            look.keys.extend(done.told.iter().chain(&done.old).cloned());
            let seen = self.pool.look(&queue_name(id), look).await?.values;
            let (old, lease) = (seen.get(&queue_row()), seen.get(&lease_row()));
            let mut queue = queue_of(old);
            let dropped = queue.old;
            let mut change = Change::default()
                .expecting(&queue_row(), old)
                .expecting(&lease_row(), lease);
            let mine = lease_of(lease).by == by;
            if mine {
                let until = if on { self.clock.now_ms() + LEASE } else { 0 };
                change = change.setting(&lease_row(), Lease { by, until }.to_bytes());
            }
            for row in done.told.iter().chain(&done.old) {
                let Some(value) = seen.get(row) else { continue };
                change = change.expecting(row, Some(value)).unsetting(row);
                queue.rows = queue.rows.saturating_sub(1);
                queue.bytes = queue.bytes.saturating_sub(value.len() as u64);
                queue.old += u64::from(done.old.contains(row));
            }
            if !mine && change.unset.is_empty() {
                return Ok((false, 0));
            }
            change = change.setting(&queue_row(), queue.to_bytes());
            match self.pool.change(&queue_name(id), change).await {
                Err(e) if e.is_conflict() => self.outrun().await,
                other => return other.map(|()| (mine, queue.old - dropped)),
            }
        }
        Err(Error::Busy("others write to the same topic"))
    }
}
