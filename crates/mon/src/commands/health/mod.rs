//! The commands that show health checks and mute them.

use crate::commands::checks::Report;
use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::show;
use cluster::{Change, Changes, HealthMute};

const R: (&str, &str) = ("mon", "r");
const W: (&str, &str) = ("mon", "w");

pub const TABLE: &[Spec] = &[
    spec(
        R,
        "health detail?:choice(detail)",
        "health of the cluster, with the reasons if asked",
        health,
    ),
    spec(
        W,
        "health mute code:str ttl?:str sticky?:bool",
        "keep quiet about a raised alert, for a while or for ever",
        mute,
    ),
    spec(
        W,
        "health unmute code?:str",
        "show an alert again, or all of them",
        unmute,
    ),
];

fn health(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let detail = cmd.text("detail") == "detail";
    let report = Report::of(ctx);
    cmd.either(|| report.json(detail), || report.plain(detail))
}

fn mute(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let code = cmd.text("code").to_string();
    let sticky = cmd.flag("sticky");
    let until = match cmd.opt_text("ttl").map(|t| (t, show::parse_span(t))) {
        None => None,
        Some((_, Some(span))) => Some(show::later_by(ctx.now, span)),
        Some((t, None)) => return Outcome::invalid(format!("invalid duration: {t} (expected digit)")),
    };
    let report = Report::of(ctx);
    let (summary, count) = match report.checks.get(&code) {
        Some(c) if !sticky => (c.summary.clone(), c.count as i64),
        Some(_) => (String::new(), 0),
        None if sticky => (String::new(), 0),
        None => return Outcome::absent(format!("health alert {code} is not currently raised")),
    };
    let mute = HealthMute {
        code,
        until,
        sticky,
        summary,
        count,
    };
    Outcome::default().with(Changes::one(Change::Mute(mute)))
}

fn unmute(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let wanted = cmd.opt_text("code");
    let mut changes = Changes::none();
    for code in ctx.state.mutes.keys() {
        if wanted.is_none_or(|w| w == code) {
            changes.push(Change::Unmute { code: code.clone() });
        }
    }
    Outcome::default().with(changes)
}
