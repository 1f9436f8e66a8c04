//! Claims: rows of an index which say that data are being written that nobody refers to yet. `data` has the invariants; [`crate::spares`] those that are made before they are needed.

use crate::data::{DataStore, Stored};
use crate::index::{Ahead, Verdict};
use crate::rados::{Change, Look, Pool};
use crate::record::{
    Data, Garbage, Intent, Place, STRIPE, Tag, entry_row, escape, garbage_row, head_row, intent_row,
};
use crate::spares::{self, Of, Spares};
use crate::{Error, Result};
use bytes::Bytes;
use denc::Encode;
use io::task;
use std::collections::BTreeSet;
use std::time::Duration;

/// An intent holds so long (milliseconds), and is renewed when half of that is over.
pub const INTENT_MS: u64 = 20 * 60 * 1000;

/// Data that is being written, or was and is not referred to yet.
#[derive(Debug, Clone)]
pub struct Claim {
    pub tag: Tag,
    pub place: Place,
    pub(crate) shard: String,
    raw: Bytes,
    until: u64,
    /// When it was made (monotonic): who was asleep does not take it for new.
    pub(crate) made: Duration,
}

impl Claim {
    pub fn row(&self) -> Bytes {
        intent_row(self.tag)
    }

    /// Most of its time is left.
    pub fn is_fresh(&self, now: u64) -> bool {
        now + INTENT_MS * 3 / 4 < self.until
    }
}

/// What became of a claim when it was looked for.
pub enum Held {
    Yes,
    /// The key has moved to another shard since.
    Elsewhere,
}

impl<P: Pool> DataStore<P> {
    fn intent(&self, place: Place) -> (u64, Bytes) {
        let until = self.clock.now_ms() + INTENT_MS;
        (until, Intent { until, place }.to_bytes())
    }

    /// Says that data will be written, before it is.
    pub async fn claim(&self, bucket: &str, key: &str) -> Result<Claim> {
        let at = self.index.guess(bucket, &escape(key));
        if let (Some(spares), Some(shard)) = (&self.spares, at) {
            let of = (shard, self.place);
            let taken = spares.take(&of, (self.clock.now_ms(), self.clock.monotonic()));
            if taken.make {
                self.make_spares(spares.clone(), of, (bucket, key));
            }
            if let Some(claim) = taken.claim {
                return Ok(claim);
            }
        }
        let claims = self.claims(bucket, key, 1).await?;
        claims.into_iter().next().ok_or(Error::GivenUp)
    }

    /// So many, all in one operation.
    async fn claims(&self, bucket: &str, key: &str, n: usize) -> Result<Vec<Claim>> {
        let (until, raw) = self.intent(self.place);
        let tags: Vec<Tag> = (0..n).map(|_| self.clock.tag()).collect();
        let shard = self.index.update(bucket, key, BTreeSet::new(), |view| {
            let mut change = Change::default();
            let rows = tags.iter().map(|tag| (intent_row(*tag), raw.clone()));
            change.set.extend(rows);
            Ok(Verdict::Change(change, view.shard.to_string()))
        });
        let shard = shard.await?;
        let claim = |tag| Claim {
            tag,
            place: self.place,
            shard: shard.clone(),
            raw: raw.clone(),
            until,
            made: self.clock.monotonic(),
        };
        Ok(tags.into_iter().map(claim).collect())
    }

    /// Beside what is being put.
    fn make_spares(&self, spares: Spares, of: Of, (bucket, key): (&str, &str)) {
        let (store, bucket, key) = (self.clone(), bucket.to_string(), key.to_string());
        drop(task::spawn_local(async move {
            let made = store.claims(&bucket, &key, spares::BATCH).await;
            if let Err(e) = &made {
                tracing::debug!("s3: no claims are made before they are needed: {e}");
            }
            let left = spares.made(&of, made.unwrap_or_default());
            store.give_back(left).await;
        }));
    }

    /// Gives back what nobody has taken, or all. What fails ends by itself.
    pub async fn release(&self, all: bool) {
        let Some(spares) = &self.spares else { return };
        for claims in spares.idle(self.clock.now_ms(), all) {
            self.give_back(claims).await;
        }
    }

    /// Of one shard.
    async fn give_back(&self, claims: Vec<Claim>) {
        let Some(shard) = claims.first().map(|c| c.shard.clone()) else {
            return;
        };
        let mut change = Change::default();
        for claim in &claims {
            change = change
                .expecting(&claim.row(), Some(&claim.raw))
                .unsetting(&claim.row());
        }
        if let Err(e) = self.index.pool().change(&shard, change).await {
            tracing::debug!("s3: {} claims are left to end: {e}", claims.len());
        }
    }

    /// Whether a commit may take the claim away, as its shard was seen.
    pub fn held(claim: &Claim, view: &crate::index::View<'_>) -> Result<Held> {
        match view.get::<Intent>(&claim.row())? {
            Some(_) => Ok(Held::Yes),
            None if view.shard != claim.shard => Ok(Held::Elsewhere),
            None => Err(Error::GivenUp),
        }
    }

    /// Lets it hold on where that is needed. A claim that has ended is not renewed: its data may be gone.
    pub(crate) async fn renew(&self, bucket: &str, key: &str, claim: &mut Claim) -> Result<()> {
        let now = self.clock.now_ms();
        if now + INTENT_MS / 2 < claim.until {
            return Ok(());
        }
        if now >= claim.until {
            return Err(Error::GivenUp);
        }
        self.follow(bucket, key, claim).await
    }

    /// Moves the claim to where its key is now, with its full time. The old row goes before the data may be referred to, so there is
    /// none that would have it collected.
    pub async fn follow(&self, bucket: &str, key: &str, claim: &mut Claim) -> Result<()> {
        let (until, raw) = self.intent(claim.place);
        let row = claim.row();
        let shard = self
            .index
            .update(bucket, key, BTreeSet::from([row.clone()]), |view| {
                if view.shard == claim.shard && view.get::<Intent>(&row)?.is_none() {
                    return Err(Error::GivenUp);
                }
                let change = Change::default().setting(&row, raw.clone());
                Ok(Verdict::Change(change, view.shard.to_string()))
            });
        let shard = shard.await?;
        if shard != claim.shard {
            let gone = Change::default()
                .expecting(&row, Some(&claim.raw))
                .unsetting(&row);
            match self.index.pool().change(&claim.shard, gone).await {
                Err(e) if e.is_conflict() || e.is_not_found() => return Err(Error::GivenUp),
                other => other?,
            }
        }
        (claim.shard, claim.raw, claim.until) = (shard, raw, until);
        Ok(())
    }

    /// Has what was written collected, not at once: a write that was not answered may still come. If that fails, too, it is
    /// collected when the claim ends.
    pub async fn abandon(&self, claim: Option<Claim>) {
        let Some(claim) = claim else { return };
        let garbage = Garbage {
            since: self.clock.now_ms(),
            data: Data::Stripes(claim.tag, claim.place),
            size: None,
        };
        let change = Change::default()
            .expecting(&claim.row(), Some(&claim.raw))
            .unsetting(&claim.row())
            .setting(&garbage_row(claim.tag), garbage.to_bytes());
        if let Err(e) = self.index.pool().change(&claim.shard, change).await {
            tracing::debug!("{} is left to be collected: {e}", claim.tag);
        }
    }

    /// What the commit of small data will look at, while the data are being written. It only saves time: what has changed by then is looked at again.
    pub(crate) async fn look_ahead(&self, (bucket, key): (&str, &str), stored: &Stored) -> Option<Ahead> {
        let claim = stored.claim.as_ref().filter(|_| stored.size <= STRIPE)?;
        let look = Look::keys([&entry_row(key), &head_row(key), &claim.row()]);
        self.index.look_ahead(bucket, &escape(key), look).await
    }
}
