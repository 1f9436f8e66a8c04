//! Facts that daemons say of themselves when they begin to serve ([`crate::OsdBoot::metadata`], [`crate::MonReport::metadata`]), as
//! far as the cluster goes by them.

use crate::format::{Feature, Format};
use std::collections::BTreeMap;

/// Of an OSD: `1` if it serves pools of shards.
pub const SERVES_SHARDS: &str = "serves_shards";
/// Of a monitor: the features of the cluster's state that it knows, one bit each, as a number.
pub const STATE_FEATURES: &str = "state_features";

/// True if an OSD with these facts serves pools of shards.
pub fn serves_shards(facts: &BTreeMap<String, String>) -> bool {
    facts.get(SERVES_SHARDS).is_some_and(|said| said == "1")
}

/// What this program says as [`STATE_FEATURES`].
pub fn state_features() -> String {
    Format::known_features().to_string()
}

/// True if a monitor with these facts reads a state with a feature in use. One of before the fact does not say so.
pub fn reads(facts: &BTreeMap<String, String>, feature: Feature) -> bool {
    let known = facts
        .get(STATE_FEATURES)
        .and_then(|said| said.parse::<u64>().ok());
    known.is_some_and(|known| known & 1 << feature as u32 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_of_before_says_nothing_of_features() {
        let said = |value: &str| BTreeMap::from([(STATE_FEATURES.to_string(), value.to_string())]);
        assert!(!reads(&BTreeMap::new(), Feature::Shards));
        assert!(reads(&said(&state_features()), Feature::Shards));
        assert!(!reads(&said("1"), Feature::Shards) && reads(&said("1"), Feature::Merges));
        assert!(!reads(&said("all"), Feature::Shards));
    }
}
