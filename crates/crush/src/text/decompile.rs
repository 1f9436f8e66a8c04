//! Map -> text.

use super::TUNABLES;
use crate::classes::SHADOW_SEPARATOR;
use crate::edit::DEPTH_MAX;
use crate::map::*;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Writes one line; writing to a `String` cannot fail.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => { writeln!($out, $($arg)*).unwrap_or(()) };
}

fn weight_text(w: u32) -> String {
    // A 32-bit float, as the tools have it.
    format!("{:.3}", f64::from(w as f32 / 65536.0f32))
}

impl CrushMap {
    /// The text form.
    pub fn decompile(&self) -> String {
        let mut out = String::new();
        line!(out, "# begin crush map");
        self.tunables_text(&mut out);
        line!(out, "\n# devices");
        for (id, name) in self.item_names.range(0..) {
            match self.class_name_of(*id) {
                Some(class) => line!(out, "device {id} {name} class {class}"),
                None => line!(out, "device {id} {name}"),
            };
        }
        line!(out, "\n# types");
        if !self.type_names.contains_key(&0) {
            line!(out, "type 0 osd");
        }
        for (id, name) in &self.type_names {
            line!(out, "type {id} {name}");
        }
        line!(out, "\n# buckets");
        let mut done = BTreeSet::new();
        for slot in 0..self.buckets.len() {
            self.bucket_text(bucket_id(slot), &mut done, 0, &mut out);
        }
        line!(out, "\n# rules");
        for (id, rule) in self.rules.iter().enumerate() {
            if let Some(rule) = rule {
                self.rule_text(id, rule, &mut out);
            }
        }
        if !self.choose_args.is_empty() {
            line!(out, "\n# choose_args");
            for (index, args) in &self.choose_args {
                self.choose_args_text(*index, args, &mut out);
            }
        }
        line!(out, "\n# end crush map");
        out
    }

    fn tunables_text(&self, out: &mut String) {
        let t = &self.tunables;
        let values = [
            t.choose_local_tries,
            t.choose_local_fallback_tries,
            t.choose_total_tries,
            t.chooseleaf_descend_once,
            u32::from(t.chooseleaf_vary_r),
            u32::from(t.chooseleaf_stable),
            u32::from(t.straw_calc_version),
            t.allowed_bucket_algs,
        ];
        for ((name, legacy), value) in TUNABLES.iter().zip(values) {
            if value != *legacy {
                line!(out, "tunable {name} {value}");
            }
        }
    }

    fn name_text(&self, item: i32) -> String {
        match self.item_name(item) {
            Some(n) => n.to_string(),
            None if item >= 0 => format!("device{item}"),
            None => format!("bucket{}", -1 - i64::from(item)),
        }
    }

    fn type_text(&self, kind: i32) -> String {
        self.type_name(kind)
            .map_or_else(|| format!("type{kind}"), str::to_string)
    }

    /// One bucket, the buckets in it first; shadows are left out.
    fn bucket_text(&self, id: i32, done: &mut BTreeSet<i32>, depth: usize, out: &mut String) {
        let Some(b) = self.bucket(id) else { return };
        if self.is_shadow(id) || depth > DEPTH_MAX || !done.insert(id) {
            return;
        }
        for item in b.items.iter().filter(|i| **i < 0) {
            self.bucket_text(*item, done, depth + 1, out);
        }
        line!(
            out,
            "{} {} {{",
            self.type_text(i32::from(b.kind)),
            self.name_text(id)
        );
        line!(out, "\tid {id}\t\t# do not change unnecessarily");
        for (class, shadow) in self.shadows.get(&id).into_iter().flatten() {
            if let Some(name) = self.class_names.get(class) {
                line!(out, "\tid {shadow} class {name}\t\t# do not change unnecessarily");
            }
        }
        line!(out, "\t# weight {}", weight_text(b.weight));
        let comment = match b.alg() {
            Alg::Uniform => format!("\t# do not change bucket size ({}) unnecessarily", b.items.len()),
            Alg::List => "\t# add new items at the end; do not change order unnecessarily".to_string(),
            Alg::Tree => "\t# do not change pos for existing items unnecessarily".to_string(),
            Alg::Straw | Alg::Straw2 => String::new(),
        };
        line!(out, "\talg {}{comment}", b.alg().name());
        let hash = if b.hash == 0 { "rjenkins1" } else { "unknown" };
        line!(out, "\thash {}\t# {hash}", b.hash);
        let with_pos = matches!(b.alg(), Alg::Uniform | Alg::Tree);
        for (pos_of, item) in b.items.iter().enumerate() {
            let pos = if with_pos {
                format!(" pos {pos_of}")
            } else {
                String::new()
            };
            let weight = weight_text(b.item_weight(pos_of));
            line!(out, "\titem {} weight {weight}{pos}", self.name_text(*item));
        }
        line!(out, "}}");
    }

    fn rule_text(&self, id: usize, rule: &Rule, out: &mut String) {
        let name = self
            .rule_names
            .get(&(id as i32))
            .cloned()
            .unwrap_or_else(|| format!("rule{id}"));
        line!(out, "rule {name} {{");
        line!(out, "\tid {id}");
        match rule.kind {
            1 => line!(out, "\ttype replicated"),
            3 => line!(out, "\ttype erasure"),
            other => line!(out, "\ttype {other}"),
        };
        line!(out, "\tmin_size {}", rule.min_size);
        line!(out, "\tmax_size {}", rule.max_size);
        for s in &rule.steps {
            line!(out, "\tstep {}", self.step_text(s));
        }
        line!(out, "}}");
    }

    fn step_text(&self, s: &Step) -> String {
        let Some(name) = step_op::name(s.op) else {
            return format!("unknown {} {} {}", s.op, s.arg1, s.arg2);
        };
        match s.op {
            step_op::NOOP | step_op::EMIT => name.to_string(),
            step_op::TAKE => match self.name_text(s.arg1).split_once(SHADOW_SEPARATOR) {
                Some((item, class)) => format!("take {item} class {class}"),
                None => format!("take {}", self.name_text(s.arg1)),
            },
            step_op::CHOOSE_FIRSTN
            | step_op::CHOOSE_INDEP
            | step_op::CHOOSELEAF_FIRSTN
            | step_op::CHOOSELEAF_INDEP => {
                let words = name.replacen('_', " ", 1);
                format!("{words} {} type {}", s.arg1, self.type_text(s.arg2))
            }
            _ => format!("{name} {}", s.arg1),
        }
    }

    fn choose_args_text(&self, index: i64, args: &ChooseArgs, out: &mut String) {
        // As an unsigned number, as the tools have it.
        line!(out, "choose_args {} {{", index as u64);
        for (slot, arg) in &args.by_slot {
            line!(out, "  {{");
            line!(out, "    bucket_id {}", bucket_id(*slot as usize));
            if !arg.weight_set.is_empty() {
                line!(out, "    weight_set [");
                for row in &arg.weight_set {
                    let words: String = row.iter().map(|w| weight_text(*w) + " ").collect();
                    line!(out, "      [ {words}]");
                }
                line!(out, "    ]");
            }
            if !arg.ids.is_empty() {
                let words: String = arg.ids.iter().map(|i| format!("{i} ")).collect();
                line!(out, "    ids [ {words}]");
            }
            line!(out, "  }}");
        }
        line!(out, "}}");
    }
}
