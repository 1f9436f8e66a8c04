//! Clones: new subvolumes with what a snapshot has, copied in the background.
//!
//! Order: the wish is durable in the cluster state (`volumes/clone/...`), then the directories and `.meta` are made, whose state says how far
//! it is; then the wish again: another monitor's worker that saw no `.meta` took it for settled. The row goes when the copy has ended, was
//! canceled or has failed. A copy that is begun again leaves alone what is there: a file has its time of change when it is whole.

use crate::args::{Args, Refusal, check_name, failed, invalid, refusal};
use crate::meta::{CANCELED, CLONE, COMPLETE, FAILED, GLOBAL, IN_PROGRESS, Meta, PENDING, SOURCE};
use crate::place::Place;
use crate::subvolume::{self, Subvolume, base_of};
use crate::{copy, group};
use cephfs::Mount;
use cluster::volumes::{CloneRow, Done, Said, clone_key, clones};
use cluster::{Change, Changes, ClusterState};
use rbd_support::Config;
use serde_json::{Map, Value, json};
use types::{Errno, Uuid};

/// Copies of one file system that wait.
const CLONES_MAX: usize = 1000;

/// A copy that has not ended needs the snapshot.
pub fn is_source(place: &Place<'_>, of: &Subvolume, snap: &str) -> bool {
    let state = place.config.cluster.state();
    clones(&state, place.fscid)
        .iter()
        .any(|c| (c.from_group.as_str(), c.from.as_str(), c.snap.as_str()) == (&of.group, &of.name, snap))
}

pub async fn begin(place: &Place<'_>, args: &Args) -> Done {
    let found = subvolume::with_snapshots(place, args).await?;
    let snap = check_name("snapshot", args.text("snap_name"))?;
    let target = check_name("subvolume", args.text("target_sub_name"))?;
    let pool = group::pool(place, args)
        .map_err(|name| invalid(format!("invalid pool layout '{name}' -- need a valid data pool")))?;
    let to_group = group::of_target(place, args).await?;
    let data = subvolume::data_in(place, &found, snap).await?;
    if subvolume::any(place, to_group, target).await?.is_some() {
        return Err(refusal(Errno::EEXIST, format!("subvolume '{target}' exists")));
    }
    let row = CloneRow {
        group: to_group.to_string(),
        name: target.to_string(),
        from_group: found.group.clone(),
        from: found.name.clone(),
        snap: snap.to_string(),
    };
    wanted(place, &row, CLONES_MAX).await?;
    let stat = place.mount.stat(&data).await.map_err(failed)?;
    let base = base_of(to_group, target);
    let path = format!("{base}/{}", Uuid::from_random(place.config.random.bytes()));
    let made = async {
        place.mount.mkdirs(group::path(to_group), 0o755).await?;
        place.mount.mkdirs(&base, stat.mode & 0o7777).await?;
        place.mount.setxattr(&base, "ceph.dir.subvolume", "1").await?;
        place.mount.mkdir(&path, stat.mode & 0o7777).await
    };
    made.await.map_err(failed)?;
    let of_source = place
        .pools
        .iter()
        .find(|(id, _)| *id == i64::from(stat.layout.pool));
    let pool = pool.or(of_source.map(|(_, n)| n.as_str()));
    group::set_pool(place, &path, pool).await?;
    if !stat.pool_ns.is_empty() {
        // A key that opens the one opens not the other.
        let space = format!("fsvolumens_{target}");
        let set = place
            .mount
            .setxattr(&path, "ceph.dir.layout.pool_namespace", space);
        set.await.map_err(failed)?;
    }
    let mut meta = Meta::of_path(&format!("/{path}"));
    meta.set(GLOBAL, "type", CLONE);
    meta.set(GLOBAL, "state", PENDING);
    meta.set(SOURCE, "volume", args.text("vol_name"));
    if found.group != group::NO_GROUP {
        meta.set(SOURCE, "group", &found.group);
    }
    meta.set(SOURCE, "subvolume", &found.name);
    meta.set(SOURCE, "snapshot", snap);
    subvolume::write_meta(place.mount, &base, &meta).await?;
    wanted(place, &row, usize::MAX).await?;
    Ok(Said::Nothing)
}

/// Durable, if fewer than `max` wait, or it waits already.
async fn wanted(place: &Place<'_>, row: &CloneRow, max: usize) -> Result<(), Refusal> {
    let (key, value) = (clone_key(place.fscid, row), row.value());
    let fscid = place.fscid;
    let decide = |state: &ClusterState| {
        let all = clones(state, fscid);
        match (all.contains(row), all.len() < max) {
            (true, _) => (Changes::none(), true),
            (false, true) => {
                let (key, value) = (key.clone(), value.clone());
                (Changes::one(Change::ConfigKeySet { key, value }), true)
            }
            (false, false) => (Changes::none(), false),
        }
    };
    match place.config.cluster.commit(decide).await {
        Ok(done) if done.reply => Ok(()),
        Ok(_) => Err(refusal(Errno::EAGAIN, "too many clones wait already")),
        Err(e) => Err(refusal(Errno::EIO, e.to_string())),
    }
}

/// Nothing is to be done for it any more.
pub async fn settled(config: &Config, fscid: i32, row: &CloneRow) -> Result<(), Refusal> {
    let key = clone_key(fscid, row);
    let decide = |state: &ClusterState| match state.config_keys.contains_key(&key) {
        true => (Changes::one(Change::ConfigKeyRm { key: key.clone() }), ()),
        false => (Changes::none(), ()),
    };
    let done = config.cluster.commit(decide).await;
    done.map(drop).map_err(|e| refusal(Errno::EIO, e.to_string()))
}

async fn named(place: &Place<'_>, args: &Args) -> Result<Subvolume, Refusal> {
    let name = check_name("subvolume", args.text("clone_name"))?;
    let in_group = group::of_subvolume(place, args).await?;
    let found = subvolume::any(place, in_group, name).await?;
    let found = found.ok_or_else(|| subvolume::absent(name))?;
    match found.meta.get(GLOBAL, "type") {
        Some(CLONE) => Ok(found),
        _ => Err(refusal(
            Errno::EOPNOTSUPP,
            format!("subvolume '{name}' is not a clone"),
        )),
    }
}

pub async fn status(place: &Place<'_>, args: &Args) -> Done {
    let found = named(place, args).await?;
    let mut status = Map::new();
    status.insert("state".into(), found.state().into());
    if found.state() != COMPLETE {
        let all = found.meta.all(SOURCE).into_iter();
        let source: Map<String, Value> = all
            .filter(|(k, _)| ["volume", "group", "subvolume", "snapshot"].contains(&k.as_str()))
            .map(|(k, v)| (k, v.into()))
            .collect();
        status.insert("source".into(), source.into());
    }
    if found.state() == FAILED {
        let said = |key| found.meta.get(FAILED, key).unwrap_or_default();
        let failure = json!({"errno": said("errno"), "error_msg": said("error_msg")});
        status.insert("failure".into(), failure);
    }
    Ok(Said::Json(json!({ "status": status })))
}

pub async fn cancel(place: &Place<'_>, args: &Args) -> Done {
    let mut found = named(place, args).await?;
    if ![PENDING, IN_PROGRESS].contains(&found.state()) {
        return Err(invalid("cannot cancel -- clone finished (check clone status)"));
    }
    let state = place.config.cluster.state();
    let rows = clones(&state, place.fscid);
    let row = rows
        .iter()
        .find(|r| r.group == found.group && r.name == found.name);
    found.meta.set(GLOBAL, "state", CANCELED);
    subvolume::write_meta(place.mount, &found.base, &found.meta).await?;
    if let Some(row) = row {
        settled(place.config, place.fscid, row).await?;
    }
    Ok(Said::Nothing)
}

/// The next step of a clone, from what is there. `held`: commands wait meanwhile.
pub enum Step {
    /// From and to where it is copied.
    Copy(String, String),
    Over,
}

/// What is to be done for it, which is said in its `.meta`.
pub async fn next(mount: &Mount, row: &CloneRow) -> Result<Step, Refusal> {
    let Some(mut target) = subvolume::read(mount, &row.group, &row.name).await? else {
        return Ok(Step::Over);
    };
    if ![PENDING, IN_PROGRESS].contains(&target.state()) {
        return Ok(Step::Over);
    }
    let from = match source_of(mount, row).await {
        // Nothing that comes back by itself.
        Err((errno @ (Errno::ENOENT | Errno::ENOTDIR), why)) => {
            fail(&mut target, errno, &why);
            subvolume::write_meta(mount, &target.base, &target.meta).await?;
            tracing::warn!("the clone '{}' has failed: {why}", row.name);
            return Ok(Step::Over);
        }
        from => from?,
    };
    target.meta.set(GLOBAL, "state", IN_PROGRESS);
    subvolume::write_meta(mount, &target.base, &target.meta).await?;
    Ok(Step::Copy(from, target.checked_data()?.to_string()))
}

/// Where what is copied lies.
async fn source_of(mount: &Mount, row: &CloneRow) -> Result<String, Refusal> {
    let base = base_of(&row.from_group, &row.from);
    let source = subvolume::read(mount, &row.from_group, &row.from).await?;
    let source = source.ok_or_else(|| subvolume::absent(&row.from))?;
    let then = subvolume::in_snapshot_of(mount, &source, &row.snap).await?;
    let below = then.checked_data()?.strip_prefix(&base).unwrap_or_default();
    Ok(format!("{}{below}", cephfs::in_snap(&base, &row.snap)))
}

fn fail(target: &mut Subvolume, errno: Errno, why: &str) {
    target.meta.set(GLOBAL, "state", FAILED);
    let errno = errno.code().unsigned_abs().to_string();
    target.meta.set(FAILED, "errno", &errno);
    target.meta.set(FAILED, "error_msg", why);
}

/// How it ended is said in its `.meta`.
pub async fn ended(mount: &Mount, row: &CloneRow, failure: Option<&client::Error>) -> Result<(), Refusal> {
    let Some(mut target) = subvolume::read(mount, &row.group, &row.name).await? else {
        return Ok(());
    };
    if target.state() != IN_PROGRESS {
        return Ok(());
    }
    match failure {
        None => target.meta.set(GLOBAL, "state", COMPLETE),
        Some(e) => fail(&mut target, e.errno(), &e.to_string()),
    }
    subvolume::write_meta(mount, &target.base, &target.meta).await
}

/// Copies what there is, with its quota at the end. `goes_on`: whether it is wanted still.
pub async fn copy_all(
    mount: &Mount,
    from: &str,
    to: &str,
    goes_on: impl Fn() -> bool,
) -> client::Result<bool> {
    if !copy::tree(mount, from.as_bytes(), to.as_bytes(), &goes_on).await? {
        return Ok(false);
    }
    let quota = mount.stat(from).await?.quota;
    if quota.max_bytes > 0 {
        let value = quota.max_bytes.to_string();
        mount.setxattr(to, "ceph.quota.max_bytes", value).await?;
    }
    Ok(true)
}
