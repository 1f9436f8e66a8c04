//! Weight sets: what all pools, or one, take in place of the items' CRUSH weights (`ceph osd crush weight-set ...`).
//!
//! Invariants: a set has an entry for each bucket, with a row for each of its positions; in a row a bucket's entry is the
//! sum of the bucket's own row. Shadow trees follow, as after every edit.

use crate::edit::{DEPTH_MAX, EditError};
use crate::map::*;
use std::collections::BTreeSet;

type Result<T> = std::result::Result<T, EditError>;

impl CrushMap {
    /// Makes the set `index` ([`DEFAULT_CHOOSE_ARGS`], or a pool's id) say what the buckets say. One that is there stays.
    pub fn create_weight_set(&mut self, index: i64, positions: usize) {
        let rows = |b: &Bucket| ChooseArg {
            weight_set: vec![b.item_weights(); positions.max(1)],
            ids: Vec::new(),
        };
        let one = |b: &Bucket| Some((bucket_slot(b.id)? as u32, rows(b)));
        let by_slot = self.iter_buckets().filter_map(one).collect();
        self.choose_args.entry(index).or_insert(ChooseArgs { by_slot });
    }

    /// Positions of a set; None: there is no such set.
    pub fn weight_set_positions(&self, index: i64) -> Option<usize> {
        let args = self.choose_args.get(&index)?;
        args.by_slot
            .values()
            .map(|a| a.weight_set.len())
            .max()
            .or(Some(0))
    }

    /// Sets what a set says of an item, at each position, wherever the item lies, and of the buckets above it.
    pub fn reweight_in_set(&mut self, index: i64, name: &str, weights: &[u32]) -> Result<()> {
        self.edit(|m| {
            let id = m
                .item_id(name)
                .ok_or_else(|| EditError::NoSuchItem(name.into()))?;
            let positions = m.weight_set_positions(index).unwrap_or(0);
            if weights.len() != positions {
                return Err(EditError::Positions(positions));
            }
            if m.parents(id).is_empty() {
                return Err(EditError::NoSuchItem(name.into()));
            }
            m.carry_up(index, id, weights.to_vec())
        })
    }

    fn carry_up(&mut self, index: i64, item: i32, weights: Vec<u32>) -> Result<()> {
        let mut level = vec![(item, weights)];
        for _ in 0..DEPTH_MAX {
            let mut above = BTreeSet::new();
            for (item, weights) in level {
                for parent in self.parents(item) {
                    self.set_column(index, parent, item, &weights);
                    above.insert(parent);
                }
            }
            if above.is_empty() {
                return Ok(());
            }
            let sums = |id: i32| (id, self.sums(index, id));
            level = above.into_iter().map(sums).collect();
        }
        Err(EditError::Cycle(item.to_string()))
    }

    /// Carries a bucket's sums in all sets to the buckets above it.
    pub(crate) fn sum_up_sets(&mut self, bucket: i32) -> Result<()> {
        let sets: Vec<i64> = self.choose_args.keys().copied().collect();
        for index in sets {
            let sums = self.sums(index, bucket);
            self.carry_up(index, bucket, sums)?;
        }
        Ok(())
    }

    fn set_column(&mut self, index: i64, bucket: i32, item: i32, weights: &[u32]) {
        let Some(slot) = bucket_slot(bucket) else { return };
        let Some(b) = self.bucket(bucket) else { return };
        let (own, items) = (b.item_weights(), b.items.clone());
        let Some(args) = self.choose_args.get_mut(&index) else {
            return;
        };
        let arg = args.by_slot.entry(slot as u32).or_default();
        if arg.weight_set.is_empty() {
            arg.weight_set = vec![own; weights.len()];
        }
        for (row, weight) in arg.weight_set.iter_mut().zip(weights) {
            let here = row.iter_mut().zip(&items).filter(|(_, i)| **i == item);
            here.for_each(|(w, _)| *w = *weight);
        }
    }

    fn sums(&self, index: i64, bucket: i32) -> Vec<u32> {
        let arg = bucket_slot(bucket).and_then(|s| self.choose_args.get(&index)?.by_slot.get(&(s as u32)));
        let rows = arg.map_or(&[][..], |a| &a.weight_set);
        let sum = |row: &Vec<u32>| row.iter().fold(0u32, |s, w| s.wrapping_add(*w));
        rows.iter().map(sum).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::FailureDomain;

    fn map() -> CrushMap {
        let mut m = CrushMap::new_default(FailureDomain::Osd);
        for id in 0..4 {
            let host = if id < 2 { "a" } else { "b" };
            m.add_osd(id, WEIGHT_ONE, &[("host", host), ("root", "default")])
                .unwrap();
            m.set_device_class(id, "hdd").unwrap();
        }
        m
    }

    fn rows(m: &CrushMap, index: i64, bucket: &str) -> Vec<Vec<u32>> {
        let slot = bucket_slot(m.item_id(bucket).unwrap()).unwrap() as u32;
        m.choose_args[&index].by_slot[&slot].weight_set.clone()
    }

    #[test]
    fn a_new_set_says_what_the_buckets_say_and_changes_are_carried_up() {
        let mut m = map();
        m.create_weight_set(-1, 1);
        m.create_weight_set(7, 2);
        assert_eq!(m.weight_set_positions(-1), Some(1));
        assert_eq!(m.weight_set_positions(7), Some(2));
        assert_eq!(m.weight_set_positions(8), None);
        assert_eq!(rows(&m, -1, "default"), [[2 * WEIGHT_ONE, 2 * WEIGHT_ONE]]);

        m.reweight_in_set(7, "osd.0", &[WEIGHT_ONE / 2, 0]).unwrap();
        assert_eq!(rows(&m, 7, "a"), [[WEIGHT_ONE / 2, WEIGHT_ONE], [0, WEIGHT_ONE]]);
        let (half, one) = (WEIGHT_ONE * 3 / 2, WEIGHT_ONE);
        assert_eq!(rows(&m, 7, "default"), [[half, 2 * one], [one, 2 * one]]);
        assert_eq!(
            rows(&m, 7, "default~hdd"),
            [[half, 2 * one], [one, 2 * one]],
            "shadows follow"
        );
        assert_eq!(rows(&m, -1, "a"), [[one, one]], "another set stays");
        m.validate().unwrap();

        let refused = |m: &mut CrushMap, name: &str, w: &[u32]| m.reweight_in_set(7, name, w).unwrap_err();
        assert_eq!(refused(&mut m, "osd.0", &[1]), EditError::Positions(2));
        assert!(matches!(
            refused(&mut m, "osd.9", &[1, 1]),
            EditError::NoSuchItem(_)
        ));
        assert!(matches!(
            refused(&mut m, "default", &[1, 1]),
            EditError::NoSuchItem(_)
        ));
    }

    #[test]
    fn buckets_that_change_places_take_their_sets_along() {
        let mut m = map();
        m.add_bucket("new", "host").unwrap();
        m.create_weight_set(-1, 1);
        let (a, new) = (m.item_id("a").unwrap(), m.item_id("new").unwrap());
        m.swap_buckets("new", "a").unwrap();
        assert_eq!((m.item_id("a"), m.item_id("new")), (Some(new), Some(a)));
        assert_eq!(m.bucket(new).unwrap().items, [0, 1]);
        assert_eq!(rows(&m, -1, "a"), [[WEIGHT_ONE, WEIGHT_ONE]]);
        assert_eq!(rows(&m, -1, "default"), [[0, 2 * WEIGHT_ONE]]);
        assert_eq!(m.weight_of(a), Some(0));
        m.validate().unwrap();
        assert!(matches!(
            m.swap_buckets("new", "default"),
            Err(EditError::WrongType(..))
        ));
    }

    #[test]
    fn classes_made_by_hand_stay_until_they_go_by_hand() {
        let mut m = map();
        let id = m.create_class("later").unwrap();
        m.set_device_class(0, "ssd").unwrap();
        assert_eq!(m.class_id("later"), Some(id));
        m.set_device_class(0, "hdd").unwrap();
        assert_eq!(m.class_id("ssd"), None, "no device has it any more");
        assert_eq!(m.remove_class("later"), Ok(id));
        m.add_simple_rule("r", "default", "osd", Some("hdd"), RuleKind::Replicated)
            .unwrap();
        assert_eq!(m.remove_class("hdd"), Err(EditError::InUse("r".into())));
        m.remove_rule("r").unwrap();
        m.remove_class("hdd").unwrap();
        assert!(m.class_names.is_empty() && m.class_of.is_empty() && m.shadows.is_empty());
        m.validate().unwrap();
    }

    #[test]
    fn placement_follows_a_set() {
        let mut m = map();
        m.create_weight_set(7, 1);
        m.reweight_in_set(7, "osd.1", &[0]).unwrap();
        let all = [WEIGHT_ONE; 4];
        let on_1 = |args: i64| (0..200).any(|x| m.do_rule(0, x, 1, &all, args) == [1]);
        assert!(on_1(3) && !on_1(7));
    }
}
