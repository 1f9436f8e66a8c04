//! The CRUSH hierarchy as a list of nodes, which `osd tree`, `osd df` and `osd crush tree` print.
//!
//! Order: roots by name (shadow trees first when they are shown), children by name, devices by id. A bucket's
//! JSON lists its children in the reverse order, as the real one does.

use super::table::{Spec, spec};
use super::{Command, Context, Outcome, show};
use crate::format::Table;
use serde_json::{Map, Value, json};
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
pub const CRUSH_TREE: Spec = spec(
    R,
    "osd crush tree shadow?:choice(--show-shadow)",
    "the hierarchy of the CRUSH map",
    crush_tree,
);

/// A bucket or device in display order.
pub struct Node {
    pub id: i32,
    pub depth: usize,
    /// The bucket it is shown below.
    pub parent: Option<i32>,
}

/// All nodes in display order. `keep` decides about devices; buckets without a kept device are dropped when
/// `prune` is set.
pub struct Walk<'a> {
    map: &'a OsdMap,
    keep: &'a dyn Fn(i32) -> bool,
    prune: bool,
    out: Vec<Node>,
}

impl<'a> Walk<'a> {
    pub fn all(map: &'a OsdMap, shadow: bool, prune: bool, keep: &'a dyn Fn(i32) -> bool) -> Vec<Node> {
        let mut roots = map.crush.roots(shadow);
        roots.sort_by_key(|id| {
            (
                !map.crush.is_shadow(*id),
                map.crush.item_name(*id).map(str::to_string),
            )
        });
        let mut walk = Self {
            map,
            keep,
            prune,
            out: Vec::new(),
        };
        for root in roots {
            walk.visit(root, 0, None);
        }
        walk.out
    }

    pub fn from(map: &'a OsdMap, top: i32, prune: bool, keep: &'a dyn Fn(i32) -> bool) -> Vec<Node> {
        let mut walk = Self {
            map,
            keep,
            prune,
            out: Vec::new(),
        };
        walk.visit(top, 0, None);
        walk.out
    }

    fn visit(&mut self, id: i32, depth: usize, parent: Option<i32>) {
        // A well-formed hierarchy is not deeper than its number of buckets.
        if depth > self.map.crush.buckets.len() + 1 {
            return;
        }
        if id >= 0 {
            if (self.keep)(id) {
                self.out.push(Node { id, depth, parent });
            }
            return;
        }
        if self.prune && !self.map.crush.devices_under(id).iter().any(|d| (self.keep)(*d)) {
            return;
        }
        self.out.push(Node { id, depth, parent });
        for child in children(self.map, id) {
            self.visit(child, depth + 1, Some(id));
        }
    }
}

/// A bucket's items in display order: buckets by name, devices by id.
pub fn children(map: &OsdMap, id: i32) -> Vec<i32> {
    let mut items = map.crush.bucket(id).map_or_else(Vec::new, |b| b.items.clone());
    items.sort_by_key(|i| {
        let name = if *i < 0 {
            map.crush.item_name(*i).unwrap_or("").to_string()
        } else {
            String::new()
        };
        (*i >= 0, name, *i)
    });
    items
}

fn weight_in(map: &OsdMap, n: &Node) -> u32 {
    let in_parent = n.parent.and_then(|p| {
        let b = map.crush.bucket(p)?;
        Some(b.item_weight(b.position(n.id)?))
    });
    in_parent
        .or_else(|| map.crush.bucket(n.id).map(|b| b.weight))
        .or_else(|| map.crush.weight_of(n.id))
        .unwrap_or(0)
}

pub fn name_of(map: &OsdMap, id: i32) -> String {
    match map.crush.item_name(id) {
        Some(n) => n.to_string(),
        None if id >= 0 => format!("osd.{id}"),
        None => format!("bucket{id}"),
    }
}

/// What all listings say about a node.
pub fn node_json(map: &OsdMap, n: &Node) -> Map<String, Value> {
    let kind = map.crush.item_type(n.id).unwrap_or(0);
    let mut m = Map::new();
    m.insert("id".into(), n.id.into());
    if let Some(class) = map.crush.class_name_of(n.id) {
        m.insert("device_class".into(), class.into());
    }
    m.insert("name".into(), name_of(map, n.id).into());
    m.insert("type".into(), map.crush.type_name(kind).unwrap_or("").into());
    m.insert("type_id".into(), kind.into());
    if n.id >= 0 {
        m.insert("crush_weight".into(), show::weight(weight_in(map, n)).into());
        m.insert("depth".into(), n.depth.into());
    }
    if n.parent.is_some() {
        m.insert("pool_weights".into(), json!({}));
    }
    m
}

pub fn children_json(map: &OsdMap, shown: &BTreeSet<i32>, id: i32) -> Value {
    let mut list = children(map, id);
    list.retain(|c| shown.contains(c));
    list.reverse();
    list.into()
}

fn status_of(map: &OsdMap, id: i32) -> &'static str {
    let state = map.osd(id).map_or(0, |o| o.state);
    if state & osd_state::EXISTS == 0 {
        "DNE"
    } else if state & osd_state::DESTROYED != 0 {
        "destroyed"
    } else if map.is_up(id) {
        "up"
    } else {
        "down"
    }
}

fn osd_fields(map: &OsdMap, id: i32, m: &mut Map<String, Value>) {
    m.insert("exists".into(), i32::from(map.exists(id)).into());
    m.insert("status".into(), status_of(map, id).into());
    m.insert("reweight".into(), show::weight(map.weight(id)).into());
    m.insert("primary_affinity".into(), show::weight(map.affinity(id)).into());
}

pub fn fixed5(w: f64) -> String {
    if w == 0.0 { "0".into() } else { format!("{w:.5}") }
}

/// OSDs that exist but stand nowhere in the hierarchy.
pub fn stray(map: &OsdMap) -> Vec<i32> {
    let held: BTreeSet<i32> = map
        .crush
        .iter_buckets()
        .flat_map(|b| b.items.iter().copied())
        .collect();
    map.osd_ids().filter(|id| !held.contains(id)).collect()
}

struct Listing<'a> {
    map: &'a OsdMap,
    nodes: Vec<Node>,
    stray: Vec<Node>,
    /// With the state of the OSDs.
    states: bool,
}

impl Listing<'_> {
    fn json(&self) -> Map<String, Value> {
        let shown: BTreeSet<i32> = self.nodes.iter().map(|n| n.id).collect();
        let one = |n: &Node| {
            let mut m = node_json(self.map, n);
            if n.id < 0 {
                m.insert("children".into(), children_json(self.map, &shown, n.id));
            } else if self.states {
                osd_fields(self.map, n.id, &mut m);
            }
            Value::Object(m)
        };
        let mut out = Map::new();
        out.insert("nodes".into(), self.nodes.iter().map(one).collect());
        out.insert("stray".into(), self.stray.iter().map(one).collect());
        out
    }

    fn text(&self) -> String {
        let mut t = Table::new()
            .column("ID", crate::format::Align::Left, crate::format::Align::Right)
            .right(&["CLASS"]);
        t = t
            .column("WEIGHT", crate::format::Align::Left, crate::format::Align::Right)
            .left(&["TYPE NAME"]);
        if self.states {
            t = t.right(&["STATUS", "REWEIGHT", "PRI-AFF"]);
        }
        for n in self.nodes.iter().chain(&self.stray) {
            let kind = self.map.crush.item_type(n.id).unwrap_or(0);
            let kind = if n.id < 0 {
                self.map.crush.type_name(kind)
            } else {
                None
            };
            let kind = kind.map_or(String::new(), |k| format!("{k} "));
            let mut row = vec![
                n.id.to_string(),
                self.map.crush.class_name_of(n.id).unwrap_or("").to_string(),
                fixed5(show::weight(weight_in(self.map, n))),
                format!("{}{kind}{}", "    ".repeat(n.depth), name_of(self.map, n.id)),
            ];
            if self.states && n.id >= 0 {
                row.extend([
                    status_of(self.map, n.id).to_string(),
                    fixed5(show::weight(self.map.weight(n.id))),
                    fixed5(show::weight(self.map.affinity(n.id))),
                ]);
            }
            t.row(row);
        }
        t.print()
    }
}

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

fn contradictory(states: &[&str]) -> bool {
    let has = |s| states.contains(&s);
    (has("up") && has("down")) || (has("in") && has("out")) || (has("up") && has("destroyed"))
}

fn tree(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = match super::osd_read::map_of(cmd, ctx) {
        Ok(map) => map,
        Err(refusal) => return refusal,
    };
    if contradictory(&cmd.list("states")) {
        return Outcome::invalid("cannot specify both up and down, in and out, or up and destroyed");
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
    let map = match super::osd_read::map_of(cmd, ctx) {
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
