//! The cluster state as a simulated machine apart: what OSDs, monitors and clients reach over a network that delays,
//! cuts hosts off, stops for a while, and does not always say what became of a transaction.
//!
//! Invariants (the contract of `metastore::kv`): a call that cannot reach the store waits; what was asked with comparisons
//! is applied once, and where the answer is "unknown", at once, later, or never. A call may be applied and its answer come
//! much later, after its caller was killed too; one without comparisons may come again much later. The store's
//! clock stands while it is down, as etcd's leader extends leases when it is back.
//!
//! Not here: members of etcd, elections; the store itself is `Embedded`, in memory.

use io::Clock;
use io_sim::{Dice, Sim, current_host};
use metastore::kv::{BoxFuture, Kv, LeaseId, Range, Txn, TxnOutcome, Watch};
use metastore::lease::{Lease, LeaseTimes, Renewals};
use metastore::{Embedded, Error, Metastore, Result, Revision};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

/// What was asked and answered with "unknown", or comes a second time, is applied after this at most.
const LATE_MAX: Duration = Duration::from_secs(3);
const MILLE: u64 = 1000;

/// How often the store ends leases.
const SWEEP: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Default)]
struct Faults {
    down: bool,
    cut: BTreeSet<IpAddr>,
    /// What a call takes more, each way.
    slow: Duration,
    /// Of a thousand transactions so many have no known outcome.
    doubt: u64,
}

/// A clock that stands while the store is down.
#[derive(Debug)]
struct StoreClock {
    start: Instant,
    stood: Mutex<(Duration, Option<Instant>)>,
}

impl Clock for StoreClock {
    fn monotonic(&self) -> Duration {
        let stood = self.stood.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stood.1.unwrap_or_else(Instant::now);
        Duration::from_secs(1) + (now - self.start).saturating_sub(stood.0)
    }
    fn wall(&self) -> Duration {
        Duration::from_secs(1_767_225_600) + self.monotonic()
    }
}

/// A transaction on its way; nobody may be left to hear of it.
struct Request {
    from: Client,
    txn: Txn,
    answer: oneshot::Sender<Result<TxnOutcome>>,
}

/// What was asked for since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Whatever they came to.
    pub transactions: u64,
    /// Of their keys and values.
    pub bytes: u64,
    pub renewals: u64,
    /// Leases that were granted or given back.
    pub leases: u64,
    pub reads: u64,
    /// To each watcher for itself.
    pub delivered: u64,
}

impl std::ops::Sub for Counts {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        Self {
            transactions: self.transactions - before.transactions,
            bytes: self.bytes - before.bytes,
            renewals: self.renewals - before.renewals,
            leases: self.leases - before.leases,
            reads: self.reads - before.reads,
            delivered: self.delivered - before.delivered,
        }
    }
}

struct Shared {
    counts: Mutex<Counts>,
    store: Embedded,
    /// Not bounded: each caller waits for its answer.
    requests: mpsc::UnboundedSender<Request>,
    clock: Arc<StoreClock>,
    faults: watch::Sender<Faults>,
    dice: Mutex<Dice>,
    /// Apart, so that runs without doubts are what they were before there were any.
    doubts: Mutex<Dice>,
}

/// What becomes of a transaction.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Answered,
    /// Done or not done, the caller hears that nobody knows.
    Doubtful {
        done: bool,
    },
    /// The same, and it is done only after a while.
    Late(Duration),
}

/// A handle; clones are the same store.
#[derive(Clone)]
pub struct SimEtcd(Arc<Shared>);

impl SimEtcd {
    /// In a `LocalSet`: a task of it ends leases.
    pub fn start(sim: &Sim) -> Result<Self> {
        let clock = Arc::new(StoreClock {
            start: Instant::now(),
            stood: Mutex::new((Duration::ZERO, None)),
        });
        let store = Embedded::in_memory(clock.clone())?;
        let (faults, _) = watch::channel(Faults::default());
        let (requests, mut asked) = mpsc::unbounded_channel::<Request>();
        // Apart from the processes that ask: what a killed one had sent still arrives.
        tokio::task::spawn_local(async move {
            while let Some(r) = asked.recv().await {
                tokio::task::spawn_local(r.carry_out());
            }
        });
        let etcd = Self(Arc::new(Shared {
            counts: Mutex::default(),
            store,
            requests,
            clock,
            faults,
            dice: Mutex::new(sim.dice("etcd")),
            doubts: Mutex::new(sim.dice("etcd's doubts")),
        }));
        let sweep = etcd.clone();
        tokio::task::spawn_local(async move {
            loop {
                sleep(SWEEP).await;
                if !sweep.0.faults.borrow().down {
                    // In memory nothing fails.
                    let _ = sweep.0.store.maintain().await;
                }
            }
        });
        Ok(etcd)
    }

    /// As the simulation itself sees it: at once, whatever the faults.
    pub fn direct(&self) -> Arc<dyn Metastore> {
        Arc::new(self.0.store.clone())
    }

    /// As a process on `host` with this clock sees it.
    pub fn client(&self, host: IpAddr, clock: Arc<dyn Clock>) -> Arc<dyn Metastore> {
        Arc::new(Client {
            etcd: self.clone(),
            host,
            clock,
        })
    }

    pub fn set_down(&self, down: bool) {
        let mut stood = self.0.clock.stood.lock().unwrap_or_else(PoisonError::into_inner);
        match (down, stood.1) {
            (true, None) => stood.1 = Some(Instant::now()),
            (false, Some(since)) => *stood = (stood.0 + since.elapsed(), None),
            _ => {}
        }
        drop(stood);
        self.0.faults.send_modify(|f| f.down = down);
    }

    pub fn cut(&self, host: IpAddr, cut: bool) {
        self.0.faults.send_modify(|f| {
            match cut {
                true => f.cut.insert(host),
                false => f.cut.remove(&host),
            };
        });
    }

    pub fn set_slow(&self, slow: Duration) {
        self.0.faults.send_modify(|f| f.slow = slow);
    }

    /// From now on so many of a thousand transactions have no known outcome.
    pub fn set_doubt(&self, mille: u64) {
        self.0.faults.send_modify(|f| f.doubt = mille);
    }

    fn fate(&self) -> Fate {
        let doubt = self.0.faults.borrow().doubt;
        if doubt == 0 {
            return Fate::Answered;
        }
        let mut dice = self.0.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        match dice.below(MILLE) < doubt {
            false => Fate::Answered,
            true => match dice.below(3) {
                0 => Fate::Late(Duration::from_millis(dice.below(LATE_MAX.as_millis() as u64))),
                n => Fate::Doubtful { done: n == 1 },
            },
        }
    }

    pub fn heal(&self) {
        self.set_down(false);
        self.0.faults.send_modify(|f| *f = Faults::default());
    }

    /// Of clients, not of the simulation's own view.
    pub fn counts(&self) -> Counts {
        *self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, what: impl FnOnce(&mut Counts)) {
        what(&mut self.0.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn dice(&self) -> MutexGuard<'_, Dice> {
        self.0.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct Client {
    etcd: SimEtcd,
    host: IpAddr,
    clock: Arc<dyn Clock>,
}

impl Client {
    /// One way, between this host and the store: late, or not before they can reach each other.
    async fn pass(&self) {
        let mut faults = self.etcd.0.faults.subscribe();
        let us = 200 + self.etcd.dice().below(2000);
        let slow = faults.borrow().slow;
        sleep(Duration::from_micros(us) + slow).await;
        let host = self.host;
        // The sender lives in `self`.
        let _ = faults.wait_for(|f| !f.down && !f.cut.contains(&host)).await;
    }

    async fn call<T>(&self, work: BoxFuture<'_, T>) -> T {
        self.pass().await;
        let out = work.await;
        self.pass().await;
        out
    }
}

impl Request {
    async fn carry_out(self) {
        let Self { from, txn, answer } = self;
        let etcd = &from.etcd;
        from.pass().await;
        // Without comparisons it may be sent again where its answer was lost.
        let plain = txn.compares.is_empty();
        if plain && etcd.dice().below(16) == 0 {
            let _ = etcd.0.store.txn(txn.clone()).await;
        }
        let fate = etcd.fate();
        let unknown = || Err(Error::Unknown("the answer was lost".into()));
        match fate {
            Fate::Late(_) if !plain => {
                from.pass().await;
                let _ = answer.send(unknown());
            }
            Fate::Doubtful { done } if !plain => {
                let out = match done {
                    true => etcd.0.store.txn(txn).await.and_then(|_| unknown()),
                    false => unknown(),
                };
                from.pass().await;
                let _ = answer.send(out);
                return;
            }
            _ => {
                let out = etcd.0.store.txn(txn.clone()).await;
                from.pass().await;
                let _ = answer.send(out);
            }
        }
        if let Fate::Late(after) = fate {
            sleep(after).await;
            from.pass().await;
            // Nobody waits for it any more; its comparisons may fail, its lease may have ended.
            let _ = etcd.0.store.txn(txn).await;
        }
    }
}

impl Metastore for Client {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Kv>>> {
        self.etcd.count(|c| c.reads += 1);
        Box::pin(self.call(self.etcd.0.store.get(key)))
    }

    fn range<'a>(&'a self, range: Range) -> BoxFuture<'a, Result<(Vec<Kv>, Revision)>> {
        self.etcd.count(|c| c.reads += 1);
        Box::pin(self.call(self.etcd.0.store.range(range)))
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome>> {
        self.etcd.count(|c| {
            c.transactions += 1;
            c.bytes += txn.bytes() as u64;
        });
        let (answer, told) = oneshot::channel();
        let request = Request {
            from: self.clone(),
            txn,
            answer,
        };
        let sent = self.etcd.0.requests.send(request);
        Box::pin(async move {
            sent.map_err(|_| Error::Closed)?;
            told.await.map_err(|_| Error::Closed)?
        })
    }

    fn watch(&self, range: Range, after: Revision) -> Result<Box<dyn Watch>> {
        Ok(Box::new(LateWatch {
            inner: self.etcd.0.store.watch(range, after)?,
            client: self.clone(),
        }))
    }

    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>> {
        self.etcd.count(|c| c.leases += 1);
        Box::pin(self.call(self.etcd.0.store.lease_grant(ttl)))
    }
    fn lease_renew(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        self.etcd.count(|c| c.renewals += 1);
        Box::pin(self.call(self.etcd.0.store.lease_renew(lease)))
    }
    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        self.etcd.count(|c| c.leases += 1);
        Box::pin(self.call(self.etcd.0.store.lease_revoke(lease)))
    }

    fn lease_hold(&self, times: LeaseTimes) -> BoxFuture<'_, Result<Lease>> {
        Box::pin(async move {
            let sent = self.clock.monotonic();
            let id = self.lease_grant(times.ttl).await?;
            let renewals = Renewals::new(times, sent);
            let (client, told) = (self.clone(), renewals.clone());
            let busy = Arc::new(AtomicBool::new(false));
            let touch = move || {
                if busy.swap(true, Ordering::Relaxed) {
                    return;
                }
                debug_assert_eq!(current_host(), Some(client.host), "only its owner renews");
                let (client, told, busy) = (client.clone(), told.clone(), busy.clone());
                tokio::task::spawn_local(async move {
                    let sent = client.clock.monotonic();
                    match client.lease_renew(id).await {
                        Ok(()) => told.confirm(sent),
                        Err(Error::NoLease(_)) => told.end(),
                        Err(_) => {}
                    }
                    busy.store(false, Ordering::Relaxed);
                });
            };
            Ok(Lease::new(id, renewals, Arc::new(touch)))
        })
    }

    fn maintain(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

struct LateWatch {
    inner: Box<dyn Watch>,
    client: Client,
}

impl Watch for LateWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<metastore::kv::Event>>> {
        Box::pin(async move {
            let events = self.inner.next().await;
            self.client.pass().await;
            if let Ok(events) = &events {
                self.client.etcd.count(|c| c.delivered += events.len() as u64);
            }
            events
        })
    }
}
