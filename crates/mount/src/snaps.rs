//! What the kernel knows of `.snap` directories and of what lies in snapshots: under numbers of our own, as an inode has one number at the
//! server, whatever snapshot it is looked at in. An entry stays as long as the kernel has not forgotten its number.

use bytes::Bytes;
use fuser::Errno;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Of each directory; not listed.
pub const NAME: &[u8] = b".snap";
/// In place of a snapshot's number: `.snap` itself.
pub const ITSELF: u64 = u64::MAX;
/// The server's numbers are smaller.
const OURS: u64 = 1 << 63;
/// The kernel is told of no more than that.
pub const ENTRIES_MAX: usize = 1 << 18;
/// Of all paths together: the kernel may keep what is above of each.
const BYTES_MAX: usize = 64 << 20;
/// Of one path.
const PATH_MAX: usize = 64 << 10;

/// In the `.snap` of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub dir: u64,
    /// From there: a slash before each name, the first of which is a snapshot's. Empty: `.snap` itself.
    pub path: Bytes,
}

impl Place {
    pub fn snap_dir(dir: u64) -> Self {
        Self {
            dir,
            path: Bytes::new(),
        }
    }

    pub fn is_snap_dir(&self) -> bool {
        self.path.is_empty()
    }

    pub fn child(&self, name: &[u8]) -> Result<Self, Errno> {
        if self.path.len() + 1 + name.len() > PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        Ok(Self {
            dir: self.dir,
            path: [&self.path[..], b"/", name].concat().into(),
        })
    }
}

/// The server's number, and the snapshot's.
type Inode = (u64, u64);

#[derive(Debug)]
struct Entry {
    inode: Inode,
    place: Place,
    /// How often the kernel was told of it.
    told: u64,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<u64, Entry>,
    numbers: HashMap<Inode, u64>,
    /// Of the paths of all entries.
    bytes: usize,
    last: u64,
}

#[derive(Debug, Default)]
pub struct Snaps(Mutex<Table>);

impl Snaps {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None: no snapshot's. An error: the kernel was never told of it.
    pub fn at(&self, number: u64) -> Result<Option<Place>, Errno> {
        if number & OURS == 0 {
            return Ok(None);
        }
        match self.table().entries.get(&number) {
            Some(entry) => Ok(Some(entry.place.clone())),
            None => Err(Errno::ESTALE),
        }
    }

    /// The kernel is told of it once more, under this number.
    pub fn tell(&self, inode: Inode, place: Place) -> Result<u64, Errno> {
        let mut table = self.table();
        let known = table.numbers.get(&inode).copied();
        let before = known
            .and_then(|n| table.entries.get(&n))
            .map_or(0, |e| e.place.path.len());
        let bytes = table.bytes - before + place.path.len();
        let is_full = known.is_none() && table.entries.len() >= ENTRIES_MAX;
        if is_full || bytes > BYTES_MAX && place.path.len() > before {
            return Err(Errno::ENFILE);
        }
        table.bytes = bytes;
        let number = known.unwrap_or_else(|| {
            table.last += 1;
            OURS | table.last
        });
        table.numbers.insert(inode, number);
        let entry = table.entries.entry(number).or_insert_with(|| Entry {
            inode,
            place: place.clone(),
            told: 0,
        });
        // A snapshot may be named anew.
        entry.place = place;
        entry.told += 1;
        Ok(number)
    }

    pub fn forget(&self, number: u64, times: u64) {
        if number & OURS == 0 {
            return;
        }
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(&number) else {
            return;
        };
        entry.told = entry.told.saturating_sub(times);
        if entry.told == 0 {
            let (inode, bytes) = (entry.inode, entry.place.path.len());
            table.bytes -= bytes;
            table.entries.remove(&number);
            table.numbers.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_until_the_kernel_forgets_them() {
        let snaps = Snaps::default();
        let dir = Place::snap_dir(7);
        assert!(dir.is_snap_dir() && snaps.at(7).unwrap().is_none());
        let file = dir.child(b"one").unwrap().child(b"f").unwrap();
        assert_eq!((file.dir, &file.path[..]), (7, &b"/one/f"[..]));
        let a = snaps.tell((7, ITSELF), dir.clone()).unwrap();
        let b = snaps.tell((9, 2), file.clone()).unwrap();
        assert!(a != b && snaps.at(a).unwrap() == Some(dir));
        // The same file in another snapshot, and again under the new name of the snapshot.
        assert!(snaps.tell((9, 3), file).unwrap() != b);
        let renamed = Place::snap_dir(7).child(b"two").unwrap().child(b"f").unwrap();
        assert_eq!(snaps.tell((9, 2), renamed.clone()).unwrap(), b);
        snaps.forget(b, 1);
        assert_eq!(snaps.at(b).unwrap(), Some(renamed));
        snaps.forget(b, 1);
        assert!(snaps.at(b).is_err());
        snaps.forget(b, 1);
        snaps.forget(9, 1);
        assert_eq!(snaps.table().entries.len(), 2);
        assert_eq!(snaps.table().numbers.len(), 2);
        assert_eq!(snaps.table().bytes, "/one/f".len());
    }

    #[test]
    fn long_paths_take_the_room_of_many() {
        let snaps = Snaps::default();
        let mut place = Place::snap_dir(7);
        while let Ok(below) = place.child(&[b'n'; 255]) {
            place = below;
        }
        assert!(place.path.len() <= PATH_MAX && place.path.len() > PATH_MAX - 256);
        let mut numbers = (0..).map_while(|ino| snaps.tell((ino, 2), place.clone()).ok());
        let first = numbers.next().unwrap();
        assert_eq!(1 + numbers.count(), BYTES_MAX / place.path.len());
        assert!(snaps.table().bytes <= BYTES_MAX);
        snaps.forget(first, 1);
        assert!(snaps.tell((1 << 40, 2), place).is_ok());
    }
}
