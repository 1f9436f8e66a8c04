//! The files that clients read: ceph.conf and the administrator's keyring.

use crate::{AuthMode, DataDir, Error, Settings};
use auth::print_section;
use cluster::ClusterState;
use io::{files, task};
use metastore::ClusterHandle;
use std::io::ErrorKind;
use std::path::Path;
use types::{AuthName, EntityKind};

/// What clients have to know before they can ask a monitor for their configuration.
const FOR_CLIENTS: [&str; 2] = ["ms_client_mode", "ms_mon_client_mode"];

/// Writes both again whenever a monitor came, went or moved, or clients are to be told something else, or the administrator
/// has another key, for as long as the process runs; on a thread of their own, one at a time, since the caller's looks after
/// all roles, and a disk may not answer.
pub async fn keep(dir: DataDir, settings: Settings, cluster: ClusterHandle) {
    let mut changes = cluster.subscribe_state();
    // What they were written from. The first time nothing is replaced, unless it changed since the start.
    let mut written = None;
    loop {
        let state = changes.borrow_and_update().clone();
        let from = Some((state.monmap.clone(), options(&state), keyring(&state)));
        if from != written {
            let (dir, settings) = (dir.clone(), settings.clone());
            let done = task::aside("clients", move || write(&dir, &settings, &state)).await;
            if let Err(e) = done.map_err(Error::Thread).flatten() {
                tracing::warn!("the files of clients are not up to date: {e}");
            }
            written = from;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// The administrator's.
fn keyring(state: &ClusterState) -> Option<String> {
    let admin = AuthName::new(EntityKind::Client, "admin");
    let entity = state.auth.get(&admin)?;
    Some(print_section(&admin, entity))
}

/// Writes both, for the owner alone.
pub fn write(dir: &DataDir, settings: &Settings, state: &ClusterState) -> Result<(), Error> {
    put(&dir.conf_path(), &conf(dir, settings, state), files::PRIVATE_FILE)?;
    match keyring(state) {
        Some(text) => put(&dir.keyring_path(), &text, files::PRIVATE_FILE),
        None => Ok(()),
    }
}

/// Replaces a file whose text is another. On a disk without room one that is there stays as it is: who has no room left
/// needs what the store holds more than its newest addresses.
fn put(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let there = files::read(path).ok().flatten();
    if there.as_deref() == Some(text) {
        return Ok(());
    }
    match files::replace(path, text, mode) {
        Err(e) if e.kind() == ErrorKind::StorageFull && there.is_some() => {
            tracing::warn!("{} is not up to date: {e}", path.display());
            Ok(())
        }
        done => done.map_err(|source| Error::DataDir {
            path: path.to_path_buf(),
            source,
        }),
    }
}

/// Lines of the central configuration for clients in general.
fn options(state: &ClusterState) -> String {
    let set = |name: &&str| {
        let config = &state.config;
        let value = config.get("client", name).or_else(|| config.get("global", name));
        value.map(|v| format!("{name} = {v}\n"))
    };
    FOR_CLIENTS.iter().filter_map(set).collect()
}

fn conf(dir: &DataDir, settings: &Settings, state: &ClusterState) -> String {
    let mons = state.monmap.by_rank();
    let hosts: Vec<String> = mons.map(|m| m.addrs.bracketed()).collect();
    let method = match settings.auth {
        AuthMode::Cephx => "cephx",
        AuthMode::None => "none",
    };
    format!(
        "# Written by skep at every start: for clients of this store.\n\
         [global]\n\
         fsid = {}\n\
         mon_host = {}\n\
         auth_cluster_required = {method}\n\
         auth_service_required = {method}\n\
         auth_client_required = {method}\n\
         keyring = {}/$cluster.$name.keyring\n{}",
        settings.fsid,
        hosts.join(","),
        dir.root().display(),
        options(state),
    )
}
