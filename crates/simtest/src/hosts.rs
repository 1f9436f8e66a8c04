//! What a cluster asks of its state, by how many OSDs it has: while nothing happens, when it comes up, and when a rack is lost.
//!
//! Each OSD is a process on a host of its own, with a lease, and follows the state; a monitor follows it, too. There are as many
//! placement groups as OSDs, of three copies. A *rack* is a tenth of the hosts, no two with copies of the same group (as a rule
//! over racks places them). What is counted is what the state is asked for (etcd's own work follows from it): transactions, of which
//! each is a proposal of etcd's log, their bytes, renewals of leases, reads, and how many changes are delivered to watchers.
//!
//! Not here: faults of other kinds (`plan`), clients, what an OSD costs.

use crate::cluster::Cluster;
use crate::etcd::Counts;
use crate::places::POOL;
use io_sim::{Sim, Weather};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;
use types::OsdId;

const COPIES: u8 = 3;
/// Of the hosts, the part that a rack holds.
const RACKS: usize = 10;
pub const OSDS_MAX: usize = 5000;
const UP_MAX: Duration = Duration::from_secs(600);
/// Leases and reports have settled after this.
const SETTLED: Duration = Duration::from_secs(20);
const IDLE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(20);

/// What a window came to.
#[derive(Debug, Clone)]
pub struct Window {
    pub name: &'static str,
    pub virtual_s: f64,
    pub counts: Counts,
}

pub async fn run(sim: Sim, osds: usize) -> Result<Vec<Window>, String> {
    sim.trace.count_only();
    sim.net.set_weather(Weather::FAIR);
    let cluster = Rc::new(Cluster::create(&sim).await?);
    let mut seen = Vec::new();
    let mut since = (sim.elapsed(), cluster.etcd.counts());
    let mut window = |name| {
        let now = (sim.elapsed(), cluster.etcd.counts());
        seen.push(Window {
            name,
            virtual_s: (now.0 - since.0).as_secs_f64(),
            counts: now.1 - since.1,
        });
        since = now;
    };
    bring_up(&cluster, osds).await?;
    window("come-up");
    sleep(SETTLED).await;
    window("settle");
    sleep(IDLE).await;
    window("idle");
    let lost = rack(&cluster, osds);
    for id in &lost {
        cluster.kill_osd(&cluster.osd(*id as usize), true, 1);
    }
    until(&cluster, "the rack's OSDs are not seen to be down", || {
        lost.iter().all(|id| !cluster.view.osdmap().is_up(*id))
    })
    .await?;
    window("rack-seen");
    until(&cluster, "groups name lost OSDs", || is_served(&cluster, &lost)).await?;
    window("rack-served");
    match cluster.wrongs.borrow().first() {
        Some(wrong) => Err(wrong.clone()),
        None => Ok(seen),
    }
}

async fn bring_up(cluster: &Rc<Cluster>, osds: usize) -> Result<(), String> {
    for _ in 0..osds {
        let node = cluster.add_osd(Duration::ZERO, 0)?;
        cluster.start_osd(&node);
    }
    cluster.start_mon();
    until(cluster, "the OSDs do not come up", || {
        (0..osds as OsdId).all(|id| cluster.view.osdmap().is_up(id))
    })
    .await?;
    cluster.add_pool(COPIES, COPIES - 1, osds as u32).await?;
    match crate::check::becomes_clean(cluster, UP_MAX).await {
        None => Ok(()),
        Some(why) => Err(format!("the cluster does not become clean: {why}")),
    }
}

async fn until(cluster: &Cluster, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
    let began = cluster.sim.elapsed();
    while !is_so() {
        if cluster.sim.elapsed() - began > UP_MAX {
            return Err(format!("{what}, after {} s", UP_MAX.as_secs()));
        }
        sleep(TICK).await;
    }
    Ok(())
}

/// Hosts of which no two have copies of one group.
fn rack(cluster: &Cluster, osds: usize) -> BTreeSet<OsdId> {
    let map = cluster.view.osdmap();
    let groups: Vec<Vec<OsdId>> = map.pgs().map(|pg| map.pg_to_up_acting(pg).up).collect();
    let mut rack = BTreeSet::new();
    for id in 0..osds as OsdId {
        let its = groups.iter().filter(|g| g.contains(&id));
        let is_apart = its.flatten().all(|o| !rack.contains(o));
        if is_apart && rack.len() < (osds / RACKS).max(1) {
            rack.insert(id);
        }
    }
    rack
}

/// Every group has a primary that lives, and waits for nobody who does not.
fn is_served(cluster: &Cluster, lost: &BTreeSet<OsdId>) -> bool {
    let state = cluster.view.state();
    let mut pgs = state.osdmap.pgs().filter(|pg| pg.pool == POOL);
    pgs.all(|pg| {
        let config = state.pgs.get(pg);
        config.is_some_and(|c| c.in_sync.iter().all(|id| !lost.contains(id)) && !lost.contains(&c.primary))
    })
}
