//! The data directory: what lies where, its lock, and the settings fixed at the first start.
//!
//! ```text
//! DIR/skep.toml                  settings of this cluster on this machine (below)
//! DIR/lock                       flock held while a process serves the directory; holds its pid
//! DIR/cluster/                   cluster state (embedded metastore); nothing where it is in etcd
//! DIR/osd.N/                     one OSD's store each
//! DIR/ceph.conf                  for clients; written at every start
//! DIR/ceph.client.admin.keyring  for clients, mode 0600; written at every start
//! DIR/skep.asok                  admin socket
//! DIR/audit.log                  who asked the monitor for what, mode 0600; older ones: audit.log.1 to .7
//! ```
//!
//! All of it is for its owner alone: 0600, directories 0700, the directory itself included. Who serves clients of other
//! users gives them their own `ceph.conf` (`skep conf` prints it) and keyring.

use crate::Error;
use io::files::{self, Holder, LockError, LockFile};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use types::Uuid;

/// Newest version of the directory's layout that this program knows; it reads this and older ones.
pub const FORMAT: u32 = 2;
/// Version of a store with its cluster state in a file, which earlier programs read, too.
pub const FORMAT_EMBEDDED: u32 = 1;

/// Kinds of roles, as settings and `--roles` name them.
pub(crate) const OSD: &str = "osd";
pub(crate) const MON: &str = "mon";
pub(crate) const MDS: &str = "mds";
#[cfg(feature = "console")]
pub(crate) const CONSOLE: &str = "console";
#[cfg(feature = "s3")]
pub(crate) const S3: &str = "s3";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    Cephx,
    None,
}

/// `skep.toml`: fixed at the first start, read at every later one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub format: u32,
    pub fsid: String,
    pub auth: AuthMode,
    pub bind: IpAddr,
    pub mon_port: u16,
    /// Of messenger v1; 0: it is not spoken; absent: nobody has said yet, and it is not. May change at any start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msgr1_port: Option<u16>,
    pub osds: u32,
    /// Most bytes that one OSD may use; absent: what the file system has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub osd_size: Option<u64>,
    /// Memory budget of one OSD in bytes; absent: the default. May change at any start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub osd_memory: Option<u64>,
    /// What stays free on the host's file system; absent: the default. May change at any start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_free: Option<KeepFree>,
    /// The OSDs live in what the host can spare beyond `keep_free`: they shrink when it needs room. May change at any start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spare: bool,
    /// This machine's name in the CRUSH tree; absent: the host's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The name of its monitor; absent: `a`, and with etcd the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mon: Option<String>,
    /// Where the cluster state is; absent: in `cluster/`. May change at any start, but for the prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdSettings>,
    /// The roles of this process; absent: all that the program has. May change at any start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<String>>,
    /// Of the OSDs 0, 1 and so on: those that were removed for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<i32>,
    /// The OSDs of this machine, where ids are given out by the cluster; otherwise they are 0, 1 and so on.
    #[serde(default, rename = "osd", skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<OsdSlot>,
}

/// How etcd is reached. Secrets stay in files of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdSettings {
    pub endpoints: Vec<String>,
    pub prefix: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cacert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
}

/// One OSD of this machine. The identity is written before the id is asked for: a start that was cut off between
/// finds the id that it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsdSlot {
    pub uuid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<i32>,
}

/// Free space of the host's file system that the store leaves untouched.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeepFree {
    Bytes(u64),
    /// Of the file system's size.
    Percent(f64),
}

impl KeepFree {
    /// In bytes, for a file system of this size.
    pub fn of(self, total: u64) -> u64 {
        match self {
            Self::Bytes(n) => n,
            Self::Percent(p) => (total as f64 * p / 100.0) as u64,
        }
    }
}

impl Settings {
    /// Ids of this machine's OSDs, those without one left out.
    pub fn osd_ids(&self) -> Vec<i32> {
        match self.etcd {
            Some(_) => self.slots.iter().filter_map(|s| s.id).collect(),
            None => (0..self.osds as i32)
                .filter(|id| !self.removed.contains(id))
                .collect(),
        }
    }

    /// True if this process has roles of that kind.
    pub fn runs(&self, kind: &str) -> bool {
        self.roles.as_ref().is_none_or(|r| r.iter().any(|r| r == kind))
    }

    /// Where this process's monitor speaks messenger v1, if it does; its other roles then have free ports for it.
    pub fn msgr1_port(&self) -> Option<u16> {
        self.msgr1_port.filter(|port| *port != 0)
    }

    pub fn mon_name(&self) -> String {
        match (&self.mon, &self.etcd, &self.host) {
            (Some(mon), _, _) => mon.clone(),
            (None, Some(_), Some(host)) => host.clone(),
            _ => "a".into(),
        }
    }

    pub fn fsid(&self) -> Result<Uuid, Error> {
        self.fsid
            .parse()
            .map_err(|()| Error::Settings("fsid is not a UUID".into()))
    }
}

#[derive(Debug, Clone)]
pub struct DataDir {
    root: PathBuf,
}

impl DataDir {
    /// The directory as the user named it, made absolute; created if it is missing.
    pub fn create(root: &Path) -> Result<Self, Error> {
        let fail = |source| Error::DataDir {
            path: root.to_path_buf(),
            source,
        };
        files::make_dir(root).map_err(fail)?;
        Ok(Self {
            root: files::canonical(root).map_err(fail)?,
        })
    }

    /// Takes from others what an earlier version, or a copy made without care, left open to them.
    pub fn tighten(&self) -> Result<(), Error> {
        let failed = files::tighten(&self.root).map_err(|source| Error::DataDir {
            path: self.root.clone(),
            source,
        })?;
        for path in failed {
            tracing::warn!(
                "{} is open to others, and cannot be closed to them",
                path.display()
            );
        }
        Ok(())
    }

    /// The directory of a store that exists already.
    pub fn existing(root: &Path) -> Result<Self, Error> {
        let found = files::canonical(root).map(|root| Self { root });
        match found {
            Ok(dir) if matches!(files::read(&dir.settings_path()), Ok(Some(_))) => Ok(dir),
            _ => Err(Error::NoStore(root.to_path_buf())),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn settings_path(&self) -> PathBuf {
        self.root.join("skep.toml")
    }
    pub fn lock_path(&self) -> PathBuf {
        self.root.join("lock")
    }
    pub fn cluster_path(&self) -> PathBuf {
        self.root.join("cluster")
    }
    /// The file of an embedded cluster state.
    pub fn state_path(&self) -> PathBuf {
        self.cluster_path().join("state.redb")
    }
    /// What it is called once etcd has taken its place: no start opens that.
    pub fn moved_state_path(&self) -> PathBuf {
        self.cluster_path().join("state.redb.moved-to-etcd")
    }
    pub fn osd_path(&self, id: i32) -> PathBuf {
        self.root.join(format!("osd.{id}"))
    }
    pub fn conf_path(&self) -> PathBuf {
        self.root.join("ceph.conf")
    }
    pub fn keyring_path(&self) -> PathBuf {
        self.root.join("ceph.client.admin.keyring")
    }
    pub fn audit_path(&self) -> PathBuf {
        self.root.join("audit.log")
    }
    pub fn admin_path(&self) -> PathBuf {
        self.root.join("skep.asok")
    }

    pub fn lock(&self) -> Result<LockFile, Error> {
        LockFile::take(&self.lock_path()).map_err(|e| match e {
            LockError::Held(pid) => Error::Locked {
                path: self.root.clone(),
                pid,
            },
            LockError::Io(source) => Error::DataDir {
                path: self.root.clone(),
                source,
            },
        })
    }

    /// Who serves the directory now.
    pub fn holder(&self) -> Result<Holder, Error> {
        let path = self.lock_path();
        LockFile::holder(&path).map_err(|source| Error::DataDir { path, source })
    }

    /// The settings, or `None` in a directory that has none yet. A directory with other things in it and
    /// no settings is refused, so that a mistyped path harms nothing.
    pub fn settings(&self) -> Result<Option<Settings>, Error> {
        let path = self.settings_path();
        let io = |source| Error::DataDir {
            path: path.clone(),
            source,
        };
        let Some(text) = files::read(&path).map_err(io)? else {
            let names = files::list_dir(&self.root).map_err(io)?;
            // A crash during the very first start leaves only what that start had made.
            let ours = |n: &String| {
                n == "lock"
                    || n == "lost+found"
                    || n == "cluster"
                    || n.starts_with("osd.")
                    || n.starts_with(".skep.toml")
            };
            return match names.iter().find(|n| !ours(n)) {
                Some(other) => Err(Error::NotOurs {
                    path: self.root.clone(),
                    found: other.clone(),
                }),
                None => Ok(None),
            };
        };
        let bad = |what: String| Error::Settings(format!("{}: {what}", path.display()));
        let table: toml::Table = text
            .parse()
            .map_err(|e: toml::de::Error| bad(e.message().to_string()))?;
        match table.get("format").and_then(toml::Value::as_integer) {
            Some(v) if v > i64::from(FORMAT) => {
                return Err(Error::NewerFormat {
                    path: self.root.clone(),
                    found: v as u32,
                    known: FORMAT,
                });
            }
            Some(_) => {}
            None => return Err(bad("no format version".into())),
        }
        let settings: Settings = table
            .try_into()
            .map_err(|e: toml::de::Error| bad(e.message().to_string()))?;
        Ok(Some(settings))
    }

    pub fn write_settings(&self, settings: &Settings) -> Result<(), Error> {
        let body = toml::to_string(settings).map_err(|e| Error::Settings(e.to_string()))?;
        let text = format!(
            "# Written by skep at the first start and read at every later one. To change the number of OSDs:\n\
             # skep up --osds N.\n{body}"
        );
        files::replace(&self.settings_path(), &text, files::PRIVATE_FILE).map_err(|source| Error::DataDir {
            path: self.settings_path(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            format: FORMAT,
            fsid: "b1d6d5f2-9a3c-4a52-8d6e-2f1f2a3b4c5d".into(),
            auth: AuthMode::Cephx,
            bind: "127.0.0.1".parse().unwrap(),
            mon_port: 3300,
            msgr1_port: Some(6789),
            osds: 3,
            osd_size: None,
            osd_memory: Some(64 << 20),
            keep_free: Some(KeepFree::Percent(12.5)),
            spare: true,
            host: Some("h1".into()),
            mon: None,
            etcd: Some(EtcdSettings {
                endpoints: vec!["https://a:2379".into(), "https://b:2379".into()],
                prefix: "skep".into(),
                cacert: Some("/etc/ca.pem".into()),
                cert: None,
                key: None,
                user: Some("skep".into()),
                password_file: Some("/etc/password".into()),
            }),
            roles: Some(vec!["osd".into()]),
            removed: vec![2],
            slots: vec![OsdSlot {
                uuid: "b1d6d5f2-9a3c-4a52-8d6e-2f1f2a3b4c5e".into(),
                id: Some(7),
            }],
        }
    }

    #[test]
    fn settings_come_back() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = DataDir::create(&tmp.path().join("new/deep")).unwrap();
        assert_eq!(dir.settings().unwrap(), None);
        dir.write_settings(&settings()).unwrap();
        assert_eq!(dir.settings().unwrap(), Some(settings()));
    }

    #[test]
    fn a_newer_format_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = DataDir::create(tmp.path()).unwrap();
        dir.write_settings(&Settings {
            format: FORMAT + 1,
            ..settings()
        })
        .unwrap();
        assert!(matches!(dir.settings(), Err(Error::NewerFormat { .. })));
    }

    #[test]
    fn a_directory_of_other_things_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        files::replace(&tmp.path().join("thesis.txt"), "precious", 0o644).unwrap();
        let dir = DataDir::create(tmp.path()).unwrap();
        assert!(matches!(dir.settings(), Err(Error::NotOurs { .. })));
    }

    #[test]
    fn nonsense_in_the_settings_is_named() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = DataDir::create(tmp.path()).unwrap();
        for text in ["", "format = \"x\"", "format = 1\nosds = 3", "[["] {
            files::replace(&dir.settings_path(), text, 0o644).unwrap();
            assert!(matches!(dir.settings(), Err(Error::Settings(_))), "{text:?}");
        }
    }
}
