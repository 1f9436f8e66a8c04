//! What a console is started with.

use crate::buckets::Buckets;
use metastore::ClusterHandle;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use types::EntityAddr;

#[derive(Clone)]
pub struct Settings {
    pub listen: SocketAddr,
    /// Names by which browsers may call it on loopback, besides the loopback's own: those of a proxy in front.
    pub hosts: Vec<String>,
    /// Files with certificate and key. None: plain HTTP, on loopback alone.
    pub tls: Option<(PathBuf, PathBuf)>,
    pub cluster: Cluster,
    /// Who knows of buckets. None: this program has no object gateway.
    pub buckets: Option<Arc<dyn Buckets>>,
    pub clock: Arc<dyn io::Clock>,
    pub random: Arc<dyn io::Random>,
}

/// Where entities are looked up, and monitors found.
#[derive(Clone)]
pub struct Cluster {
    pub handle: ClusterHandle,
    /// Where the monitor map names none.
    pub mon: EntityAddr,
}
