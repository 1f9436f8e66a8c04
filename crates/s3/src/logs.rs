//! Access logs: lines of what was asked of buckets, gathered here until they are put as objects into the buckets that their owners named.
//!
//! Best effort, as AWS has it: a gateway that is killed loses what it has gathered. What is put is asked of nobody, so it makes no line: a bucket that logs into itself does not go in a circle.
//!
//! Bounds: [`BATCH_MAX`] bytes for an object; [`HELD_MAX`] of all: lines that find no room are dropped, counted and told.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub const BATCH_MAX: usize = if cfg!(test) { 1000 } else { 1 << 20 };
const HELD_MAX: usize = if cfg!(test) { 3000 } else { 16 << 20 };
/// What could not be put so often is dropped.
const TRIES_MAX: u32 = 5;

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
    tries: u32,
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
    dropped: u64,
}

/// Clones are the same.
#[derive(Clone, Default)]
pub struct Logs(Arc<Mutex<Held>>);

impl Logs {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, with its end. `now`: by the monotonic clock.
    pub fn add(&self, place: Place, line: &str, now: Duration) {
        let mut held = self.held();
        if held.bytes + line.len() > HELD_MAX {
            held.dropped += 1;
            return;
        }
        held.bytes += line.len();
        let gathered = held.of.entry(place).or_insert_with(|| Gathered {
            text: Vec::new(),
            lines: 0,
            since: now,
        });
        gathered.text.extend_from_slice(line.as_bytes());
        gathered.lines += 1;
    }

    /// What is to be put: what is old or large enough. Whoever takes it says what became of it.
    pub fn take(&self, now: Duration, every: Duration) -> Vec<(Place, Batch)> {
        let mut held = self.held();
        let mut due = std::mem::take(&mut held.again);
        let is_due = |g: &Gathered| g.text.len() >= BATCH_MAX || now >= g.since + every;
        let places: Vec<Place> = held.of.iter().filter(|(_, g)| is_due(g)).map(|(p, _)| p.clone()).collect();
        for place in places {
            let Some(gathered) = held.of.remove(&place) else { continue };
            let batch = Batch {
                text: gathered.text.into(),
                lines: gathered.lines,
                tries: 0,
            };
            due.push((place, batch));
        }
        due
    }

    /// It was put.
    pub fn done(&self, batch: &Batch) {
        self.held().bytes -= batch.text.len();
    }

    /// It was not. False: it was dropped, for it cannot be put, or was tried often enough.
    pub fn failed(&self, place: Place, mut batch: Batch, again: bool) -> bool {
        let mut held = self.held();
        batch.tries += 1;
        let again = again && batch.tries < TRIES_MAX;
        match again {
            true => held.again.push((place, batch)),
            false => held.bytes -= batch.text.len(),
        }
        again
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
        assert!(logs.take(at(299), every).is_empty());
        let due = logs.take(at(300), every);
        assert_eq!(due.len(), 1);
        assert_eq!((&due[0].1.text[..], due[0].1.lines), (&b"one\ntwo\n"[..], 2));
        logs.done(&due[0].1);
        logs.add(place("b"), &"x".repeat(BATCH_MAX), at(201));
        assert_eq!(logs.take(at(202), every).len(), 1);
    }

    #[test]
    fn what_cannot_be_put_is_tried_again_and_then_dropped() {
        let (logs, now) = (Logs::default(), Duration::ZERO);
        let line = "x".repeat(HELD_MAX);
        logs.add(place("a"), &line, now);
        for n in 1..=TRIES_MAX {
            let (place, batch) = logs.take(now, now).pop().unwrap();
            // What is on its way takes room, too.
            logs.add(place.clone(), "y", now);
            assert_eq!(logs.dropped(), 1);
            assert_eq!(logs.failed(place, batch, true), n < TRIES_MAX);
        }
        assert!(logs.take(now, now).is_empty());
        logs.add(place("a"), &line, now);
        let (place, batch) = logs.take(now, now).pop().unwrap();
        assert!(!logs.failed(place, batch, false));
        assert_eq!((logs.held().bytes, logs.dropped()), (0, 0));
    }
}
