//! Memory: rows that nobody uses go, and are read again.

use super::Machine;
use crate::row::Key;

/// Cells looked at in one turn.
const LOOKS: usize = 50_000;

impl Machine {
    pub(crate) fn evict(&mut self) {
        let budget = self.options.cache_bytes;
        if self.table.bytes() <= budget {
            return;
        }
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
            Key::Inode { ino, .. } => {
                caps.contains_key(ino)
                    || strays.contains(ino)
                    || untold.contains(ino)
                    || writing.contains(ino)
                    || loads.is_reading(key)
            }
            _ => loads.is_reading(key),
        };
        table.evict(budget, LOOKS, pinned);
    }
}
