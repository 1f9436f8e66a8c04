//! Slow operations: what waits now, and the slowest of the last minutes with their time per stage.
//!
//! Bounds: [`OSDS_MAX`] OSDs are asked, [`ROWS_MAX`] operations of each table shown.

use crate::cluster::{Asked, Peek, ask, tell};
use crate::show::{self, cell, latency, num, section, stamp};
use crate::visit::{Drawn, Visit};
use maud::{Markup, html};
use serde_json::Value;
use std::rc::Rc;

const OSDS_MAX: usize = 64;
const ROWS_MAX: usize = 30;

/// Operations, slowest first, and the OSDs that did not say theirs.
type Found = (Vec<(i32, Value)>, Vec<String>);

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let doctor = ask(visit.client(), "doctor", &[]).await;
    let up = up(&visit).await;
    let body = html! {
        (section("waiting", "What waits now", &show::asked(&doctor, |d| {
            let slow: Vec<&Value> = d.list("findings").iter().filter(|f| f.text("level") == "slow").collect();
            waiting(&slow)
        })))
        (section("now", "Under way", &of_osds(&visit, &up, "dump_ops_in_flight", "ops", "Nothing is under way.").await))
        (section("slow", "Operations that were slow", &of_osds(&visit, &up, "dump_historic_slow_ops", "Ops", "None was slow lately.").await))
        (section("slowest", "The slowest of the last minutes", &of_osds(&visit, &up, "dump_historic_ops_by_duration", "ops", "There were none.").await))
    };
    Drawn::new("Slow operations", show::live(&visit, 15, &body))
}

async fn up(visit: &Visit) -> Asked<Vec<i32>> {
    let tree = ask(visit.client(), "osd tree", &[]).await?;
    let nodes = tree.list("nodes").iter().chain(tree.list("stray"));
    let up = nodes.filter(|n| n.text("type") == "osd" && n.text("status") == "up");
    Ok(up
        .filter_map(|n| n["id"].as_i64().map(|id| id as i32))
        .take(OSDS_MAX)
        .collect())
}

fn waiting(slow: &[&Value]) -> Markup {
    html! {
        @if slow.is_empty() { (show::none("No operation waits for long.")) }
        @for f in slow {
            article.finding {
                h3 { (f.text("subject")) }
                p { (f.text("waits_for")) span.quiet { " since " (stamp(f.text("since"))) } }
                p { strong { "Next: " } (f.text("next")) }
            }
        }
    }
}

async fn of_osds(visit: &Visit, up: &Asked<Vec<i32>>, prefix: &str, list: &str, none: &str) -> Markup {
    let found = match up {
        Ok(up) => Ok(gather(visit, up, prefix, list).await),
        Err(why) => Err(why.clone()),
    };
    show::asked(&found, |(ops, silent)| {
        html! {
            @if ops.is_empty() && silent.is_empty() { (show::none(none)) }
            @if !ops.is_empty() { (table(ops)) }
            @if let Some(first) = silent.first() {
                p.refused role="note" { (silent.len()) " OSDs did not say theirs; it takes osd 'allow *'. " (first) }
            }
        }
    })
}

async fn gather(visit: &Visit, up: &[i32], prefix: &str, list: &str) -> Found {
    let (mut ops, mut silent) = (Vec::new(), Vec::new());
    for osd in up {
        match tell(visit.client(), *osd, prefix).await {
            Ok(said) => ops.extend(said.list(list).iter().map(|op| (*osd, op.clone()))),
            Err(why) => silent.push(why),
        }
    }
    let took = |op: &Value| {
        if op["duration"].is_null() {
            op.float("age")
        } else {
            op.float("duration")
        }
    };
    ops.sort_by(|a, b| took(&b.1).total_cmp(&took(&a.1)));
    ops.truncate(ROWS_MAX);
    (ops, silent)
}

fn table(ops: &[(i32, Value)]) -> Markup {
    let rows: Vec<Markup> = ops.iter().map(|(osd, op)| row(*osd, op)).collect();
    let heads = ["Operation", "OSD", "Client", "Begun", "#Took", "Stages"];
    show::table("Operations", &heads, &rows)
}

fn row(osd: i32, op: &Value) -> Markup {
    let data = &op["type_data"];
    let client = &data["client_info"];
    html! {
        th.op scope="row" { (op.text("description")) }
        (cell(format!("osd.{osd}")))
        td { (client.text("client")) " " span.quiet { (client.text("client_addr")) } }
        td.stamp { (stamp(op.text("initiated_at"))) }
        (num(latency(if op["duration"].is_null() { op.float("age") } else { op.float("duration") })))
        td {
            ol.stages {
                @for stage in data.list("events").iter().filter(|e| e.text("event") != "done") {
                    li { (stage.text("event").replace('_', " ")) " " span.quiet { (latency(stage.float("duration"))) } }
                }
            }
        }
    }
}
