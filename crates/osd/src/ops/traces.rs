//! Clients' operations as traces, where a node sends them to a collector (`skep up --trace-to`): which of them, what is copied of
//! each, and OpenTelemetry's JSON of it (OTLP 1.0: `resourceSpans`, `scopeSpans`, `spans`).
//!
//! Vocabulary: a *trace* is one operation: a span from when the loop took it until its answer went, and below it one for each
//! stage, as `dump_op_stages` counts them. Traces go over several OSDs by what the last stage waited for, not by spans of theirs.
//!
//! Invariant: an operation costs one comparison where there is no collector; none ever waits for one. What finds no room is counted
//! and dropped.
//!
//! Bounds: [`QUEUE`] traces of all OSDs of a process, each with [`TEXT_MAX`] bytes of each name.

use super::stages::{Passed, stages};
use pg::Word;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use types::{EntityAddr, EntityName, OsdId, PgId, PoolId};

/// Traces that wait for their way to the collector.
pub const QUEUE: usize = 2048;
/// Of those that are not slow, one of so many is told.
pub const ONE_OF: u64 = 1000;
/// Of the name of an object, and of an image.
const TEXT_MAX: usize = 256;
/// As OTLP numbers kinds of spans and states.
const INTERNAL: u32 = 1;
const SERVER: u32 = 2;
const STATUS_ERROR: u32 = 2;

/// Where the OSDs of a process put them.
pub type Traces = mpsc::Sender<Trace>;

/// One operation that has its answer. It keeps no message's buffer.
#[derive(Debug, Clone)]
pub struct Trace {
    pub(crate) osd: OsdId,
    pub(crate) pg: PgId,
    pub(crate) pool: String,
    pub(crate) object: String,
    pub(crate) image: Option<ImageOf>,
    pub(crate) client: EntityName,
    pub(crate) addr: EntityAddr,
    pub(crate) tid: u64,
    /// Its first operation, and how many there are.
    pub(crate) op: &'static str,
    pub(crate) ops: usize,
    pub(crate) is_write: bool,
    pub(crate) result: i32,
    pub(crate) passed: Passed,
    /// Since 1970.
    pub(crate) began: Duration,
    /// Not zero.
    pub(crate) id: u128,
    /// Of the whole operation, not zero; those of its stages follow it.
    pub(crate) span: u64,
}

/// An image, whose data may be in another pool than its name.
#[derive(Debug, Clone)]
pub struct ImageOf {
    pub(crate) pool: PoolId,
    pub(crate) namespace: String,
    pub(crate) id: String,
}

/// Chooses what is told.
#[derive(Debug, Default)]
pub struct Tracer {
    out: Option<Traces>,
    seen: u64,
}

impl Tracer {
    pub fn new(out: Option<Traces>) -> Self {
        Self { out, seen: 0 }
    }

    pub fn is_on(&self) -> bool {
        self.out.is_some()
    }

    /// Whether one that took so long is told: each that is slow, and the first of every [`ONE_OF`].
    pub fn wants(&mut self, took: Duration, slow: Duration) -> bool {
        let drawn = self.seen % ONE_OF == 0;
        self.seen = self.seen.wrapping_add(1);
        drawn || took >= slow
    }

    /// Room for one; None: there is none, or nobody takes them any more.
    pub fn room(&self) -> Option<mpsc::Permit<'_, Trace>> {
        self.out.as_ref()?.try_reserve().ok()
    }
}

/// A name, cut before it is copied: a client may send long ones.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_MAX)]).into_owned()
}

fn words(name: &str, text: impl Into<String>) -> Value {
    let text: String = text.into();
    json!({"key": name, "value": {"stringValue": text}})
}

/// JSON has 64-bit numbers as text there.
fn number(name: &str, n: impl ToString) -> Value {
    json!({"key": name, "value": {"intValue": n.to_string()}})
}

/// What the last stage waited for.
fn last(by: Option<Word>) -> (&'static str, Vec<Value>) {
    match by {
        Some(Word::Disk) => ("disk", vec![words("skep.waited_for", "disk")]),
        Some(Word::Osd(osd)) => {
            let of = format!("osd.{osd}");
            (
                "peer",
                vec![words("skep.waited_for", of), number("skep.peer", osd)],
            )
        }
        Some(Word::Change) => ("change", vec![words("skep.waited_for", "change")]),
        None => ("reply", Vec::new()),
    }
}

impl Trace {
    fn attributes(&self) -> Vec<Value> {
        let mut all = vec![
            number("ceph.osd", self.osd),
            words("ceph.pg", self.pg.to_string()),
            number("ceph.pool.id", self.pg.pool),
            words("ceph.pool.name", self.pool.as_str()),
            words("ceph.object", self.object.as_str()),
            words("ceph.client", self.client.to_string()),
            words("ceph.client.address", self.addr.place_and_nonce()),
            number("ceph.tid", self.tid),
            words("ceph.op", self.op.to_ascii_lowercase()),
            number("ceph.op.count", self.ops),
            words("ceph.op.kind", if self.is_write { "write" } else { "read" }),
            number("ceph.op.bytes", self.passed.bytes),
            number("ceph.result", self.result),
        ];
        if let Some(image) = &self.image {
            all.push(words("ceph.image.id", image.id.as_str()));
            all.push(number("ceph.image.pool.id", image.pool));
            all.push(words("ceph.image.namespace", image.namespace.as_str()));
        }
        all
    }

    /// One of its spans: `n` is 0 for all of it. Times are from its beginning on.
    fn span(&self, n: u64, name: &str, (from, to): (Duration, Duration), attributes: Vec<Value>) -> Value {
        let at = |d: Duration| (self.began + d).as_nanos().to_string();
        let mut span = json!({
            "traceId": format!("{:032x}", self.id),
            "spanId": format!("{:016x}", self.span + n),
            "name": name,
            "kind": if n == 0 { SERVER } else { INTERNAL },
            "startTimeUnixNano": at(from),
            "endTimeUnixNano": at(to),
            "attributes": attributes,
        });
        match n {
            0 if self.result < 0 => span["status"] = json!({"code": STATUS_ERROR}),
            0 => {}
            _ => span["parentSpanId"] = json!(format!("{:016x}", self.span)),
        }
        span
    }

    fn spans(&self) -> [Value; 4] {
        let [queue, turn, rest] = stages(&self.passed);
        let (name, waited) = last(self.passed.last);
        let (reached, executed, end) = (queue, queue + turn, queue + turn + rest);
        [
            self.span(0, self.op, (Duration::ZERO, end), self.attributes()),
            self.span(1, "queue", (Duration::ZERO, reached), Vec::new()),
            self.span(2, "group", (reached, executed), Vec::new()),
            self.span(3, name, (executed, end), waited),
        ]
    }
}

/// What a collector takes in one request.
pub fn otlp(traces: &[Trace], host: &str) -> String {
    let mut osds: BTreeMap<OsdId, Vec<Value>> = BTreeMap::new();
    for trace in traces {
        osds.entry(trace.osd).or_default().extend(trace.spans());
    }
    let version = env!("CARGO_PKG_VERSION");
    let of_osd = |(osd, spans): (OsdId, Vec<Value>)| {
        let attributes = [
            words("service.name", "skep"),
            words("service.version", version),
            words("service.instance.id", format!("osd.{osd}")),
            words("host.name", host),
        ];
        json!({
            "resource": {"attributes": attributes},
            "scopeSpans": [{"scope": {"name": "skep.osd", "version": version}, "spans": spans}],
        })
    };
    let all: Vec<Value> = osds.into_iter().map(of_osd).collect();
    json!({"resourceSpans": all}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn trace(osd: OsdId, last: Option<Word>, result: i32) -> Trace {
        Trace {
            osd,
            pg: PgId::new(1, 3),
            pool: "rbd".into(),
            object: "a".into(),
            image: None,
            client: EntityName::client(4123),
            addr: EntityAddr::BLANK,
            tid: 17,
            op: "writefull",
            ops: 1,
            is_write: true,
            result,
            passed: Passed {
                bytes: 4096,
                since: MS(100),
                reached_pg: Some(MS(101)),
                executed: Some(MS(103)),
                answered: MS(110),
                last,
            },
            began: Duration::from_secs(1_700_000_000),
            id: 0xabc,
            span: 8,
        }
    }

    fn read(traces: &[Trace]) -> Value {
        serde_json::from_str(&otlp(traces, "a")).unwrap()
    }

    fn attribute(of: &Value, name: &str) -> Option<String> {
        let all = of["attributes"].as_array()?;
        let found = all.iter().find(|a| a["key"] == name)?;
        let value = found["value"].as_object()?.values().next()?;
        value.as_str().map(str::to_string)
    }

    #[test]
    fn an_operation_is_a_span_with_its_stages_below() {
        let said = read(&[trace(2, Some(Word::Osd(5)), 0)]);
        let resource = &said["resourceSpans"][0];
        assert_eq!(
            attribute(&resource["resource"], "service.name").as_deref(),
            Some("skep")
        );
        assert_eq!(
            attribute(&resource["resource"], "service.instance.id").as_deref(),
            Some("osd.2")
        );
        let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
        let [whole, stages @ ..] = &spans[..] else {
            panic!("{said}")
        };
        assert_eq!(
            (&whole["traceId"], &whole["spanId"], &whole["kind"]),
            (
                &json!("00000000000000000000000000000abc"),
                &json!("0000000000000008"),
                &json!(2)
            )
        );
        assert!(whole["parentSpanId"].is_null() && whole["status"].is_null());
        assert_eq!(whole["startTimeUnixNano"], "1700000000000000000");
        assert_eq!(whole["endTimeUnixNano"], "1700000000010000000");
        for (name, value) in [
            ("ceph.op", "writefull"),
            ("ceph.tid", "17"),
            ("ceph.client", "client.4123"),
        ] {
            assert_eq!(attribute(whole, name).as_deref(), Some(value), "{name}");
        }
        assert_eq!(attribute(whole, "ceph.image.id"), None);
        let names: Vec<&Value> = stages.iter().map(|s| &s["name"]).collect();
        assert_eq!(names, ["queue", "group", "peer"]);
        // Each begins where the one before ended, and the last ends with all of it.
        let ends = stages.iter().map(|s| &s["endTimeUnixNano"]);
        for (end, next) in ends.zip(&stages[1..]) {
            assert_eq!(*end, next["startTimeUnixNano"]);
        }
        assert_eq!(stages[0]["startTimeUnixNano"], whole["startTimeUnixNano"]);
        assert_eq!(stages[2]["endTimeUnixNano"], whole["endTimeUnixNano"]);
        assert!(
            stages
                .iter()
                .all(|s| s["parentSpanId"] == whole["spanId"] && s["traceId"] == whole["traceId"])
        );
        assert_eq!(attribute(&stages[2], "skep.waited_for").as_deref(), Some("osd.5"));
    }

    #[test]
    fn osds_are_apart_and_errors_are_marked() {
        let said = read(&[
            trace(1, None, -2),
            trace(0, Some(Word::Disk), 0),
            trace(1, None, 0),
        ]);
        let spans = |n: usize| {
            said["resourceSpans"][n]["scopeSpans"][0]["spans"]
                .as_array()
                .unwrap()
        };
        assert_eq!((spans(0).len(), spans(1).len()), (4, 8));
        assert_eq!(
            (&spans(1)[0]["status"]["code"], &spans(1)[3]["name"]),
            (&json!(2), &json!("reply"))
        );
        assert!(spans(1)[4]["status"].is_null());
        assert_eq!(attribute(&spans(1)[0], "ceph.result").as_deref(), Some("-2"));
    }

    #[test]
    fn each_slow_one_and_one_of_many_others() {
        let mut tracer = Tracer::default();
        assert!(!tracer.is_on());
        let mut told = 0;
        for _ in 0..3 * ONE_OF {
            told += u32::from(tracer.wants(MS(1), MS(10)));
        }
        assert_eq!(told, 3);
        assert!(tracer.wants(MS(1), MS(10)), "the first of the next");
        assert!(!tracer.wants(MS(9), MS(10)) && tracer.wants(MS(10), MS(10)));
    }

    #[test]
    fn an_image_is_named_with_its_pool() {
        let image = ImageOf {
            pool: 7,
            namespace: "tenant".into(),
            id: "abc".into(),
        };
        let of_image = Trace {
            image: Some(image),
            ..trace(0, None, 0)
        };
        let said = read(&[of_image]);
        let whole = &said["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        for (name, value) in [("id", "abc"), ("pool.id", "7"), ("namespace", "tenant")] {
            assert_eq!(
                attribute(whole, &format!("ceph.image.{name}")).as_deref(),
                Some(value),
                "{name}"
            );
        }
    }

    #[test]
    fn names_are_cut() {
        assert_eq!(text(&[b'x'; 5000]).len(), TEXT_MAX);
    }
}
