//! One finding of `doctor`, and the words that findings share.

use crate::commands::context::Context;
use crate::format::units;
use serde_json::{Value, json};
use types::{OsdId, Utime};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Somebody waits and nothing goes on by itself.
    Blocked,
    /// It goes on, but slowly.
    Slow,
    /// One more failure would hurt.
    Risk,
    /// Being repaired, or as the operator wanted it.
    Note,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Slow => "slow",
            Self::Risk => "risk",
            Self::Note => "note",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub level: Level,
    /// What is concerned: `pg 2.1f`, `osd.3`, `client.4123`.
    pub subject: String,
    /// What is wrong with it, and what it waits for.
    pub waits: String,
    pub since: Option<Utime>,
    pub next: String,
}

impl Finding {
    pub fn new(
        level: Level,
        subject: impl Into<String>,
        waits: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            level,
            subject: subject.into(),
            waits: waits.into(),
            since: None,
            next: next.into(),
        }
    }

    pub fn since(mut self, t: Utime) -> Self {
        self.since = (!t.is_zero()).then_some(t);
        self
    }

    pub fn json(&self, now: Utime) -> Value {
        json!({
            "level": self.level.name(),
            "subject": self.subject,
            "waits_for": self.waits,
            "since": self.since.map(|t| t.to_string()),
            "seconds": self.since.map(|t| units::seconds_between(t, now) as u64),
            "next": self.next,
        })
    }

    pub fn text(&self, now: Utime) -> String {
        let since = self.since.map(|t| format!(" (for {})", units::age(t, now)));
        format!(
            "{:<8} {}: {}{}\n         next: {}\n",
            self.level.name().to_uppercase(),
            self.subject,
            self.waits,
            since.unwrap_or_default(),
            self.next
        )
    }
}

const NAMED_MAX: usize = 5;

/// `a, b, c and 4 more`
pub fn some<T: std::fmt::Display>(all: &[T]) -> String {
    let named: Vec<String> = all.iter().take(NAMED_MAX).map(T::to_string).collect();
    let more = all.len().saturating_sub(NAMED_MAX);
    match more {
        0 => named.join(", "),
        n => format!("{} and {n} more", named.join(", ")),
    }
}

/// `osd.3 on host b, down for 5m`
pub fn osd_text(ctx: &Context<'_>, id: OsdId) -> String {
    let map = ctx.map();
    let host = ctx.osd_host(id);
    match (map.exists(id), map.is_up(id), map.osd(id)) {
        (false, ..) => format!("osd.{id}, which was removed"),
        (_, true, _) => format!("osd.{id} on host {host}"),
        (_, false, slot) => {
            let at = slot.map_or(Utime::ZERO, |o| o.xinfo.down_stamp);
            format!("osd.{id} on host {host}, down for {}", units::age(at, ctx.now))
        }
    }
}
