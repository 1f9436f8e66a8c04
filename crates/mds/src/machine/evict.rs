//! Memory: rows that nobody uses go, and are read again.

use super::Machine;
use crate::row::{Key, NOSNAP};
use std::collections::BTreeSet;

/// Cells looked at in one turn.
const LOOKS: usize = 50_000;

impl Machine {
    pub(crate) fn evict(&mut self) {
        let budget = self.options.cache_bytes;
        if self.table.bytes() <= budget {
            return;
        }
        let above = self.above_held();
        let Self {
            table,
            caps,
            loads,
            strays,
            untold,
            writing,
            ..
        } = self;
        let pinned = |key: &Key| match key {
            Key::Inode { ino, snap } if *snap != NOSNAP => {
                Self::may_be_told_of(caps, *ino, *snap) || loads.is_reading(key)
            }
            Key::Inode { ino, .. } => {
                caps.contains_key(ino)
                    || above.contains(ino)
                    || strays.contains(ino)
                    || untold.contains(ino)
                    || writing.contains(ino)
                    || loads.is_reading(key)
            }
            _ => loads.is_reading(key),
        };
        table.evict(budget, LOOKS, pinned);
    }

    /// Directories above what clients hold: which snapshots it is in is known at any time.
    fn above_held(&self) -> BTreeSet<u64> {
        let mut above = BTreeSet::new();
        if !self.realms.is_empty() || !self.snaps.is_empty() {
            for inode in self.caps.keys().filter_map(|ino| self.cached(*ino)) {
                self.missing_above_but(&inode, &mut above);
            }
        }
        above
    }
}
