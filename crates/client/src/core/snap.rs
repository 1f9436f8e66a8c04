//! Snapshots as an operation names them: the context of a write, and the snapshot that a read sees.

use crate::{Error, Result};
use types::Errno;

/// Which snapshots exist when something is written: `snaps` are their ids, strictly descending and none above `seq`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapContext {
    seq: u64,
    snaps: Vec<u64>,
}

/// As many snapshots as one context may hold: what an image or a pool has, with room.
const SNAPS_MAX: usize = 1 << 16;

impl SnapContext {
    pub fn new(seq: u64, snaps: Vec<u64>) -> Result<Self> {
        let descending = snaps.windows(2).all(|w| w[0] > w[1]);
        if !descending || snaps.first().is_some_and(|s| *s > seq) || snaps.len() > SNAPS_MAX {
            return Err(Error::invalid(
                Errno::EINVAL,
                "snap context: ids descend, and none is above its sequence",
            ));
        }
        Ok(Self { seq, snaps })
    }

    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn snaps(&self) -> &[u64] {
        &self.snaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_descending_ids_up_to_the_sequence() {
        for (seq, snaps, good) in [
            (0, vec![], true),
            (5, vec![], true),
            (5, vec![5, 3, 1], true),
            (4, vec![5], false),
            (5, vec![3, 3], false),
            (5, vec![1, 3], false),
        ] {
            assert_eq!(
                SnapContext::new(seq, snaps.clone()).is_ok(),
                good,
                "{seq} {snaps:?}"
            );
        }
    }
}
