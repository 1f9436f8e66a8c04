//! Groups: directories that subvolumes lie in.

use crate::args::{Args, Refusal, check_name, failed, invalid, refusal};
use crate::place::{NAMES_MAX, Place};
use crate::show;
use cluster::volumes::{Done, Said};
use messages::fs::{InodeStat, SetAttr, setattr};
use types::Errno;

pub const BASE: &str = "volumes";
pub const NO_GROUP: &str = "_nogroup";
pub const TRASH: &str = "volumes/_deleting";
/// What lies beside groups and is none.
const INTERNAL: [&str; 5] = ["_nogroup", "_deleting", "_legacy", "_upgrades", "_index"];
const MODE: u32 = 0o755;

pub fn path(group: &str) -> String {
    format!("{BASE}/{group}")
}

fn absent(group: &str) -> Refusal {
    refusal(Errno::ENOENT, format!("subvolume group '{group}' does not exist"))
}

/// The group that a command is about.
fn named(args: &Args) -> Result<&str, Refusal> {
    check_group(args.text("group_name"))
}

fn check_group(name: &str) -> Result<&str, Refusal> {
    let name = check_name("subvolume group", name)?;
    match name {
        NO_GROUP => Err(refusal(
            Errno::EPERM,
            format!("Operation not permitted for group '{name}' as it is an internal group."),
        )),
        _ if INTERNAL.contains(&name) => Err(invalid(format!(
            "'{name}' is an internal directory and not a valid group name."
        ))),
        _ => Ok(name),
    }
}

/// The group in which a subvolume is looked for; it is there.
pub async fn of_subvolume<'a>(place: &Place<'_>, args: &'a Args) -> Result<&'a str, Refusal> {
    if args.opt_text("group_name").is_none() {
        return Ok(NO_GROUP);
    }
    let name = named(args)?;
    stat(place, name).await.map(|_| name)
}

/// The same of a clone.
pub async fn of_target<'a>(place: &Place<'_>, args: &'a Args) -> Result<&'a str, Refusal> {
    let Some(name) = args.opt_text("target_group_name") else {
        return Ok(NO_GROUP);
    };
    check_group(name)?;
    stat(place, name).await.map(|_| name)
}

/// The directory of a group that is there.
pub async fn existing(place: &Place<'_>, args: &Args) -> Result<String, Refusal> {
    let name = named(args)?;
    stat(place, name).await.map(|_| path(name))
}

pub async fn stat(place: &Place<'_>, name: &str) -> Result<InodeStat, Refusal> {
    let found = place.mount.find(path(name)).await.map_err(failed)?;
    found.ok_or_else(|| absent(name))
}

/// The data pool that a command names; the default one where it names none. It is one of the file system's.
pub fn pool<'a>(place: &'a Place<'_>, args: &Args) -> Result<Option<&'a str>, String> {
    let Some(name) = args.opt_text("pool_layout") else {
        return Ok(None);
    };
    let found = place.pools.iter().find(|(_, n)| n == name);
    found
        .map(|(_, n)| Some(n.as_str()))
        .ok_or_else(|| name.to_string())
}

/// Owner and mode, as far as they are said.
pub async fn own(
    place: &Place<'_>,
    path: &str,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
) -> Result<(), Refusal> {
    let bit = |there: bool, bit: u32| if there { bit } else { 0 };
    let mask = bit(uid.is_some(), setattr::UID)
        | bit(gid.is_some(), setattr::GID)
        | bit(mode.is_some(), setattr::MODE);
    if mask == 0 {
        return Ok(());
    }
    let set = SetAttr {
        uid: uid.unwrap_or_default(),
        gid: gid.unwrap_or_default(),
        mode: mode.unwrap_or_default(),
        mask,
        ..SetAttr::default()
    };
    place.mount.setattr(path, &set).await.map_err(failed)
}

pub async fn set_quota(place: &Place<'_>, path: &str, size: Option<u64>) -> Result<(), Refusal> {
    let value = size.unwrap_or_default().to_string();
    let set = place.mount.setxattr(path, "ceph.quota.max_bytes", value);
    set.await.map_err(failed)
}

pub async fn set_pool(place: &Place<'_>, path: &str, pool: Option<&str>) -> Result<(), Refusal> {
    let default = place.pools.first().map(|(_, n)| n.as_str());
    let Some(pool) = pool.or(default) else {
        return Ok(());
    };
    let set = place
        .mount
        .setxattr(path, "ceph.dir.layout.pool", pool.to_string());
    set.await.map_err(failed)
}

pub async fn create(place: &Place<'_>, args: &Args) -> Done {
    let (name, size) = (named(args)?, args.size()?);
    let (mode, uid, gid) = (args.mode()?, args.id("uid")?, args.id("gid")?);
    let wanted = pool(place, args).map_err(|name| {
        invalid(format!(
            "Invalid pool layout '{name}'. It must be a valid data pool"
        ))
    })?;
    let path = path(name);
    let is_new = place.mount.find(&path).await.map_err(failed)?.is_none();
    place.mount.mkdirs(&path, MODE).await.map_err(failed)?;
    if is_new || wanted.is_some() {
        set_pool(place, &path, wanted).await?;
    }
    if size.is_some() {
        set_quota(place, &path, size).await?;
    }
    let own_mode = if is_new { Some(mode.unwrap_or(MODE)) } else { mode };
    own(place, &path, uid, gid, own_mode).await?;
    Ok(Said::Nothing)
}

/// Directories under a path, by their names.
pub async fn directories(place: &Place<'_>, path: &str) -> Result<Vec<String>, Refusal> {
    let all = match place.mount.readdir(path, NAMES_MAX).await {
        Err(e) if e.is_not_found() => return Ok(Vec::new()),
        all => all.map_err(failed)?,
    };
    let dirs = all.into_iter().filter(cephfs::Entry::is_dir);
    Ok(dirs
        .map(|e| String::from_utf8_lossy(&e.name).into_owned())
        .collect())
}

pub async fn ls(place: &Place<'_>) -> Done {
    let all = directories(place, BASE).await?;
    let groups = all.into_iter().filter(|n| !INTERNAL.contains(&n.as_str()));
    Ok(show::names(groups))
}

pub async fn exist(place: &Place<'_>) -> Done {
    let all = directories(place, BASE).await?;
    let any = all.iter().any(|n| !INTERNAL.contains(&n.as_str()));
    let said = if any {
        "subvolumegroup exists"
    } else {
        "no subvolumegroup exists"
    };
    Ok(Said::Text(said.into()))
}

pub async fn rm(place: &Place<'_>, args: &Args) -> Done {
    let name = named(args)?;
    match place.mount.rmdir(path(name)).await {
        Ok(()) => Ok(Said::Nothing),
        Err(e) if e.is_not_found() && args.flag("force") => Ok(Said::Nothing),
        Err(e) if e.is_not_found() => Err(absent(name)),
        Err(e) => Err(refusal(e.errno(), format!("error in rmdir /{}", path(name)))),
    }
}

pub async fn getpath(place: &Place<'_>, args: &Args) -> Done {
    let name = named(args)?;
    stat(place, name).await?;
    Ok(Said::Text(format!("/{}", path(name))))
}

pub async fn info(place: &Place<'_>, args: &Args) -> Done {
    let stat = stat(place, named(args)?).await?;
    Ok(show::sorted(show::directory(place, &stat)))
}

pub async fn resize(place: &Place<'_>, args: &Args) -> Done {
    let name = named(args)?;
    let size = args.new_size("subvolume group")?;
    let used = stat(place, name).await?.rbytes;
    check_shrink(args, "subvolumegroup", size, used)?;
    set_quota(place, &path(name), size).await?;
    Ok(show::resized(used, size))
}

pub fn check_shrink(args: &Args, what: &str, size: Option<u64>, used: u64) -> Result<(), Refusal> {
    match size {
        Some(size) if args.flag("no_shrink") && size < used => Err(invalid(format!(
            "Can't resize the {what}. The new size '{size}' would be lesser than the current used size '{used}'"
        ))),
        _ => Ok(()),
    }
}
