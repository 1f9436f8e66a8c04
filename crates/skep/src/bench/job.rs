//! Runs a job: clients as threads, tasks in them, and what they saw put together.

use super::args::{Job, Rw};
use super::cpu;
use super::report::{Report, Seen};
use super::target::{Target, connect, failed, usage};
use ::client::Client;
use bytes::Bytes;
use node::Error;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::IsTerminal;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

/// Blocks of all operations under way: they are in memory.
const MEMORY_MAX: u64 = 1 << 30;
/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(200);

/// What all clients know.
struct Shared {
    job: Job,
    /// Until all have filled what they made.
    ready: Barrier,
    /// Until what was seen is noted, and what was made may go.
    over: Barrier,
    stop: AtomicBool,
    done: AtomicU64,
    begun: AtomicU64,
    /// Processes of the server on this machine; the first client finds them.
    servers: OnceLock<Vec<u32>>,
}

impl Shared {
    fn new(job: &Job) -> Self {
        let parties = job.clients as usize + 1;
        Self {
            job: job.clone(),
            ready: Barrier::new(parties),
            over: Barrier::new(parties),
            stop: AtomicBool::new(false),
            done: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            servers: OnceLock::new(),
        }
    }
}

fn check(job: &Job) -> Result<(), Error> {
    let memory = u64::from(job.clients) * u64::from(job.depth) * job.block_size;
    if memory > MEMORY_MAX {
        return usage(format!(
            "{} clients with {} blocks of {} bytes each under way take {memory} bytes; at most 1G",
            job.clients, job.depth, job.block_size
        ));
    }
    if !job.pid.is_empty() && cpu::of(&job.pid).is_none() {
        return usage("--pid: no such process");
    }
    Ok(())
}

pub fn run<T, M, F>(kind: &'static str, job: &Job, make: M) -> Result<(), Error>
where
    T: Target,
    F: Future<Output = Result<T, Error>>,
    M: Fn(Client, u32) -> F + Clone + Send + 'static,
{
    check(job)?;
    let shared = Arc::new(Shared::new(job));
    let (sender, results) = channel();
    let threads: Vec<_> = (0..job.clients)
        .map(|number| {
            let (shared, make, sender) = (shared.clone(), make.clone(), sender.clone());
            std::thread::spawn(move || {
                let told = io::task::block_on(client(&shared, number, make, |seen| {
                    let _ = sender.send(seen);
                }));
                told.map_err(failed).and_then(|t| t)
            })
        })
        .collect();
    drop(sender);
    let bar = crate::up::spinner("preparing");
    shared.ready.wait();
    let servers = match job.pid.is_empty() {
        true => shared.servers.get().cloned().unwrap_or_default(),
        false => job.pid.clone(),
    };
    let (own, server, start) = (cpu::own(), cpu::of(&servers), Instant::now());
    let seen = watch(&shared, &results, &bar, start);
    let seconds = start.elapsed().as_secs_f64();
    let spent = |before: Option<f64>, now: Option<f64>| Some(now? - before?);
    let (own, server) = (spent(own, cpu::own()), spent(server, cpu::of(&servers)));
    bar.set_message("removing what was made");
    shared.over.wait();
    let mut told = Ok(());
    for thread in threads {
        let ended = thread
            .join()
            .unwrap_or_else(|_| usage("a client's thread failed"));
        told = told.and(ended);
    }
    bar.finish_and_clear();
    told?;
    let report = Report {
        kind,
        job: job.clone(),
        seconds,
        seen,
        client_cpu: own,
        server_cpu: server,
        servers,
    };
    report.print();
    Ok(())
}

/// Waits for the clients' results; stops them when the time is over.
fn watch(
    shared: &Shared,
    results: &std::sync::mpsc::Receiver<Seen>,
    bar: &indicatif::ProgressBar,
    start: Instant,
) -> Seen {
    let (mut all, mut waiting) = (Seen::new(), shared.job.clients);
    let end = start + Duration::from_secs(shared.job.seconds);
    let shows = std::io::stderr().is_terminal();
    while waiting > 0 {
        let now = Instant::now();
        if now >= end {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let pause = LOOK
            .min(end.saturating_duration_since(now))
            .max(Duration::from_millis(1));
        if let Ok(seen) = results.recv_timeout(pause) {
            all.add(&seen);
            waiting -= 1;
        }
        if shows {
            let (done, s) = (shared.done.load(Ordering::Relaxed), start.elapsed().as_secs_f64());
            bar.set_message(format!(
                "{done} operations, {:.0}/s, {s:.0} s",
                done as f64 / s.max(0.001)
            ));
            bar.tick();
        }
    }
    all
}

/// One client, from its connection to its end. It meets the others at both barriers whatever happens to it.
async fn client<T, M, F>(shared: &Arc<Shared>, number: u32, make: M, tell: impl Fn(Seen)) -> Result<(), Error>
where
    T: Target,
    F: Future<Output = Result<T, Error>>,
    M: Fn(Client, u32) -> F,
{
    let made = async {
        let client = connect(&shared.job).await?;
        if number == 0 {
            let map = client.map().map_err(failed)?;
            let places = map
                .osds
                .iter()
                .filter_map(|o| o.client_addrs.msgr2_or_first().sock);
            let _ = shared.servers.set(cpu::servers(&places.collect::<Vec<_>>()));
        }
        let target = make(client.clone(), number).await?;
        Ok::<_, Error>((client, target))
    };
    let made = made.await;
    if made.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    shared.ready.wait();
    let (client, target) = match made {
        Ok(both) => both,
        Err(e) => {
            tell(Seen::new());
            shared.over.wait();
            return Err(e);
        }
    };
    let target = Rc::new(target);
    let (seen, done) = work_all(shared, &target, number).await;
    tell(seen);
    shared.over.wait();
    let ended = match Rc::try_unwrap(target) {
        Ok(target) => target.end().await,
        Err(_) => usage("an operation is still under way"),
    };
    client.shutdown().await;
    done.and(ended)
}

/// What the tasks of a client share.
struct Work<T> {
    shared: Arc<Shared>,
    target: Rc<T>,
    /// Of a job that goes from block to block: the next one.
    next: Cell<u64>,
    seen: RefCell<Seen>,
}

async fn work_all<T: Target>(shared: &Arc<Shared>, target: &Rc<T>, number: u32) -> (Seen, Result<(), Error>) {
    let work = Rc::new(Work {
        shared: shared.clone(),
        target: target.clone(),
        next: Cell::new(0),
        seen: RefCell::new(Seen::new()),
    });
    let tasks: Vec<_> = (0..shared.job.depth)
        .map(|n| {
            let seed = u64::from(number) << 32 | u64::from(n);
            io::task::spawn_local(work_one(work.clone(), seed))
        })
        .collect();
    let mut told = Ok(());
    for task in tasks {
        told = told.and(task.await.map_err(failed).and_then(|t| t));
    }
    (work.seen.replace(Seen::new()), told)
}

/// One operation after the other; an error ends the whole job.
async fn work_one<T: Target>(work: Rc<Work<T>>, seed: u64) -> Result<(), Error> {
    let shared = &work.shared;
    let (job, size) = (&shared.job, shared.job.block_size);
    let blocks = work.target.span() / size;
    let data = Bytes::from(vec![seed as u8 | 1; size as usize]);
    // Places need not be unpredictable, only spread.
    let mut random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    loop {
        let limit = job.ops.unwrap_or(u64::MAX);
        if shared.stop.load(Ordering::Relaxed) || shared.begun.fetch_add(1, Ordering::Relaxed) >= limit {
            return Ok(());
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let block = match job.rw.is_random() {
            true => random % blocks,
            false => work.next.replace(work.next.get() + 1) % blocks,
        };
        let reads = match job.rw {
            Rw::Randread | Rw::Read => true,
            Rw::Randwrite | Rw::Write => false,
            Rw::Mix => (random >> 40) % 100 < u64::from(job.mix_read),
        };
        let before = Instant::now();
        let done = match reads {
            true => work.target.read(block * size, size).await.map(drop),
            false => work.target.write(block * size, data.clone()).await,
        };
        if let Err(e) = done {
            shared.stop.store(true, Ordering::Relaxed);
            return Err(e);
        }
        shared.done.fetch_add(1, Ordering::Relaxed);
        work.seen.borrow_mut().note(reads, before.elapsed());
    }
}
