//! The group of objects that is being copied: whoever ends the connection waits for it, and a run that follows one that was killed begins with it.
//!
//! Of an object with snapshots the states are written one after the other. In between its head shows an older one, to readers as well.

use crate::header::ask;
use crate::image::Inner;
use crate::{Error, Result};
use client::Operation;
use io::task;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::Errno;

/// Held while objects may have some of their states and not all.
#[derive(Debug, Clone)]
pub struct Unfinished(Arc<Semaphore>);

impl Default for Unfinished {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Unfinished {
    /// An error once somebody wants an end of it.
    pub(super) async fn begin(self) -> Result<OwnedSemaphorePermit> {
        let stopped = |_| Error::refused(Errno::EBUSY, "the migration's task is stopped");
        self.0.acquire_owned().await.map_err(stopped)
    }

    /// Lets nothing begin any more, and waits until nothing is half done, for so long at most; false: it is still.
    pub async fn end(&self, within: Duration) -> bool {
        let ended = match task::timeout(within, self.0.acquire()).await {
            Ok(Ok(_)) => true,
            Ok(Err(_)) => self.0.available_permits() > 0,
            Err(_) => false,
        };
        self.0.close();
        ended
    }
}

/// How far a run has come, in an attribute of the target's header that clients do not look at: that all objects below a number have all of their
/// states, and the numbers of those that are being copied.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    pub below: u64,
    pub group: Vec<u64>,
}

const NOTE: &[u8] = b"skep.migration";
/// As many as a group has at most.
const GROUP_MAX: usize = 8;

impl Noted {
    pub fn of(below: u64, group: impl Iterator<Item = u64>) -> Self {
        let group = group.take(GROUP_MAX).collect();
        Self { below, group }
    }

    fn encode(&self) -> Vec<u8> {
        let numbers = [self.below].into_iter().chain(self.group.iter().copied());
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    fn decode(text: &[u8]) -> Self {
        let (numbers, _) = text.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|n| u64::from_le_bytes(*n));
        let below = numbers.next().unwrap_or(0);
        let mut group: Vec<u64> = numbers.take(GROUP_MAX).collect();
        group.sort_unstable();
        group.dedup();
        Self { below, group }
    }

    pub async fn write(&self, target: &Inner) -> Result<()> {
        let op = Operation::new().set_xattr(NOTE, &self.encode());
        ask(&target.io, &target.header_oid, op).await.map(drop)
    }

    pub async fn read(target: &Inner) -> Result<Self> {
        match ask(&target.io, &target.header_oid, Operation::new().get_xattr(NOTE)).await {
            Ok(done) => Ok(Self::decode(&done.step(0)?.data)),
            Err(e) if is_missing(&e) => Ok(Self::default()),
            Err(e) => Err(e),
        }
    }

    pub async fn forget(target: &Inner) -> Result<()> {
        let op = Operation::new().remove_xattr(NOTE);
        match ask(&target.io, &target.header_oid, op).await {
            Err(e) if !is_missing(&e) => Err(e),
            _ => Ok(()),
        }
    }
}

fn is_missing(e: &Error) -> bool {
    e.errno() == Errno::ENODATA
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let note = Noted::of(256, [3, 1 << 40].into_iter());
        assert_eq!(Noted::decode(&note.encode()), note);
        // Of somebody else, or cut.
        assert_eq!(
            Noted::decode(&note.encode()[..15]),
            Noted::of(256, [].into_iter())
        );
        assert_eq!(Noted::decode(b"").below, 0);
        assert_eq!(Noted::decode(&[7; 80]).group.len(), 1);
    }

    #[test]
    fn who_ends_the_connection_waits_for_what_is_half_done() {
        let main = async {
            let short = Duration::from_millis(1);
            let unfinished = Unfinished::default();
            drop(unfinished.clone().begin().await.expect("nobody has stopped it"));
            assert!(unfinished.end(short).await);
            assert!(
                unfinished.clone().begin().await.is_err(),
                "nothing begins any more"
            );
            let unfinished = Unfinished::default();
            let begun = unfinished.clone().begin().await;
            assert!(!unfinished.end(short).await && !unfinished.end(short).await);
            drop(begun);
            assert!(unfinished.end(short).await);
            assert!(unfinished.begin().await.is_err());
        };
        task::block_on(main).expect("a runtime");
    }
}
