//! Filters of notifications by tags and metadata: radosgw's, beside AWS's. The library does not know them, and refuses a document that has some.
//!
//! It does so after it has checked the signature, the body's hash, and who asks (`access`). So such a document is looked at once more then ([`Aside`]): without
//! these filters the library reads it as any other, and they are read here. Whoever was not let in, or sends a body in signed chunks, keeps the library's answer.
//!
//! Bounds: a text of [`TEXT_MAX`], [`RULES_MAX`] rules of each kind.

use super::Front;
use super::caller::{Identity, Noted, Peer};
use super::errors::invalid;
use super::notification_ops::{FILTER_MAX, check, malformed, said_id};
use super::page::Document;
use super::raw::Raw;
use super::signed_form::xml;
use crate::notify::{Notification, topic_arn};
use crate::rados::Pool;
use hyper::http::Extensions;
use hyper::{HeaderMap, Method, StatusCode, Uri};
use quick_xml::events::Event;
use quick_xml::{Reader, Writer};
use s3s::dto::NotificationConfiguration;
use s3s::xml::{Deserialize, Deserializer};
use s3s::{HttpError, HttpResponse, S3Request, S3Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

const TEXT_MAX: usize = 256 << 10;
const RULES_MAX: usize = 10;
const META: &str = "S3Metadata";
const TAGS: &str = "S3Tags";
/// Names of metadata may be said with it.
const META_PREFIX: &str = "x-amz-meta-";
/// What the library calls the operation.
pub(super) const OPERATION: &str = "PutBucketNotificationConfiguration";

/// Of one notification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filters {
    pub meta: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
}

impl Filters {
    fn add(&mut self, kind: &str, name: Option<String>, value: Option<String>) -> Result<(), String> {
        let name = name.unwrap_or_default();
        let (of, name) = match kind {
            META => {
                let name = name.to_ascii_lowercase();
                let bare = name.strip_prefix(META_PREFIX).unwrap_or(&name).to_string();
                (&mut self.meta, bare)
            }
            _ => (&mut self.tags, name),
        };
        let value = value.unwrap_or_default();
        let good = |text: &str| text.len() <= FILTER_MAX && !text.chars().any(char::is_control);
        if name.is_empty() || !good(&name) || !good(&value) {
            return Err(format!(
                "a rule of {kind} has a Name, and a Value, of at most {FILTER_MAX} bytes without control characters"
            ));
        }
        if of.insert(name.clone(), value).is_some() {
            return Err(format!("two rules of {kind} are about {name:?}"));
        }
        match of.len() <= RULES_MAX {
            true => Ok(()),
            false => Err(format!("a filter has at most {RULES_MAX} rules of {kind}")),
        }
    }
}

/// The character that a reference stands for.
fn referred(name: &str) -> Option<char> {
    let number = name.strip_prefix('#').map(|n| match n.strip_prefix('x') {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => n.parse().ok(),
    });
    match (number, name) {
        (Some(number), _) => char::from_u32(number?),
        (None, "amp") => Some('&'),
        (None, "lt") => Some('<'),
        (None, "gt") => Some('>'),
        (None, "quot") => Some('"'),
        (None, "apos") => Some('\''),
        (None, _) => None,
    }
}

/// What is read of a document.
#[derive(Default)]
struct Reading {
    /// Names of the elements that are open.
    path: Vec<String>,
    of: Vec<Filters>,
    name: Option<String>,
    value: Option<String>,
    text: String,
}

impl Reading {
    /// The filter that is open: one of ours, in its place.
    fn kind(&self) -> Option<&'static str> {
        let at: Vec<&str> = self.path.iter().take(4).map(String::as_str).collect();
        match at[..] {
            ["NotificationConfiguration", "TopicConfiguration", "Filter", META] => Some(META),
            ["NotificationConfiguration", "TopicConfiguration", "Filter", TAGS] => Some(TAGS),
            _ => None,
        }
    }

    fn open(&mut self, name: &[u8]) -> Result<(), String> {
        self.path.push(String::from_utf8_lossy(name).into_owned());
        let (depth, name) = (self.path.len(), self.path.last().map_or("", String::as_str));
        if depth == 2 && name == "TopicConfiguration" {
            self.of.push(Filters::default());
        }
        let good = match (self.kind(), depth) {
            (Some(_), 5) => name == "FilterRule",
            (Some(_), 6) => name == "Name" || name == "Value",
            (Some(_), depth) => depth == 4,
            (None, _) => true,
        };
        if !good {
            return Err(format!("'{name}' is not known in a filter"));
        }
        if depth == 5 {
            (self.name, self.value) = (None, None);
        }
        self.text.clear();
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        if let Some(kind) = self.kind() {
            let text = std::mem::take(&mut self.text);
            let before = match (self.path.len(), self.path.last().map(String::as_str)) {
                (6, Some("Name")) => self.name.replace(text),
                (6, _) => self.value.replace(text),
                (5, _) => {
                    let (name, value) = (self.name.take(), self.value.take());
                    if let Some(of) = self.of.last_mut() {
                        of.add(kind, name, value)?;
                    }
                    None
                }
                _ => None,
            };
            if before.is_some() {
                return Err("a rule of a filter has one Name and one Value".into());
            }
        }
        self.path.pop();
        Ok(())
    }

    /// Whether it is a part of one of our filters.
    fn take(&mut self, event: &Event<'_>) -> Result<bool, String> {
        match event {
            Event::Start(start) => {
                self.open(start.local_name().as_ref())?;
                Ok(self.kind().is_some())
            }
            Event::Empty(start) => {
                self.open(start.local_name().as_ref())?;
                let ours = self.kind().is_some();
                self.close()?;
                Ok(ours)
            }
            Event::End(_) => {
                let ours = self.kind().is_some();
                self.close()?;
                Ok(ours)
            }
            Event::Text(text) => {
                self.text.push_str(&text.decode().map_err(|e| e.to_string())?);
                Ok(self.kind().is_some())
            }
            Event::GeneralRef(of) => {
                let name = of.decode().map_err(|e| e.to_string())?;
                let ours = self.kind().is_some();
                match referred(&name) {
                    Some(c) => self.text.push(c),
                    None if ours => return Err(format!("&{name}; stands for no character")),
                    None => {}
                }
                Ok(ours)
            }
            _ => Ok(self.kind().is_some()),
        }
    }
}

/// A document without our filters, and these, by the place of their notification.
pub(super) fn split(text: &[u8]) -> Result<(Vec<u8>, Vec<Filters>), String> {
    let (mut reader, mut rest) = (Reader::from_reader(text), Writer::new(Vec::new()));
    let mut reading = Reading::default();
    loop {
        let event = reader.read_event().map_err(|e| e.to_string())?;
        if matches!(event, Event::Eof) {
            return Ok((rest.into_inner(), reading.of));
        }
        if !reading.take(&event)? {
            rest.write_event(event).map_err(|e| e.to_string())?;
        }
    }
}

/// As the library reads it.
fn parsed(text: &[u8]) -> Option<NotificationConfiguration> {
    let mut reader = Deserializer::new(text);
    let of = NotificationConfiguration::deserialize(&mut reader).ok()?;
    reader.expect_eof().ok()?;
    Some(of)
}

fn rules<'a>(kind: &str, of: impl IntoIterator<Item = (String, &'a String)>) -> String {
    let one = |(name, value): (String, &String)| {
        let (name, value) = (xml(&name), xml(value));
        format!("<FilterRule><Name>{name}</Name><Value>{value}</Value></FilterRule>")
    };
    let all: String = of.into_iter().map(one).collect();
    match all.is_empty() {
        true => all,
        false => format!("<{kind}>{all}</{kind}>"),
    }
}

fn described(owner: &str, of: &Notification) -> String {
    let keys = [("prefix", &of.prefix), ("suffix", &of.suffix)];
    let keys = keys.into_iter().filter(|(_, value)| !value.is_empty());
    let keys = rules("S3Key", keys.map(|(name, value)| (name.to_string(), value)));
    let meta = of.meta.iter().map(|(n, v)| (format!("{META_PREFIX}{n}"), v));
    let tags = of.tags.iter().map(|(n, v)| (n.clone(), v));
    let filter = [keys, rules(META, meta), rules(TAGS, tags)].concat();
    let filter = match filter.is_empty() {
        true => filter,
        false => format!("<Filter>{filter}</Filter>"),
    };
    let event = |e: &String| format!("<Event>{}</Event>", xml(e));
    let events: String = of.events.iter().map(event).collect();
    let (id, arn) = (xml(&of.id), xml(&topic_arn(owner, &of.topic)));
    format!("<TopicConfiguration><Id>{id}</Id><Topic>{arn}</Topic>{events}{filter}</TopicConfiguration>")
}

/// Where some have filters of ours: the answer, which the library cannot write.
pub(super) fn with_filters(owner: &str, all: &[Notification]) -> Option<Document> {
    if !all.iter().any(Notification::looks_inside) {
        return None;
    }
    let inner: String = all.iter().map(|n| described(owner, n)).collect();
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><NotificationConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inner}</NotificationConfiguration>"
    );
    Some(Document(text.into()))
}

/// Who was let in, and to which bucket.
type LetIn = (Identity, String);

/// Said by `access`, of a request whose signature was good. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Passed(Arc<Mutex<Option<LetIn>>>);

impl Passed {
    pub fn set(&self, of: LetIn) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(of);
    }

    fn take(&self) -> Option<LetIn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What is kept of a request that may have such filters, until the library has answered.
pub(super) struct Aside {
    uri: Uri,
    headers: HeaderMap,
    peer: Option<Peer>,
    noted: Option<Noted>,
    raw: Raw,
    passed: Passed,
}

impl Aside {
    /// None: it sets no notifications.
    pub fn of<B>(request: &mut hyper::Request<B>) -> Option<Self> {
        let kind = request.headers().get("x-amz-content-sha256");
        let chunked = kind.is_some_and(|k| k.as_bytes().starts_with(b"STREAMING-"));
        if request.method() != Method::PUT || said_id(request.uri()).is_none() || chunked {
            return None;
        }
        let aside = Self {
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            peer: request.extensions().get().copied(),
            noted: request.extensions().get().cloned(),
            raw: Raw::default(),
            passed: Passed::default(),
        };
        request.extensions_mut().insert(aside.raw.clone());
        request.extensions_mut().insert(aside.passed.clone());
        Some(aside)
    }

    fn request(self, identity: Identity) -> S3Request<()> {
        let mut extensions = Extensions::new();
        extensions.insert(identity);
        if let Some(peer) = self.peer {
            extensions.insert(peer);
        }
        if let Some(noted) = self.noted {
            extensions.insert(noted);
        }
        S3Request {
            input: (),
            method: Method::PUT,
            uri: self.uri,
            headers: self.headers,
            extensions,
            credentials: None,
            region: None,
            service: None,
            trailing_headers: None,
        }
    }
}

fn has(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|w| w == part.as_bytes())
}

/// The library could not read the document.
fn is_unread(answer: &HttpResponse) -> bool {
    let said = answer.body().bytes().unwrap_or_default();
    answer.status() == StatusCode::BAD_REQUEST && has(&said, "<Code>MalformedXML</Code>")
}

impl<P: Pool> Front<P> {
    /// Reads what the library did not.
    pub(super) async fn set_aside(
        &self,
        aside: Aside,
        answer: HttpResponse,
    ) -> Result<HttpResponse, HttpError> {
        let (passed, text) = (aside.passed.take(), aside.raw.take());
        let ours = is_unread(&answer) && (has(&text, META) || has(&text, TAGS));
        let Some((identity, bucket)) = passed.filter(|_| ours) else {
            return Ok(answer);
        };
        let req = aside.request(identity);
        match self.set_filtered(&req, &bucket, &text).await {
            Ok(()) => Ok(HttpResponse::new(s3s::Body::from(String::new()))),
            Err(e) => e.to_http_response().map_err(|e| HttpError::new(Box::new(e))),
        }
    }

    async fn set_filtered(&self, req: &S3Request<()>, bucket: &str, text: &[u8]) -> S3Result<()> {
        if text.len() > TEXT_MAX {
            return Err(invalid(format!(
                "notifications have at most {TEXT_MAX} bytes of text"
            )));
        }
        self.set_given(req, bucket, given(text)?).await
    }
}

/// What a document says, with its filters. Those that are not in their place, which the library would pass over, are refused.
fn given(text: &[u8]) -> S3Result<(NotificationConfiguration, Vec<Filters>)> {
    check(text).map_err(malformed)?;
    let (rest, filters) = split(text).map_err(invalid)?;
    super::notification_ops::check_read(&rest).map_err(malformed)?;
    let topics = |of: &NotificationConfiguration| of.topic_configurations.as_ref().map_or(0, Vec::len);
    let given = parsed(&rest).filter(|of| topics(of) == filters.len());
    let given = given.ok_or_else(|| malformed("it is no configuration of notifications"))?;
    Ok((given, filters))
}

/// For fuzzing: whether a document with filters is taken.
#[cfg(feature = "testing")]
pub(super) fn takes(input: &[u8]) -> bool {
    given(input).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(inner: &str) -> String {
        format!(
            "<TopicConfiguration><Id>i</Id><Topic>t</Topic><Event>e</Event><Filter>{inner}</Filter></TopicConfiguration>"
        )
    }

    fn read(topics: &str) -> Result<Vec<Filters>, String> {
        let text = format!("<NotificationConfiguration xmlns=\"x\">{topics}</NotificationConfiguration>");
        check(text.as_bytes())?;
        let (rest, filters) = split(text.as_bytes())?;
        assert!(!has(&rest, META) && !has(&rest, TAGS), "{rest:?}");
        let given = parsed(&rest).ok_or("the library does not read it")?;
        let topics = given.topic_configurations.unwrap_or_default();
        assert_eq!(topics.len(), filters.len());
        Ok(filters)
    }

    fn map(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect()
    }

    const KEY: &str = "<S3Key><FilterRule><Name>prefix</Name><Value>a</Value></FilterRule></S3Key>";

    fn rule(kind: &str, name: &str, value: &str) -> String {
        format!("<{kind}><FilterRule><Name>{name}</Name><Value>{value}</Value></FilterRule></{kind}>")
    }

    #[test]
    fn filters_are_read_in_their_places() {
        let first = [
            KEY,
            &rule(META, "X-Amz-Meta-Kind", "a &amp; &#98;"),
            &rule(TAGS, "T", "1"),
        ]
        .concat();
        let topics = [topic(&first), topic(KEY), topic(&rule(META, "other", ""))].concat();
        let filters = read(&topics).unwrap();
        assert_eq!(filters[0].meta, map(&[("kind", "a & b")]));
        assert_eq!(filters[0].tags, map(&[("T", "1")]));
        assert_eq!(filters[1], Filters::default());
        assert_eq!(filters[2].meta, map(&[("other", "")]));
        assert_eq!(read(&topic("<S3Tags/>")).unwrap(), [Filters::default()]);
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        let many: String = (0..=RULES_MAX).map(|n| rule(TAGS, &n.to_string(), "")).collect();
        for bad in [
            "<S3Tags>a</S3Tags>",
            &rule(TAGS, "", "1"),
            &rule(META, "x-amz-meta-", "1"),
            &rule(TAGS, "a", "&nothing;"),
            &rule(TAGS, "a", "&#1;"),
            &rule(TAGS, "a", &"x".repeat(FILTER_MAX + 1)),
            &[rule(TAGS, "a", "1"), rule(TAGS, "a", "2")].concat(),
            &[rule(META, "a", "1"), rule(META, "x-amz-meta-A", "2")].concat(),
            &many,
            "<S3Tags><Name>a</Name></S3Tags>",
            "<S3Tags><FilterRule><Name>a</Name><Name>b</Name></FilterRule></S3Tags>",
            "<S3Tags><FilterRule><Event>a</Event></FilterRule></S3Tags>",
            "<S3Tags><FilterRule><Name><Value>a</Value></Name></FilterRule></S3Tags>",
        ] {
            assert!(read(&topic(bad)).is_err(), "{bad}");
        }
        // Elsewhere they are nothing.
        let tags = rule(TAGS, "a", "1");
        let astray = format!(
            "<NotificationConfiguration><TopicConfiguration>{tags}</TopicConfiguration></NotificationConfiguration>"
        );
        let (rest, filters) = split(astray.as_bytes()).unwrap();
        assert!(parsed(&rest).is_none() && filters == [Filters::default()]);
    }

    #[test]
    fn no_filter_is_passed_over() {
        let good = topic(&rule(TAGS, "a", "1"));
        let of = |inner: &str| {
            let text = format!("<NotificationConfiguration>{inner}</NotificationConfiguration>");
            given(text.as_bytes()).map(|(_, filters)| filters.len())
        };
        assert_eq!(of(&good).unwrap(), 1);
        let tags = rule(TAGS, "b", "2");
        let queue = format!("<QueueConfiguration><Filter>{tags}</Filter></QueueConfiguration>");
        let meta = rule(META, "b", "2");
        let outside = format!("<Filter>{tags}</Filter>");
        for astray in [tags.as_str(), &meta, &outside, &queue] {
            assert!(of(&[good.as_str(), astray].concat()).is_err(), "{astray}");
            assert!(of(&[topic(KEY).as_str(), astray].concat()).is_err(), "{astray}");
        }
    }

    #[test]
    fn what_is_shown_is_read_again() {
        let of = Notification {
            id: "i<".into(),
            topic: "t".into(),
            events: vec!["s3:ObjectCreated:*".into()],
            prefix: "a&b".into(),
            meta: map(&[("kind", "\"x\"")]),
            tags: map(&[("T", "<1>")]),
            ..Notification::default()
        };
        let plain = Notification {
            meta: BTreeMap::new(),
            tags: BTreeMap::new(),
            ..of.clone()
        };
        assert_eq!(
            with_filters("o", std::slice::from_ref(&plain)),
            None,
            "the library writes it"
        );
        let Document(text) = with_filters("o", &[of.clone(), plain]).unwrap();
        check(&text).unwrap();
        let (rest, filters) = split(&text).unwrap();
        assert_eq!((&filters[0].meta, &filters[0].tags), (&of.meta, &of.tags));
        let given = parsed(&rest).unwrap().topic_configurations.unwrap();
        assert_eq!(given[0].id.as_deref(), Some("i<"));
        assert_eq!(given[0].topic_arn, topic_arn("o", "t"));
        assert_eq!(given[0].filter, given[1].filter);
    }

    #[test]
    fn only_what_sets_notifications_is_kept_aside() {
        let of = |method: &str, uri: &str, kind: &str| {
            let request = hyper::Request::builder().method(method).uri(uri);
            let request = request.header("x-amz-content-sha256", kind).body(());
            Aside::of(&mut request.unwrap()).is_some()
        };
        assert!(of("PUT", "/b?notification", "UNSIGNED-PAYLOAD"));
        assert!(!of("GET", "/b?notification", "x") && !of("PUT", "/b?acl", "x"));
        assert!(!of(
            "PUT",
            "/b?notification",
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
        ));
    }
}
