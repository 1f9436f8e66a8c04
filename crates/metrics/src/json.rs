//! `perf dump`, `perf schema`, `perf histogram dump` and `perf histogram schema`, in the forms of Ceph 16.2.

use crate::histogram::{Axis, BUCKETS, Histogram};
use crate::registry::Registry;
use crate::spec::{Kind, Spec, Unit, Value};
use serde_json::{Map, Value as Json, json};
use std::time::Duration;

/// Which cells are wanted; empty texts are all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    pub logger: &'a str,
    pub counter: &'a str,
}

fn seconds(time: Duration) -> Json {
    json!(time.as_nanos() as f64 / 1e9)
}

fn number(value: Value<'_>) -> Option<Json> {
    Some(match value {
        Value::Number(n) => json!(n),
        Value::Time { count, sum } => {
            let average = sum.as_nanos().checked_div(u128::from(count)).unwrap_or(0);
            json!({"avgcount": count, "sum": seconds(sum), "avgtime": average as f64 / 1e9})
        }
        Value::Sum { count, sum } => json!({"avgcount": count, "sum": sum}),
        Value::Histogram(_) => return None,
    })
}

fn describe(spec: &Spec) -> Json {
    json!({
        "type": spec.kind as u8,
        "metric_type": match spec.kind {
            Kind::Counter | Kind::Histogram => "counter",
            _ => "gauge",
        },
        "value_type": match spec.kind {
            Kind::Counter | Kind::Gauge => "integer",
            Kind::TimeAverage => "real-integer-pair",
            Kind::Average => "integer-integer-pair",
            Kind::Histogram => "integer-2d-histogram",
        },
        "description": spec.help,
        "nick": spec.nick,
        "priority": spec.priority,
        "units": match spec.unit {
            Unit::None => "none",
            Unit::Bytes => "bytes",
        },
    })
}

fn axis(a: &Axis) -> Json {
    let range = |bucket| {
        let (min, max) = a.range(bucket);
        let mut range = Map::new();
        range.extend(min.map(|n| ("min".to_string(), json!(n))));
        range.extend(max.map(|n| ("max".to_string(), json!(n))));
        Json::Object(range)
    };
    json!({
        "name": a.name,
        "min": 0,
        "quant_size": a.quantum,
        "buckets": BUCKETS,
        "scale_type": "log2",
        "ranges": (0..BUCKETS).map(range).collect::<Vec<_>>(),
    })
}

fn histogram(h: &Histogram) -> Json {
    let row = |latency| {
        (0..BUCKETS)
            .map(|size| h.count(latency, size))
            .collect::<Vec<_>>()
    };
    json!({
        "axes": [axis(&Histogram::LATENCY), axis(&Histogram::SIZE)],
        "values": (0..BUCKETS).map(row).collect::<Vec<_>>(),
    })
}

/// Loggers with the cells for which `one` has something; a logger without any is named all the same, as Ceph does.
fn dump(
    registry: &Registry,
    wanted: Wanted<'_>,
    one: impl Fn(&'static Spec, Value<'_>) -> Option<Json>,
) -> Json {
    let mut all = Map::new();
    for (logger, table) in registry.tables() {
        if !wanted.logger.is_empty() && wanted.logger != logger {
            continue;
        }
        let mut cells = Map::new();
        table.visit(&mut |spec, value| {
            if (wanted.counter.is_empty() || wanted.counter == spec.name)
                && let Some(json) = one(spec, value)
            {
                cells.insert(spec.name.to_string(), json);
            }
        });
        all.insert(logger, Json::Object(cells));
    }
    Json::Object(all)
}

pub fn perf_dump(registry: &Registry, wanted: Wanted<'_>) -> Json {
    dump(registry, wanted, |_, value| number(value))
}

pub fn perf_schema(registry: &Registry) -> Json {
    let all = Wanted::default();
    dump(registry, all, |spec, value| number(value).map(|_| describe(spec)))
}

pub fn histogram_dump(registry: &Registry, wanted: Wanted<'_>) -> Json {
    dump(registry, wanted, |_, value| match value {
        Value::Histogram(h) => Some(histogram(h)),
        _ => None,
    })
}

pub fn histogram_schema(registry: &Registry) -> Json {
    dump(registry, Wanted::default(), |spec, value| {
        matches!(value, Value::Histogram(_)).then(|| describe(spec))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Average, Counter, Gauge, TimeAverage, spec};

    crate::table! {
        struct Sample {
            op: Counter = spec("Client operations").nick("ops").priority(10);
            op_in_bytes: Counter = spec("Client operations total write size").nick("wr").priority(8).bytes();
            op_latency: TimeAverage = spec("Latency of client operations").priority(9);
            numpg: Gauge = spec("Placement groups").nick("pgs").priority(5);
            keys: Average = spec("Keys in transaction on begin");
            op_r_latency_out_bytes_histogram: Histogram = spec("Histogram").priority(5);
        }
    }

    fn sample() -> Registry {
        let registry = Registry::default();
        let t = registry.make::<Sample>("osd");
        t.op.add(3);
        t.op_latency.took(Duration::from_millis(3));
        t.op_latency.took(Duration::from_millis(4));
        t.numpg.set(9);
        t.keys.add(7);
        t.op_r_latency_out_bytes_histogram.add(10, 4096);
        registry
    }

    #[test]
    fn a_dump_has_cephs_form() {
        let all = perf_dump(&sample(), Wanted::default());
        assert_eq!(
            all,
            json!({"osd": {
                "op": 3, "op_in_bytes": 0,
                "op_latency": {"avgcount": 2, "sum": 0.007, "avgtime": 0.0035},
                "numpg": 9, "keys": {"avgcount": 1, "sum": 7},
            }})
        );
        let one = |logger, counter| perf_dump(&sample(), Wanted { logger, counter });
        assert_eq!(one("osd", "op"), json!({"osd": {"op": 3}}));
        assert_eq!(one("osd", "nothing"), json!({"osd": {}}));
        assert_eq!(one("nothing", ""), json!({}));
    }

    #[test]
    fn a_reset_begins_anew_and_gauges_stay() {
        let registry = Registry::default();
        let t = registry.make::<Sample>("osd");
        t.op_in_bytes.set(100);
        t.op.add(3);
        t.op_latency.took(Duration::from_millis(4));
        t.numpg.set(9);
        t.keys.add(7);
        t.op_r_latency_out_bytes_histogram.add(10, 4096);
        assert!(!registry.reset("nothing") && registry.reset("osd"));
        // What is copied from elsewhere goes on there.
        t.op_in_bytes.set(101);
        t.op_latency.took(Duration::from_millis(6));
        assert_eq!(
            perf_dump(&registry, Wanted::default()),
            json!({"osd": {
                "op": 0, "op_in_bytes": 1,
                "op_latency": {"avgcount": 1, "sum": 0.006, "avgtime": 0.006},
                "numpg": 9, "keys": {"avgcount": 0, "sum": 0},
            }})
        );
        assert_eq!(t.op_r_latency_out_bytes_histogram.count(1, 5), 0);
        t.op.inc();
        assert!(registry.reset("all"));
        assert_eq!(t.op.get(), 0);
    }

    #[test]
    fn a_schema_has_cephs_form() {
        let all = perf_schema(&sample());
        assert_eq!(
            all["osd"]["op_latency"],
            json!({"type": 5, "metric_type": "gauge", "value_type": "real-integer-pair",
                   "description": "Latency of client operations", "nick": "", "priority": 9, "units": "none"})
        );
        assert_eq!(all["osd"]["op_in_bytes"]["units"], json!("bytes"));
        assert_eq!(all["osd"]["numpg"]["type"], json!(2));
        assert_eq!(all["osd"]["keys"]["value_type"], json!("integer-integer-pair"));
        assert!(all["osd"].get("op_r_latency_out_bytes_histogram").is_none());
        let kinds = histogram_schema(&sample());
        assert_eq!(
            kinds["osd"]["op_r_latency_out_bytes_histogram"]["type"],
            json!(26)
        );
        let values = histogram_dump(&sample(), Wanted::default());
        let h = &values["osd"]["op_r_latency_out_bytes_histogram"];
        assert_eq!(
            (&h["values"][1][5], &h["axes"][0]["ranges"][0]),
            (&json!(1), &json!({"max": -1}))
        );
    }

    #[test]
    fn a_role_that_begins_anew_counts_anew() {
        let registry = sample();
        registry.make::<Sample>("osd");
        assert_eq!(
            perf_dump(
                &registry,
                Wanted {
                    logger: "osd",
                    counter: "op"
                }
            ),
            json!({"osd": {"op": 0}})
        );
        let mut seen = 0;
        registry.visit(&mut |logger, _, _| seen += usize::from(logger == "osd"));
        assert_eq!(seen, 6);
    }
}
