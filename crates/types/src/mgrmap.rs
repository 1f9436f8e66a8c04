//! The manager map: where the active manager is (docs/protocol/ceph/02-monitor.md, 9.1). Clients dial it as soon as
//! `available` is set, and send manager commands there.

use crate::{EntityAddrVec, Epoch, Utime, release};
use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::{BTreeMap, BTreeSet};

const VERSION: u8 = 11;
const COMPAT: u8 = 6;

/// An option of a manager module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleOption {
    pub name: String,
    pub kind: u8,
    pub level: u8,
    pub flags: u32,
    pub default_value: String,
    pub min: String,
    pub max: String,
    pub enum_allowed: BTreeSet<String>,
    pub desc: String,
    pub long_desc: String,
    pub tags: BTreeSet<String>,
    pub see_also: BTreeSet<String>,
}
denc::envelope_denc!(ModuleOption, 1, 1, {
    name,
    kind,
    level,
    flags,
    default_value,
    min,
    max,
    enum_allowed,
    desc,
    long_desc,
    tags,
    see_also,
});

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleInfo {
    pub name: String,
    pub can_run: bool,
    pub error_string: String,
    pub options: BTreeMap<String, ModuleOption>,
}

impl Encode for ModuleInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.string(&self.name);
            w.bool(self.can_run);
            w.string(&self.error_string);
            w.put(&self.options);
        });
    }
}

impl Decode for ModuleInfo {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |v, r| {
            Ok(Self {
                name: r.string()?,
                can_run: r.bool()?,
                error_string: r.string()?,
                options: if v >= 2 { r.get()? } else { BTreeMap::new() },
            })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standby {
    pub gid: u64,
    pub name: String,
    pub old_modules: BTreeSet<String>,
    pub available_modules: Vec<ModuleInfo>,
    pub mgr_features: u64,
}

impl Encode for Standby {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.u64(self.gid);
            w.string(&self.name);
            w.put(&self.old_modules);
            w.put(&self.available_modules);
            w.u64(self.mgr_features);
        });
    }
}

impl Decode for Standby {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(4, |v, r| {
            Ok(Self {
                gid: r.u64()?,
                name: r.string()?,
                old_modules: if v >= 2 { r.get()? } else { BTreeSet::new() },
                available_modules: if v >= 3 { r.get()? } else { Vec::new() },
                mgr_features: if v >= 4 { r.u64()? } else { 0 },
            })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MgrMap {
    pub epoch: Epoch,
    pub active_addrs: EntityAddrVec,
    pub active_gid: u64,
    pub available: bool,
    pub active_name: String,
    pub standbys: BTreeMap<u64, Standby>,
    /// Modules that are enabled.
    pub modules: BTreeSet<String>,
    /// Name -> URL.
    pub services: BTreeMap<String, String>,
    pub available_modules: Vec<ModuleInfo>,
    pub active_change: Utime,
    pub always_on_modules: BTreeMap<u32, BTreeSet<String>>,
    /// Without the octopus server bit here, clients send manager commands in another message.
    pub active_mgr_features: u64,
    pub last_failure_osd_epoch: Epoch,
    pub clients: Vec<EntityAddrVec>,
}

impl MgrMap {
    /// A map with an active manager and nothing else.
    pub fn active(epoch: Epoch, name: &str, gid: u64, addrs: EntityAddrVec, since: Utime) -> Self {
        Self {
            epoch,
            active_addrs: addrs,
            active_gid: gid,
            available: true,
            active_name: name.to_string(),
            active_change: since,
            active_mgr_features: release::feature::ALL_PACIFIC,
            ..Self::default()
        }
    }
}

impl Encode for MgrMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(VERSION, COMPAT, |w| {
            w.u32(self.epoch);
            w.put(&self.active_addrs);
            w.u64(self.active_gid);
            w.bool(self.available);
            w.string(&self.active_name);
            w.put(&self.standbys);
            w.put(&self.modules);
            w.put(&self.services);
            w.put(&self.available_modules);
            w.put(&self.active_change);
            w.put(&self.always_on_modules);
            w.u64(self.active_mgr_features);
            w.u32(self.last_failure_osd_epoch);
            w.put(&self.clients);
        });
    }
}

impl Decode for MgrMap {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(VERSION, |v, r| {
            if v < COMPAT {
                return Err(r.invalid("manager map older than Ceph 14"));
            }
            Ok(Self {
                epoch: r.u32()?,
                active_addrs: r.get()?,
                active_gid: r.u64()?,
                available: r.bool()?,
                active_name: r.string()?,
                standbys: r.get()?,
                modules: r.get()?,
                services: r.get()?,
                available_modules: r.get()?,
                active_change: r.get()?,
                always_on_modules: if v >= 7 { r.get()? } else { BTreeMap::new() },
                active_mgr_features: if v >= 8 { r.u64()? } else { 0 },
                last_failure_osd_epoch: if v >= 9 { r.u32()? } else { 0 },
                clients: if v >= 11 { r.get()? } else { Vec::new() },
            })
        })
    }
}
