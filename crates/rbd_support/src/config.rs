//! What a worker is given.

use auth::Entropy;
use io::{Clock, Random};
use metastore::ClusterHandle;
use std::sync::Arc;

#[derive(Clone)]
pub struct Config {
    pub cluster: ClusterHandle,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// For new keys.
    pub entropy: Arc<dyn Entropy>,
    /// Of the manager beside which it works: it works where that one is active.
    pub mgr_name: String,
    /// False: the cluster asks nobody who he is.
    pub cephx: bool,
}
