//! `skep bench rados`: operations per second, latencies, and the CPU that they take, by our own client, against any cluster.
//!
//! Objects are called `skep_bench_NUMBER`, one per operation under way; they are removed at the end. Writes are overwrites of whole
//! blocks at random places of them, so what is measured is the steady state, not the making of objects.

use crate::args::{BenchOp, BenchRados, Format};
use crate::store::bench::measure::Latencies;
use ::client::{Client, Conf, IoCtx, Operation};
use node::Error;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Of an object; blocks larger than that make larger ones.
const OBJECT: u64 = 4 << 20;
/// What /proc counts CPU time in.
const TICKS_PER_S: f64 = 100.0;

pub fn run(args: &BenchRados) -> Result<(), Error> {
    let conf = Conf::read(&args.conf, &args.name, args.keyring.as_deref()).map_err(failed)?;
    let done = io::task::block_on(async {
        let client = Client::connect(conf).await.map_err(failed)?;
        let io = client.pool(&args.pool).await.map_err(failed)?;
        let report = measure(&io, args).await;
        client.shutdown().await;
        report
    });
    let report = done.map_err(|source| Error::Io {
        what: "runtime".into(),
        source,
    })??;
    report.print(args);
    Ok(())
}

fn failed(e: ::client::Error) -> Error {
    Error::Usage(e.to_string())
}

struct Report {
    latencies: Latencies,
    seconds: f64,
    /// CPU seconds of this process, and of those that were named.
    client_cpu: Option<f64>,
    server_cpu: Option<f64>,
}

struct Shared {
    io: IoCtx,
    size: u64,
    write: bool,
    until: Cell<Instant>,
    latencies: RefCell<Latencies>,
}

async fn measure(io: &IoCtx, args: &BenchRados) -> Result<Report, Error> {
    if args.size == 0 || args.size > ::client::core::op::DATA_MAX as u64 {
        return Err(Error::Usage("--size: 1 byte to 90 MiB".into()));
    }
    let names: Vec<String> = (0..args.depth).map(|n| format!("skep_bench_{n}")).collect();
    prepare(io, &names, args.size).await.map_err(failed)?;
    let shared = Rc::new(Shared {
        io: io.clone(),
        size: args.size,
        write: args.op == BenchOp::Write,
        until: Cell::new(Instant::now() + Duration::from_secs(args.seconds)),
        latencies: RefCell::new(Latencies::new()),
    });
    let start = Instant::now();
    let (client_cpu, server_cpu) = (cpu_of(&["self".into()]), cpu_of(&args.pid));
    let workers: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(n, name)| io::task::spawn_local(work(shared.clone(), name.clone(), n as u64)))
        .collect();
    let mut told = Ok(());
    for worker in workers {
        let ended = worker.await.map_err(|e| Error::Usage(e.to_string()))?;
        told = told.and(ended);
    }
    let spent = |before: Option<f64>, pids: &[String]| Some(cpu_of(pids)? - before?);
    let report = Report {
        seconds: start.elapsed().as_secs_f64(),
        client_cpu: spent(client_cpu, &["self".into()]),
        server_cpu: spent(server_cpu, &args.pid),
        latencies: shared.latencies.replace(Latencies::new()),
    };
    for name in &names {
        io.remove(name).await.map_err(failed)?;
    }
    told.map_err(failed)?;
    Ok(report)
}

/// Writes every object full, so that reads find data and writes overwrite.
async fn prepare(io: &IoCtx, names: &[String], size: u64) -> ::client::Result<()> {
    let full = vec![0x5a; OBJECT.max(size) as usize];
    for name in names {
        io.write_full(name, full.clone()).await?;
    }
    Ok(())
}

/// One operation after the other.
async fn work(shared: Rc<Shared>, name: String, seed: u64) -> ::client::Result<()> {
    let blocks = (OBJECT / shared.size).max(1);
    let data = bytes::Bytes::from(vec![seed as u8; shared.size as usize]);
    // Places need not be unpredictable, only spread.
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    loop {
        let before = Instant::now();
        if before >= shared.until.get() {
            return Ok(());
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let at = random % blocks * shared.size;
        let op = match shared.write {
            true => Operation::new().write(at, data.clone()),
            false => Operation::new().read(at, shared.size),
        };
        shared.io.operate(&name, op).await?.done()?;
        shared.latencies.borrow_mut().add(before.elapsed());
    }
}

/// CPU seconds that processes have used so far; None: one of them cannot be seen, or none was named.
fn cpu_of(pids: &[String]) -> Option<f64> {
    if pids.is_empty() {
        return None;
    }
    let of = |pid: &String| {
        let path = PathBuf::from("/proc").join(pid).join("stat");
        let text = io::files::read(&path).ok().flatten()?;
        // Behind the name, which may hold anything: user and system time are the 12th and 13th fields.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |n: usize| fields.get(n)?.parse::<f64>().ok();
        Some((ticks(11)? + ticks(12)?) / TICKS_PER_S)
    };
    pids.iter().map(of).sum()
}

impl Report {
    fn print(&self, args: &BenchRados) {
        let ops = self.latencies.count();
        let per_s = ops as f64 / self.seconds;
        let per_op = |cpu: Option<f64>| cpu.map(|s| s * 1e6 / (ops.max(1) as f64));
        let (client, server) = (per_op(self.client_cpu), per_op(self.server_cpu));
        let at = |p: f64| self.latencies.percentile_us(p / 100.0).round();
        let marks = [50.0, 90.0, 99.0, 99.9, 100.0];
        if args.format == Format::Json {
            let latency: serde_json::Map<String, serde_json::Value> =
                marks.iter().map(|p| (format!("p{p}"), json!(at(*p)))).collect();
            let report = json!({
                "op": args.op.name(), "size": args.size, "depth": args.depth, "seconds": self.seconds,
                "ops": ops, "ops_per_s": per_s, "bytes_per_s": per_s * args.size as f64,
                "latency_us": latency, "client_cpu_us_per_op": client, "server_cpu_us_per_op": server,
            });
            println!("{report:#}");
            return;
        }
        let op = args.op.name();
        println!(
            "{op} of {} bytes, {} at a time, {:.1} s",
            args.size, args.depth, self.seconds
        );
        println!(
            "  {ops} operations, {per_s:.0}/s, {:.1} MiB/s",
            per_s * args.size as f64 / f64::from(1 << 20)
        );
        let marks: Vec<String> = marks.iter().map(|p| format!("p{p} {}", at(*p))).collect();
        println!("  latency in us: {}", marks.join(", "));
        let cpu = |v: Option<f64>| v.map_or("unknown".into(), |v| format!("{v:.1}"));
        println!(
            "  CPU us per operation: client {}, server {}",
            cpu(client),
            cpu(server)
        );
    }
}
