//! Commands that show the CRUSH map.

use super::request::lines;
use super::table::{DEPRECATED, Spec, spec};
use super::{Command, Context, Outcome, osd_read, osd_tree, show};
use crush::{CrushMap, step_op};
use serde_json::{Map, Value, json};
use types::Errno;

const R: (&str, &str) = ("osd", "r");
const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    osd_tree::CRUSH_TREE,
    spec(R, "osd crush dump", "the CRUSH map as JSON", dump_cmd),
    spec(R, "osd crush rule ls", "names of the rules", rule_ls),
    spec(R, "osd crush rule list", "names of the rules", rule_ls).flagged(DEPRECATED),
    spec(
        R,
        "osd crush rule ls-by-class class:str([A-Za-z0-9-_.])",
        "rules that take a device class",
        rule_by_class,
    ),
    spec(
        R,
        "osd crush rule dump name?:str([A-Za-z0-9-_.])",
        "one rule or all",
        rule_dump,
    ),
    spec(
        R,
        "osd crush ls node:str([A-Za-z0-9-_.])",
        "items of a bucket",
        ls,
    ),
    spec(
        R,
        "osd crush show-tunables",
        "tunables and what they ask of clients",
        tunables,
    ),
    spec(
        R,
        "osd crush get-tunable tunable:choice(straw_calc_version)",
        "one tunable",
        get_tunable,
    ),
    spec(
        R,
        "osd crush weight-set ls",
        "sets of alternative weights",
        weight_set_ls,
    ),
    spec(
        R,
        "osd crush weight-set dump",
        "alternative weights",
        weight_set_dump,
    ),
    spec(
        R,
        "osd getcrushmap epoch?:int(0..)",
        "the CRUSH map, binary",
        getcrushmap,
    ),
    spec(
        RW,
        "osd setcrushmap prior_version?:int",
        "replace the CRUSH map by the one in the input",
        super::crush_change::set_map,
    ),
    spec(
        R,
        "osd erasure-code-profile ls",
        "names of the erasure code profiles",
        ec_ls,
    ),
    spec(
        R,
        "osd erasure-code-profile get name:str([A-Za-z0-9-_.])",
        "an erasure code profile",
        ec_get,
    ),
];

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

fn rule_json(c: &CrushMap, id: u32) -> Value {
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

fn rules_json(c: &CrushMap) -> Value {
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

fn choose_args_json(c: &CrushMap) -> Value {
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

fn dump_cmd(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&dump(&ctx.map().crush))
}

fn names_out(cmd: &Command, names: &[String]) -> Outcome {
    cmd.either(|| json!(names), || lines(names))
}

fn rule_ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let c = &ctx.map().crush;
    let names: Vec<String> = c
        .rule_ids()
        .filter_map(|id| c.rule_names.get(&(id as i32)).cloned())
        .collect();
    names_out(cmd, &names)
}

fn rule_by_class(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let c = &ctx.map().crush;
    let class = cmd.text("class");
    let Some(class_id) = c.class_id(class) else {
        return Outcome::absent(format!("failed to get rules by class '{class}'"));
    };
    let takes = |id: &u32| {
        let steps = c.rule(*id).map_or(&[][..], |r| &r.steps);
        let shadow_of = |item: i32| c.class_of.get(&item) == Some(&class_id);
        steps
            .iter()
            .any(|s| s.op == step_op::TAKE && s.arg1 < 0 && shadow_of(s.arg1))
    };
    let rules = c.rule_ids().filter(takes);
    let names: Vec<String> = rules
        .filter_map(|id| c.rule_names.get(&(id as i32)).cloned())
        .collect();
    names_out(cmd, &names)
}

fn rule_dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let c = &ctx.map().crush;
    match cmd.opt_text("name") {
        None => cmd.json(&rules_json(c)),
        Some(name) => match c.rule_id(name) {
            Some(id) => cmd.json(&rule_json(c, id as u32)),
            None => Outcome::absent(format!("unknown crush rule '{name}'")),
        },
    }
}

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let node = cmd.text("node");
    let Some(id) = ctx.map().crush.item_id(node) else {
        return Outcome::absent(format!("node '{node}' does not exist"));
    };
    let items = if id >= 0 {
        vec![id]
    } else {
        osd_tree::children(ctx.map(), id)
    };
    let names: Vec<String> = items.iter().map(|i| osd_tree::name_of(ctx.map(), *i)).collect();
    names_out(cmd, &names)
}

fn tunables(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&tunables_json(&ctx.map().crush))
}

fn get_tunable(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let v = ctx.map().crush.tunables.straw_calc_version;
    match cmd.text("tunable") {
        "straw_calc_version" => cmd.either(|| json!({"straw_calc_version": v}), || format!("{v}\n")),
        other => Outcome::invalid(format!("unrecognized tunable '{other}'")),
    }
}

fn weight_set_ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    let name = |key: &i64| match *key {
        crush::DEFAULT_CHOOSE_ARGS => "(compat)".to_string(),
        pool => map
            .pool_name(pool)
            .map_or_else(|| pool.to_string(), str::to_string),
    };
    let names: Vec<String> = map.crush.choose_args.keys().map(name).collect();
    names_out(cmd, &names)
}

fn weight_set_dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&choose_args_json(&ctx.map().crush))
}

fn getcrushmap(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match osd_read::map_of(cmd, ctx) {
        Ok(map) => Outcome::ok(osd_read::crush_bytes(&map)).saying(map.crush_version.to_string()),
        Err(refusal) => refusal,
    }
}

fn ec_ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let names: Vec<String> = ctx.map().erasure_code_profiles.keys().cloned().collect();
    names_out(cmd, &names)
}

fn ec_get(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    match ctx.map().erasure_code_profiles.get(name) {
        None => Outcome::error(Errno::ENOENT, format!("unknown erasure code profile '{name}'")),
        Some(p) => cmd.either(|| json!(p), || lines(p.iter().map(|(k, v)| format!("{k}={v}")))),
    }
}
