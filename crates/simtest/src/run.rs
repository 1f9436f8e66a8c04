//! One seed from beginning to end: the cluster comes up, clients work while faults come and go, all is healed, and the
//! checkers look.

use crate::chaos::{self, Clients};
use crate::check;
use crate::client::Rados;
use crate::cluster::{Cluster, POOL, client_host, open_state};
use crate::plan::Plan;
use crate::workload::{self, History};
use io_sim::{Process, Sim};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// Virtual time in which a new cluster is to be clean, and one that was healed.
const UP_MAX: Duration = Duration::from_secs(60);
const HEALED_MAX: Duration = Duration::from_secs(180);
/// The same, where bits have flipped: it may not become so.
const ROTTEN_MAX: Duration = Duration::from_secs(30);
/// In which the clients' last operations are to be answered after that.
const LAST_MAX: Duration = Duration::from_secs(60);

/// What a seed gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub wrongs: Vec<String>,
    pub hash: u64,
    pub events: u64,
    /// Operations that were answered.
    pub answered: u64,
    /// Of these, reads that a copy answered.
    pub by_copies: u64,
    pub virtual_ms: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "hash {:016x}, {} events, {} operations, {} by copies, {} virtual ms",
            self.hash, self.events, self.answered, self.by_copies, self.virtual_ms
        )?;
        self.wrongs.iter().try_for_each(|w| write!(f, "\n  WRONG {w}"))
    }
}

pub async fn seed(sim: Sim) -> Outcome {
    let mut plan = Plan::draw(&mut sim.dice("plan"));
    plan.more(&mut sim.dice("more of the plan"));
    plan.walls(&mut sim.dice("firewalls"));
    plan.readers(&mut sim.dice("readers"));
    sim.trace.note(format_args!("PLAN {plan}"));
    let history = Rc::new(History::default());
    let mut wrongs = Vec::new();
    if let Err(why) = lived(&sim, &plan, &history, &mut wrongs).await {
        wrongs.push(why);
    }
    wrongs.extend(history.errors.borrow().iter().cloned());
    wrongs.extend(check::linearizable(&history));
    Outcome {
        wrongs,
        hash: sim.trace.hash(),
        events: sim.trace.events(),
        answered: history.answered.get(),
        by_copies: history.by_copies.get(),
        virtual_ms: sim.elapsed().as_millis() as u64,
    }
}

async fn lived(
    sim: &Sim,
    plan: &Plan,
    history: &Rc<History>,
    wrongs: &mut Vec<String>,
) -> Result<(), String> {
    let cluster = Rc::new(Cluster::create(sim).await?);
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
    cluster.add_pool(plan.size, plan.min_size, plan.pgs).await?;
    if let Some(why) = check::becomes_clean(&cluster, UP_MAX).await {
        return Err(format!("the new cluster does not become clean: {why}"));
    }
    let stop = Rc::new(Cell::new(false));
    let clients: Clients = Rc::new(RefCell::new(
        (0..plan.clients as u64)
            .map(|id| start_client(&cluster, plan, id, history, &stop))
            .collect(),
    ));
    let began = sim.elapsed();
    chaos::run(&cluster, plan, &clients).await;
    sleep((began + plan.ends).saturating_sub(sim.elapsed())).await;
    chaos::heal(&cluster, plan).await;
    // What was rotten may keep a copy from being made.
    let healed_max = if plan.rots() { ROTTEN_MAX } else { HEALED_MAX };
    if let Some(why) = check::becomes_clean(&cluster, healed_max).await
        && !plan.rots()
    {
        wrongs.push(format!("no progress: healed, and not clean: {why}"));
    }
    stop.set(true);
    let end = sim.elapsed() + LAST_MAX;
    let wait = || {
        let clients = clients.borrow();
        let mut left = clients.iter().zip(0u64..).filter(|(p, _)| p.is_alive());
        left.any(|(_, id)| !history.ended.borrow().contains(&id))
    };
    while wait() && sim.elapsed() < end {
        sleep(Duration::from_millis(50)).await;
    }
    if wait() && !plan.rots() {
        wrongs.push("no progress: healed, and a client still waits for its answer".into());
    }
    if wrongs.is_empty() {
        finish(&cluster, wrongs).await;
    }
    wrongs.extend(cluster.watchdog.wrongs());
    wrongs.extend(cluster.wrongs.borrow().iter().cloned());
    Ok(())
}

/// Stops all and compares the copies.
async fn finish(cluster: &Rc<Cluster>, wrongs: &mut Vec<String>) {
    // What is queued comes to rest first.
    sleep(Duration::from_secs(2)).await;
    // Who was killed just before may be noticed only now.
    if let Some(why) = check::becomes_clean(cluster, HEALED_MAX).await {
        if cluster.osds.borrow().iter().any(|n| n.rotten.get()) {
            return;
        }
        return wrongs.push(format!("did not stay clean: {why}"));
    }
    let nodes = cluster.osds.borrow().clone();
    for node in &nodes {
        cluster.kill_osd(node, false, 0);
    }
    wrongs.extend(check::copies_equal(cluster));
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
        let clock = sim.clock(Duration::ZERO, 0);
        let Ok(handle) = open_state(&cluster.etcd, host, &clock).await else {
            return;
        };
        let random = sim.random(&format!("client.{id}"));
        let rados = Rados::new(id, POOL, &handle, clock, random, sim.trace.clone());
        let dice = (
            sim.dice(&format!("client.{id} work")),
            sim.dice(&format!("client.{id} copies")),
        );
        workload::work(rados, plan, dice, history.clone(), stop).await;
        history.ended.borrow_mut().insert(id);
    })
}
