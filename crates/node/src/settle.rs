//! The settings of a store: chosen at the first start, read and compared at every later one.
//!
//! Not here: the file itself (`datadir.rs`), whether etcd holds the cluster they name (`state.rs`).

use crate::datadir::{FORMAT_EMBEDDED, MON, OSD};
use crate::platform::Platform;
use crate::{AuthMode, DataDir, Error, EtcdSettings, FORMAT, GatewayOptions, KeepFree, Settings, TraceTo};
use cluster::bucket_name;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;
use types::Uuid;

pub(crate) const MON_PORT: u16 = 3300;
pub(crate) const MSGR1_PORT: u16 = 6789;
const OSDS: u32 = 3;

/// What the command line may say; most of it only at the first start.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    pub osds: Option<u32>,
    /// Block devices of OSD 0, 1 and so on; those behind them have files.
    pub devices: Vec<PathBuf>,
    pub bind: Option<IpAddr>,
    pub mon_port: Option<u16>,
    pub msgr1: Option<Msgr1Port>,
    /// Announces messenger v1 before v2, for tests.
    pub msgr1_first: bool,
    pub auth: Option<AuthMode>,
    pub osd_size: Option<u64>,
    pub osd_memory: Option<u64>,
    pub keep_free: Option<KeepFree>,
    /// The OSDs live in what the host can spare.
    pub spare: Option<bool>,
    pub disk_io: io::disk::Mode,
    /// A file with keys for OSDs that are encrypted; new ones are, where it is given.
    pub osd_keys: Option<PathBuf>,
    /// Threads that the OSDs of one file system share.
    pub osd_threads: Option<NonZeroUsize>,
    /// This machine's name in the CRUSH tree.
    pub host: Option<String>,
    pub etcd: Option<EtcdSettings>,
    pub first: First,
    /// The roles of this process, by name.
    pub roles: Option<Vec<String>>,
    /// Where `/metrics` is served on the loopback address; 0: nowhere.
    pub metrics_port: u16,
    /// The collector of traces.
    pub trace_to: Option<TraceTo>,
    /// Sets `mon_allow_pool_delete` in the cluster's configuration.
    pub allow_pool_delete: bool,
    /// Serves S3, in this run.
    pub s3: Option<S3Options>,
    /// Serves web pages, in this run.
    pub console: Option<ConsoleOptions>,
}

/// How the console is served.
#[derive(Debug, Clone)]
pub struct ConsoleOptions {
    pub listen: SocketAddr,
    /// Files with certificate and key. None: plain HTTP on loopback, elsewhere a pair that is made at the first start.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Names by which it may be called, besides its own.
    pub hosts: Vec<String>,
}

/// How S3 is served.
#[derive(Debug, Clone)]
pub struct S3Options {
    pub listen: SocketAddr,
    /// What counts more than the options of the cluster that have the same meaning.
    pub said: GatewayOptions,
    /// Keys of a part of a bucket's index before it is split.
    pub split_at: u64,
    /// A day, as lifecycles of buckets count.
    pub day: Duration,
    /// Files with certificate and key. None: plain HTTP.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Days that the usage log is kept, where there is one.
    pub usage_days: u64,
    /// File with keys of the gateway's own.
    pub master_keys: Option<PathBuf>,
    /// Hosts that events may be sent to; empty: all but what is a machine's own.
    pub endpoints: Vec<String>,
    /// How often access logs become objects.
    pub log_every: Duration,
    /// File with which Keystone is asked, and as whom.
    pub keystone: Option<PathBuf>,
}

/// Whether messenger v1 is spoken, too, as somebody wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Msgr1Port {
    Off,
    /// The monitor's; 0 takes a free one.
    At(u16),
}

/// What a first start with etcd is to do. Later starts need not say it, and may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum First {
    #[default]
    Unsaid,
    /// Make the cluster, which must not be there.
    Create,
    /// Join the cluster, which must be there.
    Join,
}

/// The settings of this store: read, or chosen and written at the first start. `fsid`: of the cluster that is
/// joined; None makes a new one.
pub(crate) fn settle(
    dir: &DataDir,
    o: &StartOptions,
    fsid: Option<Uuid>,
    platform: &Platform,
) -> Result<Settings, Error> {
    let random = &*platform.random;
    let roles = o.roles.clone();
    let Some(mut known) = dir.settings()? else {
        can_run(o, roles.as_deref(), o.etcd.is_some())?;
        let runs = |kind: &str| runs(roles.as_deref(), kind);
        if !runs(MON) && o.first == First::Create {
            return Err(Error::Usage(
                "the machine that makes the cluster needs a monitor: --roles leaves it out".into(),
            ));
        }
        let bind = first_bind(o)?;
        let auth = o.auth.unwrap_or(AuthMode::Cephx);
        let mon_port = match o.mon_port.unwrap_or(MON_PORT) {
            port if runs(MON) => free_port(bind, port)?,
            // Should it get a monitor one day.
            0 => MON_PORT,
            port => port,
        };
        let msgr1_port = first_msgr1(o, bind, runs(MON))?;
        let fsid = fsid
            .unwrap_or_else(|| Uuid::from_random(random.bytes()))
            .to_string();
        let osds = match runs(OSD) {
            true => first_osds(o),
            false => 0,
        };
        let settings = Settings {
            format: match o.etcd {
                Some(_) => FORMAT,
                None => FORMAT_EMBEDDED,
            },
            fsid,
            auth,
            bind,
            mon_port,
            msgr1_port: Some(msgr1_port),
            osds,
            osd_size: o.osd_size,
            osd_memory: o.osd_memory,
            keep_free: o.keep_free,
            spare: o.spare.unwrap_or(false),
            host: match (&o.host, &o.etcd) {
                (None, Some(_)) => Some(bucket_name(&platform.hostname)),
                (host, _) => host.as_deref().map(bucket_name),
            },
            mon: None,
            etcd: o.etcd.clone(),
            roles,
            removed: Vec::new(),
            slots: Vec::new(),
        };
        dir.write_settings(&settings)?;
        return Ok(settings);
    };
    let old = known.clone();
    if o.bind.is_some_and(|b| b != known.bind) {
        return fixed("--bind", known.bind.to_string());
    }
    if o.mon_port.is_some_and(|p| p != 0 && p != known.mon_port) {
        return fixed("--mon-port", known.mon_port.to_string());
    }
    if o.auth.is_some_and(|a| a != known.auth) {
        return fixed("--auth", format!("{:?}", known.auth).to_lowercase());
    }
    if o.osd_size.is_some() && o.osd_size != known.osd_size {
        return fixed(
            "--osd-size",
            known
                .osd_size
                .map_or("what the disk has".into(), |b| b.to_string()),
        );
    }
    if let Some(host) = o.host.as_deref().map(bucket_name)
        && known.host.as_ref() != Some(&host)
    {
        let old = known.host.unwrap_or_else(|| platform.hostname.clone());
        return fixed("--host", old);
    }
    if let Some(etcd) = &o.etcd {
        // `state::open` has refused it for a store without, and another prefix.
        known.etcd = Some(etcd.clone());
    }
    known.msgr1_port = next_msgr1(o, &known)?;
    known.roles = roles.or(known.roles);
    can_run(o, known.roles.as_deref(), known.etcd.is_some())?;
    if known.runs(OSD) && known.osds == 0 && known.slots.is_empty() {
        // It had no OSDs so far.
        known.osds = first_osds(o);
    }
    if let Some(osds) = o.osds {
        if osds < known.osds {
            return Err(Error::Usage(format!(
                "the store has {} OSDs: take one away with skep osd rm N, which moves its data off first",
                known.osds
            )));
        }
        known.osds = osds;
    }
    known.osd_memory = o.osd_memory.or(known.osd_memory);
    known.keep_free = o.keep_free.or(known.keep_free);
    known.spare = o.spare.unwrap_or(known.spare);
    if known != old {
        dir.write_settings(&known)?;
    }
    Ok(known)
}

fn runs(roles: Option<&[String]>, kind: &str) -> bool {
    roles.is_none_or(|r| r.iter().any(|r| r == kind))
}

/// OSDs of a machine that has none yet.
pub(crate) fn first_osds(o: &StartOptions) -> u32 {
    o.osds.unwrap_or(match o.devices.len() {
        0 => OSDS,
        n => n as u32,
    })
}

/// True if this choice of roles can serve, with what else was said.
fn can_run(o: &StartOptions, roles: Option<&[String]>, in_etcd: bool) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Usage(why.into()));
    let (mon, osd) = (runs(roles, MON), runs(roles, OSD));
    let whole = mon && osd;
    if !in_etcd && !whole {
        return refuse(
            "a cluster state in a local file serves one process, which needs its monitor and its OSDs: \
             to run only some roles here, keep it in etcd (--etcd)",
        );
    }
    if o.s3.is_some() && !runs(roles, "s3") {
        return refuse("--s3 needs the role s3, which --roles leaves out");
    }
    if o.console.is_some() && !runs(roles, "console") {
        return refuse("--console needs the role console, which --roles leaves out");
    }
    if o.console.is_none() && roles.is_some_and(|r| r.iter().all(|r| r == "console")) {
        return refuse("the role console serves what --console says, which is not there: nothing would run");
    }
    if o.s3.is_none() && roles.is_some_and(|r| r.iter().all(|r| r == "s3")) {
        return refuse("the role s3 serves what --s3 says, which is not there: nothing would run");
    }
    if !osd && (o.osds.is_some() || !o.devices.is_empty()) {
        return refuse("--osds and --device are about OSDs, which --roles leaves out");
    }
    Ok(())
}

/// The refusal of an option that cannot be changed any more.
pub(crate) fn fixed<T>(what: &str, old: String) -> Result<T, Error> {
    Err(Error::Usage(format!(
        "{what} was fixed at the first start: {old}"
    )))
}

/// Name and monitor's address that a first start with etcd will give this machine; port 0 is one to be found.
pub(crate) fn planned(o: &StartOptions, platform: &Platform) -> Result<(String, SocketAddr), Error> {
    let name = bucket_name(o.host.as_deref().unwrap_or(&platform.hostname));
    let addr = SocketAddr::new(first_bind(o)?, o.mon_port.unwrap_or(MON_PORT));
    Ok((name, addr))
}

/// The address of a first start.
pub(crate) fn first_bind(o: &StartOptions) -> Result<IpAddr, Error> {
    let bind = match (o.bind, &o.etcd) {
        (Some(bind), _) => bind,
        (None, None) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        (None, Some(_)) => {
            return Err(Error::Usage(
                "name this machine's address, which clients and other machines dial: --bind ADDRESS".into(),
            ));
        }
    };
    if o.auth == Some(AuthMode::None) && (!bind.is_loopback() || o.etcd.is_some()) {
        return Err(Error::Usage(format!(
            "--auth none lets anybody in: refused on {bind}, only on loopback and on one machine"
        )));
    }
    match bind.is_unspecified() {
        true => Err(Error::Usage(format!(
            "clients dial the address they are told: name one, not {bind}"
        ))),
        false => Ok(bind),
    }
}

/// The port of messenger v1 of a first start, as the settings hold it: 0 where it is not spoken.
fn first_msgr1(o: &StartOptions, bind: IpAddr, runs_mon: bool) -> Result<u16, Error> {
    let port = match (o.msgr1, o.mon_port) {
        (Some(Msgr1Port::Off), _) => return Ok(0),
        (Some(Msgr1Port::At(port)), _) => port,
        // Who takes any port for one takes any for the other.
        (None, Some(0)) => 0,
        (None, _) => MSGR1_PORT,
    };
    match port {
        port if runs_mon => free_msgr1_port(bind, port),
        // Should it get a monitor one day.
        0 => Ok(MSGR1_PORT),
        port => Ok(port),
    }
}

/// The same of a later start: what was asked for now, else what the settings say. A store from before messenger v1 gets it
/// where its port is free, and starts without where not, as it always did.
fn next_msgr1(o: &StartOptions, known: &Settings) -> Result<Option<u16>, Error> {
    match (o.msgr1, known.msgr1_port) {
        (Some(Msgr1Port::Off), _) => Ok(Some(0)),
        (Some(Msgr1Port::At(0)), Some(port)) if port != 0 => Ok(Some(port)),
        (Some(Msgr1Port::At(port)), was) if was != Some(port) && known.runs(MON) => {
            free_msgr1_port(known.bind, port).map(Some)
        }
        (Some(Msgr1Port::At(port)), _) => Ok(Some(port)),
        (None, None) if known.runs(MON) => match free_port(known.bind, MSGR1_PORT) {
            Ok(port) => Ok(Some(port)),
            Err(e) => {
                tracing::warn!("without messenger v1, which older clients need ({OTHER_MSGR1}): {e}");
                Ok(None)
            }
        },
        (None, None) => Ok(Some(MSGR1_PORT)),
        (None, was) => Ok(was),
    }
}

const OTHER_MSGR1: &str = "--msgr1-port PORT chooses another port, --msgr1-port none leaves it out";

fn free_msgr1_port(bind: IpAddr, port: u16) -> Result<u16, Error> {
    free_port(bind, port).map_err(|e| match e {
        Error::Listen { addr, source } => Error::Usage(format!(
            "cannot listen on {addr}, for clients of messenger v1: {source} ({OTHER_MSGR1})"
        )),
        other => other,
    })
}

/// `port`, or a free one for 0. A port in use is reported before anything is written.
fn free_port(bind: IpAddr, port: u16) -> Result<u16, Error> {
    let addr = SocketAddr::new(bind, port);
    let listener = net::Listener::bind(addr).map_err(|source| Error::Listen { addr, source })?;
    Ok(listener
        .local_addr()
        .map_err(|source| Error::Listen { addr, source })?
        .port())
}
