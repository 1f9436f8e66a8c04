//! How many placement groups each pool should have: a pure function of the pools, what they hold, and the room below
//! their CRUSH roots. What `osd pool autoscale-status` shows, what health warns of, and what is changed where that is wanted.
//!
//! A pool's share of its root is what it holds (or will hold: `target_size_bytes`, `target_size_ratio`, `bulk`), times
//! its copies. Of the groups that the root's OSDs shall have (`mon_target_pg_per_osd` each) it should have that share, times its bias, as
//! the nearest power of two, within `pg_num_min` (else 32) and `pg_num_max`. It is changed only when it is off by more than
//! [`THRESHOLD`], so that a pool that grows steadily is changed rarely, and never back and forth: what is wanted does
//! not depend on how many there are.
//!
//! When a change is carried out, and in which steps: `evening`, `pg_steps`. When shrinking is allowed: [`may_shrink`].

use crate::policies::spread::parts;
use crate::policies::survey::Survey;
use cluster::{ClusterState, ClusterStats};
use std::collections::{BTreeMap, BTreeSet};
use types::osdmap::OsdMap;
use types::pool::{AUTOSCALE_OFF, AUTOSCALE_ON, PgPool, PoolOption, pool_flag};
use types::{OsdId, PoolId};

/// How far off a pool may be.
pub const THRESHOLD: f64 = 3.0;
/// Groups that a pool has at least where it does not say otherwise.
pub const PG_NUM_MIN: u32 = 32;
/// There: nothing is scaled, whatever the pools say.
pub const NOAUTOSCALE: &str = "mgr/pg_autoscaler/noautoscale";
/// Keys of the pools whose mode `on` somebody asked for, in the store of keys: by their id.
const ASKED: &str = "mgr/pg_autoscaler/asked/";

pub fn asked_key(pool: PoolId) -> String {
    format!("{ASKED}{pool}")
}

/// Whether the pool's groups may become fewer: only where somebody asked for the mode `on`, since merges keep operations
/// waiting for moments, and older programs from reading the state.
pub fn may_shrink(state: &ClusterState, pool: PoolId) -> bool {
    state.config_keys.contains_key(&asked_key(pool))
}

/// Keys of pools that are gone.
pub fn stale_keys(state: &ClusterState) -> Vec<String> {
    let keys = state.config_keys.range(ASKED.to_string()..);
    let ours = keys.map(|(k, _)| k).take_while(|k| k.starts_with(ASKED));
    let gone = |k: &&String| {
        let id = k[ASKED.len()..].parse::<PoolId>();
        id.is_ok_and(|id| state.osdmap.pool(id).is_none())
    };
    ours.filter(gone).cloned().collect()
}

/// True if an operator turned all of it off.
pub fn is_off(state: &ClusterState) -> bool {
    state.mgr_option(NOAUTOSCALE) == Some("true")
}

/// The mode of a new pool that names none: what was configured; else `on` where nobody gave a number of groups, so that it
/// grows with its data, and `off` where somebody did.
pub fn mode_of_new(state: &ClusterState, pg_num_given: bool) -> (u8, bool) {
    let given = pg_num_given || state.mon_option("osd_pool_default_pg_num").is_some();
    match state.mon_option("osd_pool_default_pg_autoscale_mode") {
        Some("on") => (AUTOSCALE_ON, true),
        Some("warn") => (types::pool::AUTOSCALE_WARN, false),
        Some(_) => (AUTOSCALE_OFF, false),
        None if given => (AUTOSCALE_OFF, false),
        None => (AUTOSCALE_ON, false),
    }
}

/// The room below a CRUSH root.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Root {
    pub id: i32,
    pub osds: BTreeSet<OsdId>,
    pub capacity: u64,
    /// Shares OSDs with another root that pools use, or is one of several of a rule: what a pool's share of it is cannot be said.
    pub mixed: bool,
}

/// One pool, as it counts here.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pool {
    pub id: PoolId,
    pub name: String,
    pub root: i32,
    /// As the pool says; what is done about it: [`Sizing::acts`].
    pub mode: u8,
    /// As it shall be by the map.
    pub pg_num: u32,
    pub size: u8,
    /// Raw bytes for each that is stored.
    pub rate: f64,
    pub bytes: u64,
    pub target_bytes: u64,
    pub target_ratio: f64,
    pub bias: f64,
    pub bulk: bool,
    pub min: u32,
    /// 0: none.
    pub max: u32,
    pub erasure: bool,
    pub may_shrink: bool,
    /// `nopgchange`.
    pub fixed: bool,
}

impl Pool {
    fn of(state: &ClusterState, survey: &Survey, id: PoolId, p: &PgPool) -> Self {
        let map = &*state.osdmap;
        let int = |name: &str| match p.opts.get(name) {
            Some(PoolOption::Int(n)) => (*n).max(0) as u64,
            _ => 0,
        };
        let real = |name: &str| match p.opts.get(name) {
            Some(PoolOption::Double(d)) => d.max(0.0),
            _ => 0.0,
        };
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let rule = parts(map, u32::from(p.crush_rule));
        Self {
            id,
            name: map.pool_name(id).unwrap_or_default().to_string(),
            root: rule.first().map_or(0, |part| part.root),
            mode: p.pg_autoscale_mode,
            pg_num: p.pg_num_target,
            size: p.size,
            rate: map.raw_rate(p),
            bytes: survey.of_pool(id).map(|(_, g)| g.bytes).sum::<u64>() * u64::from(map.enough(p)),
            target_bytes: int("target_size_bytes"),
            target_ratio: real("target_size_ratio"),
            bias: match p.opts.get("pg_autoscale_bias") {
                Some(PoolOption::Double(d)) if *d > 0.0 => *d,
                _ => 1.0,
            },
            bulk: p.has(pool_flag::BULK),
            min: match count(int("pg_num_min")) {
                0 => PG_NUM_MIN,
                n => n,
            },
            max: count(int("pg_num_max")),
            erasure: p.is_erasure(),
            may_shrink: may_shrink(state, id),
            fixed: p.has(pool_flag::NOPGCHANGE),
        }
    }

    pub fn raw_used(&self) -> f64 {
        self.bytes as f64 * self.rate
    }

    fn raw_wanted(&self) -> f64 {
        self.raw_used().max(self.target_bytes as f64 * self.rate)
    }
}

/// What is thought of one pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sizing {
    pub pool: Pool,
    /// Of its root.
    pub capacity: u64,
    pub osds: u64,
    /// What it takes of its root, and what it is reckoned with.
    pub actual_ratio: f64,
    pub ratio: f64,
    /// Its `target_size_ratio` as a share of the root.
    pub effective_ratio: f64,
    /// Groups before rounding, and as they should be.
    pub ideal: u32,
    pub wanted: u32,
    /// It is off by more than the threshold.
    pub would_adjust: bool,
    /// Nothing can be said about it, so nothing is done.
    pub mixed: bool,
}

impl Sizing {
    /// True if the pool is changed by itself.
    fn acts(&self) -> bool {
        let grows = self.wanted > self.pool.pg_num;
        // Groups of shards are neither split nor merged yet.
        let allowed = (grows || self.pool.may_shrink) && !self.pool.erasure;
        self.pool.mode == AUTOSCALE_ON && self.would_adjust && !self.mixed && !self.pool.fixed && allowed
    }
}

/// What all of it is reckoned with.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    pub pg_per_osd: u64,
    pub pg_per_osd_max: u64,
    pub pg_num_max: u32,
}

impl Limits {
    pub fn of(state: &ClusterState) -> Self {
        let max = state.mon_option_u64("mon_max_pool_pg_num", 65_536);
        Self {
            pg_per_osd: state.mon_option_u64("mon_target_pg_per_osd", 100),
            pg_per_osd_max: state.mon_option_u64("mon_max_pg_per_osd", 250),
            pg_num_max: u32::try_from(max).unwrap_or(u32::MAX),
        }
    }
}

/// The roots that pools use.
pub fn roots(map: &OsdMap, stats: &ClusterStats) -> BTreeMap<i32, Root> {
    let mut out: BTreeMap<i32, Root> = BTreeMap::new();
    for pool in map.pools.values() {
        let of_rule = parts(map, u32::from(pool.crush_rule));
        for part in &of_rule {
            let root = out
                .entry(part.root)
                .or_insert_with(|| root_of(map, stats, part.root));
            root.mixed |= of_rule.len() > 1;
        }
    }
    let ids: Vec<i32> = out.keys().copied().collect();
    for a in &ids {
        let overlaps = ids
            .iter()
            .any(|b| a != b && !out[a].osds.is_disjoint(&out[b].osds));
        if let Some(root) = out.get_mut(a) {
            root.mixed |= overlaps;
        }
    }
    out
}

fn root_of(map: &OsdMap, stats: &ClusterStats, id: i32) -> Root {
    let weighs = |o: &OsdId| map.crush.weight_of(*o).is_some_and(|w| w > 0);
    let below = map.crush.devices_under(id).into_iter();
    let osds: BTreeSet<OsdId> = below
        .filter(|o| map.exists(*o) && map.is_in(*o) && weighs(o))
        .collect();
    let total = |o: &OsdId| stats.osds.get(o).map_or(0, |r| r.stat.statfs.total.max(0) as u64);
    Root {
        id,
        capacity: osds.iter().map(total).sum(),
        osds,
        mixed: false,
    }
}

/// What is thought of every pool, by id.
pub fn sizes(state: &ClusterState, stats: &ClusterStats, survey: &Survey) -> Vec<Sizing> {
    let map = &*state.osdmap;
    let all = map.pools.iter();
    let pools: Vec<Pool> = all.map(|(id, p)| Pool::of(state, survey, *id, p)).collect();
    reckon(&pools, &roots(map, stats), &Limits::of(state))
}

/// The same from plain values.
pub fn reckon(pools: &[Pool], roots: &BTreeMap<i32, Root>, limits: &Limits) -> Vec<Sizing> {
    let mut out: Vec<Sizing> = Vec::new();
    let none = Root::default();
    for p in pools {
        let root = roots.get(&p.root).unwrap_or(&none);
        let share = |bytes: f64| match root.capacity {
            0 => 0.0,
            capacity => bytes / capacity as f64,
        };
        let beside = || pools.iter().filter(|o| o.root == p.root);
        let ratios: f64 = beside().map(|o| o.target_ratio).sum();
        let fixed: f64 = beside()
            .filter(|o| o.target_ratio <= 0.0 && o.target_bytes > 0)
            .map(|o| share(o.raw_wanted()))
            .sum();
        let effective = match p.target_ratio > 0.0 {
            true => p.target_ratio / ratios * (1.0 - fixed).max(0.0),
            false => 0.0,
        };
        let actual = share(p.raw_used());
        let ratio = match p.target_ratio > 0.0 {
            true => actual.max(effective),
            false => share(p.raw_wanted()),
        };
        out.push(Sizing {
            pool: p.clone(),
            capacity: root.capacity,
            osds: root.osds.len() as u64,
            actual_ratio: actual,
            ratio,
            effective_ratio: effective,
            mixed: root.mixed || root.capacity == 0,
            ..Sizing::default()
        });
    }
    share_rest(&mut out);
    for s in &mut out {
        count(s, s.osds as f64 * limits.pg_per_osd as f64, limits);
    }
    out
}

/// Bulk pools share evenly what the others leave of a root; one that takes more than that counts with what it takes.
fn share_rest(all: &mut [Sizing]) {
    let roots: BTreeSet<i32> = all.iter().map(|s| s.pool.root).collect();
    for root in roots {
        let inside = |s: &Sizing| s.pool.root == root;
        let others = all.iter().filter(|s| inside(s) && !s.pool.bulk);
        let mut rest = (1.0 - others.map(|s| s.ratio).sum::<f64>()).max(0.0);
        let mut bulk: Vec<&mut Sizing> = all.iter_mut().filter(|s| inside(s) && s.pool.bulk).collect();
        bulk.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
        let mut left = bulk.len();
        for s in bulk {
            s.ratio = s.ratio.max(rest / left as f64);
            rest = (rest - s.ratio).max(0.0);
            left -= 1;
        }
    }
}

fn count(s: &mut Sizing, of_root: f64, limits: &Limits) {
    let ideal = s.ratio * of_root / s.pool.rate * s.pool.bias;
    // Saturates: what is not finite was refused, and a share may be far above one.
    s.ideal = ideal as u32;
    let most = match s.pool.max {
        0 => limits.pg_num_max,
        max => max.min(limits.pg_num_max),
    };
    s.wanted = nearest_power_of_two(ideal).max(s.pool.min).min(most).max(1);
    let (now, want) = (f64::from(s.pool.pg_num.max(1)), f64::from(s.wanted));
    s.would_adjust = want > now * THRESHOLD || now > want * THRESHOLD;
}

fn nearest_power_of_two(n: f64) -> u32 {
    if n < 1.0 {
        return 1;
    }
    let below = 2f64.powi(n.log2().floor().min(30.0) as i32);
    let nearest = if n - below < below * 2.0 - n {
        below
    } else {
        below * 2.0
    };
    nearest as u32
}

/// What is to become of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjustment {
    pub pool: PoolId,
    pub from: u32,
    pub to: u32,
    /// For people.
    pub why: String,
}

/// What is changed. Those that shrink count first, so that others may grow; the OSDs below a root shall have no more than
/// `mon_max_pg_per_osd` on average because of it.
pub fn adjustments(sizes: &[Sizing], limits: &Limits) -> Vec<Adjustment> {
    let copies = |pg_num: u32, s: &Sizing| u64::from(pg_num) * u64::from(s.pool.size);
    let acting = || sizes.iter().filter(|s| s.acts());
    let shrinks = |s: &Sizing| s.wanted < s.pool.pg_num;
    let mut totals: BTreeMap<i32, u64> = BTreeMap::new();
    for s in sizes {
        *totals.entry(s.pool.root).or_default() += copies(s.pool.pg_num, s);
    }
    let mut out = Vec::new();
    for s in acting().filter(|s| shrinks(s)) {
        let total = totals.entry(s.pool.root).or_default();
        *total = *total - copies(s.pool.pg_num, s) + copies(s.wanted, s);
        out.push(adjustment(s, s.wanted));
    }
    for s in acting().filter(|s| !shrinks(s)) {
        let total = totals.entry(s.pool.root).or_default();
        let most = limits.pg_per_osd_max.saturating_mul(s.osds);
        let room = most.saturating_sub(*total - copies(s.pool.pg_num, s)) / u64::from(s.pool.size.max(1));
        let mut to = s.wanted;
        while u64::from(to) > room && to > s.pool.pg_num {
            to /= 2;
        }
        if to > s.pool.pg_num {
            *total = *total - copies(s.pool.pg_num, s) + copies(to, s);
            out.push(adjustment(s, to));
        }
    }
    out
}

fn adjustment(s: &Sizing, to: u32) -> Adjustment {
    let reckoned = match (s.pool.bulk, s.pool.target_ratio > 0.0, s.pool.target_bytes > 0) {
        (true, _, _) => "as a bulk pool it counts with",
        (_, true, _) => "by its target_size_ratio it counts with",
        (_, _, true) => "by its target_size_bytes it counts with",
        _ => "it takes",
    };
    let why = format!(
        "{reckoned} {:.1}% of its OSDs' room, which is {} of the groups that they shall have",
        s.ratio * 100.0,
        s.ideal
    );
    Adjustment {
        pool: s.pool.id,
        from: s.pool.pg_num,
        to,
        why,
    }
}

/// A root whose pools are promised more than there is.
#[derive(Debug, Clone, PartialEq)]
pub struct Overcommitted {
    pub pools: Vec<String>,
    pub by: f64,
    /// Raw bytes that are promised, to these.
    pub promised: f64,
    pub to: Vec<String>,
}

pub fn overcommitted(sizes: &[Sizing]) -> Vec<Overcommitted> {
    let roots: BTreeSet<i32> = sizes.iter().map(|s| s.pool.root).collect();
    let mut out = Vec::new();
    for root in roots {
        let inside = || sizes.iter().filter(|s| s.pool.root == root);
        let promised = || inside().filter(|s| s.pool.target_bytes > 0 && s.pool.target_ratio <= 0.0);
        let capacity = inside().map(|s| s.capacity).max().unwrap_or(0);
        let wanted: f64 = inside()
            .map(|s| match s.pool.target_ratio > 0.0 {
                true => s.pool.raw_used(),
                false => s.pool.raw_wanted(),
            })
            .sum();
        if capacity == 0 || promised().next().is_none() || wanted <= capacity as f64 {
            continue;
        }
        let names = |list: &mut dyn Iterator<Item = &Sizing>| list.map(|s| s.pool.name.clone()).collect();
        out.push(Overcommitted {
            pools: names(&mut inside()),
            by: wanted / capacity as f64,
            promised: promised().map(|s| s.pool.target_bytes as f64 * s.pool.rate).sum(),
            to: names(&mut promised()),
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn pool(id: PoolId, pg_num: u32, bytes: u64) -> Pool {
        Pool {
            id,
            name: format!("p{id}"),
            root: -1,
            mode: AUTOSCALE_ON,
            pg_num,
            size: 3,
            rate: 3.0,
            bytes,
            bias: 1.0,
            min: PG_NUM_MIN,
            may_shrink: true,
            ..Pool::default()
        }
    }

    fn root(osds: i32, capacity: u64) -> BTreeMap<i32, Root> {
        let root = Root {
            id: -1,
            osds: (0..osds).collect(),
            capacity,
            mixed: false,
        };
        BTreeMap::from([(-1, root)])
    }

    fn limits() -> Limits {
        Limits {
            pg_per_osd: 100,
            pg_per_osd_max: 250,
            pg_num_max: 65_536,
        }
    }

    fn one(p: Pool) -> Sizing {
        reckon(&[p], &root(3, 12 * GIB), &limits()).remove(0)
    }

    /// What a real 16.2.15 with three OSDs of 4 GiB each said.
    #[test]
    fn sizes_as_a_real_cluster_reckons_them() {
        let empty = one(pool(1, 32, 0));
        assert_eq!((empty.ideal, empty.wanted, empty.would_adjust), (0, 32, false));
        let ratio = one(Pool {
            size: 2,
            rate: 2.0,
            target_ratio: 0.3,
            ..pool(1, 8, 0)
        });
        assert_eq!((ratio.ideal, ratio.wanted, ratio.would_adjust), (150, 128, true));
        assert_eq!((ratio.effective_ratio, ratio.ratio), (1.0, 1.0));
        let promised = one(Pool {
            target_bytes: 20 * GIB,
            ..pool(1, 4, 0)
        });
        assert_eq!((promised.wanted, promised.ratio), (512, 5.0));
        let small = one(Pool {
            min: 1,
            ..pool(1, 1, 0)
        });
        assert_eq!((small.wanted, small.would_adjust), (1, false));
    }

    #[test]
    fn a_promise_of_more_than_there_is_is_told() {
        let pools = [
            pool(1, 32, 0),
            Pool {
                target_bytes: 20 * GIB,
                ..pool(2, 4, 0)
            },
        ];
        let sizes = reckon(&pools, &root(3, 12 * GIB), &limits());
        let found = overcommitted(&sizes);
        assert_eq!((found[0].by, found[0].promised), (5.0, 60.0 * GIB as f64));
        assert_eq!(
            (&found[0].pools[..], &found[0].to[..]),
            (&["p1".into(), "p2".into()][..], &["p2".into()][..])
        );
        let fits = [Pool {
            target_bytes: 3 * GIB,
            ..pool(2, 4, 0)
        }];
        assert_eq!(overcommitted(&reckon(&fits, &root(3, 12 * GIB), &limits())), []);
    }

    #[test]
    fn bulk_pools_share_what_the_others_leave() {
        let bulk = |id, bytes| Pool {
            bulk: true,
            ..pool(id, 32, bytes)
        };
        let pools = [pool(1, 32, GIB), bulk(2, 0), bulk(3, 2 * GIB)];
        let ratios: Vec<f64> = reckon(&pools, &root(3, 12 * GIB), &limits())
            .iter()
            .map(|s| s.ratio)
            .collect();
        assert_eq!(ratios, [0.25, 0.25, 0.5]);
    }

    #[test]
    fn what_is_left_alone() {
        let full = || pool(1, 32, 4 * GIB);
        let wants = |p: Pool, mixed: bool| {
            let mut roots = root(30, 12 * GIB);
            roots.get_mut(&-1).unwrap().mixed = mixed;
            adjustments(&reckon(&[p], &roots, &limits()), &limits()).len()
        };
        assert_eq!(wants(full(), false), 1);
        assert_eq!(wants(full(), true), 0, "roots that overlap");
        let mode = |mode| Pool { mode, ..full() };
        assert_eq!(wants(mode(AUTOSCALE_OFF), false), 0);
        assert_eq!(wants(mode(types::pool::AUTOSCALE_WARN), false), 0);
        assert_eq!(
            wants(
                Pool {
                    fixed: true,
                    ..full()
                },
                false
            ),
            0,
            "nopgchange"
        );
        let empty = |may_shrink| Pool {
            may_shrink,
            ..pool(1, 512, 0)
        };
        assert_eq!(wants(empty(true), false), 1);
        assert_eq!(wants(empty(false), false), 0, "nobody asked for it");
        // Not by more than three times.
        assert_eq!(wants(pool(1, 96, 0), false), 0);
        assert_eq!(wants(pool(1, 97, 0), false), 1);
    }

    #[test]
    fn what_osds_may_have_counts_by_root() {
        let mut roots = root(97, 97 * GIB);
        let second = Root {
            id: -2,
            osds: (100..103).collect(),
            capacity: 3 * GIB,
            mixed: false,
        };
        roots.insert(-2, second);
        let on_few = Pool {
            root: -2,
            min: 1024,
            ..pool(2, 32, 0)
        };
        let sizes = reckon(&[pool(1, 32, 0), on_few], &roots, &limits());
        let found = adjustments(&sizes, &limits());
        // 3 OSDs with 250 each, by three copies; not a third of those of 100 OSDs.
        assert_eq!((found[0].pool, found[0].to), (2, 128), "{found:?}");
    }

    fn some_pool() -> impl Strategy<Value = Pool> {
        let sizes = (1u32..2048, 1u8..4, 0u64..40, 0u64..40, 0u32..4);
        let wishes = (any::<bool>(), any::<bool>(), 0u8..3, 0u32..64, 0u32..512, 1u32..8);
        (sizes, wishes).prop_map(
            |((pg_num, size, bytes, target, ratio), (bulk, may_shrink, mode, min, max, bias))| Pool {
                pg_num,
                size,
                bytes: bytes * GIB / 4,
                target_bytes: if target > 20 { target * GIB / 4 } else { 0 },
                target_ratio: f64::from(ratio) / 10.0,
                bulk,
                may_shrink,
                mode: if mode == 0 { AUTOSCALE_OFF } else { AUTOSCALE_ON },
                min: min.max(1),
                max: if max > min { max } else { 0 },
                bias: f64::from(bias) / 2.0,
                ..pool(0, 1, 0)
            },
        )
    }

    proptest! {
        /// What is decided leads to where nothing is wanted: it never goes back and forth.
        #[test]
        fn decided_once(pools in prop::collection::vec(some_pool(), 1..7), osds in (1i32..40, 1i32..40), gib in 1u64..100) {
            let mut pools = pools;
            for (i, p) in pools.iter_mut().enumerate() {
                p.id = i as PoolId;
                p.root = -1 - i as i32 % 2;
            }
            let (mut roots, limits) = (root(osds.0, gib * GIB), limits());
            let second = Root { id: -2, osds: (100..100 + osds.1).collect(), ..roots[&-1].clone() };
            roots.insert(-2, second);
            let copies = |pools: &[Pool], root: i32| {
                let inside = pools.iter().filter(|p| p.root == root);
                inside.map(|p| u64::from(p.pg_num) * u64::from(p.size)).sum::<u64>()
            };
            let before = pools.clone();
            for a in adjustments(&reckon(&pools, &roots, &limits), &limits) {
                let p = &mut pools[a.pool as usize];
                prop_assert_eq!(p.mode, AUTOSCALE_ON);
                prop_assert!(a.to > a.from || p.may_shrink);
                prop_assert_eq!(p.pg_num, a.from);
                p.pg_num = a.to;
            }
            for (id, root) in &roots {
                let most = limits.pg_per_osd_max * root.osds.len() as u64;
                prop_assert!(copies(&pools, *id) <= most.max(copies(&before, *id)), "no more than its OSDs may have");
            }
            prop_assert_eq!(adjustments(&reckon(&pools, &roots, &limits), &limits), vec![]);
        }
    }
}
