//! Memory: rows that nobody uses go, and are read again.

use super::Machine;
use crate::row::{Key, NOSNAP, Row};
use std::collections::BTreeSet;
use std::time::Duration;

/// Cells looked at in one turn.
const LOOKS: usize = 50_000;
/// Directories go only where all that is held was looked through, which is done so often.
const DIRS: Duration = Duration::from_secs(1);

impl Machine {
    pub(crate) fn evict(&mut self) {
        let budget = self.options.cache_bytes.saturating_sub(self.leases.bytes());
        if self.table.bytes() <= budget {
            return;
        }
        let above = self.above_now();
        let Self {
            table,
            caps,
            loads,
            strays,
            untold,
            writing,
            ..
        } = self;
        let is_above = |ino: u64, row: Option<&Row>| match &above {
            Some(above) => above.contains(&ino),
            None => matches!(row, Some(Row::Inode(i)) if i.is_dir()),
        };
        let pinned = |key: &Key, row: Option<&Row>| match key {
            Key::Inode { ino, snap } if *snap != NOSNAP => {
                Self::may_be_told_of(caps, *ino, *snap) || loads.is_reading(key)
            }
            Key::Inode { ino, .. } => {
                caps.contains_key(ino)
                    || is_above(*ino, row)
                    || strays.contains(ino)
                    || untold.contains(ino)
                    || writing.contains(ino)
                    || loads.is_reading(key)
            }
            _ => loads.is_reading(key),
        };
        table.evict(budget, LOOKS, pinned);
    }

    /// Directories above what clients hold: which snapshots it is in is known at any time. None: it is not looked for now, and any may be.
    fn above_now(&mut self) -> Option<BTreeSet<u64>> {
        let mut above = BTreeSet::new();
        if self.realms.is_empty() && self.snaps.is_empty() {
            return Some(above);
        }
        let now = self.now.monotonic;
        if now < self.looked_above + DIRS {
            return None;
        }
        self.looked_above = now;
        for inode in self.caps.keys().filter_map(|ino| self.cached(*ino)) {
            self.missing_above_but(&inode, &mut above);
        }
        Some(above)
    }
}
