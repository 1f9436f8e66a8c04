//! Held leases: a task on etcd's thread sends a renewal for each touch of the owner.
//!
//! Invariants: at most one renewal of a lease is under way, and each is answered on the stream it was sent on, so an
//! answer is never taken for a later one's. What is confirmed is the time *before* sending. A touch during a
//! renewal leads to one more. The task ends when the lease has, or when the owner dropped it.

use crate::calls::Inner;
use crate::conn::Failed;
use etcd_client::{Error as EtcdError, LeaseKeepAliveStream, LeaseKeeper};
use io::task::Background;
use metastore::kv::Result;
use metastore::lease::{Lease, LeaseTimes, Renewals};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Wait before a renewal that got no answer is sent to the next endpoint.
const RETRY: Duration = Duration::from_millis(20);

/// Lets the task end with the last handle of the owner.
struct Touch(Arc<Notify>, tokio::sync::watch::Sender<()>);

pub(crate) async fn hold(runtime: Arc<Background>, inner: Arc<Inner>, asked: LeaseTimes) -> Result<Lease> {
    // The store counts from when it granted the lease, which is later than this.
    let before = inner.conn.clock().monotonic();
    let (id, ttl) = inner.grant(asked.ttl).await?;
    let times = LeaseTimes {
        ttl,
        margin: asked.margin,
    };
    let renewals = Renewals::new(times, before);
    let (gone_tx, mut gone) = tokio::sync::watch::channel(());
    let touch = Touch(Arc::new(Notify::new()), gone_tx);
    let mut keeper = Keeper {
        inner,
        id: id as i64,
        ttl,
        renewals: renewals.clone(),
        touched: touch.0.clone(),
        stream: None,
    };
    drop(runtime.spawn(async move {
        tokio::select! {
            () = keeper.run() => {}
            // The sender never sends: this is the owner's end.
            _ = gone.changed() => {}
        }
    }));
    let renew = move || {
        let Touch(touched, _owner) = &touch;
        touched.notify_one();
    };
    Ok(Lease::new(id, renewals, Arc::new(renew)))
}

struct Keeper {
    inner: Arc<Inner>,
    id: i64,
    ttl: Duration,
    renewals: Arc<Renewals>,
    touched: Arc<Notify>,
    stream: Option<(LeaseKeeper, LeaseKeepAliveStream)>,
}

impl Keeper {
    async fn run(&mut self) {
        let clock = self.inner.conn.clock().clone();
        loop {
            self.touched.notified().await;
            let touched = clock.monotonic();
            // For a touch older than this the owner has to ask again: it may hang.
            while clock.monotonic() - touched < self.ttl {
                let sent = clock.monotonic();
                match self.renew().await {
                    Ok(()) => {
                        self.renewals.confirm(sent);
                        break;
                    }
                    Err(Failed::NoLease) => return self.renewals.end(),
                    Err(failed) => {
                        let why = failed.into_error().to_string();
                        self.inner.conn.trouble(&format!("renewing a lease: {why}"));
                        io::task::sleep(RETRY).await;
                    }
                }
            }
        }
    }

    /// One renewal, over the stream there is or a new one. Another endpoint must have its chance within the time
    /// to live.
    async fn renew(&mut self) -> std::result::Result<(), Failed> {
        let max = self.ttl / 4;
        if let Some((mut keeper, mut answers)) = self.stream.take() {
            let asked = async {
                keeper.keep_alive().await?;
                answers.message().await
            };
            if let Ok(Ok(Some(answer))) = io::task::timeout(max, asked).await {
                if answer.ttl() <= 0 {
                    return Err(Failed::NoLease);
                }
                self.stream = Some((keeper, answers));
                return Ok(());
            }
        }
        let id = self.id;
        let stream = self
            .inner
            .conn
            .attempt(max, |mut c| async move {
                let stream: std::result::Result<_, EtcdError> = c.lease_keep_alive(id).await;
                stream
            })
            .await?;
        self.stream = Some(stream);
        Ok(())
    }
}
