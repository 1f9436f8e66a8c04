//! Objects to placement groups, placement groups to OSDs (docs/protocol/ceph/03-placement.md, sections 4 and 6).
//!
//! Replicated pools drop OSDs that do not exist or are down from a set; erasure pools keep positions and put a
//! hole ([`crush::ITEM_NONE`]) there.

use super::{AFFINITY_DEFAULT, OsdMap, WEIGHT_OUT};
use crate::pool::PgPool;
use crate::{OsdId, PgId, PoolId};
use crush::ITEM_NONE;

/// Where a placement group is; primaries are -1 where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpActing {
    pub up: Vec<OsdId>,
    pub up_primary: OsdId,
    pub acting: Vec<OsdId>,
    pub acting_primary: OsdId,
}

/// As [`UpActing`], with the raw set that it came from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    pub raw: Vec<OsdId>,
    pub raw_primary: OsdId,
    pub sets: UpActing,
}

impl OsdMap {
    /// The 32-bit hash of an object (which goes into operations and listings), and the PG that holds it.
    pub fn object_to_pg(&self, pool: PoolId, nspace: &[u8], key: &[u8], oid: &[u8]) -> Option<(u32, PgId)> {
        let p = self.pool(pool)?;
        let raw = p.object_to_raw(nspace, key, oid);
        Some((raw, PgId::new(pool, p.raw_to_pg(raw))))
    }

    /// The PG for a raw placement (pool, hash); `None` without the pool.
    pub fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId> {
        Some(PgId::new(raw.pool, self.pool(raw.pool)?.raw_to_pg(raw.seed)))
    }

    /// Up and acting sets with their primaries. A pool that does not exist has empty ones and no primaries.
    pub fn pg_to_up_acting(&self, pg: PgId) -> UpActing {
        self.pg_mapping(pg).sets
    }

    /// The acting primary alone: whom a client sends to.
    pub fn acting_primary(&self, pg: PgId) -> Option<OsdId> {
        let primary = self.pg_to_up_acting(pg).acting_primary;
        (primary >= 0).then_some(primary)
    }

    pub fn pg_mapping(&self, raw_pg: PgId) -> Mapping {
        let Some(pool) = self.pool(raw_pg.pool) else {
            return Mapping {
                raw_primary: -1,
                sets: UpActing {
                    up_primary: -1,
                    acting_primary: -1,
                    ..UpActing::default()
                },
                ..Mapping::default()
            };
        };
        let pg = PgId::new(raw_pg.pool, pool.raw_to_pg(raw_pg.seed));
        let pps = pool.raw_to_pps(raw_pg.pool, raw_pg.seed);
        let raw = self.raw_set(pool, pg.pool, pps);
        let raw_primary = pick_primary(&raw);
        let mut up = raw.clone();
        self.apply_upmap(&mut up, pg);
        self.keep(&mut up, pool, |id| self.is_up(id));
        let mut up_primary = pick_primary(&up);
        self.apply_affinity(&mut up, &mut up_primary, pool, pps);
        let (temp, temp_primary) = self.temp_set(pool, pg);
        let (acting, acting_primary) = if temp.is_empty() {
            let primary = if temp_primary == -1 {
                up_primary
            } else {
                temp_primary
            };
            (up.clone(), primary)
        } else {
            (temp, temp_primary)
        };
        Mapping {
            raw,
            raw_primary,
            sets: UpActing {
                up,
                up_primary,
                acting,
                acting_primary,
            },
        }
    }

    /// What CRUSH says, less OSDs that do not exist.
    fn raw_set(&self, pool: &PgPool, id: PoolId, pps: u32) -> Vec<OsdId> {
        let rule = u32::from(pool.crush_rule);
        let mut raw = self
            .crush
            .do_rule(rule, pps, usize::from(pool.size), &self.osd_weight, id);
        self.keep(&mut raw, pool, |o| self.exists(o));
        raw
    }

    /// Drops (replicated) or blanks (erasure) the OSDs that fail the test.
    fn keep(&self, set: &mut Vec<OsdId>, pool: &PgPool, good: impl Fn(OsdId) -> bool) {
        if pool.is_erasure() {
            for o in set.iter_mut().filter(|o| !good(**o)) {
                *o = ITEM_NONE;
            }
        } else {
            set.retain(|o| good(*o));
        }
    }

    /// A valid id whose OSD is out: such an override is not followed.
    fn is_known_out(&self, id: OsdId) -> bool {
        id != ITEM_NONE && (0..self.max_osd()).contains(&id) && self.weight(id) == WEIGHT_OUT
    }

    fn apply_upmap(&self, set: &mut Vec<OsdId>, pg: PgId) {
        if let Some(target) = self.pg_upmap.get(&pg) {
            if target.iter().any(|o| self.is_known_out(*o)) {
                return; // and the single replacements are not applied either
            }
            set.clone_from(target);
        }
        for (from, to) in self.pg_upmap_items.get(&pg).into_iter().flatten() {
            if set.contains(to) || self.is_known_out(*to) {
                continue;
            }
            if let Some(at) = set.iter().position(|o| o == from) {
                set[at] = *to;
            }
        }
        if let Some(primary) = self.pg_upmap_primaries.get(&pg)
            && (0..self.max_osd()).contains(primary)
            && self.weight(*primary) != WEIGHT_OUT
            && let Some(at) = set.iter().position(|o| o == primary)
        {
            set.swap(0, at);
        }
    }

    fn apply_affinity(&self, up: &mut [OsdId], primary: &mut OsdId, pool: &PgPool, pps: u32) {
        let ordinary = |o: &OsdId| *o == ITEM_NONE || self.affinity(*o) == AFFINITY_DEFAULT;
        if self.primary_affinity.is_empty() || up.iter().all(ordinary) {
            return;
        }
        let mut fallback = None;
        let mut chosen = None;
        for (at, o) in up.iter().enumerate().filter(|(_, o)| **o != ITEM_NONE) {
            let a = self.affinity(*o);
            if a < AFFINITY_DEFAULT && crush::hash2(pps, *o as u32) >> 16 >= a {
                fallback = fallback.or(Some(at));
            } else {
                chosen = Some(at);
                break;
            }
        }
        if let Some(at) = chosen.or(fallback) {
            *primary = up[at];
            if !pool.is_erasure() {
                up[..=at].rotate_right(1);
            }
        }
    }

    /// The temporary set and its primary, -1 if there is none.
    fn temp_set(&self, pool: &PgPool, pg: PgId) -> (Vec<OsdId>, OsdId) {
        let mut temp = self.pg_temp.get(&pg).cloned().unwrap_or_default();
        self.keep(&mut temp, pool, |o| self.is_up(o));
        let primary = match self.primary_temp.get(&pg) {
            Some(p) => *p,
            None => pick_primary(&temp),
        };
        (temp, primary)
    }
}

fn pick_primary(set: &[OsdId]) -> OsdId {
    set.iter().find(|o| **o != ITEM_NONE).copied().unwrap_or(-1)
}
