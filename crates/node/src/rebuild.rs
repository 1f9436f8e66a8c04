//! `skep cluster rebuild`: the cluster state again from the copies beside the OSDs' stores (`copies.rs`).
//!
//! The newest readable copy of this cluster is taken whole. What was committed after it is lost: settings, keys, pools, and
//! where PGs' copies are. Two things that must never be given twice are moved ahead by more than can have been
//! lost: OSD map epochs by [`EPOCHS_AHEAD`], global ids by [`IDS_AHEAD`].
//!
//! Only where nothing is left: an etcd that holds a cluster, or a file that can be read, is never overwritten.

use crate::copies::Copy;
use crate::move_state::copy;
use crate::platform::Platform;
use crate::state::{bad, embedded_store, etcd_store};
use crate::{DataDir, Error, Settings};
use cluster::{Change, Changes};
use metastore::kv::Range;
use metastore::{ClusterHandle, Kv, Metastore};
use std::path::PathBuf;
use std::sync::Arc;
use types::{Utime, Uuid};

const EPOCHS_AHEAD: u32 = 64;
const IDS_AHEAD: u64 = 1 << 24;

/// What was found and done.
#[derive(Debug)]
pub struct Rebuilt {
    pub fsid: Uuid,
    /// Of the copy that was taken: how many commits it has seen, and when it was made.
    pub version: u64,
    pub stamp: Utime,
    /// Every OSD directory that was looked at: its copy's version, or why it has none.
    pub found: Vec<(PathBuf, Result<u64, String>)>,
}

/// `from`: data directories of other machines of this cluster, as copied or mounted here.
pub async fn rebuild(dir: &DataDir, from: &[PathBuf], progress: &dyn Fn(&str)) -> Result<Rebuilt, Error> {
    let _lock = dir.lock()?;
    let settings = dir
        .settings()?
        .ok_or_else(|| Error::NoStore(dir.root().to_path_buf()))?;
    let fsid = settings.fsid()?;
    progress("looking for copies");
    let mut found = Vec::new();
    let mut best: Option<Copy> = None;
    for root in std::iter::once(dir.root().to_path_buf()).chain(from.iter().cloned()) {
        let names = io::files::list_dir(&root).map_err(|source| Error::DataDir {
            path: root.clone(),
            source,
        })?;
        for name in names.iter().filter(|n| n.starts_with("osd.")) {
            let path = root.join(name);
            let copy = Copy::read(&path).and_then(|c| match c.fsid == fsid {
                true => Ok(c),
                false => Err(format!("of cluster {}", c.fsid)),
            });
            found.push((path, copy.as_ref().map(|c| c.version).map_err(String::clone)));
            if let Ok(copy) = copy
                && best.as_ref().is_none_or(|b| b.version < copy.version)
            {
                best = Some(copy);
            }
        }
    }
    let Some(best) = best else {
        return Err(Error::Cluster(format!(
            "no copy of the state of cluster {fsid} beside any of {} OSDs",
            found.len()
        )));
    };
    let platform = Platform::system();
    let store = empty_store(dir, &settings, &platform, progress).await?;
    progress("writing");
    let rows: Vec<Kv> = best
        .rows
        .iter()
        .map(|(key, value)| Kv {
            key: key.clone(),
            value: value.clone(),
            revision: 0,
            lease: None,
        })
        .collect();
    copy(&*store, &rows).await?;
    let (there, _) = store.range(Range::prefix("")).await.map_err(bad)?;
    if !there
        .iter()
        .map(|kv| (&kv.key, &kv.value))
        .eq(best.rows.iter().map(|(k, v)| (k, v)))
    {
        return Err(Error::Cluster("what was written does not read back".into()));
    }
    progress("moving epochs ahead");
    move_ahead(store, &platform).await?;
    Ok(Rebuilt {
        fsid,
        version: best.version,
        stamp: best.stamp,
        found,
    })
}

/// The place of the cluster state, with no cluster in it.
async fn empty_store(
    dir: &DataDir,
    settings: &Settings,
    platform: &Platform,
    progress: &dyn Fn(&str),
) -> Result<Arc<dyn Metastore>, Error> {
    let cluster_there = async |store: &Arc<dyn Metastore>| {
        let found = store.get(cluster::keys::CLUSTER).await;
        found.map(|kv| kv.is_some()).map_err(bad)
    };
    let refuse = |place: String| {
        Err(Error::Usage(format!(
            "{place} holds a cluster: there is nothing to rebuild"
        )))
    };
    if let Some(etcd) = &settings.etcd {
        let store = etcd_store(etcd, platform, progress).await?;
        return match cluster_there(&store).await? {
            true => refuse(format!("etcd at {}", etcd.endpoints.join(", "))),
            false => Ok(store),
        };
    }
    match embedded_store(dir, platform) {
        Ok(store) => match cluster_there(&store).await? {
            true => refuse(dir.state_path().display().to_string()),
            false => Ok(store),
        },
        Err(e) => {
            let kept = dir.cluster_path().join("state.redb.damaged");
            tracing::warn!("{e}; it is kept as {}", kept.display());
            io::files::rename(&dir.state_path(), &kept)
                .map_err(|source| Error::DataDir { path: kept, source })?;
            embedded_store(dir, platform)
        }
    }
}

async fn move_ahead(store: Arc<dyn Metastore>, platform: &Platform) -> Result<(), Error> {
    let cluster = ClusterHandle::open(store, platform.clock.clone())
        .await
        .map_err(bad)?
        .ok_or_else(|| Error::Cluster("the copy holds no cluster".into()))?;
    let ids = |limit: u64| Changes::one(Change::GlobalIdLimit(limit + IDS_AHEAD));
    cluster
        .commit(|state| (ids(state.global_id_limit), ()))
        .await
        .map_err(bad)?;
    for _ in 0..EPOCHS_AHEAD {
        cluster
            .commit(|state| {
                let mut changes = Changes::none();
                changes.inc(state, cluster.now());
                (changes, ())
            })
            .await
            .map_err(bad)?;
    }
    Ok(())
}
