//! Locks on bytes of files, between all clients of the file system: the server says who has them.

use crate::file::File;
use crate::mount::Mount;
use crate::session::ranges::{ENOLCK, request_of};
use crate::session::{Ask, Shared};
use client::Error;
use denc::Decode;
use messages::fs::{FileLock, MClientReply, MClientRequest, lock, op};
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::oneshot;
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

    async fn ask_lock(&self, request: MClientRequest, open: &Shared) -> crate::Result<MClientReply> {
        let (reply, told) = oneshot::channel();
        let (by, open) = (self.own_by(), open.clone());
        let request = Box::new(MClientRequest {
            uid: by.uid,
            gid: by.gid,
            ..request
        });
        self.tell(Ask::Lock { request, open, reply }).await?;
        let (reply, _) = told.await.unwrap_or(Err(Error::Closed))?;
        match reply.result {
            r if r < 0 => Err(Error::refused(r, "a lock")),
            _ => Ok(reply),
        }
    }
}

impl File {
    /// Takes a lock, changes it to another kind, or gives it back. EAGAIN: another has it; ESTALE: the session was
    /// lost since the file was opened, and its locks with it.
    pub async fn lock(&self, wish: &FileLock) -> crate::Result<()> {
        let _room = self.mount().room().await?;
        let request = request_of(op::SETFILELOCK, lock::FCNTL, self.ino(), wish, false);
        self.mount().ask_lock(request, self.shared()).await.map(drop)
    }

    /// Waits until it has the lock. EINTR: `enough` has completed before; EDEADLK: who has it waits for this owner.
    pub async fn wait_for_lock(
        &self,
        wish: &FileLock,
        enough: impl Future<Output = ()>,
    ) -> crate::Result<()> {
        let mount = self.mount();
        let _place = mount
            .lockers()
            .try_acquire()
            .map_err(|_| Error::invalid(ENOLCK, "too many calls wait for locks"))?;
        let mut enough = std::pin::pin!(enough);
        loop {
            let request = request_of(op::SETFILELOCK, lock::FCNTL, self.ino(), wish, true);
            let mut asked = std::pin::pin!(mount.ask_lock(request, self.shared()));
            let told = tokio::select! {
                biased;
                told = &mut asked => told,
                () = &mut enough => return self.wait_no_more(wish, asked).await,
            };
            match told {
                // Meant for another call of the same owner: the server knows no difference.
                Err(e) if e.errno() == Errno::EINTR => {}
                told => return told.map(drop),
            }
        }
    }

    /// It has the lock all the same where that was quicker.
    async fn wait_no_more(
        &self,
        wish: &FileLock,
        mut asked: Pin<&mut impl Future<Output = crate::Result<MClientReply>>>,
    ) -> crate::Result<()> {
        let wish = FileLock {
            kind: lock::UNLOCK,
            ..*wish
        };
        loop {
            let request = request_of(op::SETFILELOCK, lock::FCNTL_INTR, self.ino(), &wish, false);
            // Not held up by the many that wait for an answer.
            let told = self.mount().ask_lock(request, self.shared());
            let both = async { tokio::join!(told, io::task::timeout(AGAIN, asked.as_mut())).1 };
            if let Ok(told) = both.await {
                return told.map(drop);
            }
        }
    }
}
