//! Many processes that change the state at once.

use super::*;
use crate::kv::{BoxFuture, Kv, LeaseId, Range, Revision, Txn, TxnOutcome, Watch};
use crate::{Lease, LeaseTimes, Result};

const WRITERS: usize = 150;
const ONE_WAY: Duration = Duration::from_millis(1);

/// A store that transactions are on their way to for a while.
struct Far(Embedded);

impl Metastore for Far {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Kv>>> {
        self.0.get(key)
    }
    fn range<'a>(&'a self, range: Range) -> BoxFuture<'a, Result<(Vec<Kv>, Revision)>> {
        self.0.range(range)
    }
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome>> {
        Box::pin(async move {
            io::task::sleep(ONE_WAY).await;
            let done = self.0.txn(txn).await;
            io::task::sleep(ONE_WAY).await;
            done
        })
    }
    fn watch(&self, range: Range, after: Revision) -> Result<Box<dyn Watch>> {
        self.0.watch(range, after)
    }
    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>> {
        self.0.lease_grant(ttl)
    }
    fn lease_renew(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        self.0.lease_renew(lease)
    }
    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        self.0.lease_revoke(lease)
    }
    fn lease_hold(&self, times: LeaseTimes) -> BoxFuture<'_, Result<Lease>> {
        self.0.lease_hold(times)
    }
    fn maintain(&self) -> BoxFuture<'_, Result<()>> {
        self.0.maintain()
    }
}

/// Power comes back to all hosts: each process has a handle of its own.
#[tokio::test]
async fn many_writers_at_once_all_get_through() {
    let clock = || Arc::new(io::SystemClock::new());
    let store: Arc<dyn Metastore> = Arc::new(Far(Embedded::in_memory(clock()).unwrap()));
    let options = CreateOptions::new(Uuid([7; 16]), "a", addrs(3300).first());
    create_cluster(&*store, &options, &*clock(), &SystemRandom)
        .await
        .unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..WRITERS {
        let opened = ClusterHandle::open(store.clone(), clock()).await;
        let handle = opened.unwrap().unwrap();
        let follower = handle.clone();
        tokio::spawn(async move { follower.follow().await });
        let set = Change::ConfigKeySet {
            key: format!("writer/{n}"),
            value: "1".into(),
        };
        let commit = async move { handle.commit(|_| (Changes::one(set.clone()), ())).await.map(drop) };
        writers.spawn(commit);
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap().unwrap();
    }
    let (rows, _) = store.range(Range::prefix("")).await.unwrap();
    let written = rows.iter().filter(|kv| kv.key.contains("writer/")).count();
    assert_eq!(written, WRITERS);
}
