//! Records of users and buckets, remembered: each request asks for the same few of them.
//!
//! Whoever changes such an object tells all that watch it (RADOS watch and notify), and has his answer when they have heard, or after some [`HEARD_WITHIN`]: what does not answer for so long is dead, or cut off.
//!
//! Invariants: nothing is remembered of an object that is not watched, nor for longer than [`GOOD_FOR`], whatever was not heard of. What was read before a
//! change was heard of and comes after it is not remembered. A change that was begun is told of, also where nobody waits for it any more, unless the process ends.
//! What must be as it is now is looked at by [`Look::fresh`].
//!
//! Bounds: [`LOOKS_MAX`] looks of each object, [`BYTES_MAX`] bytes of keys and rows; looks of rows that are not all there are not remembered, so that names that are made up push nothing out.
//! One notify of an object is under way, and one waits: it is for all changes that were made meanwhile.

use crate::rados::{Change, Look, Pool, Seen};
use crate::{Clock, Error, Result};
use bytes::Bytes;
use client::{IoCtx, WatchEvent};
use io::task;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync;

/// How long what was read is good where a change of it was not heard of: the watch was lost, or it was changed by a program that does not tell.
pub const GOOD_FOR: Duration = Duration::from_secs(10);
/// How long a change waits for those that have to hear of it. A gateway that was killed is waited for until its watch ends.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// Of a watch: without a sign of the gateway for so long it ends.
const DEAD_AFTER: Duration = Duration::from_secs(10);
/// Until it is watched again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const LOOKS_MAX: usize = 4096;
const BYTES_MAX: usize = 8 << 20;

/// Says to all that watch an object that it was changed.
pub type Tell = Arc<dyn Fn(&'static str) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

#[derive(Default)]
struct Kept {
    watched: bool,
    /// Grows with each change that was heard of.
    generation: u64,
    /// By their rows: when they were read, and what was seen.
    looks: HashMap<BTreeSet<Bytes>, (At, Seen)>,
    /// Of them all.
    bytes: usize,
}

/// Monotonic, and milliseconds since 1970: the first stands still while a machine is suspended, the second may be set.
type At = (Duration, u64);

/// An object by its name, and the classes (first bytes) of rows that are not remembered and whose changes are nobody's business.
pub type Object = (&'static str, &'static [u8]);

/// What is remembered of some objects of one pool.
pub struct Memory {
    clock: Clock,
    objects: Vec<(Object, Mutex<Kept>)>,
}

/// What is known before a look.
enum Recalled {
    Seen(Seen),
    /// It has to be looked for; what is seen may be remembered if this is still the generation.
    Unknown(u64),
}

fn is_of(classes: &[u8], row: &Bytes) -> bool {
    row.first().is_some_and(|class| classes.contains(class))
}

impl Memory {
    pub fn new(clock: Clock, objects: &[Object]) -> Arc<Self> {
        let kept = |object: &Object| (*object, Mutex::default());
        Arc::new(Self {
            clock,
            objects: objects.iter().map(kept).collect(),
        })
    }

    fn at(&self) -> At {
        (self.clock.monotonic(), self.clock.now_ms())
    }

    fn object(&self, oid: &str) -> Option<Object> {
        let mut objects = self.objects.iter().map(|(object, _)| *object);
        objects.find(|(name, _)| *name == oid)
    }

    fn kept(&self, oid: &str) -> Option<MutexGuard<'_, Kept>> {
        let (_, kept) = self.objects.iter().find(|((name, _), _)| *name == oid)?;
        Some(kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// It was changed.
    pub fn forget(&self, oid: &str) {
        if let Some(mut kept) = self.kept(oid) {
            kept.generation += 1;
            kept.clear();
        }
    }

    /// From now on changes are heard of, or are not.
    pub fn set_watched(&self, oid: &str, watched: bool) {
        self.forget(oid);
        if let Some(mut kept) = self.kept(oid) {
            kept.watched = watched;
        }
    }

    fn recall(&self, oid: &str, look: &Look) -> Option<Recalled> {
        let (_, quiet) = self.object(oid)?;
        let by_keys = look.page.is_none() && look.beside.is_none();
        if !by_keys || look.keys.iter().any(|row| is_of(quiet, row)) {
            return None;
        }
        let now = self.at();
        let kept = self.kept(oid).filter(|kept| kept.watched)?;
        let known = kept
            .looks
            .get(&look.keys)
            .filter(|(at, _)| !look.fresh && is_good(*at, now));
        Some(match known {
            Some((_, seen)) => Recalled::Seen(seen.clone()),
            None => Recalled::Unknown(kept.generation),
        })
    }

    /// `at`: when it was asked for.
    fn keep(&self, oid: &str, (generation, at): (u64, At), keys: BTreeSet<Bytes>, seen: &Seen) {
        let Some(mut kept) = self.kept(oid) else { return };
        let whole = keys.iter().all(|key| seen.values.contains_key(key));
        if !whole || !kept.watched || kept.generation != generation {
            return;
        }
        let bytes = |(k, v): (&Bytes, &Bytes)| 2 * k.len() + v.len();
        let bytes = seen.values.iter().map(bytes).sum::<usize>();
        if bytes > BYTES_MAX / 16 {
            return;
        }
        if kept.looks.len() >= LOOKS_MAX || kept.bytes + bytes > BYTES_MAX {
            kept.clear();
        }
        // What was there already is counted twice: at most until all is cleared.
        kept.bytes += bytes;
        kept.looks.insert(keys, (at, seen.clone()));
    }
}

impl Kept {
    fn clear(&mut self) {
        self.looks.clear();
        self.bytes = 0;
    }
}

/// Whether what was read `at` is good `now`.
fn is_good(at: At, now: At) -> bool {
    let wall = Duration::from_millis(now.1.abs_diff(at.1));
    now.0.saturating_sub(at.0) < GOOD_FOR && wall < GOOD_FOR
}

/// A pool, of which some objects are remembered.
#[derive(Clone)]
pub struct Remembered<P> {
    pool: P,
    of: Option<(Arc<Memory>, Tell)>,
}

impl<P> Remembered<P> {
    /// Nothing of it is.
    pub fn plain(pool: P) -> Self {
        Self { pool, of: None }
    }

    pub fn new(pool: P, memory: Arc<Memory>, tell: Tell) -> Self {
        let of = Some((memory, tell));
        Self { pool, of }
    }
}

impl<P: Pool> Pool for Remembered<P> {
    async fn look(&self, oid: &str, look: Look) -> Result<Seen> {
        let of = self.of.as_ref();
        let recalled = of.and_then(|(memory, _)| Some((memory, memory.recall(oid, &look)?)));
        let (memory, generation) = match recalled {
            None => return self.pool.look(oid, look).await,
            Some((_, Recalled::Seen(seen))) => return Ok(seen),
            Some((memory, Recalled::Unknown(generation))) => (memory, generation),
        };
        let (keys, at) = (look.keys.clone(), memory.at());
        let seen = self.pool.look(oid, look).await?;
        memory.keep(oid, (generation, at), keys, &seen);
        Ok(seen)
    }

    async fn change(&self, oid: &str, change: Change) -> Result<()> {
        let of = self.of.as_ref();
        let object = of.and_then(|of| Some((of.0.object(oid)?, of.clone())));
        let mut rows = change.set.keys().chain(&change.unset);
        let (name, (memory, tell)) = match object {
            Some(((name, quiet), of)) if rows.any(|row| !is_of(quiet, row)) => (name, of),
            _ => return self.pool.change(oid, change).await,
        };
        let pool = self.pool.clone();
        // A task of its own: it goes on where its request was cut off.
        let changed = task::spawn_local(async move {
            let done = pool.change(name, change).await;
            // Also a conflict: what it was decided on is old.
            memory.forget(name);
            if !matches!(&done, Err(e) if e.is_conflict() || e.is_not_found()) {
                tell(name).await;
            }
            done
        });
        let changed = changed.await;
        changed.map_err(|_| Error::Busy("the gateway is stopping"))?
    }

    async fn read(&self, oid: &str, offset: u64, length: u64) -> Result<Bytes> {
        self.pool.read(oid, offset, length).await
    }

    async fn write(&self, oid: &str, data: Bytes) -> Result<()> {
        self.pool.write(oid, data).await
    }

    async fn remove(&self, oid: &str) -> Result<bool> {
        self.pool.remove(oid).await
    }
}

/// Of one object: how many changes there were, and up to which all have heard.
struct Told {
    asked: Mutex<Asked>,
    heard: sync::watch::Sender<u64>,
}

#[derive(Default)]
struct Asked {
    changes: u64,
    /// A notify is under way.
    telling: bool,
}

impl Told {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells until there is nothing more to be told.
    async fn run(&self, pool: &IoCtx, oid: &str) {
        loop {
            let upto = self.asked().changes;
            notify(pool, oid).await;
            self.heard.send_replace(upto);
            let mut asked = self.asked();
            if asked.changes == upto {
                asked.telling = false;
                return;
            }
        }
    }
}

/// Tells by notifies of these objects.
pub fn teller(pool: &IoCtx, objects: &[Object]) -> Tell {
    let told = |(name, _): &Object| {
        let told = Told {
            asked: Mutex::default(),
            heard: sync::watch::Sender::new(0),
        };
        (*name, Arc::new(told))
    };
    let told: HashMap<&'static str, Arc<Told>> = objects.iter().map(told).collect();
    let pool = pool.clone();
    Arc::new(move |oid| {
        let (pool, told) = (pool.clone(), told.get(oid).cloned());
        Box::pin(async move {
            let Some(told) = told else { return };
            let mut heard = told.heard.subscribe();
            let (mine, begins) = {
                let mut asked = told.asked();
                asked.changes += 1;
                let begins = !std::mem::replace(&mut asked.telling, true);
                (asked.changes, begins)
            };
            if begins {
                let told = told.clone();
                drop(task::spawn_local(async move { told.run(&pool, oid).await }));
            }
            // One that is under way, and the one after it.
            let heard = heard.wait_for(|n| *n >= mine);
            let _ = task::timeout(HEARD_WITHIN * 5, heard).await.map(drop);
        })
    })
}

async fn notify(pool: &IoCtx, oid: &str) {
    let told = pool.notify(oid, Bytes::new(), HEARD_WITHIN);
    let why = match task::timeout(HEARD_WITHIN * 2, told).await {
        Ok(Ok(heard)) if heard.missed.is_empty() => return,
        Ok(Ok(heard)) => format!("{} that watch it do not answer", heard.missed.len()),
        Ok(Err(e)) => e.to_string(),
        Err(_) => "no answer in time".into(),
    };
    let good_for = GOOD_FOR.as_secs();
    tracing::warn!(
        "s3: {oid} was changed, and not all gateways have heard it: they may go by what was before for {good_for} s ({why})"
    );
}

/// Hears of changes of an object, until it is dropped.
pub async fn watch(pool: IoCtx, memory: Arc<Memory>, oid: &'static str) {
    loop {
        match pool.watch(oid, Some(DEAD_AFTER)).await {
            Ok(mut watch) => {
                memory.set_watched(oid, true);
                while let WatchEvent::Notify { notify_id, .. } = watch.next().await {
                    memory.forget(oid);
                    // The next one has not to wait for long, nor the news that the watch is lost.
                    let heard = task::timeout(HEARD_WITHIN, watch.ack(notify_id, Bytes::new())).await;
                    if !matches!(heard, Ok(Ok(()))) {
                        tracing::debug!("s3: who changed {oid} does not know that it was heard");
                    }
                }
                memory.set_watched(oid, false);
            }
            Err(e) => tracing::debug!("s3: {oid} is not watched: {e}"),
        }
        task::sleep(AGAIN_AFTER).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use std::sync::atomic::{AtomicU64, Ordering};

    const USERS: &str = "users";
    const OTHER: &str = "other";
    const OBJECTS: [Object; 1] = [(USERS, b"q")];

    fn row(name: &str) -> Bytes {
        Bytes::copy_from_slice(name.as_bytes())
    }

    fn setting(name: &str, value: &str) -> Change {
        Change::default().setting(&row(name), row(value))
    }

    /// Two gateways on one pool, and how often one told the other.
    struct Two {
        fake: Fake,
        gateways: [Remembered<Fake>; 2],
        memories: [Arc<Memory>; 2],
        told: Arc<AtomicU64>,
    }

    impl Two {
        fn new() -> Self {
            let fake = Fake::new(7);
            let memories = [0, 1].map(|_| Memory::new(fake.clock(), &OBJECTS));
            let told = Arc::<AtomicU64>::default();
            let (all, count) = (memories.clone(), told.clone());
            let tell: Tell = Arc::new(move |oid| {
                count.fetch_add(1, Ordering::Relaxed);
                all.iter().for_each(|memory| memory.forget(oid));
                Box::pin(async {})
            });
            let gateway = |memory: &Arc<Memory>| Remembered::new(fake.clone(), memory.clone(), tell.clone());
            Self {
                gateways: [gateway(&memories[0]), gateway(&memories[1])],
                fake,
                memories,
                told,
            }
        }

        fn watched(self) -> Self {
            self.memories.iter().for_each(|m| m.set_watched(USERS, true));
            self
        }

        async fn value(&self, gateway: usize, oid: &str) -> Option<Bytes> {
            let seen = self.gateways[gateway].look(oid, Look::keys([&row("a")])).await;
            seen.unwrap().values.remove(&row("a"))
        }

        /// By somebody who tells nobody.
        async fn change_unheard(&self, oid: &str, value: &str) {
            self.fake.change(oid, setting("a", value)).await.unwrap();
        }
    }

    fn run<F: Future>(main: F) -> F::Output {
        io::task::block_on(main).unwrap()
    }

    #[test]
    fn what_is_watched_is_remembered_until_it_changes() {
        run(async {
            let two = Two::new().watched();
            for oid in [USERS, OTHER] {
                two.gateways[0].change(oid, setting("a", "1")).await.unwrap();
            }
            assert_eq!(
                two.told.load(Ordering::Relaxed),
                1,
                "of the one that is remembered"
            );
            for oid in [USERS, OTHER] {
                assert_eq!(two.value(1, oid).await, Some(row("1")));
                two.change_unheard(oid, "2").await;
            }
            assert_eq!(two.value(1, USERS).await, Some(row("1")), "remembered");
            assert_eq!(two.value(1, OTHER).await, Some(row("2")));
            two.gateways[0].change(USERS, setting("a", "3")).await.unwrap();
            assert_eq!(two.value(1, USERS).await, Some(row("3")));
        });
    }

    #[test]
    fn nothing_is_remembered_without_a_watch_or_for_long() {
        run(async {
            let two = Two::new();
            two.change_unheard(USERS, "1").await;
            assert_eq!(two.value(0, USERS).await, Some(row("1")));
            two.change_unheard(USERS, "2").await;
            assert_eq!(two.value(0, USERS).await, Some(row("2")), "it is not watched");
            two.memories[0].set_watched(USERS, true);
            assert_eq!(two.value(0, USERS).await, Some(row("2")));
            two.change_unheard(USERS, "3").await;
            assert_eq!(two.value(0, USERS).await, Some(row("2")));
            two.fake.pass(GOOD_FOR);
            assert_eq!(two.value(0, USERS).await, Some(row("3")));
            two.change_unheard(USERS, "4").await;
            two.memories[0].set_watched(USERS, false);
            assert_eq!(two.value(0, USERS).await, Some(row("4")), "the watch was lost");
        });
    }

    #[test]
    fn what_comes_after_a_change_was_heard_of_is_not_remembered() {
        let two = Two::new().watched();
        let memory = &two.memories[0];
        let look = Look::keys([&row("a")]);
        let Some(Recalled::Unknown(generation)) = memory.recall(USERS, &look) else {
            panic!("nothing was read");
        };
        memory.forget(USERS);
        let seen = Seen {
            values: [(row("a"), row("1"))].into(),
            ..Seen::default()
        };
        memory.keep(USERS, (generation, memory.at()), look.keys.clone(), &seen);
        assert!(matches!(memory.recall(USERS, &look), Some(Recalled::Unknown(_))));
    }

    #[test]
    fn a_conflict_has_it_read_again_and_what_is_not_there_is_not_kept() {
        run(async {
            let two = Two::new().watched();
            two.gateways[0].change(USERS, setting("b", "1")).await.unwrap();
            assert_eq!(two.value(0, USERS).await, None);
            two.change_unheard(USERS, "1").await;
            assert_eq!(
                two.value(0, USERS).await,
                Some(row("1")),
                "that it is not there was not kept"
            );
            two.change_unheard(USERS, "2").await;
            let stale = setting("a", "9").expecting(&row("a"), Some(&row("1")));
            let told = two.told.load(Ordering::Relaxed);
            let refused = two.gateways[0].change(USERS, stale).await.unwrap_err();
            assert!(refused.is_conflict());
            assert_eq!(two.told.load(Ordering::Relaxed), told, "nothing was changed");
            assert_eq!(two.value(0, USERS).await, Some(row("2")));
        });
    }

    #[test]
    fn a_change_that_nobody_waits_for_is_told() {
        run(async {
            let two = Two::new().watched();
            two.change_unheard(USERS, "1").await;
            assert_eq!(two.value(1, USERS).await, Some(row("1")));
            {
                let mut change = Box::pin(two.gateways[0].change(USERS, setting("a", "2")));
                std::future::poll_fn(|cx| {
                    assert!(change.as_mut().poll(cx).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
            }
            while two.told.load(Ordering::Relaxed) == 0 {
                io::task::yield_now().await;
            }
            assert_eq!(two.value(1, USERS).await, Some(row("2")));
        });
    }

    #[test]
    fn what_must_be_as_it_is_now_is_looked_at() {
        run(async {
            let two = Two::new().watched();
            two.change_unheard(USERS, "1").await;
            assert_eq!(two.value(0, USERS).await, Some(row("1")));
            two.change_unheard(USERS, "2").await;
            let seen = two.gateways[0].look(USERS, Look::keys([&row("a")]).fresh()).await;
            assert_eq!(seen.unwrap().values.get(&row("a")), Some(&row("2")));
            assert_eq!(two.value(0, USERS).await, Some(row("2")), "that is remembered");
        });
    }

    #[test]
    fn rows_that_are_nobody_s_business_are_not_told_of() {
        run(async {
            let two = Two::new().watched();
            two.change_unheard(USERS, "1").await;
            assert_eq!(two.value(1, USERS).await, Some(row("1")));
            let quiet = row("q1");
            for value in ["1", "2"] {
                let change = Change::default().setting(&quiet, row(value));
                two.gateways[0].change(USERS, change).await.unwrap();
                let seen = two.gateways[1].look(USERS, Look::keys([&quiet])).await;
                assert_eq!(seen.unwrap().values.get(&quiet), Some(&row(value)));
            }
            assert_eq!(two.told.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn what_was_read_before_a_suspension_is_not_good() {
        let second = Duration::from_secs(1);
        let at = (second, 1_000_000);
        assert!(is_good(at, (second * 2, 1_001_000)));
        assert!(!is_good(at, (second + GOOD_FOR, 1_001_000)));
        assert!(
            !is_good(at, (second, 1_000_000 + GOOD_FOR.as_millis() as u64)),
            "it was asleep"
        );
        assert!(!is_good(at, (second, 1)), "its clock was set back");
    }

    #[test]
    fn how_much_is_remembered_has_a_bound() {
        let two = Two::new().watched();
        let memory = &two.memories[0];
        let keep = |name: &str, value: usize| {
            let seen = Seen {
                values: [(row(name), vec![0; value].into())].into(),
                ..Seen::default()
            };
            memory.keep(USERS, (1, memory.at()), BTreeSet::from([row(name)]), &seen);
            let kept = memory.kept(USERS).unwrap();
            (kept.looks.len(), kept.bytes)
        };
        for n in 0..=LOOKS_MAX {
            assert!(keep(&n.to_string(), 1).0 <= LOOKS_MAX);
        }
        assert!(
            memory.kept(USERS).unwrap().looks.len() < LOOKS_MAX,
            "it was cleared"
        );
        for n in 0..64 {
            assert!(keep(&format!("large{n}"), BYTES_MAX / 20).1 <= BYTES_MAX);
        }
        let before = memory.kept(USERS).unwrap().looks.len();
        assert_eq!(keep("too large", BYTES_MAX).0, before);
    }
}
