//! The PG's metadata blob: what the log does not say.

use crate::pool::SnapIntervals;
use crate::state::stamps::ScrubStamps;
use crate::state::stats::PgStats;
use denc::{Decode, Encode, Reader, Result, Writer};
use types::{Epoch, HObject};

/// Statistics as of the log version that they name, and the snapshots that are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PgMeta {
    pub stats: PgStats,
    /// Every snapshot id that was ever seen as removed: the map forgets them, clients with old contexts may not.
    pub removed: SnapIntervals,
    /// Those of them whose clones are gone from every object.
    pub trimmed: SnapIntervals,
    /// The pool's pg_num for which the statistics count: another one means that the PG was split since, 0 that it
    /// was never counted.
    pub pg_num: u32,
    /// The objects here are those of the log. False while a backfill from another OSD is on its way.
    pub complete: bool,
    /// Objects (heads) that the log does not speak for: entries of theirs were undone and nothing put in their place.
    pub dirty: Vec<HObject>,
    pub scrub: ScrubStamps,
    /// The [`crate::PgLife::epoch`] of the PG that this is a copy of, with all that was merged into it until then.
    pub life: Epoch,
}

impl Default for PgMeta {
    fn default() -> Self {
        Self {
            stats: PgStats::default(),
            removed: SnapIntervals::default(),
            trimmed: SnapIntervals::default(),
            pg_num: 0,
            complete: true,
            dirty: Vec::new(),
            scrub: ScrubStamps::default(),
            life: 0,
        }
    }
}

impl Encode for PgMeta {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 1, |w| {
            w.put(&self.stats);
            w.put(&self.removed);
            w.put(&self.trimmed);
            w.u32(self.pg_num);
            w.bool(self.complete);
            w.put(&self.dirty);
            w.put(&self.scrub);
            w.put(&self.life);
        });
    }
}

impl Decode for PgMeta {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(5, |version, r| {
            Ok(Self {
                stats: r.get()?,
                removed: r.get()?,
                trimmed: r.get()?,
                pg_num: if version >= 2 { r.u32()? } else { 0 },
                complete: if version >= 3 { r.bool()? } else { true },
                dirty: if version >= 3 { r.get()? } else { Vec::new() },
                scrub: if version >= 4 {
                    r.get()?
                } else {
                    ScrubStamps::default()
                },
                life: if version >= 5 { r.get()? } else { 0 },
            })
        })
    }
}
