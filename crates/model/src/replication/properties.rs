//! What holds in every state, unless a rule is broken.

use super::rules::Replication;
use super::state::{OSDS, State, ups};

/// The properties, by name.
pub const ONE_SERVES: &str = "at most one OSD answers reads";
pub const READS_ARE_NEW: &str = "a read shows every earlier write and read";
pub const READS_ARE_THE_LOG: &str = "a read shows what the log says";
pub const PRIMARY_HAS_ALL: &str = "a serving primary's log has every acknowledged write";
pub const IN_SYNC_HAVE_ALL: &str = "every OSD of in_sync holds every acknowledged write";
pub const IN_SYNC_ARE_WHOLE: &str = "the object of an OSD of in_sync is what its log says";
pub const IN_SYNC_ARE_A_CHAIN: &str = "the logs of in_sync are prefixes of one another";
pub const ONE_HISTORY: &str = "answers agree on one order of writes";
pub const MIN_SIZE_COPIES: &str = "an acknowledged write is durable on min_size OSDs";
pub const EQUAL_VERSIONS: &str = "equal versions in sync are equal writes";

pub fn check(model: &Replication, s: &State) -> Result<(), &'static str> {
    if let Some(property) = s.broken {
        return Err(property);
    }
    let serving = |i: &usize| s.nodes[*i].serves(*i);
    if (0..OSDS).filter(serving).count() > 1 {
        return Err(ONE_SERVES);
    }
    for i in (0..OSDS).filter(serving) {
        let node = &s.nodes[i];
        if !s.exposed.is_prefix_of(&node.log) {
            return Err(match node.reads() {
                true => READS_ARE_NEW,
                false => PRIMARY_HAS_ALL,
            });
        }
        if node.reads() && node.content != node.log.last() {
            return Err(READS_ARE_THE_LOG);
        }
    }
    for i in ups(s.config.in_sync) {
        let node = &s.nodes[i];
        let has_all = s.exposed.is_prefix_of(&node.durable_log) && s.exposed.is_prefix_of(&node.log);
        if !has_all && !model.rules.ack_before_durable {
            return Err(IN_SYNC_HAVE_ALL);
        }
        let whole = node.content == node.log.last() && node.durable_content == node.durable_log.last();
        if !whole && !model.rules.rewind_in_sync {
            return Err(IN_SYNC_ARE_WHOLE);
        }
        for j in ups(s.config.in_sync) {
            if node.log.same_version_other_write(&s.nodes[j].log) {
                return Err(EQUAL_VERSIONS);
            }
            let other = &s.nodes[j].log;
            if !model.rules.trust_own_log && !node.log.is_prefix_of(other) && !other.is_prefix_of(&node.log) {
                return Err(IN_SYNC_ARE_A_CHAIN);
            }
        }
    }
    Ok(())
}
