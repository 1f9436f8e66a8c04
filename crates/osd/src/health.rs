//! How a placement group is, as `ceph -s` and `ceph pg dump` say it: the state flags and what is not where it should be.
//!
//! Not here: `stale` and `unknown`, which only the monitor can tell.

use pg::{Group, MemberState, Pg, ScrubView};
use types::OsdId;
use types::osdmap::{OsdMap, map_flag};
use types::pgstats::pg_state;

/// State and counts of one PG, from its primary.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgHealth {
    pub state: u64,
    pub copies: i64,
    pub degraded: i64,
    pub misplaced: i64,
    pub blocked_by: Vec<OsdId>,
}

/// What the judgement is about.
pub struct Facts<'a> {
    pub group: &'a Group,
    pub members: &'a [MemberState],
    pub active: bool,
    pub objects: i64,
    pub map: &'a OsdMap,
}

impl PgHealth {
    pub fn of(pg: &Pg, map: &OsdMap) -> Self {
        let mut health = Self::judge(&Facts {
            group: pg.group(),
            members: &pg.members(),
            active: pg.is_active(),
            objects: pg.stats().objects,
            map,
        });
        health.state |= scrub_state(&pg.scrub_view());
        health
    }

    pub fn judge(f: &Facts<'_>) -> Self {
        let g = f.group;
        let (degraded, misplaced) = missing(f);
        let blocked_by = blocked_by(f);
        let full = |m: &MemberState| m.state == "full";
        let kept_waiting = !f.members.iter().filter(|m| m.in_sync).all(full);
        // One that is down and cannot be let go, as too few would be left, holds up every write.
        let alive = g
            .in_sync
            .iter()
            .filter(|o| **o == g.me || f.map.is_up(**o))
            .count();
        let mut state = match f.active {
            true if alive < g.min_size as usize => pg_state::PEERED,
            true => pg_state::ACTIVE,
            false if !g.is_enough() => pg_state::PEERED,
            false if blocked_by.iter().any(|o| !f.map.is_up(*o)) => pg_state::PEERING | pg_state::DOWN,
            false => pg_state::PEERING,
        };
        let mut set = |flag: u64, on: bool| state |= if on { flag } else { 0 };
        set(pg_state::UNDERSIZED, alive < g.size as usize);
        set(
            pg_state::DEGRADED,
            degraded > 0 || alive < g.size as usize || (f.active && kept_waiting),
        );
        set(pg_state::REMAPPED, is_remapped(g));
        set(
            pg_state::CLEAN,
            f.active && g.is_whole() && f.members.iter().all(full),
        );
        state |= copying(f);
        Self {
            state,
            copies: f.objects * i64::from(g.size),
            degraded,
            misplaced,
            blocked_by,
        }
    }
}

/// True if data is to move. Of copies the order says who leads; of shards each stays at its place though CRUSH lists it at another.
fn is_remapped(g: &Group) -> bool {
    match g.is_coded() {
        false => g.up != g.in_sync,
        true => g.up.len() != g.in_sync.len() || !g.up.iter().all(|o| g.in_sync.contains(o)),
    }
}

/// Flags of what is being compared, and of what that found.
fn scrub_state(view: &ScrubView) -> u64 {
    let mut state = match view.running {
        None => 0,
        Some(order) => {
            let deep = if order.deep { pg_state::DEEP_SCRUB } else { 0 };
            let repair = if order.repair { pg_state::REPAIR } else { 0 };
            pg_state::SCRUBBING | deep | repair
        }
    };
    if view.stamps.errors() > 0 {
        state |= pg_state::INCONSISTENT;
    }
    state
}

/// Flags of what is being copied.
fn copying(f: &Facts<'_>) -> u64 {
    let mut state = 0;
    for m in f.members {
        let held = |flag: u32| f.map.has_flag(flag) && !m.in_sync;
        state |= match (m.state, m.backfill) {
            ("resync", _) => pg_state::RECOVERING,
            ("recovering", true) if held(map_flag::NOBACKFILL) => pg_state::BACKFILL_WAIT,
            ("recovering", true) => pg_state::BACKFILLING,
            ("recovering", false) if held(map_flag::NORECOVER) => pg_state::RECOVERY_WAIT,
            ("recovering", false) => pg_state::RECOVERING,
            _ => 0,
        };
    }
    state
}

/// Copies of objects that do not exist, and such as exist elsewhere than where they should be.
fn missing(f: &Facts<'_>) -> (i64, i64) {
    let g = f.group;
    let mut absent = (g.size as usize).saturating_sub(g.in_sync.len());
    let (mut degraded, mut misplaced) = (0, 0);
    for m in f.members {
        let lacks = match (m.state, m.backfill) {
            ("full", _) => 0,
            ("recovering" | "resync", false) => (m.dirty as i64).min(f.objects),
            _ => f.objects,
        };
        if m.in_sync {
            degraded += if m.state == "resync" { lacks } else { 0 };
        } else if absent > 0 {
            absent -= 1;
            degraded += lacks;
        } else {
            misplaced += lacks;
        }
    }
    (degraded + absent as i64 * f.objects, misplaced)
}

/// The OSDs whose word or return the PG waits for.
fn blocked_by(f: &Facts<'_>) -> Vec<OsdId> {
    let silent = |m: &&MemberState| m.in_sync && matches!(m.state, "away" | "failed");
    let waits = f.members.iter().filter(silent).map(|m| m.osd);
    if f.active && f.members.iter().all(|m| m.state == "full") {
        return Vec::new();
    }
    waits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Uuid;
    use types::osdmap::osd_state;
    use types::pgstats::pg_state::{
        ACTIVE, CLEAN, DEGRADED, DOWN, PEERED, PEERING, RECOVERING, REMAPPED, UNDERSIZED,
    };

    fn check(
        in_sync: &[OsdId],
        up: &[OsdId],
        members: &[(OsdId, &'static str, bool)],
        active: bool,
    ) -> PgHealth {
        check_with(in_sync, up, members, active, &[0, 1, 2, 3])
    }

    fn check_with(
        in_sync: &[OsdId],
        up: &[OsdId],
        members: &[(OsdId, &'static str, bool)],
        active: bool,
        alive: &[OsdId],
    ) -> PgHealth {
        let mut map = OsdMap::empty(Uuid::default());
        map.set_max_osd(4);
        for osd in alive {
            map.osds[*osd as usize].state = osd_state::EXISTS | osd_state::UP;
        }
        let group = Group {
            me: in_sync[0],
            primary: in_sync[0],
            interval: 1,
            in_sync: in_sync.to_vec(),
            up: up.to_vec(),
            size: 3,
            min_size: 2,
            ..Group::default()
        };
        let state = |(osd, state, backfill): &(OsdId, &'static str, bool)| MemberState {
            osd: *osd,
            in_sync: in_sync.contains(osd),
            state,
            dirty: 4,
            backfill: *backfill,
            no_room: false,
            lacks: 0,
        };
        PgHealth::judge(&Facts {
            group: &group,
            members: &members.iter().map(state).collect::<Vec<_>>(),
            active,
            objects: 10,
            map: &map,
        })
    }

    #[test]
    fn shards_are_in_place_where_they_stay() {
        let group = |up: &[OsdId], in_sync: &[OsdId]| Group {
            in_sync: in_sync.to_vec(),
            up: up.to_vec(),
            acting: up.iter().copied().map(Some).collect(),
            ..Group::default()
        };
        assert!(!is_remapped(&group(&[0, 1, 2], &[1, 0, 2])));
        assert!(is_remapped(&group(&[0, 1, 2], &[1, 0])));
        assert!(is_remapped(&group(&[0, 1, 2], &[1, 0, 3])));
        let copies = Group {
            acting: Vec::new(),
            ..group(&[0, 1, 2], &[1, 0, 2])
        };
        assert!(is_remapped(&copies));
    }

    #[test]
    fn states_are_named_as_ceph_names_them() {
        let whole = check(
            &[0, 1, 2],
            &[0, 1, 2],
            &[(1, "full", false), (2, "full", false)],
            true,
        );
        assert_eq!(
            (whole.state, whole.degraded, whole.copies),
            (ACTIVE | CLEAN, 0, 30)
        );
        let lost = check(&[0, 1], &[0, 1], &[(1, "full", false)], true);
        assert_eq!((lost.state, lost.degraded), (ACTIVE | UNDERSIZED | DEGRADED, 10));
        let returning = check(
            &[0, 1],
            &[0, 1, 2],
            &[(1, "full", false), (2, "recovering", false)],
            true,
        );
        assert_eq!(
            (returning.state, returning.degraded),
            (ACTIVE | UNDERSIZED | DEGRADED | REMAPPED | RECOVERING, 4)
        );
        let moving = check(
            &[0, 1, 2],
            &[0, 1, 3],
            &[(1, "full", false), (2, "full", false), (3, "asked", false)],
            true,
        );
        assert_eq!((moving.degraded, moving.misplaced), (0, 10));
        let too_few = check(&[0], &[0], &[], false);
        assert_eq!(
            (too_few.state, too_few.degraded),
            (PEERED | UNDERSIZED | DEGRADED, 20)
        );
        let waits = check_with(&[0, 1], &[0], &[(1, "away", false)], false, &[0]);
        assert_eq!(waits.state & (PEERING | DOWN), PEERING | DOWN);
        assert_eq!(waits.blocked_by, [1]);
        // As many copies as are required, and one of them is down: it leads and cannot write.
        let held = check_with(&[0, 1], &[0], &[(1, "away", false)], true, &[0]);
        assert_eq!(held.state, PEERED | UNDERSIZED | DEGRADED | REMAPPED);
        assert_eq!(held.blocked_by, [1]);
    }
}
