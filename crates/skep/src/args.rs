//! The command line's grammar and help; clap builds parser and help from this one table.

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use node::KeepFree;
use std::net::IpAddr;
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
    /// Show whether the store runs, its health, usage and addresses
    Status(Status),
    /// Show what is blocked or slow, what it waits for, and what to do next
    Doctor(Status),
    /// Print the ceph.conf for clients of this store
    Conf(Where),
    /// Stop the running store cleanly and wait until it has ended
    Down(Down),
    /// Verify, read or measure one OSD's store by itself, without a server
    Store(crate::store::args::Store),
}

#[derive(Debug, ClapArgs)]
pub struct Where {
    /// Directory of the store [default: $SKEP_DATA, else /var/lib/skep (root) or ~/.local/share/skep]
    #[arg(long, value_name = "DIR", env = "SKEP_DATA")]
    pub data: Option<PathBuf>,
}

impl Where {
    pub fn dir(&self) -> PathBuf {
        if let Some(dir) = &self.data {
            return dir.clone();
        }
        match std::env::var_os("HOME") {
            Some(home) if !io::files::is_root() => PathBuf::from(home).join(".local/share/skep"),
            _ => PathBuf::from("/var/lib/skep"),
        }
    }
}

#[derive(Debug, ClapArgs)]
pub struct Up {
    #[command(flatten)]
    pub place: Where,
    /// Number of OSDs; may grow at a later start [default: 3 at the first start]
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
    /// How clients prove who they are, fixed at the first start; "none" only on loopback [default: cephx]
    #[arg(long, value_enum, value_name = "METHOD")]
    pub auth: Option<Auth>,
    /// Most bytes one OSD may use, e.g. 20G, fixed at the first start [default: what the disk has]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub osd_size: Option<u64>,
    /// Memory budget of one OSD, all caches and queues together, kept for later starts; at least 64M [default: 256M]
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    pub osd_memory: Option<u64>,
    /// Free space of the host's file system that is left untouched, in bytes (20G) or percent of its size (10%),
    /// kept for later starts [default: 256M]
    #[arg(long, value_name = "SPACE", value_parser = parse_keep_free)]
    pub keep_free: Option<KeepFree>,
    /// How data files are used: past the page cache and by io_uring where the host can, or by simpler ways
    #[arg(long, value_enum, value_name = "WAY", default_value = "auto")]
    pub disk_io: DiskIo,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Plain,
    Json,
}

#[derive(Debug, ClapArgs)]
pub struct Down {
    #[command(flatten)]
    pub place: Where,
    /// Seconds to wait for the clean stop
    #[arg(long, default_value_t = 60)]
    pub timeout: u64,
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < node::OSD_MEMORY_MIN {
        return Err("an OSD works from 64M on".into());
    }
    Ok(bytes)
}

/// `20G` or `10%`.
fn parse_keep_free(text: &str) -> Result<KeepFree, String> {
    let Some(percent) = text.trim().strip_suffix('%') else {
        return parse_size(text).map(KeepFree::Bytes);
    };
    match percent.trim().parse() {
        Ok(p) if (0.0..=95.0).contains(&p) => Ok(KeepFree::Percent(p)),
        _ => Err("a share lies between 0% and 95%".into()),
    }
}

/// `4096`, `64K`, `20G`, `1.5T`: powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim().trim_end_matches("iB").trim_end_matches('B');
    let (number, unit) = match text.char_indices().find(|(_, c)| c.is_ascii_alphabetic()) {
        Some((i, _)) => text.split_at(i),
        None => (text, ""),
    };
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return Err(format!("unknown unit {unit:?}: use K, M, G, T or P")),
    };
    let value: f64 = number
        .trim()
        .parse()
        .map_err(|_| format!("not a size: {text:?}"))?;
    if !(value > 0.0 && value * ((1u64 << shift) as f64) < 9e18) {
        return Err("out of range".into());
    }
    Ok((value * (1u64 << shift) as f64) as u64)
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
            "conf",
            "down",
            "store check d",
            "store dump d",
            "store bench d",
        ] {
            let words = std::iter::once("skep").chain(line.split(' '));
            Args::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}"));
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
