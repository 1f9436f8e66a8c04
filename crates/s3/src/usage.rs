//! The usage log: how much was asked, by owner, bucket, hour and kind of operation, for whoever bills it.
//!
//! ```text
//! in `usage`:          d DAY                    there may be an object of that day (days since 1970, six digits)
//! in `usage.DAY`:      n                        Rows: how many of the others there are
//!                      u HOUR USER 00 BUCKET    Kinds: what was asked of the bucket in that hour, by kinds of operations
//! ```
//!
//! A user is the owner of the bucket that was asked for; whoever asked, where there is no bucket. What neither has is not written.
//!
//! What was asked is added up, and written every [`FLUSH_EVERY`], many rows in one operation that expects them as they were seen. A gateway that is killed loses
//! what it had not written; a write whose end is not heard is taken for done, so that nothing is written twice. A row that cannot be read stays as it is:
//! what belongs there is counted in the hour's row of [`OTHERS`], and what belongs there not at all.
//!
//! Bounds: [`HELD_MAX`] rows are added up at a time, and a day has [`DAY_MAX`] and 24 more: what finds no room is counted in the hour's row of [`OTHERS`].

use crate::rados::{Change, Look, PAGE, Pool};
use crate::{Clock, Error, Result, accounts};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The days that there are.
pub const USAGE: &str = "usage";
/// How often what was added up is written.
pub const FLUSH_EVERY: Duration = Duration::from_secs(30);
const HELD_MAX: usize = if cfg!(test) { 40 } else { 10_000 };
const DAY_MAX: u64 = if cfg!(test) { 60 } else { 200_000 };
/// Rows that are written, or removed, at once.
const AT_ONCE: usize = if cfg!(test) { 8 } else { 250 };
const TRIES_MAX: usize = 16;
pub const HOUR_MS: u64 = 60 * 60 * 1000;
pub const DAY_MS: u64 = 24 * HOUR_MS;
/// User and bucket of what found no room.
pub const OTHERS: &str = "(others)";

/// What was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    pub ops: u64,
    pub successful_ops: u64,
    /// Of bodies.
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

denc::envelope_denc!(Sums, 1, 1, { ops, successful_ops, bytes_sent, bytes_received });

impl AddAssign for Sums {
    fn add_assign(&mut self, more: Self) {
        self.ops = self.ops.saturating_add(more.ops);
        self.successful_ops = self.successful_ops.saturating_add(more.successful_ops);
        self.bytes_sent = self.bytes_sent.saturating_add(more.bytes_sent);
        self.bytes_received = self.bytes_received.saturating_add(more.bytes_received);
    }
}

/// By kinds of operations, as radosgw calls them. There are as many as the library has operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kinds {
    pub of: BTreeMap<String, Sums>,
}

denc::envelope_denc!(Kinds, 1, 1, { of });

impl Kinds {
    fn add(&mut self, other: &Self) {
        for (kind, sums) in &other.of {
            *self.of.entry(kind.clone()).or_default() += *sums;
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Rows {
    n: u64,
}

denc::envelope_denc!(Rows, 1, 1, { n });

/// A day that there may be an object of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Day {
    /// Milliseconds since 1970.
    made: u64,
}

denc::envelope_denc!(Day, 1, 1, { made });

/// Whose, of what, and when.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Hours since 1970.
    pub hour: u64,
    pub user: String,
    /// Empty: of none.
    pub bucket: String,
}

impl Place {
    fn day(&self) -> u64 {
        self.hour / 24
    }

    fn row(&self) -> Bytes {
        format!("u{:02}{}\0{}", self.hour % 24, self.user, self.bucket).into()
    }

    fn of_row(day: u64, row: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(row).ok()?.strip_prefix('u')?;
        let hour: u64 = text.get(..2)?.parse().ok()?;
        let (user, bucket) = text.get(2..)?.split_once('\0')?;
        Some(Self {
            hour: day * 24 + hour,
            user: user.into(),
            bucket: bucket.into(),
        })
    }

    /// The row of that hour for what finds no room.
    fn others(&self) -> Self {
        Self {
            hour: self.hour,
            user: OTHERS.into(),
            bucket: OTHERS.into(),
        }
    }
}

fn day_name(day: u64) -> String {
    format!("{USAGE}.{day:06}")
}

fn day_row(day: u64) -> Bytes {
    format!("d{day:06}").into()
}

fn rows_row() -> Bytes {
    Bytes::from_static(b"n")
}

/// Which entries are meant.
#[derive(Debug, Clone, Default)]
pub struct Which {
    pub user: Option<String>,
    pub bucket: Option<String>,
    /// Milliseconds since 1970: hours that begin from the first up to the second.
    pub from: Option<u64>,
    pub to: Option<u64>,
}

impl Which {
    fn has_day(&self, day: u64) -> bool {
        self.from.is_none_or(|from| (day + 1) * DAY_MS > from) && self.to.is_none_or(|to| day * DAY_MS < to)
    }

    /// The day as a whole.
    fn is_whole(&self, day: u64) -> bool {
        let all = self.user.is_none() && self.bucket.is_none();
        all && self.from.is_none_or(|from| day * DAY_MS >= from)
            && self.to.is_none_or(|to| (day + 1) * DAY_MS <= to)
    }

    fn has(&self, place: &Place) -> bool {
        let at = place.hour * HOUR_MS;
        self.user.as_ref().is_none_or(|u| *u == place.user)
            && self.bucket.as_ref().is_none_or(|b| *b == place.bucket)
            && self.from.is_none_or(|from| at >= from)
            && self.to.is_none_or(|to| at < to)
    }
}

type Held = BTreeMap<Place, Kinds>;

/// Taken out to be written. What is left when it is dropped, also with a flush that is not awaited to its end, goes back.
struct Taken<'a> {
    of: &'a Mutex<Held>,
    all: Held,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut held = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, kinds) in std::mem::take(&mut self.all) {
            add(&mut held, place, &kinds);
        }
    }
}

/// What a day's rows allow.
enum Found {
    Change(Change),
    /// The day has no room for as many new rows.
    Full,
    /// These rows cannot be read.
    Damaged(Vec<Place>),
}

/// Clones are the same.
#[derive(Clone)]
pub struct Usage<P> {
    pool: P,
    clock: Clock,
    held: Arc<Mutex<Held>>,
}

impl<P: Pool> Usage<P> {
    pub fn new(pool: P, clock: Clock) -> Self {
        Self {
            pool,
            clock,
            held: Arc::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what was asked now.
    pub fn add(&self, user: &str, bucket: &str, kind: &str, sums: Sums) {
        let place = Place {
            hour: self.clock.now_ms() / HOUR_MS,
            user: user.into(),
            bucket: bucket.into(),
        };
        let mut kinds = Kinds::default();
        kinds.of.insert(kind.into(), sums);
        add(&mut self.held(), place, &kinds);
    }

    /// Writes what was added up.
    pub async fn flush(&self) -> Result<()> {
        let all = std::mem::take(&mut *self.held());
        let mut all = Taken { of: &self.held, all };
        while let Some(first) = all.all.first_key_value() {
            let day = first.0.day();
            let places: Vec<Place> = all
                .all
                .keys()
                .take_while(|p| p.day() == day)
                .take(AT_ONCE)
                .cloned()
                .collect();
            let some = places.into_iter().filter_map(|p| all.all.remove_entry(&p));
            let mut some = Taken {
                of: &self.held,
                all: some.collect(),
            };
            self.write(day, &mut some).await?;
        }
        Ok(())
    }

    /// Adds to rows of one day. What is left then was surely not written.
    async fn write(&self, day: u64, some: &mut Taken<'_>) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let change = match self.change(day, &some.all).await {
                Ok(Found::Change(change)) => change,
                Ok(Found::Full) => {
                    some.all = folded(std::mem::take(&mut some.all));
                    continue;
                }
                Ok(Found::Damaged(places)) => {
                    leave_out(&mut some.all, places);
                    match some.all.is_empty() {
                        true => return Ok(()),
                        false => continue,
                    }
                }
                Err(e) if e.is_not_found() => {
                    self.make(day).await?;
                    continue;
                }
                Err(e) => return Err(e),
            };
            // What is not heard of is taken for done.
            let sent = std::mem::take(&mut some.all);
            match self.pool.change(&day_name(day), change).await {
                Err(e) if e.is_conflict() => some.all = sent,
                Err(e) if e.is_not_found() => {
                    some.all = sent;
                    self.make(day).await?;
                }
                other => return other,
            }
        }
        Err(Error::Busy("others write the same rows of the usage log"))
    }

    async fn change(&self, day: u64, some: &Held) -> Result<Found> {
        let mut look = Look::keys([&rows_row()]);
        look.keys.extend(some.keys().map(Place::row));
        let seen = self.pool.look(&day_name(day), look).await?.values;
        let mut change = Change::default();
        let (mut new, mut damaged) = (0, Vec::new());
        for (place, kinds) in some {
            let row = place.row();
            let old = seen.get(&row);
            let Ok(sum) = old.map(Kinds::from_bytes).transpose() else {
                damaged.push(place.clone());
                continue;
            };
            let mut sum = sum.unwrap_or_default();
            sum.add(kinds);
            new += u64::from(old.is_none() && place.user != OTHERS);
            change = change.expecting(&row, old).setting(&row, sum.to_bytes());
        }
        if !damaged.is_empty() {
            return Ok(Found::Damaged(damaged));
        }
        if new > 0 {
            let old = seen.get(&rows_row());
            let Ok(rows) = old.map(Rows::from_bytes).transpose() else {
                tracing::warn!(
                    "s3: the usage log: how many rows day {day} has cannot be read: it is taken for full"
                );
                return Ok(Found::Full);
            };
            let rows = rows.unwrap_or_default();
            if rows.n.saturating_add(new) > DAY_MAX {
                return Ok(Found::Full);
            }
            let rows = Rows { n: rows.n + new };
            change = change
                .expecting(&rows_row(), old)
                .setting(&rows_row(), rows.to_bytes());
        }
        Ok(Found::Change(change))
    }

    async fn make(&self, day: u64) -> Result<()> {
        accounts::ensure(&self.pool, USAGE).await?;
        let made = Day {
            made: self.clock.now_ms(),
        };
        let listed = Change::default().setting(&day_row(day), made.to_bytes());
        self.pool.change(USAGE, listed).await?;
        accounts::ensure(&self.pool, &day_name(day)).await
    }

    /// In order. None before anything was written.
    async fn days(&self) -> Result<Vec<u64>> {
        let (mut after, mut days) = (Bytes::new(), Vec::new());
        loop {
            let look = Look::rows(&after, &Bytes::from_static(b"d"), PAGE);
            let seen = match self.pool.look(USAGE, look).await {
                Err(e) if e.is_not_found() => return Ok(days),
                other => other?,
            };
            let number = |row: &Bytes| std::str::from_utf8(&row[1..]).ok()?.parse::<u64>().ok();
            days.extend(seen.rows.iter().filter_map(|(row, _)| number(row)));
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => return Ok(days),
            }
        }
    }

    /// A page of a day's rows, and where the next goes on.
    async fn page(&self, day: u64, after: &Bytes) -> Result<(Vec<(Bytes, Bytes)>, Option<Bytes>)> {
        let look = Look::rows(after, &Bytes::from_static(b"u"), PAGE);
        let seen = match self.pool.look(&day_name(day), look).await {
            Err(e) if e.is_not_found() => return Ok((Vec::new(), None)),
            other => other?,
        };
        let next = seen.rows.last().filter(|_| seen.more).map(|(row, _)| row.clone());
        Ok((seen.rows, next))
    }

    /// Entries, as they are written.
    pub async fn show(&self, which: &Which) -> Result<Vec<(Place, Kinds)>> {
        let mut entries = Vec::new();
        for day in self.days().await?.into_iter().filter(|d| which.has_day(*d)) {
            let mut at = Some(Bytes::new());
            while let Some(after) = at.take() {
                let (rows, next) = self.page(day, &after).await?;
                at = next;
                for (row, value) in rows {
                    if let Some(place) = Place::of_row(day, &row).filter(|p| which.has(p)) {
                        entries.push((place, Kinds::from_bytes(&value)?));
                    }
                }
            }
        }
        Ok(entries)
    }

    /// Removes entries. What is written meanwhile may stay.
    pub async fn trim(&self, which: &Which) -> Result<()> {
        let today = self.clock.now_ms() / DAY_MS;
        for day in self.days().await?.into_iter().filter(|d| which.has_day(*d)) {
            // Into a day that is over nobody writes any more.
            if which.is_whole(day) && day + 1 < today {
                self.pool.remove(&day_name(day)).await?;
                let gone = Change::default().unsetting(&day_row(day));
                self.pool.change(USAGE, gone).await?;
                continue;
            }
            let mut at = Some(Bytes::new());
            while let Some(after) = at.take() {
                let (rows, next) = self.page(day, &after).await?;
                at = next;
                let is_meant = |row: &Bytes| Place::of_row(day, row).is_some_and(|p| which.has(&p));
                let meant: BTreeSet<Bytes> = rows.into_iter().map(|(row, _)| row).filter(is_meant).collect();
                let meant: Vec<Bytes> = meant.into_iter().collect();
                for rows in meant.chunks(AT_ONCE) {
                    self.trim_rows(day, rows).await?;
                }
            }
        }
        Ok(())
    }

    async fn trim_rows(&self, day: u64, rows: &[Bytes]) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let mut look = Look::keys([&rows_row()]);
            look.keys.extend(rows.iter().cloned());
            let seen = match self.pool.look(&day_name(day), look).await {
                Err(e) if e.is_not_found() => return Ok(()),
                other => other?.values,
            };
            let mut change = Change::default();
            let mut fewer = 0;
            for row in rows.iter().filter(|r| seen.contains_key(*r)) {
                let counts = Place::of_row(day, row).is_some_and(|p| p.user != OTHERS);
                fewer += u64::from(counts);
                change = change.expecting(row, seen.get(row)).unsetting(row);
            }
            let old = seen.get(&rows_row());
            let n = old.map(Rows::from_bytes).transpose()?.unwrap_or_default().n;
            let left = Rows {
                n: n.saturating_sub(fewer),
            };
            change = change
                .expecting(&rows_row(), old)
                .setting(&rows_row(), left.to_bytes());
            match self.pool.change(&day_name(day), change).await {
                Err(e) if e.is_conflict() => {}
                Err(e) if e.is_not_found() => return Ok(()),
                other => return other,
            }
        }
        Err(Error::Conflict("others write the same rows of the usage log"))
    }

    /// Removes days that ended more than `keep` days ago.
    pub async fn expire(&self, keep: u64) -> Result<()> {
        let today = self.clock.now_ms() / DAY_MS;
        let which = Which {
            to: Some(today.saturating_sub(keep) * DAY_MS),
            ..Which::default()
        };
        self.trim(&which).await
    }
}

fn add(held: &mut Held, place: Place, kinds: &Kinds) {
    let full = held.len() >= HELD_MAX && !held.contains_key(&place);
    let place = if full { place.others() } else { place };
    held.entry(place).or_default().add(kinds);
}

/// Without those whose rows cannot be read: they are added to the others of their hour.
fn leave_out(some: &mut Held, places: Vec<Place>) {
    for place in places {
        let (user, bucket) = (&place.user, &place.bucket);
        tracing::warn!(
            "s3: the usage log: the row of {user:?}, {bucket:?} in hour {} cannot be read",
            place.hour
        );
        if let Some(kinds) = some.remove(&place).filter(|_| place.user != OTHERS) {
            some.entry(place.others()).or_default().add(&kinds);
        }
    }
}

/// The same in the rows of others.
fn folded(some: Held) -> Held {
    let mut folded = Held::new();
    for (place, kinds) in some {
        folded.entry(place.others()).or_default().add(&kinds);
    }
    folded
}
