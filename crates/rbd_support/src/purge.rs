//! The trash is emptied by schedule: of images whose time there is over.
//!
//! A time that passed while nobody worked is not made up for: the next one will do.

use crate::connect::Broken;
use crate::mirror::pools;
use crate::part::{LOOK_TIMEOUT, Part, STUCK_AFTER, unless_stuck};
use client::Client;
use cluster::ClusterState;
use cluster::rbd_support::{Level, Schedules};
use rbd::{directory, image, trash};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use types::{PoolId, Utime};

/// Between two looks at which namespaces there are.
const NAMESPACES_FOR: u64 = 60;

type Namespaces = BTreeMap<PoolId, Vec<String>>;

pub struct Purges {
    /// All that was due up to then has been begun (seconds since 1970).
    seen: u64,
    schedules: Schedules,
    namespaces: Namespaces,
    looked: u64,
    looking: Option<Part<Namespaces>>,
    running: Option<Part<()>>,
}

/// With what is worked.
pub struct Context<'a> {
    pub client: &'a Client,
    pub broken: Broken,
    pub state: &'a ClusterState,
    pub now: Utime,
}

impl Purges {
    pub fn from(now: u64) -> Self {
        Self {
            seen: now,
            schedules: Schedules::default(),
            namespaces: Namespaces::new(),
            looked: 0,
            looking: None,
            running: None,
        }
    }

    pub fn abort(&mut self) {
        if let Some(looking) = self.looking.take() {
            looking.abort();
        }
        if let Some(running) = self.running.take() {
            running.abort();
        }
        // Who works again looks again.
        self.schedules = Schedules::default();
    }

    /// There is nothing to do up to `now`, or nobody who should.
    pub fn idle(&mut self, now: u64) {
        self.seen = now;
    }

    /// Begins what is due; gives the namespaces when it has looked at them.
    pub async fn follow(&mut self, cx: &Context<'_>, schedules: Schedules) -> Option<Namespaces> {
        let sec = u64::from(cx.now.sec);
        let changed = schedules != self.schedules;
        self.schedules = schedules;
        if self.schedules.levels.is_empty() {
            self.idle(sec);
            return None;
        }
        let looked = self.look(cx, changed).await;
        if self.running.as_ref().is_some_and(|r| !r.is_over()) {
            return looked;
        }
        let due = self.due(sec);
        if !due.is_empty() {
            let (client, broken, now) = (cx.client.clone(), cx.broken.clone(), cx.now);
            let work = purge_all(client, broken, due, now);
            self.running = Some(Part(io::task::spawn_local(work)));
        }
        looked
    }

    fn due(&mut self, sec: u64) -> Vec<Level> {
        let is_due = |level: &Level| {
            let next = self.schedules.next_after(level, self.seen);
            next.is_some_and(|at| at <= sec)
        };
        let due = levels(&self.namespaces).filter(is_due).collect();
        self.seen = sec;
        due
    }

    async fn look(&mut self, cx: &Context<'_>, changed: bool) -> Option<Namespaces> {
        if changed && let Some(looking) = self.looking.take() {
            looking.abort();
        }
        if let Some(looking) = self.looking.take() {
            if !looking.is_over() {
                self.looking = Some(looking);
                return None;
            }
            self.namespaces = looking.ended().await?;
            return Some(self.namespaces.clone());
        }
        let sec = u64::from(cx.now.sec);
        if changed || sec.saturating_sub(self.looked) >= NAMESPACES_FOR {
            self.looked = sec;
            let pools = pools(cx.state, &self.schedules);
            let work = namespaces(cx.client.clone(), cx.broken.clone(), pools);
            self.looking = Some(Part(io::task::spawn_local(work)));
        }
        None
    }
}

/// Each pool, with its default namespace and the others.
fn levels(namespaces: &Namespaces) -> impl Iterator<Item = Level> {
    namespaces.iter().flat_map(|(pool, names)| {
        let all = std::iter::once("").chain(names.iter().map(String::as_str));
        all.map(|ns| Level::of_namespace(*pool, ns)).collect::<Vec<_>>()
    })
}

async fn namespaces(client: Client, broken: Broken, pools: Vec<PoolId>) -> Namespaces {
    let mut out = Namespaces::new();
    for id in pools {
        let mut io = client.pool_by_id(id);
        io.set_timeout(Some(LOOK_TIMEOUT));
        match directory::namespaces(&io).await {
            Ok(names) => drop(out.insert(id, names)),
            Err(e) => {
                broken.heard(e.errno());
                tracing::warn!("pool {id}: its namespaces are not known, so its trash stays: {e}");
            }
        }
    }
    out
}

async fn purge_all(client: Client, broken: Broken, levels: Vec<Level>, now: Utime) {
    let mut stuck = BTreeSet::new();
    for level in levels {
        if !stuck.contains(&level.pool) && !purge(&client, &broken, &level, now).await {
            tracing::warn!("the trash of {level} is not emptied: the OSDs do not answer");
            stuck.insert(level.pool);
        }
    }
    if !stuck.is_empty() {
        // With the connection what it holds goes.
        broken.set();
    }
}

/// False: it got stuck.
async fn purge(client: &Client, broken: &Broken, level: &Level, now: Utime) -> bool {
    let mut io = client.pool_by_id(level.pool.unwrap_or_default());
    io.set_namespace(level.namespace.clone().into_bytes());
    let steps = AtomicU64::new(0);
    let work = async {
        for (id, entry) in trash::list(&io).await? {
            if entry.deferment_end_time > now || !trash::is_thrown_away(entry.source) {
                continue;
            }
            let step = |_, _| {
                steps.fetch_add(1, Ordering::Relaxed);
            };
            match image::remove_trashed(&io, &id, &step).await {
                Ok(()) => tracing::info!("image {id} is removed from the trash of {level}, by schedule"),
                Err(e) => {
                    broken.heard(e.errno());
                    tracing::warn!("image {id} stays in the trash of {level}: {e}");
                }
            }
            step(0, 0);
        }
        Ok(())
    };
    let done = unless_stuck(STUCK_AFTER, &steps, work).await;
    if let Some(Err(e)) = &done {
        let e: &rbd::Error = e;
        broken.heard(e.errno());
        tracing::warn!("the trash of {level} is not emptied: {e}");
    }
    done.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::rbd_support::Row;

    /// A schedule holds from when it is added, and a manager that takes over makes up for nothing.
    #[test]
    fn what_was_due_while_nobody_worked_is_not_made_up_for() {
        const HOUR: u64 = 3600;
        let mut purges = Purges::from(10 * HOUR - 60);
        let row = Row {
            minutes: 60,
            start: None,
        };
        purges.schedules.levels.insert(Level::of_pool(1), vec![row]);
        purges.namespaces.insert(1, Vec::new());
        purges.idle(10 * HOUR + 60);
        assert_eq!(purges.due(10 * HOUR + 61), []);
        assert_eq!(purges.due(11 * HOUR), [Level::of_pool(1)]);
        assert_eq!(purges.due(11 * HOUR + 1), []);
    }
}
