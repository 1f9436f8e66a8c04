//! Changing a map: buckets, devices, places, weights, classes, rules (what `ceph osd crush ...` does).
//!
//! Invariants: every change leaves bucket sums, weight-override sizes, `max_devices` and the shadow trees right;
//! a change that is refused leaves the map as it was.

use crate::map::*;
use std::collections::BTreeSet;

/// Depth of the tree that editing and validation allow; real trees have at most the twelve default types.
pub(crate) const DEPTH_MAX: usize = 64;
/// Slots of a fresh map; grows by doubling.
const BUCKET_SLOTS_MIN: usize = 8;
/// Buckets and rules that editing may make.
const BUCKET_SLOTS_MAX: usize = 1 << 17;
const RULES_MAX: usize = 256;

/// (type name, bucket name) pairs in any order, e.g. `[("host", "a"), ("root", "default")]`.
pub type Location<'a> = &'a [(&'a str, &'a str)];

/// What the copies of an object are spread over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureDomain {
    Osd,
    Host,
}

impl FailureDomain {
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Osd => "osd",
            Self::Host => "host",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("item '{0}' does not exist")]
    NoSuchItem(String),
    #[error("type '{0}' does not exist")]
    NoSuchType(String),
    #[error("device class '{0}' does not exist")]
    NoSuchClass(String),
    #[error("rule '{0}' does not exist")]
    NoSuchRule(String),
    #[error("name '{0}' is in use")]
    NameTaken(String),
    #[error("name '{0}' has characters other than letters, digits, '-', '_' and '.'")]
    BadName(String),
    #[error("'{0}' is not of type '{1}'")]
    WrongType(String, String),
    #[error("bucket '{0}' is not empty")]
    NotEmpty(String),
    #[error("'{0}' is in use by a rule")]
    InUse(String),
    #[error("'{0}' would lie below itself")]
    Cycle(String),
    #[error("a location names no place for '{0}'")]
    NoPlace(String),
    #[error("the items of bucket '{0}' cannot have these weights")]
    Weights(String),
    #[error("must specify exact {0} weight values")]
    Positions(usize),
    #[error("the map is full")]
    Full,
}

type Result<T> = std::result::Result<T, EditError>;

/// True for a name that items, types and rules may have.
pub fn valid_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

impl CrushMap {
    /// A map with the default types and tunables and nothing else.
    pub fn new_empty() -> Self {
        Self {
            buckets: vec![None; BUCKET_SLOTS_MIN],
            type_names: DEFAULT_TYPES
                .iter()
                .map(|(i, n)| (*i, (*n).to_string()))
                .collect(),
            ..Self::default()
        }
    }

    /// The map of a new cluster: an empty root `default` (-1) and rule 0, `replicated_rule`.
    pub fn new_default(domain: FailureDomain) -> Self {
        let mut map = Self::new_empty();
        let root = Bucket {
            id: -1,
            kind: 11,
            hash: 0,
            weight: 0,
            items: Vec::new(),
            body: BucketBody::Straw2 { weights: Vec::new() },
        };
        map.buckets[0] = Some(root);
        map.item_names.insert(-1, "default".to_string());
        let choose = match domain {
            FailureDomain::Osd => Step::new(step_op::CHOOSE_FIRSTN, 0, 0),
            FailureDomain::Host => Step::new(step_op::CHOOSELEAF_FIRSTN, 0, 1),
        };
        map.rules.push(Some(Rule {
            kind: RuleKind::Replicated as u8,
            min_size: 1,
            max_size: 10,
            steps: vec![
                Step::new(step_op::TAKE, -1, 0),
                choose,
                Step::new(step_op::EMIT, 0, 0),
            ],
        }));
        map.rule_names.insert(0, "replicated_rule".to_string());
        map
    }

    /// Runs an edit on a copy, so that a refused one leaves no trace.
    pub(crate) fn edit<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut next = self.clone();
        let out = change(&mut next)?;
        // The shadows first: those of before the edit still hold a device that it removed.
        next.rebuild_classes(&self.unused_classes());
        next.refresh_max_devices();
        *self = next;
        Ok(out)
    }

    pub(crate) fn refresh_max_devices(&mut self) {
        let named = self.item_names.keys().next_back().copied().unwrap_or(-1);
        let held = self.iter_buckets().flat_map(|b| b.items.iter().copied()).max();
        let highest = named.max(held.unwrap_or(-1));
        self.max_devices = highest.max(-1).saturating_add(1);
    }

    fn id_of(&self, name: &str) -> Result<i32> {
        self.item_id(name)
            .ok_or_else(|| EditError::NoSuchItem(name.to_string()))
    }

    fn name_or_id(&self, id: i32) -> String {
        self.item_name(id).map_or_else(|| id.to_string(), str::to_string)
    }

    fn check_new_name(&self, name: &str) -> Result<()> {
        if !valid_name(name) {
            return Err(EditError::BadName(name.to_string()));
        }
        if self.item_id(name).is_some() {
            return Err(EditError::NameTaken(name.to_string()));
        }
        Ok(())
    }

    /// A free slot outside `reserved`, nearest to id -1.
    pub(crate) fn free_bucket_id(&self, reserved: &BTreeSet<i32>) -> i32 {
        (0..)
            .map(bucket_id)
            .find(|id| self.bucket(*id).is_none() && !reserved.contains(id))
            .unwrap_or(i32::MIN) // not reached: there are fewer buckets than ids
    }

    /// Puts a bucket into its slot, growing the slots by doubling.
    pub(crate) fn put_bucket(&mut self, b: Bucket) {
        let slot = bucket_slot(b.id).unwrap_or(0);
        if slot >= self.buckets.len() {
            let mut n = self.buckets.len().max(BUCKET_SLOTS_MIN);
            while n <= slot {
                n *= 2;
            }
            self.buckets.resize(n, None);
        }
        self.buckets[slot] = Some(b);
    }

    /// Makes an empty straw2 bucket that lies nowhere yet.
    pub fn add_bucket(&mut self, name: &str, type_name: &str) -> Result<i32> {
        self.edit(|m| m.add_bucket_now(name, type_name))
    }

    fn add_bucket_now(&mut self, name: &str, type_name: &str) -> Result<i32> {
        self.check_new_name(name)?;
        let kind = self
            .type_id(type_name)
            .filter(|t| (1..=i32::from(u16::MAX)).contains(t))
            .ok_or_else(|| EditError::NoSuchType(type_name.to_string()))?;
        let id = self.free_bucket_id(&BTreeSet::new());
        if bucket_slot(id).is_none_or(|s| s >= BUCKET_SLOTS_MAX) {
            return Err(EditError::Full);
        }
        self.put_bucket(Bucket {
            id,
            kind: kind as u16,
            hash: 0,
            weight: 0,
            items: Vec::new(),
            body: BucketBody::Straw2 { weights: Vec::new() },
        });
        self.item_names.insert(id, name.to_string());
        Ok(id)
    }

    /// Adds device `id` as `osd.ID` with a CRUSH weight at a place, making buckets of the location that do not
    /// exist. A device that is in the map already is moved there with the new weight.
    pub fn add_osd(&mut self, id: i32, weight: u32, location: Location) -> Result<()> {
        self.edit(|m| {
            if id < 0 {
                return Err(EditError::NoSuchItem(id.to_string()));
            }
            m.item_names.entry(id).or_insert_with(|| format!("osd.{id}"));
            m.detach(id)?;
            m.place(id, weight, location)
        })
    }

    /// Puts an item, which lies nowhere, below the innermost bucket of a location.
    fn place(&mut self, item: i32, weight: u32, location: Location) -> Result<()> {
        let mut path = Vec::with_capacity(location.len());
        for (kind, name) in location {
            let t = self
                .type_id(kind)
                .filter(|t| *t > 0)
                .ok_or_else(|| EditError::NoSuchType((*kind).to_string()))?;
            path.push((t, *kind, *name));
        }
        path.sort_unstable();
        let own_type = self.item_type(item).unwrap_or(0);
        path.retain(|(t, _, _)| *t > own_type);
        if path.is_empty() {
            return Err(EditError::NoPlace(self.name_or_id(item)));
        }
        let (mut below, mut weight) = (item, weight);
        for (t, kind, name) in path {
            let known = self.item_id(name);
            let bucket = match known {
                Some(id) if self.item_type(id) != Some(t) => {
                    return Err(EditError::WrongType(name.to_string(), kind.to_string()));
                }
                Some(id) => id,
                None => self.add_bucket_now(name, kind)?,
            };
            self.attach(bucket, below, weight)?;
            if known.is_some() {
                return Ok(());
            }
            (below, weight) = (bucket, 0);
            weight += self.bucket(below).map_or(0, |b| b.weight);
        }
        Ok(())
    }

    /// Gives a bucket other items and weights, and the buckets above it other sums.
    fn set_items(&mut self, id: i32, items: Vec<i32>, weights: Vec<u32>) -> Result<()> {
        let version = self.tunables.straw_calc_version;
        let name = self.name_or_id(id);
        let b = self
            .bucket(id)
            .ok_or_else(|| EditError::NoSuchItem(name.clone()))?;
        let mut next =
            Bucket::build(id, b.kind, b.alg(), items, weights, version).ok_or(EditError::Weights(name))?;
        next.hash = b.hash;
        self.put_bucket(next);
        self.sum_up(id)
    }

    /// Carries a bucket's sum to the buckets above it: all of them, for one that lies in several places.
    fn sum_up(&mut self, id: i32) -> Result<()> {
        let mut level = BTreeSet::from([id]);
        for _ in 0..DEPTH_MAX {
            let mut above = BTreeSet::new();
            for at in level {
                let sum = self.bucket(at).map_or(0, |b| b.weight);
                for parent in self.parents(at) {
                    self.change_weight(parent, at, sum)?;
                    above.insert(parent);
                }
            }
            if above.is_empty() {
                return Ok(());
            }
            level = above;
        }
        Err(EditError::Cycle(self.name_or_id(id)))
    }

    /// The buckets that hold `item` directly, shadow trees left out.
    pub(crate) fn parents(&self, item: i32) -> Vec<i32> {
        self.iter_buckets()
            .filter(|b| !self.is_shadow(b.id) && b.items.contains(&item))
            .map(|b| b.id)
            .collect()
    }

    /// Sets the weight of an item in one bucket; nothing above it.
    fn change_weight(&mut self, bucket: i32, item: i32, weight: u32) -> Result<()> {
        let version = self.tunables.straw_calc_version;
        let name = self.name_or_id(bucket);
        let Some(b) = self.bucket_mut(bucket) else {
            return Err(EditError::NoSuchItem(name));
        };
        let mut weights = b.item_weights();
        let uniform = b.alg() == Alg::Uniform;
        for (i, w) in weights.iter_mut().enumerate() {
            // A uniform bucket has one weight for all.
            if uniform || b.items[i] == item {
                *w = weight;
            }
        }
        let mut next = Bucket::build(b.id, b.kind, b.alg(), b.items.clone(), weights, version)
            .ok_or(EditError::Weights(name))?;
        next.hash = b.hash;
        *b = next;
        Ok(())
    }

    fn attach(&mut self, bucket: i32, item: i32, weight: u32) -> Result<()> {
        if item < 0 && (bucket == item || self.is_below(bucket, item)) {
            return Err(EditError::Cycle(self.name_or_id(item)));
        }
        let b = self
            .bucket(bucket)
            .ok_or_else(|| EditError::NoSuchItem(bucket.to_string()))?;
        let (mut items, mut weights) = (b.items.clone(), b.item_weights());
        items.push(item);
        weights.push(weight);
        if b.alg() == Alg::Uniform {
            let first = weights[0];
            weights.fill(if first == 0 { weight } else { first });
        }
        let slot = bucket_slot(bucket).unwrap_or(0) as u32;
        for arg in self
            .choose_args
            .values_mut()
            .filter_map(|a| a.by_slot.get_mut(&slot))
        {
            arg.weight_set.iter_mut().for_each(|row| row.push(weight));
            if !arg.ids.is_empty() {
                arg.ids.push(item);
            }
        }
        self.set_items(bucket, items, weights)
    }

    /// Takes an item out of every real bucket that holds it.
    fn detach(&mut self, item: i32) -> Result<()> {
        // Each round removes one place, so the number of buckets bounds the rounds of a well-formed map.
        for _ in 0..self.buckets.len() {
            let Some((bucket, at)) = self.parent(item).and_then(|b| Some((b.id, b.position(item)?))) else {
                break;
            };
            self.take_out(bucket, at)?;
        }
        Ok(())
    }

    /// Takes the item at a position out of a bucket.
    fn take_out(&mut self, bucket: i32, at: usize) -> Result<()> {
        let b = self
            .bucket(bucket)
            .ok_or_else(|| EditError::NoSuchItem(bucket.to_string()))?;
        let (mut items, mut weights) = (b.items.clone(), b.item_weights());
        items.remove(at);
        weights.remove(at);
        let slot = bucket_slot(bucket).unwrap_or(0) as u32;
        for arg in self
            .choose_args
            .values_mut()
            .filter_map(|a| a.by_slot.get_mut(&slot))
        {
            arg.weight_set.iter_mut().for_each(|row| {
                row.remove(at);
            });
            if !arg.ids.is_empty() {
                arg.ids.remove(at);
            }
        }
        self.set_items(bucket, items, weights)
    }

    /// True if `item` lies somewhere below `top`.
    fn is_below(&self, item: i32, top: i32) -> bool {
        let mut level = BTreeSet::from([item]);
        for _ in 0..DEPTH_MAX {
            level = level.iter().flat_map(|i| self.parents(*i)).collect();
            if level.is_empty() {
                return false;
            }
            if level.contains(&top) {
                return true;
            }
        }
        true
    }

    /// Lets a bucket lie in one more place, with all below it.
    pub fn link_item(&mut self, name: &str, location: Location) -> Result<()> {
        self.edit(|m| {
            let id = m.id_of(name)?;
            let weight = m.bucket(id).map_or(0, |b| b.weight);
            m.place(id, weight, location)
        })
    }

    /// Takes an item out of one bucket that holds it directly. False: it is not there.
    pub fn unlink_item(&mut self, name: &str, bucket: &str) -> Result<bool> {
        self.edit(|m| {
            let (id, from) = (m.id_of(name)?, m.id_of(bucket)?);
            match m.bucket(from).and_then(|b| b.position(id)) {
                None => Ok(false),
                Some(at) => m.take_out(from, at).map(|()| true),
            }
        })
    }

    /// Takes an item out of all places and keeps it.
    pub fn unlink_everywhere(&mut self, name: &str) -> Result<()> {
        self.edit(|m| {
            let id = m.id_of(name)?;
            m.detach(id)
        })
    }

    /// Makes the weight of every bucket the sum of what is in it.
    pub fn reweight_all(&mut self) -> Result<()> {
        self.edit(|m| {
            let ids: Vec<i32> = m
                .iter_buckets()
                .filter(|b| !m.is_shadow(b.id))
                .map(|b| b.id)
                .collect();
            for id in ids {
                let b = m
                    .bucket(id)
                    .ok_or_else(|| EditError::NoSuchItem(id.to_string()))?;
                let (items, weights) = (b.items.clone(), b.item_weights());
                m.set_items(id, items, weights)?;
            }
            Ok(())
        })
    }

    /// Moves a bucket or device, with all below it, to another place.
    pub fn move_item(&mut self, name: &str, location: Location) -> Result<()> {
        self.edit(|m| {
            let id = m.id_of(name)?;
            let weight = m.weight_of(id).unwrap_or(0);
            m.detach(id)?;
            m.place(id, weight, location)
        })
    }

    /// Removes a device, or an empty bucket that no rule takes.
    pub fn remove_item(&mut self, name: &str) -> Result<()> {
        self.edit(|m| {
            let id = m.id_of(name)?;
            if let Some(b) = m.bucket(id) {
                if !b.items.is_empty() {
                    return Err(EditError::NotEmpty(name.to_string()));
                }
                if m.taken_by_rule(id) {
                    return Err(EditError::InUse(name.to_string()));
                }
            }
            m.detach(id)?;
            m.item_names.remove(&id);
            m.class_of.remove(&id);
            if let Some(slot) = bucket_slot(id) {
                m.drop_shadows_of(id);
                m.choose_args.values_mut().for_each(|a| {
                    a.by_slot.remove(&(slot as u32));
                });
                m.buckets[slot] = None;
            }
            Ok(())
        })
    }

    /// True if a rule starts from the bucket or from one of its shadows.
    fn taken_by_rule(&self, id: i32) -> bool {
        let shadows = self.shadows.get(&id);
        let mut takes = self
            .rules
            .iter()
            .flatten()
            .flat_map(|r| &r.steps)
            .filter(|s| s.op == step_op::TAKE);
        takes.any(|s| s.arg1 == id || shadows.is_some_and(|m| m.values().any(|v| *v == s.arg1)))
    }

    /// Sets the CRUSH weight of a device wherever it lies.
    pub fn reweight_item(&mut self, name: &str, weight: u32) -> Result<()> {
        self.edit(|m| {
            let id = m.id_of(name)?;
            let holders: Vec<i32> = m
                .iter_buckets()
                .filter(|b| b.items.contains(&id) && !m.is_shadow(b.id))
                .map(|b| b.id)
                .collect();
            if holders.is_empty() || id < 0 {
                return Err(EditError::NoSuchItem(name.to_string()));
            }
            for bucket in holders {
                m.change_weight(bucket, id, weight)?;
                m.sum_up(bucket)?;
            }
            Ok(())
        })
    }

    pub fn rename_item(&mut self, from: &str, to: &str) -> Result<()> {
        self.edit(|m| {
            let id = m.id_of(from)?;
            m.check_new_name(to)?;
            m.item_names.insert(id, to.to_string());
            Ok(())
        })
    }

    /// Gives a device a class, making the class if it is new.
    pub fn set_device_class(&mut self, id: i32, class: &str) -> Result<()> {
        self.edit(|m| {
            if !valid_name(class) {
                return Err(EditError::BadName(class.to_string()));
            }
            if id < 0 || !m.item_names.contains_key(&id) {
                return Err(EditError::NoSuchItem(format!("osd.{id}")));
            }
            let class = m.class_or_new(class);
            m.class_of.insert(id, class);
            Ok(())
        })
    }

    pub fn remove_device_class(&mut self, id: i32) -> Result<()> {
        self.edit(|m| {
            m.class_of.remove(&id);
            Ok(())
        })
    }

    /// Makes a class that no device has yet; its id.
    pub fn create_class(&mut self, name: &str) -> Result<i32> {
        if !valid_name(name) {
            return Err(EditError::BadName(name.to_string()));
        }
        let id = self.class_or_new(name);
        self.edit(|_| Ok(id))
    }

    /// Takes a class from its devices, and away. Refused while a rule takes it, with the rule's name.
    pub fn remove_class(&mut self, name: &str) -> Result<i32> {
        self.edit(|m| {
            let id = m
                .class_id(name)
                .ok_or_else(|| EditError::NoSuchClass(name.to_string()))?;
            m.class_of.retain(|item, class| *item < 0 || *class != id);
            let shadows: Vec<i32> = m.shadows.values().filter_map(|s| s.get(&id).copied()).collect();
            let takes = |r: &Rule| {
                r.steps
                    .iter()
                    .any(|s| s.op == step_op::TAKE && shadows.contains(&s.arg1))
            };
            let holder = m.rules.iter().position(|r| r.as_ref().is_some_and(takes));
            match holder {
                Some(rule) => {
                    let name = m.rule_names.get(&(rule as i32)).cloned();
                    Err(EditError::InUse(name.unwrap_or_default()))
                }
                None => {
                    m.class_names.remove(&id);
                    Ok(id)
                }
            }
        })
    }

    /// Lets two buckets change places: each keeps its name and what it holds, and lies where the other lay.
    pub fn swap_buckets(&mut self, a: &str, b: &str) -> Result<()> {
        self.edit(|m| {
            let (x, y) = (m.id_of(a)?, m.id_of(b)?);
            let (Some(bx), Some(by)) = (m.bucket(x).cloned(), m.bucket(y).cloned()) else {
                return Err(EditError::NoSuchItem(a.to_string()));
            };
            if bx.kind != by.kind {
                let kind = m.type_name(i32::from(by.kind)).unwrap_or_default().to_string();
                return Err(EditError::WrongType(a.to_string(), kind));
            }
            if m.is_below(x, y) || m.is_below(y, x) {
                return Err(EditError::Cycle(a.to_string()));
            }
            m.put_bucket(Bucket { id: x, ..by });
            m.put_bucket(Bucket { id: y, ..bx });
            m.item_names.insert(x, b.to_string());
            m.item_names.insert(y, a.to_string());
            m.swap_weight_sets(x, y);
            for id in [x, y] {
                m.sum_up(id)?;
                m.sum_up_sets(id)?;
            }
            Ok(())
        })
    }

    fn swap_weight_sets(&mut self, x: i32, y: i32) {
        let (Some(x), Some(y)) = (bucket_slot(x), bucket_slot(y)) else {
            return;
        };
        for args in self.choose_args.values_mut() {
            let (of_x, of_y) = (args.by_slot.remove(&(x as u32)), args.by_slot.remove(&(y as u32)));
            args.by_slot.extend(of_y.map(|a| (x as u32, a)));
            args.by_slot.extend(of_x.map(|a| (y as u32, a)));
        }
    }

    /// Makes all buckets of the old kind straw2, with the weights that they have.
    pub fn straw_to_straw2(&mut self) -> Result<()> {
        self.edit(|m| {
            for b in m.buckets.iter_mut().flatten() {
                if b.alg() == Alg::Straw {
                    b.body = BucketBody::Straw2 {
                        weights: b.item_weights(),
                    };
                }
            }
            Ok(())
        })
    }

    /// Renames a class; its devices, shadows and the rules that take them stay as they are.
    pub fn rename_class(&mut self, from: &str, to: &str) -> Result<()> {
        self.edit(|m| {
            let id = m
                .class_id(from)
                .ok_or_else(|| EditError::NoSuchClass(from.to_string()))?;
            if !valid_name(to) {
                return Err(EditError::BadName(to.to_string()));
            }
            if m.class_id(to).is_some() {
                return Err(EditError::NameTaken(to.to_string()));
            }
            m.class_names.insert(id, to.to_string());
            Ok(())
        })
    }

    /// Adds a rule that takes `root` (devices of `class` only, if given) and spreads over buckets of a type.
    pub fn add_simple_rule(
        &mut self,
        name: &str,
        root: &str,
        domain: &str,
        class: Option<&str>,
        kind: RuleKind,
    ) -> Result<u32> {
        self.edit(|m| {
            if !valid_name(name) {
                return Err(EditError::BadName(name.to_string()));
            }
            if m.rule_id(name).is_some() {
                return Err(EditError::NameTaken(name.to_string()));
            }
            let mut take = m.id_of(root)?;
            let domain = m
                .type_id(domain)
                .ok_or_else(|| EditError::NoSuchType(domain.to_string()))?;
            if let Some(class) = class {
                let id = m
                    .class_id(class)
                    .ok_or_else(|| EditError::NoSuchClass(class.to_string()))?;
                take = *m
                    .shadows
                    .get(&take)
                    .and_then(|s| s.get(&id))
                    .ok_or_else(|| EditError::NoSuchItem(format!("{root}~{class}")))?;
            }
            m.put_rule(name, simple_rule(take, domain, kind))
        })
    }

    fn put_rule(&mut self, name: &str, rule: Rule) -> Result<u32> {
        let id = self
            .rules
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.rules.len());
        if id >= RULES_MAX {
            return Err(EditError::Full);
        }
        if id == self.rules.len() {
            self.rules.push(None);
        }
        self.rules[id] = Some(rule);
        self.rule_names.insert(id as i32, name.to_string());
        Ok(id as u32)
    }

    /// Adds a rule of the caller's own steps.
    pub fn add_rule(&mut self, name: &str, rule: Rule) -> Result<u32> {
        self.edit(|m| {
            if !valid_name(name) {
                return Err(EditError::BadName(name.to_string()));
            }
            if m.rule_id(name).is_some() {
                return Err(EditError::NameTaken(name.to_string()));
            }
            m.put_rule(name, rule)
        })
    }

    /// Removes a rule; whether a pool uses it is the caller's to check.
    pub fn remove_rule(&mut self, name: &str) -> Result<()> {
        self.edit(|m| {
            let id = m
                .rule_id(name)
                .ok_or_else(|| EditError::NoSuchRule(name.to_string()))?;
            m.rule_names.remove(&id);
            if let Some(r) = usize::try_from(id).ok().and_then(|i| m.rules.get_mut(i)) {
                *r = None;
            }
            while m.rules.last().is_some_and(Option::is_none) {
                m.rules.pop();
            }
            Ok(())
        })
    }

    pub fn rename_rule(&mut self, from: &str, to: &str) -> Result<()> {
        self.edit(|m| {
            let id = m
                .rule_id(from)
                .ok_or_else(|| EditError::NoSuchRule(from.to_string()))?;
            if !valid_name(to) {
                return Err(EditError::BadName(to.to_string()));
            }
            if m.rule_id(to).is_some() {
                return Err(EditError::NameTaken(to.to_string()));
            }
            m.rule_names.insert(id, to.to_string());
            Ok(())
        })
    }
}

/// The steps that the monitor gives a rule.
fn simple_rule(take: i32, domain: i32, kind: RuleKind) -> Rule {
    let take = Step::new(step_op::TAKE, take, 0);
    let emit = Step::new(step_op::EMIT, 0, 0);
    match kind {
        RuleKind::Replicated => {
            let op = if domain == 0 {
                step_op::CHOOSE_FIRSTN
            } else {
                step_op::CHOOSELEAF_FIRSTN
            };
            Rule {
                kind: kind as u8,
                min_size: 1,
                max_size: 10,
                steps: vec![take, Step::new(op, 0, domain), emit],
            }
        }
        RuleKind::Erasure => {
            let op = if domain == 0 {
                step_op::CHOOSE_INDEP
            } else {
                step_op::CHOOSELEAF_INDEP
            };
            Rule {
                kind: kind as u8,
                min_size: 3,
                max_size: 20,
                steps: vec![
                    Step::new(step_op::SET_CHOOSELEAF_TRIES, 5, 0),
                    Step::new(step_op::SET_CHOOSE_TRIES, 100, 0),
                    take,
                    Step::new(op, 0, domain),
                    emit,
                ],
            }
        }
    }
}
