//! The grammar of `skep mount`.

use crate::options::{Where, parse_size};
use clap::Args as ClapArgs;
use node::KeepFree;
use std::path::PathBuf;

/// A file system whose name is not said.
pub const NAME: &str = "files";

#[derive(Debug, ClapArgs)]
#[command(allow_missing_positional = true)]
pub struct Mount {
    /// The file system [default: files; with --conf the first one]. In a store of this machine it is made when it is not there
    #[arg(value_name = "NAME")]
    pub fs: Option<String>,
    /// Where: an empty directory
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub place: Where,
    /// First start of the store: its OSDs. With 2 or 3, pools have as many copies [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub osds: Option<u32>,
    /// First start of the store: most bytes that one OSD may use, e.g. 20G [default: what the disk has]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub osd_size: Option<u64>,
    /// Free space of the host's file system that is left untouched, in bytes (20G) or percent of its size (10%),
    /// kept for later starts [default: 256M]
    #[arg(long, value_name = "SPACE", value_parser = crate::args::parse_keep_free)]
    pub keep_free: Option<KeepFree>,
    /// A ceph.conf: mount a file system of that cluster, ours or Ceph's, and start no store
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["osds", "osd_size", "keep_free"])]
    pub conf: Option<PathBuf>,
    /// Keyring [default: the one that the ceph.conf names]
    #[arg(long, value_name = "FILE", requires = "conf")]
    pub keyring: Option<PathBuf>,
    /// Who mounts
    #[arg(
        short,
        long,
        value_name = "ENTITY",
        default_value = "client.admin",
        requires = "conf"
    )]
    pub name: String,
    /// A directory of the file system, in place of all of it
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub path: String,
    /// Change nothing
    #[arg(long)]
    pub read_only: bool,
    /// Let other users than the one who mounts use it; the kernel looks at modes and owners either way
    #[arg(long)]
    pub allow_other: bool,
}
