//! What a receiver does not know yet.

use cluster::alarms::{Book, Row};
use serde_json::Value;
use std::collections::BTreeMap;

pub const ALERTS_MAX: usize = 100;
pub const DETAILS_MAX: usize = 20;

/// A raised check that nobody muted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub severity: String,
    pub summary: String,
    pub details: Vec<String>,
}

/// By their codes.
pub type Checks = BTreeMap<String, Check>;

/// Those of `health detail`, as JSON.
pub fn checks(health: &Value) -> Checks {
    let all = health["checks"].as_object();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let check = |v: &Value| {
        let lines = v["detail"].as_array().map_or(&[][..], Vec::as_slice);
        Check {
            severity: text(&v["severity"]),
            summary: text(&v["summary"]["message"]),
            details: lines
                .iter()
                .take(DETAILS_MAX)
                .map(|l| text(&l["message"]))
                .collect(),
        }
    };
    all.into_iter()
        .flatten()
        .filter(|(_, v)| v["muted"] != Value::Bool(true))
        .take(ALERTS_MAX)
        .map(|(code, v)| (code.clone(), check(v)))
        .collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub row: Row,
    pub details: Vec<String>,
}

/// How things stand, beside what was told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    pub raised: BTreeMap<String, Item>,
    /// Of the raised ones: not told, or told with another severity.
    pub new: Vec<String>,
    pub ended: BTreeMap<String, Row>,
    pub now: u64,
}

impl News {
    pub fn of(book: &Book, checks: &Checks, now: u64) -> Self {
        let item = |(code, c): (&String, &Check)| {
            let since = book.rows.get(code).map_or(now, |r| r.since);
            let row = Row {
                severity: c.severity.clone(),
                summary: c.summary.clone(),
                since,
            };
            let details = c.details.clone();
            (code.clone(), Item { row, details })
        };
        let known = |code: &String, c: &Check| book.rows.get(code).is_some_and(|r| r.severity == c.severity);
        let ended = book.rows.iter().filter(|(code, _)| !checks.contains_key(*code));
        Self {
            raised: checks.iter().map(item).collect(),
            new: checks
                .iter()
                .filter(|(code, c)| !known(code, c))
                .map(|(code, _)| code.clone())
                .collect(),
            ended: ended.map(|(code, r)| (code.clone(), r.clone())).collect(),
            now,
        }
    }

    /// A text that changed alone (how many groups are degraded) is not news.
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.ended.is_empty()
    }

    /// What the receiver knows, once it was told.
    pub fn book(&self) -> BTreeMap<String, Row> {
        let row = |(code, item): (&String, &Item)| (code.clone(), item.row.clone());
        self.raised.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn raised(severity: &str, summary: &str) -> Value {
        json!({"severity": severity, "summary": {"message": summary, "count": 1}, "detail": [{"message": "d"}], "muted": false})
    }

    #[test]
    fn news_is_what_began_ended_or_became_worse() {
        let first =
            checks(&json!({"checks": {"A": raised("HEALTH_WARN", "1 a"), "B": raised("HEALTH_WARN", "b")}}));
        let news = News::of(&Book::default(), &first, 100);
        assert_eq!((news.new.len(), news.ended.len()), (2, 0));
        let book = Book {
            rows: news.book(),
            at: 100,
            error: None,
        };
        // Other words of the same.
        let words =
            checks(&json!({"checks": {"A": raised("HEALTH_WARN", "2 a"), "B": raised("HEALTH_WARN", "b")}}));
        assert!(News::of(&book, &words, 200).is_empty());
        let mut muted = raised("HEALTH_WARN", "b");
        muted["muted"] = json!(true);
        let worse = checks(&json!({"checks": {"A": raised("HEALTH_ERR", "9 a"), "B": muted}}));
        let news = News::of(&book, &worse, 300);
        assert_eq!(
            (news.new.as_slice(), news.ended.len()),
            (&["A".to_string()][..], 1)
        );
        // It began when it was first seen.
        assert_eq!((news.raised["A"].row.since, news.ended["B"].since), (100, 100));
    }

    #[test]
    fn what_is_told_is_bounded() {
        let many: serde_json::Map<String, Value> = (0..300)
            .map(|i| {
                let mut c = raised("HEALTH_WARN", "x");
                c["detail"] = vec![json!({"message": "y"}); 300].into();
                (format!("C{i}"), c)
            })
            .collect();
        let found = checks(&json!({"checks": many}));
        assert_eq!(found.len(), ALERTS_MAX);
        assert!(found.values().all(|c| c.details.len() == DETAILS_MAX));
        assert!(checks(&Value::Null).is_empty());
    }
}
