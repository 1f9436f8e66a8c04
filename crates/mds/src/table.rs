//! Rows in memory: those that were changed and are not written back, and those that were read and may be read again.
//!
//! Vocabulary: a *cell* is what is known of a key, also that there is no such row. It is *dirty* from the transaction on that first
//! changed it since it was written back. What is *known* of a directory is a range of its names within which all are in cells.
//!
//! Invariants: a dirty cell stays; a clean one may go at any time, except where something pins it: a read of its directory that is under
//! way (its answer may be older than what goes), or its user ([`Table::evict`]).

use crate::owners::Owners;
use crate::row::{Key, NOSNAP, Row};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A place between names: behind this one. None: before all.
pub type Position = Option<(u32, Bytes)>;

#[derive(Debug)]
struct Cell {
    row: Option<Row>,
    /// The last transaction that changed it.
    tx: u64,
    /// 0: clean.
    dirty: u64,
    used: bool,
}

/// Names behind `from` up to `to`; `to` None: up to the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub from: Position,
    pub to: Position,
}

#[derive(Debug, Default)]
struct Dir {
    known: Option<Known>,
    /// Reads under way.
    reads: u32,
}

#[derive(Debug, Default)]
pub struct Table {
    cells: BTreeMap<Key, Cell>,
    dirs: BTreeMap<u64, Dir>,
    dirty: BTreeSet<(u64, Key)>,
    bytes: usize,
    inodes: usize,
    hand: Option<Key>,
    /// Who made what is not durable; told of every cell that is read.
    pub owners: Owners,
}

/// Of a cell besides its row.
const CELL_BYTES: usize = 120;

fn cost(row: &Option<Row>) -> usize {
    CELL_BYTES + row.as_ref().map_or(0, Row::cost)
}

fn inodes(row: &Option<Row>) -> usize {
    usize::from(matches!(row, Some(Row::Inode(_))))
}

impl Table {
    /// None: not known.
    pub fn get(&mut self, key: &Key) -> Option<Option<&Row>> {
        let cell = self.cells.get_mut(key)?;
        cell.used = true;
        self.owners.saw(cell.tx);
        Some(cell.row.as_ref())
    }

    pub fn peek(&self, key: &Key) -> Option<&Row> {
        let cell = self.cells.get(key)?;
        self.owners.saw(cell.tx);
        cell.row.as_ref()
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.cells.contains_key(key)
    }

    /// What was read; what is known already is newer.
    pub fn fill(&mut self, key: Key, row: Option<Row>) {
        if self.cells.contains_key(&key) {
            return;
        }
        self.bytes += cost(&row);
        self.inodes += inodes(&row);
        let cell = Cell {
            row,
            tx: 0,
            dirty: 0,
            used: true,
        };
        self.cells.insert(key, cell);
    }

    /// What a transaction leaves.
    pub fn put(&mut self, tx: u64, key: Key, row: Option<Row>) {
        self.bytes += cost(&row);
        self.inodes += inodes(&row);
        let dirty = match self.cells.get(&key) {
            Some(old) => {
                self.bytes -= cost(&old.row);
                self.inodes -= inodes(&old.row);
                if old.dirty == 0 { tx } else { old.dirty }
            }
            None => tx,
        };
        if dirty == tx {
            self.dirty.insert((tx, key.clone()));
        }
        let cell = Cell {
            row,
            tx,
            dirty,
            used: true,
        };
        self.cells.insert(key, cell);
    }

    /// All rows in memory.
    pub fn rows(&self) -> impl Iterator<Item = (&Key, &Row)> {
        self.cells.iter().filter_map(|(k, c)| Some((k, c.row.as_ref()?)))
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn count(&self) -> usize {
        self.cells.len()
    }

    /// Rows in memory that are inodes.
    pub fn inodes(&self) -> usize {
        self.inodes
    }

    pub fn dirty_len(&self) -> usize {
        self.dirty.len()
    }

    /// The oldest transaction that the journal still has to keep.
    pub fn oldest_dirty(&self) -> Option<u64> {
        self.dirty.first().map(|(tx, _)| *tx)
    }

    /// Up to `max` dirty cells, the oldest first, with the transaction that they stand for.
    pub fn dirty(&self, max: usize) -> Vec<(Key, Option<Row>, u64)> {
        let one = |(_, key): &(u64, Key)| {
            let cell = self.cells.get(key)?;
            Some((key.clone(), cell.row.clone(), cell.tx))
        };
        self.dirty.iter().take(max).filter_map(one).collect()
    }

    /// It was written back as transaction `tx` left it.
    pub fn written(&mut self, key: &Key, tx: u64) {
        let Some(cell) = self.cells.get_mut(key) else {
            return;
        };
        self.dirty.remove(&(cell.dirty, key.clone()));
        if cell.tx == tx {
            cell.dirty = 0;
            // What the tables that are read whole do not hold is not there.
            if cell.row.is_none() && !matches!(key, Key::Inode { .. } | Key::Dentry { .. }) {
                self.forget(key);
            }
        } else {
            // Changed since: by something behind that transaction.
            cell.dirty = tx + 1;
            self.dirty.insert((tx + 1, key.clone()));
        }
    }

    // Directories

    /// A directory that was just made: there is nothing in it.
    pub fn is_new_dir(&mut self, ino: u64) {
        let all = Known { from: None, to: None };
        self.dirs.entry(ino).or_default().known = Some(all);
    }

    pub fn is_complete(&self, dir: u64) -> bool {
        let known = self.dirs.get(&dir).and_then(|d| d.known.as_ref());
        known.is_some_and(|k| k.from.is_none() && k.to.is_none())
    }

    /// The range around a place that is known.
    pub fn known_around(&self, dir: u64, at: &Position) -> Option<Known> {
        let known = self.dirs.get(&dir)?.known.as_ref()?;
        let begun = known.from <= *at;
        let goes_on = known.to.is_none() || *at < known.to;
        (begun && goes_on).then(|| known.clone())
    }

    pub fn begin_read(&mut self, dir: u64) {
        self.dirs.entry(dir).or_default().reads += 1;
    }

    pub fn end_read(&mut self, dir: u64) {
        let d = self.dirs.entry(dir).or_default();
        d.reads = d.reads.saturating_sub(1);
    }

    /// All names between the two places are in cells now.
    pub fn learned(&mut self, dir: u64, from: Position, to: Position) {
        let d = self.dirs.entry(dir).or_default();
        d.known = Some(match d.known.take() {
            Some(k) if k.to.is_some() && k.to == from => Known { from: k.from, to },
            _ => Known { from, to },
        });
    }

    /// Live names behind a place, in order.
    pub fn names(&self, dir: u64, after: &Position) -> impl Iterator<Item = (&Key, &Row)> {
        let from = match after {
            None => Bound::Included(Key::Dentry {
                dir,
                hash: 0,
                name: Bytes::new(),
                snap: 0,
            }),
            Some((hash, name)) => Bound::Excluded(Key::Dentry {
                dir,
                hash: *hash,
                name: name.clone(),
                snap: NOSNAP,
            }),
        };
        let of_dir = move |k: &Key| matches!(k, Key::Dentry { dir: d, .. } if *d == dir);
        self.cells
            .range((from, Bound::Unbounded))
            .take_while(move |(k, _)| of_dir(k))
            .inspect(|(_, c)| self.owners.saw(c.tx))
            .filter_map(|(k, c)| Some((k, c.row.as_ref()?)))
    }

    /// What is known of a name includes its versions.
    pub fn knows(&self, dir: u64, hash: u32, name: &Bytes) -> bool {
        let at = Some((hash, name.clone()));
        let known = self.dirs.get(&dir).and_then(|d| d.known.as_ref());
        known.is_some_and(|k| k.from < at && (k.to.is_none() || at <= k.to))
    }

    /// A name's versions, the oldest first, and what it is now.
    pub fn versions(&self, dir: u64, hash: u32, name: &Bytes) -> impl Iterator<Item = (u64, &Row)> {
        let key = |snap| Key::Dentry {
            dir,
            hash,
            name: name.clone(),
            snap,
        };
        let snap_of = |k: &Key| match k {
            Key::Dentry { snap, .. } => *snap,
            _ => 0,
        };
        self.cells
            .range(key(0)..=key(NOSNAP))
            .inspect(|(_, c)| self.owners.saw(c.tx))
            .filter_map(move |(k, c)| Some((snap_of(k), c.row.as_ref()?)))
    }

    /// Rows in memory of versions that a snapshot is the last to show, behind a key.
    pub fn olds(&self, snap: u64, after: Option<&Key>, max: usize) -> Vec<Key> {
        let first = Key::old_inode(0, snap);
        let from = after.map_or(Bound::Included(&first), Bound::Excluded);
        let of_snap = |k: &Key| matches!(k, Key::Old { snap: s, .. } if *s == snap);
        self.cells
            .range((from, Bound::Unbounded))
            .take_while(|(k, _)| of_snap(k))
            .filter(|(_, c)| c.row.is_some())
            .take(max)
            .map(|(k, _)| k.clone())
            .collect()
    }

    // Memory

    /// Lets clean cells go until `bytes` are left, or `looks` cells were looked at. Those used since the last time stay.
    pub fn evict(&mut self, bytes: usize, looks: usize, pinned: impl Fn(&Key, Option<&Row>) -> bool) {
        let mut gone = Vec::new();
        let (mut at, mut left) = (self.hand.take(), self.bytes);
        for _ in 0..looks {
            if left <= bytes {
                break;
            }
            let from = at.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let Some((key, cell)) = self.cells.range_mut((from, Bound::Unbounded)).next() else {
                at = None;
                break;
            };
            at = Some(key.clone());
            let movable = match key {
                Key::Inode { .. } | Key::Old { .. } => true,
                Key::Dentry { dir, .. } => self.dirs.get(dir).is_none_or(|d| d.reads == 0),
                Key::Trace(_) => true,
                _ => false,
            };
            if !movable || cell.dirty > 0 || pinned(key, cell.row.as_ref()) {
                continue;
            }
            if cell.used {
                cell.used = false;
                continue;
            }
            left -= cost(&cell.row);
            gone.push(key.clone());
        }
        self.hand = at;
        for key in gone {
            self.forget(&key);
        }
    }

    fn forget(&mut self, key: &Key) {
        if let Some(cell) = self.cells.remove(key) {
            self.bytes -= cost(&cell.row);
            self.inodes -= inodes(&cell.row);
        }
        if let Key::Dentry { dir, .. } = key
            && let Some(d) = self.dirs.get_mut(dir)
        {
            d.known = None;
            if d.reads == 0 {
                self.dirs.remove(dir);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Dentry;

    fn row(ino: u64) -> Option<Row> {
        Some(Row::Dentry(Dentry {
            ino,
            ..Dentry::default()
        }))
    }

    fn key(n: u64) -> Key {
        Key::dentry(1, &Bytes::from(format!("f{n}")))
    }

    #[test]
    fn a_dirty_row_stays_until_it_is_written_back_as_it_is() {
        let mut t = Table::default();
        t.put(5, key(1), row(1));
        t.put(7, key(1), row(2));
        assert_eq!(t.oldest_dirty(), Some(5));
        t.written(&key(1), 5);
        assert_eq!(t.oldest_dirty(), Some(6));
        t.evict(0, 100, |_, _| false);
        t.evict(0, 100, |_, _| false);
        assert_eq!(t.get(&key(1)), Some(row(2).as_ref()));
        t.written(&key(1), 7);
        assert_eq!(t.oldest_dirty(), None);
        (0..3).for_each(|_| t.evict(0, 100, |_, _| false));
        assert_eq!(t.get(&key(1)), None);
        assert_eq!(t.bytes(), 0);
    }

    #[test]
    fn what_is_no_more_in_a_table_that_is_read_whole_takes_no_memory() {
        let mut t = Table::default();
        let key = Key::Done { client: 1, tid: 2 };
        t.put(1, key.clone(), Some(Row::Done(0)));
        t.put(2, key.clone(), None);
        t.written(&key, 1);
        assert_eq!(t.count(), 1);
        t.written(&key, 2);
        assert_eq!((t.count(), t.bytes(), t.dirty_len()), (0, 0, 0));
    }

    #[test]
    fn what_was_read_late_does_not_replace_what_is_newer() {
        let mut t = Table::default();
        t.put(1, key(1), None);
        t.fill(key(1), row(1));
        assert_eq!(t.get(&key(1)), Some(None));
    }

    #[test]
    fn a_directory_is_complete_until_one_of_its_names_goes() {
        let mut t = Table::default();
        t.is_new_dir(1);
        t.put(1, key(1), row(1));
        t.written(&key(1), 1);
        assert!(t.is_complete(1));
        t.begin_read(1);
        (0..3).for_each(|_| t.evict(0, 100, |_, _| false));
        assert!(t.is_complete(1), "while it is read nothing goes");
        t.end_read(1);
        (0..3).for_each(|_| t.evict(0, 100, |_, _| false));
        assert!(!t.is_complete(1));
        assert_eq!(t.known_around(1, &None), None);
    }

    #[test]
    fn pages_that_follow_each_other_become_one_range() {
        let mut t = Table::default();
        let at = |h: u32| Some((h, Bytes::from_static(b"x")));
        t.learned(1, None, at(5));
        t.learned(1, at(5), at(9));
        assert_eq!(
            t.known_around(1, &at(7)),
            Some(Known {
                from: None,
                to: at(9)
            })
        );
        assert_eq!(t.known_around(1, &at(9)), None);
        t.learned(1, at(9), None);
        assert!(t.is_complete(1));
        t.learned(1, at(50), at(60));
        assert!(!t.is_complete(1));
    }
}
