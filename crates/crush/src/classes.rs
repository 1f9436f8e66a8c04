//! Device classes and their shadow trees (docs/protocol/ceph/03-placement.md, 5.1).
//!
//! For each real root and each class there is a copy of the tree with only the devices of that class, so that
//! a rule can take it. Shadows are derived: every edit drops and rebuilds them, keeping the ids they had, since
//! rules refer to those.

use crate::edit::DEPTH_MAX;
use crate::map::*;
use std::collections::{BTreeMap, BTreeSet};

/// Between a bucket's name and the class in the name of its shadow (`default~ssd`).
pub const SHADOW_SEPARATOR: char = '~';

/// Bucket -> class -> shadow bucket.
pub(crate) type ShadowIds = BTreeMap<i32, BTreeMap<i32, i32>>;

impl CrushMap {
    /// The id of a class by name; a new class gets the highest id plus one.
    pub(crate) fn class_or_new(&mut self, name: &str) -> i32 {
        if let Some(id) = self.class_id(name) {
            return id;
        }
        let id = self
            .class_names
            .keys()
            .next_back()
            .map_or(0, |k| k.wrapping_add(1));
        self.class_names.insert(id, name.to_string());
        id
    }

    /// Forgets the shadows of one bucket, before the bucket itself goes.
    pub(crate) fn drop_shadows_of(&mut self, id: i32) {
        for shadow in self.shadows.remove(&id).into_iter().flat_map(|m| m.into_values()) {
            self.drop_shadow(shadow);
        }
    }

    fn drop_shadow(&mut self, id: i32) {
        let Some(slot) = bucket_slot(id) else { return };
        if let Some(s) = self.buckets.get_mut(slot) {
            *s = None;
        }
        self.item_names.remove(&id);
        self.class_of.remove(&id);
        self.choose_args.values_mut().for_each(|a| {
            a.by_slot.remove(&(slot as u32));
        });
    }

    /// Classes that no device has: made by hand, for later.
    pub(crate) fn unused_classes(&self) -> BTreeSet<i32> {
        let used = |id: &i32| {
            self.class_of
                .iter()
                .any(|(item, class)| *item >= 0 && class == id)
        };
        self.class_names.keys().copied().filter(|id| !used(id)).collect()
    }

    /// Makes all shadow trees anew. Classes that no device has any more and no rule takes disappear; those of `kept`
    /// stay.
    pub(crate) fn rebuild_classes(&mut self, kept: &BTreeSet<i32>) {
        if self.class_names.is_empty() && self.shadows.is_empty() {
            return;
        }
        let old = std::mem::take(&mut self.shadows);
        let taken: BTreeSet<i32> = self
            .rules
            .iter()
            .flatten()
            .flat_map(|r| &r.steps)
            .filter(|s| s.op == step_op::TAKE)
            .map(|s| s.arg1)
            .collect();
        let by_device = self.class_of.iter().filter(|(i, _)| **i >= 0).map(|(_, c)| *c);
        let by_rule = old
            .values()
            .flatten()
            .filter(|(_, shadow)| taken.contains(shadow))
            .map(|(class, _)| *class);
        let used: BTreeSet<i32> = by_device.chain(by_rule).collect();
        for shadow in old.values().flat_map(|m| m.values()) {
            self.drop_shadow(*shadow);
        }
        self.class_names
            .retain(|id, _| used.contains(id) || kept.contains(id));
        self.build_shadows(&old);
    }

    /// Builds the shadow trees of all real roots, with the ids of `old` where there are any.
    pub(crate) fn build_shadows(&mut self, old: &ShadowIds) {
        let reserved: BTreeSet<i32> = old.values().flat_map(|m| m.values().copied()).collect();
        let classes: Vec<i32> = self.class_names.keys().copied().collect();
        for root in self.roots(false) {
            for class in &classes {
                self.clone_for_class(root, *class, old, &reserved, 0);
            }
        }
    }

    /// The shadow of one bucket, children first; `None` in a tree too deep to be real.
    fn clone_for_class(
        &mut self,
        id: i32,
        class: i32,
        old: &ShadowIds,
        reserved: &BTreeSet<i32>,
        depth: usize,
    ) -> Option<i32> {
        if let Some(done) = self.shadows.get(&id).and_then(|m| m.get(&class)) {
            return Some(*done);
        }
        let original = self.bucket(id).filter(|_| depth < DEPTH_MAX)?.clone();
        let name = format!(
            "{}{SHADOW_SEPARATOR}{}",
            self.item_name(id).unwrap_or(""),
            self.class_names.get(&class)?
        );
        let (mut items, mut weights, mut from) = (Vec::new(), Vec::new(), Vec::new());
        for (at, item) in original.items.iter().enumerate() {
            if *item >= 0 {
                if self.class_of.get(item) == Some(&class) {
                    items.push(*item);
                    weights.push(original.item_weight(at));
                    from.push(at);
                }
            } else if let Some(child) = self.clone_for_class(*item, class, old, reserved, depth + 1) {
                items.push(child);
                weights.push(self.bucket(child).map_or(0, |b| b.weight));
                from.push(at);
            }
        }
        let shadow = match old.get(&id).and_then(|m| m.get(&class)) {
            Some(had) if self.bucket(*had).is_none() => *had,
            _ => self.free_bucket_id(reserved),
        };
        self.clone_choose_args(id, shadow, &items, &from);
        self.put_bucket(shadow_bucket(
            shadow,
            &original,
            items,
            weights,
            self.tunables.straw_calc_version,
        ));
        self.item_names.insert(shadow, name);
        self.class_of.insert(shadow, class);
        self.shadows.entry(id).or_default().insert(class, shadow);
        Some(shadow)
    }

    /// Weight overrides of the original, carried over: devices keep theirs, children have their own sums.
    fn clone_choose_args(&mut self, id: i32, shadow: i32, items: &[i32], from: &[usize]) {
        let (Some(slot), Some(shadow_slot)) = (bucket_slot(id), bucket_slot(shadow)) else {
            return;
        };
        for args in self.choose_args.values_mut() {
            let Some(original) = args.by_slot.get(&(slot as u32)).cloned() else {
                continue;
            };
            if original.weight_set.is_empty() {
                continue;
            }
            let row_of = |position: usize| -> Vec<u32> {
                let weight = |(item, at): (&i32, &usize)| {
                    let own = original.weight_set[position].get(*at).copied().unwrap_or(0);
                    match bucket_slot(*item).and_then(|s| args.by_slot.get(&(s as u32))) {
                        Some(child) => row_sum(child, position),
                        None if *item < 0 => 0,
                        None => own,
                    }
                };
                items.iter().zip(from).map(weight).collect()
            };
            let weight_set = (0..original.weight_set.len()).map(row_of).collect();
            let arg = ChooseArg {
                weight_set,
                ids: Vec::new(),
            };
            args.by_slot.insert(shadow_slot as u32, arg);
        }
    }
}

/// Sum of a weight set at a position; the last one serves all later positions.
fn row_sum(arg: &ChooseArg, position: usize) -> u32 {
    let last = arg.weight_set.len().saturating_sub(1);
    arg.weight_set
        .get(position.min(last))
        .map_or(0, |row| row.iter().fold(0u32, |s, w| s.wrapping_add(*w)))
}

/// A bucket like `original` over other items. A uniform one keeps the original's weight for all.
fn shadow_bucket(id: i32, original: &Bucket, items: Vec<i32>, weights: Vec<u32>, version: u8) -> Bucket {
    let uniform = |items: Vec<i32>| {
        let item_weight = if items.is_empty() {
            0
        } else {
            original.item_weight(0)
        };
        Bucket {
            id,
            kind: original.kind,
            hash: original.hash,
            weight: item_weight.wrapping_mul(items.len() as u32),
            items,
            body: BucketBody::Uniform { item_weight },
        }
    };
    if original.alg() == Alg::Uniform {
        return uniform(items);
    }
    match Bucket::build(id, original.kind, original.alg(), items.clone(), weights, version) {
        Some(mut b) => {
            b.hash = original.hash;
            b
        }
        // A tree never has more items than its original, so this is out of reach; a uniform bucket is safe.
        None => uniform(items),
    }
}
