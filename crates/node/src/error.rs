//! What can go wrong before or while a node serves: one clear sentence each.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    DataDir { path: PathBuf, source: io::Error },
    #[error("{} is in use by another skep process{}", path.display(), pid.map(|p| format!(" (pid {p})")).unwrap_or_default())]
    Locked { path: PathBuf, pid: Option<u32> },
    #[error("{} holds no skep store (no skep.toml); `skep up --data {}` makes one", .0.display(), .0.display())]
    NoStore(PathBuf),
    #[error("{} is not empty and holds no skep store (found {found:?}): name an empty or a new directory", path.display())]
    NotOurs { path: PathBuf, found: String },
    #[error("{} was written by a newer skep (format {found}; this one knows up to {known})", path.display())]
    NewerFormat { path: PathBuf, found: u32, known: u32 },
    #[error("a thread cannot be started, or has failed: {0}")]
    Thread(io::Error),
    #[error("settings: {0}")]
    Settings(String),
    #[error("{0}")]
    Usage(String),
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        addr: std::net::SocketAddr,
        source: io::Error,
    },
    #[error("cluster state: {0}")]
    Cluster(String),
    #[error("osd.{id}: {what}")]
    Osd { id: i32, what: String },
    #[error("{name}: {what}")]
    Role { name: String, what: String },
    #[error(
        "nothing is left to serve: {what} cannot be started any more ({name}, after {starts} attempts: {why})"
    )]
    NothingLeft {
        what: &'static str,
        name: String,
        starts: u32,
        why: String,
    },
    #[error("the node itself cannot go on: {0}")]
    Panicked(String),
    #[error("not running: {}", .0.display())]
    NotRunning(PathBuf),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}
