//! What options of several commands share.

use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

/// A cluster as its clients find it.
#[derive(Debug, Clone, ClapArgs)]
pub struct ClusterArgs {
    /// The cluster's ceph.conf
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "CEPH_CONF",
        default_value = "/etc/ceph/ceph.conf"
    )]
    pub conf: PathBuf,
    /// Keyring [default: the one that the ceph.conf names]
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,
    /// Who asks
    #[arg(short, long, value_name = "ENTITY", default_value = "client.admin")]
    pub name: String,
}

/// A machine's store.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Plain,
    Json,
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

pub fn pair(certificate: Option<&PathBuf>, key: Option<&PathBuf>) -> Option<(PathBuf, PathBuf)> {
    let certificate = certificate?;
    Some((certificate.clone(), key.unwrap_or(certificate).clone()))
}
