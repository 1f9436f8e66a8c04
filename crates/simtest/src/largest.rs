//! Records of the largest size that a client may make, on an object of their own: all attributes that one may have, and
//! the largest row of an omap. What carries them elsewhere (a transaction, a copy, a scrub's piece) has
//! bounds of its own, and one that is too small for such a record keeps its PG from ever becoming clean.
//!
//! Not here: the largest write. These stores grow by 1 MiB at a time, and refuse one that needs more than a few such steps.
//!
//! Bounds: so many of them in a run, since each costs as much as hundreds of others.

use crate::cluster::LOG_BYTES;
use crate::model::{Ask, value};
use bytes::Bytes;
use io_sim::Dice;
use pg::{XATTR_VALUE_MAX, XATTRS_BYTES_MAX, XATTRS_MAX};
use std::collections::BTreeMap;

pub const OBJECT: &str = "largest";
/// The guard is an attribute, too: its name and at most so much.
const GUARD_BYTES: usize = 5 + 16;
/// A row has to fit into one record of the store's log, a quarter of that, with what else the transaction brings.
const ROW_BYTES: usize = (LOG_BYTES / 4) as usize - (64 << 10);
/// Its key; the only one, since pages of an omap are shorter than two of them.
const ROW: &str = "row";

/// Which of them a run has beside the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Largest {
    pub row: bool,
}

/// As many attributes as an object may have, as large as all together may be: some of them the largest that there are.
pub fn attrs(client: u64, n: u64) -> BTreeMap<String, Bytes> {
    let name = |i: usize| format!("a{i:03}");
    let count = XATTRS_MAX - 1;
    let names: usize = (0..count).map(|i| name(i).len()).sum();
    let mut left = XATTRS_BYTES_MAX as usize - GUARD_BYTES - names;
    let mut out = BTreeMap::new();
    for i in 0..count {
        // The last one takes what remains.
        let others = (count - 1 - i) * LEAST;
        let len = XATTR_VALUE_MAX.min(left - others);
        left -= len;
        out.insert(name(i), value(client, n, len));
    }
    out
}

/// Of an attribute beside the largest: room for its tag.
const LEAST: usize = 24;

pub fn row(client: u64, n: u64) -> Ask {
    Ask::OmapSet(ROW.into(), value(client, n, ROW_BYTES))
}

/// What one client does with the object in a run.
#[derive(Debug)]
pub struct Share {
    which: Option<Largest>,
    /// One client writes; the others read what it wrote.
    writes: bool,
    left: u32,
}

/// Of each client.
const ASKS_MAX: u32 = 6;
/// Every so many of its operations.
const RARELY: u64 = 24;

impl Share {
    pub fn of(which: Option<Largest>, client: u64) -> Self {
        Self {
            which,
            writes: client == 0,
            left: ASKS_MAX,
        }
    }

    pub fn draw(&mut self, dice: &mut Dice, client: u64, n: u64) -> Option<Ask> {
        let which = self.which.filter(|_| self.left > 0)?;
        if dice.below(RARELY) > 0 {
            return None;
        }
        self.left -= 1;
        let first = self.left + 1 == ASKS_MAX;
        if !self.writes {
            return Some(Ask::Read);
        }
        Some(match dice.below(8) {
            _ if first => Ask::SetAttrs(attrs(client, n)),
            0 | 1 if which.row => row(client, n),
            0..=3 => Ask::SetAttrs(attrs(client, n)),
            4 => Ask::Delete,
            // What is written beside such records: a member that lacks only this is given only this.
            5 | 6 => Ask::Write {
                at: dice.below(1000),
                data: value(client, n, 300),
            },
            _ => Ask::Read,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_reach_all_bounds_at_once() {
        let all = attrs(3, 1000);
        let bytes: usize = all.iter().map(|(n, v)| n.len() + v.len()).sum();
        assert_eq!(all.len() + 1, XATTRS_MAX);
        assert_eq!((bytes + GUARD_BYTES) as u64, XATTRS_BYTES_MAX);
        assert_eq!(all.values().map(Bytes::len).max(), Some(XATTR_VALUE_MAX));
    }
}
