//! Keeps placement groups where their data is.
//!
//! The OSDs cannot move data yet. So whenever an increment would let CRUSH send a placement group elsewhere (an
//! OSD out, another weight, another rule), the same increment sets `pg_temp` to where the group has been, and
//! removes it again once CRUSH agrees. Ceph uses `pg_temp` for just that while data moves; here it stays until
//! data can.
//!
//! Invariant: after every increment, the *home* of each group (its `pg_temp` if it has one, else what CRUSH says
//! without regard to who is down) is the same as before, unless none of its OSDs exists any more.

use types::osdmap::{Incremental, OsdMap};
use types::{OsdId, PgId};

/// True if the increment can move a group: anything but OSDs going up and down, pool settings and lists.
fn can_move(map: &OsdMap, inc: &Incremental) -> bool {
    let placement_of_pool = inc.new_pools.iter().any(|(id, new)| {
        map.pool(*id).is_some_and(|old| {
            (old.crush_rule, old.size, old.pg_num, old.pgp_num)
                != (new.crush_rule, new.size, new.pg_num, new.pgp_num)
        })
    });
    placement_of_pool
        || inc.crush.is_some()
        || inc.new_max_osd.is_some()
        || !inc.new_weight.is_empty()
        || !inc.new_primary_affinity.is_empty()
        || !inc.new_pg_upmap.is_empty()
        || !inc.old_pg_upmap.is_empty()
        || !inc.new_pg_upmap_items.is_empty()
        || !inc.old_pg_upmap_items.is_empty()
}

/// Where the group belongs by the map, whoever is down.
fn home(map: &OsdMap, pg: PgId) -> Vec<OsdId> {
    match map.pg_temp.get(&pg) {
        Some(temp) => temp.clone(),
        None => map.pg_mapping(pg).sets.up,
    }
}

/// The same map with every OSD that exists up: placement then does not depend on who is down.
fn all_up(map: &OsdMap) -> OsdMap {
    let mut map = map.clone();
    for osd in &mut map.osds {
        if osd.state & types::osdmap::osd_state::EXISTS != 0 {
            osd.state |= types::osdmap::osd_state::UP;
        }
    }
    map
}

/// Adds to `inc` the overrides that keep every group at home. `after` is the map with `inc` applied.
pub(crate) fn pin(before: &OsdMap, after: &OsdMap, inc: &mut Incremental) {
    if before.pools.is_empty() || !can_move(before, inc) {
        return;
    }
    let before = all_up(before);
    let mut after = all_up(after);
    // What the increment itself says about overrides does not count here: they are ours.
    after.pg_temp.clear();
    for pg in before
        .pgs()
        .filter(|pg| after.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num))
    {
        let mut was = home(&before, pg);
        was.retain(|osd| after.exists(*osd));
        let is = home(&after, pg);
        if was.is_empty() || was == is {
            if before.pg_temp.contains_key(&pg) {
                inc.new_pg_temp.insert(pg, Vec::new());
            }
        } else if before.pg_temp.get(&pg) != Some(&was) {
            inc.new_pg_temp.insert(pg, was);
        }
    }
}
