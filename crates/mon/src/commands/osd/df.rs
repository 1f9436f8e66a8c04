//! `osd df`: how full each OSD is, flat or along the hierarchy.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::views::osd_tree::{Node, Walk, children_json, fixed5, name_of, node_json};
use crate::commands::views::pg_stats::{Figures, count};
use crate::commands::views::{osd_tree, show};
use crate::format::{Align, Table, units};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use types::OsdId;
use types::pgstats::StoreStatfs;

/// Space of one OSD or of all below a bucket, in KiB.
#[derive(Clone, Copy, Default)]
struct Space {
    kb: u64,
    used: u64,
    data: u64,
    omap: u64,
    meta: u64,
    avail: u64,
}

impl Space {
    fn of(s: &StoreStatfs) -> Self {
        let kb = |v| count(v) / 1024;
        Self {
            kb: kb(s.total),
            used: kb(s.used()),
            data: kb(s.allocated),
            omap: kb(s.omap_allocated),
            meta: kb(s.internal_metadata),
            avail: kb(s.available),
        }
    }

    fn add(&mut self, o: &Self) {
        self.kb += o.kb;
        self.used += o.used;
        self.data += o.data;
        self.omap += o.omap;
        self.meta += o.meta;
        self.avail += o.avail;
    }

    /// Percent.
    fn utilization(&self) -> f64 {
        if self.kb == 0 {
            0.0
        } else {
            self.used as f64 * 100.0 / self.kb as f64
        }
    }

    fn json(&self, prefix: &str) -> Vec<(String, Value)> {
        let fields = [
            ("kb", self.kb),
            ("kb_used", self.used),
            ("kb_used_data", self.data),
            ("kb_used_omap", self.omap),
            ("kb_used_meta", self.meta),
            ("kb_avail", self.avail),
        ];
        fields
            .iter()
            .map(|(k, v)| (format!("{prefix}{k}"), Value::from(*v)))
            .collect()
    }

    fn text(&self) -> Vec<String> {
        let all = [self.kb, self.used, self.data, self.omap, self.meta, self.avail];
        all.iter().map(|kb| units::bytes(kb * 1024)).collect()
    }
}

struct Df<'a> {
    ctx: &'a Context<'a>,
    nodes: Vec<Node>,
    stray: Vec<Node>,
    space: BTreeMap<OsdId, Space>,
    pgs: BTreeMap<OsdId, (u32, u32)>,
    total: Space,
    tree: bool,
}

pub fn df(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    let tree = cmd.text("output_method") == "tree";
    let chosen = match filter(cmd, ctx) {
        Ok(chosen) => chosen,
        Err(refusal) => return refusal,
    };
    let keep = |id: i32| chosen.as_ref().is_none_or(|c| c.contains(&id));
    let mut nodes = Walk::all(map, false, chosen.is_some(), &keep);
    let figures = Figures::of(ctx);
    if !tree {
        nodes.retain(|n| n.id >= 0);
        let mut seen = BTreeSet::new();
        nodes.retain(|n| seen.insert(n.id));
        nodes.sort_by_key(|n| n.id);
    }
    let stray = osd_tree::stray(map).into_iter().filter(|id| keep(*id));
    let stray: Vec<Node> = stray
        .map(|id| Node {
            id,
            depth: 0,
            parent: None,
        })
        .collect();
    let space: BTreeMap<OsdId, Space> = figures.disks.iter().map(|(id, s)| (*id, Space::of(s))).collect();
    let mut total = Space::default();
    let listed: BTreeSet<i32> = nodes.iter().chain(&stray).map(|n| n.id).collect();
    space
        .iter()
        .filter(|(id, _)| listed.contains(id))
        .for_each(|(_, s)| total.add(s));
    let df = Df {
        ctx,
        nodes,
        stray,
        space,
        pgs: figures.per_osd(),
        total,
        tree,
    };
    cmd.either(|| df.json(), || df.text())
}

/// The OSDs of a device class, a CRUSH node or a pool; None for all.
fn filter(cmd: &Command, ctx: &Context<'_>) -> Result<Option<BTreeSet<i32>>, Outcome> {
    let map = ctx.map();
    let name = match (cmd.opt_text("filter_by"), cmd.opt_text("filter")) {
        (None, None) => return Ok(None),
        (_, Some(name)) => name,
        (Some(_), None) => return Err(Outcome::invalid("missing filter argument")),
    };
    let unknown = || Outcome::invalid(format!("'{name}' not a pool, crush node or device class name"));
    if let Some(class) = map.crush.class_id(name) {
        let of_class = map
            .osd_ids()
            .filter(|id| map.crush.class_of.get(id) == Some(&class));
        return Ok(Some(of_class.collect()));
    }
    if let Some(item) = map.crush.item_id(name) {
        return Ok(Some(map.crush.devices_under(item).into_iter().collect()));
    }
    let pool = map
        .pool_by_name(name)
        .and_then(|id| map.pool(id))
        .ok_or_else(unknown)?;
    let root = map
        .crush
        .rule_root(u32::from(pool.crush_rule))
        .ok_or_else(unknown)?;
    Ok(Some(map.crush.devices_under(root).into_iter().collect()))
}

impl Df<'_> {
    fn space_of(&self, id: i32) -> Space {
        if id >= 0 {
            return self.space.get(&id).copied().unwrap_or_default();
        }
        let mut sum = Space::default();
        for osd in self.ctx.map().crush.devices_under(id) {
            sum.add(&self.space_of(osd));
        }
        sum
    }

    fn var(&self, s: &Space) -> f64 {
        let average = self.total.utilization();
        if average > 0.0 {
            s.utilization() / average
        } else {
            0.0
        }
    }

    fn node(&self, n: &Node, shown: &BTreeSet<i32>) -> Value {
        let map = self.ctx.map();
        let mut m: Map<String, Value> = node_json(map, n);
        let s = self.space_of(n.id);
        let reweight = if n.id >= 0 {
            show::weight(map.weight(n.id))
        } else {
            -1.0
        };
        m.insert("reweight".into(), reweight.into());
        m.extend(s.json(""));
        m.insert("utilization".into(), s.utilization().into());
        m.insert("var".into(), self.var(&s).into());
        let pgs = self.pgs.get(&n.id).map_or(0, |(n, _)| *n);
        m.insert("pgs".into(), pgs.into());
        if n.id >= 0 {
            m.insert(
                "status".into(),
                if map.is_up(n.id) { "up" } else { "down" }.into(),
            );
        } else {
            m.insert("children".into(), children_json(map, shown, n.id));
        }
        Value::Object(m)
    }

    /// Smallest and largest share of the average, and the standard deviation, over OSDs with space.
    fn spread(&self) -> (f64, f64, f64) {
        let of = |n: &Node| self.space.get(&n.id).filter(|s| s.kb > 0);
        let osds: Vec<&Space> = self.nodes.iter().chain(&self.stray).filter_map(of).collect();
        if osds.is_empty() {
            return (0.0, 0.0, 0.0);
        }
        let vars = || osds.iter().map(|s| self.var(s));
        let average = self.total.utilization();
        let square: f64 = osds.iter().map(|s| (s.utilization() - average).powi(2)).sum();
        let (min, max) = (vars().reduce(f64::min), vars().reduce(f64::max));
        (
            min.unwrap_or(0.0),
            max.unwrap_or(0.0),
            (square / osds.len() as f64).sqrt(),
        )
    }

    fn json(&self) -> Value {
        let shown: BTreeSet<i32> = self.nodes.iter().map(|n| n.id).collect();
        let list = |l: &[Node]| l.iter().map(|n| self.node(n, &shown)).collect::<Vec<_>>();
        let (min, max, dev) = self.spread();
        let mut summary: Map<String, Value> = self.total.json("total_").into_iter().collect();
        summary.insert("average_utilization".into(), self.total.utilization().into());
        summary.insert("min_var".into(), min.into());
        summary.insert("max_var".into(), max.into());
        summary.insert("dev".into(), dev.into());
        json!({"nodes": list(&self.nodes), "stray": list(&self.stray), "summary": summary})
    }

    fn text(&self) -> String {
        let left = |t: Table, names: &[&str]| {
            names
                .iter()
                .fold(t, |t, n| t.column(n, Align::Left, Align::Right))
        };
        let mut t = left(Table::new(), &["ID"]).right(&["CLASS"]);
        t = left(
            t,
            &[
                "WEIGHT", "REWEIGHT", "SIZE", "RAW USE", "DATA", "OMAP", "META", "AVAIL", "%USE", "VAR",
                "PGS",
            ],
        )
        .right(&["STATUS"]);
        if self.tree {
            t = t.left(&["TYPE NAME"]);
        }
        for n in self.nodes.iter().chain(&self.stray) {
            t.row(self.row(n));
        }
        let mut total = vec![String::new(), String::new(), String::new(), "TOTAL".into()];
        total.extend(self.total.text());
        total.push(percent2(self.total.utilization()));
        t.row(total);
        let (min, max, dev) = self.spread();
        format!(
            "{}MIN/MAX VAR: {}/{}  STDDEV: {}\n",
            t.print(),
            percent2(min),
            percent2(max),
            percent2(dev)
        )
    }

    fn row(&self, n: &Node) -> Vec<String> {
        let map = self.ctx.map();
        let s = self.space_of(n.id);
        let m = node_json(map, n);
        let weight = if n.id >= 0 {
            m.get("crush_weight").and_then(Value::as_f64).unwrap_or(0.0)
        } else {
            map.crush.bucket(n.id).map_or(0.0, |b| show::weight(b.weight))
        };
        let osd = n.id >= 0;
        let dash = || "-".to_string();
        let reweight = if osd {
            fixed5(show::weight(map.weight(n.id)))
        } else {
            dash()
        };
        let mut row = vec![
            n.id.to_string(),
            map.crush.class_name_of(n.id).unwrap_or("").to_string(),
            fixed5(weight),
            reweight,
        ];
        row.extend(s.text());
        row.extend([percent2(s.utilization()), percent2(self.var(&s))]);
        row.push(if osd {
            self.pgs.get(&n.id).map_or(0, |(n, _)| *n).to_string()
        } else {
            dash()
        });
        row.push(
            if !osd {
                ""
            } else if map.is_up(n.id) {
                "up"
            } else {
                "down"
            }
            .to_string(),
        );
        if self.tree {
            let kind = map.crush.item_type(n.id).and_then(|k| map.crush.type_name(k));
            let kind = kind.filter(|_| !osd).map_or(String::new(), |k| format!("{k} "));
            row.push(format!("{}{kind}{}", "    ".repeat(n.depth), name_of(map, n.id)));
        }
        row
    }
}

fn percent2(v: f64) -> String {
    if v < 0.01 { "0".into() } else { format!("{v:.2}") }
}
