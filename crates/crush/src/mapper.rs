//! Running a rule (docs/protocol/ceph/03-placement.md, 5.5 to 5.9).
//!
//! `r` is the number of an attempt; it enters the hashes modulo 2^32. Results of `firstn` are dense and may be
//! short; results of `indep` keep positions and have holes ([`ITEM_NONE`]).
//!
//! Invariant: a computation makes at most [`CHOICE_BUDGET`] choices. Real maps need some dozens; a map with a
//! cycle, or with absurd numbers of tries, ends with the places not yet filled given up.

use crate::hash::{hash2, hash3, hash4};
use crate::ln::{LN_ONE, straw2_ln};
use crate::map::*;

/// Choices (one item out of one bucket) that one computation may make; see [`ITEMS_PER_UNIT`].
pub const CHOICE_BUDGET: u32 = 1_000_000;
/// Items of a bucket that one unit of the budget pays for.
const ITEMS_PER_UNIT: u32 = 64;

/// What stays the same during one computation.
struct Run<'a> {
    map: &'a CrushMap,
    x: u32,
    /// The reweights of the OSD map ("in" and "out"), not the CRUSH weights.
    weights: &'a [u32],
    args: Option<&'a ChooseArgs>,
    budget: u32,
    /// Scratch of the permutation of uniform buckets.
    perm: Vec<u32>,
}

/// Knobs of one firstn call.
#[derive(Clone, Copy)]
struct Firstn {
    tries: u32,
    leaf_tries: u32,
    local_retries: u32,
    fallback: u32,
    leaf: bool,
    vary_r: u32,
    stable: bool,
}

/// What a choice below some bucket ended with.
enum Pick<'a> {
    /// An item of the wanted type.
    Item(i32),
    /// A bucket on the way is empty: try again.
    Empty(&'a Bucket),
    /// The map leads nowhere: this place stays unfilled.
    GiveUp,
}

impl<'a> Run<'a> {
    /// Pays for one choice in a bucket; a large bucket costs more. False when nothing is left.
    fn spend(&mut self, items: usize) -> bool {
        let cost = 1 + items as u32 / ITEMS_PER_UNIT;
        self.budget = self.budget.saturating_sub(cost);
        self.budget > 0
    }

    fn is_out(&self, item: i32) -> bool {
        match self.weights.get(item as usize) {
            None | Some(0) => true,
            Some(w) if *w >= WEIGHT_ONE => false,
            Some(w) => hash2(self.x, item as u32) & 0xffff >= *w,
        }
    }

    fn arg_of(&self, b: &Bucket) -> Option<&'a ChooseArg> {
        self.args?.by_slot.get(&(bucket_slot(b.id)? as u32))
    }

    /// The bucket behind an item that is not of the wanted type, if the descent may go on into it.
    fn inner(&self, item: i32) -> Option<&'a Bucket> {
        self.map.bucket(item)
    }

    fn type_of(&self, item: i32) -> i32 {
        // A bucket that does not exist has no type; -1 equals no wanted type.
        self.map.item_type(item).unwrap_or(-1)
    }

    fn choose(&mut self, b: &'a Bucket, r: u32, position: usize) -> i32 {
        let x = self.x;
        let h3 = |item: i32| hash_or_zero(b, || hash3(x, item as u32, r));
        let h4 = |a: u32| hash_or_zero(b, || hash4(x, a, r, b.id as u32));
        match &b.body {
            BucketBody::Uniform { .. } => self.permuted(b, r),
            BucketBody::List { weights, sums } => {
                for i in (0..b.items.len()).rev() {
                    let w = u64::from(h4(b.items[i] as u32) & 0xffff);
                    if (w * u64::from(sums[i])) >> 16 < u64::from(weights[i]) {
                        return b.items[i];
                    }
                }
                b.items[0]
            }
            BucketBody::Tree { nodes } => {
                let mut n = nodes.len() >> 1;
                while n & 1 == 0 && n > 0 {
                    let t = (u64::from(h4(n as u32)) * u64::from(nodes[n])) >> 32;
                    let half = (n & n.wrapping_neg()) >> 1;
                    n = if t < u64::from(nodes[n - half]) {
                        n - half
                    } else {
                        n + half
                    };
                }
                // A tree of hostile weights may lead to a leaf without an item.
                b.items.get(n >> 1).copied().unwrap_or(b.items[0])
            }
            BucketBody::Straw { straws, .. } => {
                let draw = |i: usize| u64::from(h3(b.items[i]) & 0xffff) * u64::from(straws[i]);
                let mut best = (0, draw(0));
                for i in 1..b.items.len() {
                    let d = draw(i);
                    if d > best.1 {
                        best = (i, d);
                    }
                }
                b.items[best.0]
            }
            BucketBody::Straw2 { weights } => {
                let arg = self.arg_of(b);
                let row = arg.and_then(|a| {
                    let last = a.weight_set.len().checked_sub(1)?;
                    a.weight_set.get(position.min(last))
                });
                let weights = row.unwrap_or(weights);
                let ids = arg
                    .map(|a| &a.ids)
                    .filter(|ids| !ids.is_empty())
                    .unwrap_or(&b.items);
                straw2(b, weights, ids, h3)
            }
        }
    }

    /// Uniform buckets, and the fallback of any bucket: position `r` of a pseudo-random permutation.
    fn permuted(&mut self, b: &Bucket, r: u32) -> i32 {
        let n = b.items.len();
        let target = r as usize % n;
        self.perm.clear();
        self.perm.extend(0..n as u32);
        for p in 0..=target {
            if p < n - 1 {
                let h = hash_or_zero(b, || hash3(self.x, b.id as u32, p as u32));
                self.perm.swap(p, p + h as usize % (n - p));
            }
        }
        b.items[self.perm[target] as usize]
    }

    /// One descent from `b` to an item of type `kind`. `attempt` gives r for each bucket on the way; `pick`
    /// chooses in a bucket. Both are called per level.
    fn check_item(&self, item: i32, kind: i32) -> Result<Option<&'a Bucket>, ()> {
        if item >= self.map.max_devices {
            return Err(());
        }
        if self.type_of(item) == kind {
            return Ok(None);
        }
        if item >= 0 {
            return Err(());
        }
        self.inner(item).map(Some).ok_or(())
    }

    /// Fills `out[outpos..]`; returns the new count. `out2` receives the leaf under each item.
    #[allow(clippy::too_many_arguments)] // the protocol's own parameter list
    fn firstn(
        &mut self,
        b: &'a Bucket,
        numrep: usize,
        kind: i32,
        out: &mut [i32],
        mut outpos: usize,
        mut room: usize,
        k: Firstn,
        mut out2: Option<&mut [i32]>,
        parent_r: u32,
    ) -> usize {
        let mut rep = if k.stable { 0 } else { outpos };
        while rep < numrep && room > 0 && self.budget > 0 {
            let found = self.firstn_one(b, rep, kind, out, outpos, room, k, out2.as_deref_mut(), parent_r);
            if let Some(item) = found {
                out[outpos] = item;
                outpos += 1;
                room -= 1;
            }
            rep += 1;
        }
        outpos
    }

    /// One place of a firstn result, or nothing if it is given up.
    #[allow(clippy::too_many_arguments)] // as above
    fn firstn_one(
        &mut self,
        b: &'a Bucket,
        rep: usize,
        kind: i32,
        out: &mut [i32],
        outpos: usize,
        room: usize,
        k: Firstn,
        mut out2: Option<&mut [i32]>,
        parent_r: u32,
    ) -> Option<i32> {
        let mut fails: u32 = 0;
        'descent: loop {
            let mut cur = b;
            let mut local: u32 = 0;
            loop {
                let r = (rep as u32).wrapping_add(parent_r).wrapping_add(fails);
                let collide = match self.firstn_step(cur, r, local, outpos, k.fallback, kind) {
                    Pick::GiveUp => return None,
                    Pick::Empty(at) => {
                        cur = at;
                        false
                    }
                    Pick::Item(item) if item < 0 && self.type_of(item) != kind => {
                        cur = self.inner(item)?;
                        continue;
                    }
                    Pick::Item(item) => {
                        let collide = out[..outpos].contains(&item);
                        if !collide {
                            let leaf_ok =
                                !k.leaf || self.firstn_leaf(item, r, outpos, room, k, out2.as_deref_mut());
                            if leaf_ok && !(kind == 0 && self.is_out(item)) {
                                return Some(item);
                            }
                        }
                        collide
                    }
                };
                fails = fails.saturating_add(1);
                local = local.saturating_add(1);
                if collide && local <= k.local_retries {
                    continue;
                }
                if k.fallback > 0 && u64::from(local) <= cur.items.len() as u64 + u64::from(k.fallback) {
                    continue;
                }
                if fails < k.tries {
                    continue 'descent;
                }
                return None;
            }
        }
    }

    /// One choice in `cur`.
    fn firstn_step(
        &mut self,
        cur: &'a Bucket,
        r: u32,
        local: u32,
        outpos: usize,
        fallback: u32,
        kind: i32,
    ) -> Pick<'a> {
        if !self.spend(cur.items.len()) {
            return Pick::GiveUp;
        }
        if cur.items.is_empty() {
            return Pick::Empty(cur);
        }
        let permute = fallback > 0 && local as usize >= cur.items.len() / 2 && local > fallback;
        let item = if permute {
            self.permuted(cur, r)
        } else {
            self.choose(cur, r, outpos)
        };
        match self.check_item(item, kind) {
            Ok(_) => Pick::Item(item),
            Err(()) => Pick::GiveUp,
        }
    }

    /// The device under a chosen bucket, into `out2[outpos]`.
    fn firstn_leaf(
        &mut self,
        item: i32,
        r: u32,
        outpos: usize,
        room: usize,
        k: Firstn,
        out2: Option<&mut [i32]>,
    ) -> bool {
        let Some(out2) = out2 else { return false };
        if item >= 0 {
            out2[outpos] = item;
            return true;
        }
        let Some(b) = self.map.bucket(item) else {
            return false;
        };
        let sub = if k.vary_r > 0 {
            r.checked_shr(k.vary_r - 1).unwrap_or(0)
        } else {
            0
        };
        let numrep = if k.stable { 1 } else { outpos + 1 };
        let inner = Firstn {
            tries: k.leaf_tries,
            leaf_tries: 0,
            leaf: false,
            ..k
        };
        self.firstn(b, numrep, 0, out2, outpos, room, inner, None, sub) > outpos
    }

    /// Fills `out[outpos..outpos + left]`, holes included. `parent_r` shifts all attempts.
    #[allow(clippy::too_many_arguments)] // the protocol's own parameter list
    fn indep(
        &mut self,
        b: &'a Bucket,
        left: usize,
        numrep: usize,
        kind: i32,
        out: &mut [i32],
        outpos: usize,
        tries: u32,
        leaf_tries: Option<u32>,
        mut out2: Option<&mut [i32]>,
        parent_r: u32,
    ) {
        let end = outpos + left;
        out[outpos..end].fill(ITEM_UNDEF);
        if let Some(o2) = out2.as_deref_mut() {
            o2[outpos..end].fill(ITEM_UNDEF);
        }
        let mut left = left;
        let mut ft: u32 = 0;
        while left > 0 && ft < tries && self.budget > 0 {
            for rep in outpos..end {
                if out[rep] != ITEM_UNDEF {
                    continue;
                }
                let attempt = (rep as u32).wrapping_add(parent_r);
                match self.indep_pick(b, kind, numrep, ft, attempt, outpos) {
                    Err(()) => {
                        out[rep] = ITEM_NONE;
                        if let Some(o2) = out2.as_deref_mut() {
                            o2[rep] = ITEM_NONE;
                        }
                        left -= 1;
                    }
                    Ok(None) => {}
                    Ok(Some((item, r))) => {
                        if out[outpos..end].contains(&item) {
                            continue;
                        }
                        if let (Some(lt), Some(o2)) = (leaf_tries, out2.as_deref_mut())
                            && !self.indep_leaf(item, r, rep, numrep, lt, o2)
                        {
                            continue;
                        }
                        if kind == 0 && self.is_out(item) {
                            continue;
                        }
                        out[rep] = item;
                        left -= 1;
                    }
                }
            }
            ft += 1;
        }
        let holes = |v: &mut [i32]| {
            for i in v.iter_mut().filter(|i| **i == ITEM_UNDEF) {
                *i = ITEM_NONE;
            }
        };
        holes(&mut out[outpos..end]);
        if let Some(o2) = out2 {
            holes(&mut o2[outpos..end]);
        }
    }

    /// One descent: the item and the r of its last level, nothing (empty bucket), or a dead end.
    fn indep_pick(
        &mut self,
        b: &'a Bucket,
        kind: i32,
        numrep: usize,
        ft: u32,
        attempt: u32,
        outpos: usize,
    ) -> Result<Option<(i32, u32)>, ()> {
        let mut cur = b;
        loop {
            if !self.spend(cur.items.len()) {
                return Err(());
            }
            if cur.items.is_empty() {
                return Ok(None);
            }
            let uniform = cur.alg() == Alg::Uniform && cur.items.len().is_multiple_of(numrep);
            let stride = numrep as u32 + u32::from(uniform);
            let r = attempt.wrapping_add(stride.wrapping_mul(ft));
            let item = self.choose(cur, r, outpos);
            match self.check_item(item, kind)? {
                None => return Ok(Some((item, r))),
                Some(inner) => cur = inner,
            }
        }
    }

    fn indep_leaf(
        &mut self,
        item: i32,
        r: u32,
        rep: usize,
        numrep: usize,
        tries: u32,
        out2: &mut [i32],
    ) -> bool {
        if item >= 0 {
            out2[rep] = item;
            return true;
        }
        let Some(b) = self.map.bucket(item) else {
            return false;
        };
        self.indep(b, 1, numrep, 0, out2, rep, tries, None, None, r);
        out2[rep] != ITEM_NONE
    }
}

/// Buckets with a hash other than 0 hash everything to 0.
#[inline]
fn hash_or_zero(b: &Bucket, h: impl FnOnce() -> u32) -> u32 {
    if b.hash == 0 { h() } else { 0 }
}

/// The item with the largest draw, the first one on ties. Weights are SIGNED 32-bit here.
#[inline]
fn straw2(b: &Bucket, weights: &[u32], ids: &[i32], hash: impl Fn(i32) -> u32) -> i32 {
    let mut best = (0, i64::MIN);
    for (i, (w, id)) in weights.iter().zip(ids).enumerate() {
        if *w == 0 {
            continue;
        }
        let u = (hash(*id) & 0xffff) as u16;
        let draw = (straw2_ln(u) - LN_ONE) / i64::from(*w as i32);
        if draw > best.1 {
            best = (i, draw);
        }
    }
    b.items[best.0]
}

impl CrushMap {
    /// The devices for input `x` by rule `rule`, `count` of them at most. `weights` are the OSD map's reweights;
    /// `args` is the index of the choose_args set (the pool id), falling back to the default set.
    /// A rule that does not exist gives nothing.
    pub fn do_rule(&self, rule: u32, x: u32, count: usize, weights: &[u32], args: i64) -> Vec<i32> {
        let Some(rule) = self.rule(rule) else {
            return Vec::new();
        };
        let args = self
            .choose_args
            .get(&args)
            .or_else(|| self.choose_args.get(&DEFAULT_CHOOSE_ARGS));
        let run = Run {
            map: self,
            x,
            weights,
            args,
            budget: CHOICE_BUDGET,
            perm: Vec::new(),
        };
        Program::new(run, count).execute(&rule.steps)
    }
}

/// The registers of a running rule.
struct Program<'a> {
    run: Run<'a>,
    count: usize,
    tries: u32,
    leaf_tries: u32,
    local_retries: u32,
    fallback: u32,
    vary_r: u32,
    stable: bool,
    work: Vec<i32>,
    result: Vec<i32>,
    /// The items and the leaves of the step at hand.
    items: Vec<i32>,
    leaves: Vec<i32>,
}

impl<'a> Program<'a> {
    fn new(run: Run<'a>, count: usize) -> Self {
        let t = &run.map.tunables;
        Self {
            count,
            tries: t.choose_total_tries.saturating_add(1),
            leaf_tries: 0,
            local_retries: t.choose_local_tries,
            fallback: t.choose_local_fallback_tries,
            vary_r: u32::from(t.chooseleaf_vary_r),
            stable: t.chooseleaf_stable != 0,
            work: Vec::with_capacity(count.max(1)),
            result: Vec::with_capacity(count),
            items: vec![0; count],
            leaves: vec![0; count],
            run,
        }
    }

    fn execute(mut self, steps: &[Step]) -> Vec<i32> {
        for s in steps {
            let positive = || (s.arg1 > 0).then_some(s.arg1 as u32);
            let natural = || (s.arg1 >= 0).then_some(s.arg1 as u32);
            match s.op {
                step_op::TAKE => self.take(s.arg1),
                step_op::SET_CHOOSE_TRIES => set(&mut self.tries, positive()),
                step_op::SET_CHOOSELEAF_TRIES => set(&mut self.leaf_tries, positive()),
                step_op::SET_CHOOSE_LOCAL_TRIES => set(&mut self.local_retries, natural()),
                step_op::SET_CHOOSE_LOCAL_FALLBACK_TRIES => set(&mut self.fallback, natural()),
                step_op::SET_CHOOSELEAF_VARY_R => set(&mut self.vary_r, natural()),
                step_op::SET_CHOOSELEAF_STABLE => set(&mut self.stable, natural().map(|n| n != 0)),
                step_op::CHOOSE_FIRSTN => self.choose(s, true, false),
                step_op::CHOOSELEAF_FIRSTN => self.choose(s, true, true),
                step_op::CHOOSE_INDEP => self.choose(s, false, false),
                step_op::CHOOSELEAF_INDEP => self.choose(s, false, true),
                step_op::EMIT => {
                    let room = self.count - self.result.len();
                    self.result.extend(self.work.iter().take(room));
                    self.work.clear();
                }
                _ => {}
            }
        }
        self.result
    }

    fn take(&mut self, item: i32) {
        let known = if item >= 0 {
            item < self.run.map.max_devices
        } else {
            self.run.map.bucket(item).is_some()
        };
        if known {
            self.work.clear();
            self.work.push(item);
        }
    }

    fn choose(&mut self, s: &Step, firstn: bool, leaf: bool) {
        if self.work.is_empty() {
            return;
        }
        let wanted = if s.arg1 > 0 {
            s.arg1 as usize
        } else {
            match self.count.checked_sub(s.arg1.unsigned_abs() as usize) {
                None | Some(0) => 0,
                Some(n) => n,
            }
        };
        let mut filled = 0;
        for i in 0..self.work.len() {
            let Some(b) = self.run.map.bucket(self.work[i]) else {
                continue;
            };
            if wanted == 0 || filled >= self.count {
                continue;
            }
            filled += if firstn {
                self.fill_firstn(b, wanted, s.arg2, filled, leaf)
            } else {
                self.fill_indep(b, wanted, s.arg2, filled, leaf)
            };
        }
        let from = if leaf { &self.leaves } else { &self.items };
        self.work.clear();
        self.work.extend_from_slice(&from[..filled]);
    }

    fn fill_firstn(&mut self, b: &'a Bucket, wanted: usize, kind: i32, filled: usize, leaf: bool) -> usize {
        let leaf_tries = match self.leaf_tries {
            0 if self.run.map.tunables.chooseleaf_descend_once != 0 => 1,
            0 => self.tries,
            n => n,
        };
        let knobs = Firstn {
            tries: self.tries,
            leaf_tries,
            local_retries: self.local_retries,
            fallback: self.fallback,
            leaf,
            vary_r: self.vary_r,
            stable: self.stable,
        };
        let room = self.count - filled;
        let out = &mut self.items[filled..];
        let out2 = &mut self.leaves[filled..];
        self.run
            .firstn(b, wanted, kind, out, 0, room, knobs, Some(out2), 0)
    }

    fn fill_indep(&mut self, b: &'a Bucket, wanted: usize, kind: i32, filled: usize, leaf: bool) -> usize {
        let n = wanted.min(self.count - filled);
        let leaf_tries = leaf.then_some(if self.leaf_tries > 0 { self.leaf_tries } else { 1 });
        let out = &mut self.items[filled..];
        let out2 = &mut self.leaves[filled..];
        self.run
            .indep(b, n, wanted, kind, out, 0, self.tries, leaf_tries, Some(out2), 0);
        n
    }
}

fn set<T>(register: &mut T, value: Option<T>) {
    if let Some(v) = value {
        *register = v;
    }
}
