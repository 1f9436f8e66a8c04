//! Slow operations: what waits now, and the slowest of the last minutes with their time per stage.
//!
//! Bounds: [`OSDS_MAX`] OSDs are asked, [`AT_ONCE`] at a time, [`ROWS_MAX`] operations of each table shown.

use crate::cluster::{Asked, Peek, ask, tell};
use crate::show::{self, cell, latency, num, section, stamp};
use crate::visit::{Drawn, Visit};
use io::task::several;
use maud::{Markup, html};
use serde_json::Value;
use std::rc::Rc;

const OSDS_MAX: usize = 64;
const AT_ONCE: usize = 8;
const ROWS_MAX: usize = 30;

/// What OSDs are asked, and where the operations are in the answer.
const ASKED: [(&str, &str); 3] = [
    ("dump_ops_in_flight", "ops"),
    ("dump_historic_slow_ops", "Ops"),
    ("dump_historic_ops_by_duration", "ops"),
];

/// Operations, slowest first, and why OSDs did not say theirs.
#[derive(Default)]
struct Found {
    ops: Vec<(i32, Value)>,
    silent: Vec<String>,
}

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let doctor = ask(visit.client(), "doctor", &[]);
    let found = async {
        match up(&visit).await {
            Ok(up) => Ok(gather(&visit, up).await),
            Err(why) => Err(why),
        }
    };
    let (doctor, found) = tokio::join!(doctor, found);
    let part = |n: usize, none: &str| show::asked(&found, |f| operations(&f[n], none));
    let body = html! {
        (section("waiting", "What waits now", &show::asked(&doctor, |d| {
            let slow: Vec<&Value> = d.list("findings").iter().filter(|f| f.text("level") == "slow").collect();
            waiting(&slow)
        })))
        (section("now", "Under way", &part(0, "Nothing is under way.")))
        (section("slow", "Operations that were slow", &part(1, "None was slow lately.")))
        (section("slowest", "The slowest of the last minutes", &part(2, "There were none.")))
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

fn operations(found: &Found, none: &str) -> Markup {
    let Found { ops, silent } = found;
    html! {
        @if ops.is_empty() && silent.is_empty() { (show::none(none)) }
        @if !ops.is_empty() { (table(ops)) }
        @if let Some(first) = silent.first() {
            p.refused role="note" { (silent.len()) " OSDs did not say theirs; it takes osd 'allow *'. " (first) }
        }
    }
}

fn took(op: &Value) -> f64 {
    match op["duration"].is_null() {
        true => op.float("age"),
        false => op.float("duration"),
    }
}

/// All that is asked of each OSD, which is asked all of it together.
async fn gather(visit: &Visit, up: Vec<i32>) -> [Found; 3] {
    let asked = up.into_iter().map(|osd| async move {
        let [a, b, c] = ASKED.map(|(prefix, _)| tell(visit.client(), osd, prefix));
        let (a, b, c) = tokio::join!(a, b, c);
        (osd, [a, b, c])
    });
    let mut found: [Found; 3] = Default::default();
    for (osd, said) in several(AT_ONCE, asked).await {
        for ((said, (_, list)), found) in said.into_iter().zip(ASKED).zip(&mut found) {
            match said {
                Ok(said) => found
                    .ops
                    .extend(said.list(list).iter().map(|op| (osd, op.clone()))),
                Err(why) => found.silent.push(why),
            }
        }
    }
    for found in &mut found {
        found.ops.sort_by(|a, b| took(&b.1).total_cmp(&took(&a.1)));
        found.ops.truncate(ROWS_MAX);
    }
    found
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
        (num(latency(took(op))))
        td {
            ol.stages {
                @for stage in data.list("events").iter().filter(|e| e.text("event") != "done") {
                    li { (stage.text("event").replace('_', " ")) " " span.quiet { (latency(stage.float("duration"))) } }
                }
            }
        }
    }
}
