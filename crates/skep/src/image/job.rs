//! Several copies at once: a thread each, with a connection of its own, what is shown meanwhile, and what is said at the end.

use super::args::Common;
use super::digest;
use super::flow::{Flow, failed};
use super::format::Format;
use crate::options;
use ::client::{Client, Conf, IoCtx};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use node::Error;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// What is known of a copy that is done and verified.
pub struct Copied {
    pub format: Format,
    pub size: u64,
    /// Bytes of pieces that are not all zeros.
    pub data: u64,
    pub digest: String,
}

/// One copy to make: from where, to where, for people.
pub struct Job {
    pub from: String,
    pub to: String,
    /// Names of both in the output for programs.
    pub keys: (&'static str, &'static str),
}

pub async fn connect(common: &Common) -> Result<Client, Error> {
    let c = &common.cluster;
    let conf = Conf::read(&c.conf, &c.name, c.keyring.as_deref()).map_err(failed)?;
    Client::connect(conf).await.map_err(failed)
}

pub async fn pool(client: &Client, common: &Common) -> Result<IoCtx, Error> {
    let found = client.pool(&common.pool).await;
    let mut io = found.map_err(|e| failed(format!("pool '{}': {e}", common.pool)))?;
    if let Some(namespace) = &common.namespace {
        io.set_namespace(namespace.clone());
    }
    Ok(io)
}

/// True from the first signal on; the second one ends the process at once.
pub fn stopped_by_signals() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let second = signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone());
        let first = second.and_then(|_| signal_hook::flag::register(signal, stop.clone()));
        first.map_err(|e| failed(format!("signals: {e}")))?;
    }
    Ok(stop)
}

struct Outcome {
    job: usize,
    seconds: f64,
    done: Result<Copied, Error>,
}

/// Makes all copies by `one`, which gets the number of its job. An error if one of them failed.
pub fn run<F>(common: &Common, jobs: &[Job], one: impl Fn(usize, Flow) -> F + Sync) -> Result<(), Error>
where
    F: Future<Output = Result<Copied, Error>>,
{
    let stop = stopped_by_signals()?;
    let (bars, next) = (MultiProgress::new(), AtomicUsize::new(0));
    let (sender, outcomes) = channel();
    let mut all: Vec<Outcome> = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..jobs.len().min(common.jobs as usize) {
            let (sender, stop, bars, next, one) = (sender.clone(), &stop, &bars, &next, &one);
            scope.spawn(move || {
                while let Some((number, job)) = numbered(jobs, next) {
                    let bar = bars.add(bar_of(&job.from));
                    let (stop, start) = (stop.clone(), Instant::now());
                    let flow = Flow {
                        bar: bar.clone(),
                        stop,
                    };
                    let done = io::task::block_on(one(number, flow)).map_err(failed);
                    bar.finish_and_clear();
                    let outcome = Outcome {
                        job: number,
                        seconds: start.elapsed().as_secs_f64(),
                        done: done.and_then(|d| d),
                    };
                    let _ = sender.send(outcome);
                }
            });
        }
        drop(sender);
        for outcome in outcomes {
            bars.suspend(|| tell(common, &jobs[outcome.job], &outcome));
            all.push(outcome);
        }
    });
    end(common, jobs, all)
}

fn numbered<'a>(jobs: &'a [Job], next: &AtomicUsize) -> Option<(usize, &'a Job)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(number).map(|job| (number, job))
}

/// Nothing is drawn where stderr is no terminal.
pub fn bar_of(name: &str) -> ProgressBar {
    let bar = ProgressBar::new(0).with_message("opening");
    let line = "{prefix:24!} {msg:10} {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(line) {
        bar.set_style(style);
    }
    bar.set_prefix(name.to_string());
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// A job's outcome, as soon as it is known.
fn tell(common: &Common, job: &Job, outcome: &Outcome) {
    match &outcome.done {
        Err(e) => eprintln!("skep: {}: {e}", job.from),
        Ok(c) if common.format == options::Format::Plain => println!(
            "{} -> {}: {}, {} bytes, {} of them in pieces with data, {:.1} s, verified, {} {}",
            job.from,
            job.to,
            c.format,
            c.size,
            c.data,
            outcome.seconds,
            digest::NAME,
            c.digest
        ),
        Ok(_) => {}
    }
}

fn end(common: &Common, jobs: &[Job], mut all: Vec<Outcome>) -> Result<(), Error> {
    all.sort_by_key(|o| o.job);
    if common.format == options::Format::Json {
        let rows = all.iter().map(|o| row(&jobs[o.job], o)).collect();
        println!("{}", Value::Array(rows));
    }
    let bad = all.iter().filter(|o| o.done.is_err()).count();
    match (bad, jobs.len()) {
        (0, _) => Ok(()),
        (1, 1) => Err(failed("it was not copied")),
        (bad, of) => Err(failed(format!("{bad} of {of} were not copied"))),
    }
}

fn row(job: &Job, outcome: &Outcome) -> Value {
    let (from, to) = job.keys;
    match &outcome.done {
        Err(e) => json!({from: job.from, to: job.to, "error": e.to_string()}),
        Ok(c) => json!({
            from: job.from,
            to: job.to,
            "format": c.format.name(),
            "size": c.size,
            "data": c.data,
            "seconds": outcome.seconds,
            "verified": true,
            "checksum": format!("{}:{}", digest::NAME, c.digest),
        }),
    }
}
