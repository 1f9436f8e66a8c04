//! Writes that clients were told are done: who answered, and whether every disk that has to hold them does.
//!
//! Rule 1 (docs/internals/replication.md) says that a write is answered when it is durable on every OSD of `in_sync`, and
//! whoever joins the set later has it as well. So after a loss of power, at any moment, the disk of each OSD that the cluster
//! state names in sync holds the log entry of every write that was answered: nothing has to be started for that to be told.
//!
//! That is asked where the power is lost, and also where it might be: at the first answers of a placement group whose set or interval
//! has changed, and at answers to writes that were sent again, copies of the disks are looked at as a loss of power in this
//! moment would leave them. The run itself goes on undisturbed.
//!
//! Bounds: the newest [`KEPT`] answers are remembered (a log keeps more), [`LOOKS_MAX`] looks in a run.
//!
//! Not here: who cuts the power (`chaos`); what reads show (`linear`).

use crate::cluster::{Cluster, OsdNode};
use crate::places::POOL;
use crate::workload::History;
use client::Served;
use cluster::PgConfig;
use io::disk::sim::Survival;
use std::cell::Cell;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use tokio::sync::watch;
use types::{EVersion, OsdId, PgId, SPgId};

/// Answers that are remembered.
const KEPT: usize = 64;
/// Looks at what a loss of power would leave.
const LOOKS_MAX: u32 = 10;
/// Answers of a placement group after it has changed at which that is done.
const FRESH: u32 = 3;

/// One write's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    pub client: u64,
    /// As logs name it.
    pub global_id: u64,
    pub oid: String,
    pub served: Served,
}

pub struct Acks {
    recent: RefCell<VecDeque<Ack>>,
    newest: watch::Sender<Option<Ack>>,
    /// Whose disks are looked at; set when there are some.
    cluster: RefCell<Option<Rc<Cluster>>>,
    /// Placement groups that have changed, each with the answers that are looked at yet.
    fresh: RefCell<BTreeMap<PgId, u32>>,
    looks: Cell<u32>,
    versions: RefCell<BTreeMap<String, EVersion>>,
}

impl std::fmt::Debug for Acks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acks").field("recent", &self.recent).finish()
    }
}

impl Default for Acks {
    fn default() -> Self {
        Self {
            recent: RefCell::default(),
            newest: watch::Sender::new(None),
            cluster: RefCell::default(),
            fresh: RefCell::default(),
            looks: Cell::new(0),
            versions: RefCell::default(),
        }
    }
}

impl Acks {
    pub fn note(&self, ack: Ack) {
        let mut recent = self.recent.borrow_mut();
        if recent.len() == KEPT {
            recent.pop_front();
        }
        recent.push_back(ack.clone());
        drop(recent);
        self.look(&ack);
        self.newest.send_replace(Some(ack));
    }

    /// From now on the disks of this cluster are looked at.
    pub fn judge(history: &Rc<History>, cluster: &Rc<Cluster>) {
        *history.acks.cluster.borrow_mut() = Some(cluster.clone());
        let (history, mut states) = (history.clone(), cluster.view.subscribe_state());
        tokio::task::spawn_local(async move {
            let mut before = states.borrow_and_update().clone();
            while states.changed().await.is_ok() {
                let now = states.borrow_and_update().clone();
                for (pg, config) in now.pgs.iter().filter(|(pg, _)| pg.pool == POOL) {
                    let grown = |old: &PgConfig| config.in_sync.iter().any(|o| !old.in_sync.contains(o));
                    let changed = |old: &PgConfig| old.interval != config.interval || grown(old);
                    if before.pgs.get(pg).is_none_or(changed) {
                        history.acks.fresh.borrow_mut().insert(pg, FRESH);
                    }
                }
                before = now;
            }
        });
    }

    /// The newest version that a client was told of a write of this object.
    pub fn newest_of(&self, oid: &str) -> EVersion {
        self.versions.borrow().get(oid).copied().unwrap_or_default()
    }

    pub fn told_version(&self, oid: &str, version: EVersion) {
        let mut versions = self.versions.borrow_mut();
        let newest = versions.entry(oid.to_owned()).or_default();
        *newest = version.max(*newest);
    }

    /// Looks at what the disks would hold if the power were lost now, where that is of interest.
    fn look(&self, ack: &Ack) {
        let cluster = self.cluster.borrow().clone();
        let Some(cluster) = cluster.filter(|_| self.looks.get() < LOOKS_MAX) else {
            return;
        };
        let pg = cluster
            .view
            .osdmap()
            .object_to_pg(POOL, b"", b"", ack.oid.as_bytes());
        let mut fresh = self.fresh.borrow_mut();
        let left = pg
            .and_then(|(_, pg)| fresh.get_mut(&pg))
            .filter(|left| **left > 0);
        if left.map(|left| *left -= 1).is_none() && ack.served.attempt == 0 {
            return;
        }
        self.looks.set(self.looks.get() + 1);
        let wrongs = self.lacking(&cluster, pg.map(|(_, pg)| pg), Survival::Nothing);
        for wrong in wrongs {
            cluster.sim.trace.note(format_args!("{wrong}"));
            cluster.wrongs.borrow_mut().push(wrong);
        }
    }

    /// The next answer for which `wanted` holds, at the moment at which it is given.
    pub async fn next(&self, wanted: impl Fn(&Ack) -> bool) -> Option<Ack> {
        let mut newest = self.newest.subscribe();
        newest.mark_unchanged();
        loop {
            newest.changed().await.ok()?;
            let ack = newest.borrow_and_update().clone();
            if let Some(ack) = ack.filter(&wanted) {
                return Some(ack);
            }
        }
    }

    /// What the disks of those in sync lack of what was answered, as a loss of power leaves them; `only`: of this PG.
    pub fn lacking(&self, cluster: &Cluster, only: Option<PgId>, how: Survival) -> Vec<String> {
        let state = cluster.view.state();
        let Some(pool) = state.osdmap.pool(POOL) else {
            return Vec::new();
        };
        let mut wrongs = Vec::new();
        let nodes = cluster.osds.borrow();
        let asked = |pg: &PgId| pg.pool == POOL && only.is_none_or(|only| only == *pg);
        let holds = |osd: OsdId, pg: PgId| state.pgs.get(pg).is_some_and(|c| c.in_sync.contains(&osd));
        for node in nodes.iter().filter(|n| !n.gone.get()) {
            let pgs: Vec<PgId> = state
                .osdmap
                .pgs()
                .filter(|pg| asked(pg) && holds(node.id, *pg))
                .collect();
            if pgs.is_empty() {
                continue;
            }
            let held = match requests(cluster, node, &pgs, how) {
                Ok(held) => held,
                Err(why) => {
                    wrongs.push(format!(
                        "osd.{}: its disk cannot be read after a loss of power: {why}",
                        node.id
                    ));
                    continue;
                }
            };
            for ack in self.recent.borrow().iter() {
                let Some((_, pg)) = state.osdmap.object_to_pg(POOL, b"", b"", ack.oid.as_bytes()) else {
                    continue;
                };
                // A PG that was split off begins without what its members did not take over: its objects say that.
                let whole = held.logs.contains(&pg) && pool.pg_num == ack.served.pg_num;
                if pgs.contains(&pg)
                    && whole
                    && !held.requests.contains(&(ack.global_id, ack.served.tid))
                    && !cluster.rot.excuses(pg)
                {
                    wrongs.push(format!(
                        "{pg}: osd.{} is in sync, and its disk lacks #{} of client.{} ({}), which osd.{} had answered",
                        node.id, ack.served.tid, ack.client, ack.oid, ack.served.osd
                    ));
                }
            }
        }
        wrongs
    }
}

/// What the logs on a disk remember.
#[derive(Default)]
struct Held {
    logs: BTreeSet<PgId>,
    requests: BTreeSet<(u64, u64)>,
}

fn requests(cluster: &Cluster, node: &Rc<OsdNode>, pgs: &[PgId], how: Survival) -> Result<Held, String> {
    // A disk apart: to open a store writes to it.
    let disk = node.disk.borrow().survivor_of(how);
    let store = cluster.open_store_on(node, disk)?;
    let mut held = Held::default();
    for pg in pgs.iter().copied() {
        let c = SPgId::replicated(pg);
        if !store.collections().contains(&c) {
            continue;
        }
        held.logs.insert(pg);
        for (_, raw) in store.log_entries(&c).map_err(|e| e.to_string())? {
            let line = pg::inspect::log_entry(&raw).map_err(|e| e.to_string())?;
            held.requests.insert((line.reqid.name.num as u64, line.reqid.tid));
        }
    }
    Ok(held)
}
