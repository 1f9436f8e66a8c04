//! Health: checks computed from the state, their mutes, and the commands that show and mute them.
//!
//! A check has the code, severity and wording of the real one's. Nothing is remembered: a check is raised
//! exactly while its cause is there.

mod alarms;
mod backups;
mod check;
mod cluster;
mod crashes;
mod files;
mod keys;
mod pgs;
mod sizes;
pub mod slow_disk;

use crate::commands::checks::check::Check;
use crate::commands::checks::check::Severity;
use crate::commands::checks::check::warn;
use crate::commands::context::Context;
use crate::commands::views::pg_stats::Figures;
use crate::format::units;
use ::cluster::HealthMute;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::Utime;

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
        cluster::cluster_state(ctx, &mut found);
        cluster::osds_down(ctx, &mut found);
        cluster::flags(ctx, &mut found);
        cluster::fullness(ctx, &mut found);
        cluster::pools(ctx, figures, &mut found);
        cluster::quotas(ctx, figures, &mut found);
        pgs::pgs(ctx, figures, &mut found);
        pgs::objects(ctx, figures, &mut found);
        pgs::scrubs(ctx, figures, &mut found);
        pgs::slow_ops(ctx, &mut found);
        pgs::monitors(ctx, &mut found);
        cluster::sizing(ctx, figures, &mut found);
        sizes::sizes(ctx, &mut found);
        cluster::global_ids(ctx, &mut found);
        keys::expiring(ctx, &mut found);
        cluster::spare_space(ctx, &mut found);
        files::file_systems(ctx, &mut found);
        slow_disk::health(ctx, &mut found);
        crashes::recent(ctx, &mut found);
        backups::backups(ctx, &mut found);
        alarms::alarms(ctx, &mut found);
        if !ctx.state.mgrmap.available {
            found.push(warn("MGR_DOWN", "no active mgr".into(), 0, vec![]));
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

    pub fn plain(&self, detail: bool) -> String {
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
