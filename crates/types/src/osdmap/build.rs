//! Making maps: the first epoch of a new cluster, and the changes that common events put into an incremental
//! (docs/protocol/ceph/03-placement.md, 1.3, 3 and 8).
//!
//! Everything here only fills in an [`Incremental`]; nothing changes a map in place.

use super::*;
use crate::pool::{POOL_TYPE_REPLICATED, pool_flag};
use crate::release;
use crush::FailureDomain;

/// Where an OSD that boots can be reached, and what it can do.
#[derive(Debug, Clone)]
pub struct OsdBoot {
    pub client_addrs: EntityAddrVec,
    pub cluster_addrs: EntityAddrVec,
    pub hb_back_addrs: EntityAddrVec,
    pub hb_front_addrs: EntityAddrVec,
    pub features: u64,
}

/// What a new cluster starts with.
#[derive(Debug, Clone)]
pub struct NewCluster {
    pub fsid: Uuid,
    pub created: Utime,
    /// What the default rule spreads copies over: hosts, or OSDs when all run on one machine.
    pub failure_domain: FailureDomain,
}

/// A replicated pool to be made. Zeros take the defaults.
#[derive(Debug, Clone, Default)]
pub struct NewPool {
    pub name: String,
    pub pg_num: u32,
    pub pgp_num: u32,
    pub size: u8,
    pub min_size: u8,
    pub crush_rule: u8,
    /// Enabled at once if not empty.
    pub application: String,
}

impl NewCluster {
    /// The map of epoch 1: no OSDs, no pools, a CRUSH map with an empty root and one rule.
    pub fn map(&self) -> OsdMap {
        let k2m2 = [
            ("k", "2"),
            ("m", "2"),
            ("plugin", "jerasure"),
            ("technique", "reed_sol_van"),
        ];
        let profile = k2m2
            .iter()
            .map(|(k, v)| ((*k).to_string(), (*v).to_string()))
            .collect();
        OsdMap {
            epoch: 1,
            created: self.created,
            modified: self.created,
            flags: map_flag::ALWAYS,
            crush: Arc::new(CrushMap::new_default(self.failure_domain)),
            erasure_code_profiles: BTreeMap::from([("default".to_string(), profile)]),
            nearfull_ratio: 0.85,
            full_ratio: 0.95,
            backfillfull_ratio: 0.90,
            require_min_compat_client: release::LUMINOUS,
            require_osd_release: release::PACIFIC,
            ..OsdMap::empty(self.fsid)
        }
    }

    /// Epoch 1 as an incremental over the empty map.
    pub fn first(&self) -> Incremental {
        let map = self.map();
        let (full, crc) = map.encode_for(u64::MAX);
        Incremental {
            full_crc: crc,
            fullmap: Some(full),
            ..Incremental::next_after(&OsdMap::empty(self.fsid), self.created)
        }
    }
}

impl Incremental {
    /// Adds an OSD in the lowest free slot: it exists (as "new", down, in) from the next epoch on. `None` when
    /// the map is full.
    pub fn create_osd(&mut self, map: &OsdMap, uuid: Uuid) -> Option<OsdId> {
        let free = |id: &OsdId| !map.exists(*id) && !self.new_uuid.contains_key(id);
        let id = (0..MAX_OSD_LIMIT as i32).find(free)?;
        self.create_osd_with_id(map, id, uuid);
        Some(id)
    }

    /// As [`Incremental::create_osd`], in a slot of the caller's choice below [`MAX_OSD_LIMIT`].
    pub fn create_osd_with_id(&mut self, map: &OsdMap, id: OsdId, uuid: Uuid) {
        let have = self.new_max_osd.unwrap_or(map.max_osd());
        if id >= have {
            self.new_max_osd = Some(id + 1);
        }
        // "new" is XORed in; the weight below sets "exists" in the same epoch and clears "new" only if it is
        // applied later, which it is not: weights come before states.
        self.new_state.insert(id, osd_state::NEW);
        self.new_weight.insert(id, WEIGHT_IN);
        self.new_uuid.insert(id, uuid);
        self.new_last_in_change = self.modified;
    }

    /// An OSD boots and is up from the next epoch on. A new one ("new", or never seen in) is put in.
    pub fn boot_osd(&mut self, map: &OsdMap, id: OsdId, boot: &OsdBoot) {
        self.new_up_client.insert(id, boot.client_addrs.clone());
        self.new_up_cluster.insert(id, boot.cluster_addrs.clone());
        self.new_hb_back_up.insert(id, boot.hb_back_addrs.clone());
        self.new_hb_front_up.insert(id, boot.hb_front_addrs.clone());
        let mut xinfo = self.xinfo_of(map, id);
        xinfo.features = boot.features;
        let slot_state = map.osd(id).map_or(0, |o| o.state);
        if map.has_flag(map_flag::NOIN) || slot_state & osd_state::NOIN != 0 {
            // It is up and keeps the weight it has.
        } else if slot_state & osd_state::AUTOOUT != 0 && !map.is_in(id) {
            let weight = if xinfo.old_weight > 0 {
                xinfo.old_weight
            } else {
                WEIGHT_IN
            };
            self.new_weight.insert(id, weight);
            xinfo.old_weight = 0;
            self.new_last_in_change = self.modified;
        } else if slot_state & osd_state::NEW != 0 {
            self.new_weight.insert(id, WEIGHT_IN);
        }
        self.new_xinfo.insert(id, xinfo);
        self.new_last_up_change = self.modified;
    }

    /// The extra info as it is after this incremental so far.
    fn xinfo_of(&self, map: &OsdMap, id: OsdId) -> OsdXInfo {
        match self.new_xinfo.get(&id) {
            Some(x) => *x,
            None => map.osd(id).map_or_else(OsdXInfo::default, |o| o.xinfo),
        }
    }

    /// Marks an OSD down; nothing if it is not up, since the mask is XORed.
    pub fn mark_down(&mut self, map: &OsdMap, id: OsdId) {
        if map.is_up(id) && !self.new_up_client.contains_key(&id) {
            *self.new_state.entry(id).or_insert(0) |= osd_state::UP;
            let mut xinfo = self.xinfo_of(map, id);
            xinfo.dead_epoch = self.epoch;
            // What is sent here replaces what applying the state sets.
            xinfo.down_stamp = self.modified;
            self.new_xinfo.insert(id, xinfo);
            self.new_last_up_change = self.modified;
        }
    }

    /// Marks an OSD out and remembers its weight.
    pub fn mark_out(&mut self, map: &OsdMap, id: OsdId) {
        let weight = map.weight(id);
        let mut xinfo = self.xinfo_of(map, id);
        xinfo.old_weight = weight;
        self.new_xinfo.insert(id, xinfo);
        self.new_weight.insert(id, WEIGHT_OUT);
        self.new_last_in_change = self.modified;
    }

    /// As [`Incremental::mark_out`], and such that the next boot puts it in again.
    pub fn auto_out(&mut self, map: &OsdMap, id: OsdId) {
        self.mark_out(map, id);
        if map.osd(id).is_some_and(|o| o.state & osd_state::AUTOOUT == 0) {
            *self.new_state.entry(id).or_insert(0) |= osd_state::AUTOOUT;
        }
    }

    /// Marks an OSD in, with the weight it had before it went out.
    pub fn mark_in(&mut self, map: &OsdMap, id: OsdId) {
        let old = self.xinfo_of(map, id).old_weight;
        let weight = if old > 0 { old } else { WEIGHT_IN };
        self.set_weight(id, weight);
    }

    /// Sets the reweight.
    pub fn set_weight(&mut self, id: OsdId, weight: u32) {
        self.new_weight.insert(id, weight);
        self.new_last_in_change = self.modified;
    }

    /// Removes an OSD from the map (it must be down).
    pub fn remove_osd(&mut self, map: &OsdMap, id: OsdId) {
        if let Some(slot) = map.osd(id).filter(|o| o.state & osd_state::EXISTS != 0) {
            self.new_state.insert(id, slot.state);
            self.new_weight.insert(id, WEIGHT_OUT);
        }
    }

    /// Adds a replicated pool with the next free id. The caller has checked name, rule and numbers.
    pub fn create_pool(&mut self, map: &OsdMap, new: &NewPool) -> PoolId {
        let id = self.new_pool_max.unwrap_or(map.pool_max) + 1;
        let or = |v: u32, default: u32| if v == 0 { default } else { v };
        let base = PgPool::default();
        let pg_num = or(new.pg_num, base.pg_num);
        let pgp_num = or(new.pgp_num, pg_num).min(pg_num);
        let size = if new.size == 0 { base.size } else { new.size };
        let min_size = match new.min_size {
            0 => PgPool::default_min_size(size),
            n => n,
        };
        let mut pool = PgPool {
            kind: POOL_TYPE_REPLICATED,
            size,
            min_size,
            crush_rule: new.crush_rule,
            flags: pool_flag::HASHPSPOOL,
            pg_num,
            pgp_num,
            pg_num_target: pg_num,
            pgp_num_target: pgp_num,
            pg_num_pending: pg_num,
            last_change: self.epoch,
            create_time: self.modified,
            ..base
        };
        if !new.application.is_empty() {
            pool.application_metadata
                .insert(new.application.clone(), BTreeMap::new());
        }
        self.new_pool_max = Some(id);
        self.new_pools.insert(i64::from(id), pool);
        self.new_pool_names.insert(i64::from(id), new.name.clone());
        i64::from(id)
    }

    /// Removes a pool and every override that names it.
    pub fn delete_pool(&mut self, map: &OsdMap, id: PoolId) {
        self.old_pools.insert(id);
        self.new_pools.remove(&id);
        self.new_pool_names.remove(&id);
        let of = |pg: &&PgId| pg.pool == id;
        for pg in map.pg_temp.keys().filter(of) {
            self.new_pg_temp.insert(*pg, Vec::new());
        }
        for pg in map.primary_temp.keys().filter(of) {
            self.new_primary_temp.insert(*pg, -1);
        }
        self.old_pg_upmap.extend(map.pg_upmap.keys().filter(of));
        self.old_pg_upmap_items
            .extend(map.pg_upmap_items.keys().filter(of));
        self.old_pg_upmap_primary
            .extend(map.pg_upmap_primaries.keys().filter(of));
        if let Some(queue) = map.removed_snaps_queue.get(&id) {
            self.new_purged_snaps.insert(id, queue.clone());
        }
    }

    /// The CRUSH map as it is after this incremental so far, to be changed.
    pub fn crush_mut(&mut self, map: &OsdMap) -> &mut CrushMap {
        Arc::make_mut(self.crush.get_or_insert_with(|| Arc::clone(&map.crush)))
    }

    /// Flags as they are after this incremental so far, with `set` added and `clear` taken away.
    pub fn change_flags(&mut self, map: &OsdMap, set: u32, clear: u32) {
        let now = self.new_flags.unwrap_or(map.flags);
        self.new_flags = Some((now | set) & !clear);
    }
}
