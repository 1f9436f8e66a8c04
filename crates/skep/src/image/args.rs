//! The grammar of `skep image`.

use super::format::Format as Kind;
use crate::options::{ClusterArgs, Format, parse_size};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub struct Image {
    #[command(subcommand)]
    pub command: ImageCommand,
}

#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Make images of disk files: raw, qcow2, QED, VMDK, VDI, VHDX, VHD, found out by content
    Import(Import),
    /// Make disk files of images: raw, qcow2, QED, VMDK, VDI, VHDX
    Export(Export),
}

/// What both directions share.
#[derive(Debug, Clone, ClapArgs)]
pub struct Common {
    /// Pool of the images
    #[arg(short, long)]
    pub pool: String,
    /// Namespace in the pool [default: none]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// So many at once
    #[arg(short, long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub jobs: u32,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, ClapArgs)]
pub struct Import {
    /// Disk files, or block devices
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The image's name; of one FILE [default: the file's name without its suffix]
    #[arg(long, value_name = "NAME")]
    pub image: Option<String>,
    /// What the files are, in place of what their content says
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub from: Option<Kind>,
    /// Also import files that name a backing file, a parent or files with their data: those are read, wherever they are
    #[arg(long)]
    pub allow_backing: bool,
    /// Size of the images' objects, a power of two from 4K to 32M
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = parse_object_size)]
    pub object_size: u64,
    /// Pool of the images' data [default: the pool of the images]
    #[arg(long, value_name = "POOL")]
    pub data_pool: Option<String>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, ClapArgs)]
pub struct Export {
    /// Images, or snapshots of them
    #[arg(required = true, value_name = "IMAGE[@SNAP]")]
    pub images: Vec<String>,
    /// The file, which must not exist; of one IMAGE [default: IMAGE.FORMAT]
    #[arg(short, long, value_name = "FILE", conflicts_with = "dir")]
    pub output: Option<PathBuf>,
    /// Directory of the files [default: the present one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// What the files shall be [default: what the suffix of --output says, else raw]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Option<Kind>,
    #[command(flatten)]
    pub common: Common,
}

fn parse_object_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        n if n.is_power_of_two() && (4 << 10..=32 << 20).contains(&n) => Ok(n),
        _ => Err("an object has 4K to 32M, a power of two".into()),
    }
}
