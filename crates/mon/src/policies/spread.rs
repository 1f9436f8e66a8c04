//! What a CRUSH rule can choose from: the OSDs below its root, by failure domain.

use crate::policies::near;
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
        let parents = parents(map);
        let parts = parts(map, rule);
        for part in &parts {
            for osd in map.crush.devices_under(part.root) {
                let weighs = map.crush.weight_of(osd).is_some_and(|w| w > 0);
                if map.exists(osd) && map.is_in(osd) && weighs {
                    // Of several parts, one that gives a single copy is a single domain.
                    let domain = match part.count == 1 && parts.len() > 1 {
                        true => part.root,
                        false => domain_of(map, &parents, osd, part.kind),
                    };
                    domains.entry(domain).or_default().push(osd);
                }
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

/// What a rule takes copies from: a `take`, and what follows until it is emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub root: i32,
    /// The type over which it spreads copies.
    pub kind: i32,
    /// As in the rule: so many copies; 0 all of them, below 0 so many fewer.
    pub count: i32,
}

impl Part {
    /// Copies of a pool of `size` that come from here.
    pub fn copies(&self, size: u8) -> u32 {
        match self.count {
            n if n > 0 => n.unsigned_abs(),
            n => u32::from(size).saturating_sub(n.unsigned_abs()),
        }
    }
}

/// The parts of a rule, one for each `take`.
pub fn parts(map: &OsdMap, rule: u32) -> Vec<Part> {
    let Some(rule) = map.crush.rule(rule) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    let mut rest = rule.steps.as_slice();
    while let Some(at) = rest.iter().position(|s| s.op == step_op::TAKE) {
        let (root, behind) = (rest[at].arg1, &rest[at + 1..]);
        let end = behind
            .iter()
            .position(|s| s.op == step_op::TAKE)
            .unwrap_or(behind.len());
        let (kind, count) = domain_type(&behind[..end]);
        out.push(Part { root, kind, count });
        rest = &behind[end..];
    }
    // A rule of one part has to give all copies, however it counts them.
    if let [only] = out.as_mut_slice() {
        only.count = 0;
    }
    out
}

/// The type over which steps spread copies, and how many: of the one that chooses as many as the pool has, else of the
/// last.
fn domain_type(steps: &[crush::Step]) -> (i32, i32) {
    let chooses = |op: u32| {
        matches!(
            op,
            step_op::CHOOSE_FIRSTN
                | step_op::CHOOSE_INDEP
                | step_op::CHOOSELEAF_FIRSTN
                | step_op::CHOOSELEAF_INDEP
        )
    };
    let steps: Vec<_> = steps.iter().filter(|s| chooses(s.op)).collect();
    let all = steps.iter().find(|s| s.arg1 == 0).or(steps.last());
    all.map_or((0, 0), |s| (s.arg2, s.arg1))
}

/// The bucket above each item, shadow trees and second places left out.
fn parents(map: &OsdMap) -> BTreeMap<i32, i32> {
    let second = |id: i32| map.crush.is_shadow(id) || near::is_far(&map.crush, id);
    let real = map.crush.iter_buckets().filter(|b| !second(b.id));
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
