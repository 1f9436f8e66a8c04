//! What a gateway counts about itself: the logger `rgw` with Ceph's names, where Ceph has the thing (16.2.15), and the same few cells for each
//! operation (`s3_operation.GetObject`) and for buckets (`s3_bucket.NAME`).
//!
//! A request is counted when its answer begins, and what the answer's body brings when it goes; so latencies are those to the first byte of the answer.
//!
//! Bounds: operations are those of the library's list and [`UNKNOWN`]; [`BUCKETS_MAX`] buckets have a table of their own, which they get with a request
//! that was not refused: names that are asked for in vain make none. Where there is no room the one goes that nobody has asked for longest, if that is
//! [`IDLE_MS`] ago, and what it had counted is [`OTHERS`]' from then on; else the new one is counted there.

use metrics::{Counter, Gauge, Registry, TimeAverage, spec};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub const BUCKETS_MAX: usize = 128;
const IDLE_MS: u64 = 10 * 60 * 1000;
/// No name of a bucket.
pub const OTHERS: &str = "(others)";
/// What was refused before it was clear what it is: a bad signature, mostly.
pub const UNKNOWN: &str = "(unknown)";
const EVENTS: &str = "s3_events";
const OPERATION: &str = "s3_operation.";
const BUCKET: &str = "s3_bucket.";

metrics::table! {
    /// The logger `rgw`. `get` is objects that are read or looked at, `put` objects and parts that are put; what is refused is neither.
    pub struct RgwPerf {
        req: Counter = spec("Requests").priority(5);
        failed_req: Counter = spec("Requests that were refused or failed").priority(5);
        get: Counter = spec("Objects read").priority(5);
        get_b: Counter = spec("Bytes of objects read").priority(5).bytes();
        get_initial_lat: TimeAverage = spec("Time until a read's answer begins").priority(5);
        put: Counter = spec("Objects and parts brought").priority(5);
        put_b: Counter = spec("Bytes of objects and parts brought").priority(5).bytes();
        put_initial_lat: TimeAverage = spec("Time until an object or a part that is brought is answered").priority(5);
        qlen: Gauge = spec("Transfers that wait for memory").priority(5);
        qactive: Gauge = spec("Requests under way").priority(5);
        pubsub_event_triggered: Counter = spec("Events that somebody wants to be told of").priority(5);
        pubsub_event_lost: Counter = spec("Events that were dropped").priority(5);
        pubsub_push_ok: Counter = spec("Events that an endpoint has taken").priority(5);
        pubsub_push_failed: Counter = spec("Events that an endpoint did not take: they are tried again").priority(5);
        pubsub_push_pending: Gauge = spec("Events that are on their way to an endpoint").priority(5);
    }
}

metrics::table! {
    /// What becomes of events, where Ceph has no name for it.
    pub struct EventsPerf {
        waiting: Gauge = spec("Events of this gateway that are not in their topics' queues yet").priority(5);
        queued: Gauge = spec("Events in the queues of topics that this gateway tells, as it last saw them").priority(5);
        dropped_full: Counter = spec("Events dropped since their topic's queue was full").priority(5);
        dropped_old: Counter = spec("Events dropped since they could not be told for too long").priority(5);
        dropped_gone: Counter = spec("Events dropped since their topic was removed").priority(5);
    }
}

metrics::table! {
    /// Of an operation, or of a bucket.
    pub struct Traffic {
        req: Counter = spec("Requests").priority(5);
        failed_req: Counter = spec("Requests that were refused or failed: answers of 400 and more").priority(5);
        server_errors: Counter = spec("Of these, answers of 500 and more, and answers that broke off").priority(5);
        aborted: Counter = spec("Answers that their client did not take to the end").priority(5);
        in_bytes: Counter = spec("Bytes of bodies of requests").priority(5).bytes();
        out_bytes: Counter = spec("Bytes of bodies of answers").priority(5).bytes();
        latency: TimeAverage = spec("Time until the answer begins").priority(5);
    }
}

impl Traffic {
    fn answered(&self, how: &Answered) {
        self.req.inc();
        self.in_bytes.add(how.brought);
        self.latency.took(how.took);
        if how.status >= 400 {
            self.failed_req.inc();
        }
        if how.status >= 500 {
            self.server_errors.inc();
        }
    }

    /// What another has counted is counted here from now on.
    fn takes_over(&self, other: &Self) {
        self.req.add(other.req.get());
        self.failed_req.add(other.failed_req.get());
        self.server_errors.add(other.server_errors.get());
        self.aborted.add(other.aborted.get());
        self.in_bytes.add(other.in_bytes.get());
        self.out_bytes.add(other.out_bytes.get());
        let (count, sum) = (
            self.latency.count() + other.latency.count(),
            self.latency.sum() + other.latency.sum(),
        );
        self.latency.set(count, sum);
    }
}

/// How a request was answered.
#[derive(Debug, Clone)]
pub struct Answered {
    pub operation: Option<String>,
    pub bucket: Option<String>,
    pub status: u16,
    pub took: Duration,
    /// Bytes of its body that came.
    pub brought: u64,
}

#[derive(Debug, Default)]
struct Tables {
    operations: BTreeMap<String, Arc<Traffic>>,
    /// With when they were last asked for.
    buckets: HashMap<String, (u64, Arc<Traffic>)>,
    others: Option<Arc<Traffic>>,
}

/// Of one gateway. Clones are the same.
#[derive(Debug, Clone)]
pub struct Meters {
    registry: Registry,
    pub rgw: Arc<RgwPerf>,
    pub events: Arc<EventsPerf>,
    tables: Arc<Mutex<Tables>>,
}

impl Meters {
    /// What a gateway before it counted in the same registry is gone.
    pub fn new(registry: &Registry) -> Self {
        registry.remove(|logger| logger.starts_with(OPERATION) || logger.starts_with(BUCKET));
        Self {
            rgw: registry.make("rgw"),
            events: registry.make(EVENTS),
            registry: registry.clone(),
            tables: Arc::default(),
        }
    }

    /// As long as this is there a request is under way.
    pub fn begin(&self) -> Active {
        self.rgw.qactive.set(self.rgw.qactive.get() + 1);
        Active(self.rgw.clone())
    }

    /// Counts an answer that begins now (milliseconds since 1970); where its body is counted.
    pub fn answered(&self, how: &Answered, now: u64) -> Sent {
        let rgw = &self.rgw;
        let operation = how.operation.as_deref().unwrap_or(UNKNOWN);
        rgw.req.inc();
        if how.status >= 400 {
            rgw.failed_req.inc();
        }
        let good = how.status < 400;
        let gets = good && matches!(operation, "GetObject" | "HeadObject");
        if gets {
            rgw.get.inc();
            rgw.get_initial_lat.took(how.took);
        } else if good
            && matches!(
                operation,
                "PutObject" | "UploadPart" | "UploadPartCopy" | "PostObject"
            )
        {
            rgw.put.inc();
            rgw.put_b.add(how.brought);
            rgw.put_initial_lat.took(how.took);
        }
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counted = vec![self.of_operation(&mut tables, operation)];
        if let Some(bucket) = &how.bucket {
            counted.extend(self.of_bucket(&mut tables, bucket, how.status < 400, now));
        }
        counted.iter().for_each(|t| t.answered(how));
        Sent {
            objects: gets.then(|| rgw.clone()),
            counted,
        }
    }

    fn of_operation(&self, tables: &mut Tables, name: &str) -> Arc<Traffic> {
        if let Some(known) = tables.operations.get(name) {
            return known.clone();
        }
        let made = self.registry.make::<Traffic>(&format!("{OPERATION}{name}"));
        tables.operations.insert(name.to_string(), made.clone());
        made
    }

    /// None: a name that was asked for in vain.
    fn of_bucket(&self, tables: &mut Tables, name: &str, is_there: bool, now: u64) -> Option<Arc<Traffic>> {
        if let Some((used, known)) = tables.buckets.get_mut(name) {
            *used = now;
            return Some(known.clone());
        }
        if !is_there {
            return None;
        }
        if tables.buckets.len() >= BUCKETS_MAX && !self.drop_idle(tables, now) {
            return Some(self.others(tables));
        }
        let made = self.registry.make::<Traffic>(&format!("{BUCKET}{name}"));
        tables.buckets.insert(name.to_string(), (now, made.clone()));
        Some(made)
    }

    fn others(&self, tables: &mut Tables) -> Arc<Traffic> {
        let make = || self.registry.make::<Traffic>(&format!("{BUCKET}{OTHERS}"));
        tables.others.get_or_insert_with(make).clone()
    }

    /// Whether there is room now.
    fn drop_idle(&self, tables: &mut Tables, now: u64) -> bool {
        let longest = tables.buckets.iter().min_by_key(|(_, (used, _))| *used);
        let Some((name, _)) = longest.filter(|(_, (used, _))| used + IDLE_MS < now) else {
            return false;
        };
        let name = name.clone();
        let others = self.others(tables);
        if let Some((_, gone)) = tables.buckets.remove(&name) {
            others.takes_over(&gone);
        }
        let logger = format!("{BUCKET}{name}");
        self.registry.remove(|l| l == logger);
        true
    }
}

/// A request that is under way.
#[derive(Debug)]
pub struct Active(Arc<RgwPerf>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.qactive.set(self.0.qactive.get().saturating_sub(1));
    }
}

/// A transfer that waits for memory, as long as this is there.
#[derive(Debug)]
pub struct Waiting(Arc<RgwPerf>);

impl Waiting {
    pub fn new(perf: &Arc<RgwPerf>) -> Self {
        perf.qlen.set(perf.qlen.get() + 1);
        Self(perf.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.qlen.set(self.0.qlen.get().saturating_sub(1));
    }
}

/// How the body of an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Whole,
    /// By us.
    Broken,
    /// The client was gone.
    Aborted,
}

/// Where the body of an answer is counted.
#[derive(Debug)]
pub struct Sent {
    counted: Vec<Arc<Traffic>>,
    /// It is an object.
    objects: Option<Arc<RgwPerf>>,
}

impl Sent {
    pub fn went(&self, bytes: u64) {
        self.counted.iter().for_each(|t| t.out_bytes.add(bytes));
        if let Some(rgw) = &self.objects {
            rgw.get_b.add(bytes);
        }
    }

    pub fn ended(&self, how: End) {
        for traffic in &self.counted {
            match how {
                End::Whole => {}
                End::Broken => {
                    traffic.failed_req.inc();
                    traffic.server_errors.inc();
                }
                End::Aborted => traffic.aborted.inc(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::json::{Wanted, perf_dump};

    fn of(operation: &str, bucket: &str, status: u16) -> Answered {
        Answered {
            operation: Some(operation.into()),
            bucket: Some(bucket.into()),
            status,
            took: Duration::from_millis(5),
            brought: 10,
        }
    }

    #[test]
    fn operations_and_buckets_are_counted() {
        let registry = Registry::default();
        let meters = Meters::new(&registry);
        let active = meters.begin();
        let sent = meters.answered(&of("GetObject", "b", 200), 1);
        sent.went(7);
        sent.ended(End::Aborted);
        meters.answered(&of("PutObject", "b", 503), 1).ended(End::Whole);
        meters
            .answered(&of("PutObject", "none", 404), 1)
            .ended(End::Whole);
        let all = perf_dump(&registry, Wanted::default());
        let rgw = &all["rgw"];
        let numbers = [
            "req",
            "failed_req",
            "get",
            "get_b",
            "put",
            "put_b",
            "qactive",
            "qlen",
        ]
        .map(|n| rgw[n].as_u64().unwrap());
        assert_eq!(numbers, [3, 2, 1, 7, 0, 0, 1, 0]);
        assert_eq!(rgw["get_initial_lat"]["avgcount"], 1);
        let cells = |logger: &str| {
            [
                "req",
                "failed_req",
                "server_errors",
                "aborted",
                "in_bytes",
                "out_bytes",
            ]
            .map(|n| all[logger][n].as_u64().unwrap())
        };
        assert_eq!(cells("s3_operation.GetObject"), [1, 0, 0, 1, 10, 7]);
        assert_eq!(cells("s3_operation.PutObject"), [2, 2, 1, 0, 20, 0]);
        assert_eq!(cells("s3_bucket.b"), [2, 1, 1, 1, 20, 7]);
        assert!(all.get("s3_bucket.none").is_none(), "asked for in vain");
        drop(active);
        assert_eq!(meters.rgw.qactive.get(), 0);
        // A gateway that begins anew counts anew.
        Meters::new(&registry);
        let loggers: Vec<String> = registry.tables().into_iter().map(|t| t.0).collect();
        assert_eq!(loggers, ["rgw", EVENTS]);
    }

    #[test]
    fn buckets_have_a_bound_and_their_sum_stays() {
        let registry = Registry::default();
        let meters = Meters::new(&registry);
        let mut asked = 0;
        for (now, names) in [(1, 0..BUCKETS_MAX + 5), (2 + IDLE_MS, 1000..1003)] {
            for n in names {
                meters
                    .answered(&of("HeadBucket", &format!("b{n}"), 200), now)
                    .ended(End::Whole);
                asked += 1;
            }
        }
        let (mut tables, mut sum, mut others) = (0, 0, 0);
        for (logger, table) in registry.tables() {
            if !logger.starts_with(BUCKET) {
                continue;
            }
            tables += 1;
            table.visit(&mut |spec, value| {
                if let metrics::Value::Number(n) = value
                    && spec.name == "req"
                {
                    sum += n;
                    others += if logger.ends_with(OTHERS) { n } else { 0 };
                }
            });
        }
        assert_eq!((tables, sum, others), (BUCKETS_MAX + 1, asked, 5 + 3));
        let names = |name: &str| registry.tables().iter().any(|t| t.0 == format!("{BUCKET}{name}"));
        assert!(names("b1002"), "those that nobody asks for make room");
    }
}
