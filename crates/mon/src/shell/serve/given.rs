//! What a monitor is given, and how its start can fail.

use auth::KeyServerConfig;
use io::{Clock, Random};
use metastore::ClusterHandle;
use net::Msgr1;
use std::net::SocketAddr;
use std::sync::Arc;
use types::EntityAddr;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("monitor: {0}")]
    Bind(#[from] net::NotBound),
    #[error("monitor cannot listen: {0}")]
    Listen(std::io::Error),
    #[error("the monitor's address names no socket")]
    NoAddress,
    #[error(transparent)]
    Cluster(#[from] metastore::Error),
    #[error("the messenger of the {0} ended")]
    Net(&'static str),
}

/// What one monitor, with the manager beside it, is given.
#[derive(Clone)]
pub struct MonConfig {
    pub name: String,
    pub mgr_name: String,
    /// Where clients find the monitor: in their configuration and in the monitor map. The nonce is 0.
    pub addr: EntityAddr,
    /// Where the manager listens; port 0 takes a free one.
    pub mgr_bind: SocketAddr,
    /// Messenger v1 beside v2: the monitor's port of it; the manager takes a free one.
    pub msgr1: Option<Msgr1>,
    /// False: everybody may everything. Only ever by an explicit option, and on loopback.
    pub cephx: bool,
    /// Connection modes allowed with cephx, and lifetimes of tickets (short ones in tests); methods are set
    /// from `cephx`.
    pub tickets: KeyServerConfig,
    pub hostname: String,
    /// Connections at once, at each of the two ports.
    pub connections_max: usize,
    pub cluster: ClusterHandle,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// Where it shows what it counts.
    pub registry: metrics::Registry,
}
