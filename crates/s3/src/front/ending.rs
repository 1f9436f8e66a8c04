//! Objects that end by themselves at a time that was said when they were put: they are not there from then on, and are removed soon after.
//!
//! A bucket that may have some says so in its settings, before the first of them is put: so the walks that remove them find it, whatever
//! becomes of the gateway that puts.

use super::{Front, TRIES_MAX};
use crate::Error;
use crate::buckets::Known;
use crate::history::{Found, Which};
use crate::rados::Pool;

impl<P: Pool> Front<P> {
    /// A version as readers find it.
    pub(super) async fn found(&self, known: &Known, key: &str, which: Which) -> crate::Result<Found> {
        let found = self.objects.version(&known.bucket.id, key, which).await?;
        let now = self.clock.now_ms();
        let ended = |found: &Found| matches!(found, Found::Object(e) if e.attributes.has_ended(now));
        Ok(match which == Which::Current && ended(&found) {
            true => Found::Nothing,
            false => found,
        })
    }

    /// The bucket, which says that it may have objects that end.
    pub(super) async fn ending(&self, mut known: Known, name: &str) -> crate::Result<Known> {
        let id = known.bucket.id.clone();
        for _ in 0..TRIES_MAX {
            if known.settings.of.ending {
                return Ok(known);
            }
            let mut settings = known.settings.of.clone();
            settings.ending = true;
            match self.buckets.set_settings(name, &known, &settings).await {
                Err(Error::Conflict(_)) => {}
                other => other?,
            }
            known = self.buckets.known(name).await?;
            if known.bucket.id != id {
                return Err(Error::NoSuchBucket);
            }
        }
        Err(Error::Conflict("others change the same bucket"))
    }
}
