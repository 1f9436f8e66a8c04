//! Subvolumes: made, found, described, resized; what users keep in their `.meta`.
//!
//! A directory without a `.meta` is one whose making was cut short: it is listed, can be removed, and is made whole by asking again.

use crate::args::{Args, Refusal, check_name, failed, invalid, refusal};
use crate::meta::{COMPLETE, GLOBAL, Meta, RETAINED};
use crate::place::Place;
use crate::{group, show};
use bytes::Bytes;
use cephfs::{Mount, in_snap};
use cluster::volumes::{Done, Said};
use messages::fs::InodeStat;
use serde_json::json;
use types::{Errno, Uuid};

const META_MODE: u32 = 0o640;
/// What a user may keep of a subvolume, in all.
const META_MAX: usize = 256 << 10;

/// One that is there.
pub struct Subvolume {
    pub group: String,
    pub name: String,
    /// `volumes/GROUP/NAME`.
    pub base: String,
    pub meta: Meta,
}

pub fn absent(name: &str) -> Refusal {
    refusal(Errno::ENOENT, format!("subvolume '{name}' does not exist"))
}

pub fn base_of(group: &str, name: &str) -> String {
    format!("{}/{name}", group::path(group))
}

/// Name and group of what a command is about.
pub async fn named<'a>(place: &Place<'_>, args: &'a Args) -> Result<(&'a str, &'a str), Refusal> {
    let name = check_name("subvolume", args.text("sub_name"))?;
    Ok((name, group::of_subvolume(place, args).await?))
}

async fn read_meta(mount: &Mount, base: &str) -> Result<Option<Meta>, Refusal> {
    let text = match mount.read_all(format!("{base}/.meta")).await {
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) if e.errno() == Errno::ENOTDIR => return Ok(None),
        text => text.map_err(failed)?,
    };
    let meta = std::str::from_utf8(&text).ok().and_then(Meta::parse);
    meta.map(Some)
        .ok_or_else(|| refusal(Errno::EIO, format!("'/{base}/.meta' cannot be read")))
}

pub async fn write_meta(mount: &Mount, base: &str, meta: &Meta) -> Result<(), Refusal> {
    let text = meta.text();
    if text.len() > META_MAX {
        return Err(refusal(Errno::ENOSPC, "the subvolume's metadata are too large"));
    }
    let write = mount.write_all(format!("{base}/.meta"), META_MODE, Bytes::from(text));
    write.await.map_err(failed)
}

/// One that may be used.
pub async fn find(place: &Place<'_>, args: &Args) -> Result<Subvolume, Refusal> {
    let (name, group) = named(place, args).await?;
    let found = any(place, group, name).await?.ok_or_else(|| absent(name))?;
    match found.state() {
        COMPLETE => Ok(found),
        RETAINED => {
            let why = format!("subvolume '{name}' is removed and has only snapshots retained");
            Err(refusal(Errno::ENOENT, why))
        }
        state => Err(not_ready(name, state)),
    }
}

pub fn not_ready(name: &str, state: &str) -> Refusal {
    let why = format!("subvolume '{name}' is not ready for this operation: its state is '{state}'");
    refusal(Errno::EAGAIN, why)
}

/// One that may have snapshots, though its data be gone.
pub async fn with_snapshots(place: &Place<'_>, args: &Args) -> Result<Subvolume, Refusal> {
    let (name, group) = named(place, args).await?;
    match any(place, group, name).await? {
        Some(found) if found.is_retained() => Ok(found),
        _ => find(place, args).await,
    }
}

/// One that is whole.
pub async fn at(place: &Place<'_>, group: &str, name: &str) -> Result<Option<Subvolume>, Refusal> {
    let found = any(place, group, name).await?;
    Ok(found.filter(|s| s.state() == COMPLETE))
}

/// In whatever state; None also where its making was cut short.
pub async fn any(place: &Place<'_>, group: &str, name: &str) -> Result<Option<Subvolume>, Refusal> {
    read(place.mount, group, name).await
}

pub async fn read(mount: &Mount, group: &str, name: &str) -> Result<Option<Subvolume>, Refusal> {
    let base = base_of(group, name);
    let meta = read_meta(mount, &base).await?;
    Ok(meta.map(|meta| Subvolume {
        group: group.to_string(),
        name: name.to_string(),
        base,
        meta,
    }))
}

/// As it was when a snapshot was made.
pub async fn in_snapshot(place: &Place<'_>, of: &Subvolume, snap: &str) -> Result<Subvolume, Refusal> {
    in_snapshot_of(place.mount, of, snap).await
}

/// Where the data lie in a snapshot.
pub async fn data_in(place: &Place<'_>, found: &Subvolume, snap: &str) -> Result<String, Refusal> {
    let then = in_snapshot(place, found, snap).await?;
    let data = then.checked_data()?;
    let below = data.strip_prefix(&found.base).unwrap_or_default();
    Ok(format!("{}{below}", in_snap(&found.base, snap)))
}

pub async fn in_snapshot_of(mount: &Mount, of: &Subvolume, snap: &str) -> Result<Subvolume, Refusal> {
    let meta = read_meta(mount, &in_snap(&of.base, snap)).await?;
    let gone = || refusal(Errno::ENOENT, format!("snapshot '{snap}' does not exist"));
    Ok(Subvolume {
        group: of.group.clone(),
        name: of.name.clone(),
        base: of.base.clone(),
        meta: meta.ok_or_else(gone)?,
    })
}

impl Subvolume {
    pub fn state(&self) -> &str {
        self.meta.get(GLOBAL, "state").unwrap_or_default()
    }

    pub fn is_retained(&self) -> bool {
        self.state() == RETAINED
    }

    /// From the root, with a leading slash.
    pub fn path(&self) -> &str {
        self.meta.get(GLOBAL, "path").unwrap_or_default()
    }

    pub fn data(&self) -> &str {
        self.path().trim_start_matches('/')
    }

    /// A path that lies elsewhere is somebody's slip or malice.
    pub fn checked_data(&self) -> Result<&str, Refusal> {
        let data = self.data();
        let below = data
            .strip_prefix(&self.base)
            .and_then(|rest| rest.strip_prefix('/'));
        let bad = |part: &str| matches!(part, "" | "." | "..");
        match below {
            Some(rest) if !rest.split('/').any(bad) => Ok(data),
            _ => Err(refusal(
                Errno::EIO,
                format!("'/{}/.meta' names another path", self.base),
            )),
        }
    }

    pub async fn stat(&self, place: &Place<'_>) -> Result<InodeStat, Refusal> {
        place.mount.stat(self.checked_data()?).await.map_err(failed)
    }
}

pub async fn create(place: &Place<'_>, args: &Args) -> Done {
    let size = args.size()?;
    let (mode, uid, gid) = (args.mode_or_default()?, args.id("uid")?, args.id("gid")?);
    let pool = group::pool(place, args)
        .map_err(|name| invalid(format!("invalid pool layout '{name}' -- need a valid data pool")))?;
    let (name, in_group) = named(place, args).await?;
    let isolated = args
        .flag("namespace_isolated")
        .then(|| format!("fsvolumens_{name}"));
    let found = any(place, in_group, name).await?;
    let found = match found {
        Some(s) if s.state() == COMPLETE => Some(s),
        // With new data beside its old snapshots.
        None => None,
        Some(s) if s.is_retained() => None,
        Some(s) => return Err(not_ready(name, s.state())),
    };
    let is_new = found.is_none();
    let (base, data) = match &found {
        Some(s) => (s.base.clone(), s.checked_data()?.to_string()),
        None => {
            let base = base_of(in_group, name);
            let uuid = Uuid::from_random(place.config.random.bytes());
            (base.clone(), format!("{base}/{uuid}"))
        }
    };
    let made = async {
        if is_new {
            place.mount.mkdirs(group::path(in_group), 0o755).await?;
            place.mount.mkdirs(&base, mode).await?;
            place.mount.setxattr(&base, "ceph.dir.subvolume", "1").await?;
            place.mount.mkdir(&data, mode).await?;
        }
        Ok(())
    };
    made.await.map_err(failed)?;
    if is_new || pool.is_some() {
        group::set_pool(place, &data, pool).await?;
    }
    if let Some(namespace) = isolated {
        let set = place
            .mount
            .setxattr(&data, "ceph.dir.layout.pool_namespace", namespace);
        set.await.map_err(failed)?;
    }
    if size.is_some() {
        group::set_quota(place, &data, size).await?;
    }
    // As the real one: asked again, the mode is what is said this time, or the default.
    group::own(place, &data, uid, gid, Some(mode)).await?;
    if is_new {
        write_meta(place.mount, &base, &Meta::of_path(&format!("/{data}"))).await?;
    }
    Ok(Said::Nothing)
}

pub async fn ls(place: &Place<'_>, args: &Args) -> Done {
    let group = group::of_subvolume(place, args).await?;
    let all = group::directories(place, &group::path(group)).await?;
    Ok(show::names(all.into_iter()))
}

pub async fn exist(place: &Place<'_>, args: &Args) -> Done {
    let group = group::of_subvolume(place, args).await?;
    let all = group::directories(place, &group::path(group)).await?;
    let said = if all.is_empty() {
        "no subvolume exists"
    } else {
        "subvolume exists"
    };
    Ok(Said::Text(said.into()))
}

pub async fn getpath(place: &Place<'_>, args: &Args) -> Done {
    let found = find(place, args).await?;
    Ok(Said::Text(found.path().to_string()))
}

/// What clients ask for before they use it.
const FEATURES: [&str; 3] = ["snapshot-clone", "snapshot-autoprotect", "snapshot-retention"];

pub async fn info(place: &Place<'_>, args: &Args) -> Done {
    let found = with_snapshots(place, args).await?;
    if found.is_retained() {
        return Ok(Said::Json(json!({
            "features": FEATURES,
            "state": RETAINED,
            "type": "subvolume",
        })));
    }
    let stat = found.stat(place).await?;
    let mut out = show::directory(place, &stat);
    out.insert("features".into(), json!(FEATURES));
    out.insert("path".into(), found.path().into());
    out.insert("pool_namespace".into(), stat.pool_ns.clone().into());
    out.insert("state".into(), COMPLETE.into());
    let kind = found.meta.get(GLOBAL, "type").unwrap_or("subvolume");
    out.insert("type".into(), kind.into());
    Ok(show::sorted(out))
}

pub async fn resize(place: &Place<'_>, args: &Args) -> Done {
    let found = find(place, args).await?;
    let size = args.new_size("subvolume")?;
    let used = found.stat(place).await?.rbytes;
    group::check_shrink(args, "subvolume", size, used)?;
    group::set_quota(place, found.data(), size).await?;
    Ok(show::resized(used, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_lie_in_their_subvolume() {
        let checked = |path: &str| {
            let s = Subvolume {
                group: group::NO_GROUP.into(),
                name: "a".into(),
                base: "volumes/_nogroup/a".into(),
                meta: Meta::of_path(path),
            };
            s.checked_data().map(str::to_string)
        };
        assert_eq!(
            checked("/volumes/_nogroup/a/0f"),
            Ok("volumes/_nogroup/a/0f".into())
        );
        for path in [
            "/",
            "/volumes/_nogroup/a",
            "/volumes/_nogroup/ab/0f",
            "/volumes/_nogroup/a/../b",
        ] {
            assert!(checked(path).is_err(), "{path}");
        }
    }
}
