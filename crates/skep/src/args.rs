//! The command line's grammar and help; clap builds parser and help from this one table.

pub use crate::options::{ClusterArgs, Format, Where, pair, parse_size};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use node::{KeepFree, Msgr1Port};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(Debug, Parser)]
#[command(
    name = "skep",
    version,
    about = "Unified storage that every Ceph client can use, in one program."
)]
pub struct Args {
    /// More log lines (-v debug, -vv trace); SKEP_LOG sets a filter by module
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the store in a directory; the first start creates it
    Up(Up),
    /// Look at a machine before its first start: disks, memory, clock, ports, etcd; takes the options of `up`
    Preflight(Preflight),
    /// Look, before a later program replaces the one that serves, whether it can, and whether that one could come back
    Upgrade(crate::upgrade::Args),
    /// Show whether the store runs, its health, usage and addresses
    Status(StatusOf),
    /// Show what is blocked or slow, what it waits for, and what to do next
    Doctor(Status),
    /// Print the ceph.conf for clients of this store
    Conf(Where),
    /// Stop the running store cleanly and wait until it has ended
    Down(Down),
    /// Remove a host from the cluster: moves its data off, waits, removes its OSDs and its monitor
    Host(Host),
    /// Remove an OSD from the cluster: moves its data off, waits, removes it
    Osd(OsdCommand),
    /// Say where a pool's copies shall lie
    Pool(Pool),
    /// Change where the cluster's state is kept
    Cluster(Cluster),
    /// Verify, read or measure one OSD's store by itself, without a server
    Store(crate::store::args::Store),
    /// Measure a cluster, ours or Ceph's, by our own client: its objects or its images
    Bench(crate::bench::args::Bench),
    /// Make images of disk files in any of the usual formats, and disk files of images; verified
    Image(crate::image::args::Image),
    /// Back images up into repositories of restic's format: incremental, encrypted, verified, tried
    Backup(crate::backup::args::Backup),
    /// Send a command to an OSD, a PG's primary or the manager, and print its answer
    Tell(Tell),
    /// Limit what clients may do per second: to an image, a namespace, a pool, or by user
    Qos(crate::qos::Args),
    /// Say why an image, a pool or a client is slow: where its operations spend their time, and what accounts for it
    Why(crate::why::args::Args),
    /// Users and keys of the S3 gateway, and a gateway in front of another cluster
    #[cfg(feature = "s3")]
    S3(crate::s3::args::S3),
    /// Mount a file system in a directory: of a store in this process, no cluster to assemble, or of any cluster
    Mount(crate::mount::args::Mount),
    /// Print completions of our commands for a shell
    Completion(Completion),
    /// Write the manual pages of our commands into a folder
    Man(Man),
    /// Drive our RBD client by lines on stdin, for tests
    #[command(hide = true)]
    RbdIo(RbdIo),
}

#[derive(Debug, ClapArgs)]
pub struct Completion {
    pub shell: clap_complete::Shell,
}

#[derive(Debug, ClapArgs)]
pub struct Man {
    pub dir: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub struct RbdIo {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[arg(short, long)]
    pub pool: String,
    #[arg(long)]
    pub namespace: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub struct Tell {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Seconds to wait for the cluster, and for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// osd.N, a PG's id (2.1f) or mgr
    pub target: client::Target,
    /// The command, its arguments as NAME=VALUE: `perf dump`, `config get key=osd_memory_target`; or one JSON object
    #[arg(required = true, value_name = "WORD")]
    pub words: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub struct Up {
    #[command(flatten)]
    pub place: Where,
    /// Number of OSDs, 1 to 64; may grow at a later start [default: 3 at the first start]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub osds: Option<u32>,
    /// Block device for an OSD (its log and data; the index stays in the directory), used whole; once for each OSD.
    /// It must be empty: its first 68 KiB zeros
    #[arg(long, value_name = "DEVICE")]
    pub device: Vec<PathBuf>,
    /// Address to listen on, fixed at the first start [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub bind: Option<IpAddr>,
    /// Port of the monitor, fixed at the first start; 0 takes a free one [default: 3300]
    #[arg(long, value_name = "PORT")]
    pub mon_port: Option<u16>,
    /// Port of the monitor for clients of messenger v1, kept for later starts; 0 takes a free one. OSDs and manager take
    /// free ones. none: messenger v2 alone is spoken; kernel clients then need ms_mode=prefer-crc or the like [default: 6789]
    #[arg(long, value_name = "PORT", value_parser = parse_msgr1_port)]
    pub msgr1_port: Option<Msgr1Port>,
    /// --msgr1-port none
    #[arg(long, hide = true)]
    pub no_msgr1: bool,
    /// Announce messenger v1 before v2, so that stock clients come by it; for tests
    #[arg(long, hide = true)]
    pub msgr1_first: bool,
    /// How clients prove who they are, fixed at the first start; "none" only on loopback [default: cephx]
    #[arg(long, value_enum, value_name = "METHOD")]
    pub auth: Option<Auth>,
    /// Most bytes one OSD may use, e.g. 20G, fixed at the first start [default: what the disk has]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub osd_size: Option<u64>,
    /// Memory budget of one OSD, all caches and queues together, kept for later starts; at least 64M [default: 256M]
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    pub osd_memory: Option<u64>,
    /// Free space of the host's file system that is left untouched, in bytes (20G) or percent of its size (10%, at most 95%),
    /// kept for later starts [default: 256M]
    #[arg(long, value_name = "SPACE", value_parser = parse_keep_free)]
    pub keep_free: Option<KeepFree>,
    /// Live in what the host can spare beyond --keep-free: when it needs room, data moves to other OSDs and the space
    /// goes back to it; kept for later starts. Without a value: on [default: off]
    #[arg(long, value_enum, value_name = "SWITCH", num_args = 0..=1, default_missing_value = "on")]
    pub spare: Option<Switch>,
    /// --spare off
    #[arg(long, hide = true)]
    pub no_spare: bool,
    /// Let pools be deleted: sets mon_allow_pool_delete in the cluster's configuration, which is false by default;
    /// `ceph config set mon mon_allow_pool_delete false` takes it back
    #[arg(long, hide = true)]
    pub allow_pool_delete: bool,
    /// Port of /metrics for Prometheus, on the loopback address alone; 0: none. One that is taken is warned of
    #[arg(long, value_name = "PORT", default_value_t = 9283)]
    pub metrics_port: u16,
    /// Collector of OpenTelemetry that gets slow operations of the OSDs, and one of 1000 others, as traces (OTLP over HTTP, JSON), e.g. http://HOST:4318
    #[arg(long, value_name = "URL")]
    pub trace_to: Option<String>,
    /// Serve S3, too (`skep s3 user create NAME` makes a user and prints the keys)
    #[cfg(feature = "s3")]
    #[arg(long)]
    pub s3: bool,
    /// Address of S3; what is not loopback wants --s3-cert, or a proxy with TLS in front
    #[cfg(feature = "s3")]
    #[arg(long, value_name = "ADDRESS", default_value = crate::s3::args::LISTEN, requires = "s3")]
    pub s3_listen: std::net::SocketAddr,
    #[cfg(feature = "s3")]
    #[command(flatten)]
    pub s3_tuning: crate::s3::args::Tuning,
    #[cfg(feature = "console")]
    #[command(flatten)]
    pub console: ConsoleArgs,
    /// What this process runs, kept for later starts: mon, osd. One alone needs --etcd [default: all]
    #[arg(long, value_name = "ROLE", value_delimiter = ',', value_parser = role_parser(), num_args = 1..)]
    pub roles: Vec<String>,
    /// File with keys: OSDs that are made by this start are encrypted where they lie. Lines with a name and 32 bytes in base64; the first one is
    /// used, all of them open. Later starts need it, too
    #[arg(long, value_name = "FILE")]
    pub osd_keys: Option<PathBuf>,
    /// How data files are used: past the page cache and by io_uring where the host can, or by simpler ways
    #[arg(long, value_enum, value_name = "WAY", default_value = "auto")]
    pub disk_io: DiskIo,
    /// Threads that the OSDs of one file system share; as many as there are OSDs: one for each. One on a device has its
    /// own [default: a quarter of the processors, at least 1 for 8 OSDs]
    #[arg(long, value_name = "N")]
    pub osd_threads: Option<NonZeroUsize>,
    /// This machine's name in the CRUSH tree and of its monitor, fixed at the first start [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// First start on a machine: make the cluster in etcd, which must not hold one. Later starts ignore it
    #[arg(long, requires = "etcd", conflicts_with = "join")]
    pub create: bool,
    /// First start on a further machine: join the cluster that etcd holds. Later starts ignore it
    #[arg(long, requires = "etcd")]
    pub join: bool,
    /// Read options from a TOML file: `osds = 4`, `etcd = ["http://a:2379"]`, `osd-size = "1T"`; the command line wins
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

fn role_parser() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(node::role_names())
}

/// How etcd is reached; remembered by the store, and changed by naming it again.
#[derive(Debug, ClapArgs)]
pub struct Preflight {
    #[command(flatten)]
    pub up: Up,
    /// How long the disk is written to, to see how long a flush takes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
}

#[derive(Debug, ClapArgs)]
pub struct EtcdArgs {
    /// Keep the cluster's state in etcd (3.4 or newer): its endpoints, http://HOST:2379,...
    #[arg(long, value_name = "URL", value_delimiter = ',', num_args = 1..)]
    pub etcd: Vec<String>,
    /// Certificate of the authority that signed etcd's, for https://
    #[arg(long, value_name = "FILE", requires = "etcd")]
    pub etcd_cacert: Option<PathBuf>,
    /// Our certificate and its key in PEM, where etcd asks for one
    #[arg(long, value_name = "FILE")]
    pub etcd_cert: Option<PathBuf>,
    /// The key, where it is in a file of its own
    #[arg(long, value_name = "FILE", hide = true, requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
    /// Our name to etcd, and the file with the password: skep:/etc/skep/etcd-password
    #[arg(long, value_name = "NAME:FILE")]
    pub etcd_user: Option<String>,
    /// File with the password, where --etcd-user is the name alone
    #[arg(long, value_name = "FILE", hide = true, requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,
    /// First part of our keys in etcd, one for each cluster
    #[arg(long, value_name = "TEXT", default_value = "skep", requires = "etcd")]
    pub etcd_prefix: String,
}

/// How web pages are served.
#[cfg(feature = "console")]
#[derive(Debug, Clone, ClapArgs)]
pub struct ConsoleArgs {
    /// Serve web pages for operators, too: they log in with an entity and its key
    #[arg(long)]
    pub console: bool,
    /// Address of the console. Beyond loopback it speaks TLS alone
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8443",
        requires = "console"
    )]
    pub console_listen: std::net::SocketAddr,
    /// Certificate, with its chain, and its key in PEM, read again when they change [default: none on loopback, else one that is made at the first start]
    #[arg(long, value_name = "FILE", requires = "console")]
    pub console_cert: Option<PathBuf>,
    /// The key, where it is in a file of its own
    #[arg(long, value_name = "FILE", hide = true, requires = "console_cert")]
    pub console_key: Option<PathBuf>,
    /// A name by which browsers may call it, besides those of loopback; can be given several times
    #[arg(long = "console-host", value_name = "NAME", requires = "console")]
    pub console_hosts: Vec<String>,
}

impl EtcdArgs {
    /// What the store shall remember; None if etcd was not named.
    pub fn settings(&self) -> Option<node::EtcdSettings> {
        // A file is looked for again at later starts, from wherever they are.
        let file = |path: Option<&PathBuf>| {
            let path = path?;
            Some(io::files::canonical(path).unwrap_or_else(|_| path.clone()))
        };
        let (user, password_file) = self.login();
        let key = self.etcd_key.as_ref().or(self.etcd_cert.as_ref());
        (!self.etcd.is_empty()).then(|| node::EtcdSettings {
            endpoints: self.etcd.clone(),
            prefix: self.etcd_prefix.clone(),
            cacert: file(self.etcd_cacert.as_ref()),
            cert: file(self.etcd_cert.as_ref()),
            key: file(key),
            user,
            password_file: file(password_file.as_ref()),
        })
    }

    /// Who we are to etcd, and the file with the password.
    fn login(&self) -> (Option<String>, Option<PathBuf>) {
        let said = self.etcd_user.as_ref();
        // Where the file is named by its old option the name may have a colon in it.
        let both = said.filter(|_| self.etcd_password_file.is_none());
        match both.and_then(|both| both.split_once(':')) {
            Some((name, file)) => (Some(name.to_string()), Some(PathBuf::from(file))),
            None => (said.cloned(), self.etcd_password_file.clone()),
        }
    }
}

#[derive(Debug, ClapArgs)]
pub struct Host {
    #[command(subcommand)]
    pub command: HostRm,
}

#[derive(Debug, Subcommand)]
pub enum HostRm {
    /// Take a host out for good; can be interrupted and run again. Refused where copies would find no place
    Rm {
        /// The host's name in `ceph osd tree`
        #[arg(value_name = "HOST")]
        host: String,
        #[command(flatten)]
        how: Removal,
    },
}

#[derive(Debug, ClapArgs)]
pub struct OsdCommand {
    #[command(subcommand)]
    pub command: OsdRm,
}

#[derive(Debug, Subcommand)]
pub enum OsdRm {
    /// Take an OSD out for good; can be interrupted and run again. Refused where copies would find no place
    Rm {
        /// The OSD's number
        #[arg(value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
        id: i32,
        #[command(flatten)]
        how: Removal,
    },
}

#[derive(Debug, ClapArgs)]
pub struct Pool {
    #[command(subcommand)]
    pub command: PoolCommand,
}

#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Keep the first copy of everything on one host (the one that writes), the others on other hosts
    Near {
        #[arg(value_name = "POOL")]
        pool: String,
        /// The host's name in `ceph osd tree`
        #[arg(value_name = "HOST")]
        host: String,
        #[command(flatten)]
        place: Where,
    },
}

#[derive(Debug, ClapArgs)]
pub struct Removal {
    /// Do it; without this it is only said what would be done
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub place: Where,
}

#[derive(Debug, ClapArgs)]
pub struct Cluster {
    #[command(subcommand)]
    pub command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Move the cluster's state of a stopped store from its file into etcd, which must hold no cluster
    MoveToEtcd(MoveToEtcd),
    /// Make the cluster's state again from the copies in the OSDs' directories, after it was lost; the store is stopped
    Rebuild(Rebuild),
}

#[derive(Debug, ClapArgs)]
pub struct Rebuild {
    #[command(flatten)]
    pub place: Where,
    /// Data directory of another machine of this cluster, copied or mounted here: its copy may be newer
    #[arg(long, value_name = "DIR")]
    pub from: Vec<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct MoveToEtcd {
    #[command(flatten)]
    pub place: Where,
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// Address for other machines and clients from now on [default: stays]
    #[arg(long, value_name = "IP")]
    pub bind: Option<IpAddr>,
    /// This machine's name from now on [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiskIo {
    /// O_DIRECT and io_uring, each where the host has it; the log says what it is
    Auto,
    /// O_DIRECT with pread and pwrite
    Direct,
    /// pread and pwrite through the page cache
    Plain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    Cephx,
    None,
}

#[derive(Debug, ClapArgs)]
pub struct Status {
    #[command(flatten)]
    pub place: Where,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
}

#[derive(Debug, ClapArgs)]
pub struct StatusOf {
    #[command(flatten)]
    pub status: Status,
    /// Only say whether the cluster is whole, by the exit status, too: every OSD that is in is up, every placement group active
    /// and clean. Asked where a monitor runs; for whoever restarts one machine after the other
    #[arg(long, conflicts_with = "format")]
    pub whole: bool,
    /// Only say whether the process answers, without asking its monitor, which may wait for etcd; for whoever kills what does not
    #[arg(long, conflicts_with_all = ["format", "whole"])]
    pub alive: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Down {
    #[command(flatten)]
    pub place: Where,
    /// Seconds to wait for the clean stop
    #[arg(long, default_value_t = 60)]
    pub timeout: u64,
}

/// Files with a certificate and its key, which may be one.
#[cfg(any(feature = "s3", feature = "console"))]
fn parse_msgr1_port(text: &str) -> Result<Msgr1Port, String> {
    match text {
        "none" => Ok(Msgr1Port::Off),
        port => port
            .parse::<u16>()
            .map(Msgr1Port::At)
            .map_err(|_| "a port is a number up to 65535, or none".into()),
    }
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < node::OSD_MEMORY_MIN {
        return Err("an OSD works from 64M on".into());
    }
    Ok(bytes)
}

/// `20G` or `10%`.
pub fn parse_keep_free(text: &str) -> Result<KeepFree, String> {
    let Some(percent) = text.trim().strip_suffix('%') else {
        return parse_size(text).map(KeepFree::Bytes);
    };
    match percent.trim().parse() {
        Ok(p) if (0.0..=95.0).contains(&p) => Ok(KeepFree::Percent(p)),
        _ => Err("a share lies between 0% and 95%".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    /// `--only` once had a default that was no longer one of its values.
    #[test]
    fn defaults_are_among_the_values() {
        for line in [
            "up",
            "status",
            "doctor -f json",
            "status --whole --data d",
            "status --alive",
            "upgrade check --data d --osd-keys k --one-way -f json",
            "conf",
            "down",
            "store check d",
            "store dump d",
            "store bench d",
            "bench rados -p x --rw mix -b 64K",
            "bench rbd -p x --image i --rw read --ops 10 -f json",
            "image import -p x a.qcow2 b.vmdk --jobs 4 -f json",
            "image import -p x a --image n --from raw --object-size 64K --data-pool d",
            "image export -p x a@s -o a.qcow2",
            "image export -p x a b --dir d --to vhdx",
            "cluster move-to-etcd --etcd http://a:1,http://b:2",
            "cluster rebuild --from x",
            "host rm h4 --yes",
            "osd rm 3 --data d",
            "pool near p h1",
            "up --etcd http://a:1 --create --bind 10.0.0.1",
            "up --spare --osds 1",
            "up --spare=off --msgr1-port none",
            "up --no-spare --no-msgr1",
            "mount /mnt",
            "mount files /mnt --data d --osd-size 20G --allow-other",
            "mount a /mnt --conf c --name client.x --keyring k --path /sub --read-only",
        ] {
            let words = std::iter::once("skep").chain(line.split(' '));
            Args::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
    }

    fn up(line: &str) -> Up {
        let words = std::iter::once("skep").chain(line.split(' '));
        match Args::try_parse_from(words).unwrap().command {
            Command::Up(up) => up,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pairs_are_one_option() {
        assert_eq!(up("up").spare, None);
        for (line, spare) in [
            ("up --spare", Switch::On),
            ("up --spare --osds 2", Switch::On),
            ("up --spare on", Switch::On),
            ("up --spare off", Switch::Off),
        ] {
            assert_eq!(up(line).spare, Some(spare), "{line}");
        }
        for (text, port) in [
            ("none", Msgr1Port::Off),
            ("0", Msgr1Port::At(0)),
            ("6789", Msgr1Port::At(6789)),
        ] {
            assert_eq!(parse_msgr1_port(text), Ok(port));
        }
        for text in ["", "off", "-1", "65536"] {
            assert!(parse_msgr1_port(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_has_certificate_and_key() {
        let etcd = |more: &str| {
            let s = up(&format!("up --etcd http://a:1 {more}"))
                .etcd
                .settings()
                .unwrap();
            let text = |path: Option<PathBuf>| path.map_or("-".into(), |p| p.display().to_string());
            let user = s.user.clone().unwrap_or_default();
            format!(
                "{} {} {user} {}",
                text(s.cert),
                text(s.key),
                text(s.password_file)
            )
        };
        for (more, want) in [
            ("--etcd-cacert c", "- -  -"),
            ("--etcd-cert /no/c", "/no/c /no/c  -"),
            ("--etcd-cert /no/c --etcd-key /no/k", "/no/c /no/k  -"),
            ("--etcd-user me:/no/p", "- - me /no/p"),
            ("--etcd-user me:/no/a:b", "- - me /no/a:b"),
            ("--etcd-user me:x --etcd-password-file /no/p", "- - me:x /no/p"),
            ("--etcd-user me", "- - me -"),
        ] {
            assert_eq!(etcd(more), want, "{more}");
        }
    }

    #[test]
    fn a_mount_is_of_one_store() {
        for line in [
            "mount",
            "mount a b c",
            "mount /mnt --osds 1 --conf c",
            "mount /mnt --keyring k",
        ] {
            let words = std::iter::once("skep").chain(line.split(' '));
            assert!(Args::try_parse_from(words).is_err(), "{line}");
        }
        let args = Args::try_parse_from(["skep", "mount", "/mnt"]).unwrap();
        let Command::Mount(mount) = args.command else {
            panic!()
        };
        assert_eq!((mount.fs.as_deref(), mount.dir.to_str()), (None, Some("/mnt")));
    }

    #[test]
    fn what_a_bench_cannot_do_is_refused() {
        for line in [
            "bench rados",
            "bench rados -p x --depth 0",
            "bench rados -p x --block-size 100",
            "bench rados -p x --block-size 64M",
            "bench rbd -p x --clients 65",
            "bench rbd -p x --seconds 0",
            "bench rbd -p x --rw trim",
            "bench rbd -p x --mix-read 101",
            "bench rbd -p x --overwrite",
            "bench rbd -p x --image i --image-size 1G",
        ] {
            let words = std::iter::once("skep").chain(line.split(' '));
            assert!(Args::try_parse_from(words).is_err(), "{line}");
        }
    }

    #[test]
    fn what_an_image_cannot_be_is_refused() {
        for line in [
            "image import a.qcow2",
            "image import -p x",
            "image import -p x a --object-size 5M",
            "image import -p x a --object-size 64M",
            "image import -p x a --from iso",
            "image import -p x a --jobs 0",
            "image export -p x",
            "image export -p x a -o f --dir d",
        ] {
            let words = std::iter::once("skep").chain(line.split(' '));
            assert!(Args::try_parse_from(words).is_err(), "{line}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65536),
            ("1.5G", 3 << 29),
            ("20GiB", 20 << 30),
            ("1TB", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "5X", "0", "1e30P"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
