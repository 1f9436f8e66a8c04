//! Removal: one rename into the trash, which is purged in the background.

use crate::args::{Args, failed, refusal};
use crate::place::{NAMES_MAX, Place};
use crate::{authorize, group, subvolume};
use cephfs::Mount;
use cluster::volumes::{Done, Said, purge_key};
use cluster::{Change, Changes, ClusterState};
use rbd_support::Config;
use types::{Errno, Uuid};

const TRASH_MODE: u32 = 0o700;

pub async fn rm(place: &Place<'_>, args: &Args) -> Done {
    let (name, in_group) = match subvolume::named(place, args).await {
        Err((Errno::ENOENT, _)) if args.flag("force") => return Ok(Said::Nothing),
        named => named?,
    };
    let base = subvolume::base_of(in_group, name);
    match place.mount.find(&base).await.map_err(failed)? {
        Some(stat) if stat.rsnaps > 0 && !args.flag("retain_snapshots") => {
            let why = format!("subvolume '{name}' has snapshots");
            return Err(refusal(Errno::ENOTEMPTY, why));
        }
        Some(stat) if stat.rsnaps > 0 => {
            let why = "subvolumes with snapshots cannot be removed yet";
            return Err(refusal(Errno::EOPNOTSUPP, why));
        }
        Some(_) => {}
        None if args.flag("force") => return Ok(Said::Nothing),
        None => {
            let why = format!("subvolume '{name}' does not exist");
            return Err(refusal(Errno::ENOENT, why));
        }
    }
    wanted(place.config, place.fscid)
        .await
        .map_err(|e| refusal(Errno::EIO, e))?;
    place
        .mount
        .mkdirs(group::TRASH, TRASH_MODE)
        .await
        .map_err(failed)?;
    let to = format!(
        "{}/{}",
        group::TRASH,
        Uuid::from_random(place.config.random.bytes())
    );
    place.mount.rename(&base, &to).await.map_err(failed)?;
    authorize::forget(place, in_group, name).await?;
    Ok(Said::Nothing)
}

/// Durable before something is moved into the trash.
async fn wanted(config: &Config, fscid: i32) -> Result<(), String> {
    let decide = |state: &ClusterState| {
        let key = purge_key(fscid);
        match state.config_keys.contains_key(&key) {
            true => (Changes::none(), ()),
            false => {
                let value = bytes::Bytes::from_static(b"1");
                (Changes::one(Change::ConfigKeySet { key, value }), ())
            }
        }
    };
    let done = config.cluster.commit(decide).await;
    done.map(drop).map_err(|e| e.to_string())
}

/// Nothing is left to be purged.
pub async fn settled(config: &Config, fscid: i32) {
    let key = purge_key(fscid);
    let decide = |state: &ClusterState| match state.config_keys.contains_key(&key) {
        true => (Changes::one(Change::ConfigKeyRm { key: key.clone() }), ()),
        false => (Changes::none(), ()),
    };
    if let Err(e) = config.cluster.commit(decide).await {
        // It stands there still, and is looked at again.
        tracing::warn!("the end of a purge is not kept: {e}");
    }
}

/// Removes what is in the trash by now; how many names went.
pub async fn purge(mount: &Mount, used: impl Fn()) -> client::Result<u64> {
    let all = match mount.readdir(group::TRASH, NAMES_MAX).await {
        Err(e) if e.is_not_found() => return Ok(0),
        all => all?,
    };
    let mut purged = 0;
    for entry in all {
        let path = [group::TRASH.as_bytes(), b"/", &entry.name].concat();
        let mut removed = || {
            purged += 1;
            used();
        };
        if entry.is_dir() {
            mount.remove_tree(&path, removed).await?;
        } else {
            mount.unlink(&path).await?;
            removed();
        }
    }
    Ok(purged)
}

pub async fn is_empty(mount: &Mount) -> client::Result<bool> {
    match mount.readdir(group::TRASH, NAMES_MAX).await {
        Err(e) if e.is_not_found() => Ok(true),
        all => Ok(all?.is_empty()),
    }
}
