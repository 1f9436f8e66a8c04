//! Objects that go to another storage class where they are: by lifecycles.
//!
//! Invariants: data are copied under a fresh tag first, under an intent as those of a put are; then one operation has the version refer to the copy, and
//! names what it referred to before as garbage, if the version is the very one that was seen. So readers see the one or the other, whole, and
//! what was put, changed or deleted meanwhile is not touched. Time, version, ETag and lock stay.

use crate::Result;
use crate::history::{History, Stop, Which};
use crate::objects::Objects;
use crate::rados::{Look, Pool};
use crate::record::{Entry, Older, Place};

impl<P: Pool> Objects<P> {
    /// Moves the current version to a class, if it is this very one. False: it is another, or none, by now.
    pub async fn move_current(&self, of: (&str, &str), seen: &Entry, to: (&str, Place)) -> Result<bool> {
        let is_so = |history: &History| Ok(history.current() == Some(seen));
        self.relocate(of, (Which::Current, seen), Look::default(), to, is_so)
            .await
    }

    /// The same of one that is not the current version, if at least `keep` of those are newer.
    pub async fn move_older(
        &self,
        of: (&str, &str),
        (seen, keep): (&Older, u32),
        to: (&str, Place),
    ) -> Result<bool> {
        let version = seen.entry.version();
        let which = match version.null {
            true => Which::Null,
            false => Which::Of(version.order),
        };
        // One of them may be a delete marker that is the current version.
        let look = match keep {
            0 => Look::default(),
            keep => History::look_newest(of.1, u64::from(keep) + 1),
        };
        let is_so = |history: &History| {
            let same = history.other(version.order)? == Some(seen);
            Ok(same && history.newer(version.order) >= keep as usize)
        };
        self.relocate(of, (which, &seen.entry), look, to, is_so).await
    }

    async fn relocate(
        &self,
        of: (&str, &str),
        (which, entry): (Which, &Entry),
        look: Look,
        (class, place): (&str, Place),
        is_so: impl Fn(&History) -> std::result::Result<bool, Stop>,
    ) -> Result<bool> {
        let copied = self.data.at(place).duplicate(of, entry).await?;
        let moved = self.change(of, look, copied.claim.clone(), |_, history, _| {
            if !is_so(history)? {
                return Ok(None);
            }
            history.relocate(which, |entry| {
                entry.data = copied.data;
                entry.sealed.clone_from(&copied.sealed);
                entry.attributes.class = class.to_string();
            })?;
            Ok(Some(()))
        });
        match moved.await {
            Ok(Some(())) => Ok(true),
            other => {
                // What the cluster did not answer may have come to pass: its row knows.
                self.data.abandon(copied.claim).await;
                other.map(|_| false)
            }
        }
    }
}
