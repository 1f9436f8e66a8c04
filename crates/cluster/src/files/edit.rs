//! File systems are made and removed.

use super::{Draft, FILE_SYSTEMS_MAX};
use std::collections::BTreeSet;
use types::PoolId;
use types::fsmap::{CompatSet, FeatureSet, Filesystem, MDS_INCOMPAT, MdsMap, Mirror};

/// Standbys that a cluster should have where nobody said how many, if it ever had one.
pub const DEFAULT_STANDBYS: i32 = 1;

/// A file system to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewFs<'a> {
    pub name: &'a str,
    pub metadata_pool: PoolId,
    pub data_pool: PoolId,
    /// None: the next free number.
    pub fscid: Option<i32>,
    /// Its pools hold one already: rank 0 is not made anew, and nobody may join before an operator says so.
    pub recover: bool,
}

/// The number of the new file system; the error is what stands against it.
pub fn create(draft: &mut Draft<'_>, new: &NewFs<'_>) -> Result<i32, String> {
    if draft.map.filesystems.len() >= FILE_SYSTEMS_MAX {
        return Err(format!("the cluster has {FILE_SYSTEMS_MAX} file systems already"));
    }
    let next = i32::try_from(draft.map.next_filesystem_id).unwrap_or(i32::MAX);
    let fscid = new.fscid.unwrap_or(next);
    draft.map.next_filesystem_id = draft.map.next_filesystem_id.max(fscid as u64 + 1);
    let mut map = MdsMap {
        enabled: true,
        fs_name: new.name.to_string(),
        metadata_pool: new.metadata_pool,
        data_pools: vec![new.data_pool],
        created: draft.now,
        modified: draft.now,
        compat: CompatSet {
            incompat: FeatureSet::of(&MDS_INCOMPAT),
            ..CompatSet::default()
        },
        ..MdsMap::default()
    };
    if new.recover {
        map.flags |= types::fsmap::mds_flag::NOT_JOINABLE;
        map.in_ranks = BTreeSet::from([0]);
        map.failed = BTreeSet::from([0]);
    }
    draft.map.filesystems.push(Filesystem {
        fscid,
        mds_map: map,
        mirror: Mirror::default(),
    });
    draft.map.filesystems.sort_by_key(|fs| fs.fscid);
    if draft.map.by_id(draft.map.legacy_client_fscid).is_none() {
        draft.map.legacy_client_fscid = fscid;
    }
    Ok(fscid)
}

/// Its daemons are fenced, and gone from the map; they may come back as standbys.
pub fn remove(draft: &mut Draft<'_>, fscid: i32) {
    let gids: Vec<u64> = draft
        .map
        .by_id(fscid)
        .map(|fs| fs.mds_map.mds_info.keys().copied().collect())
        .unwrap_or_default();
    for gid in gids {
        draft.drop_daemon(gid, "has lost its file system");
    }
    draft.map.filesystems.retain(|fs| fs.fscid != fscid);
    if draft.map.legacy_client_fscid == fscid {
        draft.map.legacy_client_fscid = -1;
    }
}
