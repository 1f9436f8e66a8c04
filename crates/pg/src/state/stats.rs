//! Counters of a PG, kept by deltas.

use crate::state::object::ObjectState;
use denc::{Decode, Encode, Reader, Result, Writer};

/// What the PG reports upwards (`ceph df`, `rados df`, pg dump).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PgStats {
    /// Heads and clones; whiteouts too.
    pub objects: i64,
    /// Logical bytes; a clone counts what it does not share with the next newer version.
    pub bytes: i64,
    pub clones: i64,
    pub whiteouts: i64,
    pub omap_objects: i64,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    /// The PG log's newest version and the last user version.
    pub version: u64,
    pub user_version: u64,
}

/// What one write adds and takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StatsDelta {
    pub objects: i64,
    pub bytes: i64,
    pub clones: i64,
    pub whiteouts: i64,
    pub omap_objects: i64,
    pub write_bytes: u64,
}
denc::plain_denc!(StatsDelta {
    objects,
    bytes,
    clones,
    whiteouts,
    omap_objects,
    write_bytes
});

impl StatsDelta {
    /// What an object with its clones counts for.
    pub fn of(o: &ObjectState) -> Self {
        let clones = o.snapset.clones.len() as i64;
        Self {
            objects: i64::from(o.physical) + clones,
            bytes: (if o.exists { o.size } else { 0 } + o.snapset.unshared_bytes()) as i64,
            clones,
            whiteouts: i64::from(o.physical && !o.exists),
            omap_objects: i64::from(o.exists && o.info.omap),
            write_bytes: 0,
        }
    }

    pub fn between(old: &ObjectState, new: &ObjectState) -> Self {
        let (a, b) = (Self::of(old), Self::of(new));
        Self {
            objects: b.objects - a.objects,
            bytes: b.bytes - a.bytes,
            clones: b.clones - a.clones,
            whiteouts: b.whiteouts - a.whiteouts,
            omap_objects: b.omap_objects - a.omap_objects,
            write_bytes: 0,
        }
    }

    /// Needs space that a full pool does not give.
    pub fn grows(&self) -> bool {
        self.objects > 0 || self.bytes > 0
    }
}

impl PgStats {
    pub(crate) fn add(&mut self, d: &StatsDelta) {
        self.objects += d.objects;
        self.bytes += d.bytes;
        self.clones += d.clones;
        self.whiteouts += d.whiteouts;
        self.omap_objects += d.omap_objects;
        self.writes += 1;
        self.write_bytes += d.write_bytes;
    }
}

impl Encode for PgStats {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            for n in [
                self.objects,
                self.bytes,
                self.clones,
                self.whiteouts,
                self.omap_objects,
            ] {
                w.i64(n);
            }
            for n in [
                self.reads,
                self.read_bytes,
                self.writes,
                self.write_bytes,
                self.version,
                self.user_version,
            ] {
                w.u64(n);
            }
        });
    }
}
impl Decode for PgStats {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(1, |_, r| {
            Ok(Self {
                objects: r.i64()?,
                bytes: r.i64()?,
                clones: r.i64()?,
                whiteouts: r.i64()?,
                omap_objects: r.i64()?,
                reads: r.u64()?,
                read_bytes: r.u64()?,
                writes: r.u64()?,
                write_bytes: r.u64()?,
                version: r.u64()?,
                user_version: r.u64()?,
            })
        })
    }
}
