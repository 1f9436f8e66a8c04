//! Snapshots of subvolumes and of groups: of the directory that has `.meta`, so that it says what it is in them, too.

use crate::args::{Args, Refusal, check_name, failed, refusal};
use crate::place::{NAMES_MAX, Place};
use crate::subvolume;
use crate::{clone, group, metadata, show, trash};
use cephfs::in_snap;
use cluster::volumes::{Done, Said};
use messages::fs::InodeStat;
use serde_json::json;
use std::collections::BTreeMap;
use types::Errno;

fn absent(name: &str) -> Refusal {
    refusal(Errno::ENOENT, format!("snapshot '{name}' does not exist"))
}

fn named(args: &Args) -> Result<&str, Refusal> {
    check_name("snapshot", args.text("snap_name"))
}

/// Its own: those of the directories above are called otherwise.
pub async fn own(place: &Place<'_>, dir: &str) -> Result<Vec<String>, Refusal> {
    let all = place.mount.snaps(dir, NAMES_MAX).await.map_err(failed)?;
    let names = all
        .into_iter()
        .map(|e| String::from_utf8_lossy(&e.name).into_owned());
    Ok(names.filter(|n| !n.starts_with('_')).collect())
}

/// A subvolume's snapshot, as the directory with `.meta` was.
pub async fn find(place: &Place<'_>, base: &str, name: &str) -> Result<InodeStat, Refusal> {
    let found = place.mount.find(in_snap(base, name)).await.map_err(failed)?;
    found.ok_or_else(|| absent(name))
}

async fn make(place: &Place<'_>, dir: &str, name: &str) -> Done {
    match place.mount.mksnap(dir, name, &BTreeMap::new()).await {
        Ok(()) => Ok(Said::Nothing),
        Err(e) if e.errno() == Errno::EEXIST => {
            let why = format!("snapshot '{name}' exists");
            Err(refusal(Errno::EEXIST, why))
        }
        Err(e) => Err(refusal(
            e.errno(),
            format!("error in mkdir /{dir}/.snap/{name}: {e}"),
        )),
    }
}

async fn remove(place: &Place<'_>, dir: &str, name: &str, force: bool) -> Result<(), Refusal> {
    match place.mount.rmsnap(dir, name).await {
        Err(e) if e.is_not_found() && force => Ok(()),
        Err(e) if e.is_not_found() => Err(absent(name)),
        done => done.map_err(failed),
    }
}

pub async fn create(place: &Place<'_>, args: &Args) -> Done {
    let (found, name) = (subvolume::find(place, args).await?, named(args)?);
    make(place, &found.base, name).await
}

pub async fn ls(place: &Place<'_>, args: &Args) -> Done {
    let found = subvolume::with_snapshots(place, args).await?;
    let all = own(place, &found.base).await?;
    Ok(show::names(all.into_iter()))
}

pub async fn rm(place: &Place<'_>, args: &Args) -> Done {
    let name = named(args)?;
    let mut found = match subvolume::with_snapshots(place, args).await {
        Err((Errno::ENOENT, _)) if args.flag("force") => return Ok(Said::Nothing),
        found => found?,
    };
    if clone::is_source(place, &found, name) {
        let why = format!("snapshot '{name}' has pending clones");
        return Err(refusal(Errno::EAGAIN, why));
    }
    remove(place, &found.base, name, args.flag("force")).await?;
    metadata::forget(place, &mut found, name).await?;
    if found.is_retained() && own(place, &found.base).await?.is_empty() {
        // Nothing is left of it.
        trash::discard(place, &found.base).await?;
    }
    Ok(Said::Nothing)
}

pub async fn info(place: &Place<'_>, args: &Args) -> Done {
    let (found, name) = (subvolume::with_snapshots(place, args).await?, named(args)?);
    let data = subvolume::data_in(place, &found, name).await?;
    let stat = place.mount.stat(&data).await.map_err(failed)?;
    let pool = i64::from(stat.layout.pool);
    let pool = place.pools.iter().find(|(id, _)| *id == pool);
    let pending = clone::is_source(place, &found, name);
    Ok(Said::Json(json!({
        "created_at": show::time_exact(stat.snap_btime),
        "data_pool": pool.map_or("", |(_, n)| n.as_str()),
        "has_pending_clones": if pending { "yes" } else { "no" },
        "size": stat.rbytes,
    })))
}

/// Of old: every snapshot is protected while it is copied.
pub async fn protect(place: &Place<'_>, args: &Args) -> Done {
    let (found, name) = (subvolume::with_snapshots(place, args).await?, named(args)?);
    find(place, &found.base, name).await?;
    Ok(Said::Nothing)
}

// Of groups

pub async fn group_create(place: &Place<'_>, args: &Args) -> Done {
    let (dir, name) = (group::existing(place, args).await?, named(args)?);
    make(place, &dir, name).await
}

pub async fn group_ls(place: &Place<'_>, args: &Args) -> Done {
    let dir = group::existing(place, args).await?;
    let all = own(place, &dir).await?;
    Ok(show::names(all.into_iter()))
}

pub async fn group_rm(place: &Place<'_>, args: &Args) -> Done {
    let (dir, name) = (group::existing(place, args).await?, named(args)?);
    remove(place, &dir, name, args.flag("force")).await?;
    Ok(Said::Nothing)
}
