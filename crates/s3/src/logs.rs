//! Access logs: lines of what was asked of buckets, gathered here until they are put as objects into the buckets that their owners named.
//!
//! Best effort, as AWS has it: a gateway that is killed loses what it has gathered. What is put is asked of nobody, so it makes no line: a bucket that logs into itself does not go in a circle.
//!
//! Bounds: [`BATCH_MAX`] bytes for an object; [`OWNER_MAX`] of a user, [`HELD_MAX`] of all: lines that find no room are dropped, counted and told. [`AT_ONCE`] objects are put at a time.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

pub const BATCH_MAX: usize = if cfg!(test) { 1000 } else { 1 << 20 };
const HELD_MAX: usize = if cfg!(test) { 8000 } else { 32 << 20 };
const OWNER_MAX: usize = if cfg!(test) { 3000 } else { 2 << 20 };
/// What could not be put so often is dropped; the pause before it is tried again, doubled each time.
const TRIES_MAX: u32 = 6;
const PAUSE: Duration = Duration::from_secs(5);
pub const AT_ONCE: usize = 8;

/// Where a bucket's lines go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logging {
    /// A bucket of the same owner.
    pub target: String,
    /// What the objects' keys begin with.
    pub prefix: String,
}

denc::envelope_denc!(Logging, 1, 1, { target, prefix });

/// Whose lines, and where they go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub owner: String,
    pub target: String,
    pub prefix: String,
}

/// Lines that are one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub text: Bytes,
    pub lines: u64,
    /// Names its object: when it was made (milliseconds since 1970), and what no other has. So it is not there twice when it is put again.
    pub name: (u64, u64),
    tries: u32,
    not_before: Duration,
}

struct Gathered {
    text: Vec<u8>,
    lines: u64,
    since: Duration,
}

#[derive(Default)]
struct Held {
    of: BTreeMap<Place, Gathered>,
    /// What could not be put.
    again: Vec<(Place, Batch)>,
    bytes: usize,
    of_owners: BTreeMap<String, usize>,
    dropped: u64,
}

impl Held {
    fn gone(&mut self, place: &Place, batch: &Batch) {
        self.bytes -= batch.text.len();
        let left = self.of_owners.get(&place.owner).copied().unwrap_or(0);
        match left.saturating_sub(batch.text.len()) {
            0 => drop(self.of_owners.remove(&place.owner)),
            left => drop(self.of_owners.insert(place.owner.clone(), left)),
        }
    }
}

/// Clones are the same.
#[derive(Clone)]
pub struct Logs {
    held: Arc<Mutex<Held>>,
    /// For objects that are put.
    pub room: Arc<Semaphore>,
}

impl Default for Logs {
    fn default() -> Self {
        Self {
            held: Arc::default(),
            room: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl Logs {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, with its end. `now`: by the monotonic clock.
    pub fn add(&self, place: Place, line: &str, now: Duration) {
        let mut held = self.held();
        let of_owner = held.of_owners.get(&place.owner).copied().unwrap_or(0);
        if held.bytes + line.len() > HELD_MAX || of_owner + line.len() > OWNER_MAX {
            held.dropped += 1;
            return;
        }
        held.bytes += line.len();
        *held.of_owners.entry(place.owner.clone()).or_default() += line.len();
        let gathered = held.of.entry(place).or_insert_with(|| Gathered {
            text: Vec::new(),
            lines: 0,
            since: now,
        });
        gathered.text.extend_from_slice(line.as_bytes());
        gathered.lines += 1;
    }

    /// One that is to be put: it is old or large enough, or there is little room left. Whoever takes it says what became of it. `name`: see [`Batch::name`].
    pub fn take(&self, now: Duration, every: Duration, name: (u64, u64)) -> Option<(Place, Batch)> {
        let mut held = self.held();
        if let Some(n) = held.again.iter().position(|(_, batch)| batch.not_before <= now) {
            return Some(held.again.swap_remove(n));
        }
        let little = held.bytes > HELD_MAX / 2;
        let of_owners = &held.of_owners;
        let is_full = |place: &Place| of_owners.get(&place.owner).is_some_and(|n| *n > OWNER_MAX / 2);
        let is_due = |(place, g): &(&Place, &Gathered)| {
            little || is_full(place) || g.text.len() >= BATCH_MAX || now >= g.since + every
        };
        let place = held.of.iter().find(is_due).map(|(place, _)| place.clone())?;
        let gathered = held.of.remove(&place)?;
        let batch = Batch {
            text: gathered.text.into(),
            lines: gathered.lines,
            name,
            tries: 0,
            not_before: now,
        };
        Some((place, batch))
    }

    /// It was put.
    pub fn done(&self, place: &Place, batch: &Batch) {
        self.held().gone(place, batch);
    }

    /// It was not. False: it was dropped, for it cannot be put, or was tried often enough.
    pub fn failed(&self, place: Place, mut batch: Batch, (again, now): (bool, Duration)) -> bool {
        let mut held = self.held();
        batch.not_before = now + PAUSE * (1 << batch.tries.min(8));
        batch.tries += 1;
        let again = again && batch.tries < TRIES_MAX;
        match again {
            true => held.again.push((place, batch)),
            false => held.gone(&place, &batch),
        }
        again
    }

    /// Nothing waits to be put now.
    pub fn is_empty(&self) -> bool {
        let held = self.held();
        held.of.is_empty()
    }

    /// Lines that found no room since this was asked.
    pub fn dropped(&self) -> u64 {
        std::mem::take(&mut self.held().dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(target: &str) -> Place {
        Place {
            owner: "o".into(),
            target: target.into(),
            prefix: String::new(),
        }
    }

    #[test]
    fn lines_are_taken_when_they_are_old_or_many() {
        let (logs, every) = (Logs::default(), Duration::from_secs(300));
        let at = Duration::from_secs;
        logs.add(place("a"), "one\n", at(0));
        logs.add(place("a"), "two\n", at(200));
        logs.add(place("b"), "three\n", at(200));
        assert!(logs.take(at(299), every, (1, 2)).is_none());
        let (of, batch) = logs.take(at(300), every, (1, 2)).unwrap();
        assert!(logs.take(at(300), every, (1, 3)).is_none());
        assert_eq!(
            (&batch.text[..], batch.lines, batch.name),
            (&b"one\ntwo\n"[..], 2, (1, 2))
        );
        logs.done(&of, &batch);
        logs.add(place("b"), &"x".repeat(BATCH_MAX), at(201));
        assert!(logs.take(at(202), every, (1, 4)).is_some());
        // One user's do not take all room.
        let full = Logs::default();
        for target in ["a", "b", "c", "d"] {
            full.add(place(target), &"x".repeat(900), at(0));
        }
        assert_eq!(full.dropped(), 1);
        assert!(full.take(at(0), every, (1, 5)).is_some());
    }

    #[test]
    fn what_cannot_be_put_is_tried_again_and_then_dropped() {
        let (logs, zero) = (Logs::default(), Duration::ZERO);
        let line = "x".repeat(OWNER_MAX);
        logs.add(place("a"), &line, zero);
        let mut now = zero;
        for n in 1..=TRIES_MAX {
            let (place, batch) = logs.take(now, zero, (0, u64::from(n))).unwrap();
            // It keeps its name, and its room.
            assert_eq!(batch.name, (0, 1));
            logs.add(place.clone(), "y", now);
            assert_eq!(logs.dropped(), 1);
            assert_eq!(logs.failed(place, batch, (true, now)), n < TRIES_MAX);
            assert!(logs.take(now, zero, (0, 9)).is_none());
            now += Duration::from_secs(1000);
        }
        assert!(logs.take(now, zero, (0, 9)).is_none());
        logs.add(place("a"), &line, now);
        let (place, batch) = logs.take(now, zero, (0, 9)).unwrap();
        assert!(!logs.failed(place, batch, (false, now)));
        assert_eq!(logs.dropped(), 0);
        let held = logs.held();
        assert_eq!((held.bytes, held.of_owners.len()), (0, 0));
    }
}
