//! Records of users and buckets, remembered: each request asks for the same few of them.
//!
//! Whoever changes such an object tells all that watch it (RADOS watch and notify), and has his answer when they have heard, or [`HEARD_WITHIN`] is over.
//!
//! Invariants: nothing is remembered of an object that is not watched, nor for longer than [`GOOD_FOR`], whatever was not heard of. What was read before a
//! change was heard of and comes after it is not remembered. A change that was begun is told of, also where nobody waits for it any more.
//!
//! Bounds: [`LOOKS_MAX`] looks of each object, with [`BYTES_MAX`] bytes each; rows that are not there are not remembered by themselves, so that keys that are made up push nothing out.

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

/// How long what was read is good where a change of it was not heard of: the watch was lost, or it was changed by a program that does not tell.
pub const GOOD_FOR: Duration = Duration::from_secs(10);
/// How long a change waits for those that have to hear of it. A gateway that was killed is waited for until its watch ends.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// Of a watch: without a sign of the gateway for so long it ends.
const DEAD_AFTER: Duration = Duration::from_secs(10);
/// Until it is watched again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const LOOKS_MAX: usize = 4096;
const BYTES_MAX: usize = 64 << 10;

/// Says to all that watch an object that it was changed.
pub type Tell = Arc<dyn Fn(&'static str) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

#[derive(Default)]
struct Kept {
    watched: bool,
    /// Grows with each change that was heard of.
    generation: u64,
    /// By their rows: when they were read (monotonic), and what was seen.
    looks: HashMap<BTreeSet<Bytes>, (Duration, Seen)>,
}

/// What is remembered of some objects of one pool.
pub struct Memory {
    clock: Clock,
    objects: Vec<(&'static str, Mutex<Kept>)>,
}

/// What is known before a look.
enum Recalled {
    Seen(Seen),
    /// It has to be looked for; what is seen may be remembered if this is still the generation.
    Unknown(u64),
}

impl Memory {
    pub fn new(clock: Clock, objects: &[&'static str]) -> Arc<Self> {
        let kept = |oid: &&'static str| (*oid, Mutex::default());
        Arc::new(Self {
            clock,
            objects: objects.iter().map(kept).collect(),
        })
    }

    fn name(&self, oid: &str) -> Option<&'static str> {
        let mut names = self.objects.iter().map(|(name, _)| *name);
        names.find(|name| *name == oid)
    }

    fn kept(&self, oid: &str) -> Option<MutexGuard<'_, Kept>> {
        let (_, kept) = self.objects.iter().find(|(name, _)| *name == oid)?;
        Some(kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// It was changed.
    pub fn forget(&self, oid: &str) {
        if let Some(mut kept) = self.kept(oid) {
            kept.generation += 1;
            kept.looks.clear();
        }
    }

    /// From now on changes are heard of, or are not.
    pub fn set_watched(&self, oid: &str, watched: bool) {
        self.forget(oid);
        if let Some(mut kept) = self.kept(oid) {
            kept.watched = watched;
        }
    }

    fn recall(&self, oid: &str, keys: &BTreeSet<Bytes>) -> Option<Recalled> {
        let now = self.clock.monotonic();
        let kept = self.kept(oid).filter(|kept| kept.watched)?;
        match kept.looks.get(keys) {
            Some((at, seen)) if now.saturating_sub(*at) < GOOD_FOR => Some(Recalled::Seen(seen.clone())),
            _ => Some(Recalled::Unknown(kept.generation)),
        }
    }

    /// `at`: when it was asked for.
    fn keep(&self, oid: &str, (generation, at): (u64, Duration), keys: BTreeSet<Bytes>, seen: &Seen) {
        let bytes = |(k, v): (&Bytes, &Bytes)| k.len() + v.len();
        let large = seen.values.iter().map(bytes).sum::<usize>() > BYTES_MAX;
        let Some(mut kept) = self.kept(oid) else { return };
        if large || seen.values.is_empty() || !kept.watched || kept.generation != generation {
            return;
        }
        if kept.looks.len() >= LOOKS_MAX {
            kept.looks.clear();
        }
        kept.looks.insert(keys, (at, seen.clone()));
    }
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
        let by_keys = look.page.is_none() && look.beside.is_none();
        let of = self.of.as_ref().filter(|_| by_keys);
        let recalled = of.and_then(|(memory, _)| Some((memory, memory.recall(oid, &look.keys)?)));
        let (memory, generation) = match recalled {
            None => return self.pool.look(oid, look).await,
            Some((_, Recalled::Seen(seen))) => return Ok(seen),
            Some((memory, Recalled::Unknown(generation))) => (memory, generation),
        };
        let (keys, at) = (look.keys.clone(), memory.clock.monotonic());
        let seen = self.pool.look(oid, look).await?;
        memory.keep(oid, (generation, at), keys, &seen);
        Ok(seen)
    }

    async fn change(&self, oid: &str, change: Change) -> Result<()> {
        let of = self.of.as_ref();
        let Some((name, (memory, tell))) = of.and_then(|of| Some((of.0.name(oid)?, of.clone()))) else {
            return self.pool.change(oid, change).await;
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

/// Tells by notifies.
pub fn teller(pool: &IoCtx) -> Tell {
    let pool = pool.clone();
    Arc::new(move |oid| {
        let pool = pool.clone();
        Box::pin(async move {
            let told = pool.notify(oid, Bytes::new(), HEARD_WITHIN);
            match task::timeout(HEARD_WITHIN * 2, told).await {
                Ok(Ok(heard)) if heard.missed.is_empty() => {}
                Ok(Ok(heard)) => tracing::debug!("s3: {} have not heard of a change of {oid}", heard.missed.len()),
                Ok(Err(e)) => tracing::debug!("s3: a change of {oid} was not told: {e}"),
                Err(_) => tracing::debug!("s3: a change of {oid} was not told in time"),
            }
        })
    })
}

/// Hears of changes of an object, until it is dropped.
pub async fn watch(pool: IoCtx, memory: Arc<Memory>, oid: &'static str) {
    loop {
        match pool.watch(oid, Some(DEAD_AFTER)).await {
            Ok(mut watch) => {
                memory.set_watched(oid, true);
                while let WatchEvent::Notify { notify_id, .. } = watch.next().await {
                    memory.forget(oid);
                    if let Err(e) = watch.ack(notify_id, Bytes::new()).await {
                        tracing::debug!("s3: who changed {oid} does not know that it was heard: {e}");
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
            let memories = [0, 1].map(|_| Memory::new(fake.clock(), &[USERS]));
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
            assert_eq!(two.told.load(Ordering::Relaxed), 1, "of the one that is remembered");
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
        let keys = BTreeSet::from([row("a")]);
        let Some(Recalled::Unknown(generation)) = memory.recall(USERS, &keys) else {
            panic!("nothing was read");
        };
        memory.forget(USERS);
        let seen = Seen {
            values: [(row("a"), row("1"))].into(),
            ..Seen::default()
        };
        memory.keep(USERS, (generation, Duration::ZERO), keys.clone(), &seen);
        assert!(matches!(memory.recall(USERS, &keys), Some(Recalled::Unknown(_))));
    }

    #[test]
    fn a_conflict_has_it_read_again_and_what_is_not_there_is_not_kept() {
        run(async {
            let two = Two::new().watched();
            two.gateways[0].change(USERS, setting("b", "1")).await.unwrap();
            assert_eq!(two.value(0, USERS).await, None);
            two.change_unheard(USERS, "1").await;
            assert_eq!(two.value(0, USERS).await, Some(row("1")), "that it is not there was not kept");
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
    fn how_much_is_remembered_has_a_bound() {
        let two = Two::new().watched();
        let memory = &two.memories[0];
        let seen = |value: Bytes| Seen {
            values: [(row("a"), value)].into(),
            ..Seen::default()
        };
        for n in 0..=LOOKS_MAX {
            let keys = BTreeSet::from([row(&n.to_string())]);
            memory.keep(USERS, (1, Duration::ZERO), keys, &seen(row("1")));
        }
        assert!(memory.kept(USERS).unwrap().looks.len() <= LOOKS_MAX);
        let keys = BTreeSet::from([row("large")]);
        memory.keep(USERS, (1, Duration::ZERO), keys.clone(), &seen(vec![0; BYTES_MAX].into()));
        assert!(!memory.kept(USERS).unwrap().looks.contains_key(&keys));
    }
}
