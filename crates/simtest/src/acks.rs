//! Writes that clients were told are done: who answered, and whether every disk that has to hold them does.
//!
//! Rule 1 (docs/internals/replication.md) says that a write is answered when it is durable on every OSD of `in_sync`, and
//! whoever joins the set later has it as well. So after a loss of power, at any moment, the disk of each OSD that the cluster
//! state names in sync holds the log entry of every write that was answered: nothing has to be started for that to be told.
//!
//! Bound: the newest [`KEPT`] answers are remembered; a log keeps more.
//!
//! Not here: who cuts the power (`chaos`); what reads show (`linear`).

use crate::cluster::{Cluster, OsdNode, POOL};
use io::disk::sim::Survival;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use tokio::sync::watch;
use types::{OsdId, PgId, SPgId};

/// Answers that are remembered.
const KEPT: usize = 64;
/// Clients' names are theirs and this (`client`).
pub const FIRST_CLIENT: u64 = 5000;

/// One write's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    pub client: u64,
    pub tid: u64,
    pub oid: String,
    /// Who gave it, and to which try.
    pub osd: OsdId,
    pub attempt: i32,
}

#[derive(Debug)]
pub struct Acks {
    recent: RefCell<VecDeque<Ack>>,
    newest: watch::Sender<Option<Ack>>,
}

impl Default for Acks {
    fn default() -> Self {
        Self {
            recent: RefCell::default(),
            newest: watch::Sender::new(None),
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
        self.newest.send_replace(Some(ack));
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

    /// What the disks of those in sync lack of what was answered. Nobody runs.
    pub fn lacking(&self, cluster: &Cluster) -> Vec<String> {
        let state = cluster.view.state();
        let Some(pool) = state.osdmap.pool(POOL) else {
            return Vec::new();
        };
        let mut wrongs = Vec::new();
        let nodes = cluster.osds.borrow();
        for node in nodes.iter().filter(|n| !n.gone.get()) {
            let held = match requests(cluster, node, state.osdmap.pgs().filter(|pg| pg.pool == POOL)) {
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
                let in_sync = state.pgs.get(pg).is_some_and(|c| c.in_sync.contains(&node.id));
                // A PG that was split off begins without what its members did not take over: its objects say it.
                let whole = held.logs.contains(&pg) && pool.pg_num == cluster.first_pgs.get();
                if in_sync
                    && whole
                    && !held.requests.contains(&(ack.client, ack.tid))
                    && !cluster.rot.excuses(pg)
                {
                    wrongs.push(format!(
                        "{pg}: osd.{} is in sync, and its disk lacks #{} of client.{} ({}), which osd.{} had answered",
                        node.id, ack.tid, ack.client, ack.oid, ack.osd
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

fn requests(cluster: &Cluster, node: &Rc<OsdNode>, pgs: impl Iterator<Item = PgId>) -> Result<Held, String> {
    // A disk apart: to open a store writes to it.
    let disk = node.disk.borrow().survivor_of(Survival::Everything);
    let store = cluster.open_store_on(node, disk)?;
    let mut held = Held::default();
    for pg in pgs {
        let c = SPgId::replicated(pg);
        if !store.collections().contains(&c) {
            continue;
        }
        held.logs.insert(pg);
        for (_, raw) in store.log_entries(&c).map_err(|e| e.to_string())? {
            let line = pg::inspect::log_entry(&raw).map_err(|e| e.to_string())?;
            let client = line.reqid.name.num.checked_sub(FIRST_CLIENT as _);
            held.requests.extend(client.map(|c| (c as u64, line.reqid.tid)));
        }
    }
    Ok(held)
}
