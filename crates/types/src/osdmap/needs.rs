//! What a map demands of its clients (docs/protocol/ceph/03-placement.md, 1.4): a client without one of these features
//! would compute other placements, so the monitor must refuse it.

use super::{AFFINITY_DEFAULT, OsdMap};
use crate::pool::pool_flag;
use crate::release::feature;
use crush::{Alg, CrushMap, step_op};

/// Feature bits and the first release whose clients have them, the newest first.
const RELEASES: [(u64, u8); 5] = [
    (feature::CRUSH_CHOOSE_ARGS, 12),
    (feature::CRUSH_TUNABLES5, 10),
    (feature::CRUSH_V4, 8),
    (feature::CRUSH_TUNABLES3, 6),
    (feature::OSDHASHPSPOOL, 4),
];

/// The features that a CRUSH map needs.
fn crush_features(map: &CrushMap) -> u64 {
    let t = &map.tunables;
    let mut need = 0;
    if (
        t.choose_local_tries,
        t.choose_local_fallback_tries,
        t.choose_total_tries,
    ) != (2, 5, 19)
    {
        need |= feature::CRUSH_TUNABLES;
    }
    if t.chooseleaf_descend_once != 0 {
        need |= feature::CRUSH_TUNABLES2;
    }
    if t.chooseleaf_vary_r != 0 {
        need |= feature::CRUSH_TUNABLES3;
    }
    let sets_stable = map
        .rules
        .iter()
        .flatten()
        .flat_map(|r| &r.steps)
        .any(|s| s.op == step_op::SET_CHOOSELEAF_STABLE);
    if t.chooseleaf_stable != 0 || sets_stable {
        need |= feature::CRUSH_TUNABLES5;
    }
    if map.iter_buckets().any(|b| b.alg() == Alg::Straw2) {
        need |= feature::CRUSH_V4;
    }
    if map
        .choose_args
        .values()
        .flat_map(|a| a.by_slot.values())
        .any(|a| a.weight_set.len() > 1 || !a.ids.is_empty())
    {
        need |= feature::CRUSH_CHOOSE_ARGS;
    }
    need
}

impl OsdMap {
    /// The connection features that every client of this map must have.
    pub fn required_features(&self) -> u64 {
        let mut need = crush_features(&self.crush);
        if self.pools.values().any(|p| p.has(pool_flag::HASHPSPOOL)) {
            need |= feature::OSDHASHPSPOOL;
        }
        if self.primary_affinity.iter().any(|a| *a != AFFINITY_DEFAULT) {
            need |= feature::OSD_PRIMARY_AFFINITY;
        }
        let upmaps = [
            self.pg_upmap.is_empty(),
            self.pg_upmap_items.is_empty(),
            self.pg_upmap_primaries.is_empty(),
        ];
        if upmaps.contains(&false) {
            need |= feature::SERVER_LUMINOUS;
        }
        need
    }

    /// The oldest release whose clients can follow this map; 1 if any can.
    pub fn min_compat_client(&self) -> u8 {
        let need = self.required_features();
        RELEASES
            .iter()
            .find(|(bits, _)| need & bits == *bits)
            .map_or(1, |(_, release)| *release)
    }
}
