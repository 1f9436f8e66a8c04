//! Flags of the OSD map in words.

use types::osdmap::map_flag;

/// Bits in the order of Ceph's text, which is not their numeric order.
const TEXT_ORDER: [u32; 20] = [
    map_flag::NEARFULL,
    map_flag::FULL,
    map_flag::PAUSERD,
    map_flag::PAUSEWR,
    map_flag::PAUSEREC,
    map_flag::NOUP,
    map_flag::NODOWN,
    map_flag::NOOUT,
    map_flag::NOIN,
    map_flag::NOBACKFILL,
    map_flag::NOREBALANCE,
    map_flag::NORECOVER,
    map_flag::NOSCRUB,
    map_flag::NODEEP_SCRUB,
    map_flag::NOTIERAGENT,
    map_flag::NOSNAPTRIM,
    map_flag::SORTBITWISE,
    map_flag::RECOVERY_DELETES,
    map_flag::PURGED_SNAPDIRS,
    map_flag::PGLOG_HARDLIMIT,
];

/// `noout,sortbitwise,…`
pub fn names(flags: u32) -> String {
    let set: Vec<&str> = TEXT_ORDER
        .iter()
        .filter(|bit| flags & **bit != 0)
        .flat_map(|bit| map_flag::names(*bit))
        .collect();
    set.join(",")
}
