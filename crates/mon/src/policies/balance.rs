//! Evens out **bytes** by single replacements (`pg_upmap_items`): a pure function from where groups are and what they hold
//! to a few moves.
//!
//! *Fill* is what an OSD holds over its weight (CRUSH weight times reweight). Each move takes one copy of one group from an OSD
//! to another and makes the sum of `bytes² / weight` smaller, which is the weighted variance of the fill plus a constant: so
//! it falls with each move, and moves come to an end. A copy goes only where the rule could have put it: to an OSD that is
//! up and in, below the rule's root, in a failure domain that none of the other copies is in. Of rules in
//! several parts or steps no more is understood than that a copy may change the OSD within its host.
//!
//! Not here: when (`evening`), and what an operator does by hand (`osd pg-upmap-items`), which counts as any other.

use crate::policies::near;
use crate::policies::spread::{Spread, parts};
use crate::policies::survey::Survey;
use cluster::{ClusterState, ClusterStats};
use crush::step_op;
use std::collections::{BTreeMap, BTreeSet};
use types::osdmap::{Incremental, OsdMap, osd_state};
use types::{OsdId, PgId, PoolId};

/// Overfull, underfull: by this part of what an OSD should hold,
const OFF_RATIO: f64 = 0.05;
/// and by this part of its disk, below which nobody gains much.
pub const OFF_DISK: f64 = 0.01;
/// What a move gains at least, as a part of `bytes² / weight` of the group itself on both OSDs: so a group comes back only
/// when what they hold has changed by a quarter of its bytes.
const GAIN_MIN: f64 = 0.25;
/// OSDs looked at, the most overfull and the most underfull ones, for each move.
const LOOKED_AT: usize = 4;

/// Where copies of a rule's pools may go: OSDs by failure domain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reach {
    pub domain: BTreeMap<OsdId, i32>,
    /// A copy stays within its domain.
    pub within: bool,
}

impl Reach {
    pub fn of(map: &OsdMap, rule: u32) -> Self {
        if is_plain(map, rule) {
            let spread = Spread::of(map, rule).domains.into_iter();
            let domain = spread.flat_map(|(d, osds)| osds.into_iter().map(move |o| (o, d)));
            return Self {
                domain: domain.filter(|(o, _)| map.is_up(*o)).collect(),
                within: false,
            };
        }
        let mut domain = BTreeMap::new();
        // Where one device class is chosen here and another there, OSDs of a class are alike.
        let mut at = 0;
        for bucket in map.crush.iter_buckets() {
            if map.crush.is_shadow(bucket.id) || near::is_far(&map.crush, bucket.id) {
                continue;
            }
            let mut classes: BTreeMap<Option<&str>, i32> = BTreeMap::new();
            for osd in bucket.items.iter().copied().filter(|o| *o >= 0) {
                let weighs = map.crush.weight_of(osd).is_some_and(|w| w > 0);
                if !(weighs && map.exists(osd) && map.is_up(osd) && map.is_in(osd)) {
                    continue;
                }
                let id = classes.entry(map.crush.class_name_of(osd)).or_insert_with(|| {
                    at += 1;
                    at
                });
                domain.insert(osd, *id);
            }
        }
        Self { domain, within: true }
    }

    /// True if a copy of a group on `up` may go from one OSD to another.
    pub fn allows(&self, up: &[OsdId], from: OsdId, to: OsdId) -> bool {
        let Some(there) = self.domain.get(&to) else {
            return false;
        };
        if up.contains(&to) || !up.contains(&from) {
            return false;
        }
        let here = self.domain.get(&from);
        if self.within || here == Some(there) {
            return here == Some(there);
        }
        up.iter()
            .filter(|o| **o != from)
            .all(|o| self.domain.get(o) != Some(there))
    }
}

/// One part, in which one step chooses all copies.
fn is_plain(map: &OsdMap, rule: u32) -> bool {
    let Some(r) = map.crush.rule(rule) else {
        return false;
    };
    let chooses = [
        step_op::CHOOSE_FIRSTN,
        step_op::CHOOSE_INDEP,
        step_op::CHOOSELEAF_FIRSTN,
        step_op::CHOOSELEAF_INDEP,
    ];
    let mut steps = r.steps.iter().filter(|s| chooses.contains(&s.op));
    let one = steps.next().is_some_and(|s| s.arg1 == 0) && steps.next().is_none();
    one && parts(map, rule).len() == 1
}

fn is_full(map: &OsdMap, id: OsdId) -> bool {
    let full = osd_state::NEARFULL | osd_state::BACKFILLFULL | osd_state::FULL;
    map.osd(id).is_some_and(|o| o.state & full != 0)
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Disk {
    pub weight: f64,
    /// Of copies that shall be there.
    pub bytes: f64,
    pub capacity: f64,
    /// Nearly full, or more: nothing is moved there, whatever its weight says.
    pub full: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Load {
    pub up: Vec<OsdId>,
    pub bytes: u64,
    pub rule: u32,
}

/// All that moves are decided from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Field {
    pub disks: BTreeMap<OsdId, Disk>,
    /// Groups that may be moved.
    pub groups: BTreeMap<PgId, Load>,
    pub reach: BTreeMap<u32, Reach>,
    /// Bytes of all copies.
    pub total: f64,
    /// See [`OFF_DISK`].
    pub off_disk: f64,
}

impl Field {
    /// `pools`: which may be moved; None is all. Groups that are not clean, and those of pools that are being split or
    /// merged, or with a whole set by hand (`pg_upmap`), stay where they are, and count.
    pub fn of(
        state: &ClusterState,
        stats: &ClusterStats,
        survey: &Survey,
        pools: Option<&BTreeSet<PoolId>>,
        off_disk: f64,
    ) -> Self {
        let map = &*state.osdmap;
        let mut out = Self {
            off_disk,
            ..Self::default()
        };
        for id in map.osd_ids().filter(|id| map.is_in(*id)) {
            let weight = f64::from(map.crush.weight_of(id).unwrap_or(0)) * f64::from(map.weight(id));
            let capacity = stats.osds.get(&id).map_or(0, |r| r.stat.statfs.total.max(0));
            let disk = Disk {
                weight: weight / f64::from(0x1_0000) / f64::from(0x1_0000),
                bytes: 0.0,
                capacity: capacity as f64,
                full: is_full(map, id),
            };
            out.disks.insert(id, disk);
        }
        for (pg, g) in &survey.groups {
            let Some(pool) = map.pool(pg.pool) else { continue };
            for osd in &g.up {
                out.total += g.bytes as f64;
                if let Some(d) = out.disks.get_mut(osd) {
                    d.bytes += g.bytes as f64;
                }
            }
            let rule = u32::from(pool.crush_rule);
            let still = pool.pg_num == pool.pg_num_target && pool.pgp_num == pool.pg_num;
            let named = pools.is_none_or(|p| p.contains(&pg.pool));
            if named && still && g.clean && !pool.is_erasure() && !map.pg_upmap.contains_key(pg) {
                let load = Load {
                    up: g.up.clone(),
                    bytes: g.bytes,
                    rule,
                };
                out.groups.insert(*pg, load);
                out.reach.entry(rule).or_insert_with(|| Reach::of(map, rule));
            }
        }
        out
    }

    /// What falls with each move.
    pub fn unevenness(&self) -> f64 {
        let each = self.disks.values().filter(|d| d.weight > 0.0);
        each.map(|d| d.bytes * d.bytes / d.weight).sum()
    }

    /// OSDs that are off, with by how much; the worst first.
    fn off(&self, reach: &Reach) -> Vec<(OsdId, f64)> {
        let (mut weight, mut bytes) = (0.0, 0.0);
        for d in reach.domain.keys().filter_map(|o| self.disks.get(o)) {
            (weight, bytes) = (weight + d.weight, bytes + d.bytes);
        }
        let of = |o: &OsdId| {
            let d = self.disks.get(o).filter(|d| d.weight > 0.0)?;
            let should = bytes * d.weight / weight;
            let excess = d.bytes - should;
            let far = excess.abs() > should * OFF_RATIO && excess.abs() > d.capacity * self.off_disk;
            far.then_some((*o, excess))
        };
        let mut out: Vec<_> = reach.domain.keys().filter_map(of).collect();
        let relative = |(o, excess): &(OsdId, f64)| excess.abs() / self.disks[o].weight;
        out.sort_by(|a, b| relative(b).total_cmp(&relative(a)));
        out
    }

    /// By how much [`Self::unevenness`] changes if so many bytes go from one OSD to another; None: it gains less than
    /// [`GAIN_MIN`].
    fn change(bytes: f64, a: &Disk, b: &Disk) -> Option<f64> {
        if a.weight <= 0.0 || b.weight <= 0.0 {
            return None;
        }
        let change = bytes * (bytes - 2.0 * a.bytes) / a.weight + bytes * (bytes + 2.0 * b.bytes) / b.weight;
        let cost = bytes * bytes * (1.0 / a.weight + 1.0 / b.weight);
        (change < -GAIN_MIN * cost).then_some(change)
    }

    /// Makes a move.
    pub fn apply(&mut self, m: &Move) {
        if let Some(d) = self.disks.get_mut(&m.from) {
            d.bytes -= m.bytes as f64;
        }
        if let Some(d) = self.disks.get_mut(&m.to) {
            d.bytes += m.bytes as f64;
        }
        if let Some(g) = self.groups.get_mut(&m.pg) {
            g.up.iter_mut().filter(|o| **o == m.from).for_each(|o| *o = m.to);
        }
    }

    fn targets(&self, reach: &Reach) -> Targets<'_> {
        let off = self.off(reach);
        let over = off.iter().filter(|(_, e)| *e > 0.0).map(|(o, _)| *o);
        let under = off.iter().filter(|(_, e)| *e < 0.0).map(|(o, _)| *o);
        let taking = |o: OsdId| Some((o, self.disks.get(&o).filter(|d| !d.full)?));
        Targets {
            over: over.take(LOOKED_AT).collect(),
            under: under.filter_map(taking).take(LOOKED_AT).collect(),
            all: reach.domain.keys().copied().filter_map(taking).collect(),
        }
    }

    /// The move that helps most, of those that bring an OSD that is off nearer to what it should hold.
    fn best(&self, moved: &BTreeSet<PgId>, bytes_max: f64) -> Option<Move> {
        let mut best: Option<(f64, Move)> = None;
        for (rule, reach) in &self.reach {
            let targets = self.targets(reach);
            if targets.over.is_empty() && targets.under.is_empty() {
                continue;
            }
            let groups = self.groups.iter().filter(|(_, g)| g.rule == *rule);
            for (pg, g) in groups.filter(|(pg, g)| !moved.contains(pg) && g.bytes > 0) {
                if g.bytes as f64 > bytes_max {
                    continue;
                }
                for from in &g.up {
                    let Some(disk) = self.disks.get(from) else {
                        continue;
                    };
                    for (to, other) in targets.of(*from) {
                        let Some(change) = Self::change(g.bytes as f64, disk, other) else {
                            continue;
                        };
                        // Few are better than what was found: only these are asked whether they are allowed.
                        let better = change < best.as_ref().map_or(0.0, |(c, _)| *c);
                        if better && reach.allows(&g.up, *from, *to) {
                            let m = Move {
                                pg: *pg,
                                from: *from,
                                to: *to,
                                bytes: g.bytes,
                            };
                            best = Some((change, m));
                        }
                    }
                }
            }
        }
        best.map(|(_, m)| m)
    }
}

/// Where copies under a rule may be moved to.
struct Targets<'a> {
    /// Those that hold too much: from them to any.
    over: BTreeSet<OsdId>,
    /// Those that hold too little: to them from any.
    under: Vec<(OsdId, &'a Disk)>,
    all: Vec<(OsdId, &'a Disk)>,
}

impl<'a> Targets<'a> {
    /// Of a copy on this OSD: few, but for the few OSDs that hold too much.
    fn of(&self, from: OsdId) -> &[(OsdId, &'a Disk)] {
        if self.over.contains(&from) {
            &self.all
        } else {
            &self.under
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    pub pg: PgId,
    pub from: OsdId,
    pub to: OsdId,
    pub bytes: u64,
}

/// How much one plan may move: so many groups, and so much of all bytes; but one group in any case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    pub moves: usize,
    pub ratio: f64,
}

/// Moves, in the order in which they help. Nothing: all OSDs are near enough to what they should hold, or no copy may go
/// where it would help.
pub fn plan(field: &Field, bounds: Bounds) -> Vec<Move> {
    let mut field = field.clone();
    let mut left = field.total * bounds.ratio;
    let mut moved = BTreeSet::new();
    let mut out = Vec::new();
    while out.len() < bounds.moves {
        let most = if out.is_empty() { f64::INFINITY } else { left };
        let Some(m) = field.best(&moved, most) else {
            break;
        };
        left -= m.bytes as f64;
        field.apply(&m);
        moved.insert(m.pg);
        out.push(m);
    }
    out
}

/// The replacements of a group with one more.
pub fn with(items: &[(OsdId, OsdId)], from: OsdId, to: OsdId) -> Vec<(OsdId, OsdId)> {
    let mut out = items.to_vec();
    match out.iter().position(|(_, now)| *now == from) {
        // It goes home.
        Some(at) if out[at].0 == to => drop(out.remove(at)),
        Some(at) => out[at].1 = to,
        None => out.push((from, to)),
    }
    out
}

/// Moves as replacements; an empty list: the group has none any more. Only those that bring about, by the map's own
/// reckoning, what was meant, and is not so already.
pub fn items(map: &OsdMap, moves: &[Move]) -> BTreeMap<PgId, Vec<(OsdId, OsdId)>> {
    let mut trial = map.clone();
    let mut out = BTreeMap::new();
    for m in moves {
        let (before, size) = (
            map.pg_to_up_acting(m.pg).up,
            map.pool(m.pg.pool).map_or(0, |p| usize::from(p.size)),
        );
        if !before.contains(&m.from) || before.contains(&m.to) {
            continue;
        }
        let mut wanted = before;
        wanted
            .iter_mut()
            .filter(|o| **o == m.from)
            .for_each(|o| *o = m.to);
        let old = map.pg_upmap_items.get(&m.pg).map_or(&[][..], Vec::as_slice);
        let new = with(old, m.from, m.to);
        set(&mut trial, m.pg, &new);
        if new.len() <= size && trial.pg_to_up_acting(m.pg).up == wanted {
            out.insert(m.pg, new);
        } else {
            set(&mut trial, m.pg, old);
        }
    }
    out
}

/// As the map would have it.
pub fn set(map: &mut OsdMap, pg: PgId, items: &[(OsdId, OsdId)]) {
    match items.is_empty() {
        true => drop(map.pg_upmap_items.remove(&pg)),
        false => drop(map.pg_upmap_items.insert(pg, items.to_vec())),
    }
}

/// Writes replacements into the next map; those that are so already change nothing.
pub fn write(map: &OsdMap, items: &BTreeMap<PgId, Vec<(OsdId, OsdId)>>, inc: &mut Incremental) {
    for (pg, list) in items {
        let now = map.pg_upmap_items.get(pg);
        match (list.is_empty(), now) {
            (true, None) => {}
            (true, Some(_)) => drop(inc.old_pg_upmap_items.insert(*pg)),
            (false, Some(same)) if same == list => {}
            (false, _) => drop(inc.new_pg_upmap_items.insert(*pg, list.clone())),
        }
    }
}

/// Replacements that do nothing any more, or what the rule would not do: what is left of each list. At most `most`
/// groups. Of rules in several parts no more is judged than whether a replacement does anything.
pub fn stale(map: &OsdMap, most: usize) -> BTreeMap<PgId, Vec<(OsdId, OsdId)>> {
    let mut reaches: BTreeMap<u32, Reach> = BTreeMap::new();
    let mut out = BTreeMap::new();
    for (pg, items) in &map.pg_upmap_items {
        if out.len() >= most {
            break;
        }
        let Some(pool) = map.pool(pg.pool).filter(|p| pg.seed < p.pg_num) else {
            out.insert(*pg, Vec::new());
            continue;
        };
        // With a whole set by hand they are the operator's own.
        if map.pg_upmap.contains_key(pg) {
            continue;
        }
        let rule = u32::from(pool.crush_rule);
        let reach = reaches.entry(rule).or_insert_with(|| Reach::of(map, rule));
        let left = still_good(map, *pg, items, reach);
        if left != *items {
            out.insert(*pg, left);
        }
    }
    out
}

fn still_good(map: &OsdMap, pg: PgId, items: &[(OsdId, OsdId)], reach: &Reach) -> Vec<(OsdId, OsdId)> {
    let mut set = map.pg_mapping(pg).raw;
    let mut left = Vec::new();
    for (from, to) in items {
        let gone = !map.exists(*to) || map.weight(*to) == 0;
        let Some(at) = set.iter().position(|o| o == from) else {
            continue;
        };
        // One that is down for a moment is no reason: it is where the data is.
        let down = map.exists(*to) && !map.is_up(*to) || !map.is_up(*from);
        let known = !reach.within && !down;
        if gone || set.contains(to) || known && !reach.allows(&set, *from, *to) {
            continue;
        }
        set[at] = *to;
        left.push((*from, *to));
    }
    left
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::commands::sample::Cluster;
    use crate::policies::evening;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn replacements_are_joined() {
        assert_eq!(with(&[], 1, 2), [(1, 2)]);
        assert_eq!(with(&[(1, 2)], 2, 3), [(1, 3)]);
        assert_eq!(with(&[(1, 2)], 2, 1), []);
        assert_eq!(with(&[(1, 2)], 3, 4), [(1, 2), (3, 4)]);
    }

    #[derive(Debug, Clone)]
    struct Case {
        field: Field,
        bounds: Bounds,
    }

    /// Hosts with some OSDs each; groups whose copies are on hosts of their own.
    fn case() -> impl Strategy<Value = Case> {
        let hosts = prop::collection::vec(prop::collection::vec(1u32..9, 1..4), 3..7);
        let groups = prop::collection::vec((any::<u64>(), 0u64..2000, 1usize..4), 1..80);
        (hosts, groups, 1usize..12, 0.0f64..0.2).prop_map(|(hosts, groups, moves, ratio)| {
            let (mut reach, mut field, mut by_host) = (Reach::default(), Field::default(), Vec::new());
            field.off_disk = OFF_DISK;
            for (host, weights) in hosts.iter().enumerate() {
                let mut inside = Vec::new();
                for w in weights {
                    let osd = field.disks.len() as OsdId;
                    let weight = f64::from(*w);
                    let disk = Disk {
                        weight,
                        bytes: 0.0,
                        capacity: weight * 4000.0 * MIB as f64,
                        full: false,
                    };
                    field.disks.insert(osd, disk);
                    reach.domain.insert(osd, host as i32);
                    inside.push(osd);
                }
                by_host.push(inside);
            }
            for (seed, (dice, mib, size)) in groups.into_iter().enumerate() {
                let first = dice as usize % by_host.len();
                let up: Vec<OsdId> = (0..size)
                    .map(|i| {
                        let host = &by_host[(first + i) % by_host.len()];
                        host[(dice >> 8) as usize % host.len()]
                    })
                    .collect();
                let bytes = mib * MIB;
                for osd in &up {
                    field.disks.get_mut(osd).unwrap().bytes += bytes as f64;
                    field.total += bytes as f64;
                }
                field
                    .groups
                    .insert(PgId::new(1, seed as u32), Load { up, bytes, rule: 0 });
            }
            field.reach.insert(0, reach);
            let bounds = Bounds { moves, ratio };
            Case { field, bounds }
        })
    }

    fn domains_differ(field: &Field) -> bool {
        let reach = &field.reach[&0];
        field.groups.values().all(|g| {
            let domains: BTreeSet<i32> = g.up.iter().map(|o| reach.domain[o]).collect();
            domains.len() == g.up.len()
        })
    }

    proptest! {
        #[test]
        fn each_move_helps_and_they_end(case in case()) {
            let Case { mut field, bounds } = case;
            let mut all = 0;
            loop {
                let moves = plan(&field, bounds);
                if moves.is_empty() {
                    break;
                }
                prop_assert!(moves.len() <= bounds.moves);
                let bytes: u64 = moves.iter().skip(1).map(|m| m.bytes).sum();
                prop_assert!(bytes as f64 <= field.total * bounds.ratio, "of all bytes, beside the first");
                let groups: BTreeSet<PgId> = moves.iter().map(|m| m.pg).collect();
                prop_assert_eq!(groups.len(), moves.len());
                for m in &moves {
                    prop_assert!(field.groups[&m.pg].up.contains(&m.from));
                    let before = field.unevenness();
                    field.apply(m);
                    prop_assert!(field.unevenness() < before);
                    prop_assert!(domains_differ(&field));
                }
                all += moves.len();
                prop_assert!(all < 2000, "moves come to an end");
            }
        }

        /// OSDs that are out or down are none that a rule reaches.
        #[test]
        fn nothing_goes_where_the_rule_does_not_reach(case in case(), gone in 0usize..6) {
            let Case { mut field, bounds } = case;
            let gone = *field.disks.keys().nth(gone % field.disks.len()).unwrap();
            field.reach.get_mut(&0).unwrap().domain.remove(&gone);
            prop_assert!(plan(&field, bounds).iter().all(|m| m.to != gone));
        }

        #[test]
        fn nothing_goes_where_a_disk_is_nearly_full(case in case(), full in 0usize..6) {
            let Case { mut field, bounds } = case;
            let full = *field.disks.keys().nth(full % field.disks.len()).unwrap();
            field.disks.get_mut(&full).unwrap().full = true;
            prop_assert!(plan(&field, bounds).iter().all(|m| m.to != full));
        }
    }

    /// OSDs of weight 1 in domains of their own, each with so many bytes, and groups of one copy.
    fn plain(held: &[u64], groups: &[(OsdId, u64)]) -> Field {
        let mut out = Field::default();
        let mut reach = Reach::default();
        for (osd, bytes) in (0..).zip(held) {
            let disk = Disk {
                weight: 1.0,
                bytes: *bytes as f64,
                ..Disk::default()
            };
            out.disks.insert(osd, disk);
            out.total += *bytes as f64;
            reach.domain.insert(osd, osd);
        }
        for (seed, (osd, bytes)) in (0..).zip(groups) {
            let (up, bytes, rule) = (vec![*osd], *bytes, 0);
            out.groups.insert(PgId::new(1, seed), Load { up, bytes, rule });
        }
        out.reach.insert(0, reach);
        out
    }

    #[test]
    fn a_group_does_not_go_back_and_forth() {
        let bounds = Bounds { moves: 9, ratio: 1.0 };
        // The sum would fall, by next to nothing.
        assert_eq!(plan(&plain(&[151, 50], &[(0, 100)]), bounds), []);
        assert_eq!(plan(&plain(&[161, 40], &[(0, 100)]), bounds), []);
        let m = plan(&plain(&[163, 37], &[(0, 100)]), bounds)[0];
        assert_eq!((m.from, m.to), (0, 1));
        // It is there: the other one holds more now, and some is written there.
        assert_eq!(plan(&plain(&[63, 137], &[(1, 100)]), bounds), []);
        assert_eq!(plan(&plain(&[63, 187], &[(1, 100)]), bounds), []);
    }

    #[test]
    fn few_osds_are_looked_at_for_most_copies() {
        let held: Vec<u64> = (0..1000).map(|i| 1000 + i % 10 * 100).collect();
        let field = plain(&held, &[]);
        let targets = field.targets(&field.reach[&0]);
        assert_eq!(targets.over.len(), LOOKED_AT);
        let long = (0..1000).filter(|o| targets.of(*o).len() > LOOKED_AT);
        assert_eq!(long.count(), LOOKED_AT, "from these to all");
    }

    /// Four OSDs, with groups of different sizes.
    pub fn cluster() -> Cluster {
        let mut c = Cluster::with_osds(4);
        let out = c.run(
            r#"{"prefix":"osd pool create","pool":"p","pg_num":32,"size":2}"#,
            b"",
        );
        assert_eq!(out.code, 0, "{}", out.status);
        uneven(&mut c);
        c
    }

    /// Every fourth group holds most.
    fn uneven(c: &mut Cluster) {
        c.each_pg(|s| {
            s.stats.sum.num_bytes = if s.pgid.seed.is_multiple_of(4) {
                200 << 20
            } else {
                1 << 20
            }
        });
    }

    fn bytes_per_osd(c: &Cluster) -> Vec<f64> {
        let survey = Survey::of(&c.state.osdmap, &c.stats);
        Field::of(&c.state, &c.stats, &survey, None, OFF_DISK)
            .disks
            .values()
            .map(|d| d.bytes)
            .collect()
    }

    fn deviation(of: &[f64]) -> f64 {
        let mean = of.iter().sum::<f64>() / of.len() as f64;
        (of.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / of.len() as f64).sqrt()
    }

    #[test]
    fn a_map_comes_to_even_bytes() {
        let mut c = cluster();
        let mut before = deviation(&bytes_per_osd(&c));
        let first = before;
        for _ in 0..50 {
            let survey = Survey::of(&c.state.osdmap, &c.stats);
            let moves = match evening::moves(&c.state, &c.stats, &survey, None) {
                Ok(moves) => moves,
                Err(why) => {
                    assert_eq!(why, evening::NOTHING);
                    assert!(before < first / 2.0, "{first} {before}");
                    return;
                }
            };
            let (items, mut changes) = (items(&c.state.osdmap, &moves), cluster::Changes::none());
            assert_eq!(items.len(), moves.len());
            let mut there = (*c.state.osdmap).clone();
            items.iter().for_each(|(pg, list)| set(&mut there, *pg, list));
            assert_eq!(super::items(&there, &moves), BTreeMap::new(), "it is so already");
            write(&c.state.osdmap, &items, changes.inc(&c.state, c.now));
            c.state = c.state.apply(changes, c.now).unwrap().0;
            c.report();
            uneven(&mut c);
            let map = &c.state.osdmap;
            for pg in map.pgs() {
                let up = map.pg_to_up_acting(pg).up;
                assert_eq!(up.iter().collect::<BTreeSet<_>>().len(), up.len());
            }
            let now = deviation(&bytes_per_osd(&c));
            assert!(now < before, "{before} {now}");
            before = now;
        }
        panic!("it does not end");
    }

    #[test]
    fn what_became_stale_goes() {
        let mut c = cluster();
        assert_eq!(stale(&c.state.osdmap, 10), BTreeMap::new());
        let pg = PgId::new(2, 0);
        let pg = if c.state.osdmap.pool(2).is_some() {
            pg
        } else {
            PgId::new(1, 0)
        };
        let up = c.state.osdmap.pg_to_up_acting(pg).up;
        let to = (0..4).find(|o| !up.contains(o)).unwrap();
        let set = format!(
            r#"{{"prefix":"osd pg-upmap-items","pgid":"{pg}","id":["{}","{to}"]}}"#,
            up[0]
        );
        assert_eq!(c.run(&set, b"").code, 0);
        assert_eq!(stale(&c.state.osdmap, 10), BTreeMap::new());
        // Down for a moment: it is where the data is.
        c.run(&format!(r#"{{"prefix":"osd down","ids":["{to}"]}}"#), b"");
        assert_eq!(stale(&c.state.osdmap, 10), BTreeMap::new());
        c.run(&format!(r#"{{"prefix":"osd out","ids":["{to}"]}}"#), b"");
        assert_eq!(stale(&c.state.osdmap, 10), BTreeMap::from([(pg, vec![])]));
    }

    #[test]
    fn it_waits_while_anything_heals() {
        let mut c = cluster();
        let why =
            |c: &Cluster| evening::moves(&c.state, &c.stats, &Survey::of(&c.state.osdmap, &c.stats), None);
        assert!(why(&c).is_ok());
        c.each_pg(|s| {
            s.stats.sum.num_objects_degraded = 1;
        });
        assert!(why(&c).unwrap_err().contains("degraded; try again later"));
        let mut c = cluster();
        c.each_pg(|s| s.stats.sum.num_objects_misplaced = 1);
        assert!(why(&c).unwrap_err().starts_with("Too many objects (0."));
        let mut c = cluster();
        c.run(r#"{"prefix":"osd set","key":"norebalance"}"#, b"");
        uneven(&mut c);
        assert!(why(&c).unwrap_err().contains("norebalance"));
        let mut c = cluster();
        c.stats.osds.clear();
        assert!(why(&c).unwrap_err().contains("unknown"));
    }
}
