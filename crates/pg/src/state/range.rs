//! The part of a pool's objects that a PG holds, as a range of bit-reversed hashes
//! (docs/protocol/ceph/04-osd.md, 13.2).

use types::{HObject, NOSNAP, PgId, PoolId, SPgId};

/// The PG of a hash: Ceph's stable modulo, under which growing `pg_num` splits PGs and mixes none.
pub fn seed_of(hash: u32, pg_num: u32) -> u32 {
    let mask = pg_num.max(1).next_power_of_two() - 1;
    let low = hash & mask;
    if low < pg_num { low } else { hash & (mask >> 1) }
}

/// Reversed hashes `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashRange {
    pub start: u64,
    pub end: u64,
}

impl HashRange {
    pub fn of(seed: u32, pg_num: u32) -> Self {
        let pg_num = pg_num.max(1);
        let mut bits = pg_num.next_power_of_two().trailing_zeros();
        // Its sibling by the top bit does not exist yet: this PG holds both halves.
        if bits > 0 && seed < 1 << (bits - 1) && seed + (1 << (bits - 1)) >= pg_num {
            bits -= 1;
        }
        let start = u64::from(seed.reverse_bits());
        Self {
            start,
            end: start + (1 << (32 - bits)),
        }
    }

    pub fn contains(&self, hash: u32) -> bool {
        (self.start..self.end).contains(&u64::from(hash.reverse_bits()))
    }

    /// The cursor at the beginning of the next PG, in the order of reversed hashes.
    pub fn end_cursor(&self, pool: PoolId) -> HObject {
        match u32::try_from(self.end) {
            Ok(end) => cursor(pool, end.reverse_bits()),
            Err(_) => HObject::max(),
        }
    }

    pub fn start_cursor(&self, pool: PoolId) -> HObject {
        cursor(pool, (self.start as u32).reverse_bits())
    }
}

/// Before every object of this hash.
fn cursor(pool: PoolId, hash: u32) -> HObject {
    HObject {
        pool,
        hash,
        snap: NOSNAP,
        ..HObject::min()
    }
}

/// The place directly behind an object in the order of objects.
pub(crate) fn behind(o: &HObject) -> HObject {
    o.with_snap(o.snap.saturating_add(1))
}

/// The PGs out of which one may have been split, the nearest first: its seed with top bits cleared.
pub fn ancestors(id: SPgId) -> impl Iterator<Item = SPgId> {
    let mut seed = id.pg.seed;
    std::iter::from_fn(move || {
        if seed == 0 {
            return None;
        }
        seed &= !(1 << seed.ilog2());
        Some(SPgId {
            pg: PgId::new(id.pg.pool, seed),
            shard: id.shard,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hash_is_in_the_range_of_its_pg_alone() {
        for pg_num in [1, 2, 3, 4, 5, 8, 11, 12, 16] {
            let ranges: Vec<_> = (0..pg_num).map(|p| HashRange::of(p, pg_num)).collect();
            assert_eq!(ranges.iter().map(|r| r.end - r.start).sum::<u64>(), 1 << 32);
            for n in 0u32..4096 {
                let hash = n.wrapping_mul(2_654_435_761);
                let seed = seed_of(hash, pg_num);
                for (p, r) in ranges.iter().enumerate() {
                    assert_eq!(r.contains(hash), p as u32 == seed, "{hash:x} in {p} of {pg_num}");
                }
            }
        }
    }

    #[test]
    fn the_cursors_lead_from_pg_to_pg() {
        let check = |seed, want: Option<u32>| {
            let c = HashRange::of(seed, 4).end_cursor(1);
            assert_eq!((!c.max).then_some(c.hash), want, "after {seed}");
        };
        check(0, Some(2));
        check(2, Some(1));
        check(1, Some(3));
        check(3, None);
    }

    #[test]
    fn ancestors_lose_their_top_bits() {
        let check = |seed, want: &[u32]| {
            let id = SPgId::replicated(PgId::new(1, seed));
            assert_eq!(ancestors(id).map(|a| a.pg.seed).collect::<Vec<_>>(), want);
        };
        check(13, &[5, 1, 0]);
        check(1, &[0]);
        check(0, &[]);
    }
}
