//! Facts that OSDs say of themselves when they begin to serve ([`crate::OsdBoot::metadata`]), as far as the cluster goes by them.

use std::collections::BTreeMap;

/// `1` if the OSD serves pools of shards.
pub const SERVES_SHARDS: &str = "serves_shards";

/// True if an OSD with these facts serves pools of shards.
pub fn serves_shards(facts: &BTreeMap<String, String>) -> bool {
    facts.get(SERVES_SHARDS).is_some_and(|said| said == "1")
}
