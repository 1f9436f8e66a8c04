//! Alarms that leave the cluster, by e-mail and webhook: settings, what each receiver was told last, and whether that went well.
//!
//! Settings are options of the manager, those of Ceph's module `alerts` and our own; what was told lies as JSON under keys of the store of keys and values, so that the next
//! active manager goes on from there.
//!
//! Bound: a book has as many rows as there are kinds of checks.

use crate::state::ClusterState;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// When somebody asked for a message at once (`alerts send`), in seconds since 1970.
pub const ASKED: &str = "mgr/alerts/asked";
const TOLD: &str = "mgr/alerts/told/";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Receiver {
    Mail,
    Webhook,
}

impl Receiver {
    pub const ALL: [Self; 2] = [Self::Mail, Self::Webhook];

    pub fn name(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::Webhook => "webhook",
        }
    }

    pub fn key(self) -> String {
        format!("{TOLD}{}", self.name())
    }
}

/// What a receiver knows of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// `HEALTH_WARN` or `HEALTH_ERR`.
    pub severity: String,
    pub summary: String,
    /// Since when it has been raised, as far as was seen; seconds since 1970.
    pub since: u64,
}

/// What a receiver was told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Book {
    pub rows: BTreeMap<String, Row>,
    /// When it last was; seconds since 1970.
    pub at: u64,
    /// Why it cannot be told, since it could not the last time.
    pub error: Option<String>,
}

impl Book {
    pub fn json(&self) -> Value {
        let row = |r: &Row| json!({"severity": r.severity, "summary": r.summary, "since": r.since});
        let rows: Map<String, Value> = self.rows.iter().map(|(code, r)| (code.clone(), row(r))).collect();
        json!({"checks": rows, "at": self.at, "error": self.error})
    }

    /// None: it is not one.
    pub fn parse(value: &Value) -> Option<Self> {
        let text = |v: &Value, key: &str| v.get(key)?.as_str().map(str::to_string);
        let row = |v: &Value| {
            Some(Row {
                severity: text(v, "severity")?,
                summary: text(v, "summary")?,
                since: v.get("since")?.as_u64()?,
            })
        };
        let rows = value.get("checks")?.as_object()?.iter();
        Some(Self {
            rows: rows
                .map(|(code, v)| Some((code.clone(), row(v)?)))
                .collect::<Option<_>>()?,
            at: value.get("at")?.as_u64()?,
            error: text(value, "error"),
        })
    }
}

/// None: nothing was told yet, or what lies there is no book.
pub fn book(state: &ClusterState, receiver: Receiver) -> Option<Book> {
    let value = state.config_keys.get(&receiver.key())?;
    Book::parse(&serde_json::from_slice(value).ok()?)
}

pub fn asked(state: &ClusterState) -> Option<u64> {
    let value = state.config_keys.get(ASKED)?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    pub host: String,
    pub port: u16,
    /// From the first byte on; else by STARTTLS, where the server has it.
    pub tls: bool,
    pub user: String,
    pub password: String,
    pub sender: String,
    pub from_name: String,
    /// Addresses, comma between them.
    pub to: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Seconds: a receiver hears no more often.
    pub interval: u64,
    /// Seconds until it hears again of what has not ended; 0: never.
    pub repeat: u64,
    pub mail: Option<Mail>,
    pub webhook: Option<String>,
}

impl Settings {
    pub fn of(state: &ClusterState) -> Self {
        let text = |name: &str| {
            let value = state.mgr_option(&format!("mgr/alerts/{name}"));
            value.map(str::to_string).filter(|v| !v.is_empty())
        };
        let number = |name: &str, default: u64| text(name).and_then(|v| v.parse().ok()).unwrap_or(default);
        let mail = || {
            Some(Mail {
                host: text("smtp_host")?,
                port: text("smtp_port").and_then(|v| v.parse().ok()).unwrap_or(465),
                tls: text("smtp_ssl").as_deref() != Some("false"),
                user: text("smtp_user").unwrap_or_default(),
                password: text("smtp_password").unwrap_or_default(),
                sender: text("smtp_sender")?,
                from_name: text("smtp_from_name").unwrap_or_else(|| "Ceph".into()),
                to: text("smtp_destination")?,
            })
        };
        Self {
            interval: number("interval", 60).max(1),
            repeat: number("repeat_interval", 14_400),
            mail: mail(),
            webhook: text("webhook_url"),
        }
    }

    pub fn has(&self, receiver: Receiver) -> bool {
        match receiver {
            Receiver::Mail => self.mail.is_some(),
            Receiver::Webhook => self.webhook.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_is_read_as_it_was_written() {
        let row = Row {
            severity: "HEALTH_ERR".into(),
            summary: "1 \"thing\"".into(),
            since: 7,
        };
        let book = Book {
            rows: [("OSD_DOWN".to_string(), row)].into(),
            at: 9,
            error: Some("no route".into()),
        };
        assert_eq!(Book::parse(&book.json()), Some(book));
        assert_eq!(Book::parse(&Book::default().json()), Some(Book::default()));
        for broken in [
            json!(1),
            json!({"checks": {"A": 1}, "at": 1}),
            json!({"checks": {}}),
        ] {
            assert_eq!(Book::parse(&broken), None, "{broken}");
        }
    }
}
