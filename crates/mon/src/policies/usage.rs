//! How full the cluster is: sums over the OSDs' reports, and what can still be written to a pool.

use crate::policies::spread::{Part, parts};
use cluster::{ClusterState, ClusterStats};
use std::collections::BTreeMap;
use types::{OsdId, PoolId};

/// Raw capacity of the OSDs that report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawUsage {
    pub total: u64,
    pub available: u64,
    /// Total less available.
    pub used: u64,
    /// Logical objects over all pools, clones included as Ceph does.
    pub objects: u64,
}

pub fn raw(state: &ClusterState, stats: &ClusterStats) -> RawUsage {
    let mut sum = RawUsage::default();
    for report in stats.osds.values() {
        let s = &report.stat.statfs;
        sum.total += s.total.max(0) as u64;
        sum.available += s.available.max(0) as u64;
    }
    sum.used = sum.total.saturating_sub(sum.available);
    sum.objects = state
        .osdmap
        .pools
        .keys()
        .map(|p| stats.pool_sum(*p).num_objects.max(0) as u64)
        .sum();
    sum
}

/// Bytes that can still be written to a pool: until the first OSD that its rule uses reaches the full ratio,
/// if data arrives in proportion to the CRUSH weights.
pub fn pool_max_avail(state: &ClusterState, stats: &ClusterStats, id: PoolId) -> u64 {
    let Some(pool) = state.osdmap.pool(id) else {
        return 0;
    };
    // What its rule takes copies from; each part must have room for its copies.
    let parts = parts(&state.osdmap, u32::from(pool.crush_rule));
    // Of k data shards each one takes a k-th.
    let each = u64::from(state.osdmap.enough(pool));
    let of = |part: &Part| {
        let copies = u64::from(part.copies(pool.size).max(1));
        part_max_avail(state, stats, part.root).saturating_mul(each) / copies
    };
    parts
        .iter()
        .filter(|p| p.copies(pool.size) > 0)
        .map(of)
        .min()
        .unwrap_or(0)
}

/// Bytes that can be written to the OSDs below a bucket.
fn part_max_avail(state: &ClusterState, stats: &ClusterStats, root: i32) -> u64 {
    let weights = weights_below(state, root);
    let all: f64 = weights.values().sum();
    let full_ratio = f64::from(state.osdmap.full_ratio);
    let mut min: Option<f64> = None;
    for (osd, weight) in weights {
        let Some(report) = stats.osds.get(&osd) else {
            continue;
        };
        let s = &report.stat.statfs;
        let spare = s.total as f64 * (1.0 - full_ratio);
        let avail = (s.available as f64 - spare).max(0.0);
        let projected = avail * all / weight;
        min = Some(min.map_or(projected, |m: f64| m.min(projected)));
    }
    min.unwrap_or(0.0) as u64
}

/// The OSDs below a bucket with their weights (CRUSH times reweight), without those at 0.
fn weights_below(state: &ClusterState, root: i32) -> BTreeMap<OsdId, f64> {
    let map = &*state.osdmap;
    let mut out = BTreeMap::new();
    let mut todo = vec![root];
    // A map decoded from a client may hold a cycle: no more steps than there are buckets.
    let mut steps = map.crush.iter_buckets().count() + 1;
    while let Some(id) = todo.pop() {
        let Some(bucket) = map.crush.bucket(id) else {
            continue;
        };
        let Some(left) = steps.checked_sub(1) else {
            break;
        };
        steps = left;
        for (at, item) in bucket.items.iter().enumerate() {
            if *item < 0 {
                todo.push(*item);
                continue;
            }
            let weight = f64::from(bucket.item_weight(at)) * f64::from(map.weight(*item));
            if weight > 0.0 {
                out.insert(*item, weight);
            }
        }
    }
    out
}
