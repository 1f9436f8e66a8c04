//! How uneven the cluster is, for people (`balancer eval`): a pure function of where groups are and what they hold.
//!
//! Not here: what is moved (`balance`), which looks at each OSD's fill.

use crate::policies::balance::Reach;
use crate::policies::survey::Survey;
use std::collections::{BTreeMap, BTreeSet};
use types::osdmap::OsdMap;
use types::{OsdId, PoolId};

/// Which part of what lies under a rule each OSD should hold, by weight.
fn shares(map: &OsdMap, rule: u8) -> Vec<(OsdId, f64)> {
    let weight = |o: OsdId| f64::from(map.crush.weight_of(o).unwrap_or(0)) * f64::from(map.weight(o));
    let reach = Reach::of(map, u32::from(rule));
    let weights: Vec<(OsdId, f64)> = reach.domain.keys().map(|o| (*o, weight(*o))).collect();
    let sum: f64 = weights.iter().map(|(_, w)| w).sum();
    let part = |w: f64| if sum > 0.0 { w / sum } else { 0.0 };
    weights.into_iter().map(|(o, w)| (o, part(w))).collect()
}

/// How uneven it is, for people: which part of what there is lies on OSDs that hold more than they should. 0 is even.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Score {
    pub pgs: f64,
    pub objects: f64,
    pub bytes: f64,
    /// By OSD: groups, objects, bytes; and which part of each it should hold.
    pub osds: BTreeMap<OsdId, ([u64; 3], f64)>,
}

impl Score {
    /// Of all pools, or some.
    pub fn of(map: &OsdMap, survey: &Survey, pools: Option<&BTreeSet<PoolId>>) -> Self {
        let mut out = Self::default();
        // Of all copies under a rule: thousands of groups share few rules, and what they hold is spread over OSDs once.
        let mut by_rule: BTreeMap<u8, [u64; 3]> = BTreeMap::new();
        for (pg, g) in &survey.groups {
            let Some(pool) = map.pool(pg.pool) else { continue };
            if pools.is_some_and(|p| !p.contains(&pg.pool)) {
                continue;
            }
            let one = [1, g.objects, g.bytes];
            let copies = by_rule.entry(pool.crush_rule).or_default();
            for osd in &g.up {
                let held = &mut out.osds.entry(*osd).or_default().0;
                (0..3).for_each(|i| held[i] += one[i]);
                (0..3).for_each(|i| copies[i] += one[i]);
            }
        }
        let mut should: BTreeMap<OsdId, [f64; 3]> = BTreeMap::new();
        let mut all = [0.0; 3];
        for (rule, copies) in by_rule {
            let copies = copies.map(|n| n as f64);
            (0..3).for_each(|i| all[i] += copies[i]);
            for (osd, part) in shares(map, rule) {
                let s = should.entry(osd).or_default();
                (0..3).for_each(|i| s[i] += copies[i] * part);
            }
        }
        let mut over = [0.0; 3];
        for (osd, s) in should {
            let held = out.osds.entry(osd).or_default();
            held.1 = if all[0] > 0.0 { s[0] / all[0] } else { 0.0 };
            (0..3).for_each(|i| over[i] += (held.0[i] as f64 - s[i]).max(0.0));
        }
        let part = |i: usize| if all[i] > 0.0 { over[i] / all[i] } else { 0.0 };
        (out.pgs, out.objects, out.bytes) = (part(0), part(1), part(2));
        out
    }

    /// One number: bytes count, and groups where there are no bytes.
    pub fn total(&self) -> f64 {
        let any = self.osds.values().any(|(held, _)| held[2] > 0);
        if any { self.bytes } else { self.pgs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sample::Cluster;
    use crate::policies::survey::Group;
    use types::PgId;

    /// Two pools under two rules, one of them with fewer OSDs, and one OSD that weighs less.
    #[test]
    fn shares_are_summed_by_rule() {
        let mut c = Cluster::with_osds(4);
        for command in [
            r#"{"prefix":"osd crush rm-device-class","ids":["3"]}"#,
            r#"{"prefix":"osd crush set-device-class","class":"ssd","ids":["3"]}"#,
            r#"{"prefix":"osd crush rule create-replicated","name":"hdds","root":"default","type":"osd","class":"hdd"}"#,
            r#"{"prefix":"osd pool create","pool":"a","pg_num":4,"size":1}"#,
            r#"{"prefix":"osd pool create","pool":"b","pg_num":8,"size":2,"rule":"hdds"}"#,
            r#"{"prefix":"osd reweight","id":1,"weight":0.5}"#,
        ] {
            let out = c.run(command, b"");
            assert_eq!(out.code, 0, "{command}: {}", out.status);
        }
        let map = &*c.state.osdmap;
        let of = |name: &str| map.pool_by_name(name).unwrap();
        let mut survey = Survey::default();
        let mut add = |pool, seed, up: &[OsdId], objects, bytes| {
            let group = Group {
                up: up.to_vec(),
                objects,
                bytes,
                clean: true,
            };
            survey.groups.insert(PgId::new(pool, seed), group);
        };
        add(of("a"), 0, &[3], 1, 700);
        add(of("a"), 1, &[0], 1, 0);
        add(of("b"), 0, &[0, 1], 2, 200);
        add(of("b"), 1, &[0, 2], 2, 50);
        let score = Score::of(map, &survey, None);
        assert_eq!(score.osds[&0].0, [3, 5, 250]);
        assert_eq!(score.osds[&1].0, [1, 2, 200]);
        assert_eq!(score.osds[&2].0, [1, 2, 50]);
        assert_eq!(score.osds[&3].0, [1, 1, 700]);
        // Of pool a's 700 bytes and 2 groups by 1, 1/2, 1, 1; of pool b's 500 bytes and 4 copies by 1, 1/2, 1.
        let part = |osd, of: f64| assert!((score.osds[&osd].1 - of / 6.0).abs() < 1e-9, "{score:?}");
        part(0, 2.0 / 3.5 + 4.0 / 2.5);
        part(1, 1.0 / 3.5 + 2.0 / 2.5);
        part(2, 2.0 / 3.5 + 4.0 / 2.5);
        part(3, 2.0 / 3.5);
        let too_much = 700.0 - 200.0;
        assert!((score.bytes - too_much / 1200.0).abs() < 1e-9, "{score:?}");
        let only = BTreeSet::from([of("a")]);
        let score = Score::of(map, &survey, Some(&only));
        assert_eq!(
            score.osds[&2],
            ([0, 0, 0], 1.0 / 3.5),
            "an OSD that holds nothing is listed, too"
        );
    }
}
