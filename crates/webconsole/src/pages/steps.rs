//! The doctor: what is blocked, slow or at risk, in words, with buttons for steps that are safe and can be undone.

use crate::acts::FLAGS;
use crate::cluster::{Peek, ask};
use crate::pages::overview::of_check;
use crate::show::{self, Tone, button, section, span, stamp, tag};
use crate::visit::{Drawn, Visit};
use maud::{Markup, html};
use serde_json::Value;
use std::rc::Rc;

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let client = visit.client();
    let (doctor, health, dump, tree) = tokio::join!(
        ask(client, "doctor", &[]),
        ask(client, "health", &[("detail", "detail".into())]),
        ask(client, "osd dump", &[]),
        ask(client, "osd tree", &[]),
    );
    let body = html! {
        (section("findings", "What is blocked, slow or at risk", &show::asked(&doctor, findings)))
        (section("checks", "Health checks", &show::asked(&health, checks)))
        (section("out", "OSDs that are up and out", &show::asked(&tree, |t| out(&visit, t))))
        (section("flags", "Work that is held up by hand", &show::asked(&dump, |d| flags(&visit, d.text("flags")))))
    };
    Drawn::new("Doctor", show::live(&visit, 10, &body))
}

fn level(finding: &Value) -> Tone {
    match finding.text("level") {
        "blocked" => Tone::Bad,
        "note" => Tone::Plain,
        _ => Tone::Warn,
    }
}

fn findings(doctor: &Value) -> Markup {
    let all = doctor.list("findings");
    html! {
        @if all.is_empty() { (show::none("Nothing is blocked, slow or at risk.")) }
        @for f in all {
            article.finding {
                h3 { (tag(level(f), f.text("level"))) " " (f.text("subject")) }
                p {
                    (f.text("waits_for"))
                    @if !f.text("since").is_empty() {
                        span.quiet { " since " (stamp(f.text("since"))) ", for " (span(f.number("seconds"))) }
                    }
                }
                p { strong { "Next: " } (f.text("next")) }
            }
        }
    }
}

fn checks(health: &Value) -> Markup {
    match health["checks"].as_object().filter(|c| !c.is_empty()) {
        None => show::none("No health check has anything to say."),
        Some(checks) => html! { @for (code, check) in checks { (of_check(code, check)) } },
    }
}

fn out(visit: &Visit, tree: &Value) -> Markup {
    let nodes = tree.list("nodes").iter().chain(tree.list("stray"));
    let all: Vec<&Value> = nodes
        .filter(|n| n.text("type") == "osd" && n.text("status") == "up" && n.float("reweight") == 0.0)
        .collect();
    html! {
        @if all.is_empty() { (show::none("None: each OSD that is up is in.")) }
        @for node in all {
            @let id = node["id"].as_i64().unwrap_or(-1).to_string();
            div.step {
                p { (node.text("name")) " is up and out: it is given no data." }
                @if visit.rights.write {
                    (button(visit, &format!("Take osd.{id} in"), &[("act", "osd-in"), ("osd", &id), ("from", "doctor")]))
                }
            }
        }
    }
}

fn flags(visit: &Visit, set: &str) -> Markup {
    let is_set = |flag: &str| set.split(',').any(|f| f == flag);
    let mut heads = vec!["Flag", "State", "While it is set"];
    if visit.rights.write {
        heads.push("");
    }
    let rows: Vec<Markup> = FLAGS
        .iter()
        .map(|(flag, meaning)| {
            let on = is_set(flag);
            let (act, word) = if on { ("flag-unset", "Unset") } else { ("flag-set", "Set") };
            html! {
                (show::head(&html! { (flag) }))
                td { @if on { (tag(Tone::Warn, "set")) } @else { "not set" } }
                (show::cell(meaning))
                @if visit.rights.write { td { (button(visit, &format!("{word} {flag}"), &[("act", act), ("flag", flag)])) } }
            }
        })
        .collect();
    show::table("Flags of the OSD map", &heads, &rows)
}
