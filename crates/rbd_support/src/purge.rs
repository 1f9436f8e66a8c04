//! The trash is emptied by schedule: of images whose time there is over.
//!
//! A time that passed while nobody worked is not made up for: the next one will do.

use crate::part::Part;
use client::Client;
use cluster::ClusterState;
use cluster::rbd_support::{Level, Schedules};
use rbd::{directory, image, trash};
use std::collections::BTreeMap;
use types::{PoolId, Utime};

/// Between two looks at which namespaces there are.
const NAMESPACES_FOR: u64 = 60;

type Namespaces = BTreeMap<PoolId, Vec<String>>;

pub struct Purges {
    /// All that was due up to then has been begun (seconds since 1970).
    seen: u64,
    namespaces: Namespaces,
    looked: u64,
    running: Option<Part<()>>,
}

impl Purges {
    pub fn from(now: u64) -> Self {
        Self {
            seen: now,
            namespaces: Namespaces::new(),
            looked: 0,
            running: None,
        }
    }

    pub fn abort(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
        }
    }

    /// Begins what is due; gives the namespaces when it has looked at them.
    pub async fn follow(
        &mut self,
        client: &Client,
        state: &ClusterState,
        schedules: &Schedules,
        now: Utime,
    ) -> Option<Namespaces> {
        let sec = u64::from(now.sec);
        if schedules.levels.is_empty() {
            self.seen = sec;
            return None;
        }
        let mut looked = None;
        if sec.saturating_sub(self.looked) >= NAMESPACES_FOR {
            self.looked = sec;
            self.namespaces = namespaces(client, state, schedules).await;
            looked = Some(self.namespaces.clone());
        }
        if self.running.as_ref().is_some_and(|r| !r.is_over()) {
            return looked;
        }
        let is_due = |level: &Level| {
            let next = schedules.next_after(level, self.seen);
            next.is_some_and(|at| at <= sec)
        };
        let due: Vec<Level> = levels(&self.namespaces).filter(is_due).collect();
        self.seen = sec;
        if !due.is_empty() {
            let client = client.clone();
            let work = async move {
                for level in due {
                    purge(&client, &level, now).await;
                }
            };
            self.running = Some(Part(io::task::spawn_local(work)));
        }
        looked
    }
}

/// Each pool, with its default namespace and the others.
fn levels(namespaces: &Namespaces) -> impl Iterator<Item = Level> {
    namespaces.iter().flat_map(|(pool, names)| {
        let all = std::iter::once("").chain(names.iter().map(String::as_str));
        all.map(|ns| Level::of_namespace(*pool, ns)).collect::<Vec<_>>()
    })
}

/// Of pools for images that a schedule is about.
async fn namespaces(client: &Client, state: &ClusterState, schedules: &Schedules) -> Namespaces {
    let mut out = Namespaces::new();
    for (id, pool) in &state.osdmap.pools {
        let named = |level: &&Level| level.pool == Some(*id);
        let everywhere = schedules.levels.contains_key(&Level::everywhere());
        let has_images = pool.application_metadata.contains_key("rbd");
        if !has_images || !(everywhere || schedules.levels.keys().any(|l| named(&l))) {
            continue;
        }
        match directory::namespaces(&client.pool_by_id(*id)).await {
            Ok(names) => drop(out.insert(*id, names)),
            Err(e) => tracing::warn!("pool {id}: its namespaces are not known, so its trash stays: {e}"),
        }
    }
    out
}

async fn purge(client: &Client, level: &Level, now: Utime) {
    let mut io = client.pool_by_id(level.pool.unwrap_or_default());
    io.set_namespace(level.namespace.clone().into_bytes());
    let all = match trash::list(&io).await {
        Ok(all) => all,
        Err(e) => return tracing::warn!("the trash of {level} is not emptied: {e}"),
    };
    for (id, entry) in all {
        if entry.deferment_end_time > now || entry.source == trash::SOURCE_REMOVING {
            continue;
        }
        match image::remove_trashed(&io, &id, &|_, _| {}).await {
            Ok(()) => tracing::info!("image {id} is removed from the trash of {level}, by schedule"),
            Err(e) => tracing::warn!("image {id} stays in the trash of {level}: {e}"),
        }
    }
}
