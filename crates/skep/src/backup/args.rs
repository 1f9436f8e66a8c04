//! The grammar of `skep backup`.

use crate::options::{ClusterArgs, Format};
use ::backup::keep::Keep;
use ::backup::time::parse_duration;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub struct Backup {
    #[command(subcommand)]
    pub command: BackupCommand,
}

#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Make a repository in a new or empty directory
    Init(Init),
    /// Make backups: those of policies that are due, or of images that are named
    Run(Run),
    /// List backups; needs no cluster
    Ls(Ls),
    /// Make a new image of a backup, and compare what was written
    Restore(Restore),
    /// Check that everything is there, and what was written; needs no cluster
    Verify(Verify),
    /// Take backups away that rules do not keep, and what no backup needs; needs no cluster
    Prune(Prune),
    /// Take what is lost or changed out of a repository, so that the next backups store it again; needs no cluster
    Repair(Repair),
    /// Take locks away whose holders are gone: that of another host counts until this is said
    Unlock(Unlock),
    /// Remove single backups; `prune` then frees their room
    Rm(Rm),
    /// Try backups: read them whole and compare them with the images' snapshots
    Trial(Trial),
    /// What is backed up, where to, how often, and how long it is kept
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Run the policies of this host when they are due, until it is ended
    Serve(Serve),
}

/// A repository and what opens it.
#[derive(Debug, Clone, ClapArgs)]
pub struct At {
    /// The repository's directory
    #[arg(value_name = "REPO", value_parser = ::backup::parse_place)]
    pub repo: PathBuf,
    #[command(flatten)]
    pub key: KeyFile,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct KeyFile {
    /// File with the repository's password; keep copies of it elsewhere: without it no backup can be read
    #[arg(long, value_name = "FILE", env = "SKEP_BACKUP_KEY_FILE")]
    pub key_file: PathBuf,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct Reading {
    /// Write nothing into the repository, not even a lock: for one that cannot be written to, or on which nobody works
    #[arg(long)]
    pub no_lock: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Init {
    #[command(flatten)]
    pub at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Compress {
    Zstd,
    None,
}

#[derive(Debug, ClapArgs)]
pub struct Run {
    /// Policies [default: all of this host]
    #[arg(value_name = "POLICY", conflicts_with_all = ["of", "to"])]
    pub policies: Vec<String>,
    /// Also what is not due yet
    #[arg(long)]
    pub now: bool,
    /// Images to back up, without a policy: POOL, POOL/GLOB or POOL/NAMESPACE/GLOB
    #[arg(long, value_name = "POOL[/GLOB]", requires_all = ["to", "key_file"])]
    pub of: Option<String>,
    /// The repository's directory
    #[arg(long, value_name = "REPO", requires = "of", value_parser = ::backup::parse_place)]
    pub to: Option<PathBuf>,
    /// File with the repository's password
    #[arg(long, value_name = "FILE", env = "SKEP_BACKUP_KEY_FILE")]
    pub key_file: Option<PathBuf>,
    /// How pieces are compressed
    #[arg(long, value_enum, value_name = "METHOD", default_value = "zstd")]
    pub compress: Compress,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, ClapArgs)]
pub struct Ls {
    #[command(flatten)]
    pub at: At,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
}

#[derive(Debug, ClapArgs)]
pub struct Restore {
    #[command(flatten)]
    pub at: At,
    #[command(flatten)]
    pub reading: Reading,
    /// Which: @latest, or the beginning of a time or an id that `ls` shows
    #[arg(value_name = "IMAGE@TIME")]
    pub backup: String,
    /// The new image, which must not exist: POOL/NAME or POOL/NAMESPACE/NAME
    #[arg(long, value_name = "POOL/NAME")]
    pub to: String,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, ClapArgs)]
pub struct Verify {
    #[command(flatten)]
    pub at: At,
    #[command(flatten)]
    pub reading: Reading,
    /// Read all data, too
    #[arg(long)]
    pub read_all: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
}

#[derive(Debug, ClapArgs)]
pub struct Prune {
    #[command(flatten)]
    pub at: At,
    /// What stays, of each image and policy: SPAN:EVERY,... [default: all backups; only what none needs goes]
    #[arg(long, value_name = "RULES")]
    pub keep: Option<Keep>,
    /// Only backups of this policy
    #[arg(long, value_name = "POLICY", requires = "keep")]
    pub policy: Option<String>,
    /// Only say which backups would go
    #[arg(long)]
    pub dry_run: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
}

#[derive(Debug, ClapArgs)]
pub struct Repair {
    #[command(flatten)]
    pub at: At,
}

#[derive(Debug, ClapArgs)]
pub struct Unlock {
    #[command(flatten)]
    pub at: At,
}

#[derive(Debug, ClapArgs)]
pub struct Rm {
    #[command(flatten)]
    pub at: At,
    /// Which: @latest, or the beginning of a time or an id that `ls` shows
    #[arg(value_name = "IMAGE@TIME", required = true)]
    pub backups: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub struct Trial {
    #[command(flatten)]
    pub at: At,
    #[command(flatten)]
    pub reading: Reading,
    /// Which: @latest, or the beginning of a time or an id that `ls` shows
    #[arg(value_name = "IMAGE@TIME", required = true)]
    pub backups: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Make or change a policy
    Set(PolicySet),
    /// List policies, and how their images stand
    Ls(PolicyLs),
    /// Remove a policy; its backups stay
    Rm(PolicyRm),
}

#[derive(Debug, ClapArgs)]
pub struct PolicySet {
    /// The policy's name: letters, digits, and ._-
    #[arg(value_name = "POLICY")]
    pub policy: String,
    /// Images: POOL, POOL/GLOB or POOL/NAMESPACE/GLOB
    #[arg(long, value_name = "POOL[/GLOB]")]
    pub of: String,
    /// The repository's directory, on the host that runs the policy
    #[arg(long, value_name = "REPO", value_parser = ::backup::parse_place)]
    pub to: PathBuf,
    /// How often: 15m, 1h, 1d
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub every: u64,
    /// What stays, of each image: SPAN:EVERY,...
    #[arg(long, value_name = "RULES", default_value = "24h:1h,7d:1d,8w:1w")]
    pub keep: Keep,
    /// File with the repository's password, on the host that runs the policy
    #[arg(long, value_name = "FILE", env = "SKEP_BACKUP_KEY_FILE")]
    pub key_file: PathBuf,
    /// How pieces are compressed
    #[arg(long, value_enum, value_name = "METHOD", default_value = "zstd")]
    pub compress: Compress,
    /// How often the newest backup of each image is tried [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub trial: Option<u64>,
    /// The host that runs it [default: this one]
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, ClapArgs)]
pub struct PolicyLs {
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, ClapArgs)]
pub struct PolicyRm {
    #[arg(value_name = "POLICY")]
    pub policy: String,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, ClapArgs)]
pub struct Serve {
    #[command(flatten)]
    pub cluster: ClusterArgs,
}
