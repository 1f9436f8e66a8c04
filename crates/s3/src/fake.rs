//! A pool in memory for tests: at each operation it may let others go first, and it may say that there was no answer, before or
//! after the operation took effect, as a gateway sees it that is killed or cut off.

use crate::classes::Classes;
use crate::rados::{Change, Look, Pool, Seen};
use crate::{Clock, Error, Result};
use bytes::Bytes;
use io::Random;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use types::Errno;

/// A generator that repeats itself for the same seed.
pub struct Seeded(Mutex<u64>);

impl Seeded {
    pub fn shared(seed: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(seed.wrapping_mul(2).wrapping_add(1))))
    }

    pub fn next(&self) -> u64 {
        let mut x = self.0.lock().unwrap();
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    pub fn below(&self, n: u64) -> u64 {
        self.next() % n
    }
}

impl Random for Seeded {
    fn fill(&self, buf: &mut [u8]) {
        buf.iter_mut().for_each(|b| *b = self.next() as u8);
    }
}

/// Time that tests set.
#[derive(Default)]
pub struct Hand(pub Mutex<Duration>);

impl io::Clock for Hand {
    fn monotonic(&self) -> Duration {
        *self.0.lock().unwrap()
    }
    fn wall(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

#[derive(Debug, Default, Clone)]
pub struct Object {
    pub omap: BTreeMap<Bytes, Bytes>,
    pub data: Bytes,
    version: u64,
}

#[derive(Default)]
pub struct World {
    pub objects: BTreeMap<String, Object>,
    /// One of so many operations gets no answer; 0: each gets one.
    pub fails: u64,
    /// How far along its operations each gateway is let, by its number; then none is answered any more.
    pub killed: HashMap<u64, u64>,
    /// As `killed`; it goes on when its entry is taken away.
    pub held: HashMap<u64, u64>,
    /// What each operation takes.
    pub takes: Duration,
    /// Somebody was.
    pub dead: bool,
    /// Rows of ranges that one operation removes; more are E2BIG. 0: any number.
    pub rows_max: usize,
}

#[derive(Clone)]
pub struct Fake {
    pub world: Arc<Mutex<World>>,
    pub random: Arc<Seeded>,
    pub hand: Arc<Hand>,
    pub gateway: u64,
    /// The pool's, where it is another than the first: what names of its objects begin with.
    pub prefix: String,
}

fn refused(errno: Errno) -> Error {
    Error::Rados(client::Error::refused(-errno.0, "operation"))
}

impl Fake {
    pub fn new(seed: u64) -> Self {
        let hand = Hand(Mutex::new(Duration::from_secs(1_000_000)));
        Self {
            world: Arc::default(),
            random: Seeded::shared(seed),
            hand: Arc::new(hand),
            gateway: 0,
            prefix: String::new(),
        }
    }

    /// Storage classes over pools that all are there.
    pub fn classes(&self) -> Classes<Self> {
        let of = self.clone();
        let open = move |name: String| {
            let mut pool = of.clone();
            pool.prefix = format!("{name}/");
            let opened: Pin<Box<dyn Future<Output = Result<Self>> + Send>> = Box::pin(async { Ok(pool) });
            opened
        };
        Classes::new(self.clone(), self.clone(), Arc::new(open), self.clock())
    }

    fn named(&self, oid: &str) -> String {
        format!("{}{oid}", self.prefix)
    }

    pub fn clock(&self) -> Clock {
        Clock::new(self.hand.clone(), self.random.clone())
    }

    pub fn pass(&self, time: Duration) {
        *self.hand.0.lock().unwrap() += time;
    }

    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Others go first, or there is never an answer. True: it takes effect all the same.
    async fn door(&self) -> std::result::Result<(), bool> {
        for _ in 0..self.random.below(3) {
            io::task::yield_now().await;
        }
        while self.is_held() {
            io::task::yield_now().await;
        }
        self.pass(self.lock().takes);
        let (dead, fails) = {
            let mut world = self.lock();
            let left = world.killed.get_mut(&self.gateway);
            let dead = left.is_some_and(|n| {
                *n = n.saturating_sub(1);
                *n == 0
            });
            (dead, world.fails)
        };
        if dead {
            self.lock().dead = true;
            std::future::pending::<()>().await;
        }
        match fails > 0 && self.random.below(fails) == 0 {
            true => Err(self.random.below(2) == 0),
            false => Ok(()),
        }
    }

    /// Counts an operation, and stops at the last.
    fn is_held(&self) -> bool {
        let mut world = self.lock();
        let left = world.held.get_mut(&self.gateway);
        left.is_some_and(|n| {
            *n = n.saturating_sub(1);
            *n == 0
        })
    }

    /// Completes when a gateway was killed.
    pub async fn death(&self) {
        while !self.lock().dead {
            io::task::yield_now().await;
        }
        self.lock().dead = false;
    }

    fn apply(&self, oid: &str, change: Change) -> Result<()> {
        let mut world = self.lock();
        let rows_max = world.rows_max;
        if change.create {
            if world.objects.contains_key(oid) {
                return Err(refused(Errno::EEXIST));
            }
            world.objects.insert(oid.to_string(), Object::default());
        }
        let writes_alone = change.version.is_none() && change.expect.is_empty();
        if writes_alone {
            world.objects.entry(oid.to_string()).or_default();
        }
        let object = world.objects.get_mut(oid).ok_or_else(|| refused(Errno::ENOENT))?;
        if change.version.is_some_and(|v| v != object.version) {
            return Err(refused(Errno::ERANGE));
        }
        let stored = |k| object.omap.get(k).cloned().unwrap_or_default();
        if change.expect.iter().any(|(k, v)| stored(k) != *v) {
            return Err(refused(Errno::ECANCELED));
        }
        let within = |k: &Bytes| change.unset_ranges.iter().any(|(from, to)| k >= from && k < to);
        let removed = object.omap.keys().filter(|k| within(k)).count();
        if rows_max > 0 && removed > rows_max {
            return Err(refused(Errno::E2BIG));
        }
        for (from, to) in &change.unset_ranges {
            object.omap.retain(|k, _| k < from || k >= to);
        }
        object.omap.retain(|k, _| !change.unset.contains(k));
        object.omap.extend(change.set);
        object.version += 1;
        Ok(())
    }
}

impl Pool for Fake {
    async fn look(&self, oid: &str, look: Look) -> Result<Seen> {
        let oid = &self.named(oid);
        if self.door().await.is_err() {
            return Err(Error::Rados(client::Error::TimedOut));
        }
        let world = self.lock();
        let object = world.objects.get(oid).ok_or_else(|| refused(Errno::ENOENT))?;
        let values = look
            .keys
            .iter()
            .filter_map(|k| Some((k.clone(), object.omap.get(k)?.clone())));
        let mut seen = Seen {
            values: values.collect(),
            version: object.version,
            ..Seen::default()
        };
        let page = |span: crate::rados::Span| {
            let after = (std::ops::Bound::Excluded(span.after), std::ops::Bound::Unbounded);
            let mut rows = object
                .omap
                .range(after)
                .take_while(|(k, _)| k.starts_with(&span.prefix) || **k < span.prefix)
                .filter(|(k, _)| k.starts_with(&span.prefix));
            // Fewer than were asked for, as an OSD may.
            let max = span.max.min(7) as usize;
            let some = rows.by_ref().take(max).map(|(k, v)| (k.clone(), v.clone()));
            (some.collect(), rows.next().is_some())
        };
        if let Some(span) = look.page {
            (seen.rows, seen.more) = page(span);
        }
        seen.beside = look.beside.map(page).unwrap_or_default();
        Ok(seen)
    }

    async fn change(&self, oid: &str, change: Change) -> Result<()> {
        let oid = &self.named(oid);
        match self.door().await {
            Ok(()) => self.apply(oid, change),
            Err(takes_effect) => {
                if takes_effect {
                    let _ = self.apply(oid, change);
                }
                Err(Error::Rados(client::Error::TimedOut))
            }
        }
    }

    async fn read(&self, oid: &str, offset: u64, length: u64) -> Result<Bytes> {
        let oid = &self.named(oid);
        let _ = self.door().await;
        let world = self.lock();
        let object = world.objects.get(oid).ok_or_else(|| refused(Errno::ENOENT))?;
        let end = object.data.len().min((offset + length) as usize);
        Ok(object.data.slice((offset as usize).min(end)..end))
    }

    async fn write(&self, oid: &str, data: Bytes) -> Result<()> {
        let oid = &self.named(oid);
        let passed = self.door().await;
        if passed != Err(false) {
            self.lock().objects.entry(oid.to_string()).or_default().data = data;
        }
        passed.map_err(|_| Error::Rados(client::Error::TimedOut))
    }

    async fn remove(&self, oid: &str) -> Result<bool> {
        let oid = &self.named(oid);
        let passed = self.door().await;
        let gone = passed != Err(false) && self.lock().objects.remove(oid.as_str()).is_some();
        passed
            .map(|()| gone)
            .map_err(|_| Error::Rados(client::Error::TimedOut))
    }
}
