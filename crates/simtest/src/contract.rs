//! What must hold between any two states of the cluster that follow each other: the rules of the configuration
//! (docs/internals/replication.md), held against every commit.
//!
//! Here a rule that is broken is seen at once, also where nothing goes wrong for a client in this run.
//!
//! Not here: who serves (`watchdog`), what proposals stand on (the state does not say that).

use crate::cluster::Cluster;
use crate::places::POOL;
use cluster::{ClusterState, PgConfig};
use io_sim::Trace;
use std::cell::RefCell;
use std::sync::Arc;
use types::{OsdId, PgId, PgPool, places};

/// Wrongs that are noted: more say the same.
const NOTED_MAX: usize = 3;

/// Follows the cluster state from now on.
pub fn watch(cluster: &Cluster) {
    let (trace, wrongs) = (cluster.sim.trace.clone(), cluster.wrongs.clone());
    let mut states = cluster.view.subscribe_state();
    tokio::task::spawn_local(async move {
        let mut before = states.borrow_and_update().clone();
        while states.changed().await.is_ok() {
            let now = states.borrow_and_update().clone();
            // One commit makes one epoch, where it changes the map or a placement group at all.
            if now.osdmap.epoch == before.osdmap.epoch + 1 {
                note(&trace, &wrongs, &before, &now);
            }
            before = now;
        }
    });
}

fn note(trace: &Trace, wrongs: &RefCell<Vec<String>>, before: &Arc<ClusterState>, now: &Arc<ClusterState>) {
    for (pg, config) in now.pgs.iter().filter(|(pg, _)| pg.pool == POOL) {
        let Some(why) = breach(before, now, pg, config) else {
            continue;
        };
        let old = before.pgs.get(pg);
        let epoch = now.osdmap.epoch;
        let line = format!("the contract, in epoch {epoch}, {pg}: {why}: {old:?} became {config:?}");
        trace.note(format_args!("{line}"));
        let mut wrongs = wrongs.borrow_mut();
        if wrongs.len() < NOTED_MAX {
            wrongs.push(line);
        }
    }
}

/// The rule that this commit broke.
fn breach(before: &ClusterState, now: &ClusterState, pg: PgId, new: &PgConfig) -> Option<&'static str> {
    let (was, map) = (&before.osdmap, &now.osdmap);
    let twice = |(at, o): (usize, &OsdId)| new.in_sync[..at].contains(o);
    if new.in_sync.first() != Some(&new.primary) || new.in_sync.iter().enumerate().any(twice) {
        return Some("the primary is the first of a set");
    }
    let stand = |o: &OsdId| new.acting.iter().filter(|a| **a == Some(*o)).count();
    if new.in_sync.iter().any(|o| stand(o) != 1) || new.acting.iter().flatten().count() != new.in_sync.len() {
        return Some("who is in sync has one position, and nobody else has one");
    }
    if let Some(why) = bad_merge(before, now, pg, new) {
        return Some(why);
    }
    let up = map.pg_to_up_acting(pg).up;
    let asleep = new.in_sync.iter().all(|o| !map.is_up(*o));
    let home = match map.pool(POOL).is_some_and(PgPool::is_erasure) {
        false => new.in_sync.clone(),
        true => places::to_set(&new.acting),
    };
    if up != home && !asleep && map.pg_temp.get(&pg) != Some(&home) {
        return Some("the map says where the data is");
    }
    let Some(old) = before.pgs.get(pg) else {
        let pool = was.pool(POOL).filter(|pool| pg.seed >= pool.pg_num)?;
        let ancestor = before.pgs.get(PgId::new(POOL, pool.raw_to_pg(pg.seed)))?;
        let strange = new.in_sync.iter().any(|o| !ancestor.in_sync.contains(o));
        return strange.then_some("what is split off begins where its ancestor is");
    };
    let is_new = new.interval == map.epoch;
    if !is_new && new.interval != old.interval {
        return Some("an interval is an epoch in which it began");
    }
    if new.primary != old.primary && !old.in_sync.contains(&new.primary) {
        return Some("only who is in sync becomes primary");
    }
    let size = map.pool(POOL).map_or(1, |p| usize::from(p.size));
    let mut places = old.acting.iter().zip(&new.acting).take(size);
    if places.any(|(was, is)| was != is && was.is_some_and(|o| new.in_sync.contains(&o))) {
        return Some("who is in sync keeps its position");
    }
    let returned = !was.is_up(new.primary) && map.is_up(new.primary);
    if (new.primary != old.primary || returned) && !is_new {
        return Some("a primary's term begins with it");
    }
    let least = map.pool(POOL).map_or(1, |p| usize::from(p.min_size));
    if new.in_sync.len() < old.in_sync.len().min(least) {
        return Some("a set keeps min_size");
    }
    let mut joined = new.in_sync.iter().filter(|o| !old.in_sync.contains(o));
    if joined.any(|o| !map.is_up(*o)) {
        return Some("only who is up joins");
    }
    None
}

/// What is wrong with a merge into this PG that this commit made.
fn bad_merge(before: &ClusterState, now: &ClusterState, pg: PgId, new: &PgConfig) -> Option<&'static str> {
    let joined = new.life.joined.as_ref()?;
    let (was, is) = (before.osdmap.pool(pg.pool)?, now.osdmap.pool(pg.pool)?);
    if joined.epoch != now.osdmap.epoch {
        return None;
    }
    if is.pg_num + 1 != was.pg_num || joined.source != is.pg_num || new.interval != joined.epoch {
        return Some("a merge takes the last one, and begins a term");
    }
    let (source, target) = (
        before.pgs.get(PgId::new(pg.pool, joined.source))?,
        before.pgs.get(pg)?,
    );
    let held = |o: &OsdId| source.in_sync.contains(o) && target.in_sync.contains(o);
    (!joined.members.iter().all(held)).then_some("who joins two has all of both")
}
