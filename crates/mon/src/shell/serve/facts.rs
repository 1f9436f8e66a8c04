//! What a monitor says of itself.

use std::collections::BTreeMap;
use types::EntityAddrVec;

/// Facts for `mon metadata`.
pub(super) fn metadata(hostname: &str, addrs: &EntityAddrVec) -> BTreeMap<String, String> {
    let facts = [
        ("addrs", addrs.to_string()),
        ("hostname", hostname.to_string()),
        (cluster::facts::STATE_FEATURES, cluster::facts::state_features()),
    ];
    let versions = types::release::VERSION_FACTS.map(|(k, v)| (k, v.to_string()));
    facts
        .into_iter()
        .chain(versions)
        .map(|(k, v)| (k.to_string(), v))
        .collect()
}
