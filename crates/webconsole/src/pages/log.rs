//! The last lines of the cluster's log and of its audit log.

use crate::cluster::{Peek, ask};
use crate::show::{self, Tone, cell, section, stamp, tag};
use crate::visit::{Drawn, Visit};
use crate::web::link;
use maud::{Markup, html};
use serde_json::Value;
use std::rc::Rc;

const LINES: u32 = 100;
/// As `log last` takes them, and what they are called here.
const LEVELS: [(&str, &str); 4] = [
    ("debug", "All"),
    ("info", "Information"),
    ("warn", "Warnings"),
    ("error", "Errors"),
];
const LOGS: [(&str, &str); 2] = [("cluster", "Cluster"), ("audit", "Audit")];

fn chosen(all: &[(&'static str, &'static str)], said: &str, or: &'static str) -> &'static str {
    all.iter()
        .find(|(name, _)| *name == said)
        .map_or(or, |(name, _)| name)
}

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let level = chosen(&LEVELS, visit.query.get("level"), "info");
    let channel = chosen(&LOGS, visit.query.get("log"), "cluster");
    let args = [
        ("num", LINES.into()),
        ("level", level.into()),
        ("channel", channel.into()),
    ];
    let lines = ask(visit.client(), "log last", &args).await;
    let body = html! {
        nav.places aria-label="Log and level" {
            p { "Log" }
            ul { @for (name, word) in LOGS { (choice(word, name == channel, &[("log", name), ("level", level)])) } }
            p { "Level" }
            ul { @for (name, word) in LEVELS { (choice(word, name == level, &[("log", channel), ("level", name)])) } }
        }
        (section("lines", "Lines, the newest first", &show::live(&visit, 10, &show::asked(&lines, table))))
    };
    Drawn::new("Log and audit", body)
}

fn choice(words: &str, here: bool, query: &[(&str, &str)]) -> Markup {
    html! { li { a href=(link("/log", query)) aria-current=[here.then_some("true")] { (words) } } }
}

fn table(lines: &Value) -> Markup {
    let lines = lines.as_array().map_or(&[][..], Vec::as_slice);
    if lines.is_empty() {
        return show::none("No lines.");
    }
    let rows: Vec<Markup> = lines.iter().rev().map(row).collect();
    show::table("Lines of the log", &["Time", "Level", "From", "Message"], &rows)
}

fn row(line: &Value) -> Markup {
    let level = line.text("priority").trim_matches(['[', ']']);
    let tone = match level {
        "ERR" | "SEC" => Tone::Bad,
        "WRN" => Tone::Warn,
        _ => Tone::Plain,
    };
    html! {
        td.stamp { (stamp(line.text("stamp"))) }
        td { (tag(tone, level)) }
        (cell(line.text("name")))
        td.message { (line.text("message")) }
    }
}
