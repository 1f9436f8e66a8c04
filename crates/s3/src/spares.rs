//! Claims that were made before anybody needs them: where much is put, many intents are written by one operation.
//!
//! Invariants: a spare claim is like any other: its intent is durable before it is given out, and it is given out once. One that nobody takes within
//! [`IDLE_MS`] is given back; of a gateway that is killed they end by their time, and their data, which are not there, are collected.
//!
//! Bounds: [`BATCH`] and [`LOW`] of a shard and a place, [`SHARDS_MAX`] of those.

use crate::claims::{Claim, INTENT_MS};
use crate::record::Place;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Made by one operation.
pub const BATCH: usize = 16;
/// As few are left when others are made.
const LOW: usize = 8;
/// So many claims of a shard within [`SPAN_MS`], and the next ones are made before they are asked for.
const BUSY: u32 = 8;
const SPAN_MS: u64 = 1000;
pub const IDLE_MS: u64 = 2000;
const SHARDS_MAX: usize = 1024;
/// One that is older is not given out: it ends by itself.
const GOOD_FOR: Duration = Duration::from_millis(INTENT_MS / 4);

/// Where claims are for: a shard of an index, and the place of the data.
pub type Of = (String, Place);

#[derive(Default)]
struct Shard {
    claims: VecDeque<Claim>,
    /// Others are being made.
    making: bool,
    /// Since when `asked` are counted, and when somebody asked last (milliseconds since 1970).
    since: u64,
    last: u64,
    asked: u32,
    /// In the span before.
    before: u32,
}

#[derive(Default)]
struct Inner {
    shards: HashMap<Of, Shard>,
    /// None are made any more.
    ended: bool,
}

/// Clones are the same.
#[derive(Clone, Default)]
pub struct Spares(Arc<Mutex<Inner>>);

/// What becomes of who asks.
pub struct Taken {
    pub claim: Option<Claim>,
    /// The caller shall have others made, and say so by [`Spares::made`].
    pub make: bool,
}

impl Spares {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `now`: milliseconds since 1970, and monotonic.
    pub fn take(&self, of: &Of, (now, monotonic): (u64, Duration)) -> Taken {
        let mut inner = self.inner();
        let ended = inner.ended;
        let shards = &mut inner.shards;
        if shards.len() >= SHARDS_MAX && !shards.contains_key(of) {
            return Taken {
                claim: None,
                make: false,
            };
        }
        let shard = shards.entry(of.clone()).or_default();
        if now.abs_diff(shard.since) >= SPAN_MS {
            shard.before = match now.abs_diff(shard.since) < 2 * SPAN_MS {
                true => shard.asked,
                false => 0,
            };
            (shard.since, shard.asked) = (now, 0);
        }
        shard.asked += 1;
        shard.last = now;
        let is_old = |c: &Claim| monotonic.saturating_sub(c.made) > GOOD_FOR || !c.is_fresh(now);
        while shard.claims.front().is_some_and(is_old) {
            shard.claims.pop_front();
        }
        let claim = shard.claims.pop_front();
        let busy = shard.asked.max(shard.before) >= BUSY;
        let make = busy && !ended && !shard.making && shard.claims.len() <= LOW;
        shard.making |= make;
        Taken { claim, make }
    }

    /// Others were made, all of one shard: the key that they were made for may have moved to another. Those that there is no room for.
    pub fn made(&self, of: &Of, claims: Vec<Claim>) -> Vec<Claim> {
        let mut inner = self.inner();
        let ended = inner.ended;
        if let Some(shard) = inner.shards.get_mut(of) {
            shard.making = false;
        }
        let at = claims.first().map(|c| (c.shard.clone(), c.place));
        match at.and_then(|at| inner.shards.get_mut(&at)) {
            Some(shard) if !ended && shard.claims.len() <= LOW => {
                shard.claims.extend(claims);
                Vec::new()
            }
            _ => claims,
        }
    }

    /// Those that nobody has taken for a while, by shards; they are not here any more. `all`: at the end.
    pub fn idle(&self, now: u64, all: bool) -> Vec<Vec<Claim>> {
        let mut inner = self.inner();
        inner.ended |= all;
        let shards = &mut inner.shards;
        let idle = |s: &Shard| all || now.abs_diff(s.last) >= IDLE_MS;
        let mut left = Vec::new();
        for shard in shards.values_mut().filter(|s| idle(s)) {
            if !shard.claims.is_empty() {
                left.push(shard.claims.drain(..).collect());
            }
        }
        shards.retain(|_, s| s.making || !idle(s));
        left
    }
}
