//! The files that clients read: ceph.conf and the administrator's keyring.

use crate::{AuthMode, DataDir, Error, Settings};
use auth::print_section;
use io::files;
use metastore::{ClusterHandle, ClusterState};
use types::monmap::MonMap;
use types::{AuthName, EntityKind};

/// Writes both again whenever a monitor came, went or moved, for as long as the process runs.
pub async fn keep(dir: DataDir, settings: Settings, cluster: ClusterHandle) {
    let mut changes = cluster.subscribe_state();
    let mut written = cluster.state().monmap.clone();
    while changes.changed().await.is_ok() {
        let state = cluster.state();
        if state.monmap == written {
            continue;
        }
        if let Err(e) = write(&dir, &settings, &state) {
            tracing::warn!("the files of clients are not up to date: {e}");
        }
        written = state.monmap.clone();
    }
}

/// Writes both; the keyring is for its owner alone.
pub fn write(dir: &DataDir, settings: &Settings, state: &ClusterState) -> Result<(), Error> {
    let fail = |what: &std::path::Path| {
        let path = what.to_path_buf();
        move |source| Error::DataDir { path, source }
    };
    files::replace(&dir.conf_path(), conf(dir, settings, &state.monmap), 0o644)
        .map_err(fail(&dir.conf_path()))?;
    let admin = AuthName::new(EntityKind::Client, "admin");
    if let Some(entity) = state.auth.get(&admin) {
        let path = dir.keyring_path();
        files::replace(&path, print_section(&admin, entity), 0o600).map_err(fail(&path))?;
    }
    Ok(())
}

fn conf(dir: &DataDir, settings: &Settings, mons: &MonMap) -> String {
    let hosts: Vec<String> = mons.by_rank().map(|m| format!("[{}]", m.addrs.first())).collect();
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
         keyring = {}/$cluster.$name.keyring\n",
        settings.fsid,
        hosts.join(","),
        dir.root().display(),
    )
}
