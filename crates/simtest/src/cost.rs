//! What an operation costs the servers, in numbers that depend on no machine: instructions, allocations, and calls at the doors
//! (disk and sockets).
//!
//! Vocabulary: a *window* is a stretch of virtual time in which a *job* runs and everything that it leaves to do later (write-back,
//! the index) comes to its end. What the OSDs do by themselves meanwhile is known from a window in which nobody asks for anything,
//! and is taken off. Three OSDs as in one process, three copies, a client of the product's whose own cost is not counted ([`meter`]).
//!
//! Invariants: the same build gives the same counts, also under valgrind. Instructions are counted by callgrind where the program
//! runs under it, which writes one profile for each window.
//!
//! Not here: what the numbers should be (`tests/cost`), what the kernel does, time.

pub mod doors;
pub mod meter;

use crate::cluster::Cluster;
use crate::disk::Pace;
use crate::places::{POOL, client_host, mon_addr};
use bytes::Bytes;
use client::{Client, Conf, IoCtx, Operation, Platform};
use io_sim::{Dice, Sim, Weather};
use meter::Counts;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;
use types::{AuthName, EntityKind};

const OSDS: usize = 3;
const COPIES: u8 = 3;
const PGS: u32 = 16;
/// What is overwritten and read: more than the caches of the stores hold.
const OBJECTS: u64 = 16;
const OBJECT_BYTES: u64 = 1 << 20;
const BLOCK: u64 = 4 << 10;
const LARGE_BLOCK: u64 = 64 << 10;
/// Rows of an object's omap, and the size of each.
const ROWS: u64 = 256;
const ROW_BYTES: usize = 100;
/// Small, so that it has gone round before anything is counted: what it writes the first time it clears first.
const LOG_BYTES: u64 = 8 << 20;
/// Written before anything is counted: each leaves two blocks in every log.
const FIRST_WRITES: u64 = LOG_BYTES / (2 * BLOCK) + 64;
/// Operations before a window that are not counted.
const WARM_UP: u64 = 32;
/// Longer than a change waits for its checkpoint.
const SETTLED: Duration = Duration::from_secs(7);
const UP_MAX: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);
/// Flushes take so long, always.
const FLUSH_US: u64 = 1000;
/// The window in which nobody asks for anything.
pub const IDLE: &str = "idle-second";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write(u64),
    Read(u64),
    OmapSet,
}

#[derive(Debug, Clone, Copy)]
pub struct Job {
    pub name: &'static str,
    kind: Kind,
    depth: u64,
    ops: u64,
}

const fn job(name: &'static str, kind: Kind, depth: u64, ops: u64) -> Job {
    Job {
        name,
        kind,
        depth,
        ops,
    }
}

pub const JOBS: &[Job] = &[
    job("write-4k-depth-1", Kind::Write(BLOCK), 1, 256),
    job("write-4k-depth-16", Kind::Write(BLOCK), 16, 512),
    job("read-4k-depth-1", Kind::Read(BLOCK), 1, 512),
    job("read-4k-depth-16", Kind::Read(BLOCK), 16, 1024),
    job("write-64k-depth-4", Kind::Write(LARGE_BLOCK), 4, 128),
    job("omap-set-depth-1", Kind::OmapSet, 1, 256),
];

/// What a window came to.
#[derive(Debug, Clone)]
pub struct Window {
    pub name: &'static str,
    /// Operations; of [`IDLE`], none.
    pub ops: u64,
    pub virtual_s: f64,
    pub counts: Counts,
}

/// Runs one job, or all, and the window without one.
pub async fn run(sim: Sim, only: Option<&str>) -> Result<Vec<Window>, String> {
    doors::install(&sim);
    sim.trace.count_only();
    sim.net.set_weather(Weather {
        latency_us: (0, 0),
        ..Weather::FAIR
    });
    let cluster = bring_up(&sim).await?;
    let jobs: Vec<Job> = JOBS
        .iter()
        .filter(|j| only.is_none_or(|o| o == j.name))
        .copied()
        .collect();
    let (told, windows) = oneshot::channel();
    let (its, host) = (sim.clone(), client_host(0));
    let client = sim.start(host, async move {
        let done = Asker::connect(&its).await;
        let done = match done {
            Ok(asker) => measure(&Rc::new(asker), &jobs).await,
            Err(e) => Err(e),
        };
        // Who waits for it lives as long as the simulation.
        let _ = told.send(done);
    });
    let windows = windows.await.map_err(|e| e.to_string())?;
    client.kill();
    match cluster.wrongs.borrow().first() {
        Some(wrong) => Err(wrong.clone()),
        None => windows,
    }
}

async fn bring_up(sim: &Sim) -> Result<Rc<Cluster>, String> {
    let cluster = Rc::new(Cluster::create(sim).await?);
    cluster.slow_reads.set(true);
    cluster.metered.set(true);
    cluster.log_bytes.set(LOG_BYTES);
    // As in one process.
    cluster.lanes.replace(Some(net::Lanes::default()));
    for _ in 0..OSDS {
        let node = cluster.add_osd(Duration::ZERO, 0)?;
        node.pacing.set(Pace {
            flush_us: (FLUSH_US, FLUSH_US),
            hangs: false,
        });
        cluster.start_osd(&node);
    }
    cluster.start_mon();
    while !(0..OSDS as i32).all(|id| cluster.view.osdmap().is_up(id)) {
        if sim.elapsed() > UP_MAX {
            return Err("the OSDs do not come up".into());
        }
        sleep(TICK).await;
    }
    cluster.add_pool(COPIES, COPIES - 1, PGS).await?;
    match crate::check::becomes_clean(&cluster, UP_MAX).await {
        None => Ok(cluster),
        Some(why) => Err(format!("the cluster does not become clean: {why}")),
    }
}

async fn measure(asker: &Rc<Asker>, jobs: &[Job]) -> Result<Vec<Window>, String> {
    asker.fill().await?;
    sleep(SETTLED).await;
    meter::start();
    let mut windows = vec![asker.window(IDLE, None).await?];
    for job in jobs {
        let warm = Job { ops: WARM_UP, ..*job };
        work(asker, warm).await?;
        sleep(SETTLED).await;
        windows.push(asker.window(job.name, Some(*job)).await?);
    }
    Ok(windows)
}

/// The client.
struct Asker {
    sim: Sim,
    pool: IoCtx,
    dice: RefCell<Dice>,
}

impl Asker {
    async fn connect(sim: &Sim) -> Result<Self, String> {
        let platform = Platform {
            clock: sim.clock(Duration::ZERO, 0),
            random: sim.random("client"),
        };
        let admin = AuthName::new(EntityKind::Client, "admin");
        let conf = Conf::new(admin, vec![mon_addr()], None);
        let client = Client::connect_with(conf, platform).await;
        let client = client.map_err(|e| e.to_string())?;
        Ok(Self {
            sim: sim.clone(),
            pool: client.pool_by_id(POOL),
            dice: RefCell::new(sim.dice("places")),
        })
    }

    fn below(&self, bound: u64) -> u64 {
        self.dice.borrow_mut().below(bound)
    }

    async fn operate(&self, object: u64, operation: Operation) -> Result<(), String> {
        let done = self.pool.operate(format!("object.{object:04}"), operation).await;
        let done = done.and_then(client::Outcome::done);
        done.map(drop).map_err(|e| e.to_string())
    }

    /// Every block, and every row: from then on all is overwritten, and logs are full.
    async fn fill(self: &Rc<Self>) -> Result<(), String> {
        let whole = Bytes::from(vec![1; OBJECT_BYTES as usize]);
        for object in 0..OBJECTS {
            let rows = (0..ROWS).map(row).collect();
            let all = Operation::new().write_full(whole.clone()).set_omap(&rows);
            self.operate(object, all).await?;
        }
        let first = job("", Kind::Write(BLOCK), 16, FIRST_WRITES);
        work(self, first).await
    }

    async fn ask(&self, kind: Kind) -> Result<(), String> {
        let object = self.below(OBJECTS);
        let place = |block: u64| self.below(OBJECT_BYTES / block) * block;
        let operation = Operation::new();
        let operation = match kind {
            // As librbd writes.
            Kind::Write(block) => {
                let data = Bytes::from(vec![self.below(256) as u8; block as usize]);
                let hinted = operation.alloc_hint(OBJECT_BYTES, OBJECT_BYTES, 0);
                hinted.write(place(block), data)
            }
            Kind::Read(block) => operation.read(place(block), block),
            Kind::OmapSet => operation.set_omap(&BTreeMap::from([row(self.below(ROWS))])),
        };
        self.operate(object, operation).await
    }

    async fn window(self: &Rc<Self>, name: &'static str, job: Option<Job>) -> Result<Window, String> {
        let began = self.sim.elapsed();
        meter::begin();
        if let Some(job) = job {
            work(self, job).await?;
        }
        sleep(SETTLED).await;
        let counts = meter::end(name);
        Ok(Window {
            name,
            ops: job.map_or(0, |j| j.ops),
            virtual_s: (self.sim.elapsed() - began).as_secs_f64(),
            counts,
        })
    }
}

fn row(n: u64) -> (Bytes, Bytes) {
    (format!("key.{n:06}").into(), vec![n as u8; ROW_BYTES].into())
}

/// `depth` tasks, each one operation after the other.
async fn work(asker: &Rc<Asker>, job: Job) -> Result<(), String> {
    let tasks: Vec<_> = (0..job.depth)
        .map(|n| {
            let asker = asker.clone();
            let ops = job.ops / job.depth + u64::from(n < job.ops % job.depth);
            tokio::task::spawn_local(async move {
                for _ in 0..ops {
                    asker.ask(job.kind).await?;
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.map_err(|e| e.to_string())??;
    }
    Ok(())
}
