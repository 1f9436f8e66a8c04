//! Takes events from the shards of indexes to the queues of their topics, and from there to whoever a topic names.
//!
//! Each gateway gathers what it has set itself as soon as it has; what a gateway that is gone has left is found by collectors (`gc`), and taken after [`STALE`]. An event is
//! first in its queue, then no longer in its shard; first told, then no longer in its queue: it is told once or more, whatever is cut off. One gateway at a time tells what is in a queue (a lease).
//!
//! Shards and topics are worked on for a bounded time each, in turn. A topic whose queue cannot be written keeps its own events in their shard, and no others. One that is slow takes its own time alone; one that fails
//! pauses, longer each time; what it did not take is tried again when all behind it was, until it is older than [`KEPT_FOR`].
//!
//! Bounds: [`SHARDS_MAX`] shards at a time, [`PAGES_MAX`] pages of each; [`TURNS_MAX`] topics, [`TURNS_OF_OWNER`] of them of one user, [`AT_ONCE`] events of each; a page of events in memory for each. Of all topics
//! names are kept.

use crate::endpoints::Sender;
use crate::event_figures::{Figures, Lost};
use crate::index::Index;
use crate::notify::{AHEAD_MAX, CLASS, Event, Marks, Target, queued_as, queued_at};
use crate::rados::{Change, Look, Pool};
use crate::tally::Tally;
use crate::topics::{Done, Taken, Topic, Topics};
use crate::{Clock, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use io::task;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// What another gateway has set is its to gather, until it is so old (milliseconds).
const STALE: u64 = 5_000;
/// Milliseconds; three days.
pub const KEPT_FOR: u64 = 3 * 24 * 60 * 60 * 1000;
const SHARDS_MAX: usize = 16;
const ROWS_AT_ONCE: u64 = 50;
const PAGES_MAX: usize = 8;
/// Of a queue, in one operation.
const ADDED_AT_ONCE: usize = 200;
/// A queue that does not take events within this is left alone for a while.
const ADDED_WITHIN: Duration = Duration::from_secs(5);
const SICK_FOR: Duration = Duration::from_secs(10);
const SICK_MAX: usize = 4096;
/// What comes within this is gathered together.
const GATHER_EVERY: Duration = Duration::from_millis(20);
/// After an error of the cluster's.
const PAUSE: Duration = Duration::from_secs(1);

const TURNS_MAX: usize = 32;
const TURNS_OF_OWNER: usize = 4;
const AT_ONCE: usize = 4;
const PAGE: u64 = 32;
const TURN_MAX: Duration = Duration::from_secs(10);
/// What was told is taken away when so much was, or so much time has gone.
const SETTLE_AT: usize = 16;
const SETTLE_EVERY: Duration = Duration::from_secs(4);
/// A turn ends when so many failed one after the other.
const FAILED_MAX: usize = 8;
const PAUSE_MAX: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(500);
/// How often all queues are looked at, for what others have left; where there are many, one of them within [`LOOK_EACH`].
const LOOK_EVERY: Duration = Duration::from_secs(30);
const LOOK_EACH: Duration = Duration::from_millis(25);
/// For topics that are not known yet.
const KNOW_EVERY: Duration = Duration::from_secs(1);
/// How often is looked for queues of topics that are gone.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// What is left of a shard's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// There are more.
    More,
    /// Some could not be brought to their topics now.
    Some,
}

/// Brings events to their topics' queues. Clones are the same.
#[derive(Clone)]
pub struct Gatherer<P> {
    index: Index<P>,
    topics: Topics<P>,
    clock: Clock,
    /// Topics whose queues have got something, by their ids.
    ready: Arc<Marks>,
    /// Topics whose queues did not take events, and until when they are left alone.
    sick: Arc<Mutex<BTreeMap<String, Duration>>>,
}

/// Which events, and which of their targets, go to topics of these names.
type ByName<'a> = BTreeMap<&'a str, Vec<(usize, usize)>>;

/// An event, with its row, the row's value, and its name in queues.
type Row<'a> = (&'a Bytes, &'a Bytes, String, Event);

impl<P: Pool> Gatherer<P> {
    pub fn new(index: Index<P>, topics: Topics<P>, clock: Clock) -> Self {
        Self {
            index,
            topics,
            clock,
            ready: Arc::default(),
            sick: Arc::default(),
        }
    }

    /// What this gateway has set itself.
    pub async fn own(&self, shard: &str) -> Result<Left> {
        let told = self.index.told();
        let left = self.gather(shard, told.prefix(&self.clock), false).await?;
        if left == Left::Nothing {
            told.gathered(shard, None);
        }
        Ok(left)
    }

    /// What was left, by whichever gateway.
    pub async fn left(&self, shard: &str) -> Result<Left> {
        let all = Bytes::copy_from_slice(&[CLASS]);
        self.gather(shard, all, true).await
    }

    /// Old, or of a clock that is broken.
    fn is_stale(&self, event: &Event) -> bool {
        let now = self.clock.now_ms();
        event.at.saturating_add(STALE) <= now || event.at > now.saturating_add(AHEAD_MAX)
    }

    async fn gather(&self, shard: &str, prefix: Bytes, stale: bool) -> Result<Left> {
        let (mut after, mut left, mut unread) = (prefix.clone(), Left::Nothing, 0u64);
        for _ in 0..PAGES_MAX {
            let look = Look::rows(&after, &prefix, ROWS_AT_ONCE);
            let seen = match self.index.pool().look(shard, look).await {
                // Its bucket is gone, with all that was told of it.
                Err(e) if e.is_not_found() => return Ok(Left::Nothing),
                other => other?,
            };
            let mut events: Vec<Row<'_>> = Vec::with_capacity(seen.rows.len());
            for (row, value) in &seen.rows {
                match (Event::from_bytes(value), queued_as(row)) {
                    (Ok(event), _) if stale && !self.is_stale(&event) => {}
                    (Ok(event), Some(name)) => events.push((row, value, name, event)),
                    // It stays, for whoever can read it.
                    _ => unread += 1,
                }
            }
            let remaining = self.bring(&events).await;
            let mut change = Change::default();
            for ((row, value, _, event), targets) in events.iter().zip(remaining) {
                if targets.is_empty() {
                    change = change.expecting(row, Some(*value)).unsetting(row);
                    continue;
                }
                left = Left::Some;
                if targets.len() < event.targets.len() {
                    let rest = event.only(targets).to_bytes();
                    change = change.expecting(row, Some(*value)).setting(row, rest);
                }
            }
            let gone = change.unset.len() as u64;
            if !change.expect.is_empty() {
                match self.index.pool().change(shard, change).await {
                    // Another gathers the same.
                    Err(e) if e.is_conflict() => left = Left::Some,
                    Err(e) if e.is_not_found() => return Ok(Left::Nothing),
                    other => {
                        other?;
                        if !stale {
                            self.index.told().gathered(shard, Some(gone));
                        }
                    }
                }
            }
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => {
                    if unread > 0 {
                        tracing::warn!("s3: {unread} events in {shard} cannot be read");
                    }
                    return Ok(left);
                }
            }
        }
        Ok(Left::More)
    }

    /// Puts events into the queues of their topics; for each, to whom it could not be brought. What goes to a topic that is not there any more goes nowhere.
    async fn bring(&self, events: &[Row<'_>]) -> Vec<Vec<Target>> {
        // Events and targets, by owner and name.
        let mut of: BTreeMap<&str, ByName<'_>> = BTreeMap::new();
        for (n, (_, _, _, event)) in events.iter().enumerate() {
            for (t, target) in event.targets.iter().enumerate() {
                let topics = of.entry(event.owner.as_str()).or_default();
                topics.entry(target.topic.as_str()).or_default().push((n, t));
            }
        }
        let mut remaining = vec![Vec::new(); events.len()];
        let mut not_brought = |which: &[(usize, usize)]| {
            for (n, t) in which {
                if let (Some(of), Some((_, _, _, event))) = (remaining.get_mut(*n), events.get(*n)) {
                    of.extend(event.targets.get(*t).cloned());
                }
            }
        };
        let mut begun = Vec::new();
        for (owner, by_name) in &of {
            let topics = match self.topics.named(owner, by_name.keys().copied()).await {
                Ok(topics) => topics,
                Err(e) => {
                    tracing::warn!("s3: topics of {owner}: {e}");
                    by_name.values().for_each(|which| not_brought(which));
                    continue;
                }
            };
            let gone = gone(&topics, by_name);
            self.index.told().lost(Lost::Gone, gone);
            for topic in topics {
                let Some(which) = by_name.get(topic.name.as_str()) else {
                    continue;
                };
                if self.is_sick(&topic.id) {
                    not_brought(which);
                    continue;
                }
                let rows = which.iter().filter_map(|(n, t)| queued(events.get(*n)?, *t));
                let (gatherer, rows) = (self.clone(), rows.collect::<Vec<_>>());
                begun.push((
                    which,
                    task::spawn_local(async move { gatherer.add(&topic.id, rows).await }),
                ));
                task::yield_now().await;
            }
        }
        for (which, task) in begun {
            if !task.await.unwrap_or(false) {
                not_brought(which);
            }
        }
        remaining
    }

    /// False: its queue does not take them now.
    async fn add(&self, id: &str, rows: Vec<(Bytes, Bytes)>) -> bool {
        for some in rows.chunks(ADDED_AT_ONCE) {
            let some: BTreeMap<Bytes, Bytes> = some.iter().cloned().collect();
            let why = match task::timeout(ADDED_WITHIN, self.topics.add(id, &some)).await {
                Ok(Ok(dropped)) => {
                    self.index.told().lost(Lost::Full, dropped);
                    continue;
                }
                // It was removed.
                Ok(Err(e)) if e.is_not_found() => return true,
                Ok(Err(e)) => e.to_string(),
                Err(_) => "no answer in time".to_string(),
            };
            tracing::warn!("s3: the queue of topic {id}: {why}");
            let mut sick = self.sick();
            if sick.len() >= SICK_MAX {
                sick.clear();
            }
            sick.insert(id.to_string(), self.clock.monotonic() + SICK_FOR);
            return false;
        }
        self.ready.mark(id);
        true
    }

    fn sick(&self) -> MutexGuard<'_, BTreeMap<String, Duration>> {
        self.sick.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_sick(&self, id: &str) -> bool {
        let mut sick = self.sick();
        let until = sick.get(id).copied().unwrap_or_default();
        if until <= self.clock.monotonic() {
            sick.remove(id);
            return false;
        }
        true
    }

    /// Gathers for as long as the gateway runs: what it has set itself, and what others have left.
    pub async fn run(&self) {
        tokio::join!(self.work_off(true), self.work_off(false));
    }

    async fn work_off(&self, own: bool) {
        let marks = || match own {
            true => &self.index.told().shards,
            false => &self.index.told().left,
        };
        let room = Arc::new(Semaphore::new(SHARDS_MAX));
        let busy = Busy::default();
        loop {
            marks().wait().await;
            task::sleep(GATHER_EVERY).await;
            for shard in marks().take() {
                let Ok(permit) = room.clone().acquire_owned().await else {
                    return;
                };
                if !lock(&busy).insert(shard.clone()) {
                    // What came since then is seen when that has ended.
                    marks().mark(&shard);
                    continue;
                }
                let (gatherer, busy) = (self.clone(), busy.clone());
                drop(task::spawn_local(async move {
                    let left = match own {
                        true => gatherer.own(&shard).await,
                        false => gatherer.left(&shard).await,
                    };
                    lock(&busy).remove(&shard);
                    drop(permit);
                    match left {
                        Ok(Left::Nothing) => return,
                        // Others that were found by collectors come again.
                        Ok(Left::Some) if !own => return,
                        Ok(Left::More) => {}
                        Ok(Left::Some) => task::sleep(PAUSE).await,
                        Err(e) => {
                            tracing::warn!("s3: events in {shard}: {e}");
                            task::sleep(PAUSE).await;
                        }
                    }
                    let told = gatherer.index.told();
                    let marks = if own { &told.shards } else { &told.left };
                    marks.mark(&shard);
                }));
            }
        }
    }

    /// Once more, what this gateway has set: when it stops.
    pub async fn rest(&self) {
        for shard in self.index.told().shards.take() {
            if let Err(e) = self.own(&shard).await {
                tracing::warn!("s3: events in {shard}: {e}");
            }
        }
    }
}

/// Shards that are worked on.
type Busy = Arc<Mutex<BTreeSet<String>>>;

fn lock(busy: &Busy) -> MutexGuard<'_, BTreeSet<String>> {
    busy.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many of the events go to topics that are not there.
fn gone(there: &[Topic], wanted: &ByName<'_>) -> u64 {
    let there: BTreeSet<&str> = there.iter().map(|t| t.name.as_str()).collect();
    let gone = wanted.iter().filter(|(name, _)| !there.contains(*name));
    gone.map(|(_, which)| which.len() as u64).sum()
}

/// The row of an event in a queue of one of those whom it is told.
fn queued((_, _, name, event): &Row<'_>, target: usize) -> Option<(Bytes, Bytes)> {
    let of = event.targets.get(target)?.clone();
    Some((
        format!("e{name}{target:02}").into(),
        event.only(vec![of]).to_bytes(),
    ))
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

/// Where the last turn of a topic ended.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    pub after: Bytes,
    /// How many were there when what it goes through began, and are not looked at yet; None: it begins. So new ones do not keep it from the first.
    left: Option<u64>,
}

/// What is remembered of a topic.
struct Turn {
    /// Without what it has in its record.
    topic: Topic,
    /// By the monotonic clock.
    due: Duration,
    /// After the last failure; 0: it did not fail.
    pause: Duration,
    cursor: Cursor,
    busy: bool,
    /// Its queue has got something.
    marked: bool,
    /// How many events were left in it after the last turn.
    queued: u64,
}

#[derive(Default)]
struct Turns {
    of: BTreeMap<String, Turn>,
    /// When the last turn of one of a user's topics began.
    served: BTreeMap<String, Duration>,
}

/// Tells what is in queues. Clones are the same.
#[derive(Clone)]
pub struct Courier<P> {
    gatherer: Gatherer<P>,
    send: Sender,
    /// Names this gateway in leases.
    by: u64,
    turns: Arc<Mutex<Turns>>,
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

    pub fn gatherer(&self) -> &Gatherer<P> {
        &self.gatherer
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn figures(&self) -> Option<&Figures> {
        self.gatherer.index.told().figures()
    }

    fn now(&self) -> Duration {
        self.gatherer.clock.monotonic()
    }

    /// Tells for as long as the gateway runs.
    pub async fn run(&self) {
        let (mut looked, mut swept, mut unknown) = (None::<Duration>, self.now(), false);
        loop {
            // Whether something came or not: others may be due.
            let _ = task::timeout(TICK, self.gatherer.ready.wait()).await;
            let marked = self.gatherer.ready.take();
            let now = self.now();
            unknown |= marked.iter().any(|id| !self.turns().of.contains_key(id));
            let every = if unknown { KNOW_EVERY } else { LOOK_EVERY };
            if looked.is_none_or(|at| now >= at + every) {
                (looked, unknown) = (Some(now), false);
                match self.gatherer.topics.all().await {
                    Ok(topics) => self.know(topics),
                    Err(e) => tracing::warn!("s3: topics: {e}"),
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
    pub(crate) fn know(&self, topics: Vec<Topic>) {
        let (now, mut turns) = (self.now(), self.turns());
        let ids: BTreeSet<&str> = topics.iter().map(|t| t.id.as_str()).collect();
        turns.of.retain(|id, turn| turn.busy || ids.contains(id.as_str()));
        let owners: BTreeSet<&str> = topics.iter().map(|t| t.owner.as_str()).collect();
        turns.served.retain(|owner, _| owners.contains(owner.as_str()));
        for topic in &topics {
            turns.of.entry(topic.id.clone()).or_insert_with(|| Turn {
                due: now,
                pause: Duration::ZERO,
                cursor: Cursor::default(),
                busy: false,
                marked: true,
                queued: 0,
                topic: Topic {
                    endpoint: String::new(),
                    opaque: String::new(),
                    ..topic.clone()
                },
            });
        }
        self.count(&turns);
    }

    fn mark(&self, marked: &BTreeSet<String>) {
        let (now, mut turns) = (self.now(), self.turns());
        for id in marked {
            if let Some(turn) = turns.of.get_mut(id) {
                turn.marked = true;
                // What fails keeps its pause.
                if turn.pause.is_zero() {
                    turn.due = turn.due.min(now);
                }
            }
        }
    }

    /// Whose turn it is: what has got something goes first, and of whose topics none had a turn for longest.
    fn due(&self) -> Vec<Topic> {
        let (now, mut turns) = (self.now(), self.turns());
        let Turns { of, served } = &mut *turns;
        let mut busy = BTreeMap::<String, usize>::new();
        for turn in of.values().filter(|t| t.busy) {
            *busy.entry(turn.topic.owner.clone()).or_default() += 1;
        }
        let mut free = TURNS_MAX.saturating_sub(busy.values().sum());
        let mut due: Vec<&mut Turn> = of.values_mut().filter(|t| !t.busy && t.due <= now).collect();
        due.sort_by_key(|turn| {
            let last = served.get(&turn.topic.owner).copied().unwrap_or_default();
            (!turn.marked, last, turn.due)
        });
        let mut begun = Vec::new();
        for turn in due {
            if free == 0 {
                break;
            }
            let of_owner = busy.entry(turn.topic.owner.clone()).or_default();
            if *of_owner < TURNS_OF_OWNER {
                *of_owner += 1;
                free -= 1;
                (turn.busy, turn.marked) = (true, false);
                served.insert(turn.topic.owner.clone(), now);
                begun.push(turn.topic.clone());
            }
        }
        begun
    }

    async fn turn(&self, topic: Topic) {
        let cursor = self.turns().of.get(&topic.id).map(|t| t.cursor.clone());
        let mut cursor = cursor.unwrap_or_default();
        let outcome = self.tell(&topic, &mut cursor).await;
        if matches!(outcome, Ok(Outcome::Others)) {
            // They count it, too.
            self.left(&topic, 0);
        }
        self.ended(&topic, cursor, outcome);
        // There is room for another.
        self.gatherer.ready.ring();
    }

    /// So many events are left in a queue.
    pub(crate) fn left(&self, topic: &Topic, events: u64) {
        let mut turns = self.turns();
        if let Some(turn) = turns.of.get_mut(&topic.id) {
            turn.queued = events;
        }
        self.count(&turns);
    }

    fn count(&self, turns: &Turns) {
        let all = turns.of.values().map(|turn| turn.queued).sum();
        self.figures().iter().for_each(|f| f.queued(all));
    }

    fn ended(&self, topic: &Topic, cursor: Cursor, outcome: Result<Outcome>) {
        let (now, mut turns) = (self.now(), self.turns());
        let idle = LOOK_EVERY.max(LOOK_EACH * u32::try_from(turns.of.len()).unwrap_or(u32::MAX));
        let Some(turn) = turns.of.get_mut(&topic.id) else {
            return;
        };
        (turn.busy, turn.cursor) = (false, cursor);
        let (why, some) = match outcome {
            Ok(Outcome::Failed(why, some)) => (why, some),
            // A topic that was removed: its turns go with the next look.
            Err(e) if e.is_not_found() => {
                turn.due = now + idle;
                return;
            }
            Err(e) => (e.to_string(), false),
            Ok(outcome) => {
                turn.pause = Duration::ZERO;
                turn.marked |= outcome == Outcome::More || outcome == Outcome::Others;
                turn.due = match outcome {
                    Outcome::Others => now + PAUSE,
                    Outcome::More => now,
                    _ if turn.marked => now,
                    _ => now + idle,
                };
                return;
            }
        };
        // Once, not with each time that it fails again.
        if turn.pause.is_zero() {
            tracing::warn!("s3: topic {} of {}: {why}", topic.name, topic.owner);
        }
        turn.pause = match some {
            true => PAUSE,
            false => (turn.pause * 2).clamp(PAUSE, PAUSE_MAX),
        };
        turn.due = now + turn.pause;
        turn.marked = true;
    }

    /// One turn: tells what comes after the last, then from the beginning.
    pub async fn tell(&self, topic: &Topic, cursor: &mut Cursor) -> Result<Outcome> {
        let topics = &self.gatherer.topics;
        // As it is now: its owner may have named another endpoint.
        let Some(topic) = topics
            .get(&topic.owner, &topic.name)
            .await?
            .filter(|t| t.id == topic.id)
        else {
            return Ok(Outcome::Idle);
        };
        let begun = self.now();
        let mut tally = Tally::new(begun);
        // Whether all is seen when the end is.
        let mut whole = cursor.left.is_none();
        loop {
            let page = match topics.take(&topic.id, &cursor.after, PAGE, self.by).await? {
                Taken::Others => return Ok(Outcome::Others),
                Taken::Page(page) => page,
            };
            let mut left = cursor.left.unwrap_or(page.queued);
            tally.queued = page.queued;
            for some in page.rows.chunks(AT_ONCE) {
                self.tell_some(&topic, some, &mut tally).await;
                left = left.saturating_sub(some.len() as u64);
                cursor.left = Some(left);
                if let Some((last, _)) = some.last() {
                    cursor.after = last.clone();
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
                if left == 0 {
                    break;
                }
            }
            if !page.more || left == 0 {
                *cursor = Cursor::default();
                if whole || tally.why.is_some() {
                    let rest = if page.more { Outcome::More } else { Outcome::Idle };
                    return self.end(&topic, tally, rest).await;
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
        self.take_away(topic, &done, true).await
    }

    async fn take_away(&self, topic: &Topic, done: &Done, on: bool) -> Result<bool> {
        let topics = &self.gatherer.topics;
        let (mine, old) = topics.settle(&topic.id, done, (self.by, on)).await?;
        self.figures().iter().for_each(|f| f.lost(Lost::Old, old));
        Ok(mine)
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
            self.take_away(topic, &tally.done, false).await?;
        }
        self.left(topic, tally.queued);
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
            if queued_at(row).unwrap_or(0) < old {
                tally.old += 1;
                tally.queued = tally.queued.saturating_sub(1);
                tally.done.old.insert(row.clone());
                continue;
            }
            match body(value, topic) {
                Some(body) => {
                    let sent = (self.send)(&topic.owner, &topic.endpoint, body);
                    let pushing = self.figures().map(Figures::pushing);
                    let sent = task::spawn_local(async move {
                        let taken = sent.await;
                        drop(pushing);
                        taken
                    });
                    begun.push((row, sent));
                }
                // Another gateway may know how.
                None => tally.fail("an event that cannot be read".into()),
            }
        }
        for (row, task) in begun {
            let taken = task.await;
            let taken = taken.unwrap_or_else(|_| Err("the gateway is stopping".into()));
            self.figures().iter().for_each(|f| f.pushed(taken.is_ok()));
            match taken {
                Ok(()) => {
                    tally.queued = tally.queued.saturating_sub(1);
                    tally.done.told.insert(row.clone());
                    (tally.failed, tally.some) = (0, true);
                }
                Err(why) => tally.fail(why),
            }
        }
    }
}

/// What a queued row tells. None: it cannot be read.
fn body(value: &Bytes, topic: &Topic) -> Option<String> {
    let event = Event::from_bytes(value).ok()?;
    let target = event.targets.first()?;
    Some(event.body(&target.id, &topic.opaque))
}
