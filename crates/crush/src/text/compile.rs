//! Text -> map.
//!
//! Sections come in order: tunables, devices and types; buckets, each behind those that it holds; rules, before
//! the first of which the shadow trees are built; weight overrides. All numbers are bounded, since ids become
//! indexes.

use super::tokens::{Result, Tokens};
use super::{CompileError, TUNABLES};
use crate::classes::{SHADOW_SEPARATOR, ShadowIds};
use crate::map::*;
use std::collections::BTreeSet;

/// Ids that a text may name.
const DEVICE_ID_MAX: i64 = (1 << 16) - 1;
const BUCKET_ID_MIN: i64 = -(1 << 17);
const RULE_ID_MAX: i64 = 255;
const DEVICE_WEIGHT_MAX: u32 = 100 << 16;

/// Reads a text map.
pub fn compile(text: &str) -> std::result::Result<CrushMap, CompileError> {
    let mut c = Compiler {
        t: Tokens::new(text),
        map: CrushMap {
            tunables: Tunables::LEGACY,
            ..CrushMap::default()
        },
        shadow_ids: ShadowIds::new(),
        in_rules: false,
    };
    c.preamble()?;
    c.buckets_and_rules()?;
    while c.t.take("choose_args") {
        c.choose_args()?;
    }
    if let Ok(word) = c.t.next() {
        return c.t.error(format!("'{word}' is not expected here"));
    }
    c.map.refresh_max_devices();
    Ok(c.map)
}

struct Compiler<'a> {
    t: Tokens<'a>,
    map: CrushMap,
    /// Ids that the text gives to shadow buckets.
    shadow_ids: ShadowIds,
    in_rules: bool,
}

impl Compiler<'_> {
    fn preamble(&mut self) -> Result<()> {
        loop {
            if self.t.take("tunable") {
                self.tunable()?;
            } else if self.t.take("device") {
                self.device()?;
            } else if self.t.take("type") {
                let id = self.t.bounded("type id", 0, i64::from(u16::MAX))? as i32;
                let name = self.t.name()?.to_string();
                if self.map.type_id(&name).is_some_and(|t| t != id) {
                    return self.t.error(format!("type name '{name}' is in use"));
                }
                self.map.type_names.insert(id, name);
            } else {
                return Ok(());
            }
        }
    }

    fn tunable(&mut self) -> Result<()> {
        let name = self.t.name()?;
        if !TUNABLES.iter().any(|(n, _)| *n == name) {
            return self.t.error(format!("tunable '{name}' is unknown"));
        }
        let byte_sized = matches!(
            name,
            "chooseleaf_vary_r" | "chooseleaf_stable" | "straw_calc_version"
        );
        let limit = if byte_sized {
            i64::from(u8::MAX)
        } else {
            i64::from(u32::MAX)
        };
        let v = self.t.bounded(name, 0, limit)?;
        let t = &mut self.map.tunables;
        match name {
            "choose_local_tries" => t.choose_local_tries = v as u32,
            "choose_local_fallback_tries" => t.choose_local_fallback_tries = v as u32,
            "choose_total_tries" => t.choose_total_tries = v as u32,
            "chooseleaf_descend_once" => t.chooseleaf_descend_once = v as u32,
            "chooseleaf_vary_r" => t.chooseleaf_vary_r = v as u8,
            "chooseleaf_stable" => t.chooseleaf_stable = v as u8,
            "straw_calc_version" => t.straw_calc_version = v as u8,
            _ => t.allowed_bucket_algs = v as u32,
        }
        Ok(())
    }

    fn device(&mut self) -> Result<()> {
        let id = self.t.bounded("device id", 0, DEVICE_ID_MAX)? as i32;
        let name = self.new_item_name()?;
        if self.map.item_names.contains_key(&id) {
            return self.t.error(format!("device {id} is defined twice"));
        }
        self.map.item_names.insert(id, name);
        if self.t.take("class") {
            let class = self.t.name()?;
            let class = self.map.class_or_new(class);
            self.map.class_of.insert(id, class);
        }
        Ok(())
    }

    fn new_item_name(&mut self) -> Result<String> {
        let name = self.t.name()?;
        if self.map.item_id(name).is_some() {
            return self.t.error(format!("item '{name}' is defined twice"));
        }
        Ok(name.to_string())
    }

    fn buckets_and_rules(&mut self) -> Result<()> {
        loop {
            match self.t.peek() {
                None | Some("choose_args") => return Ok(()),
                Some("rule") => {
                    self.t.next()?;
                    if !self.in_rules {
                        self.in_rules = true;
                        let ids = std::mem::take(&mut self.shadow_ids);
                        self.map.build_shadows(&ids);
                    }
                    self.rule()?;
                }
                Some(_) if self.in_rules => {
                    self.t.next()?;
                    return self.t.error("buckets must come before rules");
                }
                Some(_) => self.bucket()?,
            }
        }
    }

    fn type_named(&mut self) -> Result<i32> {
        let name = self.t.name()?;
        match self.map.type_id(name) {
            Some(t) => Ok(t),
            None if name == "osd" && !self.map.type_names.contains_key(&0) => Ok(0),
            None => self.t.error(format!("type '{name}' is unknown")),
        }
    }

    fn item_named(&mut self) -> Result<i32> {
        let name = self.t.name()?;
        match self.map.item_id(name) {
            Some(id) => Ok(id),
            None => self.t.error(format!("item '{name}' is not defined")),
        }
    }

    fn bucket(&mut self) -> Result<()> {
        let kind = self.type_named()?;
        if kind == 0 {
            return self.t.error("a bucket cannot have the device type");
        }
        let name = self.new_item_name()?;
        self.t.expect("{")?;
        let (mut own_id, mut class_ids) = (None, Vec::new());
        while self.t.take("id") {
            let id = self.t.bounded("bucket id", BUCKET_ID_MIN, -1)? as i32;
            if self.map.bucket(id).is_some() || self.shadow_taken(id) {
                return self.t.error(format!("bucket id {id} is in use"));
            }
            if self.t.take("class") {
                let class = self.t.name()?;
                class_ids.push((self.map.class_or_new(class), id));
            } else {
                own_id = Some(id);
            }
        }
        let id = own_id.unwrap_or_else(|| self.map.free_bucket_id(&BTreeSet::new()));
        self.t.expect("alg")?;
        let alg_name = self.t.name()?;
        let Some(alg) = Alg::from_name(alg_name) else {
            return self.t.error(format!("algorithm '{alg_name}' is unknown"));
        };
        let hash = self.hash()?;
        let (items, weights) = self.items()?;
        self.t.expect("}")?;
        let version = self.map.tunables.straw_calc_version;
        let Some(mut b) = Bucket::build(id, kind as u16, alg, items, weights, version) else {
            return self.t.error(format!("bucket '{name}' cannot have these items"));
        };
        b.hash = hash;
        self.map.put_bucket(b);
        self.map.item_names.insert(id, name);
        for (class, shadow) in class_ids {
            self.shadow_ids.entry(id).or_default().insert(class, shadow);
        }
        Ok(())
    }

    fn shadow_taken(&self, id: i32) -> bool {
        self.shadow_ids.values().any(|m| m.values().any(|s| *s == id))
    }

    fn hash(&mut self) -> Result<u8> {
        let mut hash = 0;
        while self.t.take("hash") {
            hash = if self.t.take("rjenkins1") {
                0
            } else {
                self.t.bounded("hash", 0, i64::from(u8::MAX))? as u8
            };
        }
        Ok(hash)
    }

    /// The items of a bucket: those with a position at it, the others in the places between.
    fn items(&mut self) -> Result<(Vec<i32>, Vec<u32>)> {
        let mut listed: Vec<(i32, u32, Option<usize>)> = Vec::new();
        while self.t.take("item") {
            let item = self.item_named()?;
            let weight = self.item_weight(item)?;
            let pos = match self.t.take("pos") {
                true => Some(self.t.bounded("position", 0, i64::from(u16::MAX))? as usize),
                false => None,
            };
            listed.push((item, weight, pos));
        }
        let mut places: Vec<Option<(i32, u32)>> = vec![None; listed.len()];
        for (item, weight, pos) in &listed {
            if let Some(pos) = pos {
                match places.get_mut(*pos) {
                    Some(place) if place.is_none() => *place = Some((*item, *weight)),
                    _ => return self.t.error(format!("position {pos} does not fit")),
                }
            }
        }
        let mut others = listed.iter().filter(|(_, _, pos)| pos.is_none());
        for place in places.iter_mut().filter(|p| p.is_none()) {
            *place = others.next().map(|(item, weight, _)| (*item, *weight));
        }
        Ok(places.into_iter().flatten().unzip())
    }

    fn item_weight(&mut self, item: i32) -> Result<u32> {
        if !self.t.take("weight") {
            return Ok(self.map.bucket(item).map_or(WEIGHT_ONE, |b| b.weight));
        }
        let weight = self.t.weight()?;
        if item >= 0 && weight > DEVICE_WEIGHT_MAX {
            return self.t.error("device weight above 100");
        }
        Ok(weight)
    }

    fn rule(&mut self) -> Result<()> {
        let name = match self.t.peek() {
            Some("{") => None,
            _ => Some(self.t.name()?.to_string()),
        };
        self.t.expect("{")?;
        if !self.t.take("id") {
            self.t.expect("ruleset")?;
        }
        let id = self.t.bounded("rule id", 0, RULE_ID_MAX)? as usize;
        if self.map.rules.get(id).is_some_and(Option::is_some) {
            return self.t.error(format!("rule {id} is defined twice"));
        }
        self.t.expect("type")?;
        let (kind, mut min_size, mut max_size) = match self.t.next()? {
            "replicated" => (RuleKind::Replicated as u8, 1, 10),
            "erasure" => (RuleKind::Erasure as u8, 3, 20),
            other => return self.t.error(format!("rule type '{other}' is unknown")),
        };
        let byte = i64::from(u8::MAX);
        if self.t.take("min_size") {
            min_size = self.t.bounded("min_size", 0, byte)? as u8;
        }
        if self.t.take("max_size") {
            max_size = self.t.bounded("max_size", 0, byte)? as u8;
        }
        let mut steps = Vec::new();
        while self.t.take("step") {
            steps.push(self.step()?);
        }
        self.t.expect("}")?;
        if steps.is_empty() {
            return self.t.error("a rule needs steps");
        }
        if id >= self.map.rules.len() {
            self.map.rules.resize(id + 1, None);
        }
        self.map.rules[id] = Some(Rule {
            kind,
            min_size,
            max_size,
            steps,
        });
        if let Some(name) = name {
            if self.map.rule_id(&name).is_some() {
                return self.t.error(format!("rule '{name}' is defined twice"));
            }
            self.map.rule_names.insert(id as i32, name);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Step> {
        let word = self.t.next()?;
        match word {
            "take" => self.take_step(),
            "emit" => Ok(Step::new(step_op::EMIT, 0, 0)),
            "noop" => Ok(Step::new(step_op::NOOP, 0, 0)),
            "choose" | "chooseleaf" => {
                let mode = self.t.next()?;
                let Some(op) = step_op::from_name(&format!("{word}_{mode}")) else {
                    return self.t.error(format!("'{word} {mode}' is unknown"));
                };
                let n: i32 = self.t.number("count")?;
                self.t.expect("type")?;
                Ok(Step::new(op, n, self.type_named()?))
            }
            _ => match step_op::from_name(word).filter(|_| word.starts_with("set_")) {
                Some(op) => Ok(Step::new(op, self.t.number("count")?, 0)),
                None => self.t.error(format!("step '{word}' is unknown")),
            },
        }
    }

    fn take_step(&mut self) -> Result<Step> {
        let item = self.item_named()?;
        if !self.t.take("class") {
            return Ok(Step::new(step_op::TAKE, item, 0));
        }
        let class = self.t.name()?;
        let name = format!(
            "{}{SHADOW_SEPARATOR}{class}",
            self.map.item_name(item).unwrap_or("")
        );
        match self.map.item_id(&name) {
            Some(shadow) => Ok(Step::new(step_op::TAKE, shadow, 0)),
            None => self.t.error(format!("no device of class '{class}' anywhere")),
        }
    }

    fn choose_args(&mut self) -> Result<()> {
        let index: u64 = self.t.number("index")?;
        // Cut to 32 bits with its sign, as the tools do: the default set is written as 2^64 - 1.
        let index = i64::from(index as i32);
        let mut args = ChooseArgs::default();
        self.t.expect("{")?;
        while self.t.take("{") {
            let (slot, arg) = self.choose_arg()?;
            args.by_slot.insert(slot, arg);
            self.t.expect("}")?;
        }
        self.t.expect("}")?;
        if self.map.choose_args.insert(index, args).is_some() {
            return self.t.error(format!("choose_args {index} are defined twice"));
        }
        Ok(())
    }

    fn choose_arg(&mut self) -> Result<(u32, ChooseArg)> {
        self.t.expect("bucket_id")?;
        let id = self.t.bounded("bucket id", BUCKET_ID_MIN, -1)? as i32;
        let (Some(size), Some(slot)) = (self.map.bucket(id).map(|b| b.items.len()), bucket_slot(id)) else {
            return self.t.error(format!("bucket {id} does not exist"));
        };
        let mut arg = ChooseArg::default();
        if self.t.take("weight_set") {
            self.t.expect("[")?;
            while self.t.take("[") {
                let mut row = Vec::new();
                while !self.t.take("]") {
                    row.push(self.t.weight()?);
                }
                arg.weight_set.push(row);
            }
            self.t.expect("]")?;
        }
        if self.t.take("ids") {
            self.t.expect("[")?;
            while !self.t.take("]") {
                arg.ids.push(self.t.number("id")?);
            }
        }
        if arg.weight_set.iter().any(|row| row.len() != size)
            || !(arg.ids.is_empty() || arg.ids.len() == size)
        {
            return self.t.error(format!("bucket {id} has {size} items"));
        }
        Ok((slot as u32, arg))
    }
}
