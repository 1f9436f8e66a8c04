//! Daemons come and go, and ranks with them.

use super::{CAN_FOLLOW, DAEMONS_MAX, DEFAULT_STANDBYS, Draft, MdsDaemon, RANKS_MAX};
use crate::changes::{Change, Changes};
use crate::state::ClusterState;
use types::clusterlog::LogLevel;
use types::fsmap::{CompatSet, FeatureSet, FsMap, MDS_INCOMPAT, MdsInfo, MdsMap, MdsState, mds_flag};
use types::{EntityAddr, EntityAddrVec, Epoch, Utime};

/// How long a daemon that lost its rank stays fenced, as with the real monitor.
pub const BLOCKLIST_SECONDS: u32 = 24 * 60 * 60;
/// Features of our daemons; those of a 16.2.15 one.
const FEATURES: u64 = 0x3f01_cfbf_fdff_ffff;

/// A daemon that begins: its gid, its name, where clients find it, what else is known of it.
pub struct MdsBoot<'a> {
    pub gid: u64,
    pub name: &'a str,
    pub addr: EntityAddr,
    pub daemon: &'a MdsDaemon,
}

/// A new daemon becomes a standby. An earlier one of its name is gone.
pub fn boot(state: &ClusterState, boot: &MdsBoot<'_>, now: Utime) -> Result<Changes, String> {
    let mut draft = Draft::of(state, now);
    if draft.map.info(boot.gid).is_some() {
        return Ok(Changes::none());
    }
    let earlier: Vec<u64> = draft
        .map
        .daemons()
        .filter(|i| i.name == boot.name)
        .map(|i| i.gid)
        .collect();
    for gid in earlier {
        draft.drop_daemon(gid, "was replaced by a new run of it");
    }
    if draft.map.daemons().count() >= DAEMONS_MAX {
        return Err(format!("the cluster has {DAEMONS_MAX} metadata servers already"));
    }
    let epoch = state.fsmap.epoch + 1;
    draft.map.mds_roles.insert(boot.gid, -1);
    draft.map.standby_epochs.insert(boot.gid, epoch);
    draft.map.standby_daemons.insert(boot.gid, standby(boot));
    // This is the daemon's own program.
    let mut daemon = boot.daemon.clone();
    daemon.metadata.insert(CAN_FOLLOW.to_string(), "true".to_string());
    draft.booting = Some(boot.gid);
    draft.changes.push(Change::MdsDaemon {
        gid: boot.gid,
        daemon: Some(daemon),
    });
    draft.log(LogLevel::Info, format!("mds.{} {} boot", boot.name, boot.addr));
    Ok(draft.done())
}

fn standby(boot: &MdsBoot<'_>) -> MdsInfo {
    MdsInfo {
        gid: boot.gid,
        name: boot.name.to_string(),
        rank: -1,
        incarnation: 0,
        state: MdsState::Standby,
        state_seq: 1,
        addrs: EntityAddrVec::one(boot.addr),
        laggy_since: Utime::ZERO,
        standby_for_rank: -1,
        standby_for_name: String::new(),
        export_targets: Default::default(),
        mds_features: FEATURES,
        join_fscid: -1,
        standby_replay: false,
        flags: 0,
        compat: CompatSet {
            incompat: FeatureSet::of(&MDS_INCOMPAT),
            ..CompatSet::default()
        },
    }
}

/// A daemon says where it stands: the rank is ready in this far. An error: the rank is not its own.
pub fn report(state: &ClusterState, gid: u64, at: MdsState, now: Utime) -> Result<Changes, String> {
    let mut draft = Draft::of(state, now);
    let fscid = draft.map.mds_roles.get(&gid).copied();
    let Some(fs) = fscid.and_then(|id| draft.map.by_id_mut(id)) else {
        return Err("the map does not know it, or gives it no rank".into());
    };
    let name = fs.mds_map.fs_name.clone();
    let Some(info) = fs.mds_map.mds_info.get_mut(&gid) else {
        return Err("the map gives it no rank".into());
    };
    if info.state == at {
        return Ok(Changes::none());
    }
    if info.state == MdsState::StandbyReplay {
        return Err("the rank that it follows is another's".into());
    }
    if at == MdsState::Damaged {
        let rank = info.rank;
        draft.drop_daemon(gid, "says that its rank is damaged");
        if let Some(fs) = fscid.and_then(|id| draft.map.by_id_mut(id)) {
            fs.mds_map.failed.remove(&rank);
            fs.mds_map.damaged.insert(rank);
        }
        return Ok(draft.done());
    }
    if !follows(info.state, at) {
        return Err(format!("{at} does not follow {}", info.state));
    }
    (info.state, info.state_seq) = (at, info.state_seq + 1);
    let (who, rank) = (info.name.clone(), info.rank);
    if at == MdsState::Active {
        draft.log(
            LogLevel::Info,
            format!("daemon mds.{who} is now active in filesystem {name} as rank {rank}"),
        );
    }
    Ok(draft.done())
}

/// Whether a daemon may go from one state to the other by its own word.
fn follows(before: MdsState, after: MdsState) -> bool {
    use MdsState::{Active, ClientReplay, Creating, Reconnect, Rejoin, Replay, Resolve, Stopping};
    let place = |s| {
        [Replay, Resolve, Reconnect, Rejoin, ClientReplay, Active, Stopping]
            .iter()
            .position(|x| *x == s)
    };
    match (before, after) {
        // One before it had made the file system, and could not say so any more.
        (Creating, after) => place(after).is_some(),
        _ => place(before)
            .zip(place(after))
            .is_some_and(|(before, after)| before < after),
    }
}

/// These are gone, or shall be: another takes what they held.
pub fn fail(state: &ClusterState, gids: &[u64], why: &str, now: Utime) -> Changes {
    let mut draft = Draft::of(state, now);
    for gid in gids {
        draft.drop_daemon(*gid, why);
    }
    draft.done()
}

/// A daemon stops by itself, and its clients shall find the next one at once.
pub fn leave(state: &ClusterState, gid: u64, now: Utime) -> Changes {
    fail(state, &[gid], "has stopped", now)
}

/// Free ranks go to who follows them, then to standbys, the longest waiting first. Once there was a standby, its absence is worth a warning.
/// Of the standbys that are left, one follows each rank of a file system that allows it.
pub fn settle(draft: &mut Draft<'_>) {
    give_ranks(draft);
    release_followers(draft);
    let served = draft.map.filesystems.iter().all(|fs| !fs.mds_map.up.is_empty());
    if served && !draft.map.standby_daemons.is_empty() {
        for fs in &mut draft.map.filesystems {
            let wanted = &mut fs.mds_map.standby_count_wanted;
            if *wanted < 0 {
                *wanted = DEFAULT_STANDBYS;
            }
        }
    }
    choose_followers(draft);
}

fn first_standby(map: &FsMap, suits: impl Fn(u64) -> bool) -> Option<u64> {
    map.standby_epochs
        .iter()
        .filter(|(gid, _)| map.standby_daemons.contains_key(*gid) && suits(**gid))
        .min_by_key(|(gid, epoch)| (**epoch, **gid))
        .map(|(gid, _)| *gid)
}

/// Who follows a rank that nobody holds any more, and did not get it, or one that shall not be followed, begins anew as a standby, by another gid: what it
/// has read is of no use, and until it has let go of that it could not take a rank.
fn release_followers(draft: &mut Draft<'_>) {
    for i in 0..draft.map.filesystems.len() {
        let map = &draft.map.filesystems[i].mds_map;
        let allowed = map.flags & mds_flag::ALLOW_STANDBY_REPLAY != 0;
        let gone: Vec<u64> = map
            .followers()
            .filter(|f| !allowed || !map.up.contains_key(&f.rank))
            .map(|f| f.gid)
            .collect();
        for gid in gone {
            draft.drop_daemon(gid, "follows no rank any more and begins anew");
        }
    }
}

/// A process names its daemons `NAME`, `NAME.2` and so on: they end together.
fn process(name: &str) -> &str {
    let cut = name.rsplit_once('.');
    cut.filter(|(_, n)| n.parse::<u32>().is_ok())
        .map_or(name, |(process, _)| process)
}

/// Only a rank that is served has a journal that grows. Who follows it is of another process than who holds it.
fn choose_followers(draft: &mut Draft<'_>) {
    for i in 0..draft.map.filesystems.len() {
        let map = &draft.map.filesystems[i].mds_map;
        if map.flags & mds_flag::ALLOW_STANDBY_REPLAY == 0 {
            continue;
        }
        let served = |gid: &u64| map.mds_info.get(gid).is_some_and(|i| i.state == MdsState::Active);
        let ranks: Vec<i32> = map
            .up
            .iter()
            .filter(|(rank, gid)| served(gid) && map.follower(**rank).is_none())
            .map(|(rank, _)| *rank)
            .collect();
        for rank in ranks {
            let (state, booting) = (draft.state, draft.booting);
            let said = |gid: u64| {
                let daemon = state.mds.get(&gid);
                daemon.is_some_and(|d| d.metadata.contains_key(CAN_FOLLOW))
            };
            let holder = draft.map.filesystems[i].mds_map.up.get(&rank);
            let holder = holder
                .and_then(|gid| draft.map.info(*gid))
                .map(|h| process(&h.name));
            let elsewhere = |gid: u64| {
                let name = draft.map.standby_daemons.get(&gid).map(|d| process(&d.name));
                name != holder
            };
            let suits = |gid: u64| (booting == Some(gid) || said(gid)) && elsewhere(gid);
            let Some(gid) = first_standby(&draft.map, suits) else {
                break;
            };
            let Some(mut info) = draft.map.standby_daemons.remove(&gid) else {
                return;
            };
            draft.map.standby_epochs.remove(&gid);
            let fs = &mut draft.map.filesystems[i];
            draft.map.mds_roles.insert(gid, fs.fscid);
            (info.rank, info.state) = (rank, MdsState::StandbyReplay);
            info.state_seq += 1;
            let text = format!(
                "daemon mds.{} follows rank {rank} of filesystem {}",
                info.name, fs.mds_map.fs_name
            );
            fs.mds_map.mds_info.insert(gid, info);
            draft.log(LogLevel::Info, text);
        }
    }
}

fn give_ranks(draft: &mut Draft<'_>) {
    for i in 0..draft.map.filesystems.len() {
        for rank in 0..RANKS_MAX {
            let map = &draft.map.filesystems[i].mds_map;
            let free = rank < map.max_mds
                && map.flags & mds_flag::NOT_JOINABLE == 0
                && !map.up.contains_key(&rank)
                && !map.damaged.contains(&rank);
            let next = map
                .follower(rank)
                .map(|f| f.gid)
                .or_else(|| first_standby(&draft.map, |_| true));
            let Some(gid) = next.filter(|_| free) else {
                continue;
            };
            let epoch = draft.state.fsmap.epoch + 1;
            if let Some(text) = give(&mut draft.map, i, rank, (gid, epoch)) {
                draft.log(LogLevel::Info, text);
            }
        }
    }
}

/// The incarnation of a rank is the epoch of the map that gives it: it never comes again, also not with another file system.
fn give(all: &mut FsMap, i: usize, rank: i32, (gid, epoch): (u64, Epoch)) -> Option<String> {
    let fs = &mut all.filesystems[i];
    let follower = fs.mds_map.mds_info.remove(&gid);
    let mut info = follower.or_else(|| all.standby_daemons.remove(&gid))?;
    all.standby_epochs.remove(&gid);
    all.mds_roles.insert(gid, fs.fscid);
    let map = &mut fs.mds_map;
    (info.rank, info.incarnation) = (rank, epoch as i32);
    map.inc.insert(rank, info.incarnation);
    info.state = match map.in_ranks.insert(rank) {
        true => MdsState::Creating,
        false => MdsState::Replay,
    };
    info.state_seq += 1;
    map.failed.remove(&rank);
    map.up.insert(rank, gid);
    let text = format!(
        "daemon mds.{} assigned to filesystem {} as rank {rank}",
        info.name, map.fs_name
    );
    map.mds_info.insert(gid, info);
    Some(text)
}

impl Draft<'_> {
    pub fn log(&mut self, level: LogLevel, text: String) {
        self.changes
            .push(Change::Log(self.state.log_entry(self.now, level, text)));
    }

    /// The daemon is no more, as far as the map goes. One that had a rank is fenced.
    pub fn drop_daemon(&mut self, gid: u64, why: &str) {
        self.changes.push(Change::MdsDaemon { gid, daemon: None });
        self.map.standby_epochs.remove(&gid);
        if let Some(info) = self.map.standby_daemons.remove(&gid) {
            self.map.mds_roles.remove(&gid);
            self.log(LogLevel::Info, format!("standby mds.{} {why}", info.name));
            return;
        }
        let Some(fscid) = self.map.mds_roles.remove(&gid) else {
            return;
        };
        // Who follows a rank writes nothing: there is nothing to fence, and the rank is not free.
        if let Some(fs) = self.map.by_id_mut(fscid)
            && fs.mds_map.followers().any(|f| f.gid == gid)
            && let Some(info) = fs.mds_map.mds_info.remove(&gid)
        {
            self.log(LogLevel::Info, format!("standby mds.{} {why}", info.name));
            return;
        }
        let osd_epoch = self.fence(gid, fscid);
        let last = self.state.fsmap.epoch + 1;
        let Some(fs) = self.map.by_id_mut(fscid) else {
            return;
        };
        let Some(info) = fs.mds_map.mds_info.remove(&gid) else {
            return;
        };
        rank_lost(&mut fs.mds_map, &info);
        fs.mds_map.last_failure = last;
        fs.mds_map.last_failure_osd_epoch = osd_epoch;
        let text = format!(
            "daemon mds.{} {why}: rank {} of filesystem {} is free",
            info.name, info.rank, fs.mds_map.fs_name
        );
        self.log(LogLevel::Warning, text);
    }

    /// Puts all addresses of a daemon on the blocklist; the epoch of the OSD map that has them.
    fn fence(&mut self, gid: u64, fscid: i32) -> Epoch {
        let of_map = self.map.by_id(fscid).and_then(|fs| fs.mds_map.mds_info.get(&gid));
        let mut addrs: Vec<EntityAddr> = of_map.map(|i| i.addrs.0.clone()).unwrap_or_default();
        addrs.extend(self.state.mds.get(&gid).map(|d| d.rados));
        let until = Utime {
            sec: self.now.sec.saturating_add(BLOCKLIST_SECONDS),
            ..self.now
        };
        let inc = self.changes.inc(self.state, self.now);
        for addr in addrs {
            inc.new_blocklist.insert(addr.to_blocklist_form(), until);
        }
        self.state.osdmap.epoch + 1
    }
}

/// What was made of a rank that was only being created is made again.
fn rank_lost(map: &mut MdsMap, info: &MdsInfo) {
    map.up.remove(&info.rank);
    if info.state == MdsState::Creating {
        map.in_ranks.remove(&info.rank);
    } else {
        map.failed.insert(info.rank);
    }
}
