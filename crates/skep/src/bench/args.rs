//! The grammar of `skep bench`.

use crate::options::{ClusterArgs, Format, parse_size};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};

#[derive(Debug, ClapArgs)]
pub struct Bench {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Blocks of objects, which are made before and removed after
    Rados(Rados),
    /// Blocks of images, which are made before and removed after, or of one that exists
    Rbd(Rbd),
}

/// What is done, as fio has it.
#[derive(Debug, Clone, ClapArgs)]
pub struct Job {
    /// Pool to work in
    #[arg(short, long)]
    pub pool: String,
    /// Namespace in the pool [default: none]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// What is measured
    #[arg(long, value_enum, default_value = "randwrite")]
    pub rw: Rw,
    /// Percent of reads in a mix
    #[arg(long, value_name = "PERCENT", default_value = "70", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub mix_read: u8,
    /// Bytes of an operation, 512 to 32M
    #[arg(short, long, value_name = "BYTES", value_parser = parse_block, default_value = "4K")]
    pub block_size: u64,
    /// Operations that each client has under way
    #[arg(short, long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,
    /// Clients, each with a thread, connections and an image of its own
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// How long
    #[arg(long, value_name = "S", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// End after so many operations of all clients, if that is sooner
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ops: Option<u64>,
    /// A process of the server whose processor time is counted; once for each [default: OSDs on this machine]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct Rados {
    #[command(flatten)]
    pub job: Job,
    /// Size of an object; each client has as many objects as operations under way
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "4M")]
    pub object_size: u64,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct Rbd {
    #[command(flatten)]
    pub job: Job,
    /// Size of each client's image, which is filled before it is measured
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "256M")]
    pub image_size: u64,
    /// Use this image in place of new ones. One client; its data are overwritten if the job writes
    #[arg(long, value_name = "NAME", conflicts_with = "image_size")]
    pub image: Option<String>,
    /// Yes, overwrite the data of --image
    #[arg(long, requires = "image")]
    pub overwrite: bool,
    /// Read all that was written afterwards, and compare; each block says where and when it was written
    #[arg(long)]
    pub verify: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    /// Reads at random places
    Randread,
    /// Writes at random places
    Randwrite,
    /// Reads one block after the other
    Read,
    /// Writes one block after the other
    Write,
    /// Reads and writes at random places
    Mix,
}

impl Rw {
    pub fn name(self) -> &'static str {
        match self {
            Self::Randread => "randread",
            Self::Randwrite => "randwrite",
            Self::Read => "read",
            Self::Write => "write",
            Self::Mix => "mix",
        }
    }

    pub fn is_random(self) -> bool {
        !matches!(self, Self::Read | Self::Write)
    }

    pub fn writes(self) -> bool {
        matches!(self, Self::Randwrite | Self::Write | Self::Mix)
    }
}

fn parse_block(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        n if (512..=32 << 20).contains(&n) => Ok(n),
        _ => Err("a block has 512 bytes to 32M".into()),
    }
}
