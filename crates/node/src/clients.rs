//! The files that clients read: ceph.conf and the administrator's keyring.

use crate::{AuthMode, DataDir, Error, Settings};
use auth::{KeyDb, print_section};
use io::files;
use types::{AuthName, EntityAddr, EntityKind};

/// Writes both; the keyring is for its owner alone.
pub fn write(dir: &DataDir, settings: &Settings, mon: EntityAddr, keys: &KeyDb) -> Result<(), Error> {
    let fail = |what: &std::path::Path| {
        let path = what.to_path_buf();
        move |source| Error::DataDir { path, source }
    };
    files::replace(&dir.conf_path(), &conf(dir, settings, mon), 0o644).map_err(fail(&dir.conf_path()))?;
    let admin = AuthName::new(EntityKind::Client, "admin");
    if let Some(entity) = keys.get(&admin) {
        let path = dir.keyring_path();
        files::replace(&path, &print_section(&admin, entity), 0o600).map_err(fail(&path))?;
    }
    Ok(())
}

fn conf(dir: &DataDir, settings: &Settings, mon: EntityAddr) -> String {
    let method = match settings.auth {
        AuthMode::Cephx => "cephx",
        AuthMode::None => "none",
    };
    format!(
        "# Written by skep at every start: for clients of this store.\n\
         [global]\n\
         fsid = {}\n\
         mon_host = [{mon}]\n\
         auth_cluster_required = {method}\n\
         auth_service_required = {method}\n\
         auth_client_required = {method}\n\
         keyring = {}/$cluster.$name.keyring\n",
        settings.fsid,
        dir.root().display(),
    )
}
