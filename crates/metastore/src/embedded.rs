//! The store of one process: durable keys in one redb file, leased keys in memory.
//!
//! Every durable transaction is one redb commit with two phases and a saved allocator state ("quick
//! repair"), so it is on stable storage when acknowledged and opening after a crash repairs nothing.
//! Commits are rare (maps, configuration, keys), so their cost of a millisecond does not matter.
//!
//! Invariants: `Shared::revision` only grows; the durable revision is written in the same redb transaction
//! as the keys; a reader holds the same lock as the writer, so it sees durable and leased keys of one moment.
//! Bounds: [`EVENTS_MAX`] remembered changes for watchers, [`CACHE_BYTES`] of page cache.
//!
//! [`Embedded::in_memory`] keeps nothing on a disk and does all work at once, in the calling task: for simulations,
//! which have no other thread.
//!
//! Not here: sharing between processes. redb locks its file: a second process is refused.

use crate::kv::*;
use crate::lease::{Lease as HeldLease, LeaseTimes, Renewals};
use bytes::Bytes;
use io::Clock;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// key -> u64 revision (little-endian), then the value.
const KEYS: TableDefinition<&str, &[u8]> = TableDefinition::new("keys");
/// Single numbers: `revision`, `format`.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const FORMAT: u64 = 1;
/// redb's own page cache; the state is a few MiB at most.
const CACHE_BYTES: usize = 4 << 20;
/// Changes kept for watchers that lag.
pub const EVENTS_MAX: usize = 4096;
/// Leases that may be live at once.
pub const LEASES_MAX: usize = 65_536;

struct Lease {
    ttl: Duration,
    expires: Duration,
    keys: Vec<String>,
}

struct Shared {
    revision: Revision,
    leased: BTreeMap<String, Kv>,
    leases: BTreeMap<LeaseId, Lease>,
    next_lease: LeaseId,
    events: VecDeque<Event>,
    /// Watches can begin at this revision or later.
    events_after: Revision,
    /// A commit failed in a way that leaves it open what is on disk: refuse everything from then on.
    failed: Option<String>,
}

struct Inner {
    db: Database,
    clock: Arc<dyn Clock>,
    shared: Mutex<Shared>,
    wake: watch::Sender<Revision>,
    /// Commits do not wait for a disk: they need no thread of their own.
    at_once: bool,
}

/// A handle; clones share the store.
#[derive(Clone)]
pub struct Embedded {
    inner: Arc<Inner>,
}

fn storage(e: impl std::fmt::Display) -> Error {
    Error::Storage(e.to_string())
}

fn pack(revision: Revision, value: &[u8]) -> Vec<u8> {
    let mut b = Vec::with_capacity(8 + value.len());
    b.extend_from_slice(&revision.to_le_bytes());
    b.extend_from_slice(value);
    b
}

fn unpack(key: &str, raw: &[u8]) -> Result<Kv> {
    let Some((rev, value)) = raw.split_first_chunk::<8>() else {
        return Err(Error::BadValue {
            key: key.to_string(),
            why: "shorter than its revision".into(),
        });
    };
    Ok(Kv {
        key: key.to_string(),
        value: Bytes::copy_from_slice(value),
        revision: Revision::from_le_bytes(*rev),
        lease: None,
    })
}

impl Embedded {
    /// Opens or creates the store in the file `path`.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        let mut builder = redb::Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let db = builder.create(path).map_err(|e| match e {
            redb::DatabaseError::DatabaseAlreadyOpen => {
                Error::Open(format!("{} is in use by another process", path.display()))
            }
            e => Error::Open(format!("{}: {e}", path.display())),
        })?;
        // redb makes the file's contents durable, not its name.
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            io::files::sync_dir(dir).map_err(|e| Error::Open(format!("{}: {e}", dir.display())))?;
        }
        Self::with_db(db, &path.display().to_string(), clock, false)
    }

    /// A new store that ends with its last handle.
    pub fn in_memory(clock: Arc<dyn Clock>) -> Result<Self> {
        let memory = redb::backends::InMemoryBackend::new();
        let mut builder = redb::Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let db = builder.create_with_backend(memory).map_err(storage)?;
        Self::with_db(db, "memory", clock, true)
    }

    fn with_db(db: Database, name: &str, clock: Arc<dyn Clock>, at_once: bool) -> Result<Self> {
        let revision = Self::prepare(&db, name)?;
        let (wake, _) = watch::channel(revision);
        let shared = Shared {
            revision,
            leased: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_lease: 1,
            events: VecDeque::new(),
            events_after: revision,
            failed: None,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                db,
                clock,
                shared: Mutex::new(shared),
                wake,
                at_once,
            }),
        })
    }

    /// Creates the tables on first use; returns the revision reached before.
    fn prepare(db: &Database, name: &str) -> Result<Revision> {
        let mut txn = db.begin_write().map_err(storage)?;
        txn.set_quick_repair(true);
        let (format, revision, fresh) = {
            let mut meta = txn.open_table(META).map_err(storage)?;
            let format = meta.get("format").map_err(storage)?.map(|v| v.value());
            let revision = meta.get("revision").map_err(storage)?.map_or(0, |v| v.value());
            if format.is_none() {
                meta.insert("format", FORMAT).map_err(storage)?;
            }
            txn.open_table(KEYS).map_err(storage)?;
            (format.unwrap_or(FORMAT), revision, format.is_none())
        };
        if format > FORMAT {
            return Err(Error::Open(format!(
                "{name} has format {format}, this program knows up to {FORMAT}"
            )));
        }
        if fresh {
            txn.commit().map_err(storage)?;
        } else {
            txn.abort().map_err(storage)?;
        }
        Ok(revision)
    }

    /// Runs `work` on a thread that may block on the disk.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.inner.at_once {
            return work(&self.inner);
        }
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || work(&inner))
            .await
            .map_err(|e| Error::Unknown(e.to_string()))?
    }
}

impl Inner {
    fn lock(&self) -> Result<MutexGuard<'_, Shared>> {
        // Nothing panics while the lock is held; if it did, the state is still whole between statements.
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match &shared.failed {
            Some(why) => Err(Error::Storage(format!("stopped after a failed commit: {why}"))),
            None => Ok(shared),
        }
    }

    /// True if the file has a row for `key`.
    fn stored(&self, key: &str) -> Result<bool> {
        let txn = self.db.begin_read().map_err(storage)?;
        Ok(txn
            .open_table(KEYS)
            .map_err(storage)?
            .get(key)
            .map_err(storage)?
            .is_some())
    }

    fn get(&self, shared: &Shared, key: &str) -> Result<Option<Kv>> {
        if let Some(kv) = shared.leased.get(key) {
            return Ok(Some(kv.clone()));
        }
        let txn = self.db.begin_read().map_err(storage)?;
        let table = txn.open_table(KEYS).map_err(storage)?;
        match table.get(key).map_err(storage)? {
            None => Ok(None),
            Some(raw) => unpack(key, raw.value()).map(Some),
        }
    }

    fn range(&self, range: &Range) -> Result<(Vec<Kv>, Revision)> {
        let shared = self.lock()?;
        let txn = self.db.begin_read().map_err(storage)?;
        let table = txn.open_table(KEYS).map_err(storage)?;
        let mut out = BTreeMap::new();
        for row in table.range(range.start.as_str()..).map_err(storage)? {
            let (key, raw) = row.map_err(storage)?;
            if !range.contains(key.value()) {
                break;
            }
            out.insert(key.value().to_string(), unpack(key.value(), raw.value())?);
        }
        for (key, kv) in shared.leased.range(range.start.clone()..) {
            if !range.contains(key) {
                break;
            }
            out.insert(key.clone(), kv.clone());
        }
        Ok((out.into_values().collect(), shared.revision))
    }

    fn holds(&self, shared: &Shared, compare: &Compare) -> Result<bool> {
        Ok(match compare {
            Compare::Revision { key, revision } => {
                self.get(shared, key)?.map_or(0, |kv| kv.revision) == *revision
            }
            Compare::Value { key, value } => self.get(shared, key)?.is_some_and(|kv| kv.value == value),
        })
    }

    fn txn(&self, txn: &Txn) -> Result<TxnOutcome> {
        txn.check()?;
        let mut shared = self.lock()?;
        for compare in &txn.compares {
            if !self.holds(&shared, compare)? {
                return Ok(TxnOutcome::Conflict);
            }
        }
        for op in &txn.ops {
            if let TxnOp::Put { lease: Some(id), .. } = op
                && !shared.leases.contains_key(id)
            {
                return Err(Error::NoLease(*id));
            }
        }
        if txn.ops.is_empty() {
            return Ok(TxnOutcome::Committed(shared.revision));
        }
        let revision = shared.revision + 1;
        self.write_durable(&mut shared, txn, revision)?;
        let mut events = Vec::with_capacity(txn.ops.len());
        for op in &txn.ops {
            events.push(shared.apply(op, revision));
        }
        self.publish(&mut shared, revision, events);
        Ok(TxnOutcome::Committed(revision))
    }

    /// Writes the unleased part of a transaction; nothing if there is none.
    fn write_durable(&self, shared: &mut Shared, txn: &Txn, revision: Revision) -> Result<()> {
        let mut durable = false;
        for op in &txn.ops {
            // A leased put over a durable row must remove that row.
            durable |= matches!(op, TxnOp::Put { lease: None, .. }) || self.stored(op.key())?;
        }
        if !durable {
            return Ok(());
        }
        let mut write = self.db.begin_write().map_err(storage)?;
        write.set_quick_repair(true);
        {
            let mut keys = write.open_table(KEYS).map_err(storage)?;
            for op in &txn.ops {
                match op {
                    TxnOp::Put {
                        key,
                        value,
                        lease: None,
                    } => {
                        keys.insert(key.as_str(), pack(revision, value).as_slice())
                            .map_err(storage)?;
                    }
                    TxnOp::Put { key, .. } | TxnOp::Delete { key } => {
                        keys.remove(key.as_str()).map_err(storage)?;
                    }
                }
            }
            let mut meta = write.open_table(META).map_err(storage)?;
            meta.insert("revision", revision).map_err(storage)?;
        }
        write.commit().map_err(|e| {
            // Whether it reached the disk is open: only a restart, which reads the disk, can say.
            shared.failed = Some(e.to_string());
            Error::Unknown(e.to_string())
        })
    }

    fn publish(&self, shared: &mut Shared, revision: Revision, events: Vec<Event>) {
        shared.revision = revision;
        shared.events.extend(events);
        while shared.events.len() > EVENTS_MAX
            && let Some(old) = shared.events.pop_front()
        {
            shared.events_after = old.revision;
        }
        self.wake.send_replace(revision);
    }

    /// A new lease, and when it began.
    fn grant(&self, ttl: Duration) -> Result<(LeaseId, Duration)> {
        let now = self.clock.monotonic();
        let mut shared = self.lock()?;
        if shared.leases.len() >= LEASES_MAX {
            return Err(Error::Storage(format!("{LEASES_MAX} leases are live already")));
        }
        let id = shared.next_lease;
        shared.next_lease += 1;
        shared.leases.insert(
            id,
            Lease {
                ttl,
                expires: now + ttl,
                keys: Vec::new(),
            },
        );
        Ok((id, now))
    }

    /// Renews; gives the time it was renewed at. Ended by time but not yet swept, a lease stays ended: its owner
    /// must not believe otherwise.
    fn renew(&self, lease: LeaseId) -> Result<Duration> {
        let now = self.clock.monotonic();
        let mut shared = self.lock()?;
        match shared.leases.get_mut(&lease) {
            Some(l) if l.expires > now => {
                l.expires = now + l.ttl;
                Ok(now)
            }
            _ => Err(Error::NoLease(lease)),
        }
    }

    fn end_leases(&self, shared: &mut Shared, ended: &[LeaseId]) {
        let mut keys: Vec<String> = Vec::new();
        for id in ended {
            keys.extend(shared.leases.remove(id).map(|l| l.keys).unwrap_or_default());
        }
        keys.retain(|k| {
            shared
                .leased
                .get(k)
                .is_some_and(|kv| kv.lease.is_some_and(|l| ended.contains(&l)))
        });
        keys.sort();
        keys.dedup();
        if keys.is_empty() {
            return;
        }
        let revision = shared.revision + 1;
        let mut events = Vec::with_capacity(keys.len());
        for key in keys {
            shared.leased.remove(&key);
            events.push(Event {
                revision,
                key,
                value: None,
            });
        }
        self.publish(shared, revision, events);
    }
}

impl Shared {
    /// The in-memory part of one committed operation, and what watchers see of it.
    fn apply(&mut self, op: &TxnOp, revision: Revision) -> Event {
        if let Some(old) = self.leased.remove(op.key())
            && let Some(lease) = old.lease.and_then(|id| self.leases.get_mut(&id))
        {
            lease.keys.retain(|k| k != op.key());
        }
        match op {
            TxnOp::Put { key, value, lease } => {
                if let Some(id) = lease {
                    if let Some(l) = self.leases.get_mut(id) {
                        l.keys.push(key.clone());
                    }
                    let kv = Kv {
                        key: key.clone(),
                        value: value.clone(),
                        revision,
                        lease: Some(*id),
                    };
                    self.leased.insert(key.clone(), kv);
                }
                Event {
                    revision,
                    key: key.clone(),
                    value: Some(value.clone()),
                }
            }
            TxnOp::Delete { key } => Event {
                revision,
                key: key.clone(),
                value: None,
            },
        }
    }

    fn events_since(&self, range: &Range, after: Revision) -> Result<Vec<Event>> {
        if after < self.events_after {
            return Err(Error::Compacted(after));
        }
        let first = self.events.partition_point(|e| e.revision <= after);
        Ok(self
            .events
            .range(first..)
            .filter(|e| range.contains(&e.key))
            .cloned()
            .collect())
    }
}

impl Metastore for Embedded {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Kv>>> {
        Box::pin(async move {
            let key = key.to_string();
            self.blocking(move |inner| {
                let shared = inner.lock()?;
                inner.get(&shared, &key)
            })
            .await
        })
    }

    fn range<'a>(&'a self, range: Range) -> BoxFuture<'a, Result<(Vec<Kv>, Revision)>> {
        Box::pin(self.blocking(move |inner| inner.range(&range)))
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome>> {
        Box::pin(self.blocking(move |inner| inner.txn(&txn)))
    }

    fn watch(&self, range: Range, after: Revision) -> Result<Box<dyn Watch>> {
        let shared = self.inner.lock()?;
        if after < shared.events_after {
            return Err(Error::Compacted(after));
        }
        let wake = self.inner.wake.subscribe();
        Ok(Box::new(EmbeddedWatch {
            inner: Arc::downgrade(&self.inner),
            wake,
            range,
            after,
        }))
    }

    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>> {
        Box::pin(async move { self.inner.grant(ttl).map(|(id, _)| id) })
    }

    fn lease_renew(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.inner.renew(lease).map(|_| ()) })
    }

    fn lease_hold(&self, times: LeaseTimes) -> BoxFuture<'_, Result<HeldLease>> {
        Box::pin(async move {
            let (id, now) = self.inner.grant(times.ttl)?;
            let renewals = Renewals::new(times, now);
            let (weak, told) = (Arc::downgrade(&self.inner), renewals.clone());
            let renew = move || match weak.upgrade().map(|inner| inner.renew(id)) {
                Some(Ok(sent)) => told.confirm(sent),
                Some(Err(Error::NoLease(_))) => told.end(),
                // A store that has failed or is gone: the owner's time runs out.
                Some(Err(_)) | None => {}
            };
            Ok(HeldLease::new(id, renewals, Arc::new(renew)))
        })
    }

    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut shared = self.inner.lock()?;
            self.inner.end_leases(&mut shared, &[lease]);
            Ok(())
        })
    }

    fn maintain(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let now = self.inner.clock.monotonic();
            let mut shared = self.inner.lock()?;
            let ended: Vec<LeaseId> = shared
                .leases
                .iter()
                .filter(|(_, l)| l.expires <= now)
                .map(|(id, _)| *id)
                .collect();
            self.inner.end_leases(&mut shared, &ended);
            Ok(())
        })
    }
}

struct EmbeddedWatch {
    inner: std::sync::Weak<Inner>,
    wake: watch::Receiver<Revision>,
    range: Range,
    after: Revision,
}

impl Watch for EmbeddedWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Event>>> {
        Box::pin(async move {
            loop {
                // Marked seen before reading: a change that comes in between wakes us again.
                let revision = *self.wake.borrow_and_update();
                if revision > self.after {
                    let inner = self.inner.upgrade().ok_or(Error::Closed)?;
                    let shared = inner.lock()?;
                    let events = shared.events_since(&self.range, self.after)?;
                    self.after = shared.revision;
                    if !events.is_empty() {
                        return Ok(events);
                    }
                }
                self.wake.changed().await.map_err(|_| Error::Closed)?;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Default)]
    struct TestClock(AtomicU64);
    impl Clock for TestClock {
        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }
        fn wall(&self) -> Duration {
            self.monotonic()
        }
    }

    fn block_on<T>(f: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(f)
    }

    #[test]
    fn conforms() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::default());
        let store = Embedded::open(&dir.path().join("state"), clock.clone()).unwrap();
        let advance = |d: Duration| -> BoxFuture<'static, ()> {
            clock.0.fetch_add(d.as_millis() as u64, Ordering::Relaxed);
            Box::pin(std::future::ready(()))
        };
        let time = crate::conformance::Time {
            clock: &*clock,
            advance: &advance,
            ttl: Duration::from_secs(10),
        };
        block_on(crate::conformance::run(&store, &time));
    }

    #[test]
    fn conforms_in_memory() {
        let clock = Arc::new(TestClock::default());
        let store = Embedded::in_memory(clock.clone()).unwrap();
        let advance = |d: Duration| -> BoxFuture<'static, ()> {
            clock.0.fetch_add(d.as_millis() as u64, Ordering::Relaxed);
            Box::pin(std::future::ready(()))
        };
        let time = crate::conformance::Time {
            clock: &*clock,
            advance: &advance,
            ttl: Duration::from_secs(10),
        };
        block_on(crate::conformance::run(&store, &time));
    }

    #[test]
    fn survives_reopening_without_leased_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let clock = Arc::new(TestClock::default());
        let revision = block_on(async {
            let store = Embedded::open(&path, clock.clone()).unwrap();
            let lease = store.lease_grant(Duration::from_secs(9)).await.unwrap();
            let ops = vec![
                TxnOp::put("a", "1"),
                TxnOp::Put {
                    key: "b".into(),
                    value: "2".into(),
                    lease: Some(lease),
                },
            ];
            store
                .txn(Txn {
                    compares: vec![],
                    ops,
                })
                .await
                .unwrap();
            let second = Embedded::open(&path, clock.clone());
            assert!(matches!(second, Err(Error::Open(why)) if why.contains("in use")));
            store.get("a").await.unwrap().unwrap().revision
        });
        block_on(async {
            let store = Embedded::open(&path, clock).unwrap();
            assert_eq!(store.get("a").await.unwrap().unwrap().revision, revision);
            assert!(store.get("b").await.unwrap().is_none());
            let old = store.watch(Range::prefix(""), revision - 1);
            assert!(
                matches!(old, Err(Error::Compacted(_))),
                "the past is gone, and said so"
            );
        });
    }

    #[test]
    fn a_watcher_that_lags_too_far_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(&dir.path().join("state"), Arc::new(TestClock::default())).unwrap();
        block_on(async {
            let lease = store.lease_grant(Duration::from_secs(9)).await.unwrap();
            let mut watch = store.watch(Range::prefix(""), 0).unwrap();
            for _ in 0..=EVENTS_MAX {
                let op = TxnOp::Put {
                    key: "k".into(),
                    value: "v".into(),
                    lease: Some(lease),
                };
                store
                    .txn(Txn {
                        compares: vec![],
                        ops: vec![op],
                    })
                    .await
                    .unwrap();
            }
            assert!(matches!(watch.next().await, Err(Error::Compacted(0))));
        });
    }
}
