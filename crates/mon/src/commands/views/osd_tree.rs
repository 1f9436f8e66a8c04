//! The CRUSH hierarchy as a list of nodes, which `osd tree`, `osd df` and `osd crush tree` print.
//!
//! Order: roots by name (shadow trees first when they are shown), children by name, devices by id. A bucket's
//! JSON lists its children in the reverse order, as the real one does.

use crate::commands::views::show;
use crate::format::Table;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use types::osdmap::{OsdMap, osd_state};

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

/// What one command prints.
pub struct Listing<'a> {
    pub map: &'a OsdMap,
    pub nodes: Vec<Node>,
    /// OSDs outside the hierarchy.
    pub stray: Vec<Node>,
    /// With the state of the OSDs.
    pub states: bool,
}

impl Listing<'_> {
    pub fn json(&self) -> Map<String, Value> {
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

    pub fn text(&self) -> String {
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
