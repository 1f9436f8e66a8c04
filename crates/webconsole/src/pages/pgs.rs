//! Placement groups: how many in which state, and those that are not as they should be.

use crate::cluster::{Asked, Peek, ask, ask_for};
use crate::show::{self, Tone, cell, num, section, tag};
use crate::visit::{Drawn, Visit};
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::rc::Rc;

/// Rows of a table; the rest is counted.
const ROWS_MAX: usize = 100;

/// One placement group, as far as it is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Group {
    pgid: String,
    state: String,
    up: Vec<i64>,
    acting: Vec<i64>,
    acting_primary: Option<i64>,
}

/// Of a list of groups, which may have 10^5, those that are not as they should be; no more are kept than are shown.
#[derive(Debug, Default)]
struct Groups {
    rows: Vec<Group>,
    left: usize,
}

impl<'de> Deserialize<'de> for Groups {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Keep)
    }
}

struct Keep;

impl<'de> Visitor<'de> for Keep {
    type Value = Groups;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of placement groups")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Groups, A::Error> {
        let mut out = Groups::default();
        while let Some(group) = all.next_element::<Group>()? {
            match () {
                () if tone(&group.state) == Tone::Good => {}
                () if out.rows.len() < ROWS_MAX => out.rows.push(group),
                () => out.left += 1,
            }
        }
        Ok(out)
    }
}

#[derive(Debug, Default, Deserialize)]
struct Dump {
    #[serde(default, alias = "stuck_pg_stats")]
    pg_stats: Groups,
}

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let client = visit.client();
    let status = ask(client, "status", &[]).await;
    // The long lists are asked for when there is something to find in them.
    let (stuck, brief) = match &status {
        Ok(status) if !is_all_well(status) => {
            let brief = [("dumpcontents", serde_json::json!(["pgs_brief"]))];
            tokio::join!(
                ask_for::<Dump>(client, "pg dump_stuck", &[]),
                ask_for::<Dump>(client, "pg dump", &brief),
            )
        }
        Ok(_) => (Ok(Dump::default()), Ok(Dump::default())),
        Err(why) => (Err(why.clone()), Err(why.clone())),
    };
    let part = |dump: &Asked<Dump>, caption, none| show::asked(dump, |d| groups(&d.pg_stats, caption, none));
    let body = html! {
        (section("states", "States", &show::asked(&status, states)))
        (section("stuck", "Stuck", &part(&stuck, "Stuck placement groups", "None is stuck.")))
        (section("others", "Not active and clean", &part(
            &brief,
            "Placement groups that are not active and clean",
            "All are active and clean.",
        )))
    };
    Drawn::new("Placement groups", show::live(&visit, 30, &body))
}

/// Whether the states that there are leave nothing to show.
fn is_all_well(status: &Value) -> bool {
    let states = status["pgmap"].list("pgs_by_state");
    states.iter().all(|s| tone(s.text("state_name")) == Tone::Good)
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

fn osds(of: &[i64]) -> String {
    of.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

fn groups(all: &Groups, caption: &str, none: &str) -> Markup {
    if all.rows.is_empty() {
        return show::none(none);
    }
    let rows: Vec<Markup> = all
        .rows
        .iter()
        .map(|p| {
            html! {
                (show::head(&html! { (p.pgid) }))
                td { (tag(tone(&p.state), &p.state)) }
                (cell(osds(&p.up)))
                (cell(osds(&p.acting)))
                (num(p.acting_primary.map_or(String::new(), |n| n.to_string())))
            }
        })
        .collect();
    html! {
        (show::table(caption, &["Group", "State", "Belongs on", "Served by", "#Primary"], &rows))
        (show::more(all.left))
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

    #[test]
    fn of_many_groups_few_are_kept() {
        let group = |n: u32, state: &str| serde_json::json!({"pgid": format!("1.{n:x}"), "state": state, "up": [1, 2], "acting": [2]});
        let all: Vec<Value> = (0..1000)
            .map(|n| {
                group(
                    n,
                    if n % 2 == 0 {
                        "active+clean"
                    } else {
                        "active+degraded"
                    },
                )
            })
            .collect();
        for list in ["pg_stats", "stuck_pg_stats"] {
            let text = serde_json::json!({"other": 1, list: all}).to_string();
            let found = serde_json::from_str::<Dump>(&text).unwrap().pg_stats;
            assert_eq!((found.rows.len(), found.left), (ROWS_MAX, 500 - ROWS_MAX));
            assert_eq!(
                (found.rows[0].pgid.as_str(), osds(&found.rows[0].up)),
                ("1.1", "1, 2".to_string())
            );
        }
        assert!(
            serde_json::from_str::<Dump>("{}")
                .unwrap()
                .pg_stats
                .rows
                .is_empty()
        );
    }

    #[test]
    fn lists_are_asked_for_when_something_is_in_them() {
        let of = |states: &[&str]| {
            let all: Vec<Value> = states
                .iter()
                .map(|s| serde_json::json!({"state_name": s, "count": 1}))
                .collect();
            is_all_well(&serde_json::json!({"pgmap": {"pgs_by_state": all}}))
        };
        assert!(of(&["active+clean", "active+clean+scrubbing"]) && of(&[]));
        assert!(!of(&["active+clean", "active+undersized"]));
    }
}
