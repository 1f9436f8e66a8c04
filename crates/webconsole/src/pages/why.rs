//! Why slow: where the operations of an image, a pool or a client spend their time, and what accounts for it, as `skep why` says it.
//!
//! Bounds: [`SECONDS`] are looked at, [`WITHIN`] for all of it. It looks when it is asked, never by itself: OSDs count while they are asked.

use crate::cluster::{Asked, Peek, ask};
use crate::show::{self, anchor, bytes, cell, count, head, latency, num, percent, section};
use crate::visit::{Drawn, Visit};
use io::task;
use maud::{Markup, html};
use serde_json::Value;
use stages::{Cause, Held, Question, Told, about, look};
use std::rc::Rc;
use std::time::Duration;

const SECONDS: u64 = 3;
/// For each answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(6);
/// Below what a page may take.
const WITHIN: Duration = Duration::from_secs(25);
/// What OSDs go on counting beyond it: their clocks begin later than ours.
const SLACK: Duration = Duration::from_secs(5);
/// Pools that are offered.
const POOLS_MAX: usize = 200;

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let name = visit.query.get("about").trim().to_string();
    let pools = ask(visit.client(), "osd pool ls", &[]).await;
    let form = form(&name, pools.as_ref().unwrap_or(&Value::Null));
    let told = match visit.query.get("look") {
        "" => None,
        _ => Some(asked(&visit, &name).await),
    };
    let body = html! {
        (form)
        @if let Some(told) = &told { (show::asked(told, |told| answer(&visit, told))) }
    };
    Drawn::new("Why slow", body)
}

/// `name`: empty for all that clients do.
async fn asked(visit: &Visit, name: &str) -> Asked<Told> {
    let of = (!name.is_empty()).then_some(name);
    let question = Question {
        name: of.unwrap_or("all clients"),
        about: about(of)?,
        seconds: SECONDS,
        within: ANSWER_WITHIN,
        all: Some(WITHIN + SLACK),
    };
    let told = task::timeout(WITHIN, look(visit.client(), &question)).await;
    told.unwrap_or_else(|_| {
        Err(format!(
            "the OSDs have not all answered within {} s: `skep why --timeout` waits longer",
            WITHIN.as_secs()
        ))
    })
}

fn form(name: &str, pools: &Value) -> Markup {
    let pools = pools.as_array().map_or(&[][..], Vec::as_slice);
    let pools = pools.iter().filter_map(Value::as_str).take(POOLS_MAX);
    html! {
        form.row method="get" action="/why" {
            input type="hidden" name="look" value="1";
            div {
                label for="about" { "Of what" }
                input #about name="about" value=(name) list="about-pools" maxlength="700" aria-describedby="about-what";
                datalist #about-pools { @for pool in pools { option value=(pool) {} } }
            }
            button type="submit" { "Look for " (SECONDS) " seconds" }
        }
        p.quiet #about-what { "A pool, POOL/IMAGE, POOL/NAMESPACE/IMAGE, client.NUMBER or a client's address; empty: all that clients do." }
    }
}

fn answer(visit: &Visit, told: &Told) -> Markup {
    html! {
        (section("operations", &format!("Operations: {}", told.about), &operations(told)))
        (section("causes", "Where the time goes", &causes(told)))
        @if !told.whose.is_empty() { (section("most", "Who does most", &most(visit, told))) }
        (beside(told))
    }
}

fn operations(told: &Told) -> Markup {
    if told.is_empty() {
        let waits = match told.in_flight() {
            0 => "None waits at the OSDs: what is slow has not reached them.".to_string(),
            n => format!("{n} wait at the OSDs (of all clients)."),
        };
        return show::none(&format!("No operation was answered meanwhile. {waits}"));
    }
    let kinds = [("reads", told.kind(false)), ("writes", told.kind(true))];
    let rows: Vec<Markup> = kinds
        .into_iter()
        .filter(|(_, kind)| kind.sum.ops > 0.0)
        .map(|(name, kind)| {
            let s = kind.sum;
            let part = |t: f64| percent(t / s.all().max(1e-12));
            html! {
                (head(&html! { (name) }))
                (num(count(kind.rate.round() as u64)))
                (num(bytes((s.bytes / s.ops) as u64)))
                (num(latency(s.all() / s.ops)))
                (num(part(s.queue)))
                (num(part(s.turn)))
                (num(part(s.durable)))
            }
        })
        .collect();
    let heads = [
        "Kind",
        "#A second",
        "#Size",
        "#Took",
        "#Queue",
        "#Turn in its group",
        "#Until durable",
    ];
    show::table("Operations", &heads, &rows)
}

fn causes(told: &Told) -> Markup {
    let rows: Vec<Markup> = told.causes.iter().map(cause).collect();
    html! {
        @if rows.is_empty() { (show::none("Nothing is known of it.")) } @else {
            p { "From when an OSD takes an operation until its answer goes." }
            (show::table("Causes", &["Where", "#Share", "#Each", "What accounts for it", "Next"], &rows))
        }
    }
}

fn cause(c: &Cause) -> Markup {
    html! {
        (head(&html! { (c.what) }))
        (num(percent(c.share)))
        (num(latency(c.mean)))
        td {
            @if c.why.is_empty() { span.quiet { "Nothing that is counted." } }
            @for why in &c.why { p { (why) } }
        }
        (cell(c.next.as_deref().unwrap_or("")))
    }
}

fn most(visit: &Visit, told: &Told) -> Markup {
    let rows: Vec<Markup> = told
        .whose
        .iter()
        .map(|b| {
            let name = anchor(&visit.path, &[("look", "1"), ("about", &b.client)], &b.name);
            html! {
                (head(&name))
                (num(count(b.ops.round() as u64)))
                (num(format!("{}/s", bytes(b.bytes as u64))))
            }
        })
        .collect();
    show::table("Clients", &["Client", "#Operations a second", "#Data"], &rows)
}

/// What is in no stage.
fn beside(told: &Told) -> Markup {
    let (_, silent) = told.osds();
    html! {
        @for (osd, busy) in &told.busy {
            p { "The thread of osd." (osd) " works " (percent(*busy)) " of the time: operations wait in its sockets, too, which is in no stage." }
        }
        @for h in &told.held { (held(h)) }
        @match &told.doctor {
            Err(why) => { p.refused role="note" { "The doctor was not asked: " (why) } }
            Ok(findings) => {
                @for f in findings {
                    article.finding {
                        h3 { (f.text("subject")) }
                        p { (f.text("waits_for")) }
                        p { strong { "Next: " } (f.text("next")) }
                    }
                }
            }
        }
        @if let Some((osd, why)) = silent.first() {
            p.refused role="note" { (silent.len()) " OSDs did not say theirs; it takes osd 'allow *'. osd." (osd) ": " (why) }
        }
    }
}

fn held(h: &Held) -> Markup {
    let limits = h.limits.as_object().into_iter().flatten();
    let limits: Vec<String> = limits.map(|(name, n)| format!("{name}={n}")).collect();
    html! {
        p { "Held back by a limit " (count(h.times as u64)) " times meanwhile, before the stages above: " (limits.join(" ")) " (" (h.of.to_string()) "). Next: skep qos ls" }
    }
}
