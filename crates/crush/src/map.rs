//! The CRUSH map as data: buckets, rules, names, tunables, device classes, weight overrides.
//!
//! Invariants that the decoder and the editing functions keep: slot `i` of `buckets` holds the bucket with id
//! `-1 - i`; a bucket's per-item vectors are as long as its `items`; a choose_args entry names an existing slot,
//! and its rows and ids are as long as that bucket.

use std::collections::BTreeMap;

/// "No device here": a hole in a positional result.
pub const ITEM_NONE: i32 = 0x7fff_ffff;
/// "Not chosen yet", inside a computation only.
pub(crate) const ITEM_UNDEF: i32 = 0x7fff_fffe;
pub const WEIGHT_ONE: u32 = 0x1_0000;
/// The choose_args set that a pool without one of its own uses.
pub const DEFAULT_CHOOSE_ARGS: i64 = -1;

/// The type table of a new cluster.
pub const DEFAULT_TYPES: [(i32, &str); 12] = [
    (0, "osd"),
    (1, "host"),
    (2, "chassis"),
    (3, "rack"),
    (4, "row"),
    (5, "pdu"),
    (6, "pod"),
    (7, "room"),
    (8, "datacenter"),
    (9, "zone"),
    (10, "region"),
    (11, "root"),
];

/// The slot of bucket `id`; `None` for a device.
pub fn bucket_slot(id: i32) -> Option<usize> {
    (id < 0).then(|| (-1 - i64::from(id)) as usize)
}

/// The id of the bucket in `slot`.
pub fn bucket_id(slot: usize) -> i32 {
    -1 - slot as i32
}

/// 1.0 -> 0x10000, truncated; negative and absurd values saturate.
pub fn weight_from_f64(w: f64) -> u32 {
    (w * f64::from(WEIGHT_ONE)) as u32
}

pub fn weight_to_f64(w: u32) -> f64 {
    f64::from(w) / f64::from(WEIGHT_ONE)
}

/// How a bucket chooses among its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Alg {
    Uniform = 1,
    List = 2,
    Tree = 3,
    Straw = 4,
    Straw2 = 5,
}

impl Alg {
    pub const ALL: [Alg; 5] = [Self::Uniform, Self::List, Self::Tree, Self::Straw, Self::Straw2];

    pub fn from_u32(v: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|a| *a as u32 == v)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::List => "list",
            Self::Tree => "tree",
            Self::Straw => "straw",
            Self::Straw2 => "straw2",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// What each algorithm keeps per item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketBody {
    /// One weight for all items.
    Uniform {
        item_weight: u32,
    },
    /// `sums[i]` is the weight of items 0..=i.
    List {
        weights: Vec<u32>,
        sums: Vec<u32>,
    },
    /// A binary tree in an array; item `i` sits at node `2i + 1`.
    Tree {
        nodes: Vec<u32>,
    },
    Straw {
        weights: Vec<u32>,
        straws: Vec<u32>,
    },
    Straw2 {
        weights: Vec<u32>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    pub id: i32,
    /// Index into the type table (host, rack ...); never 0.
    pub kind: u16,
    /// 0 is the integer hash of this crate; any other value hashes everything to 0.
    pub hash: u8,
    /// Sum of the item weights.
    pub weight: u32,
    pub items: Vec<i32>,
    pub body: BucketBody,
}

impl Bucket {
    pub fn alg(&self) -> Alg {
        match self.body {
            BucketBody::Uniform { .. } => Alg::Uniform,
            BucketBody::List { .. } => Alg::List,
            BucketBody::Tree { .. } => Alg::Tree,
            BucketBody::Straw { .. } => Alg::Straw,
            BucketBody::Straw2 { .. } => Alg::Straw2,
        }
    }

    /// CRUSH weight of the item at `index`; 0 beyond the end.
    pub fn item_weight(&self, index: usize) -> u32 {
        let at = |v: &Vec<u32>, i: usize| v.get(i).copied().unwrap_or(0);
        match &self.body {
            BucketBody::Uniform { item_weight } if index < self.items.len() => *item_weight,
            BucketBody::Uniform { .. } => 0,
            BucketBody::List { weights, .. }
            | BucketBody::Straw { weights, .. }
            | BucketBody::Straw2 { weights } => at(weights, index),
            BucketBody::Tree { nodes } => at(nodes, 2 * index + 1),
        }
    }

    pub fn position(&self, item: i32) -> Option<usize> {
        self.items.iter().position(|i| *i == item)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    Replicated = 1,
    Erasure = 3,
}

/// Numbers of the step operations.
pub mod step_op {
    pub const NOOP: u32 = 0;
    pub const TAKE: u32 = 1;
    pub const CHOOSE_FIRSTN: u32 = 2;
    pub const CHOOSE_INDEP: u32 = 3;
    pub const EMIT: u32 = 4;
    pub const CHOOSELEAF_FIRSTN: u32 = 6;
    pub const CHOOSELEAF_INDEP: u32 = 7;
    pub const SET_CHOOSE_TRIES: u32 = 8;
    pub const SET_CHOOSELEAF_TRIES: u32 = 9;
    pub const SET_CHOOSE_LOCAL_TRIES: u32 = 10;
    pub const SET_CHOOSE_LOCAL_FALLBACK_TRIES: u32 = 11;
    pub const SET_CHOOSELEAF_VARY_R: u32 = 12;
    pub const SET_CHOOSELEAF_STABLE: u32 = 13;
    /// Ceph 19 and later; never installed here.
    pub const CHOOSE_MSR: u32 = 16;

    /// Names in JSON dumps and text; one table for both directions. The text form of the choose steps has a
    /// space for the underscore and their arguments behind.
    pub const NAMES: [(u32, &str); 13] = [
        (NOOP, "noop"),
        (TAKE, "take"),
        (CHOOSE_FIRSTN, "choose_firstn"),
        (CHOOSE_INDEP, "choose_indep"),
        (EMIT, "emit"),
        (CHOOSELEAF_FIRSTN, "chooseleaf_firstn"),
        (CHOOSELEAF_INDEP, "chooseleaf_indep"),
        (SET_CHOOSE_TRIES, "set_choose_tries"),
        (SET_CHOOSELEAF_TRIES, "set_chooseleaf_tries"),
        (SET_CHOOSE_LOCAL_TRIES, "set_choose_local_tries"),
        (SET_CHOOSE_LOCAL_FALLBACK_TRIES, "set_choose_local_fallback_tries"),
        (SET_CHOOSELEAF_VARY_R, "set_chooseleaf_vary_r"),
        (SET_CHOOSELEAF_STABLE, "set_chooseleaf_stable"),
    ];

    pub fn name(op: u32) -> Option<&'static str> {
        NAMES.iter().find(|(n, _)| *n == op).map(|(_, s)| *s)
    }

    pub fn from_name(name: &str) -> Option<u32> {
        NAMES.iter().find(|(_, s)| *s == name).map(|(n, _)| *n)
    }
}

/// One step: an operation of [`step_op`] and its arguments (choose: count and type; take: item).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub op: u32,
    pub arg1: i32,
    pub arg2: i32,
}

impl Step {
    pub const fn new(op: u32, arg1: i32, arg2: i32) -> Self {
        Self { op, arg1, arg2 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// 1 replicated, 3 erasure (see [`RuleKind`]); raw, since newer releases have more.
    pub kind: u8,
    /// Pool sizes that the rule is meant for.
    pub min_size: u8,
    pub max_size: u8,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    pub choose_local_tries: u32,
    pub choose_local_fallback_tries: u32,
    /// A count of RE-tries: one more descent than this is made.
    pub choose_total_tries: u32,
    pub chooseleaf_descend_once: u32,
    pub chooseleaf_vary_r: u8,
    pub straw_calc_version: u8,
    /// Bit set of 1 << alg; only for tools.
    pub allowed_bucket_algs: u32,
    pub chooseleaf_stable: u8,
}

impl Tunables {
    /// What a map without tunables means ("argonaut").
    pub const LEGACY: Self = Self {
        choose_local_tries: 2,
        choose_local_fallback_tries: 5,
        choose_total_tries: 19,
        chooseleaf_descend_once: 0,
        chooseleaf_vary_r: 0,
        straw_calc_version: 0,
        allowed_bucket_algs: 22,
        chooseleaf_stable: 0,
    };
    pub const BOBTAIL: Self = Self {
        choose_local_tries: 0,
        choose_local_fallback_tries: 0,
        choose_total_tries: 50,
        chooseleaf_descend_once: 1,
        ..Self::LEGACY
    };
    pub const FIREFLY: Self = Self {
        chooseleaf_vary_r: 1,
        ..Self::BOBTAIL
    };
    pub const HAMMER: Self = Self {
        allowed_bucket_algs: 54,
        ..Self::FIREFLY
    };
    /// "jewel", "default", "optimal": what a new map has.
    pub const JEWEL: Self = Self {
        chooseleaf_stable: 1,
        straw_calc_version: 1,
        ..Self::HAMMER
    };

    /// The named profiles, oldest first. `straw_calc_version` is no part of a profile's identity.
    pub const PROFILES: [(&'static str, Self); 5] = [
        ("argonaut", Self::LEGACY),
        ("bobtail", Self::BOBTAIL),
        ("firefly", Self::FIREFLY),
        ("hammer", Self::HAMMER),
        ("jewel", Self::JEWEL),
    ];

    /// Name of the profile that these values are, or "unknown".
    pub fn profile(&self) -> &'static str {
        Self::PROFILES
            .iter()
            .find(|(_, p)| {
                Self {
                    straw_calc_version: self.straw_calc_version,
                    ..*p
                } == *self
            })
            .map_or("unknown", |(name, _)| *name)
    }

    pub fn by_name(name: &str) -> Option<Self> {
        let name = match name {
            "legacy" => "argonaut",
            "default" | "optimal" => "jewel",
            other => other,
        };
        Self::PROFILES.iter().find(|(n, _)| *n == name).map(|(_, t)| *t)
    }
}

/// Overrides for one bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChooseArg {
    /// One row of weights per position; the last row serves all later positions.
    pub weight_set: Vec<Vec<u32>>,
    /// Ids that enter the hash instead of the items; empty: the items.
    pub ids: Vec<i32>,
}

/// Overrides by bucket slot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChooseArgs {
    pub by_slot: BTreeMap<u32, ChooseArg>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CrushMap {
    pub buckets: Vec<Option<Bucket>>,
    pub rules: Vec<Option<Rule>>,
    /// One more than the highest device id in use.
    pub max_devices: i32,
    pub type_names: BTreeMap<i32, String>,
    /// Devices and buckets, shadow buckets (`default~ssd`) too.
    pub item_names: BTreeMap<i32, String>,
    pub rule_names: BTreeMap<i32, String>,
    pub tunables: Tunables,
    /// Item -> class id, for devices and shadow buckets.
    pub class_of: BTreeMap<i32, i32>,
    pub class_names: BTreeMap<i32, String>,
    /// Bucket -> class id -> shadow bucket.
    pub shadows: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// By pool id, or [`DEFAULT_CHOOSE_ARGS`].
    pub choose_args: BTreeMap<i64, ChooseArgs>,
    /// The two MSR tunables of Ceph 19, kept when a map that has them passes through.
    pub msr_tunables: Option<(u32, u32)>,
}

impl Default for Tunables {
    fn default() -> Self {
        Self::JEWEL
    }
}

impl CrushMap {
    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        self.buckets.get(bucket_slot(id)?)?.as_ref()
    }

    pub(crate) fn bucket_mut(&mut self, id: i32) -> Option<&mut Bucket> {
        self.buckets.get_mut(bucket_slot(id)?)?.as_mut()
    }

    /// All buckets, id -1 first.
    pub fn iter_buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.iter().flatten()
    }

    pub fn rule(&self, id: u32) -> Option<&Rule> {
        self.rules.get(id as usize)?.as_ref()
    }

    pub fn rule_id(&self, name: &str) -> Option<i32> {
        find_key(&self.rule_names, name)
    }

    /// Ids of the rules there are, ascending.
    pub fn rule_ids(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..)
            .zip(&self.rules)
            .filter(|(_, r)| r.is_some())
            .map(|(i, _)| i)
    }

    /// Steps that take the root of `id`'s first `take`; `None` if the rule takes nothing.
    pub fn rule_root(&self, id: u32) -> Option<i32> {
        let rule = self.rule(id)?;
        rule.steps.iter().find(|s| s.op == step_op::TAKE).map(|s| s.arg1)
    }

    pub fn item_id(&self, name: &str) -> Option<i32> {
        find_key(&self.item_names, name)
    }

    pub fn item_name(&self, id: i32) -> Option<&str> {
        self.item_names.get(&id).map(String::as_str)
    }

    pub fn type_id(&self, name: &str) -> Option<i32> {
        find_key(&self.type_names, name)
    }

    pub fn type_name(&self, id: i32) -> Option<&str> {
        match self.type_names.get(&id) {
            Some(n) => Some(n),
            None if id == 0 => Some("osd"),
            None => None,
        }
    }

    /// Type of an item: 0 for a device, `None` for a bucket that does not exist.
    pub fn item_type(&self, id: i32) -> Option<i32> {
        if id >= 0 {
            return Some(0);
        }
        self.bucket(id).map(|b| i32::from(b.kind))
    }

    pub fn class_id(&self, name: &str) -> Option<i32> {
        find_key(&self.class_names, name)
    }

    /// Name of the device class of an item.
    pub fn class_name_of(&self, item: i32) -> Option<&str> {
        self.class_names
            .get(self.class_of.get(&item)?)
            .map(String::as_str)
    }

    pub fn is_shadow(&self, id: i32) -> bool {
        id < 0
            && self
                .item_name(id)
                .is_some_and(|n| n.contains(crate::SHADOW_SEPARATOR))
    }

    /// The bucket that holds `item` directly, shadow trees left out.
    pub fn parent(&self, item: i32) -> Option<&Bucket> {
        self.iter_buckets()
            .find(|b| !self.is_shadow(b.id) && b.items.contains(&item))
    }

    /// CRUSH weight of an item in its parent; of a root its own sum.
    pub fn weight_of(&self, item: i32) -> Option<u32> {
        if let Some(parent) = self.parent(item) {
            let at = parent.position(item)?;
            return Some(parent.item_weight(at));
        }
        self.bucket(item).map(|b| b.weight)
    }

    /// Buckets that no bucket holds, ascending by id; shadow roots only if asked for.
    pub fn roots(&self, with_shadow: bool) -> Vec<i32> {
        let held: std::collections::BTreeSet<i32> = self
            .iter_buckets()
            .flat_map(|b| b.items.iter().copied())
            .filter(|i| *i < 0)
            .collect();
        let mut roots: Vec<i32> = self
            .iter_buckets()
            .map(|b| b.id)
            .filter(|id| !held.contains(id) && (with_shadow || !self.is_shadow(*id)))
            .collect();
        roots.sort_unstable();
        roots
    }

    /// (type name, bucket name) of every bucket above `item`, the root first.
    pub fn location_of(&self, item: i32) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let mut at = item;
        // A well-formed tree is never deeper than its number of buckets.
        for _ in 0..self.buckets.len() {
            let Some(parent) = self.parent(at) else { break };
            let kind = self.type_name(i32::from(parent.kind)).unwrap_or("").to_string();
            out.push((kind, self.item_name(parent.id).unwrap_or("").to_string()));
            at = parent.id;
        }
        out.reverse();
        out
    }

    /// Devices below `item` (or the item itself), each once, ascending.
    pub fn devices_under(&self, item: i32) -> Vec<i32> {
        let mut out = std::collections::BTreeSet::new();
        let mut seen = std::collections::BTreeSet::new();
        let mut todo = vec![item];
        while let Some(i) = todo.pop() {
            if i >= 0 {
                out.insert(i);
            } else if seen.insert(i)
                && let Some(b) = self.bucket(i)
            {
                todo.extend(&b.items);
            }
        }
        out.into_iter().collect()
    }
}

fn find_key(names: &BTreeMap<i32, String>, name: &str) -> Option<i32> {
    names.iter().find(|(_, n)| *n == name).map(|(k, _)| *k)
}
