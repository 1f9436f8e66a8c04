//! Health: checks computed from the state, their mutes, and the commands that show and mute them.
//!
//! A check has the code, severity and wording of the real one's. Nothing is remembered: a check is raised
//! exactly while its cause is there.

use super::pg_stats::Figures;
use super::table::{Spec, spec};
use super::{Command, Context, Outcome, health_checks, health_pgs, show, slow_disk};
use crate::format::units;
use metastore::cluster::HealthMute;
use metastore::{Change, Changes};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use types::Utime;

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Warn,
    Err,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Warn => "HEALTH_WARN",
            Self::Err => "HEALTH_ERR",
        }
    }
    fn tag(self) -> &'static str {
        match self {
            Self::Warn => "WRN",
            Self::Err => "ERR",
        }
    }
}

pub struct Check {
    pub code: &'static str,
    pub severity: Severity,
    pub summary: String,
    pub count: u64,
    pub detail: Vec<String>,
}

/// All raised checks by code, and what is muted.
pub struct Report {
    pub checks: BTreeMap<String, Check>,
    mutes: Vec<HealthMute>,
    now: Utime,
}

impl Report {
    pub fn of(ctx: &Context<'_>) -> Self {
        Self::with(ctx, &Figures::of(ctx))
    }

    pub fn with(ctx: &Context<'_>, figures: &Figures) -> Self {
        let mut found = Vec::new();
        health_checks::cluster_state(ctx, &mut found);
        health_checks::osds_down(ctx, &mut found);
        health_checks::flags(ctx, &mut found);
        health_checks::fullness(ctx, &mut found);
        health_checks::pools(ctx, figures, &mut found);
        health_pgs::pgs(ctx, figures, &mut found);
        health_pgs::objects(ctx, figures, &mut found);
        health_pgs::scrubs(ctx, figures, &mut found);
        health_pgs::slow_ops(ctx, &mut found);
        health_pgs::monitors(ctx, &mut found);
        health_checks::sizing(ctx, figures, &mut found);
        health_checks::global_ids(ctx, &mut found);
        health_checks::spare_space(ctx, &mut found);
        slow_disk::health(ctx, &mut found);
        if !ctx.state.mgrmap.available {
            found.push(health_checks::warn("MGR_DOWN", "no active mgr".into(), 0, vec![]));
        }
        let mutes = ctx.state.mutes.values();
        Self {
            checks: found.into_iter().map(|c| (c.code.to_string(), c)).collect(),
            mutes: mutes
                .filter(|m| m.until.is_none_or(|t| t > ctx.now))
                .cloned()
                .collect(),
            now: ctx.now,
        }
    }

    fn mute_of(&self, code: &str) -> Option<&HealthMute> {
        self.mutes.iter().find(|m| m.code == code)
    }

    fn unmuted(&self) -> impl Iterator<Item = &Check> {
        self.checks.values().filter(|c| self.mute_of(c.code).is_none())
    }

    pub fn status(&self) -> &'static str {
        self.unmuted()
            .map(|c| c.severity)
            .max()
            .map_or("HEALTH_OK", Severity::name)
    }

    pub fn json(&self, detail: bool) -> Value {
        let mut checks = Map::new();
        for c in self.checks.values() {
            let mut m = Map::new();
            m.insert("severity".into(), c.severity.name().into());
            m.insert("summary".into(), json!({"message": c.summary, "count": c.count}));
            if detail {
                let lines: Vec<Value> = c.detail.iter().map(|d| json!({"message": d})).collect();
                m.insert("detail".into(), lines.into());
            }
            m.insert("muted".into(), self.mute_of(c.code).is_some().into());
            checks.insert(c.code.into(), Value::Object(m));
        }
        let mutes: Vec<Value> = self.mutes.iter().map(mute_json).collect();
        json!({"status": self.status(), "checks": checks, "mutes": mutes})
    }

    fn muted_note(&self) -> Option<String> {
        let raised = self.mutes.iter().filter(|m| self.checks.contains_key(&m.code));
        let names: Vec<String> = raised
            .map(|m| match m.until {
                Some(t) => format!("{}({})", m.code, units::age(self.now, t)),
                None => m.code.clone(),
            })
            .collect();
        (!names.is_empty()).then(|| format!("(muted: {})", names.join(" ")))
    }

    /// What follows `health:` in `status`.
    pub fn status_lines(&self) -> Vec<String> {
        let mut lines = vec![self.status().to_string()];
        lines.extend(self.unmuted().map(|c| c.summary.clone()));
        lines.extend(self.muted_note());
        lines
    }

    fn plain(&self, detail: bool) -> String {
        let mut out = self.status().to_string();
        let summaries: Vec<&str> = self.unmuted().map(|c| c.summary.as_str()).collect();
        if !summaries.is_empty() {
            out = format!("{out} {}", summaries.join("; "));
        }
        if let Some(note) = self.muted_note() {
            out = format!("{out} {note}");
        }
        out.push('\n');
        for c in self.checks.values().filter(|_| detail) {
            if let Some(m) = self.mute_of(c.code) {
                let ttl = m.until.map(|t| format!(" ttl {}", units::age(self.now, t)));
                out.push_str(&format!("(MUTED{}) ", ttl.unwrap_or_default()));
            }
            out.push_str(&format!("[{}] {}: {}\n", c.severity.tag(), c.code, c.summary));
            for line in &c.detail {
                out.push_str(&format!("    {line}\n"));
            }
        }
        out
    }
}

fn mute_json(m: &HealthMute) -> Value {
    let mut out = Map::new();
    out.insert("code".into(), m.code.clone().into());
    if let Some(t) = m.until {
        out.insert("ttl".into(), t.to_string().into());
    }
    out.insert("sticky".into(), m.sticky.into());
    out.insert("summary".into(), m.summary.clone().into());
    out.insert("count".into(), m.count.into());
    Value::Object(out)
}

fn health(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let detail = cmd.text("detail") == "detail";
    let report = Report::of(ctx);
    cmd.either(|| report.json(detail), || report.plain(detail))
}

fn mute(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let code = cmd.text("code").to_string();
    let sticky = cmd.flag("sticky");
    let until = match cmd.opt_text("ttl").map(|t| (t, parse_span(t))) {
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

/// `90s`, `10m`, `1h`, `2d`, `1w`, or plain seconds.
fn parse_span(text: &str) -> Option<Duration> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let n: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match text[digits..].trim() {
        "" | "s" | "sec" | "secs" | "second" | "seconds" => 1,
        "m" | "min" | "mins" | "minute" | "minutes" => 60,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600,
        "d" | "day" | "days" => 86_400,
        "w" | "wk" | "week" | "weeks" => 7 * 86_400,
        _ => return None,
    };
    Some(Duration::from_secs(n.checked_mul(unit)?))
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
