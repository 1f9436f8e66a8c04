//! Locks on bytes of files, between all clients of the file system: the server says who has them.

use crate::mount::Mount;
use crate::session::ranges::{ENOLCK, request_of};
use client::Error;
use denc::Decode;
use messages::fs::{FileLock, MClientReply, lock, op};
use std::pin::Pin;
use std::time::Duration;
use types::Errno;

/// Told so often that one which waits has waited enough: it may not have begun to wait.
const AGAIN: Duration = Duration::from_millis(500);

impl Mount {
    /// What is in the way of a lock; None: nothing.
    pub async fn lock_in_the_way(&self, ino: u64, wish: &FileLock) -> crate::Result<Option<FileLock>> {
        let request = request_of(op::GETFILELOCK, lock::FCNTL, ino, wish, false);
        let reply = self.ask(request).await?;
        let found = FileLock::decode(&mut denc::Reader::new(reply.extra))?;
        Ok((found.kind != lock::UNLOCK).then_some(found))
    }

    /// Takes a lock, changes it to another kind, or gives it back. EAGAIN: another has it.
    pub async fn lock(&self, ino: u64, wish: &FileLock) -> crate::Result<()> {
        let request = request_of(op::SETFILELOCK, lock::FCNTL, ino, wish, false);
        self.ask(request).await.map(drop)
    }

    /// Waits until it has the lock. EINTR: `enough` has completed before; EDEADLK: who has it waits for this owner.
    pub async fn wait_for_lock(
        &self,
        ino: u64,
        wish: &FileLock,
        enough: impl Future<Output = ()>,
    ) -> crate::Result<()> {
        let _place = self
            .lockers()
            .try_acquire()
            .map_err(|_| Error::invalid(ENOLCK, "too many calls wait for locks"))?;
        let mut enough = std::pin::pin!(enough);
        loop {
            let request = request_of(op::SETFILELOCK, lock::FCNTL, ino, wish, true);
            let mut asked = std::pin::pin!(self.ask_at_once(self.own_by(), request, None));
            let told = tokio::select! {
                biased;
                told = &mut asked => told.map(|(reply, _)| reply),
                () = &mut enough => return self.wait_no_more(ino, wish, asked).await,
            };
            match told {
                // Meant for another call of the same owner: the server knows no difference.
                Err(e) if e.errno() == Errno::EINTR => {}
                told => return told.map(drop),
            }
        }
    }

    /// It has the lock all the same where that was quicker.
    async fn wait_no_more<T>(
        &self,
        ino: u64,
        wish: &FileLock,
        mut asked: Pin<&mut impl Future<Output = crate::Result<(MClientReply, T)>>>,
    ) -> crate::Result<()> {
        let wish = FileLock {
            kind: lock::UNLOCK,
            ..*wish
        };
        loop {
            let request = request_of(op::SETFILELOCK, lock::FCNTL_INTR, ino, &wish, false);
            // Not held up by the many that wait for an answer.
            let told = self.ask_at_once(self.own_by(), request, None);
            let both = async { tokio::join!(told, io::task::timeout(AGAIN, asked.as_mut())).1 };
            if let Ok(told) = both.await {
                return told.map(drop);
            }
        }
    }
}
