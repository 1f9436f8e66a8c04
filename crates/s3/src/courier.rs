//! Takes events from the shards of indexes to the queues of their topics, and from there to whoever a topic names.
//!
//! Each gateway gathers what it has set itself as soon as it has; what a gateway that is gone has left is found by collectors (`gc`), and taken after [`STALE`]. An event is
//! first in its queue, then no longer in its shard; first told, then no longer in its queue: it is told once or more, whatever is cut off. One gateway at a time tells what is in a queue (a lease).
//!
//! Each topic has turns of its own: one that is slow takes its own time alone, and at most [`TURN_MAX`] in a turn. One that fails pauses, longer each time; what it did not take is tried again when all
//! behind it was, until it is older than [`KEPT_FOR`].
//!
//! Bounds: [`TURNS_MAX`] topics at a time, [`TURNS_OF_OWNER`] of them of one user, [`AT_ONCE`] events of each; a page of events in memory for each.

use crate::endpoints::Sender;
use crate::index::Index;
use crate::notify::{Event, Marks, queued_as};
use crate::rados::{Change, Look, Pool};
use crate::topics::{Done, Taken, Topic, Topics};
use crate::{Clock, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use io::task;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What another gateway has set is its to gather, until it is so old (milliseconds).
const STALE: u64 = 5_000;
/// Milliseconds; three days.
pub const KEPT_FOR: u64 = 3 * 24 * 60 * 60 * 1000;
const ROWS_AT_ONCE: u64 = 100;
/// Of a queue, in one operation.
const ADDED_AT_ONCE: usize = 200;
const TRIES_MAX: usize = 16;
/// What comes within this is gathered together.
const GATHER_EVERY: Duration = Duration::from_millis(20);
/// After an error of the cluster's.
const PAUSE: Duration = Duration::from_secs(1);

const TURNS_MAX: usize = 32;
const TURNS_OF_OWNER: usize = 8;
const AT_ONCE: usize = 4;
const PAGE: u64 = 32;
const TURN_MAX: Duration = Duration::from_secs(20);
/// What was told is taken away when so much was, or so much time has gone.
const SETTLE_AT: usize = 16;
const SETTLE_EVERY: Duration = Duration::from_secs(4);
/// A turn ends when so many failed one after the other.
const FAILED_MAX: usize = 8;
const PAUSE_MAX: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(500);
/// How often all queues are looked at, for what others have left.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often is looked for queues of topics that are gone.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Brings events to their topics' queues. Clones are the same.
#[derive(Clone)]
pub struct Gatherer<P> {
    index: Index<P>,
    topics: Topics<P>,
    clock: Clock,
    /// Topics whose queues have got something, by their ids.
    ready: Arc<Marks>,
}

impl<P: Pool> Gatherer<P> {
    pub fn new(index: Index<P>, topics: Topics<P>, clock: Clock) -> Self {
        Self {
            index,
            topics,
            clock,
            ready: Arc::default(),
        }
    }

    /// What this gateway has set itself.
    pub async fn own(&self, shard: &str) -> Result<u64> {
        self.gather(shard, self.index.told().prefix(&self.clock), None).await
    }

    /// What was left, by whichever gateway.
    pub async fn left(&self, shard: &str) -> Result<u64> {
        let before = self.clock.now_ms().saturating_sub(STALE);
        let all = Bytes::copy_from_slice(&[crate::notify::CLASS]);
        self.gather(shard, all, Some(before)).await
    }

    /// How many were gathered. `before`: only those that are older.
    async fn gather(&self, shard: &str, prefix: Bytes, before: Option<u64>) -> Result<u64> {
        let (mut after, mut gathered, mut lost) = (prefix.clone(), 0, 0);
        loop {
            let look = Look::rows(&after, &prefix, ROWS_AT_ONCE);
            let seen = match self.index.pool().look(shard, look).await {
                // Its bucket is gone, with all that was told of it.
                Err(e) if e.is_not_found() => return Ok(gathered),
                other => other?,
            };
            let mut events = Vec::with_capacity(seen.rows.len());
            for (row, value) in &seen.rows {
                match (Event::from_bytes(value), queued_as(row)) {
                    (Ok(event), _) if before.is_some_and(|before| event.at > before) => {}
                    (Ok(event), Some(name)) => events.push((row, value, (name, event))),
                    // It stays, for whoever can read it.
                    (read, _) => tracing::warn!("s3: {} in {shard}: {:?}", row.escape_ascii(), read.err()),
                }
            }
            self.bring(&events).await?;
            let mut change = Change::default();
            for (row, value, _) in &events {
                change = change.expecting(row, Some(*value)).unsetting(row);
            }
            if !events.is_empty() {
                match self.index.pool().change(shard, change).await {
                    // Another gathers the same: what is left is seen now.
                    Err(e) if e.is_conflict() && lost < TRIES_MAX => {
                        lost += 1;
                        continue;
                    }
                    Err(e) if e.is_not_found() => return Ok(gathered),
                    other => other?,
                }
            }
            gathered += events.len() as u64;
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => return Ok(gathered),
            }
        }
    }

    /// Puts events into the queues of their topics. What goes to a topic that is not there any more goes nowhere.
    async fn bring(&self, events: &[(&Bytes, &Bytes, (String, Event))]) -> Result<()> {
        let mut of: BTreeMap<&str, BTreeMap<&str, Vec<(Bytes, Event)>>> = BTreeMap::new();
        for (_, _, (name, event)) in events {
            for (n, target) in event.targets.iter().enumerate() {
                let queued = Bytes::from(format!("e{name}{n:02}"));
                let topics = of.entry(event.owner.as_str()).or_default();
                let rows = topics.entry(target.topic.as_str()).or_default();
                rows.push((queued, event.only(target)));
            }
        }
        for (owner, by_name) in of {
            for topic in self.topics.named(owner, by_name.keys().copied()).await? {
                let Some(rows) = by_name.get(topic.name.as_str()) else {
                    continue;
                };
                for some in rows.chunks(ADDED_AT_ONCE) {
                    let some = some.iter().map(|(row, event)| (row.clone(), event.to_bytes()));
                    match self.topics.add(&topic.id, &some.collect()).await {
                        Err(e) if e.is_not_found() => {}
                        other => other?,
                    }
                }
                self.ready.mark(&topic.id);
            }
        }
        Ok(())
    }

    /// Gathers for as long as the gateway runs.
    pub async fn run(&self) {
        let told = self.index.told();
        loop {
            told.shards.wait().await;
            task::sleep(GATHER_EVERY).await;
            let mut failed = Vec::new();
            for shard in told.shards.take() {
                if let Err(e) = self.own(&shard).await {
                    tracing::warn!("s3: events in {shard}: {e}");
                    failed.push(shard);
                }
            }
            if !failed.is_empty() {
                task::sleep(PAUSE).await;
                failed.iter().for_each(|shard| told.shards.mark(shard));
            }
        }
    }
}

/// How a turn of a topic ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There is nothing more.
    Idle,
    /// There is, and others shall have their turn.
    More,
    /// Another gateway tells it.
    Others,
    /// It did not take all; why, and whether it took anything.
    Failed(String, bool),
}

/// What is remembered of a topic.
struct Turn {
    topic: Topic,
    /// By the monotonic clock.
    due: Duration,
    /// After the last failure; 0: it did not fail.
    pause: Duration,
    /// Where its last turn ended.
    after: Bytes,
    busy: bool,
    /// Something came meanwhile.
    again: bool,
}

/// Tells what is in queues. Clones are the same.
#[derive(Clone)]
pub struct Courier<P> {
    gatherer: Gatherer<P>,
    send: Sender,
    /// Names this gateway in leases.
    by: u64,
    turns: Arc<Mutex<BTreeMap<String, Turn>>>,
}

impl<P: Pool> Courier<P> {
    pub fn new(gatherer: Gatherer<P>, send: Sender) -> Self {
        Self {
            by: gatherer.clock.random_u64(),
            gatherer,
            send,
            turns: Arc::default(),
        }
    }

    fn turns(&self) -> MutexGuard<'_, BTreeMap<String, Turn>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.gatherer.clock.monotonic()
    }

    /// Tells for as long as the gateway runs.
    pub async fn run(&self) {
        let (mut looked, mut swept) = (None::<Duration>, self.now());
        loop {
            // Whether something came or not: others may be due.
            let _ = task::timeout(TICK, self.gatherer.ready.wait()).await;
            let marked = self.gatherer.ready.take();
            let now = self.now();
            let unknown = marked.iter().any(|id| !self.turns().contains_key(id));
            if unknown || looked.is_none_or(|at| now >= at + LOOK_EVERY) {
                looked = Some(now);
                match self.gatherer.topics.all().await {
                    Ok(topics) => self.know(topics),
                    Err(e) => {
                        tracing::warn!("s3: topics: {e}");
                        marked.iter().for_each(|id| self.gatherer.ready.mark(id));
                        task::sleep(PAUSE).await;
                        continue;
                    }
                }
            }
            if now >= swept + SWEEP_EVERY {
                swept = now;
                if let Err(e) = self.gatherer.topics.sweep().await {
                    tracing::warn!("s3: queues of topics that are gone: {e}");
                }
            }
            self.mark(&marked);
            for topic in self.due() {
                let courier = self.clone();
                drop(task::spawn_local(async move { courier.turn(topic).await }));
            }
        }
    }

    /// All topics that there are. New ones are due: others may have left something.
    fn know(&self, topics: Vec<Topic>) {
        let (now, mut turns) = (self.now(), self.turns());
        let ids: BTreeSet<String> = topics.iter().map(|t| t.id.clone()).collect();
        turns.retain(|id, turn| turn.busy || ids.contains(id));
        for topic in topics {
            match turns.get_mut(&topic.id) {
                Some(turn) => turn.topic = topic,
                None => {
                    let turn = Turn {
                        due: now,
                        pause: Duration::ZERO,
                        after: Bytes::new(),
                        busy: false,
                        again: false,
                        topic,
                    };
                    turns.insert(turn.topic.id.clone(), turn);
                }
            }
        }
    }

    fn mark(&self, marked: &BTreeSet<String>) {
        let (now, mut turns) = (self.now(), self.turns());
        for id in marked {
            if let Some(turn) = turns.get_mut(id) {
                turn.again = true;
                // What fails keeps its pause.
                if turn.pause.is_zero() {
                    turn.due = turn.due.min(now);
                }
            }
        }
    }

    /// Whose turn it is; those that have waited longest first.
    fn due(&self) -> Vec<Topic> {
        let (now, mut turns) = (self.now(), self.turns());
        let mut busy = BTreeMap::<String, usize>::new();
        for turn in turns.values().filter(|t| t.busy) {
            *busy.entry(turn.topic.owner.clone()).or_default() += 1;
        }
        let mut free = TURNS_MAX.saturating_sub(busy.values().sum());
        let mut due: Vec<&mut Turn> = turns.values_mut().filter(|t| !t.busy && t.due <= now).collect();
        due.sort_by_key(|turn| turn.due);
        let mut begun = Vec::new();
        for turn in due {
            let of_owner = busy.entry(turn.topic.owner.clone()).or_default();
            if free == 0 {
                break;
            }
            if *of_owner < TURNS_OF_OWNER {
                *of_owner += 1;
                free -= 1;
                (turn.busy, turn.again) = (true, false);
                begun.push(turn.topic.clone());
            }
        }
        begun
    }

    async fn turn(&self, topic: Topic) {
        let after = self.turns().get(&topic.id).map(|t| t.after.clone());
        let mut after = after.unwrap_or_default();
        let outcome = self.tell(&topic, &mut after).await;
        let (now, mut turns) = (self.now(), self.turns());
        let Some(turn) = turns.get_mut(&topic.id) else { return };
        turn.busy = false;
        turn.after = after;
        let failed = match outcome {
            Ok(Outcome::Failed(why, some)) => Some((why, some)),
            // A topic that was removed: its turns go with the next look.
            Err(e) if e.is_not_found() => None,
            Err(e) => Some((e.to_string(), false)),
            Ok(outcome) => {
                turn.pause = Duration::ZERO;
                turn.due = match outcome {
                    Outcome::Others => now + PAUSE,
                    Outcome::More => now,
                    _ if turn.again => now,
                    _ => now + LOOK_EVERY,
                };
                return;
            }
        };
        let Some((why, some)) = failed else {
            turn.due = now + LOOK_EVERY;
            return;
        };
        // Once, not with each time that it fails again.
        if turn.pause.is_zero() {
            tracing::warn!("s3: topic {} of {}: {why}", topic.name, topic.owner);
        }
        let doubled = if some { PAUSE } else { (turn.pause * 2).clamp(PAUSE, PAUSE_MAX) };
        turn.pause = doubled;
        turn.due = now + doubled;
    }

    /// One turn: tells what comes after `after`, then from the beginning.
    pub async fn tell(&self, topic: &Topic, after: &mut Bytes) -> Result<Outcome> {
        let topics = &self.gatherer.topics;
        // As it is now: its owner may have named another endpoint.
        let Some(topic) = topics.get(&topic.owner, &topic.name).await?.filter(|t| t.id == topic.id) else {
            return Ok(Outcome::Idle);
        };
        let begun = self.now();
        let mut tally = Tally::new(begun);
        // Whether all is seen when the end is.
        let mut whole = after.is_empty();
        loop {
            let (rows, more) = match topics.take(&topic.id, after, PAGE, self.by).await? {
                Taken::Others => return Ok(Outcome::Others),
                Taken::Rows(rows, more) => (rows, more),
            };
            for some in rows.chunks(AT_ONCE) {
                self.tell_some(&topic, some, &mut tally).await;
                if let Some((last, _)) = some.last() {
                    *after = last.clone();
                }
                if tally.failed >= FAILED_MAX {
                    return self.end(&topic, tally, Outcome::Idle).await;
                }
                if self.now() >= begun + TURN_MAX {
                    return self.end(&topic, tally, Outcome::More).await;
                }
                let due = tally.done.count() >= SETTLE_AT || self.now() >= tally.settled + SETTLE_EVERY;
                if due && !self.settle(&topic, &mut tally).await? {
                    return Ok(Outcome::Others);
                }
            }
            if !more {
                *after = Bytes::new();
                if whole || tally.why.is_some() {
                    return self.end(&topic, tally, Outcome::Idle).await;
                }
                whole = true;
            }
            // Or it would be seen again.
            if tally.done.count() > 0 && !self.settle(&topic, &mut tally).await? {
                return Ok(Outcome::Others);
            }
        }
    }

    /// False: another tells it by now.
    async fn settle(&self, topic: &Topic, tally: &mut Tally) -> Result<bool> {
        tally.settled = self.now();
        let done = std::mem::take(&mut tally.done);
        self.gatherer.topics.settle(&topic.id, &done, (self.by, true)).await
    }

    /// Lets others have the queue.
    async fn end(&self, topic: &Topic, tally: Tally, outcome: Outcome) -> Result<Outcome> {
        if tally.old > 0 {
            let old = tally.old;
            tracing::warn!(
                "s3: topic {} of {}: {old} events that could not be told for too long were dropped",
                topic.name,
                topic.owner
            );
        }
        if tally.touched {
            self.gatherer
                .topics
                .settle(&topic.id, &tally.done, (self.by, false))
                .await?;
        }
        Ok(match tally.why {
            Some(why) => Outcome::Failed(why, tally.some),
            None => outcome,
        })
    }

    async fn tell_some(&self, topic: &Topic, some: &[(Bytes, Bytes)], tally: &mut Tally) {
        let old = self.gatherer.clock.now_ms().saturating_sub(KEPT_FOR);
        let mut begun = Vec::with_capacity(some.len());
        tally.touched = true;
        for (row, value) in some {
            match body(value, topic) {
                Some((at, body)) if at >= old => {
                    begun.push((row, task::spawn_local((self.send)(&topic.endpoint, body))));
                }
                _ => {
                    tally.old += 1;
                    tally.done.old.insert(row.clone());
                }
            }
        }
        for (row, task) in begun {
            match task.await.unwrap_or_else(|_| Err("the gateway is stopping".into())) {
                Ok(()) => {
                    tally.done.told.insert(row.clone());
                    (tally.failed, tally.some) = (0, true);
                }
                Err(why) => {
                    tally.failed += 1;
                    tally.why = Some(why);
                }
            }
        }
    }
}

/// What a queued row tells, and of when it is. None: it cannot be read.
fn body(value: &Bytes, topic: &Topic) -> Option<(u64, String)> {
    let event = Event::from_bytes(value).ok()?;
    let target = event.targets.first()?;
    Some((event.at, event.body(&target.id, &topic.opaque)))
}

/// What a turn has done.
struct Tally {
    done: Done,
    settled: Duration,
    old: usize,
    /// One after the other, at last.
    failed: usize,
    /// The last failure.
    why: Option<String>,
    /// Something was told.
    some: bool,
    /// The queue was taken.
    touched: bool,
}

impl Tally {
    fn new(now: Duration) -> Self {
        Self {
            done: Done::default(),
            settled: now,
            old: 0,
            failed: 0,
            why: None,
            some: false,
            touched: false,
        }
    }
}
