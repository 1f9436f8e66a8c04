//! Rate limits: how much users and buckets may ask of one gateway in a minute.
//!
//! ```text
//! in `users`:    r USER    Rate of a user
//! in `buckets`:  r ID      Rate of the bucket with this id
//! ```
//!
//! A minute's worth may be used at once; then it comes back evenly. Bytes are counted when they are announced, so that a request may go
//! beyond what is left, and those after it wait for that.
//!
//! Bounds: [`CACHED_MAX`] users and buckets are remembered, and what [`METERS_MAX`] of those with a limit have used; where there are more,
//! those who have used least are forgotten.

use crate::accounts::USERS;
use crate::buckets::{BUCKETS, Buckets, rate_row};
use crate::rados::{Change, Look, Pool};
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long what was read is good (milliseconds).
const KNOWN_FOR: u64 = 5000;
const CACHED_MAX: usize = 1024;
const METERS_MAX: usize = 4096;
const MINUTE_MS: f64 = 60_000.0;
const TRIES_MAX: usize = 16;

/// For a minute; 0: as much as comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rate {
    pub enabled: bool,
    pub max_read_ops: u64,
    pub max_write_ops: u64,
    pub max_read_bytes: u64,
    pub max_write_bytes: u64,
}

denc::envelope_denc!(Rate, 1, 1, { enabled, max_read_ops, max_write_ops, max_read_bytes, max_write_bytes });

/// Whose rate it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateScope<'a> {
    User(&'a str),
    Bucket(&'a str),
}

/// What was used, of each kind that has a limit; below zero: beyond what was left.
#[derive(Debug, Clone, Copy)]
struct Meter {
    at: u64,
    /// Read operations, write operations, read bytes, written bytes.
    left: [f64; 4],
}

impl Rate {
    fn all(&self) -> [u64; 4] {
        [
            self.max_read_ops,
            self.max_write_ops,
            self.max_read_bytes,
            self.max_write_bytes,
        ]
    }
}

/// In minutes' worth.
const DEBT_MAX: f64 = -2.0;
/// How names of buckets among the payers begin.
const BUCKET: char = 'b';

impl Meter {
    fn full(rate: &Rate, now: u64) -> Self {
        Self {
            at: now,
            left: rate.all().map(|max| max as f64),
        }
    }

    /// What came back since.
    fn refill(&mut self, rate: &Rate, now: u64) {
        let passed = now.saturating_sub(self.at) as f64 / MINUTE_MS;
        for (left, max) in self.left.iter_mut().zip(rate.all()) {
            *left = (*left + max as f64 * passed).min(max as f64);
        }
        self.at = now;
    }

    /// Nobody owes more than two minutes, whatever was announced.
    fn spend(&mut self, rate: &Rate, which: usize, amount: f64) {
        let max = rate.all()[which] as f64;
        self.left[which] = (self.left[which] - amount).clamp(DEBT_MAX * max, max);
    }

    /// Whether there is something left for an operation that writes, or reads.
    fn allows(&self, rate: &Rate, writes: bool) -> bool {
        let [ops, bytes] = if writes { [1, 3] } else { [0, 2] };
        let max = rate.all();
        (max[ops] == 0 || self.left[ops] >= 1.0) && (max[bytes] == 0 || self.left[bytes] > 0.0)
    }

    fn used(&self, rate: &Rate) -> f64 {
        let share = |(left, max): (&f64, u64)| if max == 0 { 0.0 } else { 1.0 - left / max as f64 };
        self.left.iter().zip(rate.all()).map(share).fold(0.0, f64::max)
    }
}

/// A user or a bucket that a request is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payer {
    name: String,
    rate: Rate,
}

#[derive(Debug, Default)]
struct Inner {
    known: HashMap<String, (u64, Rate)>,
    meters: HashMap<String, (Rate, Meter)>,
}

/// Clones are the same.
#[derive(Clone)]
pub struct Rates<P> {
    pool: P,
    buckets: Buckets<P>,
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
}

fn user_row(user: &str) -> Bytes {
    [b"r", user.as_bytes()].concat().into()
}

impl<P: Pool> Rates<P> {
    pub fn new(pool: P, buckets: Buckets<P>, clock: Clock) -> Self {
        Self {
            pool,
            buckets,
            clock,
            inner: Arc::default(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object and the row that have it.
    async fn place(&self, scope: RateScope<'_>) -> Result<(&'static str, Bytes)> {
        Ok(match scope {
            RateScope::User(user) => (USERS, user_row(user)),
            RateScope::Bucket(name) => (BUCKETS, rate_row(&self.buckets.get(name).await?.id)),
        })
    }

    pub async fn get(&self, scope: RateScope<'_>) -> Result<Rate> {
        let (object, row) = self.place(scope).await?;
        let seen = self.pool.look(object, Look::keys([&row])).await?;
        let set = seen.values.get(&row).map(Rate::from_bytes);
        Ok(set.transpose()?.unwrap_or_default())
    }

    /// Changes one; as it is then.
    pub async fn set(&self, scope: RateScope<'_>, change: impl Fn(&mut Rate)) -> Result<Rate> {
        for _ in 0..TRIES_MAX {
            let (object, row) = self.place(scope).await?;
            let seen = self.pool.look(object, Look::keys([&row])).await?;
            let seen = seen.values.get(&row);
            let mut rate = seen.map(Rate::from_bytes).transpose()?.unwrap_or_default();
            change(&mut rate);
            let set = Change::default()
                .expecting(&row, seen)
                .setting(&row, rate.to_bytes());
            match self.pool.change(object, set).await {
                Err(e) if e.is_conflict() => {}
                other => return other.map(|()| rate),
            }
        }
        Err(Error::Conflict("others change the same rate limit"))
    }

    async fn payer(&self, scope: RateScope<'_>) -> Result<Option<Payer>> {
        let name = match scope {
            RateScope::User(user) => format!("u{user}"),
            RateScope::Bucket(bucket) => format!("{BUCKET}{bucket}"),
        };
        let now = self.clock.now_ms();
        let known = self.inner().known.get(&name).copied();
        let rate = match known.filter(|(at, _)| now.abs_diff(*at) < KNOWN_FOR) {
            Some((_, rate)) => rate,
            None => {
                let rate = match self.get(scope).await {
                    Err(Error::NoSuchBucket) => Rate::default(),
                    other => other?,
                };
                let mut inner = self.inner();
                if inner.known.len() >= CACHED_MAX {
                    inner.known.clear();
                }
                inner.known.insert(name.clone(), (now, rate));
                rate
            }
        };
        Ok(rate.enabled.then_some(Payer { name, rate }))
    }

    /// Whom a request is held against: refused if one of them has nothing left.
    pub async fn admit(&self, user: Option<&str>, bucket: Option<&str>, writes: bool) -> Result<Vec<Payer>> {
        let mut payers = Vec::new();
        if let Some(user) = user {
            payers.extend(self.payer(RateScope::User(user)).await?);
        }
        if let Some(bucket) = bucket {
            payers.extend(self.payer(RateScope::Bucket(bucket)).await?);
        }
        let now = self.clock.now_ms();
        let mut inner = self.inner();
        for payer in &payers {
            if !inner.meter(payer, now).allows(&payer.rate, writes) {
                return Err(Error::Busy("more is asked than the rate limit allows"));
            }
        }
        for payer in &payers {
            inner.meter(payer, now).left[usize::from(writes)] -= 1.0;
        }
        Ok(payers)
    }

    /// A request was not permitted: it cost nobody but who asked.
    pub fn give_back(&self, payers: &[Payer], writes: bool, bytes: u64) {
        let now = self.clock.now_ms();
        let mut inner = self.inner();
        for payer in payers.iter().filter(|p| p.name.starts_with(BUCKET)) {
            let meter = inner.meter(payer, now);
            meter.spend(&payer.rate, usize::from(writes), -1.0);
            meter.spend(&payer.rate, 2 + usize::from(writes), -(bytes as f64));
        }
    }

    /// Bytes that go, or come.
    pub fn charge(&self, payers: &[Payer], writes: bool, bytes: u64) {
        let now = self.clock.now_ms();
        let mut inner = self.inner();
        for payer in payers {
            inner
                .meter(payer, now)
                .spend(&payer.rate, 2 + usize::from(writes), bytes as f64);
        }
    }
}

impl Inner {
    fn meter(&mut self, payer: &Payer, now: u64) -> &mut Meter {
        if self.meters.len() >= METERS_MAX && !self.meters.contains_key(&payer.name) {
            self.forget(now);
        }
        let full = || (payer.rate, Meter::full(&payer.rate, now));
        let (rate, meter) = self.meters.entry(payer.name.clone()).or_insert_with(full);
        if *rate != payer.rate {
            (*rate, *meter) = full();
        }
        meter.refill(rate, now);
        meter
    }

    /// The half of them who have used least.
    fn forget(&mut self, now: u64) {
        let mut used: Vec<(f64, String)> = Vec::with_capacity(self.meters.len());
        for (name, (rate, meter)) in &mut self.meters {
            meter.refill(rate, now);
            used.push((meter.used(rate), name.clone()));
        }
        used.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, name) in used.into_iter().take(METERS_MAX / 2) {
            self.meters.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payer(name: &str) -> Payer {
        Payer {
            name: name.into(),
            rate: Rate {
                enabled: true,
                max_write_ops: 6,
                max_read_bytes: 600,
                ..Rate::default()
            },
        }
    }

    #[test]
    fn what_was_used_comes_back_evenly() {
        let (mut inner, a) = (Inner::default(), payer("a"));
        for _ in 0..6 {
            let meter = inner.meter(&a, 1000);
            assert!(meter.allows(&a.rate, true));
            meter.left[1] -= 1.0;
        }
        assert!(!inner.meter(&a, 1000).allows(&a.rate, true));
        assert!(
            inner.meter(&a, 1000).allows(&a.rate, false),
            "reads are another matter"
        );
        assert!(!inner.meter(&a, 10_900).allows(&a.rate, true));
        assert!(
            inner.meter(&a, 11_000).allows(&a.rate, true),
            "a tenth of a minute for one of six"
        );
        // Never more than a minute's worth.
        assert_eq!(inner.meter(&a, 10_000_000).left[1], 6.0);
        inner.meter(&a, 10_000_000).left[2] -= 900.0;
        assert!(!inner.meter(&a, 10_000_000 + 29_000).allows(&a.rate, false));
        assert!(inner.meter(&a, 10_000_000 + 31_000).allows(&a.rate, false));
    }

    #[test]
    fn nobody_owes_for_hours() {
        let (mut inner, a) = (Inner::default(), payer("a"));
        inner.meter(&a, 1000).spend(&a.rate, 2, 1e18);
        assert!(!inner.meter(&a, 1000 + 119_000).allows(&a.rate, false));
        assert!(inner.meter(&a, 1000 + 121_000).allows(&a.rate, false));
        // And nobody gets more than there is.
        inner.meter(&a, 130_000).spend(&a.rate, 2, -1e18);
        assert_eq!(inner.meter(&a, 130_000).left[2], 600.0);
    }

    #[test]
    fn who_has_used_most_is_remembered() {
        let mut inner = Inner::default();
        inner.meter(&payer("greedy"), 0).left[1] -= 6.0;
        for n in 0..2 * METERS_MAX {
            inner.meter(&payer(&n.to_string()), 0);
            assert!(inner.meters.len() <= METERS_MAX);
        }
        assert!(
            !inner
                .meter(&payer("greedy"), 0)
                .allows(&payer("greedy").rate, true)
        );
    }
}
