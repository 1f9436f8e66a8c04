//! What a bucket holds, and what was changed of it.
//!
//! Bounds: a tally has one number for each bucket written to since it was last flushed, of [`BUCKETS_MAX`] at most.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const BUCKETS_MAX: usize = 65_536;

/// So much more, or less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub bytes: i64,
    /// Versions count, delete markers, too.
    pub objects: i64,
}

denc::envelope_denc!(Amount, 1, 1, { bytes, objects });

impl AddAssign for Amount {
    fn add_assign(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.objects = self.objects.saturating_add(more.objects);
    }
}

impl Amount {
    pub fn object(size: u64) -> Self {
        Self {
            objects: 1,
            ..Self::part(size)
        }
    }

    pub fn part(size: u64) -> Self {
        Self {
            bytes: i64::try_from(size).unwrap_or(i64::MAX),
            objects: 0,
        }
    }

    pub fn less(self) -> Self {
        Self {
            bytes: self.bytes.saturating_neg(),
            objects: self.objects.saturating_neg(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub held: Amount,
    /// When the index was last walked for it, or the bucket made (milliseconds since 1970).
    pub counted: u64,
}

denc::envelope_denc!(Count, 1, 1, { held, counted });

/// What this gateway has changed and not yet written, by the ids of buckets. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<HashMap<String, Amount>>>);

impl Tally {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Amount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of more buckets than are flushed in time the rest is left to the next count.
    pub fn add(&self, id: &str, held: Amount) {
        let mut all = self.all();
        if held != Amount::default() && (all.len() < BUCKETS_MAX || all.contains_key(id)) {
            *all.entry(id.to_string()).or_default() += held;
        }
    }

    pub fn of(&self, id: &str) -> Amount {
        self.all().get(id).copied().unwrap_or_default()
    }

    pub fn take_away(&self, id: &str, held: Amount) {
        let mut all = self.all();
        if let Some(left) = all.get_mut(id) {
            *left += held.less();
            if *left == Amount::default() {
                all.remove(id);
            }
        }
    }

    pub fn snapshot(&self) -> Vec<(String, Amount)> {
        self.all().iter().map(|(id, held)| (id.clone(), *held)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_taken_away_and_what_came_meanwhile_stays() {
        let tally = Tally::default();
        tally.add("a", Amount::object(5));
        let seen = tally.snapshot();
        tally.add("a", Amount::object(7));
        tally.add("a", Amount::part(2).less());
        for (id, held) in seen {
            tally.take_away(&id, held);
        }
        assert_eq!(tally.of("a"), Amount { bytes: 5, objects: 1 });
        tally.take_away("a", Amount { bytes: 5, objects: 1 });
        assert!(tally.all().is_empty());
        for n in 0..=BUCKETS_MAX {
            tally.add(&n.to_string(), Amount::object(1));
        }
        assert_eq!(tally.all().len(), BUCKETS_MAX);
    }
}
