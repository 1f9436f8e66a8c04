//! Walks over all shards of a bucket: closing them before the bucket is deleted, and what is not rows of keys.

use super::{Index, Located, first_shard, root_name};
use crate::rados::{Change, Look, Pool, Span};
use crate::record::{Phase, state_row};
use crate::{Error, Result};
use bytes::Bytes;
use denc::Encode;

/// Changes of others while a shard is closed.
const TRIES_MAX: usize = 64;

impl<P: Pool> Index<P> {
    /// From now on nobody writes to it; refused where it has objects, or versions: shards that were closed until then have to be opened.
    pub(crate) async fn close(&self, bucket: &str, deletion: u64) -> Result<()> {
        let mut at = Some(first_shard(bucket));
        while let Some(shard) = at {
            at = self.close_shard(&shard, deletion).await?.state.next;
        }
        Ok(())
    }

    async fn close_shard(&self, shard: &str, deletion: u64) -> Result<Located> {
        let (objects, versions) = (Bytes::from_static(b"e"), Bytes::from_static(b"v"));
        for _ in 0..TRIES_MAX {
            let mut look = Look::rows(&objects, &objects, 1);
            look.beside = Some(Span::new(&versions, &versions, 1));
            look.keys.insert(state_row());
            let seen = self.pool().look(shard, look).await?;
            let version = seen.version;
            let seen = Located::of(shard.to_string(), seen)?;
            if !seen.rows.is_empty() || !seen.beside.0.is_empty() {
                return Err(Error::BucketNotEmpty);
            }
            let mut closed = seen.state.clone();
            match closed.phase {
                Phase::Closed { deletion: by } if by == deletion => return Ok(seen),
                Phase::Open => {}
                // That deletion is over, or this one is and has not heard of it: who asks again will find it open.
                Phase::Closed { .. } => {
                    return Err(Error::Busy("another deletion of the bucket is being taken back"));
                }
                _ => return Err(Error::Busy("the bucket's index is being split")),
            }
            closed.version += 1;
            closed.phase = Phase::Closed { deletion };
            let set = Change::default().expecting(&state_row(), Some(&seen.raw));
            let mut change = set.setting(&state_row(), closed.to_bytes());
            // No row has come since.
            change.version = Some(version);
            match self.pool().change(shard, change).await {
                Ok(()) => return Ok(seen),
                Err(e) if e.is_conflict() => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::Busy("others write to the bucket"))
    }

    /// Opens a shard that was closed for a deletion which did not come about.
    pub(crate) async fn reopen(&self, seen: &Located) -> Result<()> {
        match self.set_phase(&seen.shard, &seen.state, Phase::Open).await {
            // Another deletion has begun, or another opened it.
            Err(e) if e.is_conflict() || e.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Rows of one class of one shard, a page, and the shard that follows it. `shard` None: the first. Beside garbage is seen whether there are events.
    pub(crate) async fn shard_page(
        &self,
        bucket: &str,
        shard: Option<&str>,
        after: &Bytes,
        class: u8,
    ) -> Result<Located> {
        let shard = shard.map_or_else(|| first_shard(bucket), str::to_string);
        let prefix = Bytes::copy_from_slice(&[class]);
        let after = after.max(&prefix);
        let mut look = Look::rows(after, &prefix, crate::rados::PAGE);
        if class == b'g' {
            let events = Bytes::from_static(&[crate::notify::CLASS]);
            look.beside = Some(Span::new(&events, &events, 1));
        }
        look.keys.insert(state_row());
        let seen = self.pool().look(&shard, look).await?;
        Located::of(shard, seen)
    }

    /// Removes the objects of a closed index, from the last shard to the first, so that a walk that is cut off can begin again.
    pub(crate) async fn remove(&self, bucket: &str) -> Result<()> {
        let (mut shards, mut at) = (Vec::new(), Some(first_shard(bucket)));
        while let Some(shard) = at {
            match self.state(&shard).await {
                Ok(seen) => at = seen.state.next,
                Err(e) if e.is_not_found() => break,
                Err(e) => return Err(e),
            }
            shards.push(shard);
        }
        for shard in shards.iter().rev() {
            self.pool().remove(shard).await?;
        }
        self.pool().remove(&root_name(bucket)).await?;
        self.forget(bucket);
        Ok(())
    }
}
