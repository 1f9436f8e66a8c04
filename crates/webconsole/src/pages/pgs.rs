//! Placement groups: how many in which state, and those that are not as they should be.

use crate::cluster::{Peek, ask};
use crate::show::{self, Tone, cell, num, section, tag};
use crate::visit::{Drawn, Visit};
use maud::{Markup, html};
use serde_json::Value;
use std::rc::Rc;

/// Rows of a table; the rest is counted.
const ROWS_MAX: usize = 100;

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let client = visit.client();
    let (status, stuck, brief) = tokio::join!(
        ask(client, "status", &[]),
        ask(client, "pg dump_stuck", &[]),
        ask(
            client,
            "pg dump",
            &[("dumpcontents", serde_json::json!(["pgs_brief"]))]
        ),
    );
    let body = html! {
        (section("states", "States", &show::asked(&status, states)))
        (section("stuck", "Stuck", &show::asked(&stuck, |s| {
            let all: Vec<&Value> = s.list("stuck_pg_stats").iter().collect();
            groups(&all, "Stuck placement groups", "None is stuck.")
        })))
        (section("others", "Not active and clean", &show::asked(&brief, |b| {
            let all = b.list("pg_stats").iter().filter(|p| tone(p.text("state")) != Tone::Good);
            groups(&all.collect::<Vec<_>>(), "Placement groups that are not active and clean", "All are active and clean.")
        })))
    };
    Drawn::new("Placement groups", show::live(&visit, 10, &body))
}

fn tone(state: &str) -> Tone {
    let has = |word: &str| state.split('+').any(|s| s == word);
    let bad = [
        "inconsistent",
        "incomplete",
        "down",
        "unknown",
        "stale",
        "recovery_unfound",
    ];
    match () {
        () if bad.into_iter().any(has) || !has("active") => Tone::Bad,
        () if has("clean") => Tone::Good,
        () => Tone::Warn,
    }
}

fn states(status: &Value) -> Markup {
    let pgs = &status["pgmap"];
    let all = pgs.number("num_pgs");
    let rows: Vec<Markup> = pgs
        .list("pgs_by_state")
        .iter()
        .map(|s| {
            let state = s.text("state_name");
            html! { (show::head(&tag(tone(state), state))) (num(s.number("count"))) }
        })
        .collect();
    html! {
        p { (all) " placement groups in " (pgs.number("num_pools")) " pools." }
        @if !rows.is_empty() { (show::table("Placement groups by state", &["State", "#Groups"], &rows)) }
    }
}

fn osds(of: &Value) -> String {
    let all = of.as_array().map_or(&[][..], Vec::as_slice);
    all.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

fn groups(all: &[&Value], caption: &str, none: &str) -> Markup {
    if all.is_empty() {
        return show::none(none);
    }
    let rows: Vec<Markup> = all
        .iter()
        .take(ROWS_MAX)
        .map(|p| {
            let state = p.text("state");
            html! {
                (show::head(&html! { (p.text("pgid")) }))
                td { (tag(tone(state), state)) }
                (cell(osds(&p["up"])))
                (cell(osds(&p["acting"])))
                (num(p["acting_primary"].as_i64().map_or(String::new(), |n| n.to_string())))
            }
        })
        .collect();
    html! {
        (show::table(caption, &["Group", "State", "Belongs on", "Served by", "#Primary"], &rows))
        @if all.len() > ROWS_MAX { p.quiet { (all.len() - ROWS_MAX) " more are not shown." } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_their_tone() {
        let check = |state: &str, want| assert_eq!(tone(state), want, "{state}");
        check("active+clean", Tone::Good);
        check("active+clean+scrubbing+deep", Tone::Good);
        check("active+undersized+degraded", Tone::Warn);
        check("active+clean+inconsistent", Tone::Bad);
        check("peering", Tone::Bad);
        check("unknown", Tone::Bad);
    }
}
