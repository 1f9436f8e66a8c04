//! Applying an incremental (docs/protocol/ceph/03-placement.md, 1.3): all of it or, on an error, nothing.
//!
//! The order of the steps is part of the protocol, since later ones see what earlier ones did.

use super::*;
use denc::Decode;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("incremental is for epoch {got}, the map is at {have}")]
    Epoch { got: Epoch, have: Epoch },
    #[error("incremental of another cluster: {got}, the map is of {have}")]
    Fsid { got: Uuid, have: Uuid },
    #[error("osd.{0} is beyond the map")]
    NoSuchOsd(OsdId),
    #[error("pool {0} does not exist")]
    NoSuchPool(PoolId),
    #[error("osd.{0} boots without its heartbeat addresses")]
    NoHeartbeatAddrs(OsdId),
    #[error("pools and pool names would differ")]
    PoolNames,
    #[error("too many OSDs: {0}")]
    TooManyOsds(i32),
    #[error("full map inside the incremental: {0}")]
    FullMap(#[from] denc::Error),
}

type Result<T> = std::result::Result<T, ApplyError>;

impl OsdMap {
    /// Moves to the next epoch. On an error the map is as it was.
    pub fn apply(&mut self, inc: &Incremental) -> Result<()> {
        if inc.epoch != self.epoch.wrapping_add(1) {
            return Err(ApplyError::Epoch {
                got: inc.epoch,
                have: self.epoch,
            });
        }
        if self.epoch > 0 && inc.fsid != self.fsid {
            return Err(ApplyError::Fsid {
                got: inc.fsid,
                have: self.fsid,
            });
        }
        if let Some(full) = &inc.fullmap {
            // The whole map stands for itself: nothing else of the incremental counts.
            let next = OsdMap::from_bytes(full)?;
            if next.epoch != inc.epoch {
                return Err(ApplyError::Epoch {
                    got: next.epoch,
                    have: self.epoch,
                });
            }
            *self = next;
            return Ok(());
        }
        let mut next = self.clone();
        next.fsid = inc.fsid;
        next.epoch = inc.epoch;
        next.modified = inc.modified;
        next.apply_pools(inc)?;
        next.apply_osds(inc)?;
        next.apply_overrides(inc);
        next.apply_settings(inc);
        *self = next;
        Ok(())
    }

    fn slot_mut(&mut self, id: OsdId) -> Result<&mut OsdSlot> {
        usize::try_from(id)
            .ok()
            .and_then(|i| self.osds.get_mut(i))
            .ok_or(ApplyError::NoSuchOsd(id))
    }

    fn apply_pools(&mut self, inc: &Incremental) -> Result<()> {
        if let Some(flags) = inc.new_flags {
            self.flags = flags;
        }
        if let Some(n) = inc.new_max_osd {
            if n < 0 || n as usize > MAX_OSD_LIMIT {
                return Err(ApplyError::TooManyOsds(n));
            }
            self.set_max_osd(n as usize);
        }
        if let Some(n) = inc.new_pool_max {
            self.pool_max = n;
        }
        for (id, pool) in &inc.new_pools {
            let mut pool = pool.clone();
            pool.last_change = inc.epoch;
            self.pools.insert(*id, pool);
        }
        self.apply_snaps(inc)?;
        if !inc.new_last_up_change.is_zero() {
            self.last_up_change = inc.new_last_up_change;
        }
        if !inc.new_last_in_change.is_zero() {
            self.last_in_change = inc.new_last_in_change;
        }
        for (id, name) in &inc.new_pool_names {
            self.pool_names.insert(*id, name.clone());
        }
        for id in &inc.old_pools {
            self.pools.remove(id);
            self.pool_names.remove(id);
        }
        if !self.pools.keys().eq(self.pool_names.keys()) {
            return Err(ApplyError::PoolNames);
        }
        Ok(())
    }

    fn apply_snaps(&mut self, inc: &Incremental) -> Result<()> {
        self.new_removed_snaps.clone_from(&inc.new_removed_snaps);
        self.new_purged_snaps.clone_from(&inc.new_purged_snaps);
        for (pool, snaps) in &inc.new_removed_snaps {
            self.removed_snaps_queue.entry(*pool).or_default().union(snaps);
        }
        for (pool, snaps) in &inc.new_purged_snaps {
            let queue = self
                .removed_snaps_queue
                .get_mut(pool)
                .ok_or(ApplyError::NoSuchPool(*pool))?;
            queue.subtract(snaps);
            if queue.is_empty() {
                self.removed_snaps_queue.remove(pool);
            }
        }
        Ok(())
    }

    fn apply_osds(&mut self, inc: &Incremental) -> Result<()> {
        for (id, weight) in &inc.new_weight {
            let slot = self.slot_mut(*id)?;
            if *weight != WEIGHT_OUT {
                slot.state |= osd_state::EXISTS;
                slot.state &= !(osd_state::AUTOOUT | osd_state::NEW);
                slot.xinfo.old_weight = 0;
            }
            self.osd_weight[*id as usize] = *weight;
        }
        for (id, affinity) in &inc.new_primary_affinity {
            self.slot_mut(*id)?;
            if self.primary_affinity.is_empty() {
                self.primary_affinity = vec![AFFINITY_DEFAULT; self.osds.len()];
            }
            self.primary_affinity[*id as usize] = *affinity;
        }
        for name in &inc.old_erasure_code_profiles {
            self.erasure_code_profiles.remove(name);
        }
        for (name, profile) in &inc.new_erasure_code_profiles {
            self.erasure_code_profiles.insert(name.clone(), profile.clone());
        }
        for (id, mask) in &inc.new_state {
            self.apply_state(*id, *mask, inc)?;
        }
        for (id, addrs) in &inc.new_up_client {
            self.apply_boot(*id, addrs, inc)?;
        }
        for (id, addrs) in &inc.new_up_cluster {
            self.slot_mut(*id)?.cluster_addrs = addrs.clone();
        }
        self.apply_infos(inc)
    }

    fn apply_state(&mut self, id: OsdId, mask: u32, inc: &Incremental) -> Result<()> {
        let mask = if mask == 0 { osd_state::UP } else { mask };
        let slot = self.slot_mut(id)?;
        if slot.state & mask & osd_state::UP != 0 {
            slot.info.down_at = inc.epoch;
            slot.xinfo.down_stamp = inc.modified;
        }
        if slot.state & mask & osd_state::EXISTS != 0 {
            *slot = OsdSlot::default();
            if let Some(a) = self.primary_affinity.get_mut(id as usize) {
                *a = AFFINITY_DEFAULT;
            }
        } else {
            slot.state ^= mask;
        }
        Ok(())
    }

    fn apply_boot(&mut self, id: OsdId, addrs: &EntityAddrVec, inc: &Incremental) -> Result<()> {
        let (Some(back), Some(front)) = (inc.new_hb_back_up.get(&id), inc.new_hb_front_up.get(&id)) else {
            return Err(ApplyError::NoHeartbeatAddrs(id));
        };
        let slot = self.slot_mut(id)?;
        slot.state |= osd_state::EXISTS | osd_state::UP;
        slot.state &= !osd_state::STOP;
        slot.client_addrs = addrs.clone();
        slot.hb_back_addrs = back.clone();
        slot.hb_front_addrs = front.clone();
        slot.info.up_from = inc.epoch;
        Ok(())
    }

    fn apply_infos(&mut self, inc: &Incremental) -> Result<()> {
        for (id, epoch) in &inc.new_up_thru {
            self.slot_mut(*id)?.info.up_thru = *epoch;
        }
        for (id, (begin, end)) in &inc.new_last_clean_interval {
            let info = &mut self.slot_mut(*id)?.info;
            (info.last_clean_begin, info.last_clean_end) = (*begin, *end);
        }
        for (id, epoch) in &inc.new_lost {
            self.slot_mut(*id)?.info.lost_at = *epoch;
        }
        for (id, xinfo) in &inc.new_xinfo {
            self.slot_mut(*id)?.xinfo = *xinfo;
        }
        for (id, uuid) in &inc.new_uuid {
            self.slot_mut(*id)?.uuid = *uuid;
        }
        Ok(())
    }

    fn apply_overrides(&mut self, inc: &Incremental) {
        for (pg, osds) in &inc.new_pg_temp {
            if osds.is_empty() {
                self.pg_temp.remove(pg);
            } else {
                self.pg_temp.insert(*pg, osds.clone());
            }
        }
        for (pg, osd) in &inc.new_primary_temp {
            if *osd == -1 {
                self.primary_temp.remove(pg);
            } else {
                self.primary_temp.insert(*pg, *osd);
            }
        }
        replace(&mut self.pg_upmap, &inc.new_pg_upmap, &inc.old_pg_upmap);
        replace(
            &mut self.pg_upmap_items,
            &inc.new_pg_upmap_items,
            &inc.old_pg_upmap_items,
        );
        replace(
            &mut self.pg_upmap_primaries,
            &inc.new_pg_upmap_primary,
            &inc.old_pg_upmap_primary,
        );
        edit_blocklist(&mut self.blocklist, &inc.new_blocklist, &inc.old_blocklist);
        edit_blocklist(
            &mut self.range_blocklist,
            &inc.new_range_blocklist,
            &inc.old_range_blocklist,
        );
        edit_flags(&mut self.crush_node_flags, &inc.new_crush_node_flags);
        edit_flags(&mut self.device_class_flags, &inc.new_device_class_flags);
    }

    fn apply_settings(&mut self, inc: &Incremental) {
        if !inc.cluster_snapshot.is_empty() {
            self.cluster_snapshot.clone_from(&inc.cluster_snapshot);
            self.cluster_snapshot_epoch = inc.epoch;
        } else {
            self.cluster_snapshot.clear();
            self.cluster_snapshot_epoch = 0;
        }
        set(&mut self.nearfull_ratio, inc.new_nearfull_ratio);
        set(&mut self.full_ratio, inc.new_full_ratio);
        set(&mut self.backfillfull_ratio, inc.new_backfillfull_ratio);
        set(
            &mut self.require_min_compat_client,
            inc.new_require_min_compat_client,
        );
        if let Some(release) = inc.new_require_osd_release {
            self.require_osd_release = release;
            self.imply_flags();
        }
        if let Some(crush) = &inc.crush {
            self.crush = Arc::clone(crush);
            self.crush_version = self.crush_version.wrapping_add(1);
            let classes = &self.crush.class_names;
            self.device_class_flags
                .retain(|class, _| classes.contains_key(class));
        }
        if let Some(s) = inc.stretch {
            self.stretch = StretchMode {
                enabled: s.enabled,
                bucket_count: s.bucket_count,
                degraded: s.degraded,
                recovering: s.recovering,
                bucket: s.bucket,
            };
        }
        match inc.mutate_allow_crimson {
            1 => self.allow_crimson = true,
            2 => self.allow_crimson = false,
            _ => {}
        }
    }
}

fn set<T: Copy>(field: &mut T, value: Option<T>) {
    if let Some(v) = value {
        *field = v;
    }
}

fn replace<T: Clone>(
    map: &mut BTreeMap<PgId, T>,
    new: &BTreeMap<PgId, T>,
    old: &std::collections::BTreeSet<PgId>,
) {
    map.extend(new.iter().map(|(k, v)| (*k, v.clone())));
    old.iter().for_each(|pg| {
        map.remove(pg);
    });
}

/// An entry that is there keeps its time: new ones only add.
fn edit_blocklist(list: &mut Blocklist, new: &Blocklist, old: &[EntityAddr]) {
    for (addr, until) in new {
        list.entry(*addr).or_insert(*until);
    }
    old.iter().for_each(|addr| {
        list.remove(addr);
    });
}

fn edit_flags(map: &mut BTreeMap<i32, u32>, new: &BTreeMap<i32, u32>) {
    for (id, flags) in new {
        if *flags == 0 {
            map.remove(id);
        } else {
            map.insert(*id, *flags);
        }
    }
}
