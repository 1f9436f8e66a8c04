//! What a bench found: a table for people, or JSON.

use super::engine::BLOCK;
use super::measure::Latencies;
use crate::store::text::{bytes, table};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// One measurement.
#[derive(Debug)]
pub struct Measured {
    pub name: &'static str,
    pub depth: u32,
    /// Bytes of an operation.
    pub block: u64,
    pub seconds: f64,
    /// Of the whole process, the load's own making included.
    pub cpu: Duration,
    /// As the files were written to.
    pub written: u64,
    pub kernel_written: u64,
    pub flushes: u64,
    pub checkpoints: u64,
    pub stalls: u64,
    /// Reads that went on beside their owner; the others were in memory, or blocked it.
    pub beside: u64,
    pub peak_bytes: u64,
    pub latencies: Latencies,
}

impl Measured {
    fn operations(&self) -> f64 {
        self.latencies.count() as f64
    }
    fn rate(&self) -> f64 {
        self.operations() / self.seconds.max(1e-9)
    }
    fn bytes_per_second(&self) -> f64 {
        self.rate() * self.block as f64
    }
    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.operations().max(1.0)
    }
    fn is_read(&self) -> bool {
        self.name.starts_with("read")
    }
    /// None for reads.
    fn written_per_byte(&self) -> Option<f64> {
        let payload = self.operations().max(1.0) * self.block as f64;
        (!self.is_read()).then(|| self.written as f64 / payload)
    }

    fn row(&self) -> Vec<String> {
        let l = &self.latencies;
        let us = |v: f64| match v {
            v if v < 100.0 => format!("{v:.1}"),
            v => format!("{v:.0}"),
        };
        vec![
            format!("{} {}", bytes(self.block).replace(".0", ""), self.name),
            self.depth.to_string(),
            l.count().to_string(),
            format!("{:.0}", self.rate()),
            format!("{:.1}", self.bytes_per_second() / f64::from(1 << 20)),
            us(l.percentile_us(0.5)),
            us(l.percentile_us(0.95)),
            us(l.percentile_us(0.99)),
            us(l.max_us()),
            us(self.cpu_us()),
            self.written_per_byte().map_or("-".into(), |w| format!("{w:.3}")),
            format!("{:.0}", self.peak_bytes as f64 / f64::from(1 << 20)),
        ]
    }

    fn json(&self) -> Value {
        let l = &self.latencies;
        json!({
            "name": self.name,
            "depth": self.depth,
            "block_bytes": self.block,
            "operations": l.count(),
            "seconds": self.seconds,
            "iops": self.rate(),
            "bytes_per_second": self.bytes_per_second(),
            "latency_us": {
                "mean": l.mean_us(),
                "p50": l.percentile_us(0.5),
                "p95": l.percentile_us(0.95),
                "p99": l.percentile_us(0.99),
                "max": l.max_us(),
            },
            "cpu_us_per_operation": self.cpu_us(),
            "written_per_byte": self.written_per_byte(),
            "kernel_write_bytes": self.kernel_written,
            "flushes": self.flushes,
            "checkpoints": self.checkpoints,
            "stalls": self.stalls,
            "reads_beside": self.is_read().then_some(self.beside),
            "memory_peak_bytes": self.peak_bytes,
        })
    }
}

const HEAD: [&str; 12] = [
    "",
    "depth",
    "ops",
    "ops/s",
    "MiB/s",
    "p50 us",
    "p95 us",
    "p99 us",
    "max us",
    "CPU us/op",
    "written/byte",
    "peak MiB",
];

/// The many small objects, and the store's own times.
#[derive(Debug)]
pub struct Many {
    pub objects: u64,
    pub replay_seconds: f64,
    pub replayed: u64,
    pub list_seconds: f64,
    pub listed: u64,
    pub close_seconds: f64,
    pub open_seconds: f64,
    pub resident_bytes: u64,
}

#[derive(Debug, Default)]
pub struct Results {
    pub dir: String,
    pub size: u64,
    pub memory: u64,
    pub disk_io: String,
    pub measured: Vec<Measured>,
    /// A clean stop and start with the data of `size`.
    pub close_seconds: Option<f64>,
    pub open_seconds: Option<f64>,
    pub many: Option<Many>,
    pub interrupted: bool,
}

impl Results {
    pub fn plain(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(
            out,
            "{}: {} of data, {} of memory, disk io {}\n",
            self.dir,
            bytes(self.size),
            bytes(self.memory),
            self.disk_io
        )?;
        let mut rows = vec![HEAD.iter().map(|s| s.to_string()).collect()];
        rows.extend(self.measured.iter().map(Measured::row));
        table(out, &[0], &rows)?;
        if let (Some(close), Some(open)) = (self.close_seconds, self.open_seconds) {
            writeln!(out, "\nclean stop {close:.2} s, start {open:.2} s")?;
        }
        if let Some(m) = &self.many {
            writeln!(
                out,
                "\n{} objects of {}: start after a kill {:.2} s ({} transactions from the log), list {:.2} s, \
                 clean stop {:.2} s, start {:.2} s, {} resident",
                m.objects,
                bytes(BLOCK),
                m.replay_seconds,
                m.replayed,
                m.list_seconds,
                m.close_seconds,
                m.open_seconds,
                bytes(m.resident_bytes)
            )?;
        }
        if self.interrupted {
            writeln!(
                out,
                "\ninterrupted: the last figures are of less than was asked for"
            )?;
        }
        Ok(())
    }

    pub fn json(&self, out: &mut impl Write) -> std::io::Result<()> {
        let many = self.many.as_ref().map(|m| {
            json!({
                "objects": m.objects,
                "replay_seconds": m.replay_seconds,
                "replayed": m.replayed,
                "list_seconds": m.list_seconds,
                "listed": m.listed,
                "close_seconds": m.close_seconds,
                "open_seconds": m.open_seconds,
                "resident_bytes": m.resident_bytes,
            })
        });
        let all = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "dir": self.dir,
            "size": self.size,
            "memory": self.memory,
            "disk_io": self.disk_io,
            "results": self.measured.iter().map(Measured::json).collect::<Vec<_>>(),
            "close_seconds": self.close_seconds,
            "open_seconds": self.open_seconds,
            "many": many,
            "interrupted": self.interrupted,
        });
        writeln!(out, "{all:#}")
    }
}
