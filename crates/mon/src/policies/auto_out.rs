//! An OSD that stays down is marked out, so that its copies are made again elsewhere; but only where that helps.
//!
//! The delay is `mon_osd_down_out_interval` (600 s): long enough for a reboot, since moving data back and forth costs
//! more than waiting. Where a placement group is down to its last copy the delay is a tenth of it
//! ([`AT_RISK_DIVISOR`]). Time counts from when this monitor first saw the OSD down, not from the map's stamp: after
//! a power cut the whole cluster was "down for hours", and nobody shall be thrown out for that.
//!
//! Never out: with `noout` (of the map, the OSD, a CRUSH node, a device class); when the whole subtree of
//! `mon_osd_down_out_subtree_limit` (rack) is down, since then it is the network or the power; when fewer than
//! `mon_osd_min_in_ratio` (0.75) of the OSDs are in; when no failure domain is left to take another copy; when the
//! others have no room for its data below the backfillfull ratio. The reason is logged and shown by `skep doctor`.
//!
//! It comes in again by itself when it boots (`Incremental::boot_osd`); one that an operator marked out does not.

use crate::policies::spread::Spread;
use cluster::{ClusterState, ClusterStats};
use std::collections::{BTreeMap, BTreeSet};
use types::OsdId;
use types::osdmap::{OsdMap, map_flag, osd_state};

pub const DOWN_OUT_INTERVAL_SEC: u64 = 600;
/// The delay is this much shorter where data has one copy left.
pub const AT_RISK_DIVISOR: u64 = 10;
const MIN_IN_RATIO: f64 = 0.75;
const SUBTREE_LIMIT: &str = "rack";
/// A verdict is thought over anew after so many seconds.
const AGAIN_SEC: u64 = 10;

/// Why an OSD that is down stays in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Keep {
    #[error("marking out is turned off (mon_osd_down_out_interval is 0)")]
    TurnedOff,
    #[error("{0}")]
    NoOut(String),
    #[error("all of {kind} {name} is down")]
    Subtree { kind: String, name: String },
    #[error("only {inside} of {all} OSDs are in (mon_osd_min_in_ratio)")]
    MinIn { inside: usize, all: usize },
    #[error("pool '{pool}' keeps {size} copies apart and only {left} failure domains would be left")]
    NoDomain { pool: String, size: u8, left: usize },
    #[error("pool '{pool}': the remaining OSDs have no room for its data ({need} bytes wanted, {room} free)")]
    NoRoom { pool: String, need: u64, room: u64 },
}

/// OSDs that are down and in: since when (monotonic seconds), and what was decided last.
#[derive(Debug, Default)]
pub struct DownWatch {
    since: BTreeMap<OsdId, Down>,
}

#[derive(Debug, Clone)]
struct Down {
    since_sec: u64,
    judged_sec: Option<u64>,
    kept: Option<Keep>,
}

/// What one look gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// To be marked out, and how many seconds they were down.
    pub out: Vec<(OsdId, u64)>,
    /// Newly decided: they stay in though their time is up.
    pub kept: Vec<(OsdId, Keep)>,
}

impl DownWatch {
    pub fn look(&mut self, state: &ClusterState, stats: &ClusterStats, now_sec: u64) -> Verdicts {
        let map = &*state.osdmap;
        let down = |id: &OsdId| map.is_down(*id) && map.is_in(*id);
        self.since.retain(|id, _| down(id));
        for id in map.osd_ids().filter(down) {
            self.since.entry(id).or_insert(Down {
                since_sec: now_sec,
                judged_sec: None,
                kept: None,
            });
        }
        let mut out = Verdicts::default();
        for (id, d) in &mut self.since {
            let down_sec = now_sec.saturating_sub(d.since_sec);
            if down_sec < delay_sec(state, *id)
                || d.judged_sec
                    .is_some_and(|at| now_sec.saturating_sub(at) < AGAIN_SEC)
            {
                continue;
            }
            d.judged_sec = Some(now_sec);
            match judge(state, stats, *id) {
                // One at a time: the next is judged by what the map then says.
                Ok(()) if out.out.is_empty() => out.out.push((*id, down_sec)),
                Ok(()) => d.judged_sec = None,
                Err(why) => {
                    if d.kept.as_ref() != Some(&why) {
                        out.kept.push((*id, why.clone()));
                    }
                    d.kept = Some(why);
                }
            }
        }
        out
    }
}

/// Seconds that an OSD may be down until it is marked out; `u64::MAX` when it never is.
pub fn delay_sec(state: &ClusterState, osd: OsdId) -> u64 {
    let interval = state.mon_option_u64("mon_osd_down_out_interval", DOWN_OUT_INTERVAL_SEC);
    match interval {
        0 => u64::MAX,
        n if is_at_risk(state, osd) => n.div_ceil(AT_RISK_DIVISOR),
        n => n,
    }
}

/// True if some PG that has this OSD among its holders has one living holder left, or none, of several copies; or no more living shards
/// than its objects need.
pub fn is_at_risk(state: &ClusterState, osd: OsdId) -> bool {
    let map = &*state.osdmap;
    map.pgs().any(|pg| {
        let Some(pool) = map.pool(pg.pool).filter(|p| p.size > 1) else {
            return false;
        };
        let last = usize::from(map.enough(pool));
        state.pgs.get(pg).is_some_and(|c| {
            let sick = c.in_sync.contains(&osd) || c.in_sync.len() == last;
            sick && c.in_sync.iter().filter(|o| map.is_up(**o)).count() <= last
        })
    })
}

/// Whether marking `osd`, which is down, out does any good.
pub fn judge(state: &ClusterState, stats: &ClusterStats, osd: OsdId) -> Result<(), Keep> {
    let map = &*state.osdmap;
    if state.mon_option_u64("mon_osd_down_out_interval", DOWN_OUT_INTERVAL_SEC) == 0 {
        return Err(Keep::TurnedOff);
    }
    if let Some(why) = noout(map, osd) {
        return Err(Keep::NoOut(why));
    }
    let limit = state
        .mon_option("mon_osd_down_out_subtree_limit")
        .unwrap_or(SUBTREE_LIMIT);
    if let Some((kind, name)) = subtree_down(map, osd, limit) {
        return Err(Keep::Subtree { kind, name });
    }
    let (inside, all) = (map.num_in_osds(), map.num_osds());
    let floor = state
        .mon_option("mon_osd_min_in_ratio")
        .and_then(|v| v.parse().ok())
        .unwrap_or(MIN_IN_RATIO);
    if (inside as f64) < all as f64 * floor {
        return Err(Keep::MinIn { inside, all });
    }
    room_for(state, stats, osd)
}

/// The flag that keeps an OSD in, in words.
fn noout(map: &OsdMap, osd: OsdId) -> Option<String> {
    if map.has_flag(map_flag::NOOUT) {
        return Some("noout is set".into());
    }
    if map.osd(osd).is_some_and(|o| o.state & osd_state::NOOUT != 0) {
        return Some(format!("noout is set on osd.{osd}"));
    }
    for (kind, name) in map.crush.location_of(osd) {
        let flags = map
            .crush
            .item_id(&name)
            .and_then(|id| map.crush_node_flags.get(&id));
        if flags.is_some_and(|f| f & osd_state::NOOUT != 0) {
            return Some(format!("noout is set on {kind} {name}"));
        }
    }
    let class = map.crush.class_name_of(osd)?;
    let flags = map
        .crush
        .class_id(class)
        .and_then(|c| map.device_class_flags.get(&c));
    flags
        .filter(|f| **f & osd_state::NOOUT != 0)
        .map(|_| format!("noout is set on device class '{class}'"))
}

/// The nearest bucket of type `limit` or larger above `osd`, if all of its OSDs are down.
fn subtree_down(map: &OsdMap, osd: OsdId, limit: &str) -> Option<(String, String)> {
    let limit = map.crush.type_id(limit)?;
    let above = map.crush.location_of(osd);
    let (kind, name) = above
        .into_iter()
        .rev()
        .find(|(kind, _)| map.crush.type_id(kind).is_some_and(|t| t >= limit))?;
    let below = map.crush.devices_under(map.crush.item_id(&name)?);
    below.iter().all(|o| !map.is_up(*o)).then_some((kind, name))
}

/// Fails when a pool that uses `osd` could not put its copies elsewhere.
pub(crate) fn room_for(state: &ClusterState, stats: &ClusterStats, osd: OsdId) -> Result<(), Keep> {
    let map = &*state.osdmap;
    let mut spreads: BTreeMap<u8, Spread> = BTreeMap::new();
    // What every OSD would have to take, over all pools: checked pool by pool against what is free.
    for (id, pool) in &map.pools {
        let spread = spreads
            .entry(pool.crush_rule)
            .or_insert_with(|| Spread::of(map, u32::from(pool.crush_rule)));
        let Some(domain) = spread.domain_of(osd) else {
            continue;
        };
        let name = || map.pool_name(*id).unwrap_or("?").to_string();
        let rest = spread.clone().without(osd);
        if rest.domains.len() < usize::from(pool.size) {
            return Err(Keep::NoDomain {
                pool: name(),
                size: pool.size,
                left: rest.domains.len(),
            });
        }
        let need = share_of(state, stats, *id, spread, osd);
        // With as many domains as copies, the data has to stay within its domain.
        let takers: BTreeSet<OsdId> = match rest.domains.get(&domain) {
            Some(same) if rest.domains.len() == usize::from(pool.size) => same.iter().copied().collect(),
            _ => rest.osds().collect(),
        };
        let room = takers.iter().map(|o| free_bytes(map, stats, *o)).sum();
        if need > room {
            return Err(Keep::NoRoom {
                pool: name(),
                need,
                room,
            });
        }
    }
    Ok(())
}

/// Bytes of a pool that lie on one OSD, by its share of the weights: an OSD that is down reports nothing.
pub(crate) fn share_of(
    state: &ClusterState,
    stats: &ClusterStats,
    pool: i64,
    spread: &Spread,
    osd: OsdId,
) -> u64 {
    let map = &*state.osdmap;
    let weight = |o: OsdId| f64::from(map.crush.weight_of(o).unwrap_or(0)) * f64::from(map.weight(o));
    let all: f64 = spread.osds().map(weight).sum();
    let rate = map.pool(pool).map_or(1.0, |p| map.raw_rate(p));
    let bytes = stats.pool_sum(pool).num_bytes.max(0) as f64 * rate;
    match all > 0.0 {
        true => (bytes * weight(osd) / all) as u64,
        false => 0,
    }
}

/// What an OSD can take until it is too full for backfill. Nothing without a report.
pub(crate) fn free_bytes(map: &OsdMap, stats: &ClusterStats, osd: OsdId) -> u64 {
    let Some(report) = stats.osds.get(&osd).filter(|_| map.is_up(osd)) else {
        return 0;
    };
    let s = &report.stat.statfs;
    let limit = s.total.max(0) as f64 * f64::from(map.backfillfull_ratio);
    (limit - s.used().max(0) as f64).max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sample::Cluster;

    fn cmd(c: &mut Cluster, text: &str) {
        let out = c.run(text, b"");
        assert_eq!(out.code, 0, "{text}: {}", out.status);
    }

    /// Four OSDs on one host, a pool of `size`, osd.3 down.
    fn sick(size: u8) -> Cluster {
        let mut c = Cluster::with_osds(4);
        cmd(
            &mut c,
            &format!(r#"{{"prefix":"osd pool create","pool":"p","pg_num":8,"size":{size}}}"#),
        );
        cmd(&mut c, r#"{"prefix":"osd down","ids":["3"]}"#);
        c
    }

    #[test]
    fn out_after_the_interval_and_not_before() {
        let c = sick(3);
        let mut w = DownWatch::default();
        assert_eq!(w.look(&c.state, &c.stats, 1000), Verdicts::default());
        assert_eq!(w.look(&c.state, &c.stats, 1000 + 599), Verdicts::default());
        assert_eq!(w.look(&c.state, &c.stats, 1600).out, [(3, 600)]);
    }

    #[test]
    fn the_interval_is_an_option_and_zero_is_never() {
        let mut c = sick(3);
        cmd(
            &mut c,
            r#"{"prefix":"config set","who":"mon","name":"mon_osd_down_out_interval","value":"20"}"#,
        );
        let mut w = DownWatch::default();
        w.look(&c.state, &c.stats, 0);
        assert_eq!(w.look(&c.state, &c.stats, 20).out, [(3, 20)]);
        cmd(
            &mut c,
            r#"{"prefix":"config set","who":"mon","name":"mon_osd_down_out_interval","value":"0"}"#,
        );
        assert_eq!(w.look(&c.state, &c.stats, 1_000_000), Verdicts::default());
        assert_eq!(judge(&c.state, &c.stats, 3), Err(Keep::TurnedOff));
    }

    #[test]
    fn a_restarted_monitor_begins_to_count_anew() {
        let c = sick(3);
        let mut w = DownWatch::default();
        w.look(&c.state, &c.stats, 100_000);
        assert_eq!(w.look(&c.state, &c.stats, 100_599), Verdicts::default());
    }

    #[test]
    fn an_osd_that_came_back_is_forgotten() {
        let mut c = sick(3);
        let mut w = DownWatch::default();
        w.look(&c.state, &c.stats, 0);
        c.boot(3);
        w.look(&c.state, &c.stats, 300);
        cmd(&mut c, r#"{"prefix":"osd down","ids":["3"]}"#);
        w.look(&c.state, &c.stats, 400);
        assert_eq!(w.look(&c.state, &c.stats, 700), Verdicts::default());
    }

    #[test]
    fn flags_keep_it_in_and_the_reason_is_told_once() {
        for set in [
            r#"{"prefix":"osd set","key":"noout"}"#,
            r#"{"prefix":"osd set-group","flags":"noout","who":["osd.3"]}"#,
            r#"{"prefix":"osd set-group","flags":"noout","who":["vm"]}"#,
            r#"{"prefix":"osd set-group","flags":"noout","who":["hdd"]}"#,
        ] {
            let mut c = sick(3);
            cmd(&mut c, set);
            let mut w = DownWatch::default();
            w.look(&c.state, &c.stats, 0);
            let v = w.look(&c.state, &c.stats, 601);
            assert!(
                v.out.is_empty() && matches!(v.kept[..], [(3, Keep::NoOut(_))]),
                "{set}: {v:?}"
            );
            assert_eq!(w.look(&c.state, &c.stats, 700), Verdicts::default(), "{set}");
        }
    }

    #[test]
    fn not_when_no_domain_is_left_for_another_copy() {
        let mut c = Cluster::new();
        cmd(
            &mut c,
            r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"size":3}"#,
        );
        cmd(&mut c, r#"{"prefix":"osd down","ids":["1"]}"#);
        assert!(matches!(
            judge(&c.state, &c.stats, 1),
            Err(Keep::NoDomain { size: 3, left: 2, .. })
        ));
    }

    #[test]
    fn not_when_the_others_have_no_room() {
        let mut c = sick(3);
        for id in 0..3 {
            c.fill(id, 0.85);
        }
        c.pool_bytes(1, 4 << 30);
        assert!(matches!(judge(&c.state, &c.stats, 3), Err(Keep::NoRoom { .. })));
        for id in 0..3 {
            c.fill(id, 0.1);
        }
        c.pool_bytes(1, 1 << 20);
        assert_eq!(judge(&c.state, &c.stats, 3), Ok(()));
    }

    #[test]
    fn not_when_everything_is_down() {
        let mut c = sick(3);
        cmd(&mut c, r#"{"prefix":"osd down","ids":["0","1","2"]}"#);
        assert!(matches!(judge(&c.state, &c.stats, 3), Err(Keep::Subtree { .. })));
    }

    #[test]
    fn one_at_a_time_and_never_too_many() {
        let mut c = Cluster::with_osds(8);
        cmd(
            &mut c,
            r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"size":2}"#,
        );
        cmd(&mut c, r#"{"prefix":"osd down","ids":["4","5","6","7"]}"#);
        let mut w = DownWatch::default();
        w.look(&c.state, &c.stats, 0);
        let mut gone = Vec::new();
        for sec in 601..700 {
            for (id, _) in w.look(&c.state, &c.stats, sec).out {
                cmd(&mut c, &format!(r#"{{"prefix":"osd out","ids":["{id}"]}}"#));
                gone.push(id);
            }
        }
        // 6 of 8 are still 0.75; below that the rest stays.
        assert_eq!(gone, [4, 5, 6]);
    }
}
