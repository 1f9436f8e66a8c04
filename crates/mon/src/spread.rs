//! What a CRUSH rule can choose from: the OSDs below its root, by failure domain.

use crush::step_op;
use std::collections::BTreeMap;
use types::OsdId;
use types::osdmap::OsdMap;

/// OSDs that a rule may choose (they exist, are in, and have a weight) by failure domain: the id of a bucket, or of the
/// OSD itself where the domain is the OSD.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spread {
    pub domains: BTreeMap<i32, Vec<OsdId>>,
}

impl Spread {
    pub fn of(map: &OsdMap, rule: u32) -> Self {
        let mut domains: BTreeMap<i32, Vec<OsdId>> = BTreeMap::new();
        let Some(root) = map.crush.rule_root(rule) else {
            return Self::default();
        };
        let kind = domain_type(map, rule);
        let parents = parents(map);
        for osd in map.crush.devices_under(root) {
            let weighs = map.crush.weight_of(osd).is_some_and(|w| w > 0);
            if map.exists(osd) && map.is_in(osd) && weighs {
                let domain = domain_of(map, &parents, osd, kind);
                domains.entry(domain).or_default().push(osd);
            }
        }
        Self { domains }
    }

    pub fn without(mut self, osd: OsdId) -> Self {
        self.domains.values_mut().for_each(|d| d.retain(|o| *o != osd));
        self.domains.retain(|_, d| !d.is_empty());
        self
    }

    pub fn domain_of(&self, osd: OsdId) -> Option<i32> {
        self.domains
            .iter()
            .find(|(_, d)| d.contains(&osd))
            .map(|(id, _)| *id)
    }

    pub fn osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.domains.values().flatten().copied()
    }
}

/// The type over which a rule spreads copies: of the step that chooses as many as the pool has, else of the last.
fn domain_type(map: &OsdMap, rule: u32) -> i32 {
    let Some(rule) = map.crush.rule(rule) else {
        return 0;
    };
    let chooses = |op: u32| {
        matches!(
            op,
            step_op::CHOOSE_FIRSTN
                | step_op::CHOOSE_INDEP
                | step_op::CHOOSELEAF_FIRSTN
                | step_op::CHOOSELEAF_INDEP
        )
    };
    let steps: Vec<_> = rule.steps.iter().filter(|s| chooses(s.op)).collect();
    let all = steps.iter().find(|s| s.arg1 == 0).or(steps.last());
    all.map_or(0, |s| s.arg2)
}

/// The bucket above each item, shadow trees left out.
fn parents(map: &OsdMap) -> BTreeMap<i32, i32> {
    let real = map.crush.iter_buckets().filter(|b| !map.crush.is_shadow(b.id));
    real.flat_map(|b| b.items.iter().map(|i| (*i, b.id))).collect()
}

fn domain_of(map: &OsdMap, parents: &BTreeMap<i32, i32>, osd: OsdId, kind: i32) -> i32 {
    let mut at = osd;
    // Never deeper than there are buckets, even if a client's map holds a cycle.
    for _ in 0..=parents.len() {
        if map.crush.item_type(at) == Some(kind) {
            return at;
        }
        match parents.get(&at) {
            Some(up) => at = *up,
            None => break,
        }
    }
    // No such bucket above it: a domain of its own.
    osd
}
