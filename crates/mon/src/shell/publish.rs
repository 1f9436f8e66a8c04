//! What goes out for a subscription: the newest map, or the increments that lead from where the client is to it
//! (docs/protocol/ceph/02-monitor.md, sections 4, 5, 7, 10.2, 11).

use crate::shell::session::Session;
use crate::shell::subscriptions::{Topic, Wanted};
use auth::Access;
use cluster::ClusterState;
use denc::Encode;
use messages::mon::{
    Body, MConfig, MFsMap, MFsMapUser, MLog, MMdsMap, MMgrMap, MMonMap, MOsdMap, PaxosHeader,
};
use msgr::Message;
use std::borrow::Cow;
use types::fsmap::Filesystem;
use types::{Epoch, FsMap, MdsMap};

/// Increments in one OSD_MAP message.
pub const MAPS_PER_MESSAGE_MAX: u32 = 40;
/// Entries in one LOG message.
pub const LOG_ENTRIES_PER_MESSAGE_MAX: usize = 100;

/// Options that a client must not get from us: what it was started with is what it found us by.
const PRIVATE_OPTIONS: [&str; 9] = [
    "fsid",
    "mon_host",
    "key",
    "keyfile",
    "keyring",
    "auth_client_required",
    "auth_cluster_required",
    "auth_service_required",
    "auth_supported",
];

pub fn mon_map(state: &ClusterState) -> Message {
    MMonMap {
        map: state.monmap.to_bytes(),
    }
    .message(0)
}

/// The configuration that holds for a session.
pub fn config_of(session: &Session, state: &ClusterState) -> std::collections::BTreeMap<String, String> {
    let mut options = state
        .config
        .effective(&session.peer.auth_name, &session.hostname, "");
    options.retain(|name, _| !PRIVATE_OPTIONS.contains(&name.as_str()));
    options
}

/// Messages that are due to `session` for `topic`; its subscriptions are moved on.
pub fn due(session: &mut Session, topic: &Topic, state: &ClusterState) -> Vec<Message> {
    let Some(wanted) = session.subscriptions.get(topic) else {
        return Vec::new();
    };
    if !allowed(session, topic) {
        return Vec::new();
    }
    match topic {
        Topic::Config => config(session, state),
        Topic::Log(level) => log(session, topic, *level, wanted, state),
        _ => maps(session, topic, wanted, state),
    }
}

/// A session without the right to read something gets nothing, as from the real monitor.
fn allowed(session: &Session, topic: &Topic) -> bool {
    match topic {
        // Whoever got in may know where the daemons are, and its own configuration.
        Topic::MonMap | Topic::Config | Topic::MgrMap => true,
        Topic::OsdMap => session.may("osd", Access::R),
        Topic::MdsMap(_) | Topic::FsMap | Topic::FsMapUser => session.may("mds", Access::R),
        Topic::Log(_) => session.may("log", Access::R),
    }
}

fn maps(session: &mut Session, topic: &Topic, wanted: Wanted, state: &ClusterState) -> Vec<Message> {
    let epoch = u64::from(match topic {
        Topic::MonMap => state.monmap.epoch,
        Topic::MgrMap => state.mgrmap.epoch,
        Topic::OsdMap => state.osdmap.epoch,
        Topic::MdsMap(which) => file_system(state, *which).map_or(state.fsmap.epoch, |m| m.epoch),
        _ => state.fsmap.epoch,
    });
    if wanted.next > epoch {
        return Vec::new();
    }
    let messages = match topic {
        Topic::MonMap => vec![mon_map(state)],
        Topic::MgrMap => vec![
            MMgrMap {
                map: state.mgrmap.to_bytes(),
            }
            .message(0),
        ],
        Topic::OsdMap => osd_maps(state, wanted),
        Topic::FsMap => vec![
            MFsMap {
                epoch: state.fsmap.epoch,
                map: shown(session, &state.fsmap).to_bytes(),
            }
            .message(0),
        ],
        Topic::FsMapUser => vec![
            MFsMapUser {
                map: shown(session, &state.fsmap).for_users(),
            }
            .message(0),
        ],
        Topic::MdsMap(which) => vec![mds_map(session, state, *which)],
        Topic::Config | Topic::Log(_) => return Vec::new(),
    };
    session.subscriptions.sent(topic, epoch);
    messages
}

/// None: the default one.
fn file_system(state: &ClusterState, which: Option<i32>) -> Option<&MdsMap> {
    let map = &state.fsmap;
    let fs = match which {
        Some(id) => map.by_id(id),
        None => map.default_fs(),
    };
    fs.map(|fs| &fs.mds_map)
}

/// Less the file systems that are not for this session, and less the standbys, which belong to none.
fn shown<'a>(session: &Session, map: &'a FsMap) -> Cow<'a, FsMap> {
    let sees = |fs: &Filesystem| session.sees(&fs.mds_map.fs_name);
    if map.filesystems.iter().all(sees) {
        return Cow::Borrowed(map);
    }
    let mut part = map.clone();
    part.filesystems.retain(sees);
    if part.default_fs().is_none() {
        part.legacy_client_fscid = -1;
    }
    let left: Vec<i32> = part.filesystems.iter().map(|fs| fs.fscid).collect();
    part.mds_roles.retain(|_, fscid| left.contains(fscid));
    part.standby_daemons.clear();
    part.standby_epochs.clear();
    Cow::Owned(part)
}

/// The map of one file system. Of one that is not there: without ranks and pools, so that nobody waits for it.
fn mds_map(session: &Session, state: &ClusterState, which: Option<i32>) -> Message {
    let found = file_system(state, which).filter(|m| session.sees(&m.fs_name));
    let mut map = found.cloned().unwrap_or_else(|| MdsMap {
        epoch: state.fsmap.epoch,
        ..MdsMap::default()
    });
    // Without a rank a client gives up at once; the first one of this file system is on its way.
    if map.enabled && map.max_mds > 0 && map.in_ranks.is_empty() {
        map.in_ranks.insert(0);
    }
    MMdsMap {
        fsid: state.fsid,
        epoch: map.epoch,
        fs_name: map.fs_name.clone(),
        map: map.to_bytes(),
    }
    .message(0)
}

/// One full map, or increments from `wanted.next` on. A one-time subscription gets the first message only and
/// asks again.
fn osd_maps(state: &ClusterState, wanted: Wanted) -> Vec<Message> {
    let history = &state.history;
    let start = Epoch::try_from(wanted.next).unwrap_or(Epoch::MAX);
    // The increment that leads to the oldest epoch is not kept.
    if start == 0 || start <= history.first() {
        return vec![full_map(state)];
    }
    let mut out = Vec::new();
    let mut from = start;
    while from <= history.latest() {
        let to = history.latest().min(from + (MAPS_PER_MESSAGE_MAX - 1));
        let Some(message) = incrementals(state, from, to) else {
            return vec![full_map(state)];
        };
        out.push(message);
        if wanted.onetime {
            break;
        }
        from = to + 1;
    }
    out
}

/// The newest full map; `oldest` tells a receiver with an older one to jump.
pub fn full_map(state: &ClusterState) -> Message {
    let epoch = state.osdmap.epoch;
    let fulls = [(epoch, state.history.latest_full())].into();
    MOsdMap {
        fsid: state.fsid,
        fulls,
        oldest: epoch,
        newest: epoch,
        ..MOsdMap::default()
    }
    .message(0)
}

/// The increments `from..=to`, or None if one is no longer kept.
pub fn incrementals(state: &ClusterState, from: Epoch, to: Epoch) -> Option<Message> {
    let history = &state.history;
    let incrementals = (from..=to)
        .map(|e| Some((e, history.incremental(e)?)))
        .collect::<Option<_>>()?;
    let body = MOsdMap {
        fsid: state.fsid,
        incrementals,
        oldest: history.first(),
        newest: history.latest(),
        ..MOsdMap::default()
    };
    Some(body.message(0))
}

fn config(session: &mut Session, state: &ClusterState) -> Vec<Message> {
    let options = config_of(session, state);
    if session.config_sent.as_ref() == Some(&options) {
        return Vec::new();
    }
    session.config_sent = Some(options.clone());
    session.subscriptions.sent(&Topic::Config, state.config.version);
    vec![MConfig { options }.message(0)]
}

fn log(
    session: &mut Session,
    topic: &Topic,
    level: types::clusterlog::LogLevel,
    wanted: Wanted,
    state: &ClusterState,
) -> Vec<Message> {
    let after = match wanted.next {
        // From now on, beginning with the newest entry that there is, as the real one does: who waits for a line gets one.
        0 => state.log.version.saturating_sub(1),
        next => next - 1,
    };
    let entries: Vec<_> = state
        .log
        .since(after)
        .filter(|(_, e)| e.level >= level)
        .map(|(_, e)| e.clone())
        .collect();
    if wanted.next <= state.log.version {
        session.subscriptions.sent(topic, state.log.version);
    }
    entries
        .chunks(LOG_ENTRIES_PER_MESSAGE_MAX)
        .map(|chunk| {
            let paxos = PaxosHeader {
                version: state.log.version,
            };
            MLog {
                paxos,
                fsid: state.fsid,
                entries: chunk.to_vec(),
            }
            .message(0)
        })
        .collect()
}

/// True if a session may ask for the configuration of `name` (GET_CONFIG): its own, or anybody's with the right to
/// read it.
pub fn may_ask_config(session: &Session, name: &types::AuthName) -> bool {
    session.peer.auth_name == *name || session.may("config", Access::R)
}
