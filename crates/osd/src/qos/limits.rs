//! The limits that there are, with this OSD's share of each, and which of them an operation falls under.

use crate::qos::bucket::{Bucket, Cost};
use crate::qos::shares::Shares;
use cluster::ImageKey;
use cluster::image_of;
use cluster::qos::Kind::{Bps, ReadBps};
use cluster::qos::{Limits as Words, Subject};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{AuthName, PoolId};

/// Names a subject for as long as it has limits; never used twice.
pub type LimitId = u64;

/// Those that an operation falls under: its image's, its namespace's, its pool's, its user's. 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ids {
    named: [LimitId; 4],
    /// It has no reservation, or not enough, while somebody who has one is at work: it shares what is left ([`Shares`]).
    other: bool,
}

impl Ids {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What it falls under whoever else is at work.
    pub fn always(self) -> Self {
        Self { other: false, ..self }
    }

    pub fn is_other(self) -> bool {
        self.other
    }

    pub fn iter(&self) -> impl Iterator<Item = LimitId> + use<> {
        self.named.into_iter().filter(|id| *id != 0)
    }
}

/// How an operation is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// Within a reservation.
    Ahead,
    /// As one of the others.
    Other,
    /// As one of the others, with tokens or without: it cannot be held.
    Unheld,
}

#[derive(Debug)]
pub struct Limit {
    pub subject: Subject,
    words: Words,
    pub share: f64,
    pub buckets: Vec<Bucket>,
    /// What goes ahead of others.
    pub reserved: Vec<Bucket>,
    /// Somebody waits for it: who comes now does not go before.
    pub short: bool,
    /// Operations that were let through, and how often one was held back.
    pub served: u64,
    pub held: u64,
    /// Let through although there were no tokens: the client cannot be held, or too much is held already.
    pub unheld: u64,
    /// Of those that were let through, the ones that went ahead of others.
    pub ahead: u64,
}

/// Images of one namespace; with the pool that holds the header.
type ById = BTreeMap<Vec<u8>, (PoolId, LimitId)>;

/// Of one pool's objects.
#[derive(Debug, Default)]
struct OfPool {
    own: LimitId,
    namespaces: BTreeMap<Vec<u8>, LimitId>,
    /// By namespace.
    images: BTreeMap<Vec<u8>, ById>,
}

#[derive(Debug, Default)]
pub struct Limits {
    all: BTreeMap<LimitId, Limit>,
    pools: BTreeMap<PoolId, OfPool>,
    users: BTreeMap<AuthName, LimitId>,
    last: LimitId,
    /// What is left for those who have no reservation.
    pub shares: Shares,
}

/// Where an operation's object is.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub pool: PoolId,
    pub namespace: &'a [u8],
    pub oid: &'a [u8],
}

impl Limits {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Goes by these from now on. What is as it was keeps its tokens and its debts. `share`: of the limits of objects in a
    /// pool, or in all pools, what this OSD may let through.
    pub fn set(
        &mut self,
        rows: BTreeMap<Subject, Words>,
        share: impl Fn(Option<PoolId>) -> f64,
        now: Duration,
    ) {
        let mut old: BTreeMap<Subject, (LimitId, Limit)> = std::mem::take(&mut self.all)
            .into_iter()
            .map(|(id, limit)| (limit.subject.clone(), (id, limit)))
            .collect();
        (self.pools, self.users) = Default::default();
        for (subject, words) in rows {
            let share = share(objects_in(&subject, &words));
            let (id, limit) = match old.remove(&subject) {
                Some((id, limit)) => (id, limit.goes_by(words, share, now)),
                None => {
                    self.last += 1;
                    (self.last, Limit::new(subject, words, share, now))
                }
            };
            self.index(id, &limit);
            self.all.insert(id, limit);
        }
        self.shares.set(self.all.values().any(|l| !l.reserved.is_empty()));
    }

    fn index(&mut self, id: LimitId, limit: &Limit) {
        match &limit.subject {
            Subject::Pool(pool) => self.pools.entry(*pool).or_default().own = id,
            Subject::Namespace(pool, name) => {
                let of = self.pools.entry(*pool).or_default();
                of.namespaces.insert(name.clone().into_bytes(), id);
            }
            Subject::Image(ImageKey {
                pool,
                namespace,
                id: image,
            }) => {
                let objects = limit.words.data_pool.unwrap_or(*pool);
                let of = self.pools.entry(objects).or_default();
                let of = of.images.entry(namespace.clone().into_bytes()).or_default();
                of.insert(image.clone().into_bytes(), (*pool, id));
            }
            Subject::User(name) => {
                if let Ok(name) = name.parse() {
                    self.users.insert(name, id);
                }
            }
        }
    }

    /// Those that an operation on this object by this user falls under. An image's objects are those in its own data pool,
    /// whatever objects elsewhere are called.
    pub fn of(&self, place: &Place<'_>, user: &AuthName) -> Ids {
        let mut ids = Ids::default();
        if let Some(of) = self.pools.get(&place.pool) {
            let named = of.images.get(place.namespace).and_then(|images| {
                let (pool, id) = image_of(place.oid)?;
                let (header, limit) = images.get(id)?;
                (pool.unwrap_or(place.pool) == *header).then_some(*limit)
            });
            ids.named[0] = named.unwrap_or(0);
            ids.named[1] = of.namespaces.get(place.namespace).copied().unwrap_or(0);
            ids.named[2] = of.own;
        }
        if !self.users.is_empty() {
            ids.named[3] = self.users.get(user).copied().unwrap_or(0);
        }
        ids
    }

    pub fn all(&self) -> impl Iterator<Item = &Limit> {
        self.all.values()
    }

    fn each(&mut self, ids: Ids, mut f: impl FnMut(&mut Limit)) {
        for id in ids.iter() {
            if let Some(limit) = self.all.get_mut(&id) {
                f(limit);
            }
        }
    }

    /// What an operation falls under now, how long it has to wait, and whether it goes ahead of others: within one of its
    /// reservations, of which it takes its tokens. Those are not spent on what a limit holds.
    pub fn admit(&mut self, ids: Ids, cost: &Cost, now: Duration) -> (Ids, Duration, bool) {
        let wait = self.wait(ids, cost, true, now);
        if !self.shares.is_on() || cost.ops == 0 {
            return (ids, wait, false);
        }
        let other = self.shares.is_holding();
        if !wait.is_zero() {
            return (Ids { other, ..ids }, wait, false);
        }
        let reserved = self.go_ahead(ids, cost, now);
        if reserved == Some(Duration::ZERO) {
            return (ids, wait, true);
        }
        let others = match other {
            true => self.shares.wait(true, now),
            false => wait,
        };
        let wait = reserved.map_or(others, |wait| wait.min(others));
        (Ids { other, ..ids }, wait, false)
    }

    /// How long until one of its reservations has tokens; zero: they are taken, and it goes ahead. None: it has none.
    pub fn go_ahead(&mut self, ids: Ids, cost: &Cost, now: Duration) -> Option<Duration> {
        let mut soonest: Option<Duration> = None;
        for id in ids.iter() {
            let Some(limit) = self.all.get_mut(&id).filter(|l| !l.reserved.is_empty()) else {
                continue;
            };
            let waits = limit.reserved.iter_mut().map(|b| b.wait(now));
            let wait = waits.max().unwrap_or_default();
            if wait.is_zero() {
                for bucket in &mut limit.reserved {
                    bucket.take(cost.of(bucket.kind).unwrap_or(0.0));
                }
                limit.ahead += u64::from(cost.ops);
                self.shares.go_ahead(cost.ops, now);
                return Some(wait);
            }
            soonest = Some(soonest.map_or(wait, |s| s.min(wait)));
        }
        soonest
    }

    /// How long until this may go by its own limits; those that keep it are marked short. Zero: now. `new`: it waits behind those
    /// that wait already.
    pub fn wait(&mut self, ids: Ids, cost: &Cost, new: bool, now: Duration) -> Duration {
        let mut longest = Duration::ZERO;
        let mut behind = false;
        self.each(ids, |limit| {
            let wait = limit.wait(cost, now);
            limit.short |= !wait.is_zero();
            behind |= limit.short && limit.counts(cost);
            longest = longest.max(wait);
        });
        match new && behind && longest.is_zero() {
            true => Duration::from_nanos(1),
            false => longest,
        }
    }

    pub fn nobody_is_short(&mut self) {
        self.all.values_mut().for_each(|l| l.short = false);
        self.shares.nobody_is_short();
    }

    pub fn charge(&mut self, ids: Ids, cost: &Cost, passes: Passes, now: Duration) {
        self.each(ids, |limit| limit.take(cost, 1.0));
        if self.shares.is_on() && passes != Passes::Ahead {
            self.shares.charge(cost, passes == Passes::Other, now);
        }
    }

    /// It is not spent after all.
    pub fn refund(&mut self, ids: Ids, cost: &Cost) {
        self.each(ids, |limit| limit.take(cost, -1.0));
        if ids.other {
            self.shares.refund(cost);
        }
    }

    /// An operation was held back.
    pub fn held(&mut self, ids: Ids) {
        self.each(ids, |limit| limit.held += 1);
        self.shares.held += u64::from(ids.other);
    }

    /// One was let through although there were no tokens.
    pub fn unheld(&mut self, ids: Ids) {
        self.each(ids, |limit| limit.unheld += 1);
        self.shares.unheld += u64::from(ids.other);
    }

    /// So many bytes were read where others had been charged.
    pub fn settle(&mut self, ids: Ids, passes: Passes, charged: u64, read: u64) {
        let more = read as f64 - charged as f64;
        let settle = |buckets: &mut [Bucket]| {
            for bucket in buckets.iter_mut().filter(|b| matches!(b.kind, Bps | ReadBps)) {
                bucket.take(more);
            }
        };
        let mut ahead = passes == Passes::Ahead;
        self.each(ids, |limit| {
            settle(&mut limit.buckets);
            // By the first that has a reservation.
            if ahead && !limit.reserved.is_empty() {
                settle(&mut limit.reserved);
                ahead = false;
            }
        });
        if passes == Passes::Other {
            self.shares.settle(charged, read);
        }
    }

    pub fn count(&mut self, ids: Ids, f: impl Fn(&mut Limit)) {
        self.each(ids, f);
    }

    /// How long all of this takes under the tightest of them.
    pub fn seconds_of(&self, ids: Ids, cost: &Cost) -> f64 {
        let limits = ids.iter().filter_map(|id| self.all.get(&id));
        let buckets = limits.flat_map(|l| &l.buckets);
        let all = buckets.filter_map(|b| Some(b.seconds_of(cost.of(b.kind)?)));
        let others = match ids.other {
            true => self.shares.seconds_of(cost),
            false => 0.0,
        };
        all.fold(others, f64::max)
    }
}

/// In which pool the objects are that it is about; None: in any.
fn objects_in(subject: &Subject, words: &Words) -> Option<PoolId> {
    words.data_pool.or(subject.pool())
}

impl Limit {
    fn new(subject: Subject, words: Words, share: f64, now: Duration) -> Self {
        let buckets = words
            .rates()
            .flat_map(|(kind, rate)| Bucket::of(kind, rate, share, now));
        let reserved = words
            .reserves()
            .map(|(kind, amount)| Bucket::reserved(kind, amount, share, now));
        Self {
            buckets: buckets.collect(),
            reserved: reserved.collect(),
            subject,
            words,
            share,
            short: false,
            served: 0,
            held: 0,
            unheld: 0,
            ahead: 0,
        }
    }

    fn goes_by(self, words: Words, share: f64, now: Duration) -> Self {
        if self.words == words && self.share == share {
            return self;
        }
        let mut new = Self::new(self.subject, words, share, now);
        for bucket in &mut new.buckets {
            let same = |b: &&Bucket| (b.kind, b.peak) == (bucket.kind, bucket.peak);
            if let Some(old) = self.buckets.iter().find(same) {
                bucket.inherit(old);
            }
        }
        for bucket in &mut new.reserved {
            if let Some(old) = self.reserved.iter().find(|b| b.kind == bucket.kind) {
                bucket.inherit(old);
            }
        }
        Self {
            served: self.served,
            held: self.held,
            unheld: self.unheld,
            ahead: self.ahead,
            ..new
        }
    }

    fn counts(&self, cost: &Cost) -> bool {
        self.buckets.iter().any(|b| cost.of(b.kind).is_some())
    }

    fn wait(&mut self, cost: &Cost, now: Duration) -> Duration {
        let concerned = self.buckets.iter_mut().filter(|b| cost.of(b.kind).is_some());
        concerned.map(|b| b.wait(now)).max().unwrap_or_default()
    }

    fn take(&mut self, cost: &Cost, sign: f64) {
        for bucket in &mut self.buckets {
            if let Some(tokens) = cost.of(bucket.kind) {
                bucket.take(tokens * sign);
            }
        }
    }

    pub fn words(&self) -> &Words {
        &self.words
    }
}
