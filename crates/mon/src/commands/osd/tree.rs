//! `osd tree`: the hierarchy with the state of its OSDs.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::old_map::map_of;
use crate::commands::views::osd_tree::{Listing, Node, Walk, stray};
use serde_json::Value;
use std::collections::BTreeSet;
use types::osdmap::{OsdMap, osd_state};

const R: (&str, &str) = ("osd", "r");

pub const TREE: Spec = spec(
    R,
    "osd tree epoch?:int(0..) states?*:choice(up|down|in|out|destroyed)",
    "the hierarchy with the state of its OSDs",
    tree,
);

pub const TREE_FROM: Spec = spec(
    R,
    "osd tree-from epoch?:int(0..) bucket:str states?*:choice(up|down|in|out|destroyed)",
    "the hierarchy below one bucket",
    tree_from,
);

fn wanted_states(cmd: &Command, map: &OsdMap) -> impl Fn(i32) -> bool {
    let states: Vec<String> = cmd.list("states").iter().map(|s| s.to_string()).collect();
    let fit: BTreeSet<i32> = (0..map.max_osd().max(map.crush.max_devices))
        .filter(|id| {
            let destroyed = map.osd(*id).is_some_and(|o| o.state & osd_state::DESTROYED != 0);
            states.iter().all(|s| match s.as_str() {
                "up" => map.is_up(*id),
                "down" => map.is_down(*id) && !destroyed,
                "in" => map.is_in(*id),
                "out" => !map.is_in(*id),
                "destroyed" => destroyed,
                _ => true,
            })
        })
        .collect();
    move |id| fit.contains(&id)
}

/// Why no OSD can be in these states, if so.
fn contradictory(states: &[&str]) -> Option<Outcome> {
    const STATES: [&str; 5] = ["up", "down", "in", "out", "destroyed"];
    if let Some(other) = states.iter().find(|s| !STATES.contains(s)) {
        return Some(Outcome::invalid(format!("unrecognized state '{other}'")));
    }
    let several = |of: &[&str]| of.iter().filter(|s| states.contains(s)).count() > 1;
    if several(&["up", "down", "destroyed"]) {
        let why = "can specify only one of 'up', 'down' and 'destroyed'";
        return Some(Outcome::invalid(why));
    }
    several(&["in", "out"]).then(|| Outcome::invalid("cannot specify both 'in' and 'out'"))
}

fn tree(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = match map_of(cmd, ctx) {
        Ok(map) => map,
        Err(refusal) => return refusal,
    };
    if let Some(refusal) = contradictory(&cmd.list("states")) {
        return refusal;
    }
    let keep = wanted_states(cmd, &map);
    let prune = !cmd.list("states").is_empty();
    let strays = stray(&map).into_iter().filter(|id| keep(*id));
    let listing = Listing {
        map: &map,
        nodes: Walk::all(&map, false, prune, &keep),
        stray: strays
            .map(|id| Node {
                id,
                depth: 0,
                parent: None,
            })
            .collect(),
        states: true,
    };
    cmd.either(|| Value::Object(listing.json()), || listing.text())
}

fn tree_from(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = match map_of(cmd, ctx) {
        Ok(map) => map,
        Err(refusal) => return refusal,
    };
    let bucket = cmd.text("bucket");
    let Some(top) = map.crush.item_id(bucket) else {
        return Outcome::absent(format!("bucket '{bucket}' does not exist"));
    };
    if top >= 0 {
        return Outcome::invalid(format!("\"{bucket}\" is not a bucket"));
    }
    if let Some(refusal) = contradictory(&cmd.list("states")) {
        return refusal;
    }
    let keep = wanted_states(cmd, &map);
    let listing = Listing {
        map: &map,
        nodes: Walk::from(&map, top, !cmd.list("states").is_empty(), &keep),
        stray: vec![],
        states: true,
    };
    let json = || {
        let mut v = listing.json();
        v.remove("stray");
        Value::Object(v)
    };
    cmd.either(json, || listing.text())
}
