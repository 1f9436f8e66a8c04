//! Disks that are much slower than those they stand beside: what `doctor` and the health check OSD_SLOW_DISK say.
//!
//! A write waits for the slowest of its copies, so one such disk slows down all whose placement groups it shares.
//! Compared are OSDs of one device class: a disk that turns is no fault beside one that does not.

use crate::commands::checks::check::{Check, warn};
use crate::commands::context::Context;
use std::collections::BTreeMap;
use types::OsdId;

/// A disk is slow whose commits take this long, and this many times longer than the others' of its class.
const SLOW_NS: u64 = 10_000_000;
const SLOW_TIMES: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowDisk {
    pub osd: OsdId,
    pub ns: u64,
    /// The median of the others.
    pub others_ns: u64,
}

impl SlowDisk {
    /// `takes 200 ms to commit, the others of class hdd 2.1 ms`
    pub fn text(&self, ctx: &Context<'_>) -> String {
        let ms = |ns: u64| match ns {
            10_000_000.. => format!("{} ms", ns / 1_000_000),
            _ => format!("{:.1} ms", ns as f64 / 1e6),
        };
        let class = ctx.map().crush.class_name_of(self.osd);
        let class = class.map_or(String::new(), |c| format!(" of class {c}"));
        format!(
            "takes {} to commit, the others{class} {}",
            ms(self.ns),
            ms(self.others_ns)
        )
    }
}

/// The slow ones, by their number.
pub fn slow(ctx: &Context<'_>) -> Vec<SlowDisk> {
    let mut classes: BTreeMap<Option<&i32>, Vec<(OsdId, u64)>> = BTreeMap::new();
    let map = ctx.map();
    for (id, report) in &ctx.stats.osds {
        let ns = report.stat.commit_latency_ns;
        // Nothing was written there lately.
        if ns > 0 && map.is_up(*id) {
            classes
                .entry(map.crush.class_of.get(id))
                .or_default()
                .push((*id, ns));
        }
    }
    let mut out: Vec<SlowDisk> = classes.values().flat_map(|osds| slow_of(osds)).collect();
    out.sort_by_key(|d| d.osd);
    out
}

fn slow_of(osds: &[(OsdId, u64)]) -> Vec<SlowDisk> {
    let judge = |(id, ns): &(OsdId, u64)| {
        let mut others: Vec<u64> = osds.iter().filter(|(o, _)| o != id).map(|(_, ns)| *ns).collect();
        others.sort_unstable();
        let others_ns = *others.get(others.len().saturating_sub(1) / 2)?;
        let slow = *ns >= SLOW_NS && *ns >= others_ns.saturating_mul(SLOW_TIMES);
        slow.then_some(SlowDisk {
            osd: *id,
            ns: *ns,
            others_ns,
        })
    };
    osds.iter().filter_map(judge).collect()
}

/// Skep's own check: the real one has none for it.
pub fn health(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let slow = slow(ctx);
    if slow.is_empty() {
        return;
    }
    let detail = slow
        .iter()
        .map(|d| format!("osd.{} on host {} {}", d.osd, ctx.osd_host(d.osd), d.text(ctx)));
    let n = slow.len();
    found.push(warn(
        "OSD_SLOW_DISK",
        format!("{n} osds have a disk much slower than the others"),
        n as u64,
        detail.collect(),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_is_what_others_are_not() {
        let check = |ms: &[u64], want: &[(OsdId, u64)]| {
            let osds: Vec<(OsdId, u64)> = ms
                .iter()
                .enumerate()
                .map(|(i, ms)| (i as OsdId, ms * 1_000_000))
                .collect();
            let have: Vec<(OsdId, u64)> = slow_of(&osds)
                .iter()
                .map(|d| (d.osd, d.others_ns / 1_000_000))
                .collect();
            assert_eq!(have, want, "{ms:?}");
        };
        check(&[2, 3, 2], &[]);
        check(&[2, 3, 30], &[(2, 2)]);
        // Ten times, but nobody feels it.
        check(&[0, 0, 9], &[]);
        // All alike: that is how these disks are.
        check(&[80, 90, 100], &[]);
        // Of two one can be told from the other; alone there is nothing to compare with.
        check(&[4, 40], &[(1, 4)]);
        check(&[400], &[]);
    }
}
