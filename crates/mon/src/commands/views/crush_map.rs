//! The CRUSH map as JSON.

use crate::commands::views::show;
use crush::{CrushMap, step_op};
use serde_json::{Map, Value, json};

fn step_json(c: &CrushMap, s: &crush::Step) -> Value {
    let op = step_op::name(s.op).unwrap_or("opcode");
    match s.op {
        step_op::TAKE => json!({"op": op, "item": s.arg1, "item_name": c.item_name(s.arg1).unwrap_or("")}),
        step_op::NOOP | step_op::EMIT => json!({"op": op}),
        step_op::CHOOSE_FIRSTN
        | step_op::CHOOSE_INDEP
        | step_op::CHOOSELEAF_FIRSTN
        | step_op::CHOOSELEAF_INDEP => {
            json!({"op": op, "num": s.arg1, "type": c.type_name(s.arg2).unwrap_or("")})
        }
        _ => json!({"op": op, "num": s.arg1}),
    }
}

pub fn rule_json(c: &CrushMap, id: u32) -> Value {
    let Some(r) = c.rule(id) else { return Value::Null };
    json!({
        "rule_id": id,
        "rule_name": c.rule_names.get(&(id as i32)).map_or("", String::as_str),
        "ruleset": id,
        "type": r.kind,
        "min_size": r.min_size,
        "max_size": r.max_size,
        "steps": r.steps.iter().map(|s| step_json(c, s)).collect::<Vec<_>>(),
    })
}

pub fn rules_json(c: &CrushMap) -> Value {
    c.rule_ids().map(|id| rule_json(c, id)).collect()
}

pub fn tunables_json(c: &CrushMap) -> Value {
    let t = &c.tunables;
    let profile = t.profile();
    let straw2 = c.iter_buckets().any(|b| b.alg() == crush::Alg::Straw2);
    let uses = |ops: &[u32]| {
        c.rules
            .iter()
            .flatten()
            .flat_map(|r| &r.steps)
            .any(|s| ops.contains(&s.op))
    };
    let v2 = uses(&[
        step_op::CHOOSE_INDEP,
        step_op::CHOOSELEAF_INDEP,
        step_op::SET_CHOOSE_TRIES,
        step_op::SET_CHOOSELEAF_TRIES,
    ]);
    let v3 = uses(&[step_op::SET_CHOOSELEAF_VARY_R]);
    let v5 = uses(&[step_op::SET_CHOOSELEAF_STABLE]);
    let legacy = crush::Tunables::LEGACY;
    let need1 = t.choose_local_tries != legacy.choose_local_tries
        || t.choose_local_fallback_tries != legacy.choose_local_fallback_tries
        || t.choose_total_tries != legacy.choose_total_tries;
    let (need2, need3, need5) = (
        t.chooseleaf_descend_once != 0,
        t.chooseleaf_vary_r != 0,
        t.chooseleaf_stable != 0,
    );
    let oldest = if need5 || v5 {
        "jewel"
    } else if straw2 {
        "hammer"
    } else if need3 || v3 {
        "firefly"
    } else if need1 || need2 || v2 {
        "bobtail"
    } else {
        "argonaut"
    };
    json!({
        "choose_local_tries": t.choose_local_tries,
        "choose_local_fallback_tries": t.choose_local_fallback_tries,
        "choose_total_tries": t.choose_total_tries,
        "chooseleaf_descend_once": t.chooseleaf_descend_once,
        "chooseleaf_vary_r": t.chooseleaf_vary_r,
        "chooseleaf_stable": t.chooseleaf_stable,
        "straw_calc_version": t.straw_calc_version,
        "allowed_bucket_algs": t.allowed_bucket_algs,
        "profile": profile,
        "optimal_tunables": i32::from(profile == "jewel"),
        "legacy_tunables": i32::from(profile == "argonaut"),
        "minimum_required_version": oldest,
        "require_feature_tunables": i32::from(need1),
        "require_feature_tunables2": i32::from(need2),
        "has_v2_rules": i32::from(v2),
        "require_feature_tunables3": i32::from(need3),
        "has_v3_rules": i32::from(v3),
        "has_v4_buckets": i32::from(straw2),
        "require_feature_tunables5": i32::from(need5),
        "has_v5_rules": i32::from(v5),
    })
}

pub fn dump(c: &CrushMap) -> Value {
    let devices = c.item_names.range(0..).map(|(id, name)| {
        let mut m = Map::new();
        m.insert("id".into(), (*id).into());
        m.insert("name".into(), name.clone().into());
        if let Some(class) = c.class_name_of(*id) {
            m.insert("class".into(), class.into());
        }
        Value::Object(m)
    });
    let types = c
        .type_names
        .iter()
        .map(|(id, name)| json!({"type_id": id, "name": name}));
    let buckets = c.iter_buckets().map(|b| {
        let item = |(pos, id): (usize, &i32)| json!({"id": id, "weight": b.item_weight(pos), "pos": pos});
        json!({
            "id": b.id,
            "name": c.item_name(b.id).unwrap_or(""),
            "type_id": b.kind,
            "type_name": c.type_name(i32::from(b.kind)).unwrap_or(""),
            "weight": b.weight,
            "alg": b.alg().name(),
            "hash": "rjenkins1",
            "items": b.items.iter().enumerate().map(item).collect::<Vec<_>>(),
        })
    });
    json!({
        "devices": devices.collect::<Vec<_>>(),
        "types": types.collect::<Vec<_>>(),
        "buckets": buckets.collect::<Vec<_>>(),
        "rules": rules_json(c),
        "tunables": tunables_json(c),
        "choose_args": choose_args_json(c),
    })
}

pub fn choose_args_json(c: &CrushMap) -> Value {
    let one = |(key, args): (&i64, &crush::ChooseArgs)| {
        let buckets = args.by_slot.iter().map(|(slot, a)| {
            let mut m = Map::new();
            m.insert("bucket_id".into(), crush::bucket_id(*slot as usize).into());
            if !a.weight_set.is_empty() {
                let row = |r: &Vec<u32>| r.iter().map(|w| show::weight(*w)).collect::<Vec<f64>>();
                m.insert(
                    "weight_set".into(),
                    json!(a.weight_set.iter().map(row).collect::<Vec<_>>()),
                );
            }
            if !a.ids.is_empty() {
                m.insert("ids".into(), json!(a.ids));
            }
            Value::Object(m)
        });
        (key.to_string(), buckets.collect())
    };
    Value::Object(c.choose_args.iter().map(one).collect())
}
