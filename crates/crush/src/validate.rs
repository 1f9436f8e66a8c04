//! What a server checks before it installs a map that somebody sent
//! (docs/protocol/ceph/03-placement.md, end of 9.2).

use crate::edit::DEPTH_MAX;
use crate::map::*;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("rule {rule} takes item {item}, which does not exist")]
    Take { rule: usize, item: i32 },
    #[error("rule {rule} has step {op}, which this release does not run")]
    Step { rule: usize, op: u32 },
    #[error("rule {rule} is of unknown kind {kind}")]
    Kind { rule: usize, kind: u8 },
    #[error("bucket {bucket} holds bucket {item}, which does not exist")]
    Dangling { bucket: i32, item: i32 },
    #[error("bucket {0} lies below itself, or too deep")]
    Cycle(i32),
    #[error("type {kind} of bucket {bucket} has no name")]
    Unnamed { bucket: i32, kind: u16 },
    #[error("device {0} is out of range")]
    Device(i32),
    #[error("tunable {name} is {value}, the limit is {limit}")]
    Tunable {
        name: &'static str,
        value: u64,
        limit: u64,
    },
    #[error("bucket {0} has an item of weight 32768 or more")]
    Weight(i32),
}

/// More retries than this only burn time; the default is 50.
const TRIES_MAX: u32 = 1_000;
/// Devices with ids that an OSD map can hold.
const DEVICE_MAX: i32 = 1 << 16;

impl CrushMap {
    /// Refuses a map that would mislead clients or make mapping slow. Wrong bucket sums are tolerated, since
    /// clients ignore them.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.validate_tunables()?;
        for (rule, r) in self.rules.iter().enumerate() {
            if let Some(r) = r {
                self.validate_rule(rule, r)?;
            }
        }
        for b in self.iter_buckets() {
            self.validate_bucket(b)?;
        }
        for root in self.roots(true) {
            self.validate_depth(root)?;
        }
        // A bucket on a cycle is below no root.
        let mut reached = std::collections::BTreeSet::new();
        let mut todo = self.roots(true);
        while let Some(id) = todo.pop() {
            if reached.insert(id)
                && let Some(b) = self.bucket(id)
            {
                todo.extend(b.items.iter().filter(|i| **i < 0));
            }
        }
        match self.iter_buckets().find(|b| !reached.contains(&b.id)) {
            Some(b) => Err(Invalid::Cycle(b.id)),
            None => Ok(()),
        }
    }

    fn validate_tunables(&self) -> Result<(), Invalid> {
        let t = &self.tunables;
        for (name, value) in [
            ("choose_local_tries", t.choose_local_tries),
            ("choose_local_fallback_tries", t.choose_local_fallback_tries),
            ("choose_total_tries", t.choose_total_tries),
        ] {
            if value > TRIES_MAX {
                return Err(Invalid::Tunable {
                    name,
                    value: u64::from(value),
                    limit: u64::from(TRIES_MAX),
                });
            }
        }
        Ok(())
    }

    fn validate_rule(&self, rule: usize, r: &Rule) -> Result<(), Invalid> {
        if r.kind != RuleKind::Replicated as u8 && r.kind != RuleKind::Erasure as u8 {
            return Err(Invalid::Kind { rule, kind: r.kind });
        }
        for s in &r.steps {
            if step_op::name(s.op).is_none() {
                return Err(Invalid::Step { rule, op: s.op });
            }
            let known = s.op != step_op::TAKE || s.arg1 >= 0 || self.bucket(s.arg1).is_some();
            if !known {
                return Err(Invalid::Take { rule, item: s.arg1 });
            }
        }
        Ok(())
    }

    fn validate_bucket(&self, b: &Bucket) -> Result<(), Invalid> {
        if !self.type_names.contains_key(&i32::from(b.kind)) {
            return Err(Invalid::Unnamed {
                bucket: b.id,
                kind: b.kind,
            });
        }
        for (i, item) in b.items.iter().enumerate() {
            if *item >= DEVICE_MAX {
                return Err(Invalid::Device(*item));
            }
            if *item < 0 && self.bucket(*item).is_none() {
                return Err(Invalid::Dangling {
                    bucket: b.id,
                    item: *item,
                });
            }
            // Weights are signed in the choice; such an item would always win.
            if b.item_weight(i) > i32::MAX as u32 {
                return Err(Invalid::Weight(b.id));
            }
        }
        Ok(())
    }

    /// Longest way down from a root, by levels: each level is the set of buckets one step further down.
    fn validate_depth(&self, root: i32) -> Result<(), Invalid> {
        let mut level = std::collections::BTreeSet::from([root]);
        for _ in 0..DEPTH_MAX {
            level = level
                .iter()
                .filter_map(|id| self.bucket(*id))
                .flat_map(|b| b.items.iter().copied().filter(|i| *i < 0))
                .collect();
            if level.is_empty() {
                return Ok(());
            }
        }
        Err(Invalid::Cycle(root))
    }
}
