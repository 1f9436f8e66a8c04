//! Backoffs: ranges of objects that an OSD does not want to hear of for now (docs/protocol/ceph/04-osd.md, 7.6).
//!
//! They belong to one session and end with it. Bound: [`BACKOFFS_MAX`]; beyond it the session is given up, and with it all of
//! them.

use std::collections::BTreeMap;
use types::{HObject, SPgId};

/// One per PG and a handful of objects are usual.
pub const BACKOFFS_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub struct Backoffs {
    ranges: BTreeMap<(SPgKey, u64), (HObject, HObject)>,
}

/// A PG as a key.
type SPgKey = (i64, u32, i8);

fn key(pg: &SPgId) -> SPgKey {
    (pg.pg.pool, pg.pg.seed, pg.shard)
}

fn covers((begin, end): &(HObject, HObject), object: &HObject) -> bool {
    object == begin || (begin <= object && object < end)
}

impl Backoffs {
    /// False: there are too many.
    pub fn block(&mut self, pg: &SPgId, id: u64, begin: HObject, end: HObject) -> bool {
        self.ranges.insert((key(pg), id), (begin, end));
        self.ranges.len() <= BACKOFFS_MAX
    }

    /// The range that is free now; None: it was not blocked under this number.
    pub fn unblock(&mut self, pg: &SPgId, id: u64) -> Option<(HObject, HObject)> {
        self.ranges.remove(&(key(pg), id))
    }

    pub fn blocks(&self, pg: &SPgId, object: &HObject) -> bool {
        let of_pg = self.ranges.range((key(pg), 0)..=(key(pg), u64::MAX));
        of_pg.into_iter().any(|(_, range)| covers(range, object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use types::{NOSNAP, PgId};

    fn object(hash: u32, name: &'static str) -> HObject {
        HObject::new(1, hash, Bytes::new(), Bytes::new(), name.into(), NOSNAP)
    }

    #[test]
    fn a_range_blocks_its_own_pg_from_its_begin_to_before_its_end() {
        let (pg, other) = (PgId::new(1, 0), PgId::new(1, 1));
        let (pg, other) = (SPgId::replicated(pg), SPgId::replicated(other));
        let mut b = Backoffs::default();
        assert!(b.block(&pg, 7, object(0, "b"), object(0, "d")));
        for (at, name, want) in [
            (&pg, "a", false),
            (&pg, "b", true),
            (&pg, "c", true),
            (&pg, "d", false),
            (&other, "c", false),
        ] {
            assert_eq!(b.blocks(at, &object(0, name)), want, "{name}");
        }
        assert_eq!(b.unblock(&pg, 8), None);
        assert!(b.unblock(&pg, 7).is_some() && !b.blocks(&pg, &object(0, "c")));
    }

    #[test]
    fn a_range_that_begins_and_ends_at_one_object_is_that_object() {
        let pg = SPgId::replicated(PgId::new(1, 0));
        let mut b = Backoffs::default();
        b.block(&pg, 1, object(0, "b"), object(0, "b"));
        assert!(b.blocks(&pg, &object(0, "b")) && !b.blocks(&pg, &object(0, "c")));
    }
}
