//! OSD maps for clients whose own is older: increments where the history still has them, else the full map.

use cluster::ClusterState;
use messages::mon::{Body, MOsdMap};
use types::Epoch;

/// Increments in one message; a client further behind gets the full map.
const INCREMENTALS_MAX: u32 = 40;

/// The message that brings a client from `have` to the newest epoch.
pub fn update(state: &ClusterState, have: Epoch) -> msgr::Message {
    let history = &state.history;
    let newest = history.latest();
    let mut body = MOsdMap {
        fsid: state.fsid,
        oldest: history.first(),
        newest,
        ..MOsdMap::default()
    };
    if have > 0 && newest.saturating_sub(have) <= INCREMENTALS_MAX {
        for epoch in have + 1..=newest {
            match history.incremental(epoch) {
                Some(raw) => drop(body.incrementals.insert(epoch, raw)),
                None => {
                    body.incrementals.clear();
                    break;
                }
            }
        }
    }
    if body.incrementals.is_empty() {
        body.fulls.insert(newest, history.latest_full());
        // The receiver shall jump here, not wait for the epochs between.
        body.oldest = newest;
    }
    body.message(0)
}
