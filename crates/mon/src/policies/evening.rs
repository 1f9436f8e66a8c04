//! When the cluster evens itself out, and what becomes of it: numbers of placement groups (`autoscale`, `pg_steps`), bytes on
//! OSDs (`balance`), replacements that have become stale.
//!
//! All of it waits while anything heals, and moves a bounded part of the objects at a time (`target_max_misplaced_ratio`, 5 %).
//! [`Evening`] says what is due by the clock; [`think`] decides from state and reports; [`Thought::changes`] is what is
//! committed, decided again where the state became another one meanwhile.

use crate::policies::autoscale::{self, Adjustment, Limits};
use crate::policies::balance::{self, Bounds, Field, Move};
use crate::policies::pg_steps;
use crate::policies::survey::Survey;
use cluster::{Change, Changes, ClusterState, ClusterStats};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::clusterlog::LogLevel;
use types::osdmap::{Incremental, OsdMap, map_flag};
use types::{Epoch, PoolId, Utime, release};

pub const ACTIVE: &str = "mgr/balancer/active";
pub const MODE: &str = "mgr/balancer/mode";
pub const POOLS: &str = "mgr/balancer/pool_ids";
const BALANCER_SLEEP: &str = "mgr/balancer/sleep_interval";
/// Skep's own.
const OFF_DISK: &str = "mgr/balancer/min_disk_ratio";
const MOVES_MAX: &str = "mgr/balancer/upmap_max_optimizations";
const AUTOSCALER_SLEEP: &str = "mgr/pg_autoscaler/sleep_interval";
/// In the store of keys: what the balancer did last.
pub const LAST: &str = "mgr/balancer/last";

const SLEEP_SEC: u64 = 60;
/// Steps, and stale replacements.
const STEP_SEC: u64 = 5;
const MOVES_DEFAULT: u64 = 10;
/// Each is looked for among all groups, while the monitor waits.
const MOVES_MOST: u64 = 100;
const MISPLACED_MAX: f64 = 0.05;
/// Groups of which stale replacements are taken away at once.
const STALE_MAX: usize = 256;
/// What it did last is written again after so long, even if nothing is new.
const LAST_SEC: f64 = 600.0;
/// Groups named in a line of the cluster log.
const NAMED_MAX: usize = 10;

pub const NOTHING: &str = "Unable to find further optimization, or pool(s) pg_num is decreasing, or distribution is already perfect";
pub const PLANNED: &str = "Optimization plan created successfully";

fn number<T: std::str::FromStr>(state: &ClusterState, name: &str, default: T) -> T {
    let set = state.mgr_option(name).and_then(|v| v.parse().ok());
    set.unwrap_or(default)
}

pub fn is_active(state: &ClusterState) -> bool {
    state.mgr_option(ACTIVE) != Some("false")
}

pub fn mode(state: &ClusterState) -> &str {
    state.mgr_option(MODE).unwrap_or("upmap")
}

/// The pools that are balanced by themselves; None: all. Of pools that are named and gone nothing is left to balance.
pub fn pools(state: &ClusterState) -> Option<BTreeSet<PoolId>> {
    let text = state.mgr_option(POOLS).unwrap_or("");
    let ids = text.split(',').filter_map(|id| id.trim().parse().ok());
    let ids: BTreeSet<PoolId> = ids.filter(|id| state.osdmap.pool(*id).is_some()).collect();
    (!text.trim().is_empty()).then_some(ids)
}

pub fn misplaced_max(state: &ClusterState) -> f64 {
    number(state, "target_max_misplaced_ratio", MISPLACED_MAX)
}

/// How much one plan may move, where so much lies elsewhere already.
pub fn bounds(state: &ClusterState, misplaced: f64) -> Bounds {
    Bounds {
        moves: number(state, MOVES_MAX, MOVES_DEFAULT).min(MOVES_MOST) as usize,
        ratio: (misplaced_max(state) - misplaced).max(0.0),
    }
}

/// When something was last looked at, in monotonic seconds.
#[derive(Debug, Default)]
pub struct Evening {
    began: Option<u64>,
    scaled: u64,
    balanced: u64,
    stepped: u64,
    /// What decided where replacements lead when they were last looked through and none was stale. While any is, they are
    /// looked through again and again: it is not known whether what was decided came about, and it was not all.
    tidied: Option<Grounds>,
}

/// CRUSH, the OSDs' weights, how many groups have replacements, and of each pool its rule, copies and groups.
type Grounds = (u32, Vec<u32>, usize, Vec<(PoolId, u8, u8, u32, u32)>);

fn grounds(map: &OsdMap) -> Grounds {
    let weights = map.osd_ids().map(|id| map.weight(id)).collect();
    let pools = map.pools.iter();
    let pools = pools.map(|(id, p)| (*id, p.crush_rule, p.size, p.pg_num, p.pgp_num));
    (
        map.crush_version,
        weights,
        map.pg_upmap_items.len(),
        pools.collect(),
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Due {
    pub scale: bool,
    pub step: bool,
    pub balance: bool,
    pub tidy: bool,
}

impl Due {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Evening {
    /// A monitor that has just begun waits as long as one that has just looked.
    pub fn due(&mut self, state: &ClusterState, now_sec: u64) -> Due {
        let map = &state.osdmap;
        if self.began.is_none() {
            self.began = Some(now_sec);
            (self.scaled, self.balanced, self.stepped) = (now_sec, now_sec, now_sec);
        }
        let passed = |last: &mut u64, sec: u64| {
            let over = now_sec.saturating_sub(*last) >= sec;
            if over {
                *last = now_sec;
            }
            over
        };
        let sleep = number(state, AUTOSCALER_SLEEP, SLEEP_SEC).max(1);
        let scale = passed(&mut self.scaled, sleep);
        let balance = passed(
            &mut self.balanced,
            number(state, BALANCER_SLEEP, SLEEP_SEC).max(1),
        );
        let step = passed(&mut self.stepped, STEP_SEC.min(sleep));
        let now = (step && !map.pg_upmap_items.is_empty()).then(|| grounds(map));
        let tidy = now.is_some() && self.tidied != now && !balance::stale(map, 1).is_empty();
        if now.is_some() {
            self.tidied = now.filter(|_| !tidy);
        }
        Due {
            scale: scale && !autoscale::is_off(state),
            step: step && pg_steps::are_due(map),
            balance: balance && is_active(state) && mode(state) == "upmap",
            tidy,
        }
    }
}

/// What was decided, and from what.
#[derive(Debug, Default)]
pub struct Thought {
    due: Due,
    /// Of the OSD map that it was decided from.
    epoch: Epoch,
    survey: Survey,
    adjustments: Vec<Adjustment>,
    moves: Vec<Move>,
    /// Of the balancer, in words.
    result: String,
    pub took: Duration,
}

pub fn think(due: Due, state: &ClusterState, stats: &ClusterStats) -> Thought {
    let mut out = Thought {
        due,
        epoch: state.osdmap.epoch,
        ..Thought::default()
    };
    if !(due.scale || due.step || due.balance) {
        return out;
    }
    out.survey = Survey::of(&state.osdmap, stats);
    if due.scale && out.survey.is_clean() && !pg_steps::are_due(&state.osdmap) && !is_held(&state.osdmap) {
        let sizes = autoscale::sizes(state, stats, &out.survey);
        out.adjustments = autoscale::adjustments(&sizes, &Limits::of(state));
    }
    if due.balance {
        let some = pools(state);
        match moves(state, stats, &out.survey, some.as_ref()) {
            Ok(moves) => {
                out.result = PLANNED.into();
                out.moves = moves;
            }
            Err(why) => out.result = why,
        }
    }
    out
}

/// True if an operator wants nothing moved now.
fn is_held(map: &OsdMap) -> bool {
    let held = map_flag::NOBACKFILL | map_flag::NOREBALANCE | map_flag::NORECOVER | map_flag::PAUSEREC;
    map.flags & held != 0
}

/// What the balancer would move now; else why it moves nothing.
pub fn moves(
    state: &ClusterState,
    stats: &ClusterStats,
    survey: &Survey,
    pools: Option<&BTreeSet<PoolId>>,
) -> Result<Vec<Move>, String> {
    let map = &*state.osdmap;
    let floor = map.require_min_compat_client;
    if floor < release::LUMINOUS {
        return Err(format!(
            "min_compat_client \"{}\" < \"luminous\", which is required for pg-upmap. Try \"ceph osd \
             set-require-min-compat-client luminous\" before enabling this mode",
            release::name(floor)
        ));
    }
    if is_held(map) {
        return Err("norebalance, nobackfill or norecover is set: nothing is moved".into());
    }
    let part = |n: usize| n as f64 / survey.groups.len().max(1) as f64;
    if survey.unknown > 0 {
        return Err(format!(
            "Some PGs ({:.6}) are unknown; try again later",
            part(survey.unknown)
        ));
    }
    if survey.degraded > 0 {
        return Err(format!(
            "Some objects ({:.6}) are degraded; try again later",
            survey.degraded_ratio()
        ));
    }
    if survey.inactive > 0 {
        return Err(format!(
            "Some PGs ({:.6}) are inactive; try again later",
            part(survey.inactive)
        ));
    }
    let (misplaced, most) = (survey.misplaced_ratio(), misplaced_max(state));
    if misplaced >= most {
        return Err(format!(
            "Too many objects ({misplaced:.6} > {most:.6}) are misplaced; try again later"
        ));
    }
    let field = Field::of(
        state,
        stats,
        survey,
        pools,
        number(state, OFF_DISK, balance::OFF_DISK),
    );
    match balance::plan(&field, bounds(state, misplaced)) {
        moves if moves.is_empty() => Err(NOTHING.into()),
        moves => Ok(moves),
    }
}

impl Thought {
    /// What is to be committed to `state`.
    pub fn changes(&self, state: &ClusterState, now: Utime) -> Changes {
        let mut out = Changes::none();
        self.tidy(state, now, &mut out);
        self.scale(state, now, &mut out);
        self.step(state, now, &mut out);
        self.balance(state, now, &mut out);
        // No epoch in which nothing is new.
        let nothing = Incremental::next_after(&state.osdmap, now);
        out.osdmap = out.osdmap.filter(|inc| **inc != nothing);
        out
    }

    /// True if the survey is of an older map. It may be that what was decided came about, although nobody said so: what
    /// moves data is decided again from reports about it.
    fn is_overtaken(&self, map: &OsdMap) -> bool {
        map.epoch != self.epoch
    }

    fn tidy(&self, state: &ClusterState, now: Utime, to: &mut Changes) {
        if !self.due.tidy {
            return;
        }
        let stale = balance::stale(&state.osdmap, STALE_MAX);
        if stale.is_empty() {
            return;
        }
        balance::write(&state.osdmap, &stale, to.inc(state, now));
        let named: Vec<String> = stale.keys().take(NAMED_MAX).map(|pg| pg.to_string()).collect();
        let text = format!(
            "pg_upmap_items of {} placement groups are stale and removed ({}{})",
            stale.len(),
            named.join(", "),
            if stale.len() > NAMED_MAX { ", ..." } else { "" }
        );
        log(state, now, text, to);
    }

    fn scale(&self, state: &ClusterState, now: Utime, to: &mut Changes) {
        let map = &*state.osdmap;
        for a in &self.adjustments {
            let as_thought = map
                .pool(a.pool)
                .is_some_and(|p| p.pg_num_target == a.from && !pg_steps::is_on_its_way(p));
            if !as_thought {
                continue;
            }
            if let Some(p) = to.inc(state, now).pool_mut(map, a.pool) {
                pg_steps::aim(p, a.to);
            }
            let text = format!(
                "PG autoscaler: pool '{}' shall have {} PGs instead of {}: {}",
                map.pool_name(a.pool).unwrap_or_default(),
                a.to,
                a.from,
                a.why
            );
            log(state, now, text, to);
        }
        if self.due.scale {
            let gone = autoscale::stale_keys(state).into_iter();
            to.list.extend(gone.map(|key| Change::ConfigKeyRm { key }));
        }
    }

    fn step(&self, state: &ClusterState, now: Utime, to: &mut Changes) {
        let map = &*state.osdmap;
        let ready = self.survey.is_clean() && !is_held(map);
        if !self.due.step || !ready || self.is_overtaken(map) {
            return;
        }
        let part = misplaced_max(state) - self.survey.misplaced_ratio();
        let wanted = |(_, p): &(&PoolId, &types::pool::PgPool)| pg_steps::next(p, 0.0, part).is_some();
        if map.pools.iter().any(|p| wanted(&p)) {
            pg_steps::take(map, &self.survey, part, to.inc(state, now));
        }
    }

    fn balance(&self, state: &ClusterState, now: Utime, to: &mut Changes) {
        let map = &*state.osdmap;
        if !self.due.balance || self.is_overtaken(map) {
            return;
        }
        if !self.moves.is_empty() {
            let items = balance::items(map, &self.moves);
            if !items.is_empty() {
                balance::write(map, &items, to.inc(state, now));
                log(state, now, self.moves_text(&items.keys().copied().collect()), to);
            }
        }
        let last = last(state);
        let same = last["optimize_result"] == self.result.as_str();
        let at = last["at"].as_f64().unwrap_or(0.0);
        let seconds = now.to_duration().as_secs_f64();
        if self.moves.is_empty() && same && (seconds - at).abs() < LAST_SEC {
            return;
        }
        to.push(Change::ConfigKeySet {
            key: LAST.into(),
            value: record(&self.result, self.took, now).to_string().into(),
        });
    }

    fn moves_text(&self, kept: &BTreeSet<types::PgId>) -> String {
        let kept: Vec<&Move> = self.moves.iter().filter(|m| kept.contains(&m.pg)).collect();
        let bytes: u64 = kept.iter().map(|m| m.bytes).sum();
        let named = kept.iter().take(NAMED_MAX);
        let named: Vec<String> = named
            .map(|m| format!("{} osd.{} -> osd.{}", m.pg, m.from, m.to))
            .collect();
        format!(
            "balancer: {} to even out bytes, {} placement groups: {}{}",
            crate::format::units::bytes(bytes),
            kept.len(),
            named.join(", "),
            if kept.len() > NAMED_MAX { ", ..." } else { "" }
        )
    }
}

fn log(state: &ClusterState, now: Utime, text: String, to: &mut Changes) {
    to.push(Change::Log(state.log_entry(now, LogLevel::Info, text)));
}

/// What the balancer did last, as [`LAST`] keeps it.
pub fn last(state: &ClusterState) -> Value {
    let raw = state.config_keys.get(LAST);
    let parsed = raw.and_then(|raw| serde_json::from_slice(raw).ok());
    parsed.unwrap_or_else(|| json!({}))
}

pub fn record(result: &str, took: Duration, now: Utime) -> Value {
    let sec = took.as_secs();
    json!({
        "at": now.to_duration().as_secs_f64(),
        "last_optimize_duration": format!("{}:{:02}:{:02}.{:06}", sec / 3600, sec / 60 % 60, sec % 60, took.subsec_micros()),
        "last_optimize_started": crate::format::units::c_time(now),
        "no_optimization_needed": result == NOTHING,
        "optimize_result": result,
    })
}

/// Replacements by group, as plans keep them.
pub type Items = BTreeMap<types::PgId, Vec<(types::OsdId, types::OsdId)>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sample::Cluster;
    use crate::policies::balance::tests::cluster;
    use types::PgId;

    fn apply(c: &mut Cluster, changes: Changes) {
        c.state = c.state.apply(changes, c.now).unwrap().0;
        c.report();
    }

    fn set(c: &mut Cluster, who: &str, name: &str, value: &str) {
        let (who, name, value) = (who.into(), name.into(), value.into());
        apply(c, Changes::one(Change::ConfigSet { who, name, value }));
    }

    fn only_pool(c: &Cluster) -> PoolId {
        c.state.osdmap.pool_by_name("p").unwrap()
    }

    /// The pool shall have so many groups.
    fn aim(c: &mut Cluster, goal: u32) {
        let (mut changes, map, id) = (Changes::none(), c.state.osdmap.clone(), only_pool(c));
        let inc = changes.inc(&c.state, c.now);
        pg_steps::aim(inc.pool_mut(&map, id).unwrap(), goal);
        apply(c, changes);
    }

    const STEP: Due = Due {
        step: true,
        scale: false,
        balance: false,
        tidy: false,
    };

    fn thought(c: &Cluster, due: Due) -> Thought {
        think(due, &c.state, &c.stats)
    }

    #[test]
    fn where_nothing_may_move_nothing_is_written() {
        let mut c = cluster();
        set(&mut c, "global", "target_max_misplaced_ratio", "0");
        aim(&mut c, 64);
        assert!(pg_steps::are_due(&c.state.osdmap));
        assert!(thought(&c, STEP).changes(&c.state, c.now).is_empty());
        let mut c = cluster();
        let found = |c: &Cluster| moves(&c.state, &c.stats, &Survey::of(&c.state.osdmap, &c.stats), None);
        assert!(found(&c).is_ok());
        let stats = c.stats.clone();
        set(&mut c, "global", "target_max_misplaced_ratio", "0");
        c.stats = stats;
        assert!(found(&c).unwrap_err().starts_with("Too many objects (0."));
    }

    /// Its outcome was unknown, and it had come about: the survey is of the map before.
    #[test]
    fn decided_again_it_does_nothing_twice() {
        let mut c = cluster();
        let balance = Due {
            balance: true,
            ..Due::default()
        };
        let first = thought(&c, balance);
        let changes = first.changes(&c.state, c.now);
        assert!(!changes.osdmap.as_ref().unwrap().new_pg_upmap_items.is_empty());
        apply(&mut c, changes);
        assert!(first.changes(&c.state, c.now).is_empty());

        let mut c = cluster();
        c.report();
        aim(&mut c, 64);
        let first = thought(&c, STEP);
        let changes = first.changes(&c.state, c.now);
        apply(&mut c, changes);
        let pool = c.state.osdmap.pool(only_pool(&c)).unwrap();
        assert!(pool.pg_num > 32 && pool.pg_num < 64, "{}", pool.pg_num);
        assert!(first.changes(&c.state, c.now).is_empty());
    }

    /// More are stale than are taken away at once, and the first commit comes to nothing.
    #[test]
    fn stale_replacements_all_go() {
        let mut c = Cluster::with_osds(4);
        let create = r#"{"prefix":"osd pool create","pool":"p","pg_num":512,"size":1}"#;
        assert_eq!(c.run(create, b"").code, 0);
        let (mut changes, map, id) = (Changes::none(), c.state.osdmap.clone(), only_pool(&c));
        let inc = changes.inc(&c.state, c.now);
        for pg in (0..512).map(|seed| PgId::new(id, seed)) {
            if let [from @ 0..3] = map.pg_to_up_acting(pg).up[..] {
                inc.new_pg_upmap_items.insert(pg, vec![(from, 3)]);
            }
        }
        apply(&mut c, changes);
        let left = |c: &Cluster| c.state.osdmap.pg_upmap_items.len();
        assert!(left(&c) > STALE_MAX);
        let (mut evening, mut now) = (Evening::default(), 100);
        let mut due = |c: &Cluster| {
            now += STEP_SEC;
            evening.due(&c.state, now)
        };
        due(&c);
        assert!(!due(&c).tidy, "none is stale");
        assert_eq!(c.run(r#"{"prefix":"osd out","ids":["3"]}"#, b"").code, 0);
        assert!(due(&c).tidy);
        // Nothing came of that.
        for _ in 0..=512 / STALE_MAX {
            let now = due(&c);
            if now.tidy {
                let changes = thought(&c, now).changes(&c.state, c.now);
                apply(&mut c, changes);
            }
        }
        assert_eq!(left(&c), 0);
        assert!(!due(&c).tidy);
    }

    #[test]
    fn settings_hold_for_what_they_name() {
        let mut c = cluster();
        assert_eq!(pools(&c.state), None);
        set(&mut c, "mgr", POOLS, "4711");
        assert_eq!(pools(&c.state), Some(BTreeSet::new()), "it was deleted");
        set(&mut c, "mgr", POOLS, " ");
        assert_eq!(pools(&c.state), None);
        set(&mut c, "global", MOVES_MAX, "5000");
        assert_eq!(bounds(&c.state, 0.0).moves, 100);
        set(&mut c, "global", autoscale::NOAUTOSCALE, "true");
        assert!(autoscale::is_off(&c.state));
    }

    #[test]
    fn nothing_goes_to_a_nearly_full_osd() {
        let mut c = cluster();
        let found = |c: &Cluster| moves(&c.state, &c.stats, &Survey::of(&c.state.osdmap, &c.stats), None);
        let to = found(&c).unwrap()[0].to;
        let mut changes = Changes::none();
        let inc = changes.inc(&c.state, c.now);
        inc.new_state.insert(to, types::osdmap::osd_state::NEARFULL);
        let stats = c.stats.clone();
        apply(&mut c, changes);
        c.stats = stats;
        assert!(found(&c).unwrap_or_default().iter().all(|m| m.to != to));
    }
}
