//! What must hold when all is over.
//!
//! - every PG is clean: its in-sync set is what CRUSH wants, all up, and its primary says active and clean;
//! - the history of every object is linearizable (which includes that no acknowledged write is lost);
//! - the copies of every PG are equal, objects and logs.
//!
//! A placement group that bits that flipped may have cost something ([`crate::rot`]) may stay unclean: it is *lost* then, and
//! not compared. One that is clean has to be whole, whatever flipped.
//!
//! Not here: what must hold at every moment (`watchdog`).

use crate::cluster::{Cluster, OsdNode};
use crate::coded;
use crate::copies::{Copy, Part, difference};
use crate::linear::{self, Entry, Verdict};
use crate::places::POOL;
use crate::workload::History;
use cluster::{ClusterState, ClusterStats};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;
use store::Store;
use tokio::time::sleep;
use types::PgPool;
use types::osdmap::WEIGHT_IN;
use types::pgstats::pg_state;
use types::places;
use types::{HObject, ObjectId, OsdId, PgId, SPgId};

/// Objects asked for at a time.
const LIST: usize = 256;
/// Of an object of which a checksum does not fit.
const UNREADABLE: &str = "unreadable";
/// What may stay unclean gets so long to become clean all the same.
const LOST_AFTER: Duration = Duration::from_secs(30);
const OMAP_ENTRIES: usize = 4096;
const OMAP_BYTES: usize = 64 << 20;

/// Why a configuration is not what is wanted; None: the PG has all its copies, where they belong.
fn unclean_config(state: &ClusterState, pg: PgId) -> Option<String> {
    let map = &state.osdmap;
    let Some(config) = state.pgs.get(pg) else {
        return Some(format!("{pg} has no configuration"));
    };
    let size = usize::from(map.pool(POOL).map_or(0, |p| p.size));
    let up = map.pg_to_up_acting(pg).up;
    // A shard stays with who has it, also where CRUSH lists it at another one.
    let in_place = match map.pool(POOL).is_some_and(PgPool::is_erasure) {
        false => config.in_sync == up,
        true => config.acting == places::target(&config.acting, &places::listed(&up), size),
    };
    if !in_place {
        return Some(format!(
            "{pg} is in sync on {:?}, wanted on {up:?}",
            config.in_sync
        ));
    }
    let short = config.in_sync.len() < size || up.len() < size || up.iter().any(|o| !map.is_up(*o));
    short.then(|| format!("{pg} has copies on {up:?} only"))
}

/// What its primary has to add.
fn unclean_by_report(state: &ClusterState, stats: &ClusterStats, pg: PgId) -> Option<String> {
    let primary = state.pgs.get(pg).map_or(-1, |c| c.primary);
    let report = stats.osds.get(&primary).and_then(|r| r.pgs.get(&pg));
    let Some(report) = report else {
        return Some(format!("{pg}: osd.{primary} reports nothing"));
    };
    let want = pg_state::ACTIVE | pg_state::CLEAN;
    (report.state & want != want).then(|| format!("{pg}: osd.{primary} says {:#x}", report.state))
}

/// Why the configuration of some PG is not what is wanted.
pub fn unclean(cluster: &Cluster) -> Option<String> {
    let state = cluster.view.state();
    let mut pgs = state.osdmap.pgs().filter(|pg| pg.pool == POOL);
    pgs.find_map(|pg| unclean_config(&state, pg))
}

/// All PGs that are not clean, and why.
fn unclean_pgs(cluster: &Cluster) -> Vec<(PgId, String)> {
    let (state, stats) = (cluster.view.state(), cluster.view.stats());
    let why = |pg| unclean_config(&state, pg).or_else(|| unclean_by_report(&state, &stats, pg));
    let pgs = state.osdmap.pgs().filter(|pg| pg.pool == POOL);
    let mut unclean: Vec<(PgId, String)> = pgs.filter_map(|pg| Some((pg, why(pg)?))).collect();
    // Steps wait until every group is clean, which one that bits have cost something may never be again.
    let held = unclean.iter().any(|(pg, _)| cluster.rot.excuses(*pg));
    let on_its_way = |p: &&PgPool| p.pg_num != p.pg_num_target || p.pgp_num != p.pgp_num_target;
    if let Some(pool) = state.osdmap.pool(POOL).filter(|p| !held && on_its_way(p)) {
        let last = PgId::new(POOL, pool.pg_num - 1);
        unclean.push((
            last,
            format!(
                "{last} is the last one, {} PGs are wanted; {} have a place, of {}",
                pool.pg_num_target, pool.pgp_num, pool.pgp_num_target
            ),
        ));
    }
    unclean
}

/// Whoever was taken out, or less in, was taken in again: that was an operator's last word.
pub fn weights(cluster: &Cluster) -> Vec<String> {
    let map = cluster.view.osdmap();
    let nodes = cluster.osds.borrow();
    let there = nodes.iter().filter(|n| !n.gone.get());
    let less = there.filter(|n| map.weight(n.id) != WEIGHT_IN);
    less.map(|n| format!("osd.{} has weight {:#x} in the end", n.id, map.weight(n.id)))
        .collect()
}

/// What flipped bits have cost: PGs that are not clean, and need not be.
pub fn lost(cluster: &Cluster) -> BTreeSet<PgId> {
    let pgs = unclean_pgs(cluster).into_iter().map(|(pg, _)| pg);
    pgs.filter(|pg| cluster.rot.excuses(*pg)).collect()
}

/// Waits until every PG is clean, for at most `most`; what is missing then. Those that may be lost are waited for, but not
/// for as long.
pub async fn becomes_clean(cluster: &Cluster, most: Duration) -> Option<String> {
    let began = cluster.sim.elapsed();
    loop {
        let unclean = unclean_pgs(cluster);
        if unclean.is_empty() {
            return None;
        }
        let waited = cluster.sim.elapsed() - began;
        let mut wrong = unclean.into_iter().filter(|(pg, _)| !cluster.rot.excuses(*pg));
        match wrong.next() {
            Some((_, why)) if waited >= most => return Some(why),
            None if waited >= most.min(LOST_AFTER) => return None,
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
}

pub fn linearizable(history: &History) -> Vec<String> {
    let objects = history.objects.borrow();
    let mut out = Vec::new();
    for (oid, entries) in objects.iter() {
        match linear::check(entries) {
            Verdict::Linearizable => {}
            verdict => out.push(format!(
                "{oid} is not linearizable ({verdict:?}):{}",
                listing(entries)
            )),
        }
    }
    out
}

fn listing(entries: &[Entry]) -> String {
    let mut out = String::new();
    for e in entries {
        // Writing to a String does not fail.
        let _ = match &e.told {
            Some((at, told)) => write!(
                out,
                "\n    {:4}-{at:4} client.{} {}: {told}",
                e.called, e.client, e.ask
            ),
            None => write!(out, "\n    {:4}-     client.{} {}", e.called, e.client, e.ask),
        };
    }
    out
}

/// Compares all copies but those of PGs that are lost. The OSDs have to be stopped.
pub fn copies_equal(cluster: &Rc<Cluster>, lost: &BTreeSet<PgId>) -> Vec<String> {
    let mut wrongs = Vec::new();
    let mut disks: BTreeMap<OsdId, BTreeMap<SPgId, Copy>> = BTreeMap::new();
    for node in cluster.osds.borrow().iter().filter(|n| !n.gone.get()) {
        match read_disk(cluster, node) {
            Ok(copies) => drop(disks.insert(node.id, copies)),
            Err(why) => wrongs.push(format!("osd.{}: its store cannot be read: {why}", node.id)),
        }
    }
    let state = cluster.view.state();
    let kept = |pg: &PgId| pg.pool == POOL && !lost.contains(pg);
    for pg in state.osdmap.pgs().filter(kept) {
        let members = members(&state, pg, cluster.coded.get().is_some());
        let nothing = Copy::default();
        let of = |(osd, slot): (OsdId, SPgId)| {
            let copy = disks.get(&osd).and_then(|d| d.get(&slot));
            (osd, copy.unwrap_or(&nothing))
        };
        let copies: Vec<(OsdId, &Copy)> = members.into_iter().map(of).collect();
        for (osd, copy) in &copies {
            let mut objects = copy.objects.iter();
            if let Some((oid, _)) = objects.find(|(_, words)| *words == UNREADABLE) {
                wrongs.push(format!("{pg}: osd.{osd} cannot read {oid}"));
            }
        }
        if let Some(coded) = cluster.coded.get() {
            wrongs.extend(coded::difference(coded, &copies).map(|why| format!("{pg}: {why}")));
            continue;
        }
        let Some(((first, copy), others)) = copies.split_first() else {
            continue;
        };
        for (other, its) in others {
            if let Some(why) = difference(copy, its) {
                wrongs.push(format!("{pg}: osd.{first} and osd.{other} differ: {why}"));
            }
        }
    }
    wrongs
}

/// Who has what of a PG: of shards in their order.
fn members(state: &ClusterState, pg: PgId, coded: bool) -> Vec<(OsdId, SPgId)> {
    let Some(config) = state.pgs.get(pg) else {
        return Vec::new();
    };
    let shard = |(at, osd): (usize, &Option<OsdId>)| {
        let shard = i8::try_from(at).ok()?;
        osd.map(|osd| (osd, SPgId { pg, shard }))
    };
    match coded {
        false => config
            .in_sync
            .iter()
            .map(|o| (*o, SPgId::replicated(pg)))
            .collect(),
        true => config.acting.iter().enumerate().filter_map(shard).collect(),
    }
}

fn read_disk(cluster: &Cluster, node: &OsdNode) -> Result<BTreeMap<SPgId, Copy>, String> {
    let store = cluster.open_store(node)?;
    let state = cluster.view.state();
    let pool = state.osdmap.pool(POOL).ok_or("no pool")?;
    let mut out: BTreeMap<SPgId, Copy> = BTreeMap::new();
    let coded = cluster.coded.get().is_some();
    let mut from = ObjectId {
        shard: i8::MIN,
        object: HObject {
            pool: POOL,
            ..HObject::min()
        },
    };
    let text = |e: store::Error| e.to_string();
    loop {
        let page = store.list(&from, LIST).map_err(text)?;
        let last = page.last().cloned();
        for oid in page.iter().filter(|o| o.object.pool == POOL && **o != from) {
            let pg = PgId::new(POOL, pool.raw_to_pg(oid.object.hash));
            let slot = match (coded, oid.shard) {
                (false, _) => SPgId::replicated(pg),
                // What was set aside is no part of it.
                (true, ..0) => continue,
                (true, shard) => SPgId { pg, shard },
            };
            let copy = out.entry(slot).or_default();
            let name = format!("{:?}", oid.object);
            let words = match object(&store, oid, coded) {
                Err(store::Error::Corrupt { .. }) => UNREADABLE.into(),
                Err(e) => return Err(text(e)),
                Ok((words, part)) => {
                    copy.parts.extend(part.map(|part| (name.clone(), part)));
                    words
                }
            };
            copy.objects.insert(name, words);
        }
        match last {
            Some(l) if page.len() == LIST && l.object.pool == POOL => from = l,
            _ => break,
        }
    }
    for c in store.collections() {
        let pg = c.pg;
        if pg.pool == POOL && pg.seed < pool.pg_num {
            let entries = store.log_entries(&c).map_err(text)?;
            let mut log = BTreeMap::new();
            for (version, raw) in entries {
                // A split PG may remember writes to objects that left it, or not.
                let line = pg::inspect::log_entry(&raw).map_err(|e| e.to_string())?;
                if pool.raw_to_pg(line.object.hash) == pg.seed {
                    log.insert(version, raw.to_vec());
                }
            }
            out.entry(c).or_default().log = log;
        }
    }
    Ok(out)
}

/// All that an object has, short enough to read. Of shards the data by itself.
fn object(store: &Store, oid: &ObjectId, coded: bool) -> Result<(String, Option<Part>), store::Error> {
    let size = store.stat(oid)?.size;
    let data = store.read(oid, 0, size)?;
    let omap = store.omap_range(oid, std::ops::Bound::Unbounded, OMAP_ENTRIES, OMAP_BYTES)?;
    let attrs = store.attrs(oid)?;
    let sum = |b: &[u8]| types::checksum::crc32c(!0, b);
    let mut out = match coded {
        false => format!("{size} bytes, sum {:08x}", sum(&data)),
        true => format!("{size} bytes"),
    };
    for (what, rows) in [("attr", &attrs), ("omap", &omap.entries)] {
        for (k, v) in rows {
            // Writing to a String does not fail.
            let _ = write!(
                out,
                ", {what} {} {}/{:08x}",
                String::from_utf8_lossy(k),
                v.len(),
                sum(v)
            );
        }
    }
    let _ = write!(out, ", header {:08x}", sum(&store.omap_header(oid)?));
    Ok((out, coded.then_some(Part { size, data })))
}
