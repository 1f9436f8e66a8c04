//! Commands about subvolumes, which somebody carries out beside the monitor on the file system itself (crate `volumes`): what is asked,
//! and what is answered. What is to be purged stands here, so it survives whoever does it.

use crate::ClusterState;
use serde_json::{Map, Value};
use types::Errno;

/// Commands that wait for whoever carries them out.
pub const ASKS_MAX: usize = 16;

/// A command, after its signature was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub prefix: String,
    pub args: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Nothing,
    Text(String),
    Json(Value),
}

/// An answer, or a refusal in a sentence.
pub type Done = Result<Said, (Errno, String)>;

/// The row that says that a file system's trash may hold something. It is written before something is moved there, and goes when
/// the trash is empty.
pub fn purge_key(fscid: i32) -> String {
    format!("{PURGE}{fscid}")
}

const PURGE: &str = "volumes/purge/";

/// File systems of which something is to be purged.
pub fn to_purge(state: &ClusterState) -> Vec<i32> {
    let from = state.config_keys.range(PURGE.to_string()..);
    from.map_while(|(key, _)| key.strip_prefix(PURGE))
        .filter_map(|id| id.parse().ok())
        .collect()
}
