//! Hosts and OSDs: the failure domains as a map of boxes within boxes, and the same as a table.

use crate::cluster::{Peek, ask};
use crate::show::{self, Tone, button, bytes, fill, head, num, percent, section, tag};
use crate::visit::{Drawn, Visit};
use maud::{Markup, html};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Levels of a map; a tree is not deeper, whatever the answer says.
const DEPTH_MAX: usize = 16;
const LEVELS: [&str; 6] = ["d0", "d1", "d2", "d3", "d4", "d5"];

/// The tree as `osd df tree` says it.
struct Tree<'a> {
    nodes: BTreeMap<i64, &'a Value>,
    roots: Vec<i64>,
    /// In no bucket.
    stray: Vec<&'a Value>,
}

fn id(node: &Value) -> i64 {
    node["id"].as_i64().unwrap_or(0)
}

fn children(node: &Value) -> Vec<i64> {
    node.list("children").iter().filter_map(Value::as_i64).collect()
}

impl<'a> Tree<'a> {
    fn of(answer: &'a Value) -> Self {
        let nodes: BTreeMap<i64, &Value> = answer.list("nodes").iter().map(|n| (id(n), n)).collect();
        let below: BTreeSet<i64> = nodes.values().flat_map(|n| children(n)).collect();
        let roots = nodes.keys().copied().filter(|id| !below.contains(id)).collect();
        Self {
            nodes,
            roots,
            stray: answer.list("stray").iter().collect(),
        }
    }

    /// Each with its depth, from the top.
    fn walk(&self) -> Vec<(usize, &'a Value)> {
        let mut out = Vec::new();
        let mut todo: Vec<(usize, i64)> = self.roots.iter().rev().map(|r| (0, *r)).collect();
        let mut seen = BTreeSet::new();
        while let Some((depth, id)) = todo.pop() {
            let Some(node) = self
                .nodes
                .get(&id)
                .filter(|_| seen.insert(id) && depth < DEPTH_MAX)
            else {
                continue;
            };
            out.push((depth, *node));
            todo.extend(sorted(node).into_iter().rev().map(|c| (depth + 1, c)));
        }
        out.extend(self.stray.iter().map(|n| (0, *n)));
        out
    }
}

fn sorted(node: &Value) -> Vec<i64> {
    let mut all = children(node);
    all.sort_unstable();
    all
}

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let (df, tree) = tokio::join!(
        ask(visit.client(), "osd df", &[("output_method", "tree".into())]),
        ask(visit.client(), "osd tree", &[]),
    );
    // Whether it is there at all is in the tree alone.
    let exists: BTreeMap<i64, String> = match &tree {
        Ok(tree) => tree
            .list("nodes")
            .iter()
            .chain(tree.list("stray"))
            .map(|n| (id(n), n.text("status").into()))
            .collect(),
        Err(_) => BTreeMap::new(),
    };
    let body = show::asked(&df, |df| {
        let tree = Tree::of(df);
        html! {
            (section("map", "Failure domains", &map(&tree, &exists)))
            (section("list", "All buckets and OSDs", &list(&visit, &tree, &exists)))
        }
    });
    Drawn::new("Hosts and OSDs", show::live(&visit, 10, &body))
}

fn is_osd(node: &Value) -> bool {
    node.text("type") == "osd"
}

fn state(node: &Value, states: &BTreeMap<i64, String>) -> (Tone, String) {
    let said = states.get(&id(node)).map_or(node.text("status"), String::as_str);
    let is_in = node.float("reweight") > 0.0;
    match (said, is_in) {
        ("up", true) => (Tone::Good, "up, in".into()),
        ("up", false) => (Tone::Warn, "up, out".into()),
        ("down", true) => (Tone::Bad, "down, in".into()),
        ("down", false) => (Tone::Bad, "down, out".into()),
        (other, _) => (Tone::Plain, other.into()),
    }
}

fn map(tree: &Tree<'_>, states: &BTreeMap<i64, String>) -> Markup {
    html! { ul.map { @for root in &tree.roots { (node_box(tree, states, *root, 0)) } } }
}

fn node_box(tree: &Tree<'_>, states: &BTreeMap<i64, String>, id: i64, depth: usize) -> Markup {
    let Some(node) = tree.nodes.get(&id).filter(|_| depth < DEPTH_MAX) else {
        return html! {};
    };
    let share = node.float("utilization") / 100.0;
    if is_osd(node) {
        let (tone, words) = state(node, states);
        return html! {
            li.osd {
                span.name { (node.text("name")) } " " (tag(tone, words))
                @if node.number("kb") > 0 {
                    (fill(share, &format!("{} is full to", node.text("name"))))
                    span.quiet { (percent(share)) " of " (bytes(1024 * node.number("kb"))) }
                } @else {
                    p.quiet { "no figures" }
                }
            }
        };
    }
    html! {
        li.bucket {
            p { span.kind { (node.text("type")) } " " span.name { (node.text("name")) } " " span.quiet { (percent(share)) " of " (bytes(1024 * node.number("kb"))) } }
            ul { @for child in sorted(node) { (node_box(tree, states, child, depth + 1)) } }
        }
    }
}

fn list(visit: &Visit, tree: &Tree<'_>, states: &BTreeMap<i64, String>) -> Markup {
    let mut heads = vec![
        "Name",
        "State",
        "Class",
        "#Weight",
        "#Reweight",
        "#Size",
        "#Used",
        "#Groups",
    ];
    if visit.rights.write {
        heads.push("");
    }
    let rows: Vec<Markup> = tree
        .walk()
        .iter()
        .map(|(depth, node)| row(visit, *depth, node, states))
        .collect();
    show::table("Buckets and OSDs", &heads, &rows)
}

fn row(visit: &Visit, depth: usize, node: &Value, states: &BTreeMap<i64, String>) -> Markup {
    let osd = is_osd(node);
    let share = node.float("utilization") / 100.0;
    let level = LEVELS[depth.min(LEVELS.len() - 1)];
    let name = html! {
        span class=(level) { @if !osd { span.kind { (node.text("type")) } " " } (node.text("name")) }
    };
    html! {
        (head(&name))
        td { @if osd { @let (tone, words) = state(node, states); (tag(tone, words)) } }
        td { (node.text("device_class")) }
        (num(if osd { format!("{:.4}", node.float("crush_weight")) } else { String::new() }))
        (num(if osd { format!("{:.2}", node.float("reweight")) } else { String::new() }))
        (num(bytes(1024 * node.number("kb"))))
        (num(format!("{} ({})", bytes(1024 * node.number("kb_used")), percent(share))))
        (num(if osd { node.number("pgs").to_string() } else { String::new() }))
        @if visit.rights.write { td { @if osd { (in_or_out(visit, node)) } } }
    }
}

fn in_or_out(visit: &Visit, node: &Value) -> Markup {
    let osd = id(node).to_string();
    let (act, label) = match node.float("reweight") > 0.0 {
        true => ("osd-out", format!("Take osd.{osd} out")),
        false => ("osd-in", format!("Take osd.{osd} in")),
    };
    button(visit, &label, &[("act", act), ("osd", &osd)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tree_is_walked_once_whatever_it_says() {
        let answer = json!({"nodes": [
            {"id": -1, "name": "default", "type": "root", "children": [-2, -3]},
            {"id": -2, "name": "a", "type": "host", "children": [1, 0]},
            {"id": -3, "name": "b", "type": "host", "children": [2, -2]},
            {"id": 0, "name": "osd.0", "type": "osd"}, {"id": 1, "name": "osd.1", "type": "osd"},
            {"id": 2, "name": "osd.2", "type": "osd"},
        ], "stray": [{"id": 9, "name": "osd.9", "type": "osd"}]});
        let tree = Tree::of(&answer);
        let names: Vec<String> = tree
            .walk()
            .iter()
            .map(|(d, n)| format!("{d}{}", n.text("name")))
            .collect();
        let want = ["0default", "1b", "2a", "3osd.0", "3osd.1", "2osd.2", "0osd.9"];
        assert_eq!(names, want);
    }

    #[test]
    fn states_are_said_in_words() {
        let node = |reweight: f64, status: &str| json!({"id": 0, "reweight": reweight, "status": status});
        let none = BTreeMap::new();
        assert_eq!(state(&node(1.0, "up"), &none).1, "up, in");
        assert_eq!(state(&node(0.0, "up"), &none).1, "up, out");
        assert_eq!(
            state(&node(1.0, "up"), &BTreeMap::from([(0, "down".to_string())])).1,
            "down, in"
        );
    }
}
