//! The store of one process: durable keys in one redb file, leased keys in memory.
//!
//! Commits are rare (maps, configuration, keys), so their cost of a millisecond does not matter.
//!
//! Invariants: `Shared::revision` only grows; a reader holds the same lock as the writer, so it sees durable and leased keys
//! of one moment. A disk that fails or is full is waited for, with a log line, and what has no need of it (leases, watches)
//! goes on meanwhile: who runs out of room on one machine must not lose what serves there.
//! Bounds: [`EVENTS_MAX`] remembered changes for watchers; one commit whose outcome is open.
//!
//! [`Embedded::in_memory`] keeps nothing on a disk and does all work at once, in the calling task: for simulations,
//! which have no other thread.
//!
//! Not here: sharing between processes. redb locks its file: a second process is refused.

mod rows;

pub use self::rows::FORMAT;

use self::rows::{Failed, Rows};
use crate::kv::*;
use crate::lease::{Lease as HeldLease, LeaseTimes, Renewals};
use io::Clock;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Changes kept for watchers that lag.
pub const EVENTS_MAX: usize = 4096;
/// Leases that may be live at once.
pub const LEASES_MAX: usize = 65_536;
/// Between two attempts on a disk that fails.
const RETRY: Duration = Duration::from_secs(1);
/// Between two lines of the log about it.
const REMIND: Duration = Duration::from_secs(30);

struct Lease {
    ttl: Duration,
    expires: Duration,
    keys: Vec<String>,
}

/// A commit of which only the file can say whether it happened.
struct Open {
    ops: Vec<TxnOp>,
    revision: Revision,
}

/// An operation that the disk lets wait: since when, and when it said so last.
struct Waits {
    since: Duration,
    said: Duration,
}

struct Shared {
    rows: Rows,
    revision: Revision,
    leased: BTreeMap<String, Kv>,
    leases: BTreeMap<LeaseId, Lease>,
    next_lease: LeaseId,
    events: VecDeque<Event>,
    /// Watches can begin at this revision or later.
    events_after: Revision,
    /// Settled before anything else is read or written.
    open: Option<Open>,
    /// Why what is waited for waits.
    trouble: Option<String>,
}

struct Inner {
    name: String,
    clock: Arc<dyn Clock>,
    shared: Mutex<Shared>,
    wake: watch::Sender<Revision>,
    closing: watch::Sender<bool>,
    retry: Duration,
    /// Commits do not wait for a disk: they need no thread of their own.
    at_once: bool,
}

/// The largest file that [`read_copy`] takes into memory.
const COPY_BYTES_MAX: u64 = 1 << 30;

/// The format and the keys of the file `path`, which nobody may be serving: it is read as a whole and looked at in memory, so
/// it stays as it is. None: there is no file.
pub fn read_copy(path: &Path) -> Result<Option<(u64, Vec<Kv>)>> {
    let name = path.display().to_string();
    let raw = io::files::read_bytes(path, COPY_BYTES_MAX).map_err(|e| Error::Open(format!("{name}: {e}")))?;
    raw.map(|raw| Rows::copied(&raw, &name)).transpose()
}

/// A handle; clones share the store.
#[derive(Clone)]
pub struct Embedded {
    inner: Arc<Inner>,
}

impl Embedded {
    /// Opens or creates the store in the file `path`.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        let name = path.display().to_string();
        Ok(Self::over(Rows::open(path)?, name, clock, false, RETRY))
    }

    /// A new store that ends with its last handle.
    pub fn in_memory(clock: Arc<dyn Clock>) -> Result<Self> {
        Ok(Self::over(
            Rows::in_memory()?,
            "memory".into(),
            clock,
            true,
            RETRY,
        ))
    }

    fn over(
        (rows, revision): (Rows, Revision),
        name: String,
        clock: Arc<dyn Clock>,
        at_once: bool,
        retry: Duration,
    ) -> Self {
        let (wake, _) = watch::channel(revision);
        let (closing, _) = watch::channel(false);
        let shared = Shared {
            rows,
            revision,
            leased: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_lease: 1,
            events: VecDeque::new(),
            events_after: revision,
            open: None,
            trouble: None,
        };
        Self {
            inner: Arc::new(Inner {
                name,
                clock,
                shared: Mutex::new(shared),
                wake,
                closing,
                retry,
                at_once,
            }),
        }
    }

    /// Runs `work` on a thread that may block on the disk, again for as long as the disk fails.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl Fn(&Inner) -> rows::Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let work = Arc::new(work);
        let mut waits: Option<Waits> = None;
        loop {
            let (inner, again) = (self.inner.clone(), work.clone());
            let done = match self.inner.at_once {
                true => work(&self.inner),
                false => tokio::task::spawn_blocking(move || again(&inner))
                    .await
                    .map_err(|e| Error::Unknown(e.to_string()))?,
            };
            match done {
                Err(Failed::Disk(why)) => self.inner.fails(&mut waits, why),
                done => {
                    self.inner.ends(waits);
                    return done.map_err(Error::from);
                }
            }
            self.pause().await?;
        }
    }

    async fn pause(&self) -> Result<()> {
        let mut closing = self.inner.closing.subscribe();
        // An error would mean that the sender is gone, which is `self`'s.
        if !*closing.borrow_and_update() {
            let _ = io::task::timeout(self.inner.retry, closing.changed()).await;
        }
        match *closing.borrow() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing panics while the lock is held; if it did, the state is still whole between statements.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fails(&self, waits: &mut Option<Waits>, why: String) {
        let now = self.clock.monotonic();
        let due = waits.as_ref().is_none_or(|w| now >= w.said + REMIND);
        let waits = waits.get_or_insert(Waits {
            since: now,
            said: now,
        });
        if due {
            waits.said = now;
            let seconds = (now - waits.since).as_secs();
            tracing::error!(
                "the cluster state in {} waits since {seconds} s: {why}",
                self.name
            );
        }
        self.lock().trouble = Some(why);
    }

    fn ends(&self, waits: Option<Waits>) {
        if let Some(waits) = waits {
            let seconds = (self.clock.monotonic() - waits.since).as_secs();
            tracing::info!("the cluster state in {} goes on after {seconds} s", self.name);
            self.lock().trouble = None;
        }
    }

    /// The state, when it is known what became of the last commit.
    fn settled(&self) -> rows::Result<MutexGuard<'_, Shared>> {
        let mut shared = self.lock();
        if let Some(open) = shared.open.take() {
            match shared.rows.happened(open.revision) {
                Err(e) => {
                    shared.open = Some(open);
                    return Err(e);
                }
                Ok(true) => self.take_in(&mut shared, open),
                Ok(false) => {}
            }
        }
        Ok(shared)
    }

    /// It did happen. Others may have gone on with watching since: they are told that they missed something.
    fn take_in(&self, shared: &mut Shared, open: Open) {
        for op in &open.ops {
            shared.apply(op, open.revision);
        }
        shared.events.clear();
        let revision = shared.revision + 1;
        shared.events_after = revision;
        self.publish(shared, revision, Vec::new());
    }

    fn get(&self, shared: &mut Shared, key: &str) -> rows::Result<Option<Kv>> {
        match shared.leased.get(key) {
            Some(kv) => Ok(Some(kv.clone())),
            None => shared.rows.get(key),
        }
    }

    fn range(&self, range: &Range) -> rows::Result<(Vec<Kv>, Revision)> {
        let mut shared = self.settled()?;
        let mut out = shared.rows.range(range)?;
        for (key, kv) in shared.leased.range(range.start.clone()..) {
            if !range.contains(key) {
                break;
            }
            out.insert(key.clone(), kv.clone());
        }
        Ok((out.into_values().collect(), shared.revision))
    }

    fn holds(&self, shared: &mut Shared, compare: &Compare) -> rows::Result<bool> {
        Ok(match compare {
            Compare::Revision { key, revision } => {
                self.get(shared, key)?.map_or(0, |kv| kv.revision) == *revision
            }
            Compare::Value { key, value } => self.get(shared, key)?.is_some_and(|kv| kv.value == value),
        })
    }

    fn txn(&self, txn: &Txn) -> rows::Result<TxnOutcome> {
        txn.check()?;
        let mut shared = self.settled()?;
        for compare in &txn.compares {
            if !self.holds(&mut shared, compare)? {
                return Ok(TxnOutcome::Conflict);
            }
        }
        for op in &txn.ops {
            if let TxnOp::Put { lease: Some(id), .. } = op
                && !shared.leases.contains_key(id)
            {
                return Err(Error::NoLease(*id).into());
            }
        }
        if txn.ops.is_empty() {
            return Ok(TxnOutcome::Committed(shared.revision));
        }
        let revision = shared.revision + 1;
        write_durable(&mut shared, txn, revision)?;
        let mut events = Vec::with_capacity(txn.ops.len());
        for op in &txn.ops {
            events.push(shared.apply(op, revision));
        }
        self.publish(&mut shared, revision, events);
        Ok(TxnOutcome::Committed(revision))
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
        let mut shared = self.lock();
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
        let mut shared = self.lock();
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

/// Writes the unleased part of a transaction; nothing if there is none.
fn write_durable(shared: &mut Shared, txn: &Txn, revision: Revision) -> rows::Result<()> {
    let mut durable = false;
    for op in &txn.ops {
        // A leased put over a durable row must remove that row.
        let stored = |rows: &mut Rows| rows.get(op.key()).map(|kv| kv.is_some());
        durable |= matches!(op, TxnOp::Put { lease: None, .. }) || stored(&mut shared.rows)?;
    }
    if !durable {
        return Ok(());
    }
    let Err(e) = shared.rows.write(&txn.ops, revision) else {
        // Who waited may be gone.
        shared.trouble = None;
        return Ok(());
    };
    let Failed::Disk(why) = e else { return Err(e) };
    match shared.rows.happened(revision) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failed::Disk(why)),
        // Nobody else gets its number while that is open.
        Err(_) => {
            shared.revision = revision;
            shared.open = Some(Open {
                ops: txn.ops.clone(),
                revision,
            });
            Err(Error::Unknown(why).into())
        }
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
        let key = key.to_string();
        Box::pin(self.on_disk(move |inner| inner.get(&mut *inner.settled()?, &key)))
    }

    fn range<'a>(&'a self, range: Range) -> BoxFuture<'a, Result<(Vec<Kv>, Revision)>> {
        Box::pin(self.on_disk(move |inner| inner.range(&range)))
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome>> {
        Box::pin(self.on_disk(move |inner| inner.txn(&txn)))
    }

    fn watch(&self, range: Range, after: Revision) -> Result<Box<dyn Watch>> {
        let shared = self.inner.lock();
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
                // A store that is gone: the owner's time runs out.
                Some(Err(_)) | None => {}
            };
            Ok(HeldLease::new(id, renewals, Arc::new(renew)))
        })
    }

    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut shared = self.inner.lock();
            self.inner.end_leases(&mut shared, &[lease]);
            Ok(())
        })
    }

    fn maintain(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let now = self.inner.clock.monotonic();
            let mut shared = self.inner.lock();
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

    fn trouble(&self) -> Option<String> {
        self.inner.lock().trouble.clone()
    }

    fn close(&self) {
        self.inner.closing.send_replace(true);
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
                    let shared = inner.lock();
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
mod tests;
