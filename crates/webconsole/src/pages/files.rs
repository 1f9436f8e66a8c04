//! File systems: ranks, pools, and their subvolumes. To be read.

use crate::cluster::{Asked, Peek, ask};
use crate::show::{self, Tone, bytes, cell, num, section, tag};
use crate::visit::{Drawn, Visit};
use io::task::several;
use maud::{Markup, html};
use serde_json::Value;
use std::rc::Rc;

/// Subvolumes of a group whose figures are asked for; others are counted.
const SHOWN_MAX: usize = 50;
/// Subvolumes that are asked for at a time.
const AT_ONCE: usize = 8;
const GROUPS_MAX: usize = 20;

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let all = ask(visit.client(), "fs ls", &[]).await;
    let mut body = html! {};
    if let Ok(Value::Array(all)) = &all {
        for fs in all {
            let name = fs.text("name");
            let part = of_one(&visit, name).await;
            body = html! { (body) (section(&format!("fs-{name}"), name, &part)) };
        }
        if all.is_empty() {
            body = show::none("There are no file systems: ceph fs volume create NAME makes one.");
        }
    }
    let body = html! { (show::asked(&all, |_| html! {})) (body) };
    Drawn::new("File systems", show::live(&visit, 30, &body))
}

async fn of_one(visit: &Visit, name: &str) -> Markup {
    let client = visit.client();
    let status = ask(client, "fs status", &[("fs", name.into())]).await;
    let groups = ask(client, "fs subvolumegroup ls", &[("vol_name", name.into())]).await;
    let mut named: Vec<Option<String>> = vec![None];
    if let Ok(Value::Array(groups)) = &groups {
        named.extend(groups.iter().map(|g| Some(g.text("name").to_string())));
    }
    let mut parts = Vec::new();
    for group in named.iter().take(1 + GROUPS_MAX) {
        parts.push((group.as_deref(), subvolumes(visit, name, group.as_deref()).await));
    }
    html! {
        (show::asked(&status, ranks))
        @for (group, found) in &parts {
            h3 { "Subvolumes" @if let Some(group) = group { " of group " (group) } }
            (show::asked(found, |(rows, more)| html! {
                @if rows.is_empty() { (show::none("None.")) } @else {
                    (show::table("Subvolumes", &["Name", "State", "#Used", "#Quota", "Path"], rows))
                }
                @if *more > 0 { p.quiet { (more) " more are not shown." } }
            }))
        }
        @if named.len() > 1 + GROUPS_MAX { p.quiet { "Not all groups are shown." } }
    }
}

async fn subvolumes(visit: &Visit, fs: &str, group: Option<&str>) -> Asked<(Vec<Markup>, usize)> {
    let client = visit.client();
    let mut args: Vec<(&str, Value)> = vec![("vol_name", fs.into())];
    if let Some(group) = group {
        args.push(("group_name", group.into()));
    }
    let all = ask(client, "fs subvolume ls", &args).await?;
    let all = all.as_array().cloned().unwrap_or_default();
    let rows = all.iter().take(SHOWN_MAX).map(|subvolume| {
        let name = subvolume.text("name");
        let mut args = args.clone();
        args.push(("sub_name", name.into()));
        let info = ask(client, "fs subvolume info", &args);
        async move { row(name, &info.await) }
    });
    let rows = several(AT_ONCE, rows).await;
    Ok((rows, all.len().saturating_sub(SHOWN_MAX)))
}

fn row(name: &str, info: &Asked) -> Markup {
    html! {
        (show::head(&html! { (name) }))
        @match info {
            Ok(info) => {
                (cell(info.text("state")))
                (num(bytes(info.number("bytes_used"))))
                (num(info["bytes_quota"].as_u64().map_or("none".to_string(), bytes)))
                td.path { (info.text("path")) }
            }
            Err(why) => { td colspan="4" { "Not shown: " (why) } }
        }
    }
}

fn ranks(status: &Value) -> Markup {
    let pools: Vec<Markup> = status
        .list("pools")
        .iter()
        .map(|p| {
            html! { (show::head(&html! { (p.text("name")) })) (cell(p.text("type"))) (num(bytes(p.number("used")))) (num(bytes(p.number("avail")))) }
        })
        .collect();
    let daemons: Vec<Markup> = status
        .list("mdsmap")
        .iter()
        .map(|d| {
            let state = d.text("state");
            let tone = match state {
                "active" => Tone::Good,
                s if s.starts_with("standby") => Tone::Plain,
                _ => Tone::Warn,
            };
            let rank = d["rank"].as_u64().map_or(String::new(), |r| r.to_string());
            html! { (show::head(&html! { "mds." (d.text("name")) })) (cell(rank)) td { (tag(tone, state)) } (num(d.number("caps"))) }
        })
        .collect();
    html! {
        @if daemons.is_empty() { (show::none("No metadata server serves it.")) } @else {
            (show::table("Metadata servers", &["Daemon", "Rank", "State", "#Capabilities"], &daemons))
        }
        (show::table("Pools of the file system", &["Pool", "Holds", "#Used", "#Room"], &pools))
    }
}
