//! A snapshot of the cluster's state, and how changes alter it.
//!
//! Invariants: a snapshot never changes; the next one shares what did not change. `apply` is a pure function
//! of snapshot, changes and time that gives the next snapshot together with the operations that make the
//! store say the same; loading from the store gives that snapshot again ([`crate::load`]).

use crate::changes::{Change, Changes};
use crate::config::{CONFIG_LOG_MAX, ConfigDb, ConfigLogEntry, Setting};
use crate::facts;
use crate::fences::{self, Fences};
use crate::files::MdsDaemons;
use crate::format::{Feature, Format};
use crate::history::MapHistory;
use crate::keys;
use crate::pgs::{PgConfigs, PgMerge, PgProposal};
use crate::rows::Write;
use crate::scrubs::ScrubWish;
use crate::snap_owners::SnapOwners;
use crate::{Error, Result};
use auth::KeyDb;
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use types::clusterlog::{LogEntry, LogLevel};
use types::fsmap::{Filesystem, FsMap, mds_flag};
use types::mgrmap::MgrMap;
use types::monmap::MonMap;
use types::osdmap::{Incremental, OsdMap};
use types::pool::PgPool;
use types::{AuthName, EntityKind, EntityName, Epoch, OsdId, PgId, Utime, Uuid};

/// The name of the log's channel that only monitors write to.
pub const AUDIT_CHANNEL: &str = "audit";
/// Cluster log entries that are kept, of each channel.
pub const LOG_MAX: usize = 500;
/// Bytes of one cluster log message; longer ones are cut.
pub const LOG_MESSAGE_MAX: usize = 8192;

/// A health warning that the operator does not want to see for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthMute {
    pub code: String,
    /// None: for ever.
    pub until: Option<Utime>,
    pub sticky: bool,
    pub summary: String,
    pub count: i64,
}
denc::envelope_denc!(HealthMute, 1, 1, { code, until, sticky, summary, count });

#[derive(Debug, Clone)]
pub struct ClusterState {
    /// Store revision of the key `version` in this snapshot: what a commit compares.
    pub revision: u64,
    /// Counts commits.
    pub version: u64,
    /// None: the state is from before this was written; the next commit does.
    pub format: Option<Format>,
    pub fsid: Uuid,
    pub created: Utime,
    pub monmap: Arc<MonMap>,
    pub mgrmap: Arc<MgrMap>,
    pub fsmap: Arc<FsMap>,
    /// Metadata servers, beyond what the map of file systems says of them.
    pub mds: Arc<MdsDaemons>,
    pub osdmap: Arc<OsdMap>,
    pub history: Arc<MapHistory>,
    pub config: Arc<ConfigDb>,
    pub config_keys: Arc<BTreeMap<String, Bytes>>,
    pub auth: Arc<KeyDb>,
    pub rotating: Arc<auth::ServiceSecrets>,
    pub mutes: Arc<BTreeMap<String, HealthMute>>,
    /// Where every PG's data is.
    pub pgs: Arc<PgConfigs>,
    /// OSDs that an operator wants down, and since when they are up.
    pub asked_down: Arc<BTreeMap<OsdId, Epoch>>,
    pub osd_metadata: Arc<BTreeMap<OsdId, BTreeMap<String, String>>>,
    /// Scrubs that operators asked for and that were not done yet.
    pub scrubs: Arc<BTreeMap<PgId, ScrubWish>>,
    /// Client instances that entries of the blocklist have fenced.
    pub fences: Arc<Fences>,
    pub log: Arc<ClusterLog>,
    /// The channel `audit`: who asked for what that changes something or shows a secret.
    pub audit: Arc<ClusterLog>,
    pub snap_owners: Arc<SnapOwners>,
    pub global_id_limit: u64,
}

/// The newest entries of the cluster log.
#[derive(Debug, Clone, Default)]
pub struct ClusterLog {
    /// Number of the newest entry; entries are numbered without gaps.
    pub version: u64,
    /// Oldest first; the last one has number `version`.
    pub entries: VecDeque<LogEntry>,
}

impl ClusterLog {
    /// `key`: of an entry by its number.
    fn append(&mut self, mut entry: LogEntry, key: fn(u64) -> String, ops: &mut Vec<Write>) {
        if entry.message.len() > LOG_MESSAGE_MAX {
            let mut at = LOG_MESSAGE_MAX;
            while !entry.message.is_char_boundary(at) {
                at -= 1;
            }
            entry.message.truncate(at);
        }
        self.version += 1;
        ops.push(Write::put(key(self.version), entry.to_bytes()));
        self.entries.push_back(entry);
        if self.entries.len() > LOG_MAX {
            ops.push(Write::delete(key(self.version - self.entries.len() as u64 + 1)));
            self.entries.pop_front();
        }
    }

    /// Entries with a number above `after`, with their numbers.
    pub fn since(&self, after: u64) -> impl Iterator<Item = (u64, &LogEntry)> {
        let first = self.version + 1 - self.entries.len() as u64;
        self.entries
            .iter()
            .enumerate()
            .map(move |(i, e)| (first + i as u64, e))
            .filter(move |(n, _)| *n > after)
    }
}

impl ClusterState {
    /// True if the OSD with this identity was removed for good.
    pub fn is_retired(&self, uuid: Uuid) -> bool {
        self.config_keys.contains_key(&keys::retired(uuid))
    }

    /// What is said of the OSDs that were removed for good; the first word is `osd.N`.
    pub fn retired(&self) -> impl Iterator<Item = &Bytes> {
        let from = self.config_keys.range(keys::RETIRED.to_string()..);
        from.take_while(|(key, _)| key.starts_with(keys::RETIRED))
            .map(|(_, said)| said)
    }

    /// True if an operator wants this OSD down as it is up now.
    pub fn is_asked_down(&self, osd: OsdId) -> bool {
        let up_from = self.osdmap.osd(osd).map(|o| o.info.up_from);
        self.osdmap.is_up(osd) && self.asked_down.get(&osd).copied() == up_from
    }

    pub fn is_fenced_id(&self, global_id: u64) -> bool {
        self.fences
            .values()
            .any(|f| f.ids.binary_search(&global_id).is_ok())
    }

    pub fn fenced_ids(&self) -> impl Iterator<Item = u64> {
        self.fences.values().flat_map(|f| f.ids.iter().copied())
    }

    /// The host that an OSD said it is on.
    pub fn osd_host(&self, osd: OsdId) -> Option<&str> {
        self.osd_metadata.get(&osd)?.get("hostname").map(String::as_str)
    }

    /// What masks of the configuration (`host:a`, `class:ssd`) compare with: host and device class of an OSD. Where other
    /// entities are is not known here.
    fn place_of(&self, who: &AuthName) -> (&str, &str) {
        let osd = (who.kind == EntityKind::Osd)
            .then(|| who.id.parse().ok())
            .flatten();
        let place = |id: OsdId| {
            let class = self.osdmap.crush.class_name_of(id);
            (self.osd_host(id).unwrap_or(""), class.unwrap_or(""))
        };
        osd.map_or(("", ""), place)
    }

    /// The central options as they hold for `who`, where it is.
    pub fn options_of(&self, who: &AuthName) -> BTreeMap<&str, Setting<'_>> {
        let (host, class) = self.place_of(who);
        self.config.in_force(who, host, class)
    }

    /// One of them, if somebody set it.
    pub fn option(&self, who: &AuthName, name: &str) -> Option<&str> {
        let (host, class) = self.place_of(who);
        self.config.value(who, host, class, name)
    }

    /// An entry of the cluster log in the name of the first monitor.
    pub fn log_entry(&self, now: Utime, level: LogLevel, message: String) -> LogEntry {
        let mon = self.monmap.by_rank().next();
        LogEntry {
            name: AuthName::new(EntityKind::Mon, mon.map_or("", |m| m.name.as_str())),
            rank: EntityName::new(EntityKind::Mon, 0),
            addrs: mon.map(|m| m.addrs.clone()).unwrap_or_default(),
            stamp: now,
            seq: self.log.version + 1,
            level,
            message,
            channel: "cluster".to_string(),
        }
    }

    /// The OSDs that do not say that they serve pools of shards; those that are down as they said last.
    pub fn without_shards(&self) -> impl Iterator<Item = OsdId> {
        let serves = |id: &OsdId| self.osd_metadata.get(id).is_some_and(facts::serves_shards);
        self.osdmap.osd_ids().filter(move |id| !serves(id))
    }

    /// An option of the monitors themselves (`global`, `mon`).
    pub fn mon_option(&self, name: &str) -> Option<&str> {
        self.config
            .get("mon", name)
            .or_else(|| self.config.get("global", name))
    }

    /// An option of the manager (`global`, `mgr`).
    pub fn mgr_option(&self, name: &str) -> Option<&str> {
        let own = self.config.get("mgr", name);
        own.or_else(|| self.config.get("global", name))
    }

    pub fn mon_option_bool(&self, name: &str, default: bool) -> bool {
        match self.mon_option(name) {
            Some("true" | "1" | "yes" | "on") => true,
            Some("false" | "0" | "no" | "off") => false,
            _ => default,
        }
    }

    pub fn mon_option_u64(&self, name: &str, default: u64) -> u64 {
        self.mon_option(name)
            .and_then(|v| v.parse().ok())
            .unwrap_or(default)
    }

    /// The next snapshot (its `revision` still this one's), and what to write.
    pub fn apply(&self, changes: Changes, now: Utime) -> Result<(ClusterState, Vec<Write>)> {
        let mut next = self.clone();
        next.version += 1;
        let mut ops = vec![Write::put(keys::VERSION, next.version.to_bytes())];
        if next.format.is_none() {
            ops.push(Write::put(keys::FORMAT, Format::CURRENT.to_bytes()));
            next.format = Some(Format::CURRENT);
        }
        if !changes.merges.is_empty() {
            next.note_feature(Feature::Merges, &mut ops);
        }
        let inc = changes.osdmap.map(|inc| *inc);
        let inc =
            inc.or_else(|| (!changes.pgs.is_empty()).then(|| Incremental::next_after(&self.osdmap, now)));
        if let Some(inc) = inc {
            for pool in inc
                .old_pools
                .iter()
                .filter(|pool| self.snap_owners.has_pool(**pool))
            {
                Arc::make_mut(&mut next.snap_owners).pool_gone(*pool, &mut ops);
            }
            next.apply_map(inc, (&changes.pgs, &changes.merges), now, &mut ops)?;
            // Whichever way it came: as a pool, or in a whole map.
            if next.osdmap.pools.values().any(PgPool::is_erasure) {
                next.note_feature(Feature::Shards, &mut ops);
            }
        }
        let mut diff = Vec::new();
        for change in changes.list {
            next.apply_one(change, &mut ops, &mut diff);
        }
        if !diff.is_empty() {
            next.log_config(diff, now, &mut ops);
        }
        next.note_followers(&mut ops);
        // Config changes that name a key twice leave the last one.
        let mut seen = std::collections::BTreeSet::new();
        let mut kept: Vec<Write> = Vec::with_capacity(ops.len());
        for op in ops.into_iter().rev() {
            if seen.insert(op.key().to_string()) {
                kept.push(op);
            }
        }
        kept.reverse();
        Ok((next, kept))
    }

    /// From now on only programs that know of it read this state.
    fn note_feature(&mut self, feature: Feature, ops: &mut Vec<Write>) {
        self.note_format(self.format.unwrap_or(Format::CURRENT).with(feature), ops);
    }

    fn note_format(&mut self, format: Format, ops: &mut Vec<Write>) {
        if self.format != Some(format) {
            ops.push(Write::put(keys::FORMAT, format.to_bytes()));
            self.format = Some(format);
        }
    }

    /// Followers are there only where a file system allows them, and go with the change that takes that back.
    fn note_followers(&mut self, ops: &mut Vec<Write>) {
        let allows = |fs: &Filesystem| fs.mds_map.flags & mds_flag::ALLOW_STANDBY_REPLAY != 0;
        let now = self.format.unwrap_or(Format::CURRENT);
        let format = match self.fsmap.filesystems.iter().any(allows) {
            true => now.with(Feature::Followers),
            false => now.without(Feature::Followers),
        };
        self.note_format(format, ops);
    }

    fn apply_map(
        &mut self,
        mut inc: Incremental,
        proposals: (&[PgProposal], &[PgMerge]),
        now: Utime,
        ops: &mut Vec<Write>,
    ) -> Result<()> {
        let bad = |why: String| Error::BadValue {
            key: keys::OSDMAP_INC.into(),
            why,
        };
        inc.fsid = self.fsid;
        inc.epoch = self.osdmap.epoch + 1;
        if inc.modified.is_zero() {
            inc.modified = now;
        }
        let mut map = (*self.osdmap).clone();
        map.apply(&inc).map_err(|e| bad(e.to_string()))?;
        if Arc::make_mut(&mut self.pgs).settle(&self.osdmap, &map, &mut inc, proposals, ops) {
            map = (*self.osdmap).clone();
            map.apply(&inc).map_err(|e| bad(e.to_string()))?;
        }
        let (full, crc) = map.encode_for(u64::MAX);
        inc.full_crc = crc;
        let raw = inc.to_bytes();
        let epoch = inc.epoch;
        ops.push(Write::put(keys::inc(epoch), raw.clone()));
        let step = Arc::make_mut(&mut self.history).push(epoch, raw, full.clone());
        if step.store_full {
            ops.push(Write::put(keys::full(epoch), full));
        }
        ops.extend(step.drop_incs.iter().map(|e| Write::delete(keys::inc(*e))));
        ops.extend(step.drop_fulls.iter().map(|e| Write::delete(keys::full(*e))));
        fences::settle(&mut self.fences, &map, ops);
        self.osdmap = Arc::new(map);
        Ok(())
    }

    fn apply_one(&mut self, change: Change, ops: &mut Vec<Write>, diff: &mut Vec<crate::config::ConfigDiff>) {
        match change {
            Change::ConfigSet { who, name, value } => {
                ops.push(Write::put(keys::config(&who, &name), value.clone().into_bytes()));
                diff.push(Arc::make_mut(&mut self.config).put(&who, &name, Some(&value)));
            }
            Change::ConfigRm { who, name } => {
                ops.push(Write::delete(keys::config(&who, &name)));
                diff.push(Arc::make_mut(&mut self.config).put(&who, &name, None));
            }
            Change::ConfigKeySet { key, value } => {
                ops.push(Write::put(format!("{}{key}", keys::CONFIG_KEY), value.clone()));
                Arc::make_mut(&mut self.config_keys).insert(key, value);
            }
            Change::ConfigKeyRm { key } => {
                ops.push(Write::delete(format!("{}{key}", keys::CONFIG_KEY)));
                Arc::make_mut(&mut self.config_keys).remove(&key);
            }
            Change::AuthPut { name, mut entity } => {
                // The number of this commit, which never comes again, unless what is open under the entity's keys goes on.
                let kept = self.auth.get(&name).filter(|e| e.goes_on_as(&entity));
                entity.epoch = kept.map_or(self.version, |e| e.epoch);
                ops.push(Write::put(format!("{}{name}", keys::AUTH), entity.to_bytes()));
                Arc::make_mut(&mut self.auth).entities.insert(name, entity);
            }
            Change::AuthRm { name } => {
                ops.push(Write::delete(format!("{}{name}", keys::AUTH)));
                Arc::make_mut(&mut self.auth).entities.remove(&name);
            }
            Change::Rotating(keys_state) => {
                ops.push(Write::put(keys::ROTATING, keys_state.to_bytes()));
                self.rotating = Arc::new(*keys_state);
            }
            Change::MonMap(mut map) => {
                map.epoch = self.monmap.epoch + 1;
                ops.push(Write::put(keys::MONMAP, map.to_bytes()));
                self.monmap = Arc::new(*map);
            }
            Change::MgrMap(mut map) => {
                map.epoch = self.mgrmap.epoch + 1;
                ops.push(Write::put(keys::MGRMAP, map.to_bytes()));
                self.mgrmap = Arc::new(*map);
            }
            Change::FsMap(mut map) => {
                map.epoch = self.fsmap.epoch + 1;
                for fs in &mut map.filesystems {
                    if self.fsmap.by_id(fs.fscid) != Some(&*fs) {
                        fs.mds_map.epoch = map.epoch;
                    }
                }
                ops.push(Write::put(keys::FSMAP, map.to_bytes()));
                self.fsmap = Arc::new(*map);
            }
            Change::MdsDaemon { gid, daemon } => {
                let key = format!("{}{gid}", keys::MDS);
                let all = Arc::make_mut(&mut self.mds);
                match daemon {
                    Some(daemon) => {
                        ops.push(Write::put(key, daemon.to_bytes()));
                        all.insert(gid, daemon);
                    }
                    None => {
                        ops.push(Write::delete(key));
                        all.remove(&gid);
                    }
                }
            }
            Change::Mute(mute) => {
                ops.push(Write::put(
                    format!("{}{}", keys::MUTE, mute.code),
                    mute.to_bytes(),
                ));
                Arc::make_mut(&mut self.mutes).insert(mute.code.clone(), mute);
            }
            Change::Unmute { code } => {
                ops.push(Write::delete(format!("{}{code}", keys::MUTE)));
                Arc::make_mut(&mut self.mutes).remove(&code);
            }
            Change::AskDown { id, up_from } => {
                let key = format!("{}{id}", keys::ASKED_DOWN);
                let all = Arc::make_mut(&mut self.asked_down);
                match up_from {
                    Some(epoch) => {
                        ops.push(Write::put(key, epoch.to_bytes()));
                        all.insert(id, epoch);
                    }
                    None => {
                        ops.push(Write::delete(key));
                        all.remove(&id);
                    }
                }
            }
            Change::OsdMetadata { id, metadata } => {
                let key = format!("{}{id}", keys::OSD_METADATA);
                let all = Arc::make_mut(&mut self.osd_metadata);
                if metadata.is_empty() {
                    ops.push(Write::delete(key));
                    all.remove(&id);
                } else {
                    ops.push(Write::put(key, metadata.to_bytes()));
                    all.insert(id, metadata);
                }
            }
            Change::Scrubs { pool, wishes } => {
                let all = Arc::make_mut(&mut self.scrubs);
                for (seed, wish) in wishes {
                    match wish {
                        Some(wish) => drop(all.insert(PgId::new(pool, seed), wish)),
                        None => drop(all.remove(&PgId::new(pool, seed))),
                    }
                }
                ops.push(crate::scrubs::row_of(all, pool));
            }
            Change::Log(entry) => Arc::make_mut(&mut self.log).append(entry, keys::log, ops),
            Change::Audit(mut entry) => {
                entry.channel = AUDIT_CHANNEL.into();
                Arc::make_mut(&mut self.audit).append(entry, keys::audit, ops);
            }
            Change::SnapMade { pool, snap, owner } => {
                Arc::make_mut(&mut self.snap_owners).made(pool, snap, owner, ops);
            }
            Change::SnapRemoved { pool, snap } => {
                Arc::make_mut(&mut self.snap_owners).removed(pool, snap, ops);
            }
            Change::Fence { entry, ids } => {
                ops.extend(fences::add(Arc::make_mut(&mut self.fences), entry, &ids))
            }
            Change::GlobalIdLimit(limit) => {
                ops.push(Write::put(keys::GLOBAL_ID_LIMIT, limit.to_bytes()));
                self.global_id_limit = limit;
            }
        }
    }

    fn log_config(&mut self, diff: Vec<crate::config::ConfigDiff>, now: Utime, ops: &mut Vec<Write>) {
        let config = Arc::make_mut(&mut self.config);
        config.version += 1;
        let entry = ConfigLogEntry {
            version: config.version,
            stamp: now,
            diff,
        };
        ops.push(Write::put(keys::config_log(entry.version), entry.to_bytes()));
        config.log.push_back(entry);
        while config.log.len() > CONFIG_LOG_MAX
            && let Some(old) = config.log.pop_front()
        {
            ops.push(Write::delete(keys::config_log(old.version)));
        }
    }
}

/// The value of the key `cluster`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterId {
    pub fsid: Uuid,
    pub created: Utime,
}

impl Encode for ClusterId {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.fsid);
            w.put(&self.created);
        });
    }
}
impl Decode for ClusterId {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(1, |_, r| {
            Ok(Self {
                fsid: r.get()?,
                created: r.get()?,
            })
        })
    }
}
