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

/// A clone that is not there yet: what is copied to where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneRow {
    pub group: String,
    pub name: String,
    pub from_group: String,
    pub from: String,
    pub snap: String,
}

impl CloneRow {
    pub fn value(&self) -> bytes::Bytes {
        let from =
            serde_json::json!({"group": self.from_group, "subvolume": self.from, "snapshot": self.snap});
        from.to_string().into()
    }

    fn parse(place: &str, value: &[u8]) -> Option<Self> {
        let (group, name) = place.split_once('/')?;
        let from: Value = serde_json::from_slice(value).ok()?;
        let text = |key: &str| Some(from.get(key)?.as_str()?.to_string());
        Some(Self {
            group: group.to_string(),
            name: name.to_string(),
            from_group: text("group")?,
            from: text("subvolume")?,
            snap: text("snapshot")?,
        })
    }
}

const CLONE: &str = "volumes/clone/";

/// The row that says that a clone is to be copied. It is written before the clone is made, and goes when nothing is to be done for it.
pub fn clone_key(fscid: i32, row: &CloneRow) -> String {
    format!("{CLONE}{fscid}/{}/{}", row.group, row.name)
}

/// Clones of a file system that are to be copied.
pub fn clones(state: &ClusterState, fscid: i32) -> Vec<CloneRow> {
    let prefix = format!("{CLONE}{fscid}/");
    let from = state.config_keys.range(prefix.clone()..);
    from.map_while(|(key, value)| Some((key.strip_prefix(&prefix)?, value)))
        .filter_map(|(place, value)| CloneRow::parse(place, value))
        .collect()
}

/// File systems in which something is to be copied.
pub fn to_clone(state: &ClusterState) -> Vec<i32> {
    let from = state.config_keys.range(CLONE.to_string()..);
    let mut all: Vec<i32> = from
        .map_while(|(key, _)| key.strip_prefix(CLONE))
        .filter_map(|rest| rest.split('/').next()?.parse().ok())
        .collect();
    all.dedup();
    all
}

/// File systems of which something is to be purged.
pub fn to_purge(state: &ClusterState) -> Vec<i32> {
    let from = state.config_keys.range(PURGE.to_string()..);
    from.map_while(|(key, _)| key.strip_prefix(PURGE))
        .filter_map(|id| id.parse().ok())
        .collect()
}
