//! What listings of accounts and containers look like: plain, JSON, XML.

use super::answer::{Done, iso, text_answer};
use super::query::Query;
use crate::Error;
use crate::objects::LIST_MAX;
use hyper::StatusCode;
use s3s::HttpResponse;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Names of one page, as Swift has it.
pub const PAGE_MAX: usize = 10_000;
/// Bytes of a content type in a row.
const KIND_MAX: usize = 256;
/// Listings of more than a page of the index, that are put together at once.
const LARGE_MAX: usize = 16;
const ROOM_WITHIN: Duration = Duration::from_secs(30);

static ROOM: Semaphore = Semaphore::const_new(LARGE_MAX);

/// Room for a listing of so many names, while it is put together; None: it needs none.
pub async fn room(names: usize) -> Done<Option<SemaphorePermit<'static>>> {
    if names <= LIST_MAX {
        return Ok(None);
    }
    match io::task::timeout(ROOM_WITHIN, ROOM.acquire()).await {
        Ok(Ok(room)) => Ok(Some(room)),
        _ => Err(Error::Busy("the gateway has all the listings that it has memory for").into()),
    }
}

/// A content type, as long as a row has it.
pub fn short(mut kind: String) -> String {
    kind.truncate(kind.floor_char_boundary(KIND_MAX));
    kind
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Plain,
    Json,
    Xml,
}

impl Format {
    /// What the query says, or else what the client takes.
    pub fn of(query: &Query, accept: Option<&str>) -> Self {
        match query.get("format") {
            Some("json") => return Self::Json,
            Some("xml") => return Self::Xml,
            Some(_) => return Self::Plain,
            None => {}
        }
        let takes = |kind: &str| {
            accept
                .unwrap_or_default()
                .split(',')
                .any(|a| a.split(';').next().unwrap_or_default().trim() == kind)
        };
        match () {
            () if takes("text/plain") => Self::Plain,
            () if takes("application/json") => Self::Json,
            () if takes("application/xml") || takes("text/xml") => Self::Xml,
            () => Self::Plain,
        }
    }

    pub fn kind(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; charset=utf-8",
            Self::Json => "application/json; charset=utf-8",
            Self::Xml => "application/xml; charset=utf-8",
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    Container {
        name: String,
        count: i64,
        bytes: i64,
        at: u64,
    },
    Object {
        name: String,
        hash: String,
        bytes: u64,
        kind: String,
        at: u64,
    },
    Subdir(String),
}

impl Row {
    pub fn name(&self) -> &str {
        match self {
            Self::Container { name, .. } | Self::Object { name, .. } | Self::Subdir(name) => name,
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Container {
                name,
                count,
                bytes,
                at,
            } => json!({"name": name, "count": count, "bytes": bytes, "last_modified": iso(*at)}),
            Self::Object {
                name,
                hash,
                bytes,
                kind,
                at,
            } => {
                json!({"name": name, "hash": hash, "bytes": bytes, "content_type": kind, "last_modified": iso(*at)})
            }
            Self::Subdir(name) => json!({"subdir": name}),
        }
    }

    fn xml(&self, out: &mut String) {
        let mut put = |text: String| out.push_str(&text);
        match self {
            Self::Container {
                name,
                count,
                bytes,
                at,
            } => put(format!(
                "<container><name>{}</name><count>{count}</count><bytes>{bytes}</bytes><last_modified>{}</last_modified></container>",
                xml(name),
                iso(*at)
            )),
            Self::Object {
                name,
                hash,
                bytes,
                kind,
                at,
            } => put(format!(
                "<object><name>{}</name><hash>{}</hash><bytes>{bytes}</bytes><content_type>{}</content_type><last_modified>{}</last_modified></object>",
                xml(name),
                xml(hash),
                xml(kind),
                iso(*at)
            )),
            Self::Subdir(name) => {
                let name = xml(name);
                put(format!("<subdir name=\"{name}\"><name>{name}</name></subdir>"));
            }
        }
    }
}

fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Writing to a string does not fail.
            c if c.is_control() => drop(write!(out, "&#{};", c as u32)),
            c => out.push(c),
        }
    }
    out
}

/// The rows of an `account` or a `container` of this name.
pub fn answer(format: Format, (what, name): (&str, &str), rows: &[Row]) -> HttpResponse {
    let text = match format {
        Format::Plain => rows.iter().map(|r| format!("{}\n", r.name())).collect(),
        Format::Json => {
            let mut out = String::from("[");
            for (n, row) in rows.iter().enumerate() {
                let comma = if n == 0 { "" } else { "," };
                // Writing to a string does not fail.
                let _ = write!(out, "{comma}{}", row.json());
            }
            out + "]"
        }
        Format::Xml => {
            let mut out = format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{what} name=\"{}\">",
                xml(name)
            );
            rows.iter().for_each(|r| r.xml(&mut out));
            out + &format!("</{what}>")
        }
    };
    let status = match format == Format::Plain && rows.is_empty() {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::OK,
    };
    text_answer(status, format.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(query: &str, accept: &str) -> Format {
        Format::of(&Query::parse(query).unwrap(), Some(accept))
    }

    #[test]
    fn formats_are_asked_for() {
        assert_eq!(format("", "*/*"), Format::Plain);
        assert_eq!(format("format=json", "text/xml"), Format::Json);
        assert_eq!(format("format=x", "application/json"), Format::Plain);
        assert_eq!(format("", "application/json;q=1, text/html"), Format::Json);
        assert_eq!(format("", "text/xml"), Format::Xml);
    }

    #[test]
    fn kinds_are_cut() {
        assert_eq!(short("text/x".into()), "text/x");
        assert_eq!(short("x".repeat(KIND_MAX - 1) + "é"), "x".repeat(KIND_MAX - 1));
    }

    #[test]
    fn rows_are_written() {
        let rows = [
            Row::Object {
                name: "a<\u{1}&\"".into(),
                hash: "h".into(),
                bytes: 5,
                kind: "t".into(),
                at: 0,
            },
            Row::Subdir("d/".into()),
        ];
        let body = |format| {
            let answer = answer(format, ("container", "c\""), &rows);
            String::from_utf8(answer.body().bytes().unwrap().to_vec()).unwrap()
        };
        assert_eq!(body(Format::Plain), "a<\u{1}&\"\nd/\n");
        let json: Value = serde_json::from_str(&body(Format::Json)).unwrap();
        assert_eq!(json[0]["name"], "a<\u{1}&\"");
        assert_eq!((&json[0]["bytes"], &json[1]["subdir"]), (&json!(5), &json!("d/")));
        let text = body(Format::Xml);
        assert!(
            text.contains("<container name=\"c&quot;\"><object><name>a&lt;&#1;&amp;&quot;</name>"),
            "{text}"
        );
        assert!(
            text.ends_with("<subdir name=\"d/\"><name>d/</name></subdir></container>"),
            "{text}"
        );
        let none = answer(Format::Json, ("account", "a"), &[]);
        assert_eq!(none.body().bytes().unwrap(), "[]");
        let none = answer(Format::Plain, ("account", "a"), &[]);
        assert_eq!(none.status(), 204);
    }
}
