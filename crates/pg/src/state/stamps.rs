//! When the PG was scrubbed, and how many errors that left: kept with its metadata on every copy, so that neither a
//! restart nor another primary begins anew.

use denc::{Decode, Encode, Reader, Result, Writer};
use types::{EVersion, Utime};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubStamps {
    /// The PG's newest version when its last scrub began, and when that ended. A deep one is one, too.
    pub version: EVersion,
    pub at: Utime,
    pub deep_version: EVersion,
    pub deep_at: Utime,
    /// The last one that found nothing wrong.
    pub clean_at: Utime,
    /// Bad copies that are still there.
    pub shallow_errors: u32,
    pub deep_errors: u32,
}

impl Default for ScrubStamps {
    fn default() -> Self {
        Self {
            version: EVersion::default(),
            at: Utime::ZERO,
            deep_version: EVersion::default(),
            deep_at: Utime::ZERO,
            clean_at: Utime::ZERO,
            shallow_errors: 0,
            deep_errors: 0,
        }
    }
}

impl ScrubStamps {
    pub fn errors(&self) -> u32 {
        self.shallow_errors.saturating_add(self.deep_errors)
    }
}

impl Encode for ScrubStamps {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.version);
            w.put(&self.at);
            w.put(&self.deep_version);
            w.put(&self.deep_at);
            w.put(&self.clean_at);
            w.u32(self.shallow_errors);
            w.u32(self.deep_errors);
        });
    }
}

impl Decode for ScrubStamps {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(1, |_, r| {
            Ok(Self {
                version: r.get()?,
                at: r.get()?,
                deep_version: r.get()?,
                deep_at: r.get()?,
                clean_at: r.get()?,
                shallow_errors: r.u32()?,
                deep_errors: r.u32()?,
            })
        })
    }
}
