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
use tokio::sync::{Mutex, OwnedMutexGuard};
use types::Errno;

/// Held while objects may have some of their states and not all.
#[derive(Debug, Clone, Default)]
pub struct Unfinished(Arc<Mutex<()>>);

impl Unfinished {
    pub(super) async fn begin(self) -> OwnedMutexGuard<()> {
        self.0.lock_owned().await
    }

    /// Waits until nothing is half done, for so long at most; false: it is still.
    pub async fn ended(&self, within: Duration) -> bool {
        task::timeout(within, self.0.lock()).await.is_ok()
    }
}

/// The note of the group, in an attribute of the target's header that clients do not look at: the objects' numbers.
pub(super) struct Noted;

const NOTE: &[u8] = b"skep.migration.group";
/// More than a group has.
const NOTED_MAX: usize = 64;

impl Noted {
    pub async fn write(target: &Inner, objects: impl Iterator<Item = u64>) -> Result<()> {
        let text: Vec<u8> = objects.take(NOTED_MAX).flat_map(u64::to_le_bytes).collect();
        let op = Operation::new().set_xattr(NOTE, &text);
        ask(&target.io, &target.header_oid, op).await.map(drop)
    }

    pub async fn read(target: &Inner) -> Result<Vec<u64>> {
        match ask(&target.io, &target.header_oid, Operation::new().get_xattr(NOTE)).await {
            Ok(done) => Ok(objects(&done.step(0)?.data)),
            Err(e) if is_missing(&e) => Ok(Vec::new()),
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

fn objects(text: &[u8]) -> Vec<u64> {
    let (numbers, _) = text.as_chunks::<8>();
    numbers.iter().take(NOTED_MAX).map(|n| u64::from_le_bytes(*n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let text: Vec<u8> = [3u64, 1 << 40].into_iter().flat_map(u64::to_le_bytes).collect();
        assert_eq!(objects(&text), [3, 1 << 40]);
        // Of somebody else, or cut.
        assert_eq!(objects(&text[..9]), [3]);
        assert_eq!(objects(&[0; 8 * NOTED_MAX + 8]).len(), NOTED_MAX);
    }

    #[test]
    fn who_ends_the_connection_waits_for_what_is_half_done() {
        let main = async {
            let unfinished = Unfinished::default();
            let short = Duration::from_millis(1);
            assert!(unfinished.ended(short).await);
            let begun = unfinished.clone().begin().await;
            assert!(!unfinished.ended(short).await);
            drop(begun);
            assert!(unfinished.ended(short).await);
        };
        task::block_on(main).expect("a runtime");
    }
}
