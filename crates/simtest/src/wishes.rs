//! Scrubs that are asked for, as operators do, and by the run in the end.
//!
//! - Every wish is carried out in the end.
//! - In the end, after a deep scrub with repair where bits have flipped, a deep scrub finds nothing at all.

use crate::check;
use crate::cluster::Cluster;
use crate::places::POOL;
use crate::plan::Asked;
use cluster::Changes;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::sleep;
use types::PgId;

/// Virtual time in which all that were asked for in a clean cluster are done.
const DONE_MAX: Duration = Duration::from_secs(120);

/// As `ceph pg scrub` and its like leave it in the cluster state.
pub async fn wish(cluster: &Cluster, pgs: &[PgId], asked: Asked) -> Result<(), String> {
    let line = format_args!("scrub {pgs:?}: {asked:?}");
    cluster.sim.trace.note(line);
    let decide = |state: &cluster::ClusterState| {
        let wishes = state.wish_scrubs(pgs, asked.deep, asked.repair);
        wishes.unwrap_or_else(Changes::none)
    };
    cluster.change(decide).await
}

fn pgs_but(cluster: &Cluster, lost: &BTreeSet<PgId>) -> Vec<PgId> {
    let map = cluster.view.osdmap();
    let pgs = map.pgs().filter(|pg| pg.pool == POOL && !lost.contains(pg));
    pgs.collect()
}

/// Scrubs every PG but those that are lost, and says what is wrong with how that went.
async fn all(cluster: &Cluster, asked: Asked, lost: &BTreeSet<PgId>) -> Vec<String> {
    let (began, pgs) = (cluster.sim.elapsed(), pgs_but(cluster, lost));
    if let Err(why) = wish(cluster, &pgs, asked).await {
        return vec![format!("scrubs cannot be asked for: {why}")];
    }
    let waits = |pg: &&PgId| cluster.view.state().scrubs.contains_key(*pg);
    while let Some(pg) = pgs.iter().find(waits) {
        if cluster.sim.elapsed() > began + DONE_MAX {
            return vec![format!("no progress: {pg} was to be scrubbed ({asked:?})")];
        }
        sleep(Duration::from_millis(50)).await;
    }
    let mut wrongs = Vec::new();
    let last = cluster.scrubs.last.borrow();
    for pg in pgs {
        match last.get(&pg).filter(|(at, _)| *at >= began) {
            None => wrongs.push(format!("{pg}: a wish to scrub is gone and was not carried out")),
            Some((_, r)) if r.order.deep != asked.deep || r.order.repair != asked.repair => {
                wrongs.push(format!("{pg}: {asked:?} was asked for, this was done: {r:?}"));
            }
            Some((_, r)) if asked.repair && r.fixed < r.errors => {
                wrongs.push(format!("{pg}: not all was repaired: {r:?}"));
            }
            Some((_, r)) if !asked.repair && r.errors > 0 => {
                wrongs.push(format!("{pg}: copies are bad in the end: {r:?}"));
            }
            Some(_) => {}
        }
    }
    wrongs
}

/// The last ones, in a clean cluster without clients: what rotted is repaired, and then nothing is found.
pub async fn last(cluster: &Cluster) -> Vec<String> {
    let deep = |repair| Asked { deep: true, repair };
    let lost = check::lost(cluster);
    let mut wrongs = Vec::new();
    if cluster.rot.osd().is_some() {
        wrongs.extend(all(cluster, deep(true), &lost).await);
    }
    wrongs.extend(all(cluster, deep(false), &lost).await);
    wrongs.extend(cluster.scrubs.hang());
    if cluster.rot.osd().is_none() {
        wrongs.extend(repaired(cluster));
    }
    wrongs
}

/// Where no bit has flipped nothing is repaired.
fn repaired(cluster: &Cluster) -> Option<String> {
    let stats = cluster.view.stats();
    let mut pgs = stats
        .osds
        .iter()
        .flat_map(|(osd, r)| r.pgs.iter().map(move |p| (osd, p)));
    let (osd, (pg, stat)) = pgs.find(|(_, (_, s))| s.stats.sum.num_objects_repaired != 0)?;
    let n = stat.stats.sum.num_objects_repaired;
    Some(format!(
        "{pg}: osd.{osd} repaired {n} copies, and no bit has flipped"
    ))
}
