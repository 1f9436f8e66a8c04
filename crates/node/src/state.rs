//! Opens the cluster state: the local file, or etcd, and settles what belongs to which cluster.
//!
//! Invariants: a directory serves one cluster for ever. A cluster is made only where somebody said so (`--create`, or
//! the first start of a store without etcd); a store that served never makes one anew, so an etcd that was
//! wiped, or is another one, is an error and not an empty cluster.

use crate::datadir::MON;
use crate::platform::Platform;
use crate::settle::{First, StartOptions, fixed, planned, settle};
use crate::{DataDir, Error, EtcdSettings, Settings};
use cluster::{Change, Changes, ClusterState, CreateOptions};
use crush::FailureDomain;
use etcd::Etcd;
use metastore::{ClusterHandle, Embedded, Metastore, create_cluster};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use types::{EntityAddr, EntityAddrVec};

pub(crate) fn bad(e: metastore::Error) -> Error {
    Error::Cluster(e.to_string())
}

/// The settings, and the cluster they name.
pub(crate) async fn open(
    dir: &DataDir,
    o: &StartOptions,
    platform: &Platform,
    progress: &dyn Fn(&str),
) -> Result<(Settings, ClusterHandle), Error> {
    let known = dir.settings()?;
    let etcd = match (&known, &o.etcd) {
        (Some(known), Some(_)) if known.etcd.is_none() => {
            return Err(Error::Usage(
                "this store keeps its cluster state in a local file; `skep cluster move-to-etcd` moves it"
                    .into(),
            ));
        }
        (Some(known), None) => known.etcd.clone(),
        (_, asked) => asked.clone(),
    };
    let old = known.as_ref().and_then(|k| k.etcd.as_ref());
    if let (Some(old), Some(asked)) = (old, &etcd)
        && old.prefix != asked.prefix
    {
        return fixed("--etcd-prefix", old.prefix.clone());
    }
    match etcd {
        Some(etcd) => open_etcd(dir, o, known, etcd, platform, progress).await,
        None if o.first != First::Unsaid => Err(Error::Usage(
            "--create and --join are about a cluster in etcd: name it by --etcd".into(),
        )),
        None => {
            let settings = settle(dir, o, None, platform)?;
            progress("opening the cluster state");
            let cluster = open_embedded(dir, &settings, platform).await?;
            Ok((settings, cluster))
        }
    }
}

pub(crate) fn embedded_store(dir: &DataDir, platform: &Platform) -> Result<Arc<dyn Metastore>, Error> {
    let path = dir.cluster_path();
    io::files::make_dir(&path).map_err(|source| Error::DataDir {
        path: path.clone(),
        source,
    })?;
    let store = Embedded::open(&dir.state_path(), platform.clock.clone()).map_err(bad)?;
    Ok(Arc::new(store))
}

async fn open_embedded(
    dir: &DataDir,
    settings: &Settings,
    platform: &Platform,
) -> Result<ClusterHandle, Error> {
    let store = embedded_store(dir, platform)?;
    let handle = match ClusterHandle::open(store.clone(), platform.clock.clone())
        .await
        .map_err(bad)?
    {
        Some(handle) => handle,
        None => create(store, settings, platform).await?,
    };
    same_cluster(settings, &handle, &dir.cluster_path().display().to_string())?;
    Ok(handle)
}

/// Makes the cluster that the settings name.
async fn create(
    store: Arc<dyn Metastore>,
    settings: &Settings,
    platform: &Platform,
) -> Result<ClusterHandle, Error> {
    let addr = EntityAddr::msgr2(SocketAddr::new(settings.bind, settings.mon_port), 0);
    let mut options = CreateOptions::new(settings.fsid()?, &settings.mon_name(), addr);
    let msgr1 = |port| EntityAddr::legacy(SocketAddr::new(settings.bind, port), 0);
    options.mon_addrs = EntityAddrVec::with_legacy(addr, settings.msgr1_port().map(msgr1));
    if settings.etcd.is_some() {
        options.failure_domain = FailureDomain::Host;
    }
    create_cluster(&*store, &options, &*platform.clock, &*platform.random)
        .await
        .map_err(bad)?;
    ClusterHandle::open(store, platform.clock.clone())
        .await
        .map_err(bad)?
        .ok_or_else(|| Error::Cluster("created, but not to be found".into()))
}

/// Sets `mon_allow_pool_delete`, unless it is set so.
pub(crate) async fn allow_pool_delete(cluster: &ClusterHandle) -> Result<(), Error> {
    let allow = |state: &ClusterState| {
        let change = Change::ConfigSet {
            who: "mon".into(),
            name: "mon_allow_pool_delete".into(),
            value: "true".into(),
        };
        match state.mon_option_bool("mon_allow_pool_delete", false) {
            true => (Changes::none(), ()),
            false => (Changes::one(change), ()),
        }
    };
    cluster.commit(allow).await.map(drop).map_err(bad)
}

fn same_cluster(settings: &Settings, handle: &ClusterHandle, place: &str) -> Result<(), Error> {
    let (want, found) = (settings.fsid()?, handle.state().fsid);
    match found == want {
        true => Ok(()),
        false => Err(Error::Cluster(format!(
            "{place} belongs to cluster {found}, not to {want}"
        ))),
    }
}

pub(crate) async fn etcd_store(
    etcd: &EtcdSettings,
    platform: &Platform,
    progress: &dyn Fn(&str),
) -> Result<Arc<dyn Metastore>, Error> {
    progress(&format!("waiting for etcd at {}", etcd.endpoints.join(", ")));
    let store = Etcd::open(etcd_options(etcd)?, platform.clock.clone())
        .await
        .map_err(bad)?;
    Ok(Arc::new(store))
}

/// Of a file with our private key, which was read a moment ago.
fn warn_if_open(key: &Path) {
    if io::files::is_open_to_others(key).unwrap_or_default() {
        let key = key.display();
        tracing::warn!("etcd: others than its owner may open {key}, which has our private key: chmod 600 it");
    }
}

fn etcd_options(s: &EtcdSettings) -> Result<etcd::Options, Error> {
    let text = |path: &Path| -> Result<String, Error> {
        let fail = |source| Error::Io {
            what: path.display().to_string(),
            source,
        };
        let missing = || fail(std::io::Error::from(std::io::ErrorKind::NotFound));
        io::files::read(path).map_err(fail)?.ok_or_else(missing)
    };
    let pem = |path: &Path| text(path).map(String::into_bytes);
    let identity = match (&s.cert, &s.key) {
        (Some(cert), Some(key)) => Some((pem(cert)?, pem(key)?)),
        (None, None) => None,
        _ => {
            return Err(Error::Usage(
                "--etcd-cert FILE has the certificate and its key".into(),
            ));
        }
    };
    if let Some(key) = &s.key {
        warn_if_open(key);
    }
    let tls = match (&s.cacert, identity) {
        (Some(authority), identity) => Some(etcd::Tls {
            authority: pem(authority)?,
            identity,
        }),
        (None, Some(_)) => return Err(Error::Usage("--etcd-cert needs --etcd-cacert, too".into())),
        (None, None) => None,
    };
    let user = match (&s.user, &s.password_file) {
        (Some(user), Some(file)) => {
            // Now, so that a file that is not there is told at once; later at every login.
            text(file)?;
            let file = file.clone();
            let password: etcd::Password = Arc::new(move || match io::files::read(&file) {
                Ok(Some(text)) => Ok(text.trim_end().to_string()),
                Ok(None) => Err(format!("{} is not there", file.display())),
                Err(e) => Err(format!("{}: {e}", file.display())),
            });
            Some((user.clone(), password))
        }
        (None, None) => None,
        _ => {
            return Err(Error::Usage(
                "--etcd-user NAME:FILE is the user, and the file with the password".into(),
            ));
        }
    };
    Ok(etcd::Options {
        tls,
        user,
        prefix: s.prefix.clone(),
        ..etcd::Options::new(s.endpoints.clone())
    })
}

async fn open_etcd(
    dir: &DataDir,
    o: &StartOptions,
    known: Option<Settings>,
    etcd: EtcdSettings,
    platform: &Platform,
    progress: &dyn Fn(&str),
) -> Result<(Settings, ClusterHandle), Error> {
    let place = format!("etcd at {} (prefix {})", etcd.endpoints.join(", "), etcd.prefix);
    let store = etcd_store(&etcd, platform, progress).await?;
    progress("reading the cluster state");
    let found = ClusterHandle::open(store.clone(), platform.clock.clone())
        .await
        .map_err(bad)?;
    let usage = |why: String| Err(Error::Usage(why));
    match (known, found) {
        (Some(known), Some(handle)) => {
            same_cluster(&known, &handle, &place)?;
            Ok((settle(dir, o, None, platform)?, handle))
        }
        (Some(known), None) if o.first == First::Create && known.slots.is_empty() => {
            // A first start that was cut off before the cluster was there.
            let settings = settle(dir, o, None, platform)?;
            let handle = create(store, &settings, platform).await?;
            Ok((settings, handle))
        }
        (Some(known), None) => Err(Error::Cluster(format!(
            "{place} holds no cluster, but this store belongs to cluster {}: is that the right etcd? If it lost its \
             data, restore its backup; nothing is made anew here",
            known.fsid
        ))),
        (None, Some(handle)) => {
            let fsid = handle.state().fsid;
            match o.first {
                First::Join => {
                    own_name(o, platform, &handle)?;
                    Ok((settle(dir, o, Some(fsid), platform)?, handle))
                }
                First::Create => usage(format!("{place} holds cluster {fsid} already: join it by --join")),
                First::Unsaid => usage(format!(
                    "{place} holds cluster {fsid}: --join joins it with a new store in this directory"
                )),
            }
        }
        (None, None) => match o.first {
            First::Create => {
                let settings = settle(dir, o, None, platform)?;
                let handle = create(store, &settings, platform).await?;
                Ok((settings, handle))
            }
            First::Join => usage(format!(
                "{place} holds no cluster that could be joined: start the first machine with --create"
            )),
            First::Unsaid => usage(format!("{place} holds no cluster: --create makes one")),
        },
    }
}

/// Two machines of one name would be taken for one: their monitors, and the failure domain of their OSDs.
fn own_name(o: &StartOptions, platform: &Platform, cluster: &ClusterHandle) -> Result<(), Error> {
    let (name, addr) = planned(o, platform)?;
    let runs_mon = o.roles.as_ref().is_none_or(|r| r.iter().any(|r| r == MON));
    let state = cluster.state();
    match state.monmap.mon_info.get(&name) {
        // Another process of this machine may be its monitor.
        Some(mon)
            if !runs_mon
                && mon
                    .addrs
                    .msgr2_or_first()
                    .sock
                    .is_some_and(|s| s.ip() == addr.ip()) =>
        {
            Ok(())
        }
        Some(mon) if mon.addrs.msgr2_or_first() != EntityAddr::msgr2(addr, 0) => Err(Error::Usage(format!(
            "the cluster has a machine named {name} already, with its monitor at {}: name this one by --host",
            mon.addrs
        ))),
        _ => Ok(()),
    }
}
