//! What a bucket's owner wants to be told of its objects, and what is told.
//!
//! An event is a row of the very shard that a change is made in, set by the operation that makes the change: so there is one for each change that came to pass, whoever
//! hears of its end, and none for any other. `courier` takes rows to the queues of their topics (`topics`), and events from there to whoever a topic names.
//!
//! ```text
//! n G N         Event; G is the gateway that set it, N a number that grows with its clock (16 hex digits each)
//! ```
//!
//! Bounds: [`MARKS_MAX`] shards are remembered as having events; what finds no room is found by collectors. A shard has [`WAITING_MAX`] events of a gateway that were not
//! brought to their topics yet: then changes that would tell of themselves wait.

use crate::Clock;
use crate::calendar::civil;
use crate::event_figures::{Figures, Lost};
use crate::meters::Meters;
use crate::record::{Attributes, Entry};
use crate::version::Version;
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::Notify;

/// Of a bucket.
pub const NOTIFICATIONS_MAX: usize = 20;
/// The class of events' rows in a shard.
pub const CLASS: u8 = b'n';
const MARKS_MAX: usize = 4096;
pub const WAITING_MAX: u64 = if cfg!(test) { 200 } else { 10_000 };
/// What is so much ahead (milliseconds) is a broken clock's.
pub const AHEAD_MAX: u64 = 24 * 60 * 60 * 1000;
/// What clients are told.
const REGION: &str = "us-east-1";

/// All that is told of, as S3 names it.
const EVENTS: [&str; 10] = [
    "s3:ObjectCreated:Put",
    "s3:ObjectCreated:Post",
    "s3:ObjectCreated:Copy",
    "s3:ObjectCreated:CompleteMultipartUpload",
    "s3:ObjectRemoved:Delete",
    "s3:ObjectRemoved:DeleteMarkerCreated",
    "s3:LifecycleExpiration:Delete",
    "s3:LifecycleExpiration:DeleteMarkerCreated",
    "s3:ObjectTagging:Put",
    "s3:ObjectTagging:Delete",
];

/// An event, or all of a kind by a `*`.
pub fn is_event(name: &str) -> bool {
    match name.strip_suffix('*') {
        Some(kind) => {
            kind.matches(':').count() == 2
                && EVENTS.iter().any(|e| e.starts_with(kind) && kind.ends_with(':'))
        }
        None => EVENTS.contains(&name),
    }
}

/// What is told of a bucket, and to which topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notification {
    pub id: String,
    /// One of the bucket's owner.
    pub topic: String,
    /// As [`is_event`] takes them.
    pub events: Vec<String>,
    pub prefix: String,
    pub suffix: String,
    /// What the object has to have of user metadata, by names in lower case without what headers put before them.
    pub meta: BTreeMap<String, String>,
    /// And of tags.
    pub tags: BTreeMap<String, String>,
}

const WITH_FILTERS: u8 = 2;

impl Encode for Notification {
    /// Who does not know of these filters would tell too much.
    fn encode(&self, w: &mut Writer) {
        let version = if self.looks_inside() { WITH_FILTERS } else { 1 };
        w.envelope(version, version, |w| {
            w.put(&self.id);
            w.put(&self.topic);
            w.put(&self.events);
            w.put(&self.prefix);
            w.put(&self.suffix);
            if version >= WITH_FILTERS {
                w.put(&self.meta);
                w.put(&self.tags);
            }
        });
    }
}

impl Decode for Notification {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(WITH_FILTERS, |version, r| {
            let mut of = Self {
                id: r.get()?,
                topic: r.get()?,
                events: r.get()?,
                prefix: r.get()?,
                suffix: r.get()?,
                ..Self::default()
            };
            if version >= WITH_FILTERS {
                of.meta = r.get()?;
                of.tags = r.get()?;
            }
            Ok(of)
        })
    }
}

/// Whether all that is wanted is there; there may be more.
fn has_all(there: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(name, value)| there.get(name) == Some(value))
}

impl Notification {
    /// It is about some objects by what they have, not by their keys alone.
    pub fn looks_inside(&self) -> bool {
        !self.meta.is_empty() || !self.tags.is_empty()
    }

    /// None: nothing is known of the object, or it is none.
    fn fits(&self, of: Option<&Attributes>) -> bool {
        let has = |a: &Attributes| has_all(&a.meta, &self.meta) && has_all(&a.tags, &self.tags);
        !self.looks_inside() || of.is_some_and(has)
    }

    fn is_about(&self, key: &str) -> bool {
        key.starts_with(&self.prefix) && key.ends_with(&self.suffix)
    }

    fn wants(&self, name: &str) -> bool {
        let is = |event: &String| match event.strip_suffix('*') {
            Some(kind) => name.starts_with(kind),
            None => event == name,
        };
        self.events.iter().any(is)
    }
}

/// By which request a change is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Put,
    Post,
    Copy,
    Complete,
    Delete,
    Expire,
    Tag,
    Untag,
}

/// What was changed.
#[derive(Debug, Clone, Copy)]
pub enum What<'a> {
    Put(&'a Entry),
    Amended(&'a Entry),
    /// A delete marker was made.
    Marked(Option<Version>),
    /// With what was removed, where that was looked at ([`Notice::looks_inside`]).
    Removed(Option<Version>, Option<&'a Attributes>),
}

fn event_name(how: How, what: What<'_>) -> Option<&'static str> {
    Some(match (how, what) {
        (How::Put, What::Put(_)) => "s3:ObjectCreated:Put",
        (How::Post, What::Put(_)) => "s3:ObjectCreated:Post",
        (How::Copy, What::Put(_)) => "s3:ObjectCreated:Copy",
        (How::Complete, What::Put(_)) => "s3:ObjectCreated:CompleteMultipartUpload",
        (How::Delete, What::Removed(..)) => "s3:ObjectRemoved:Delete",
        (How::Delete, What::Marked(_)) => "s3:ObjectRemoved:DeleteMarkerCreated",
        (How::Expire, What::Removed(..)) => "s3:LifecycleExpiration:Delete",
        (How::Expire, What::Marked(_)) => "s3:LifecycleExpiration:DeleteMarkerCreated",
        (How::Tag, What::Amended(_)) => "s3:ObjectTagging:Put",
        (How::Untag, What::Amended(_)) => "s3:ObjectTagging:Delete",
        _ => return None,
    })
}

/// Who makes a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asker {
    /// Empty: anybody.
    pub user: String,
    pub ip: String,
    /// The request's id.
    pub request: String,
}

/// What is to be told of a change of one key, if it comes to pass.
#[derive(Debug, Clone)]
pub struct Notice {
    bucket: String,
    owner: String,
    by: Asker,
    how: How,
    /// Those about the key.
    rules: Vec<Notification>,
}

impl Notice {
    /// None: nobody wants to know.
    pub fn of(
        rules: &[Notification],
        (bucket, owner, key): (&str, &str, &str),
        how: How,
        by: &Asker,
    ) -> Option<Self> {
        let rules: Vec<Notification> = rules.iter().filter(|r| r.is_about(key)).cloned().collect();
        (!rules.is_empty()).then(|| Self {
            bucket: bucket.to_string(),
            owner: owner.to_string(),
            by: by.clone(),
            how,
            rules,
        })
    }

    /// Whether what an object has decides about it.
    pub fn looks_inside(&self) -> bool {
        self.rules.iter().any(Notification::looks_inside)
    }

    /// What is told of this change, at `at` (milliseconds since 1970).
    pub fn event(&self, key: &str, what: What<'_>, at: u64, sequence: u64) -> Option<Event> {
        let name = event_name(self.how, what)?;
        let has = match what {
            What::Put(entry) | What::Amended(entry) => Some(&entry.attributes),
            What::Removed(_, of) => of,
            What::Marked(_) => None,
        };
        let wanted = self.rules.iter().filter(|r| r.wants(name) && r.fits(has));
        let targets: Vec<Target> = wanted
            .map(|r| Target {
                topic: r.topic.clone(),
                id: r.id.clone(),
            })
            .collect();
        if targets.is_empty() {
            return None;
        }
        let (entry, version) = match what {
            What::Put(entry) | What::Amended(entry) => (Some(entry), entry.version),
            What::Marked(version) | What::Removed(version, _) => (None, version),
        };
        Some(Event {
            name: name.to_string(),
            at,
            sequence,
            bucket: self.bucket.clone(),
            owner: self.owner.clone(),
            key: key.to_string(),
            size: entry.map(|e| e.size),
            etag: entry.map(|e| e.etag.clone()).unwrap_or_default(),
            version: version.map(|v| v.to_string()).unwrap_or_default(),
            user: self.by.user.clone(),
            ip: self.by.ip.clone(),
            request: self.by.request.clone(),
            targets,
        })
    }
}

/// To which topic of the bucket's owner, by which notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub topic: String,
    pub id: String,
}

denc::envelope_denc!(Target, 1, 1, { topic, id });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub name: String,
    /// Milliseconds since 1970.
    pub at: u64,
    /// Of two events of a key the later one has more.
    pub sequence: u64,
    pub bucket: String,
    pub owner: String,
    pub key: String,
    pub size: Option<u64>,
    pub etag: String,
    /// Empty: of a bucket without versioning.
    pub version: String,
    pub user: String,
    pub ip: String,
    pub request: String,
    pub targets: Vec<Target>,
}

denc::envelope_denc!(Event, 1, 1, { name, at, sequence, bucket, owner, key, size, etag, version, user, ip, request, targets });

/// A time as AWS writes it.
fn iso(ms: u64) -> String {
    let c = civil(ms);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        c.year, c.month, c.day, c.hour, c.minute, c.second, c.ms
    )
}

/// A key as in a form.
fn form_encoded(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' | b'/' => {
                out.push(byte as char)
            }
            b' ' => out.push('+'),
            other => out += &format!("%{other:02X}"),
        }
    }
    out
}

impl Event {
    /// For some of those whom it is told.
    pub fn only(&self, targets: Vec<Target>) -> Self {
        Self {
            name: self.name.clone(),
            bucket: self.bucket.clone(),
            owner: self.owner.clone(),
            key: self.key.clone(),
            etag: self.etag.clone(),
            version: self.version.clone(),
            user: self.user.clone(),
            ip: self.ip.clone(),
            request: self.request.clone(),
            targets,
            ..*self
        }
    }

    /// As AWS tells it, for one of those whom it is told.
    pub fn body(&self, id: &str, opaque: &str) -> String {
        let name = self.name.strip_prefix("s3:").unwrap_or(&self.name);
        // What AWS tells of since then is of a later version.
        let first = name.starts_with("ObjectCreated:") || name.starts_with("ObjectRemoved:");
        let mut object = json!({
            "key": form_encoded(&self.key),
            "sequencer": format!("{:016X}", self.sequence),
        });
        if let Some(size) = self.size {
            object["size"] = json!(size);
            object["eTag"] = json!(self.etag);
        }
        if !self.version.is_empty() {
            object["versionId"] = json!(self.version);
        }
        let version = if first { "2.1" } else { "2.3" };
        let principal = match (name.starts_with("LifecycleExpiration:"), self.user.as_str()) {
            (true, _) => "s3.amazonaws.com",
            (false, "") => "Anonymous",
            (false, user) => user,
        };
        let mut record = json!({
            "eventVersion": version,
            "eventSource": "aws:s3",
            "awsRegion": REGION,
            "eventTime": iso(self.at),
            "eventName": name,
            "userIdentity": {"principalId": principal},
            "requestParameters": {"sourceIPAddress": self.ip},
            "responseElements": {"x-amz-request-id": self.request, "x-amz-id-2": ""},
            "s3": {
                "s3SchemaVersion": "1.0",
                "configurationId": id,
                "bucket": {
                    "name": self.bucket,
                    "ownerIdentity": {"principalId": self.owner},
                    "arn": format!("arn:aws:s3:::{}", self.bucket),
                },
                "object": object,
            },
        });
        if !opaque.is_empty() {
            record["opaqueData"] = Value::from(opaque);
        }
        json!({"Records": [record]}).to_string()
    }
}

/// The ARN of a user's topic.
pub fn topic_arn(owner: &str, name: &str) -> String {
    format!("arn:aws:sns:{REGION}:{owner}:{name}")
}

/// Owner and name of the topic of an ARN, of whatever region.
pub fn topic_of(arn: &str) -> Option<(&str, &str)> {
    let mut parts = arn.strip_prefix("arn:aws:sns:")?.splitn(3, ':');
    let (_, owner, name) = (parts.next()?, parts.next()?, parts.next()?);
    (!owner.is_empty() && !name.is_empty() && !name.contains(':')).then_some((owner, name))
}

/// What somebody is to look at, and waits for.
#[derive(Debug, Default)]
pub struct Marks {
    of: Mutex<BTreeSet<String>>,
    came: Notify,
}

impl Marks {
    fn all(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn mark(&self, name: &str) {
        let mut all = self.all();
        if all.len() < MARKS_MAX && !all.contains(name) {
            all.insert(name.to_string());
        }
        drop(all);
        self.came.notify_one();
    }

    pub fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.all())
    }

    /// Has who waits look.
    pub fn ring(&self) {
        self.came.notify_one();
    }

    /// Completes when something may be marked.
    pub async fn wait(&self) {
        if self.all().is_empty() {
            self.came.notified().await;
        }
    }
}

/// What this gateway has told of: names of rows, and shards that have some.
#[derive(Debug, Default)]
pub struct Told {
    figures: OnceLock<Figures>,
    gateway: OnceLock<u64>,
    last: AtomicU64,
    /// With events of this gateway.
    pub shards: Marks,
    /// With events that others have left, perhaps.
    pub left: Marks,
    /// How many of this gateway's wait in shards, about.
    waiting: Mutex<BTreeMap<String, u64>>,
}

impl Told {
    /// From now on it is counted there what becomes of events.
    pub fn counted(&self, meters: &Meters) {
        // Once alone: a gateway has one.
        let _ = self.figures.set(Figures::new(meters));
    }

    /// None: nobody counts.
    pub fn figures(&self) -> Option<&Figures> {
        self.figures.get()
    }

    pub fn lost(&self, why: Lost, events: u64) {
        self.figures().iter().for_each(|f| f.lost(why, events));
    }

    /// What all rows of this gateway begin with.
    pub fn prefix(&self, clock: &Clock) -> Bytes {
        let gateway = self.gateway.get_or_init(|| clock.random_u64());
        format!("{}{gateway:016x}", CLASS as char).into()
    }

    /// Another with each call, and more; and more than of what was changed at `after` (milliseconds since 1970), also where the clock of who did that is ahead.
    pub fn next(&self, clock: &Clock, after: u64) -> u64 {
        let now = clock.now_ms();
        let ahead = after >= now && after <= now.saturating_add(AHEAD_MAX);
        let least = if ahead { after + 1 } else { now }.saturating_mul(1 << 16);
        let later = |last: u64| Some(least.max(last.saturating_add(1)));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        later(last.unwrap_or_else(|last| last)).unwrap_or(least)
    }

    pub fn row(&self, clock: &Clock, number: u64) -> Bytes {
        [&self.prefix(clock)[..], format!("{number:016x}").as_bytes()]
            .concat()
            .into()
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A shard has got an event, or may have.
    pub fn set(&self, shard: &str) {
        let mut waiting = self.waiting();
        if waiting.len() < MARKS_MAX || waiting.contains_key(shard) {
            *waiting.entry(shard.to_string()).or_default() += 1;
            self.figures().iter().for_each(|f| f.waiting(0, 1));
        }
        drop(waiting);
        self.figures().iter().for_each(|f| f.triggered());
        self.shards.mark(shard);
    }

    /// Too many wait in this shard.
    pub fn is_full(&self, shard: &str) -> bool {
        self.waiting().get(shard).is_some_and(|n| *n >= WAITING_MAX)
    }

    /// So many do not wait any more; None: none do.
    pub fn gathered(&self, shard: &str, events: Option<u64>) {
        let mut waiting = self.waiting();
        let left = waiting.get(shard).copied().unwrap_or(0);
        let rest = events.map_or(0, |n| left.saturating_sub(n));
        self.figures().iter().for_each(|f| f.waiting(left, rest));
        match rest {
            0 => drop(waiting.remove(shard)),
            rest => drop(waiting.insert(shard.to_string(), rest)),
        }
    }
}

/// When an event in a queue was set (milliseconds since 1970), by the name of its row.
pub fn queued_at(row: &[u8]) -> Option<u64> {
    let number = std::str::from_utf8(row.get(1..17)?).ok()?;
    Some(u64::from_str_radix(number, 16).ok()? >> 16)
}

/// What of an event's row names it in a queue: its number first, so that they come in order.
pub fn queued_as(row: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(row.get(1..)?).ok()?;
    let (gateway, number) = (text.get(..16)?, text.get(16..)?);
    Some(format!("{number}{gateway}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(events: &[&str], prefix: &str, suffix: &str) -> Notification {
        Notification {
            id: "i".into(),
            topic: "t".into(),
            events: events.iter().map(|e| e.to_string()).collect(),
            prefix: prefix.into(),
            suffix: suffix.into(),
            ..Notification::default()
        }
    }

    #[test]
    fn events_are_those_that_are_told_of() {
        for good in EVENTS
            .iter()
            .chain(&["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:ObjectTagging:*"])
        {
            assert!(is_event(good), "{good}");
        }
        for bad in [
            "",
            "*",
            "s3:*",
            "s3:Object*",
            "s3:ObjectCreated:P*",
            "s3:ObjectCreated",
            "ObjectCreated:Put",
            "s3:ObjectAcl:Put",
            "s3:ObjectRestore:*",
        ] {
            assert!(!is_event(bad), "{bad}");
        }
    }

    #[test]
    fn a_change_is_told_to_who_wants_to_know() {
        let rules = [
            rule(&["s3:ObjectCreated:*"], "a/", ".jpg"),
            rule(&["s3:ObjectRemoved:Delete"], "", ""),
        ];
        let told = |key: &str, how, what| {
            let notice = Notice::of(&rules, ("b", "o", key), how, &Asker::default())?;
            notice.event(key, what, 0, 1).map(|e| e.name)
        };
        let removed = What::Removed(None, None);
        assert_eq!(
            told("x", How::Delete, removed).as_deref(),
            Some("s3:ObjectRemoved:Delete")
        );
        assert_eq!(told("x", How::Delete, What::Marked(None)), None);
        assert_eq!(told("x", How::Expire, removed), None);
        assert_eq!(told("x", How::Put, removed), None);
        assert!(Notice::of(&rules[..1], ("b", "o", "a/x.png"), How::Put, &Asker::default()).is_none());
        assert!(Notice::of(&rules[..1], ("b", "o", "a/x.jpg"), How::Put, &Asker::default()).is_some());
    }

    #[test]
    fn filters_look_at_what_an_object_has() {
        let map = |of: &[(&str, &str)]| -> BTreeMap<String, String> {
            of.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect()
        };
        let plain = rule(&["s3:ObjectRemoved:*"], "", "");
        let rule = Notification {
            meta: map(&[("kind", "photo")]),
            tags: map(&[("a", "1"), ("b", "2")]),
            ..plain.clone()
        };
        for (of, version) in [(&plain, 1), (&rule, 2)] {
            let bytes = of.to_bytes();
            assert_eq!(
                bytes[..2],
                [version, version],
                "who does not know of filters refuses it"
            );
            assert_eq!(Notification::from_bytes(&bytes).unwrap(), *of);
        }
        let notice = |rule: &Notification| {
            let rules = [rule.clone()];
            Notice::of(&rules, ("b", "o", "k"), How::Delete, &Asker::default()).unwrap()
        };
        assert!(notice(&rule).looks_inside() && !notice(&plain).looks_inside());
        let told = |rule: &Notification, meta: &[(&str, &str)], tags: &[(&str, &str)]| {
            let of = Attributes {
                meta: map(meta),
                tags: map(tags),
                ..Attributes::default()
            };
            let what = What::Removed(None, Some(&of));
            notice(rule).event("k", what, 0, 1).is_some()
        };
        let (meta, tags) = (
            &[("kind", "photo"), ("x", "y")],
            &[("a", "1"), ("b", "2"), ("c", "3")],
        );
        assert!(told(&rule, meta, tags), "it may have more");
        assert!(!told(&rule, &[], tags) && !told(&rule, meta, &tags[..1]));
        assert!(!told(&rule, &[("kind", "Photo")], tags) && !told(&rule, tags, meta));
        assert!(told(&plain, &[], &[]));
        // A delete marker has nothing.
        assert!(notice(&rule).event("k", What::Marked(None), 0, 1).is_none());
        assert!(notice(&plain).event("k", What::Marked(None), 0, 1).is_some());
    }

    #[test]
    fn bodies_are_as_aws_has_them() {
        let mut event = Event {
            name: "s3:ObjectCreated:Put".into(),
            at: 1_709_164_800_007,
            sequence: 0xAB,
            bucket: "b".into(),
            owner: "o".into(),
            key: "a b/é+".into(),
            size: Some(5),
            etag: "e".into(),
            version: "v".into(),
            user: "u".into(),
            ip: "::1".into(),
            request: "r".into(),
            targets: vec![Target {
                topic: "t".into(),
                id: "i".into(),
            }],
        };
        assert_eq!(Event::from_bytes(&event.to_bytes()).unwrap(), event);
        let said: Value = serde_json::from_str(&event.body("i", "mine")).unwrap();
        let record = &said["Records"][0];
        assert_eq!(record["eventTime"], "2024-02-29T00:00:00.007Z");
        assert_eq!(record["eventName"], "ObjectCreated:Put");
        assert_eq!(record["opaqueData"], "mine");
        assert_eq!(record["s3"]["configurationId"], "i");
        assert_eq!(
            record["s3"]["object"],
            json!({"key": "a+b/%C3%A9%2B", "size": 5, "eTag": "e", "versionId": "v", "sequencer": "00000000000000AB"})
        );
        (event.size, event.version) = (None, String::new());
        let said: Value = serde_json::from_str(&event.body("i", "")).unwrap();
        assert_eq!(said["Records"][0]["s3"]["object"]["eTag"], Value::Null);
        assert_eq!(said["Records"][0]["opaqueData"], Value::Null);
    }

    #[test]
    fn arns_name_topics() {
        assert_eq!(topic_of(&topic_arn("alice", "t")), Some(("alice", "t")));
        assert_eq!(topic_of("arn:aws:sns:default:bob:x"), Some(("bob", "x")));
        for bad in [
            "",
            "arn:aws:sns:r::t",
            "arn:aws:sns:r:o:",
            "arn:aws:sns:r:o",
            "arn:aws:sqs:r:o:t",
            "arn:aws:sns:r:o:t:more",
        ] {
            assert_eq!(topic_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn numbers_grow_and_marks_are_bounded() {
        let (told, clock) = (Told::default(), crate::fake::Fake::new(1).clock());
        let numbers: Vec<u64> = (0..100).map(|_| told.next(&clock, 0)).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b));
        let rows: BTreeSet<_> = numbers.iter().map(|n| told.row(&clock, *n)).collect();
        assert_eq!(rows.len(), 100);
        assert!(
            rows.iter()
                .all(|r| r.starts_with(&told.prefix(&clock)) && queued_as(r).is_some())
        );
        // A key that a clock ahead has changed; one that is broken counts for nothing.
        let now = clock.now_ms();
        let ahead = told.next(&clock, now + 5000);
        assert!(ahead > (now + 5000) << 16 && told.next(&clock, 0) > ahead);
        assert!(told.next(&clock, u64::MAX) < (now + 6000) << 16);
        assert_eq!(queued_at(format!("e{:016x}", 7u64 << 16 | 3).as_bytes()), Some(7));
        for _ in 0..WAITING_MAX {
            assert!(!told.is_full("s"));
            told.set("s");
        }
        assert!(told.is_full("s") && !told.is_full("t"));
        told.gathered("s", Some(1));
        assert!(!told.is_full("s"));
        told.gathered("s", None);
        assert_eq!(told.shards.take().len(), 1);
        for n in 0..2 * MARKS_MAX {
            told.shards.mark(&n.to_string());
        }
        assert_eq!(told.shards.take().len(), MARKS_MAX);
    }
}
