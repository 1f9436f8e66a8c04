//! Scrubs: what they say, held against which bits have flipped; and those that the run asks for in the end.
//!
//! - A check calls a copy bad only where a bit has flipped on its disk, says that it cannot be read and nothing else, and
//!   finds a good copy beside it.
//! - A run that found something is one in a cluster in which bits have flipped.
//! - Every run ends or is given up; every wish of an operator is carried out in the end.
//! - In the end, after a deep scrub with repair where bits have flipped, a deep scrub finds nothing at all.
//!
//! Not here: the copies themselves (`check` compares them, too).

use crate::check;
use crate::cluster::{Cluster, POOL};
use crate::rot::Rot;
use cluster::Changes;
use io_sim::Sim;
use pg::probe::{self, Scrubbed};
use pg::{Inconsistent, ScrubResult, shard_error};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;
use types::{OsdId, PgId};

/// Virtual time in which all that were asked for in a clean cluster are done.
const DONE_MAX: Duration = Duration::from_secs(120);
/// A run that goes on for so long after the cluster was healed hangs.
const RUNS_MAX: Duration = Duration::from_secs(60);
/// Wrongs that are noted: more say the same.
const NOTED_MAX: usize = 3;

/// What a scrub is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    pub deep: bool,
    pub repair: bool,
}

pub struct Scrubs {
    sim: Sim,
    rot: Rc<Rot>,
    running: RefCell<BTreeMap<(OsdId, PgId), Duration>>,
    /// The newest of each PG.
    last: RefCell<BTreeMap<PgId, (Duration, ScrubResult)>>,
    wrongs: RefCell<Vec<String>>,
    pub ended: Cell<u64>,
    pub given_up: Cell<u64>,
    /// Bad copies that checks found.
    pub found: Cell<u64>,
}

fn more(count: &Cell<u64>, by: u64) {
    count.set(count.get() + by);
}

impl Scrubs {
    /// Hears every PG of this thread from now on.
    pub fn listen(sim: &Sim, rot: &Rc<Rot>) -> Rc<Self> {
        let scrubs = Rc::new(Self {
            sim: sim.clone(),
            rot: rot.clone(),
            running: RefCell::default(),
            last: RefCell::default(),
            wrongs: RefCell::default(),
            ended: Cell::new(0),
            given_up: Cell::new(0),
            found: Cell::new(0),
        });
        let listener = scrubs.clone();
        probe::listen(Some(Rc::new(move |pg, by, what: Scrubbed<'_>| {
            listener.hear(pg, by, &what);
        })));
        scrubs
    }

    /// It was killed, with the scrubs that it ran.
    pub fn forget(&self, osd: OsdId) {
        self.running.borrow_mut().retain(|(by, _), _| *by != osd);
    }

    pub fn wrongs(&self) -> Vec<String> {
        self.wrongs.borrow().clone()
    }

    fn wrong(&self, line: String) {
        self.sim.trace.note(format_args!("{line}"));
        let mut wrongs = self.wrongs.borrow_mut();
        if wrongs.len() < NOTED_MAX {
            wrongs.push(line);
        }
    }

    fn hear(&self, pg: PgId, by: OsdId, what: &Scrubbed<'_>) {
        let now = self.sim.elapsed();
        self.sim.trace.note(format_args!("osd.{by}: {pg} scrub {what:?}"));
        match what {
            Scrubbed::Began(_) => {
                if self.running.borrow_mut().insert((by, pg), now).is_some() {
                    self.wrong(format!("{pg}: two scrubs at a time"));
                }
            }
            Scrubbed::Judged(wrong) => wrong.iter().for_each(|w| self.judged(pg, w)),
            Scrubbed::Ended(result) => {
                self.running.borrow_mut().remove(&(by, pg));
                self.last.borrow_mut().insert(pg, (now, *result));
                more(&self.ended, 1);
                if result.errors > 0 && self.rot.osd().is_none() {
                    self.wrong(format!("{pg}: false alarm: no bit has flipped: {result:?}"));
                }
            }
            Scrubbed::GivenUp => {
                self.running.borrow_mut().remove(&(by, pg));
                more(&self.given_up, 1);
            }
        }
    }

    fn judged(&self, pg: PgId, w: &Inconsistent) {
        let rotten = self.rot.osd();
        more(&self.found, w.bad().count() as u64);
        if w.bad().any(|osd| Some(osd) != rotten) {
            self.wrong(format!(
                "{pg}: false alarm: bits have flipped on {rotten:?}: {w:?}"
            ));
        } else if w.errors != 0 || w.union_errors() & !shard_error::READ != 0 {
            self.wrong(format!("{pg}: a flipped bit is taken for something else: {w:?}"));
        } else if w.good.is_none() {
            self.wrong(format!("{pg}: no copy is good, and one is: {w:?}"));
        }
    }

    /// What runs and has not ended although nothing hinders it.
    fn hang(&self) -> Option<String> {
        let (now, running) = (self.sim.elapsed(), self.running.borrow());
        let old = running.iter().find(|(_, since)| **since + RUNS_MAX < now);
        old.map(|((by, pg), since)| format!("{pg}: a scrub by osd.{by} goes on since {since:?}"))
    }
}

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
