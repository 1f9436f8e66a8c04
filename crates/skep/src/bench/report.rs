//! What was seen, and how it is told.

use super::args::Job;
use crate::options::Format;
use crate::store::bench::measure::Latencies;
use serde_json::{Value, json};
use std::time::Duration;

const MARKS: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 100.0];

/// Latencies of reads and of writes.
pub struct Seen {
    reads: Latencies,
    writes: Latencies,
}

impl Seen {
    pub fn new() -> Self {
        Self {
            reads: Latencies::new(),
            writes: Latencies::new(),
        }
    }

    pub fn note(&mut self, read: bool, latency: Duration) {
        match read {
            true => self.reads.add(latency),
            false => self.writes.add(latency),
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
    }
}

pub struct Report {
    pub kind: &'static str,
    pub job: Job,
    pub seconds: f64,
    pub seen: Seen,
    /// Processor seconds of this process, and of the servers.
    pub client_cpu: Option<f64>,
    pub server_cpu: Option<f64>,
    pub servers: Vec<u32>,
}

impl Report {
    fn kinds(&self) -> impl Iterator<Item = (&'static str, &Latencies)> {
        let both = [("read", &self.seen.reads), ("write", &self.seen.writes)];
        both.into_iter().filter(|(_, l)| l.count() > 0)
    }

    fn ops(&self) -> u64 {
        self.seen.reads.count() + self.seen.writes.count()
    }

    fn per_s(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    fn cpu_us_per_op(&self, seconds: Option<f64>) -> Option<f64> {
        seconds.map(|s| s * 1e6 / self.ops().max(1) as f64)
    }

    pub fn print(&self) {
        match self.job.format {
            Format::Json => println!("{:#}", self.json()),
            Format::Plain => print!("{}", self.text()),
        }
    }

    fn json(&self) -> Value {
        let job = &self.job;
        let mut report = json!({
            "target": self.kind, "rw": job.rw.name(), "block_size": job.block_size, "depth": job.depth,
            "clients": job.clients, "seconds": self.seconds, "ops": self.ops(), "iops": self.per_s(self.ops()),
            "bytes_per_s": self.per_s(self.ops()) * job.block_size as f64,
        });
        for (name, seen) in self.kinds() {
            let mut latency = json!({"mean": seen.mean_us().round()});
            for mark in MARKS {
                latency[format!("p{mark}")] = json!(seen.percentile_us(mark / 100.0).round());
            }
            report[name] = json!({
                "ops": seen.count(), "iops": self.per_s(seen.count()),
                "bytes_per_s": self.per_s(seen.count()) * job.block_size as f64, "latency_us": latency,
            });
        }
        report["cpu"] = json!({
            "client_us_per_op": self.cpu_us_per_op(self.client_cpu),
            "server_us_per_op": self.cpu_us_per_op(self.server_cpu),
            "server_pids": self.servers,
        });
        report
    }

    fn text(&self) -> String {
        let job = &self.job;
        let mut text = format!(
            "{} {} of {} bytes, {} clients with {} at a time, {:.1} s\n",
            self.kind,
            job.rw.name(),
            job.block_size,
            job.clients,
            job.depth,
            self.seconds
        );
        for (name, seen) in self.kinds() {
            let per_s = self.per_s(seen.count());
            let mib = per_s * job.block_size as f64 / f64::from(1 << 20);
            let marks: Vec<String> = MARKS
                .iter()
                .map(|p| format!("p{p} {}", seen.percentile_us(p / 100.0).round()))
                .collect();
            text += &format!(
                "  {name}: {} operations, {per_s:.0}/s, {mib:.1} MiB/s\n    latency in us: mean {:.0}, {}\n",
                seen.count(),
                seen.mean_us(),
                marks.join(", ")
            );
        }
        let cpu = |v: Option<f64>| {
            let per_op = self.cpu_us_per_op(v);
            per_op.map_or("unknown".into(), |v| format!("{v:.1}"))
        };
        text += &format!(
            "  processor time in us per operation: client {}, servers {} ({} processes)\n",
            cpu(self.client_cpu),
            cpu(self.server_cpu),
            self.servers.len()
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn report(seen: Seen) -> Report {
        let line = ["skep", "bench", "rbd", "-p", "p"];
        let args = crate::args::Args::try_parse_from(line).unwrap();
        let crate::args::Command::Bench(bench) = args.command else {
            panic!("another command");
        };
        let super::super::args::BenchCommand::Rbd(rbd) = bench.command else {
            panic!("another bench");
        };
        Report {
            kind: "rbd",
            job: rbd.job,
            seconds: 2.0,
            seen,
            client_cpu: Some(0.001),
            server_cpu: None,
            servers: Vec::new(),
        }
    }

    #[test]
    fn what_was_seen_is_counted_apart_and_together() {
        let (mut a, mut b) = (Seen::new(), Seen::new());
        (0..10).for_each(|_| a.note(true, Duration::from_micros(100)));
        (0..30).for_each(|_| b.note(false, Duration::from_micros(200)));
        a.add(&b);
        let json = report(a).json();
        assert_eq!((&json["ops"], &json["iops"]), (&json!(40), &json!(20.0)));
        assert_eq!(json["read"]["ops"], 10);
        assert_eq!(json["write"]["bytes_per_s"], json!(15.0 * 4096.0));
        assert_eq!(json["cpu"]["client_us_per_op"], json!(25.0));
        assert!(json["cpu"]["server_us_per_op"].is_null());
    }
}
