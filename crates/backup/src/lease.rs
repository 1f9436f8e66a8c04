//! One backup of an image at a time: a lock of the class `lock` on the image's header, beside the exclusive lock of those who write.
//!
//! It runs out by itself [`LEASE`] after its holder was cut off; one whose process of this machine is gone is broken at once.

use crate::{Error, Result};
use client::{IoCtx, Operation};
use denc::{Decode, Reader, Writer};
use objclass::{LockInfo, LockerId};
use std::time::Duration;
use types::{EntityName, Errno, Utime};

const NAME: &str = "skep_backup";
const EXCLUSIVE: u8 = 1;
/// Renews one that is held.
const MUST_RENEW: u8 = 2;
const LEASE: Utime = Utime { sec: 120, nsec: 0 };
pub const RENEW_EVERY: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Lease {
    io: IoCtx,
    oid: String,
    cookie: String,
}

fn call(method: &str, writes: bool, input: impl FnOnce(&mut Writer)) -> Operation {
    let mut w = Writer::new();
    w.envelope(1, 1, |w| {
        w.string(NAME);
        input(w);
    });
    Operation::new().call("lock", method, &w.finish(), writes)
}

/// `HOST:PID`, and a number that no other has.
fn cookie(io: &IoCtx) -> String {
    let random = io.client().platform().random.u32();
    format!("{}:{}:{random:08x}", io::files::hostname(), std::process::id())
}

/// Whether the holder was a process of this machine that is gone.
fn is_dead(cookie: &str) -> bool {
    let mut parts = cookie.rsplitn(3, ':').skip(1);
    let pid = parts.next().and_then(|p| p.parse().ok());
    let host = parts.next();
    host == Some(io::files::hostname().as_str()) && pid.is_some_and(|p| !io::files::is_running(p))
}

impl Lease {
    /// Refused while another backup of the image runs.
    pub async fn take(io: &IoCtx, header: &str) -> Result<Self> {
        let lease = Self {
            io: io.clone(),
            oid: header.to_string(),
            cookie: cookie(io),
        };
        match lease.lock(0).await {
            Err(Error::Cluster(e)) if e.errno() == Errno::EBUSY => {}
            other => return other.map(|()| lease),
        }
        let Some(holder) = lease.holder().await? else {
            return lease.lock(0).await.map(|()| lease);
        };
        let other = String::from_utf8_lossy(&holder.cookie).into_owned();
        if !is_dead(&other) {
            return Err(Error::refused(format!(
                "another backup of the image runs ({other}); if that was cut off, it counts as running for {} s",
                LEASE.sec
            )));
        }
        lease.break_lock(&holder).await?;
        lease.lock(0).await.map(|()| lease)
    }

    async fn run(&self, op: Operation) -> Result<client::Outcome> {
        let done = self
            .io
            .operate(&self.oid, op)
            .await
            .and_then(client::Outcome::done);
        Ok(done?)
    }

    async fn lock(&self, flags: u8) -> Result<()> {
        let op = call("lock", true, |w| {
            w.u8(EXCLUSIVE);
            w.string(&self.cookie);
            w.string("");
            w.string("skep backup");
            w.put(&LEASE);
            w.u8(flags);
        });
        self.run(op).await.map(drop)
    }

    async fn holder(&self) -> Result<Option<LockerId>> {
        let done = self.run(call("get_info", false, |_| {})).await?;
        let info = LockInfo::decode(&mut Reader::new(done.step(0)?.data.clone()));
        let info = info.map_err(client::Error::from)?;
        Ok(info.lockers.into_keys().next())
    }

    async fn break_lock(&self, holder: &LockerId) -> Result<()> {
        let op = call("break_lock", true, |w| {
            w.put::<EntityName>(&holder.entity);
            w.blob(&holder.cookie);
        });
        match self.run(op).await {
            Err(Error::Cluster(e)) if e.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Refused when it ran out: another may have had it meanwhile.
    pub async fn renew(&self) -> Result<()> {
        let done = self.lock(MUST_RENEW).await;
        done.map_err(|e| Error::refused(format!("the lease on the image was lost: {e}")))
    }

    /// What is not given back runs out.
    pub async fn give_back(&self) {
        let _ = self.run(call("unlock", true, |w| w.string(&self.cookie))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_are_known_by_their_number() {
        let (here, me) = (io::files::hostname(), std::process::id());
        assert!(!is_dead(&format!("{here}:{me}:1")));
        assert!(is_dead(&format!("{here}:{}:1", i32::MAX)));
        assert!(!is_dead(&format!("else:{}:1", i32::MAX)));
        assert!(!is_dead("what"));
    }
}
