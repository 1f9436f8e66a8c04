//! One seed from beginning to end: the cluster comes up, clients work while faults come and go, all is healed, and the
//! checkers look.

use crate::acks::Acks;
use crate::chaos::{self, Clients};
use crate::check;
use crate::client::Rados;
use crate::cluster::{Cluster, open_state};
use crate::contract;
use crate::places::{POOL, client_host};
use crate::plan::Plan;
use crate::wishes;
use crate::workload::{self, History};
use io_sim::{Process, Sim};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// Virtual time in which a new cluster is to be clean, and one that was healed.
const UP_MAX: Duration = Duration::from_secs(60);
const HEALED_MAX: Duration = Duration::from_secs(30);
/// The same where a pool may be on its way to another number of PGs, which takes steps.
const EVENED_MAX: Duration = Duration::from_secs(120);
/// In which the clients' last operations are to be answered after that.
const LAST_MAX: Duration = Duration::from_secs(60);

/// What a seed gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub wrongs: Vec<String>,
    /// Of the trace, where it was hashed.
    pub hash: Option<u64>,
    pub events: u64,
    /// Operations that were answered.
    pub answered: u64,
    /// Of these, reads that a copy answered.
    pub by_copies: u64,
    pub scrubs: Scrubbed,
    pub rot: Rotten,
    /// Commands of operators whose outcome nobody told them.
    pub doubts: u64,
    pub virtual_ms: u64,
}

/// Runs of scrubs, and what they found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scrubbed {
    pub ended: u64,
    pub given_up: u64,
    pub bad_copies: u64,
}

/// Bits that flipped, and what that cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rotten {
    pub bits: u64,
    /// Operations that ended with EIO, and PGs that stayed unclean, where nobody else was in sync.
    pub operations: u64,
    pub pgs: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hash {
            Some(hash) => write!(f, "hash {hash:016x}")?,
            None => f.write_str("no hash")?,
        }
        write!(
            f,
            ", {} events, {} operations, {} by copies, {} virtual ms",
            self.events, self.answered, self.by_copies, self.virtual_ms
        )?;
        let (s, r) = (self.scrubs, self.rot);
        write!(
            f,
            ", {} scrubs, {} given up, {} bad copies, {} commands in doubt",
            s.ended, s.given_up, s.bad_copies, self.doubts
        )?;
        if r.bits > 0 {
            write!(
                f,
                ", {} bits flipped, {} EIO excused, {} PGs lost",
                r.bits, r.operations, r.pgs
            )?;
        }
        self.wrongs.iter().try_for_each(|w| write!(f, "\n  WRONG {w}"))
    }
}

/// Which runs a seed is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Copies,
    /// With all that evens the cluster out.
    Evening,
    /// The pool has shards in place of copies.
    Shards,
}

/// What a seed is to be.
pub fn plan(sim: &Sim, kind: Kind) -> Plan {
    let mut plan = Plan::draw(&mut sim.dice("plan"));
    plan.more(&mut sim.dice("more of the plan"));
    plan.merges(&mut sim.dice("merges of the plan"));
    plan.walls(&mut sim.dice("firewalls"));
    plan.readers(&mut sim.dice("readers"));
    plan.latest(&mut sim.dice("the latest of the plan"));
    plan.thrash(&mut sim.dice("thrasher"));
    plan.largest(&mut sim.dice("largest"));
    plan.marks(&mut sim.dice("marked down"));
    plan.compression(&mut sim.dice("compression"));
    plan.evening(&mut sim.dice("evening"), kind == Kind::Evening);
    plan.shards(&mut sim.dice("shards"), kind == Kind::Shards);
    plan
}

/// The run of a plan.
pub async fn seed(sim: Sim, plan: Plan) -> Outcome {
    sim.trace.note(format_args!("PLAN {plan}"));
    let history = Rc::new(History::default());
    let mut lived = Lived::default();
    if let Err(why) = live(&sim, &plan, &history, &mut lived).await {
        lived.wrongs.push(why);
    }
    let mut wrongs = lived.wrongs;
    wrongs.extend(history.errors.borrow().iter().cloned());
    wrongs.extend(check::linearizable(&history));
    Outcome {
        wrongs,
        hash: sim.trace.hash(),
        events: sim.trace.events(),
        answered: history.answered.get(),
        by_copies: history.by_copies.get(),
        scrubs: lived.scrubs,
        rot: Rotten {
            operations: history.excused.get(),
            ..lived.rot
        },
        doubts: lived.doubts,
        virtual_ms: sim.elapsed().as_millis() as u64,
    }
}

/// What a run came to, beside what its clients saw.
#[derive(Default)]
struct Lived {
    wrongs: Vec<String>,
    scrubs: Scrubbed,
    rot: Rotten,
    doubts: u64,
}

async fn live(sim: &Sim, plan: &Plan, history: &Rc<History>, lived: &mut Lived) -> Result<(), String> {
    let cluster = Rc::new(Cluster::create(sim).await?);
    cluster.slow_reads.set(plan.slow_reads);
    cluster
        .lanes
        .replace(plan.is_one_process().then(Default::default));
    cluster.by_commands.set(plan.by_commands);
    sim.net.set_weather(plan.weather);
    for (skew, drift) in &plan.clocks {
        let node = cluster.add_osd(*skew, *drift)?;
        cluster.start_osd(&node);
    }
    cluster.start_mon();
    if plan.doubts() {
        cluster.appoint_operator().await?;
    }
    let up = |c: &Cluster| (0..plan.osds as i32).all(|id| c.view.osdmap().is_up(id));
    while !up(&cluster) {
        if sim.elapsed() > UP_MAX {
            return Err("the OSDs of a new cluster do not come up".into());
        }
        sleep(Duration::from_millis(50)).await;
    }
    cluster.coded.set(plan.coded);
    cluster.add_pool(plan.size, plan.min_size, plan.pgs).await?;
    if let Some(algorithm) = plan.compression {
        cluster.compress_pool(algorithm).await?;
    }
    if let Some(why) = check::becomes_clean(&cluster, UP_MAX).await {
        return Err(format!("the new cluster does not become clean: {why}"));
    }
    if plan.evens {
        cluster.even_out(true).await?;
    }
    Acks::judge(history, &cluster);
    contract::watch(&cluster);
    let stop = Rc::new(Cell::new(false));
    let clients: Clients = Rc::new(RefCell::new(
        (0..plan.clients as u64)
            .map(|id| start_client(&cluster, plan, id, history, &stop))
            .collect(),
    ));
    if let Some(osd) = plan.laggard {
        chaos::lag(&cluster, osd);
    }
    let began = sim.elapsed();
    chaos::run(&cluster, plan, &clients, history).await;
    sleep((began + plan.ends).saturating_sub(sim.elapsed())).await;
    chaos::heal(&cluster, plan).await;
    let most = if plan.evens {
        // What it has begun comes to an end. Clients see no more of that than where nothing evens out: the longer a
        // history, the longer it takes to judge each operation of it.
        cluster.even_out(false).await?;
        check::becomes_clean(&cluster, HEALED_MAX).await;
        stop.set(true);
        EVENED_MAX
    } else {
        HEALED_MAX
    };
    if let Some(why) = check::becomes_clean(&cluster, most).await {
        lived
            .wrongs
            .push(format!("no progress: healed, and not clean: {why}"));
    }
    stop.set(true);
    let end = sim.elapsed() + LAST_MAX;
    while let Some((id, oid)) = waits(&clients, history, &cluster) {
        if sim.elapsed() >= end {
            let line = format!("no progress: healed, and client.{id} still waits for {oid}");
            lived.wrongs.push(line);
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    if lived.wrongs.is_empty() {
        if let Some(osd) = plan.last_rot {
            chaos::rot(&cluster, &cluster.osd(osd), &mut sim.dice("last rot"));
        }
        lived.rot.pgs = finish(&cluster, &mut lived.wrongs).await;
    }
    lived.wrongs.extend(cluster.watchdog.wrongs());
    lived.wrongs.extend(cluster.scrubs.wrongs());
    lived.wrongs.extend(cluster.wrongs.borrow().iter().cloned());
    lived.rot.bits = cluster.rot.bits();
    lived.doubts = cluster.operators.doubts.get();
    lived.scrubs = Scrubbed {
        ended: cluster.scrubs.ended.get(),
        given_up: cluster.scrubs.given_up.get(),
        bad_copies: cluster.scrubs.found.get(),
    };
    Ok(())
}

/// A client that was not told to stop yet, and what it waits for; those who ask for what may be lost may wait for ever.
fn waits(clients: &Clients, history: &History, cluster: &Cluster) -> Option<(u64, String)> {
    let clients = clients.borrow();
    let alive = clients.iter().zip(0u64..).filter(|(p, _)| p.is_alive());
    let mut left = alive.filter(|(_, id)| !history.ended.borrow().contains(id));
    left.find_map(|(_, id)| {
        let oid = history.asked_last(id).unwrap_or_default();
        (!cluster.rot.excuses_object(&oid)).then_some((id, oid))
    })
}

/// Lets the last scrubs look, stops all and compares the copies. The number of PGs that are lost.
async fn finish(cluster: &Rc<Cluster>, wrongs: &mut Vec<String>) -> u64 {
    // What is queued comes to rest first.
    sleep(Duration::from_secs(2)).await;
    // Who was killed just before may be noticed only now.
    if let Some(why) = check::becomes_clean(cluster, HEALED_MAX).await {
        wrongs.push(format!("did not stay clean: {why}"));
        return 0;
    }
    wrongs.extend(check::weights(cluster));
    wrongs.extend(wishes::last(cluster).await);
    let lost = check::lost(cluster);
    let nodes = cluster.osds.borrow().clone();
    for node in &nodes {
        cluster.kill_osd(node, false, 0);
    }
    wrongs.extend(check::copies_equal(cluster, &lost));
    lost.len() as u64
}

fn start_client(
    cluster: &Rc<Cluster>,
    plan: &Plan,
    id: u64,
    history: &Rc<History>,
    stop: &Rc<Cell<bool>>,
) -> Process {
    let (cluster, plan) = (cluster.clone(), plan.clone());
    let (history, stop) = (history.clone(), stop.clone());
    let sim = cluster.sim.clone();
    let host = client_host(id);
    sim.start(host, async move {
        let sim = &cluster.sim;
        // Every other one, so that each run has some of both kinds.
        let rados = match id % 2 {
            0 => Rados::connect(id, POOL, host, sim).await,
            _ => {
                let clock = sim.clock(Duration::ZERO, 0);
                let Ok(handle) = open_state(&cluster.etcd, host, &clock).await else {
                    return;
                };
                Rados::raw(id, POOL, &handle, sim)
            }
        };
        let dice = (
            sim.dice(&format!("client.{id} work")),
            sim.dice(&format!("client.{id} copies")),
            sim.dice(&format!("client.{id} cold")),
            sim.dice(&format!("client.{id} thrash")),
            sim.dice(&format!("client.{id} largest")),
        );
        let books = (history.clone(), cluster.rot.clone());
        workload::work(rados, plan, dice, books, stop).await;
        history.ended.borrow_mut().insert(id);
    })
}
