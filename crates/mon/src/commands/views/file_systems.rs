//! File systems and their metadata servers, as the commands of 16.2.15 print them.

use crate::commands::context::Context;
use crate::commands::views::show;
use serde_json::{Map, Value, json};
use types::fsmap::{CompatSet, FeatureSet, Filesystem, FsMap, MdsInfo, MdsMap, MdsState, mds_flag};

/// Features of clients, by number.
pub const CLIENT_FEATURES: [&str; 19] = [
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "reply_encoding",
    "reclaim_client",
    "lazy_caps_wanted",
    "multi_reconnect",
    "deleg_ino",
    "metric_collect",
    "alternate_name",
    "notify_session_state",
    "op_getvxattr",
    "32bits_retry_fwd",
];

/// What goes on with one file system, for summaries.
pub struct Standing {
    pub up: usize,
    pub ranks: usize,
    pub failed: usize,
    pub damaged: usize,
    /// Nobody may join it.
    pub closed: bool,
    /// It has been told to go down.
    pub stopped: bool,
    /// A rank is not there, or on its way.
    pub degraded: bool,
}

impl Standing {
    pub fn of(map: &MdsMap) -> Self {
        let on_its_way = |i: &MdsInfo| (MdsState::Replay..=MdsState::ClientReplay).contains(&i.state);
        Self {
            up: map.up.len(),
            ranks: map.in_ranks.len(),
            failed: map.failed.len(),
            damaged: map.damaged.len(),
            closed: map.flags & mds_flag::NOT_JOINABLE != 0,
            stopped: map.max_mds == 0,
            degraded: !map.failed.is_empty()
                || !map.damaged.is_empty()
                || map.mds_info.values().any(on_its_way),
        }
    }
}

/// Daemons that follow a rank, of all file systems.
pub fn followers(map: &FsMap) -> impl Iterator<Item = &MdsInfo> {
    map.filesystems.iter().flat_map(|fs| fs.mds_map.followers())
}

/// Standbys that an operator, or the first standby that there was, has made expected.
pub fn standbys_wanted(map: &FsMap) -> usize {
    let wanted = map.filesystems.iter().map(|fs| fs.mds_map.standby_count_wanted);
    wanted.max().unwrap_or(0).max(0) as usize
}

fn features_json(set: &FeatureSet) -> Value {
    let all = set.names.iter();
    Value::Object(
        all.map(|(bit, name)| (format!("feature_{bit}"), name.as_str().into()))
            .collect(),
    )
}

pub fn compat_json(set: &CompatSet) -> Value {
    json!({
        "compat": features_json(&set.compat),
        "ro_compat": features_json(&set.ro_compat),
        "incompat": features_json(&set.incompat),
    })
}

pub fn compat_text(set: &CompatSet) -> String {
    let list = |set: &FeatureSet| {
        let all: Vec<String> = set.names.iter().map(|(n, name)| format!("{n}={name}")).collect();
        all.join(",")
    };
    format!(
        "compat={{{}}},rocompat={{{}}},incompat={{{}}}",
        list(&set.compat),
        list(&set.ro_compat),
        list(&set.incompat)
    )
}

/// Features of clients that a file system wants: numbers and names.
pub fn required_features(map: &MdsMap) -> Vec<(usize, &'static str)> {
    let set = |bit: usize| {
        let byte = map.required_client_features.get(bit / 8);
        byte.is_some_and(|b| b & 1 << (bit % 8) != 0)
    };
    let all = CLIENT_FEATURES.iter().copied().enumerate();
    all.filter(|(bit, _)| set(*bit)).collect()
}

fn info_json(i: &MdsInfo) -> Map<String, Value> {
    let fields = json!({
        "gid": i.gid,
        "name": i.name,
        "rank": i.rank,
        "incarnation": i.incarnation,
        "state": i.state.name(),
        "state_seq": i.state_seq,
        "addr": show::legacy_addr(&i.addrs),
        "addrs": show::addrs(&i.addrs),
        "join_fscid": i.join_fscid,
        "export_targets": i.export_targets,
        "features": i.mds_features,
        "flags": i.flags,
        "compat": compat_json(&i.compat),
    });
    match fields {
        Value::Object(m) => m,
        _ => Map::new(),
    }
}

pub fn fs_json(fs: &Filesystem) -> Value {
    let m = &fs.mds_map;
    let required: Map<String, Value> = required_features(m)
        .into_iter()
        .map(|(bit, name)| (format!("feature_{bit}"), name.into()))
        .collect();
    let up: Map<String, Value> =
        m.up.iter()
            .map(|(rank, gid)| (format!("mds_{rank}"), (*gid).into()))
            .collect();
    let info: Map<String, Value> = m
        .mds_info
        .iter()
        .map(|(gid, i)| (format!("gid_{gid}"), info_json(i).into()))
        .collect();
    let map = json!({
        "epoch": m.epoch,
        "flags": m.flags,
        "ever_allowed_features": m.ever_allowed_features,
        "explicitly_allowed_features": m.explicitly_allowed_features,
        "created": m.created.to_string(),
        "modified": m.modified.to_string(),
        "tableserver": m.tableserver,
        "root": m.root,
        "session_timeout": m.session_timeout,
        "session_autoclose": m.session_autoclose,
        "required_client_features": required,
        "max_file_size": m.max_file_size,
        "last_failure": m.last_failure,
        "last_failure_osd_epoch": m.last_failure_osd_epoch,
        "compat": compat_json(&m.compat),
        "max_mds": m.max_mds,
        "in": m.in_ranks,
        "up": up,
        "failed": m.failed,
        "damaged": m.damaged,
        "stopped": m.stopped,
        "info": info,
        "data_pools": m.data_pools,
        "metadata_pool": m.metadata_pool,
        "enabled": m.enabled,
        "fs_name": m.fs_name,
        "balancer": m.balancer,
        "standby_count_wanted": m.standby_count_wanted.max(0),
    });
    json!({"mdsmap": map, "id": fs.fscid})
}

pub fn fsmap_json(map: &FsMap) -> Value {
    let standbys: Vec<Value> = map
        .standby_daemons
        .iter()
        .map(|(gid, i)| {
            let mut m = info_json(i);
            let epoch = map.standby_epochs.get(gid).copied().unwrap_or(0);
            m.insert("epoch".into(), epoch.into());
            m.into()
        })
        .collect();
    json!({
        "epoch": map.epoch,
        "default_fscid": map.legacy_client_fscid,
        "compat": compat_json(&map.default_compat),
        "feature_flags": {
            "enable_multiple": map.enable_multiple,
            "ever_enabled_multiple": map.ever_enabled_multiple,
        },
        "standbys": standbys,
        "filesystems": map.filesystems.iter().map(fs_json).collect::<Vec<_>>(),
    })
}

fn listed(items: impl IntoIterator<Item = impl ToString>) -> String {
    let all: Vec<String> = items.into_iter().map(|i| i.to_string()).collect();
    all.join(",")
}

fn info_line(i: &MdsInfo) -> String {
    // Bit 0 of the masks stands for the set itself.
    let mask = |set: &FeatureSet| set.mask | 1;
    format!(
        "[mds.{}{{{}:{}}} state {} seq {} addr {} compat {{c=[{:x}],r=[{:x}],i=[{:x}]}}]\n",
        i.name,
        i.rank,
        i.gid,
        i.state,
        i.state_seq,
        i.addrs,
        mask(&i.compat.compat),
        mask(&i.compat.ro_compat),
        mask(&i.compat.incompat)
    )
}

/// One file system in the form of `fs get`.
pub fn fs_text(fs: &Filesystem) -> String {
    let m = &fs.mds_map;
    let required = required_features(m)
        .into_iter()
        .map(|(bit, name)| format!("{bit}={name}"));
    let up = m.up.iter().map(|(rank, gid)| format!("{rank}={gid}"));
    let inline = if m.inline_data_enabled {
        "enabled"
    } else {
        "disabled"
    };
    let rows = [
        ("fs_name", m.fs_name.clone()),
        ("epoch", m.epoch.to_string()),
        ("flags", format!("{:x}", m.flags)),
        ("created", m.created.to_string()),
        ("modified", m.modified.to_string()),
        ("tableserver", m.tableserver.to_string()),
        ("root", m.root.to_string()),
        ("session_timeout", m.session_timeout.to_string()),
        ("session_autoclose", m.session_autoclose.to_string()),
        ("max_file_size", m.max_file_size.to_string()),
        ("required_client_features", format!("{{{}}}", listed(required))),
        ("last_failure", m.last_failure.to_string()),
        ("last_failure_osd_epoch", m.last_failure_osd_epoch.to_string()),
        ("compat", compat_text(&m.compat)),
        ("max_mds", m.max_mds.to_string()),
        ("in", listed(&m.in_ranks)),
        ("up", format!("{{{}}}", listed(up))),
        ("failed", listed(&m.failed)),
        ("damaged", listed(&m.damaged)),
        ("stopped", listed(&m.stopped)),
        ("data_pools", format!("[{}]", listed(&m.data_pools))),
        ("metadata_pool", m.metadata_pool.to_string()),
        ("inline_data", inline.to_string()),
        ("balancer", m.balancer.clone()),
        ("standby_count_wanted", m.standby_count_wanted.max(0).to_string()),
    ];
    let mut out = format!("Filesystem '{}' ({})\n", m.fs_name, fs.fscid);
    out.extend(rows.iter().map(|(name, value)| format!("{name}\t{value}\n")));
    out.extend(m.mds_info.values().map(info_line));
    out
}

/// All of the map in the form of `fs dump`.
pub fn fsmap_text(map: &FsMap) -> String {
    let mut out = format!(
        "e{}\nenable_multiple, ever_enabled_multiple: {},{}\ndefault compat: {}\nlegacy client fscid: {}\n \n",
        map.epoch,
        u8::from(map.enable_multiple),
        u8::from(map.ever_enabled_multiple),
        compat_text(&map.default_compat),
        map.legacy_client_fscid
    );
    if map.filesystems.is_empty() {
        out.push_str("No filesystems configured\n");
    }
    for fs in &map.filesystems {
        out.push_str(&fs_text(fs));
        out.push_str(" \n \n");
    }
    if !map.standby_daemons.is_empty() {
        out.push_str("Standby daemons:\n \n");
        out.extend(map.standby_daemons.values().map(info_line));
    }
    out
}

/// The line of `mds stat`.
pub fn stat_line(map: &FsMap) -> String {
    let mut parts = Vec::new();
    for fs in &map.filesystems {
        let s = Standing::of(&fs.mds_map);
        parts.push(match s.up < s.ranks {
            true => format!("{}:{}/{}", fs.mds_map.fs_name, s.up, s.ranks),
            false => format!("{}:{}", fs.mds_map.fs_name, s.up),
        });
    }
    let alone = map.filesystems.len() == 1;
    let mut holders = Vec::new();
    for fs in &map.filesystems {
        for (rank, gid) in &fs.mds_map.up {
            let Some(i) = fs.mds_map.mds_info.get(gid) else {
                continue;
            };
            let role = match alone {
                true => rank.to_string(),
                false => format!("{}:{rank}", fs.mds_map.fs_name),
            };
            holders.push(format!("{role}={}={}", i.name, i.state));
        }
    }
    if !holders.is_empty() {
        parts.push(format!("{{{}}}", holders.join(",")));
    }
    let following = followers(map).count();
    if following > 0 {
        parts.push(format!("{following} up:standby-replay"));
    }
    if !map.standby_daemons.is_empty() {
        parts.push(format!("{} up:standby", map.standby_daemons.len()));
    }
    let mut out = parts.join(" ");
    let sum = |f: fn(&Standing) -> usize| -> usize {
        let all = map.filesystems.iter();
        all.map(|fs| f(&Standing::of(&fs.mds_map))).sum()
    };
    for (n, what) in [(sum(|s| s.failed), "failed"), (sum(|s| s.damaged), "damaged")] {
        if n > 0 {
            out.push_str(&format!(", {n} {what}"));
        }
    }
    out
}

/// `fsmap` of `status` in JSON. Of several file systems the numbers of the last are shown, as the names say no more.
pub fn status_json(map: &FsMap) -> Value {
    let mut m = Map::new();
    m.insert("epoch".into(), map.epoch.into());
    let mut by_rank = Vec::new();
    let (mut failed, mut damaged) = (0, 0);
    for fs in &map.filesystems {
        let s = Standing::of(&fs.mds_map);
        m.insert("id".into(), fs.fscid.into());
        m.insert("up".into(), s.up.into());
        m.insert("in".into(), s.ranks.into());
        m.insert("max".into(), fs.mds_map.max_mds.into());
        failed += s.failed;
        damaged += s.damaged;
        let holders = fs
            .mds_map
            .up
            .values()
            .filter_map(|gid| fs.mds_map.mds_info.get(gid));
        for i in holders.chain(fs.mds_map.followers()) {
            by_rank.push(json!({
                "filesystem_id": fs.fscid,
                "rank": i.rank,
                "name": i.name,
                "status": i.state.name(),
                "gid": i.gid,
            }));
        }
    }
    m.insert("by_rank".into(), by_rank.into());
    m.insert("up:standby".into(), map.standby_daemons.len().into());
    for (key, n) in [("failed", failed), ("damaged", damaged)] {
        if n > 0 {
            m.insert(key.into(), n.into());
        }
    }
    Value::Object(m)
}

/// What follows `mds:` in `status`; None: there is neither a file system nor a daemon.
pub fn status_line(map: &FsMap) -> Option<String> {
    let standbys = map.standby_daemons.len();
    let tail = match standbys {
        0 => String::new(),
        n => format!("{n} standby"),
    };
    if map.filesystems.is_empty() {
        return (standbys > 0).then(|| format!("{standbys} up:standby"));
    }
    let all: Vec<Standing> = map
        .filesystems
        .iter()
        .map(|fs| Standing::of(&fs.mds_map))
        .collect();
    let sum = |f: fn(&Standing) -> usize| all.iter().map(f).sum::<usize>();
    let mut out = format!("{}/{} daemons up", sum(|s| s.up), sum(|s| s.ranks));
    match sum(|s| s.failed) {
        0 => {}
        n => out.push_str(&format!(" ({n} failed)")),
    }
    if !tail.is_empty() {
        out.push_str(&format!(", {tail}"));
    }
    match followers(map).count() {
        0 => {}
        n => out.push_str(&format!(", {n} hot standby")),
    }
    Some(out)
}

/// What follows `volumes:` in `status`.
pub fn volumes_line(map: &FsMap) -> Option<String> {
    if map.filesystems.is_empty() {
        return None;
    }
    let (mut healthy, mut recovering, mut failed, mut stopped, mut damaged) = (0, 0, 0, 0, 0);
    for fs in &map.filesystems {
        let s = Standing::of(&fs.mds_map);
        match s {
            Standing { closed: true, .. } => failed += 1,
            Standing { stopped: true, .. } => stopped += 1,
            Standing { degraded: true, .. } => recovering += 1,
            _ => healthy += 1,
        }
        damaged += s.damaged;
    }
    let mut out = format!("{healthy}/{} healthy", map.filesystems.len());
    for (n, what) in [
        (recovering, "recovering"),
        (failed, "failed"),
        (stopped, "stopped"),
    ] {
        if n > 0 {
            out.push_str(&format!(", {n} {what}"));
        }
    }
    if damaged > 0 {
        out.push_str(&format!("; {damaged} damaged"));
    }
    Some(out)
}

/// A file system by its name.
pub fn named<'a>(ctx: &Context<'a>, name: &str) -> Option<&'a Filesystem> {
    ctx.state.fsmap.by_name(name)
}

/// The name of a pool, or its number where it has none.
pub fn pool_name(ctx: &Context<'_>, pool: types::PoolId) -> String {
    match ctx.map().pool_name(pool) {
        Some(name) => name.to_string(),
        None => pool.to_string(),
    }
}
