//! Numbers of placement groups that follow the pools' sizes: what is thought of each pool, and the switch for all.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use crate::format::json::significant;
use crate::format::{Align, Table};
use crate::policies::autoscale::{self, NOAUTOSCALE, Sizing};
use crate::policies::survey::Survey;
use cluster::{Change, Changes};
use serde_json::{Value, json};
use types::PoolId;
use types::pool::autoscale_mode_name;

const W: (&str, &str) = ("mgr", "w");
const MODULE: &str = "pg_autoscaler";

pub const TABLE: &[Spec] = &[
    spec(
        ("mgr", "r"),
        "osd pool autoscale-status format?:str",
        "sizes of the pools, and how many placement groups they should have",
        status,
    )
    .by_manager(MODULE),
    spec(
        W,
        "osd pool set noautoscale",
        "change the number of groups of no pool by itself, whatever its mode",
        set,
    )
    .by_manager(MODULE),
    spec(
        W,
        "osd pool unset noautoscale",
        "let the pools' modes hold again",
        unset,
    )
    .by_manager(MODULE),
    spec(
        W,
        "osd pool get noautoscale",
        "whether numbers of groups are left alone for all pools",
        get,
    )
    .by_manager(MODULE),
];

/// Notes with a pool's change that somebody asked for its mode `on`, or asks no more.
pub(super) fn asked(mut out: Outcome, pool: PoolId, on: bool) -> Outcome {
    let key = autoscale::asked_key(pool);
    out.changes.push(match on {
        true => Change::ConfigKeySet {
            key,
            value: "1".into(),
        },
        false => Change::ConfigKeyRm { key },
    });
    out
}

fn switch(value: &str) -> Changes {
    Changes::one(Change::ConfigSet {
        who: "mgr".into(),
        name: NOAUTOSCALE.into(),
        value: value.into(),
    })
}

fn set(_: &Command, ctx: &Context<'_>) -> Outcome {
    if autoscale::is_off(ctx.state) {
        return Outcome::status("noautoscale is already set!");
    }
    Outcome::status("noautoscale is set, all pools now have autoscale off").with(switch("true"))
}

fn unset(_: &Command, ctx: &Context<'_>) -> Outcome {
    if !autoscale::is_off(ctx.state) {
        return Outcome::status("noautoscale is already unset!");
    }
    Outcome::status("noautoscale is unset, all pools now back to its previous mode").with(switch("false"))
}

fn get(_: &Command, ctx: &Context<'_>) -> Outcome {
    let word = if autoscale::is_off(ctx.state) { "on" } else { "off" };
    Outcome::status(format!("noautoscale is {word}"))
}

fn value(s: &Sizing) -> Value {
    let p = &s.pool;
    json!({
        "actual_capacity_ratio": s.actual_ratio,
        "actual_raw_used": p.raw_used(),
        "bias": p.bias,
        "bulk": p.bulk,
        "capacity_ratio": s.ratio,
        "crush_root_id": p.root,
        "effective_target_ratio": s.effective_ratio,
        "logical_used": p.bytes,
        "pg_autoscale_mode": autoscale_mode_name(p.mode),
        "pg_num_final": s.wanted,
        "pg_num_ideal": s.ideal,
        "pg_num_target": p.pg_num,
        "pool_id": p.id,
        "pool_name": p.name,
        "raw_used": p.raw_used(),
        "raw_used_rate": p.rate,
        "subtree_capacity": s.capacity,
        "target_bytes": p.target_bytes,
        "target_ratio": p.target_ratio,
        "would_adjust": s.would_adjust && !s.mixed,
    })
}

fn row(s: &Sizing) -> Vec<String> {
    let p = &s.pool;
    let some = |there: bool, text: String| if there { text } else { String::new() };
    let adjusts = s.would_adjust && !s.mixed;
    vec![
        p.name.clone(),
        python_size(p.bytes),
        some(p.target_bytes > 0, python_size(p.target_bytes)),
        format!("{:.1}", p.rate),
        python_size(s.capacity),
        format!("{:.4}", s.ratio),
        some(p.target_ratio > 0.0, format!("{:.4}", p.target_ratio)),
        some(s.effective_ratio > 0.0, format!("{:.4}", s.effective_ratio)),
        format!("{:.1}", p.bias),
        p.pg_num.to_string(),
        some(adjusts, s.wanted.to_string()),
        autoscale_mode_name(p.mode).to_string(),
        if p.bulk { "True" } else { "False" }.to_string(),
    ]
}

fn status(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let survey = Survey::of(ctx.map(), ctx.stats);
    let sizes = autoscale::sizes(ctx.state, ctx.stats, &survey);
    if cmd.wants_json() {
        let all: Vec<Value> = sizes.iter().map(value).collect();
        // Pretty in any case, as from a Python module.
        return Outcome::ok(crate::format::pretty(&json!(all)));
    }
    let mut t = Table::new()
        .left(&["POOL"])
        .right(&[
            "SIZE",
            "TARGET SIZE",
            "RATE",
            "RAW CAPACITY",
            "RATIO",
            "TARGET RATIO",
            "EFFECTIVE RATIO",
            "BIAS",
            "PG_NUM",
            "NEW PG_NUM",
        ])
        .left(&["AUTOSCALE"])
        .column("BULK  ", Align::Left, Align::Left);
    sizes.iter().for_each(|s| t.row(row(s)));
    Outcome::ok(t.print())
}

/// `0`, `6716`, `878.9k`, `12288M`: up to five characters and a unit of 1024.
fn python_size(n: u64) -> String {
    const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let mut scaled = n as f64;
    while scaled >= 99_999.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let text = if scaled.fract() == 0.0 || unit == 0 {
        significant(scaled.trunc(), 6)
    } else {
        format!("{scaled:.1}")
            .chars()
            .take(6)
            .collect::<String>()
            .trim_end_matches('.')
            .to_string()
    };
    format!("{text}{}", UNITS[unit])
}
