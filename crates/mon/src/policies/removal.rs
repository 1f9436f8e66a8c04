//! Taking OSDs, or a host with all of its OSDs, out of the cluster for good: from the state to the next step.
//!
//! The steps: *out* (their data moves off); wait until no placement group needs them; *retire* them (a mark that ends
//! their process and keeps them from coming back); wait until they are down; *forget* them (map, CRUSH, key, facts; with
//! a host its bucket and its monitor).
//!
//! Invariants: each step is decided from the state alone, so whoever asks next goes on where the last one stopped, and
//! nothing is lost by stopping to ask. Nothing is begun that could not be finished: where copies would find no place
//! or no room, or have their only holders among those that go, the first step is refused, and says what to do.
//!
//! Not here: ending the processes (`node`), waiting (who asks, about once a second).

use crate::format::units;
use crate::policies::auto_out;
use crate::policies::spread::Spread;
use bytes::Bytes;
use cluster::{Change, Changes, ClusterState, ClusterStats};
use std::collections::BTreeSet;
use types::clusterlog::LogLevel;
use types::osdmap::{OsdMap, map_flag};
use types::{AuthName, EntityKind, OsdId, PgId, Utime};

/// Placement groups named in a refusal; the rest is counted.
const NAMED_MAX: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Osd(OsdId),
    Host(String),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Osd(id) => write!(f, "osd.{id}"),
            Self::Host(name) => write!(f, "host {name}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is begun: somebody must say that it shall be.
    Planned,
    Moving,
    Stopping,
    Done,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Moving => "moving",
            Self::Stopping => "stopping",
            Self::Done => "done",
        }
    }
}

/// Where it stands, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    pub text: String,
    pub osds: Vec<OsdId>,
    /// Placement groups that need them.
    pub pgs: usize,
    pub bytes: u64,
}

/// The next step towards `target` being gone, and where it stands then. `begin`: data may be moved. The error says why
/// not, and what to do.
pub fn step(
    state: &ClusterState,
    stats: &ClusterStats,
    target: &Target,
    begin: bool,
    now: Utime,
) -> (Changes, Result<Progress, String>) {
    match decide(state, stats, target, begin, now) {
        Ok((changes, progress)) => (changes, Ok(progress)),
        Err(why) => (Changes::none(), Err(why)),
    }
}

fn decide(
    state: &ClusterState,
    stats: &ClusterStats,
    target: &Target,
    begin: bool,
    now: Utime,
) -> Result<(Changes, Progress), String> {
    let map = &*state.osdmap;
    let going = Going::of(state, target)?;
    let needing = going.needing(state);
    let said = |phase, text: String| Progress {
        phase,
        text,
        osds: going.osds.iter().copied().collect(),
        pgs: needing.len(),
        bytes: bytes_of(stats, &needing),
    };
    if going.is_nothing() {
        return Ok((
            Changes::none(),
            said(Phase::Done, format!("{target} is not in the cluster")),
        ));
    }
    let inside: Vec<OsdId> = going.osds.iter().copied().filter(|o| map.is_in(*o)).collect();
    if !inside.is_empty() || !needing.is_empty() {
        going.may_leave(state, stats, &needing)?;
    }
    if !begin {
        return Ok((Changes::none(), said(Phase::Planned, going.plan(stats, &needing))));
    }
    if !inside.is_empty() {
        let text = format!("{} are out, and their data moves to the others", names(&inside));
        return Ok((out(state, &inside, target, now), said(Phase::Moving, text)));
    }
    if !needing.is_empty() {
        let text = moving_text(state, stats, &going, &needing);
        return Ok((Changes::none(), said(Phase::Moving, text)));
    }
    let staying = going.not_retired(state);
    if !staying.is_empty() {
        let text = format!("{} hold nothing any more and are stopped", names(&staying));
        return Ok((retire(state, &staying, target, now), said(Phase::Stopping, text)));
    }
    if let Some(text) = going.still_runs(state, stats) {
        return Ok((Changes::none(), said(Phase::Stopping, text)));
    }
    let changes = going.forget(state, target, now)?;
    Ok((changes, said(Phase::Done, format!("{target} is removed"))))
}

/// What goes.
struct Going {
    osds: BTreeSet<OsdId>,
    /// The host's bucket.
    bucket: Option<i32>,
    mon: Option<String>,
}

impl Going {
    fn of(state: &ClusterState, target: &Target) -> Result<Self, String> {
        let crush = &state.osdmap.crush;
        match target {
            Target::Osd(id) => {
                let known = state.osdmap.exists(*id) || crush.item_name(*id).is_some();
                Ok(Self {
                    osds: known.then_some(*id).into_iter().collect(),
                    bucket: None,
                    mon: None,
                })
            }
            Target::Host(name) => {
                let bucket = crush.item_id(name);
                if let Some(id) = bucket
                    && (id >= 0 || crush.item_type(id) != crush.type_id("host"))
                {
                    return Err(format!("{name} is not a host: ceph osd tree"));
                }
                let mon = state.monmap.mon_info.contains_key(name);
                Ok(Self {
                    osds: bucket.map_or_else(BTreeSet::new, |b| crush.devices_under(b).into_iter().collect()),
                    bucket,
                    mon: mon.then(|| name.clone()),
                })
            }
        }
    }

    fn is_nothing(&self) -> bool {
        self.osds.is_empty() && self.bucket.is_none() && self.mon.is_none()
    }

    /// Placement groups that lie on them, shall lie on them, or count them among those that hold every write.
    fn needing(&self, state: &ClusterState) -> BTreeSet<PgId> {
        let map = &*state.osdmap;
        let needs = |pg: &PgId| {
            let held = state
                .pgs
                .get(*pg)
                .is_some_and(|c| c.in_sync.iter().any(|o| self.osds.contains(o)));
            held || map.pg_to_up_acting(*pg).up.iter().any(|o| self.osds.contains(o))
        };
        map.pgs().filter(needs).collect()
    }

    fn not_retired(&self, state: &ClusterState) -> Vec<OsdId> {
        let map = &*state.osdmap;
        let unmarked = |o: &OsdId| {
            map.osd(*o)
                .is_some_and(|slot| map.exists(*o) && !slot.uuid.is_nil() && !state.is_retired(slot.uuid))
        };
        self.osds.iter().copied().filter(unmarked).collect()
    }

    /// Refuses what could not be finished.
    fn may_leave(
        &self,
        state: &ClusterState,
        stats: &ClusterStats,
        needing: &BTreeSet<PgId>,
    ) -> Result<(), String> {
        let map = &*state.osdmap;
        self.only_holders(state, needing)?;
        self.rules(state)?;
        let mut need = 0;
        let mut takers = BTreeSet::new();
        for (id, pool) in &map.pools {
            let spread = Spread::of(map, u32::from(pool.crush_rule));
            let rest = self.osds.iter().fold(spread.clone(), |s, o| s.without(*o));
            let concerned = needing.iter().any(|pg| pg.pool == *id);
            let (size, left) = (usize::from(pool.size), rest.domains.len());
            if concerned && left < size {
                let name = map.pool_name(*id).unwrap_or("?");
                let lower = match left {
                    _ if pool.is_erasure() => String::new(),
                    0 => String::new(),
                    n => format!(", or: ceph osd pool set {name} size {n}"),
                };
                let kept = if pool.is_erasure() { "shards" } else { "copies" };
                return Err(format!(
                    "pool '{name}' keeps {size} {kept} apart, and {left} failure domains would be left for them: add \
                     one first{lower}"
                ));
            }
            need += self
                .osds
                .iter()
                .map(|o| auto_out::share_of(state, stats, *id, &spread, *o))
                .sum::<u64>();
            takers.extend(rest.osds());
        }
        let room: u64 = takers.iter().map(|o| auto_out::free_bytes(map, stats, *o)).sum();
        if need > room {
            return Err(format!(
                "the OSDs that stay have room for {} more, and about {} would have to move: add OSDs or delete data \
                 first (ceph osd df)",
                units::bytes(room),
                units::bytes(need)
            ));
        }
        Ok(())
    }

    /// Data whose only holders, or too many of whose shards' holders, are down and would be removed.
    fn only_holders(&self, state: &ClusterState, needing: &BTreeSet<PgId>) -> Result<(), String> {
        let map = &*state.osdmap;
        let lost = |pg: &&PgId| {
            let enough = map.pool(pg.pool).map_or(1, |p| usize::from(map.enough(p)));
            let stays = |o: &&OsdId| !self.osds.contains(o) || map.is_up(**o);
            let pg = state.pgs.get(**pg);
            pg.is_some_and(|c| c.in_sync.iter().filter(stays).count() < enough)
        };
        let pgs: Vec<PgId> = needing.iter().filter(lost).copied().collect();
        if pgs.is_empty() {
            return Ok(());
        }
        let down: Vec<OsdId> = self.osds.iter().copied().filter(|o| !map.is_up(*o)).collect();
        Err(format!(
            "the only copies of pg {} lie on {}, which are down: start them once more, so that the data can move",
            some(&pgs),
            names(&down)
        ))
    }

    /// Rules that name the host itself.
    fn rules(&self, state: &ClusterState) -> Result<(), String> {
        let (map, Some(bucket)) = (&*state.osdmap, self.bucket) else {
            return Ok(());
        };
        let takes = |id: &u32| {
            map.crush.rule(*id).is_some_and(|r| {
                let mut steps = r.steps.iter().filter(|s| s.op == crush::step_op::TAKE);
                steps.any(|s| s.arg1 == bucket)
            })
        };
        let Some(rule) = map.crush.rule_ids().find(takes) else {
            return Ok(());
        };
        let name = map
            .crush
            .rule_names
            .get(&(rule as i32))
            .map_or("?", String::as_str);
        let pools: Vec<&str> = map
            .pools
            .iter()
            .filter(|(_, p)| u32::from(p.crush_rule) == rule)
            .filter_map(|(id, _)| map.pool_name(*id))
            .collect();
        Err(match pools.first() {
            Some(pool) => format!(
                "rule '{name}' takes copies of pool '{pool}' from this host: ceph osd pool set {pool} crush_rule RULE, then \
                 ceph osd crush rule rm {name}"
            ),
            None => format!("rule '{name}' takes copies from this host: ceph osd crush rule rm {name}"),
        })
    }

    fn plan(&self, stats: &ClusterStats, needing: &BTreeSet<PgId>) -> String {
        let osds: Vec<OsdId> = self.osds.iter().copied().collect();
        format!(
            "would move {} placement groups ({}) off {}, then stop and remove them",
            needing.len(),
            units::bytes(bytes_of(stats, needing)),
            names(&osds)
        )
    }

    /// What has not ended yet, in words.
    fn still_runs(&self, state: &ClusterState, stats: &ClusterStats) -> Option<String> {
        let map = &*state.osdmap;
        let serves = |o: &OsdId| map.is_up(*o) || map.exists(*o) && stats.leased.contains(o);
        let up: Vec<OsdId> = self.osds.iter().copied().filter(serves).collect();
        if !up.is_empty() {
            return Some(format!("waiting for {} to end", names(&up)));
        }
        let mon = self.mon.as_ref().filter(|m| stats.mons.contains_key(*m))?;
        Some(format!(
            "waiting for mon.{mon} to end; if it goes on: skep down on that host"
        ))
    }

    fn forget(&self, state: &ClusterState, target: &Target, now: Utime) -> Result<Changes, String> {
        let map = &*state.osdmap;
        let mut out = Changes::none();
        let mut removed: Vec<String> = Vec::new();
        for id in &self.osds {
            let inc = out.inc(state, now);
            inc.remove_osd(map, *id);
            if let Some(name) = map.crush.item_name(*id) {
                removed.push(name.to_string());
            }
            let key = AuthName::new(EntityKind::Osd, id.to_string());
            if state.auth.get(&key).is_some() {
                out.push(Change::AuthRm { name: key });
            }
            out.push(Change::OsdMetadata {
                id: *id,
                metadata: Default::default(),
            });
        }
        removed.extend(
            self.bucket
                .and_then(|b| map.crush.item_name(b))
                .map(str::to_string),
        );
        if !removed.is_empty() {
            let crush = out.inc(state, now).crush_mut(map);
            for name in &removed {
                crush.remove_item(name).map_err(|e| format!("{name}: {e}"))?;
            }
        }
        if let Some(mon) = &self.mon {
            let mut next = (*state.monmap).clone();
            if next.ranks.len() == 1 {
                return Err(format!(
                    "mon.{mon} is the last monitor: start another machine first"
                ));
            }
            next.mon_info.remove(mon);
            next.ranks.retain(|n| n != mon);
            next.last_changed = now;
            out.push(Change::MonMap(Box::new(next)));
        }
        let text = format!("{target} is removed from the cluster");
        out.push(Change::Log(state.log_entry(now, LogLevel::Info, text)));
        Ok(out)
    }
}

fn out(state: &ClusterState, osds: &[OsdId], target: &Target, now: Utime) -> Changes {
    let mut changes = Changes::none();
    for id in osds {
        changes.inc(state, now).mark_out(&state.osdmap, *id);
    }
    let text = format!("{target} is being removed: {} are out", names(osds));
    changes.push(Change::Log(state.log_entry(now, LogLevel::Info, text)));
    changes
}

fn retire(state: &ClusterState, osds: &[OsdId], target: &Target, now: Utime) -> Changes {
    let host = |id: OsdId| state.osd_metadata.get(&id).and_then(|m| m.get("hostname"));
    let mut changes = Changes::none();
    for id in osds {
        let Some(slot) = state.osdmap.osd(*id) else {
            continue;
        };
        let at = host(*id).map_or("?", String::as_str);
        changes.push(Change::ConfigKeySet {
            key: cluster::keys::retired(slot.uuid),
            value: Bytes::from(format!("osd.{id} of {at}, removed {now}")),
        });
    }
    let text = format!("{target} is being removed: {} hold nothing any more", names(osds));
    changes.push(Change::Log(state.log_entry(now, LogLevel::Info, text)));
    changes
}

fn moving_text(
    state: &ClusterState,
    stats: &ClusterStats,
    going: &Going,
    needing: &BTreeSet<PgId>,
) -> String {
    let map = &*state.osdmap;
    let mut text = format!(
        "{} placement groups ({}) still need {}",
        needing.len(),
        units::bytes(bytes_of(stats, needing)),
        names(&going.osds.iter().copied().collect::<Vec<_>>())
    );
    let rate = stats.recovery_rates(None).bytes;
    if rate > 0 {
        text.push_str(&format!("; {} are copied a second", units::bytes(rate)));
    }
    if let Some(flag) = held_by(map) {
        text.push_str(&format!(
            "; {flag} is set, so nothing moves: ceph osd unset {flag}"
        ));
    }
    text
}

fn held_by(map: &OsdMap) -> Option<&'static str> {
    [
        (map_flag::NOBACKFILL, "nobackfill"),
        (map_flag::NORECOVER, "norecover"),
        (map_flag::NOREBALANCE, "norebalance"),
    ]
    .into_iter()
    .find(|(bit, _)| map.has_flag(*bit))
    .map(|(_, name)| name)
}

fn bytes_of(stats: &ClusterStats, pgs: &BTreeSet<PgId>) -> u64 {
    let of = |pg: &PgId| stats.pg(*pg).map_or(0, |s| s.stats.sum.num_bytes.max(0) as u64);
    pgs.iter().map(of).sum()
}

/// `osd.1, osd.2`
fn names(osds: &[OsdId]) -> String {
    osds.iter()
        .map(|o| format!("osd.{o}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn some(pgs: &[PgId]) -> String {
    let shown: Vec<String> = pgs.iter().take(NAMED_MAX).map(PgId::to_string).collect();
    match pgs.len() > NAMED_MAX {
        true => format!("{} and {} more", shown.join(", "), pgs.len() - NAMED_MAX),
        false => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sample::Cluster;

    fn cmd(c: &mut Cluster, text: &str) {
        let out = c.run(text, b"");
        assert_eq!(out.code, 0, "{text}: {}", out.status);
    }

    /// A pool of three copies over the OSDs of one host.
    fn cluster(osds: i32) -> Cluster {
        let mut c = Cluster::with_osds(osds);
        cmd(
            &mut c,
            r#"{"prefix":"osd pool create","pool":"p","pg_num":16,"size":3}"#,
        );
        c
    }

    fn go(c: &mut Cluster, target: &Target, begin: bool) -> Result<Progress, String> {
        let (changes, done) = step(&c.state, &c.stats, target, begin, c.now);
        if !changes.is_empty() {
            c.state = c.state.apply(changes, c.now).unwrap().0;
        }
        done
    }

    /// Everything has moved: each PG is held by those that shall hold it.
    fn moved(c: &mut Cluster) {
        let map = c.state.osdmap.clone();
        let wishes = map.pgs().map(|pg| {
            let old = c.state.pgs.get(pg).unwrap();
            let up = map.pg_to_up_acting(pg).up;
            cluster::PgProposal {
                pg,
                expect: old.clone(),
                primary: up[0],
                in_sync: up,
                acting: None,
            }
        });
        let changes = Changes {
            pgs: wishes.collect(),
            ..Changes::none()
        };
        c.state = c.state.apply(changes, c.now).unwrap().0;
    }

    #[test]
    fn an_osd_goes_step_by_step() {
        let mut c = cluster(5);
        let osd = Target::Osd(4);
        let plan = go(&mut c, &osd, false).unwrap();
        assert_eq!(plan.phase, Phase::Planned);
        assert!(c.state.osdmap.is_in(4) && plan.pgs > 0, "{plan:?}");
        assert_eq!(go(&mut c, &osd, true).unwrap().phase, Phase::Moving);
        assert!(!c.state.osdmap.is_in(4));
        // Asked again: nothing is done twice.
        let epoch = c.state.osdmap.epoch;
        let moving = go(&mut c, &osd, true).unwrap();
        assert_eq!((moving.phase, c.state.osdmap.epoch), (Phase::Moving, epoch));
        assert!(moving.text.contains("still need osd.4"), "{}", moving.text);
        moved(&mut c);
        let uuid = c.state.osdmap.osd(4).unwrap().uuid;
        assert_eq!(go(&mut c, &osd, true).unwrap().phase, Phase::Stopping);
        assert!(c.state.is_retired(uuid) && c.state.osdmap.exists(4));
        assert_eq!(go(&mut c, &osd, true).unwrap().text, "waiting for osd.4 to end");
        cmd(&mut c, r#"{"prefix":"osd down","ids":["4"]}"#);
        // It cannot come back.
        c.boot(4);
        assert!(c.state.osdmap.is_down(4));
        assert_eq!(go(&mut c, &osd, true).unwrap().phase, Phase::Done);
        assert!(!c.state.osdmap.exists(4) && c.state.osdmap.crush.item_name(4).is_none());
        assert_eq!(
            go(&mut c, &osd, true).unwrap().text,
            "osd.4 is not in the cluster"
        );
    }

    #[test]
    fn what_could_not_be_finished_is_not_begun() {
        let mut c = cluster(3);
        let why = go(&mut c, &Target::Osd(1), true).unwrap_err();
        assert!(why.contains("size 2") && c.state.osdmap.is_in(1), "{why}");
        let mut c = cluster(4);
        (0..3).for_each(|id| c.fill(id, 0.85));
        c.pool_bytes(1, 4 << 30);
        let why = go(&mut c, &Target::Osd(3), true).unwrap_err();
        assert!(why.contains("room for") && c.state.osdmap.is_in(3), "{why}");
        // The only copy is on one that is down.
        let mut c = Cluster::with_osds(4);
        cmd(
            &mut c,
            r#"{"prefix":"osd pool create","pool":"p","pg_num":16,"size":1}"#,
        );
        cmd(&mut c, r#"{"prefix":"osd down","ids":["2"]}"#);
        let why = go(&mut c, &Target::Osd(2), true).unwrap_err();
        assert!(why.contains("only copies") && c.state.osdmap.is_in(2), "{why}");
        // No host, and something that is none.
        assert!(
            go(&mut c, &Target::Host("default".into()), true)
                .unwrap_err()
                .contains("not a host")
        );
        assert_eq!(
            go(&mut c, &Target::Host("nobody".into()), true).unwrap().phase,
            Phase::Done
        );
    }

    #[test]
    fn a_dead_host_goes_with_its_monitor() {
        let mut c = Cluster::with_osds(4);
        cmd(
            &mut c,
            r#"{"prefix":"osd crush add-bucket","name":"h4","type":"host"}"#,
        );
        cmd(
            &mut c,
            r#"{"prefix":"osd crush move","name":"h4","args":["root=default"]}"#,
        );
        cmd(
            &mut c,
            r#"{"prefix":"osd crush set","id":3,"weight":0.004,"args":["host=h4","root=default"]}"#,
        );
        cmd(
            &mut c,
            r#"{"prefix":"osd pool create","pool":"p","pg_num":16,"size":3}"#,
        );
        c.add_monitor("h4", 3301);
        c.monitor_lives("h4");
        let host = Target::Host("h4".into());
        assert_eq!(go(&mut c, &host, true).unwrap().phase, Phase::Moving);
        moved(&mut c);
        cmd(&mut c, r#"{"prefix":"osd down","ids":["3"]}"#);
        assert_eq!(go(&mut c, &host, true).unwrap().phase, Phase::Stopping);
        assert!(go(&mut c, &host, true).unwrap().text.contains("mon.h4"));
        c.stats.mons.clear();
        assert_eq!(go(&mut c, &host, true).unwrap().phase, Phase::Done);
        assert!(c.state.osdmap.crush.item_id("h4").is_none() && !c.state.osdmap.exists(3));
        assert!(!c.state.monmap.mon_info.contains_key("h4"));
    }
}
