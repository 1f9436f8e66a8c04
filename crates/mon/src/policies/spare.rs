//! OSDs that live in what their hosts can spare: how much data each takes follows how much room its host has.
//!
//! What changes is the override weight (`ceph osd reweight`, 0 to 1); the CRUSH weight, which says what the OSD could hold
//! when it was made, stays the operator's. Data then moves off by recovery, and the store gives the space back.
//!
//! Invariants: only OSDs that report their spare space, and that are up and in. A weight is a whole multiple of [`STEP`],
//! never below one step (it would be out, which is the operator's to say). It falls when a step of room is missing, and
//! rises when there are two more than it asks for, or all: so what one move changes does not call for the next.

use crate::format::units;
use cluster::{ClusterStats, OsdReport, SpareSpace};
use std::sync::Arc;
use types::OsdId;
use types::osdmap::OsdMap;

/// Weight 1.0.
const WHOLE: u32 = 0x1_0000;
/// Smallest change, and smallest weight.
const STEP: f64 = 0.05;
/// CRUSH weight 1.0 stands for so many bytes.
const BYTES_PER_WEIGHT: f64 = (1u64 << 40) as f64;
/// CRUSH weights are whole thousandths: half of one may be missing.
const WEIGHT_SLACK: f64 = 0.0005;

/// An OSD whose weight should be another one.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub osd: OsdId,
    pub weight: u32,
    pub text: String,
}

/// What the CRUSH weight of an OSD stands for, in bytes.
fn meant(map: &OsdMap, osd: OsdId) -> f64 {
    let weight = f64::from(map.crush.weight_of(osd).unwrap_or(0)) / f64::from(WHOLE);
    (weight - WEIGHT_SLACK).max(0.0) * BYTES_PER_WEIGHT
}

/// The OSDs that live in spare space and take data.
pub fn spared<'a>(
    map: &'a OsdMap,
    stats: &'a ClusterStats,
) -> impl Iterator<Item = (OsdId, SpareSpace, f64)> + 'a {
    let takes = |id: OsdId| map.is_up(id) && map.is_in(id) && meant(map, id) > 0.0;
    let of = move |(id, report): (&OsdId, &Arc<OsdReport>)| {
        let spare = report.spare.filter(|_| takes(*id))?;
        Some((*id, spare, spare.usable as f64 / meant(map, *id)))
    };
    stats.osds.iter().filter_map(of)
}

/// The weights that follow from the reports.
pub fn due(map: &OsdMap, stats: &ClusterStats) -> Vec<Change> {
    let change = |(osd, spare, share): (OsdId, SpareSpace, f64)| {
        let now = f64::from(map.weight(osd)) / f64::from(WHOLE);
        let weight = wanted(now, share)?;
        let text = format!(
            "osd.{osd} may use {} of its host's file system: its weight goes from {now:.2} to {weight:.2}",
            units::bytes(spare.usable)
        );
        Some(Change {
            osd,
            weight: (weight * f64::from(WHOLE)).round() as u32,
            text,
        })
    };
    spared(map, stats).filter_map(change).collect()
}

/// The weight for a share of the room that was meant, where it should change.
fn wanted(now: f64, share: f64) -> Option<f64> {
    let steps = |x: f64| ((x / STEP + 1e-6).floor() * STEP).clamp(STEP, 1.0);
    // The index and what else grows beside the data is no reason to stay below.
    let whole = share >= 1.0 - STEP / 2.0;
    let fits = if whole { 1.0 } else { steps(share) };
    let lower = share < now - STEP;
    let higher = now < 1.0 - STEP / 2.0 && (whole || share >= now + 2.0 * STEP);
    (lower || higher)
        .then_some(fits)
        .filter(|w| (w - now).abs() > STEP / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sample::Cluster;

    #[test]
    fn weights_follow_room_with_steps() {
        for (now, share, want) in [
            (1.0, 1.2, None),
            (1.0, 0.97, None),
            (1.0, 0.94, Some(0.90)),
            (1.0, 0.52, Some(0.50)),
            (0.5, 0.52, None),
            (0.5, 0.59, None),
            (0.5, 0.61, Some(0.60)),
            (0.5, 0.49, None),
            (0.5, 0.44, Some(0.40)),
            (0.95, 0.97, None),
            (0.95, 0.98, Some(1.0)),
            (0.95, 1.0, Some(1.0)),
            (0.3, 0.0, Some(0.05)),
            (0.05, 0.0, None),
            (0.05, 2.0, Some(1.0)),
        ] {
            let got = wanted(now, share);
            let near = |a: Option<f64>, b: Option<f64>| a.zip(b).is_none_or(|(a, b)| (a - b).abs() < 1e-6);
            assert!(
                got.is_some() == want.is_some() && near(got, want),
                "{now} {share}: {got:?}"
            );
        }
        // Wherever it begins: after one change there is rest.
        for now in 1..=20 {
            for share in 0..150 {
                let (now, share) = (f64::from(now) * STEP, f64::from(share) / 100.0);
                if let Some(next) = wanted(now, share) {
                    assert_eq!(wanted(next, share), None, "{now} {share} {next}");
                }
            }
        }
    }

    #[test]
    fn only_those_that_say_so_and_take_data() {
        let mut c = Cluster::new();
        assert!(due(&c.state.osdmap, &c.stats).is_empty());
        // 4 GiB were meant for each.
        let spare = |usable: u64| SpareSpace {
            usable,
            reserve: 1 << 30,
            host_free: 1 << 29,
        };
        c.spare(0, spare(2 << 30));
        c.spare(1, spare(4 << 30));
        let due_now = due(&c.state.osdmap, &c.stats);
        assert_eq!(due_now.len(), 1, "{due_now:?}");
        let share = f64::from(due_now[0].weight) / f64::from(WHOLE);
        assert!(due_now[0].osd == 0 && (0.45..0.6).contains(&share), "{due_now:?}");
        let out = c.run(r#"{"prefix":"osd out","ids":["0"]}"#, b"");
        assert_eq!(out.code, 0);
        c.spare(0, spare(2 << 30));
        assert!(due(&c.state.osdmap, &c.stats).is_empty());
    }
}
