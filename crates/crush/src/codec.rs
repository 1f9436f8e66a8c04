//! The binary form of a CRUSH map (docs/protocol/ceph/03-placement.md, section 5).
//!
//! A decoder accepts maps that end early, before any of the parts behind the rule names (older writers); the
//! encoder always writes everything up to choose_args, and the MSR tunables only if the map came with them.

use crate::map::*;
use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::BTreeMap;

const MAGIC: u32 = 0x0001_0000;
/// The fewest bytes of a present rule: presence, length, four bytes of header.
const STEP_SIZE: usize = 12;

impl Encode for Bucket {
    fn encode(&self, w: &mut Writer) {
        let alg = self.alg();
        w.u32(alg as u32);
        w.i32(self.id);
        w.u16(self.kind);
        w.u8(alg as u8);
        w.u8(self.hash);
        w.u32(self.weight);
        w.put(&self.items);
        let pairs = |w: &mut Writer, a: &[u32], b: &[u32]| {
            for (x, y) in a.iter().zip(b) {
                w.u32(*x);
                w.u32(*y);
            }
        };
        match &self.body {
            BucketBody::Uniform { item_weight } => w.u32(*item_weight),
            BucketBody::List { weights, sums } => pairs(w, weights, sums),
            BucketBody::Straw { weights, straws } => pairs(w, weights, straws),
            BucketBody::Straw2 { weights } => weights.iter().for_each(|x| w.u32(*x)),
            BucketBody::Tree { nodes } => {
                w.u8(nodes.len() as u8);
                nodes.iter().for_each(|x| w.u32(*x));
            }
        }
    }
}

/// The bucket in slot `slot`, or an empty slot.
fn decode_bucket(r: &mut Reader, slot: usize) -> Result<Option<Bucket>> {
    let alg = r.u32()?;
    if alg == 0 {
        return Ok(None);
    }
    let alg = Alg::from_u32(alg).ok_or_else(|| r.invalid("unknown bucket algorithm"))?;
    let id = r.i32()?;
    if id != bucket_id(slot) {
        return Err(r.invalid("bucket id does not fit its slot"));
    }
    let kind = r.u16()?;
    if kind == 0 {
        return Err(r.invalid("bucket of the device type"));
    }
    r.skip(1)?;
    let (hash, weight) = (r.u8()?, r.u32()?);
    let items: Vec<i32> = r.get()?;
    let n = items.len();
    let body = decode_body(r, alg, n)?;
    Ok(Some(Bucket {
        id,
        kind,
        hash,
        weight,
        items,
        body,
    }))
}

fn decode_body(r: &mut Reader, alg: Alg, n: usize) -> Result<BucketBody> {
    // The item list was already read, so `n` is bounded by the input.
    let pairs = |r: &mut Reader| -> Result<(Vec<u32>, Vec<u32>)> {
        let (mut a, mut b) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for _ in 0..n {
            a.push(r.u32()?);
            b.push(r.u32()?);
        }
        Ok((a, b))
    };
    let words = |r: &mut Reader, n: usize| (0..n).map(|_| r.u32()).collect::<Result<Vec<u32>>>();
    Ok(match alg {
        Alg::Uniform => BucketBody::Uniform {
            item_weight: r.u32()?,
        },
        Alg::List => {
            let (weights, sums) = pairs(r)?;
            BucketBody::List { weights, sums }
        }
        Alg::Straw => {
            let (weights, straws) = pairs(r)?;
            BucketBody::Straw { weights, straws }
        }
        Alg::Straw2 => BucketBody::Straw2 {
            weights: words(r, n)?,
        },
        Alg::Tree => {
            let count = usize::from(r.u8()?);
            if count != crate::straw::tree_nodes(n) {
                return Err(r.invalid("tree bucket with a wrong number of nodes"));
            }
            BucketBody::Tree {
                nodes: words(r, count)?,
            }
        }
    })
}

fn encode_rule(w: &mut Writer, id: usize, rule: &Rule) {
    w.u32(rule.steps.len() as u32);
    // The field "ruleset" must be the rule's id; newer clients refuse the map otherwise.
    w.u8(id as u8);
    w.u8(rule.kind);
    w.u8(rule.min_size);
    w.u8(rule.max_size);
    for s in &rule.steps {
        w.u32(s.op);
        w.i32(s.arg1);
        w.i32(s.arg2);
    }
}

fn decode_rule(r: &mut Reader) -> Result<Option<Rule>> {
    if r.u32()? == 0 {
        return Ok(None);
    }
    let at = r.clone();
    let len = r.u32()? as usize;
    r.skip(1)?;
    let (kind, min_size, max_size) = (r.u8()?, r.u8()?, r.u8()?);
    if len > r.remaining() / STEP_SIZE {
        return Err(at.invalid("rule longer than the map"));
    }
    let steps = (0..len)
        .map(|_| Ok(Step::new(r.u32()?, r.i32()?, r.i32()?)))
        .collect::<Result<_>>()?;
    Ok(Some(Rule {
        kind,
        min_size,
        max_size,
        steps,
    }))
}

/// A map of names; a length of 0 is an old writer's bug, the true length follows.
fn decode_names(r: &mut Reader) -> Result<BTreeMap<i32, String>> {
    let n = r.count(8)?;
    let mut out = BTreeMap::new();
    for _ in 0..n {
        let key = r.i32()?;
        let mut len = r.u32()? as usize;
        if len == 0 {
            len = r.u32()? as usize;
        }
        // Written again, an empty name would be taken for that bug.
        if len == 0 {
            return Err(r.invalid("empty CRUSH name"));
        }
        let raw = r.bytes(len)?;
        let name = String::from_utf8(raw.to_vec()).map_err(|_| r.invalid("CRUSH name is not UTF-8"))?;
        out.insert(key, name);
    }
    Ok(out)
}

fn encode_choose_args(w: &mut Writer, all: &BTreeMap<i64, ChooseArgs>) {
    w.u32(all.len() as u32);
    for (index, args) in all {
        w.i64(*index);
        w.u32(args.by_slot.len() as u32);
        for (slot, arg) in &args.by_slot {
            w.u32(*slot);
            w.put(&arg.weight_set);
            w.put(&arg.ids);
        }
    }
}

/// Clients abort on a set whose sizes do not fit, so such a map is refused here.
fn decode_choose_args(r: &mut Reader, buckets: &[Option<Bucket>]) -> Result<BTreeMap<i64, ChooseArgs>> {
    let n = r.count(12)?;
    let mut all = BTreeMap::new();
    for _ in 0..n {
        let index = r.i64()?;
        let m = r.count(12)?;
        let mut args = ChooseArgs::default();
        for _ in 0..m {
            let slot = r.u32()?;
            let size = buckets
                .get(slot as usize)
                .and_then(Option::as_ref)
                .map(|b| b.items.len())
                .ok_or_else(|| r.invalid("choose_args for a bucket that does not exist"))?;
            let arg = ChooseArg {
                weight_set: r.get()?,
                ids: r.get()?,
            };
            if arg.weight_set.iter().any(|row| row.len() != size)
                || !(arg.ids.is_empty() || arg.ids.len() == size)
            {
                return Err(r.invalid("choose_args of another size than their bucket"));
            }
            args.by_slot.insert(slot, arg);
        }
        all.insert(index, args);
    }
    Ok(all)
}

impl Encode for CrushMap {
    fn encode(&self, w: &mut Writer) {
        w.u32(MAGIC);
        w.i32(self.buckets.len() as i32);
        w.u32(self.rules.len() as u32);
        w.i32(self.max_devices);
        for b in &self.buckets {
            match b {
                Some(b) => w.put(b),
                None => w.u32(0),
            }
        }
        for (id, rule) in self.rules.iter().enumerate() {
            w.u32(u32::from(rule.is_some()));
            if let Some(rule) = rule {
                encode_rule(w, id, rule);
            }
        }
        w.put(&self.type_names);
        w.put(&self.item_names);
        w.put(&self.rule_names);
        let t = &self.tunables;
        w.u32(t.choose_local_tries);
        w.u32(t.choose_local_fallback_tries);
        w.u32(t.choose_total_tries);
        w.u32(t.chooseleaf_descend_once);
        w.u8(t.chooseleaf_vary_r);
        w.u8(t.straw_calc_version);
        w.u32(t.allowed_bucket_algs);
        w.u8(t.chooseleaf_stable);
        w.put(&self.class_of);
        w.put(&self.class_names);
        w.put(&self.shadows);
        encode_choose_args(w, &self.choose_args);
        if let Some((descents, collision_tries)) = self.msr_tunables {
            w.u32(descents);
            w.u32(collision_tries);
        }
    }
}

impl Decode for CrushMap {
    fn decode(r: &mut Reader) -> Result<Self> {
        if r.u32()? != MAGIC {
            return Err(r.invalid("bad magic number of the CRUSH map"));
        }
        // An empty slot takes four bytes, so the counts are bounded by the input.
        let max_buckets = r.u32()? as usize;
        let max_rules = r.u32()? as usize;
        let max_devices = r.i32()?;
        if max_buckets > r.remaining() / 4 || max_rules > r.remaining() / 4 || max_devices < 0 {
            return Err(r.invalid("counts of the CRUSH map do not fit"));
        }
        let buckets: Vec<_> = (0..max_buckets)
            .map(|slot| decode_bucket(r, slot))
            .collect::<Result<_>>()?;
        let rules = (0..max_rules).map(|_| decode_rule(r)).collect::<Result<_>>()?;
        let mut map = Self {
            buckets,
            rules,
            max_devices,
            type_names: decode_names(r)?,
            item_names: decode_names(r)?,
            rule_names: decode_names(r)?,
            tunables: Tunables::LEGACY,
            ..Self::default()
        };
        decode_tail(r, &mut map)?;
        Ok(map)
    }
}

/// The parts that older writers leave out.
fn decode_tail(r: &mut Reader, map: &mut CrushMap) -> Result<()> {
    let t = &mut map.tunables;
    if r.is_empty() {
        return Ok(());
    }
    t.choose_local_tries = r.u32()?;
    t.choose_local_fallback_tries = r.u32()?;
    t.choose_total_tries = r.u32()?;
    if r.is_empty() {
        return Ok(());
    }
    t.chooseleaf_descend_once = r.u32()?;
    if r.is_empty() {
        return Ok(());
    }
    t.chooseleaf_vary_r = r.u8()?;
    if r.is_empty() {
        return Ok(());
    }
    t.straw_calc_version = r.u8()?;
    if r.is_empty() {
        return Ok(());
    }
    t.allowed_bucket_algs = r.u32()?;
    if r.is_empty() {
        return Ok(());
    }
    t.chooseleaf_stable = r.u8()?;
    if r.is_empty() {
        return Ok(());
    }
    map.class_of = r.get()?;
    map.class_names = r.get()?;
    map.shadows = r.get()?;
    if r.is_empty() {
        return Ok(());
    }
    map.choose_args = decode_choose_args(r, &map.buckets)?;
    if r.remaining() >= 8 {
        map.msr_tunables = Some((r.u32()?, r.u32()?));
    }
    Ok(())
}
