//! What the node gives a metadata server, and why one ends.

use auth::{Authenticator, Entropy};
use io::{Clock, Random};
use msgr::ModeSwitch;
use std::net::SocketAddr;
use std::sync::Arc;
use types::PoolId;

pub struct Config {
    /// As maps and logs call it: `mds.NAME`.
    pub name: String,
    pub bind: SocketAddr,
    /// New with every start.
    pub nonce: u32,
    pub hostname: String,
    /// Verifies tickets for the service `mds`.
    pub auth: Arc<dyn Authenticator>,
    pub modes: Arc<ModeSwitch>,
    pub entropy: Arc<dyn Entropy>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// Our own client of the pools: an entity that may read and write them all.
    pub rados: client::Conf,
    pub net: net::Accounts,
    pub meters: crate::meters::Meters,
    /// Rows kept in memory, in bytes.
    pub cache_bytes: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        addr: SocketAddr,
        source: std::io::Error,
    },
    #[error("its RADOS client: {0}")]
    Rados(#[from] client::Error),
    #[error("pool {pool}: {object}: {what}")]
    Damaged {
        pool: PoolId,
        object: String,
        what: String,
    },
    #[error(transparent)]
    Lost(#[from] crate::membership::Lost),
}
