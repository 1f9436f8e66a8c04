//! Commands that show the CRUSH map.

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::crush::change;
use crate::commands::spec::{DEPRECATED, Spec, spec};
use crate::commands::views::crush_map::{dump, rule_json, rules_json, tunables_json};
use crate::commands::views::osd_tree::{Listing, Walk};
use crate::commands::views::{old_map, osd_tree};
use crush::step_op;
use denc::Encode;
use serde_json::{Value, json};

const R: (&str, &str) = ("osd", "r");
const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        R,
        "osd crush tree shadow?:choice(--show-shadow)",
        "the hierarchy of the CRUSH map",
        crush_tree,
    ),
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
        "osd getcrushmap epoch?:int(0..)",
        "the CRUSH map, binary",
        getcrushmap,
    ),
    spec(
        RW,
        "osd setcrushmap prior_version?:int",
        "replace the CRUSH map by the one in the input",
        change::set_map,
    ),
];

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

fn getcrushmap(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match old_map::map_of(cmd, ctx) {
        Ok(map) => Outcome::ok(map.crush.to_bytes()).saying(map.crush_version.to_string()),
        Err(refusal) => refusal,
    }
}

fn crush_tree(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let shadow = !cmd.text("shadow").is_empty();
    let keep = |_| true;
    let listing = Listing {
        map: ctx.map(),
        nodes: Walk::all(ctx.map(), shadow, false, &keep),
        stray: vec![],
        states: false,
    };
    cmd.either(|| Value::Object(listing.json()), || listing.text())
}
