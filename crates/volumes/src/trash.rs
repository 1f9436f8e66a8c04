//! Removal: one rename into the trash, which is purged in the background.

use crate::args::{Args, Refusal, failed, refusal};
use crate::meta::{CANCELED, COMPLETE, FAILED, GLOBAL, IN_PROGRESS, PENDING, RETAINED};
use crate::place::Place;
use crate::{authorize, group, subvolume};
use cephfs::{Cursor, Entry, Mount};
use cluster::volumes::{Done, Said, purge_key};
use cluster::{Change, Changes, ClusterState};
use rbd_support::{Config, is_broken};
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
        Some(stat) if stat.rsnaps > 0 => return retain(place, in_group, name).await,
        Some(_) => check_state(place, args, in_group, name).await?,
        None if args.flag("force") => return Ok(Said::Nothing),
        None => {
            let why = format!("subvolume '{name}' does not exist");
            return Err(refusal(Errno::ENOENT, why));
        }
    }
    authorize::revoke_all(place, in_group, name).await?;
    discard(place, &base).await?;
    authorize::forget(place, in_group, name).await?;
    Ok(Said::Nothing)
}

/// A clone that is being copied is canceled first.
async fn check_state(place: &Place<'_>, args: &Args, in_group: &str, name: &str) -> Result<(), Refusal> {
    let found = match subvolume::any(place, in_group, name).await {
        // What nobody can read can go.
        Err(_) => return Ok(()),
        found => found?,
    };
    match found.as_ref().map_or(COMPLETE, |s| s.state()) {
        PENDING | IN_PROGRESS => {}
        FAILED | CANCELED if !args.flag("force") => {}
        _ => return Ok(()),
    }
    Err(subvolume::not_ready(
        name,
        found.as_ref().map_or("", |s| s.state()),
    ))
}

/// The data go, the snapshots stay.
async fn retain(place: &Place<'_>, in_group: &str, name: &str) -> Done {
    let found = subvolume::any(place, in_group, name).await?;
    let mut found = found.ok_or_else(|| subvolume::absent(name))?;
    match found.state() {
        COMPLETE => {}
        RETAINED => return Ok(Said::Nothing),
        state => return Err(subvolume::not_ready(name, state)),
    }
    authorize::revoke_all(place, in_group, name).await?;
    match discard(place, found.checked_data()?).await {
        // It was begun before.
        Err((Errno::ENOENT, _)) => {}
        done => done?,
    }
    found.meta.set(GLOBAL, "path", "");
    found.meta.set(GLOBAL, "state", RETAINED);
    subvolume::write_meta(place.mount, &found.base, &found.meta).await?;
    authorize::forget(place, in_group, name).await?;
    Ok(Said::Nothing)
}

/// Moves a directory into the trash.
pub async fn discard(place: &Place<'_>, path: &str) -> Result<(), Refusal> {
    wanted(place).await?;
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
    place.mount.rename(path, &to).await.map_err(failed)?;
    // Another monitor's worker may have seen the trash empty meanwhile.
    wanted(place).await
}

/// Durable before something is moved into the trash.
async fn wanted(place: &Place<'_>) -> Result<(), Refusal> {
    let decide = |state: &ClusterState| {
        let key = purge_key(place.fscid);
        match state.config_keys.contains_key(&key) {
            true => (Changes::none(), ()),
            false => {
                let value = bytes::Bytes::from_static(b"1");
                (Changes::one(Change::ConfigKeySet { key, value }), ())
            }
        }
    };
    let done = place.config.cluster.commit(decide).await;
    done.map(drop).map_err(|e| refusal(Errno::EIO, e.to_string()))
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

/// Removes what is in the trash by now; how many names went. What cannot be removed does not keep others there: the first such
/// error is told at the end.
pub async fn purge(mount: &Mount, used: impl Fn()) -> (u64, client::Result<()>) {
    let (mut purged, mut first) = (0, Ok(()));
    let mut at = None;
    loop {
        let (entries, next) = match page(mount, at).await {
            Ok(page) => page,
            Err(e) => return (purged, first.and(Err(e))),
        };
        for entry in entries {
            let path = [group::TRASH.as_bytes(), b"/", &entry.name].concat();
            let mut removed = || {
                purged += 1;
                used();
            };
            let done = match entry.is_dir() {
                true => mount.remove_tree(&path, removed).await,
                false => mount.unlink(&path).await.map(|()| removed()),
            };
            match done {
                Err(e) if e.is_not_found() => {}
                // Nobody answers: the others have to wait, too.
                Err(e) if is_broken(e.errno()) || e.errno() == Errno::ETIMEDOUT => return (purged, Err(e)),
                done => first = first.and(done),
            }
        }
        match next {
            Some(next) => at = Some(next),
            None => return (purged, first),
        }
    }
}

/// Some names in the trash; from the beginning, if it is not said from where.
async fn page(mount: &Mount, at: Option<Cursor>) -> client::Result<(Vec<Entry>, Option<Cursor>)> {
    let at = match at {
        Some(at) => at,
        None => match mount.readdir_begin(group::TRASH).await {
            Err(e) if e.is_not_found() => return Ok((Vec::new(), None)),
            begin => begin?,
        },
    };
    mount.readdir_page(group::TRASH, &at).await
}

pub async fn is_empty(mount: &Mount) -> client::Result<bool> {
    let mut at = None;
    loop {
        let (entries, next) = page(mount, at).await?;
        match (entries.is_empty(), next) {
            (false, _) => return Ok(false),
            (true, None) => return Ok(true),
            (true, next) => at = next,
        }
    }
}
