//! Coming back to a server with the session that was there: what it was told, and when that has come to nothing.
//!
//! Invariant: a server that was told what is held here is not told again as long as it may be waiting for others, for longer than any time
//! limit of ours. One that hears it twice may take it for a client that has lost its answer, and end the session with all its locks.

use crate::place::{Stage, Standing};

#[derive(Debug, Default)]
pub(super) struct Back {
    /// By the connection that there is.
    pub(super) said: bool,
    /// The monitor says that it serves, but it has not answered us.
    serves: bool,
}

impl Back {
    /// What the monitor says while no answer comes: whether the server that was told may be waiting for others. When it serves it has
    /// answered, which may be on the way once.
    pub(super) fn waits_on(&mut self, gid: Option<u64>, found: &Standing) -> bool {
        gid == Some(found.gid) && (found.stage != Stage::Active || !std::mem::replace(&mut self.serves, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(gid: u64, stage: Stage) -> Standing {
        Standing {
            fs: "fs".into(),
            epoch: 1,
            gid,
            stage,
            addr: None,
            ranks: 1,
            max_file_size: 1,
        }
    }

    #[test]
    fn who_was_told_is_waited_for_as_long_as_it_waits_for_others() {
        let mut back = Back::default();
        for stage in [Stage::Reconnect, Stage::Reconnect, Stage::Rejoin, Stage::Away] {
            assert!(back.waits_on(Some(7), &standing(7, stage)));
            assert!(!back.waits_on(Some(7), &standing(8, stage)));
        }
        // Its answer is on the way; or it never comes.
        assert!(back.waits_on(Some(7), &standing(7, Stage::Active)));
        assert!(!back.waits_on(Some(7), &standing(7, Stage::Active)));
        assert!(!Back::default().waits_on(None, &standing(7, Stage::Reconnect)));
    }
}
