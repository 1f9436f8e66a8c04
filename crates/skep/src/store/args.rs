//! The grammar of `skep store`.

use crate::args::{DiskIo, Format, parse_size};
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use types::PgId;

#[derive(Debug, Args)]
pub struct Store {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Verify the store of an OSD that does not run: every object, extent, reference count and checksum.
    ///
    /// Nothing is changed. Exit code 0: clean; 1: damage was found; 2: it cannot be looked at.
    #[command(verbatim_doc_comment)]
    Check(Check),
    /// Read what is in the store of an OSD that does not run; without a command, its pools and PGs.
    ///
    /// Nothing is changed. Exit code 0: all was given; 1: some of it is damaged; 2: it cannot be read at all.
    #[command(verbatim_doc_comment)]
    Dump(Dump),
    /// Measure the engine without network in a directory of its own, which goes at the end
    Bench(Bench),
}

#[derive(Debug, Args)]
pub struct Check {
    /// Directory of one OSD, e.g. /var/lib/skep/osd.0
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// File with the keys of a store that is encrypted (as --osd-keys of `skep up`)
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Dump {
    /// Directory of one OSD, e.g. /var/lib/skep/osd.0
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// File with the keys of a store that is encrypted (as --osd-keys of `skep up`)
    #[arg(long, global = true, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain", global = true)]
    pub format: Format,
    /// Where the log is damaged: leave it out, and show what the last checkpoint has
    #[arg(long, global = true)]
    pub without_log: bool,
    #[command(subcommand)]
    pub what: Option<What>,
}

#[derive(Debug, Subcommand)]
pub enum What {
    /// List objects, with sizes
    Ls(Ls),
    /// Write an object's data to a file or to standard output
    Get(Get),
    /// Show an object's attributes
    Attrs(Which),
    /// Show an object's omap: header, keys and values
    Omap(Which),
    /// Show a PG's log
    Log {
        /// The PG, e.g. 1.1f
        #[arg(value_name = "PG", value_parser = parse_pg)]
        pg: PgId,
    },
    /// Write the data of all objects of a pool, snapshots not, to files in a directory
    Export(Export),
}

#[derive(Debug, Args)]
pub struct Ls {
    /// Only this pool, by its number
    #[arg(long, value_name = "N")]
    pub pool: Option<i64>,
    /// Only this PG, e.g. 1.1f
    #[arg(long, value_name = "PG", value_parser = parse_pg)]
    pub pg: Option<PgId>,
}

#[derive(Debug, Args)]
pub struct Which {
    /// Name of the object
    #[arg(value_name = "OBJECT")]
    pub object: OsString,
    /// Number of its pool; may be left out where only one pool has it
    #[arg(long, value_name = "N")]
    pub pool: Option<i64>,
    /// Its namespace
    #[arg(short = 'N', long, value_name = "NAME", default_value = "")]
    pub namespace: OsString,
    /// Its clone of this snapshot, by number, instead of its newest state
    #[arg(long, value_name = "ID")]
    pub snap: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Get {
    #[command(flatten)]
    pub which: Which,
    /// File to write; "-" is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// Give zeros for blocks that are damaged, instead of stopping there
    #[arg(long)]
    pub skip_damaged: bool,
}

#[derive(Debug, Args)]
pub struct Export {
    /// Directory to write to; made, or empty
    #[arg(value_name = "DIR")]
    pub to: PathBuf,
    /// Number of the pool
    #[arg(long, value_name = "N")]
    pub pool: i64,
    /// Give zeros for blocks that are damaged, instead of leaving their objects out
    #[arg(long)]
    pub skip_damaged: bool,
}

#[derive(Debug, Args)]
pub struct Bench {
    /// Directory on the disk to measure; made, or empty
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Bytes of object data
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_size)]
    pub size: u64,
    /// Seconds for each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub time: u64,
    /// Operations under way at once: one measurement for each
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,32",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: Vec<u32>,
    /// Memory budget of the engine
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    pub memory: u64,
    /// Also make this many objects of 4 KiB, and time opening after a kill, listing, and a clean start
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    pub objects: u64,
    /// Only these measurements
    #[arg(
        long,
        value_enum,
        value_name = "TEST,TEST",
        value_delimiter = ',',
        default_value = "sequential-write,overwrite,read-cold,read-warm,sequential-read"
    )]
    pub only: Vec<Test>,
    /// Encrypt the data, with keys of this file: what that costs
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// How the data file is used
    #[arg(long, value_enum, value_name = "WAY", default_value = "auto")]
    pub disk_io: DiskIo,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// 4 MiB writes in order
    SequentialWrite,
    /// 4 KiB writes at random places, durable
    Overwrite,
    /// 4 KiB reads at random places, no block twice, with cold caches
    ReadCold,
    /// 4 KiB reads at random places of 16 MiB that were read before
    ReadWarm,
    /// 4 MiB reads in order, with cold caches
    SequentialRead,
}

fn parse_pg(text: &str) -> Result<PgId, String> {
    text.parse()
        .map_err(|()| "a PG is POOL.SEED, the seed in hex, e.g. 1.1f".to_string())
}
