//! Whether what was answered is durable, for mounts that are answered before it is ([`crate::Options::early`]).

use crate::mount::Mount;
use crate::session::Ask;
use client::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// That changes become durable, through restarts and failovers of the server.
const SAFE_MAX: Duration = Duration::from_secs(120);

/// What a handle was told of changes of its inode that were lost: each of them is told once.
#[derive(Debug)]
pub struct Followed {
    ino: u64,
    since: AtomicU64,
}

impl Mount {
    /// Of a handle that is opened now.
    pub fn follow(&self, ino: u64) -> Followed {
        Followed {
            ino,
            since: AtomicU64::new(self.losses()),
        }
    }

    /// All that was answered before is durable. An error: it is not, or something of this inode was lost since it was said last.
    pub async fn sync_of(&self, followed: &Followed) -> crate::Result<()> {
        let since = followed.since.load(Ordering::Acquire);
        let (last, done) = self.ask_safety(Some(followed.ino), since).await?;
        followed.since.fetch_max(last, Ordering::AcqRel);
        done
    }

    /// The same of all inodes. An error: it is not, or something was lost that nobody was told of.
    pub async fn sync(&self) -> crate::Result<()> {
        self.ask_safety(None, u64::MAX).await?.1
    }

    async fn ask_safety(&self, ino: Option<u64>, since: u64) -> crate::Result<crate::session::Safety> {
        let _room = self.room().await?;
        let (reply, told) = oneshot::channel();
        self.tell(Ask::Sync { ino, since, reply }).await?;
        match io::task::timeout(SAFE_MAX, told).await {
            Ok(Ok(told)) => Ok(told),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(Error::TimedOut),
        }
    }
}
