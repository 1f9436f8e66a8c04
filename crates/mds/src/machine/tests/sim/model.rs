//! A file system as it should be: what each operation does and says, and which refusals are true.
//!
//! Inodes go by the numbers that clients were told. What a client made and was not told of has the number [`UNTOLD`] with that of
//! its operation, until somebody sees it under another.
//!
//! Not here: times, extended attributes, owners, snapshots, numbers of directories' links.

use crate::row::ROOT;
use std::collections::BTreeMap;

/// A directory, and a name of a few.
pub type Place = (u64, u8);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Make {
        at: Place,
        is_dir: bool,
    },
    Unlink(Place),
    Rmdir(Place),
    Rename {
        from: Place,
        to: Place,
    },
    Link {
        ino: u64,
        to: Place,
    },
    Mode {
        ino: u64,
        mode: u32,
    },
    /// To this size.
    Cut {
        ino: u64,
        size: u64,
    },
    /// Up to here.
    Write {
        ino: u64,
        size: u64,
    },
    /// By a client, the whole file for itself, or not at all.
    Lock {
        ino: u64,
        by: u64,
    },
    Unlock {
        ino: u64,
        by: u64,
    },
    Lookup(Place),
    Stat(u64),
    List(u64),
}

/// Names with their inodes, and whether these are directories.
pub type Names = BTreeMap<u8, (u64, bool)>;

/// What was answered. None of an attribute: its client did not know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Done,
    Made(u64),
    Found(u64),
    Attrs {
        mode: Option<u32>,
        links: Option<u32>,
        size: Option<u64>,
    },
    Names(Names),
    Error(i32),
}

#[derive(Debug, Clone, Hash)]
struct Inode {
    is_dir: bool,
    mode: u32,
    links: u32,
    size: u64,
}

#[derive(Debug, Clone, Hash)]
pub struct Model {
    names: BTreeMap<Place, u64>,
    inodes: BTreeMap<u64, Inode>,
    locks: BTreeMap<u64, u64>,
}

/// Above all numbers of inodes.
const UNTOLD: u64 = 1 << 60;

const ENOENT: i32 = -2;
const EAGAIN: i32 = -11;
const EEXIST: i32 = -17;
const ENOTDIR: i32 = -20;
const EISDIR: i32 = -21;
const EINVAL: i32 = -22;
const ENOTEMPTY: i32 = -39;
const ESTALE: i32 = -116;

impl Default for Model {
    fn default() -> Self {
        let root = Inode {
            is_dir: true,
            mode: 0o755,
            links: 1,
            size: 0,
        };
        Self {
            names: BTreeMap::new(),
            inodes: BTreeMap::from([(ROOT, root)]),
            locks: BTreeMap::new(),
        }
    }
}

impl Model {
    /// After the operation, if that could have been said of it. `said` None: its outcome is not known. `number`: of the
    /// operation.
    pub fn after(&self, number: usize, what: &What, said: Option<&Said>) -> Option<Self> {
        let mut next = self.clone();
        if let Some(said) = said {
            next.bind(what, said);
        }
        let no = next.refusals(what);
        match said {
            None if !no.is_empty() && !next.is_nameless(what) => {}
            None => next.change(what, UNTOLD | number as u64),
            // Whoever it was that had the lock, he may not have been told of it, and have lost it with the server.
            Some(Said::Error(EAGAIN)) if matches!(what, What::Lock { .. }) => {}
            Some(Said::Error(e)) => return no.contains(e).then_some(next),
            // Who holds it goes on with it.
            // But no lock that another has.
            Some(_) if no.contains(&EAGAIN) => return None,
            Some(_) if !no.is_empty() && !next.is_nameless(what) => return None,
            Some(Said::Made(ino)) => {
                if next.inodes.contains_key(ino) {
                    return None;
                }
                next.change(what, *ino);
            }
            Some(said) => {
                if !next.shows(what, said) {
                    return None;
                }
                next.change(what, UNTOLD | number as u64);
            }
        }
        Some(next)
    }

    /// What was seen under a number for the first time has it from now on.
    fn bind(&mut self, what: &What, said: &Said) {
        match (what, said) {
            (What::Lookup(at), Said::Found(ino)) => self.bind_one(*at, *ino),
            (What::List(dir), Said::Names(names)) => {
                for (name, (ino, _)) in names {
                    self.bind_one((*dir, *name), *ino);
                }
            }
            _ => {}
        }
    }

    fn bind_one(&mut self, at: Place, ino: u64) {
        let Some(was) = self.names.get(&at).copied().filter(|i| *i >= UNTOLD) else {
            return;
        };
        if self.inodes.contains_key(&ino) {
            return;
        }
        if let Some(inode) = self.inodes.remove(&was) {
            self.inodes.insert(ino, inode);
        }
        self.names
            .values_mut()
            .filter(|i| **i == was)
            .for_each(|i| *i = ino);
        let below: Vec<(Place, u64)> = self.names_of(was).map(|(n, i)| ((was, n), i)).collect();
        for (place, child) in below {
            self.names.remove(&place);
            self.names.insert((ino, place.1), child);
        }
    }

    fn names_of(&self, dir: u64) -> impl Iterator<Item = (u8, u64)> {
        self.names
            .range((dir, 0)..=(dir, u8::MAX))
            .map(|((_, name), ino)| (*name, *ino))
    }

    fn inode_at(&self, at: Place) -> Option<&Inode> {
        self.names.get(&at).and_then(|i| self.inodes.get(i))
    }

    /// Why there is no such directory.
    fn no_dir(&self, dir: u64) -> Vec<i32> {
        match self.inodes.get(&dir) {
            Some(i) if i.is_dir && i.links > 0 => Vec::new(),
            Some(i) if !i.is_dir => vec![ENOTDIR, ENOENT, ESTALE],
            _ => vec![ENOENT, ESTALE],
        }
    }

    fn no_inode(&self, ino: u64) -> Vec<i32> {
        match self.inodes.get(&ino) {
            Some(i) if i.links > 0 => Vec::new(),
            _ => vec![ENOENT, ESTALE],
        }
    }

    /// It is about a file without names, which may still be used by who held it.
    fn is_nameless(&self, what: &What) -> bool {
        let ino = match what {
            What::Mode { ino, .. } | What::Cut { ino, .. } | What::Write { ino, .. } => ino,
            What::Stat(ino) | What::List(ino) | What::Lock { ino, .. } | What::Unlock { ino, .. } => ino,
            _ => return false,
        };
        self.inodes.get(ino).is_some_and(|i| i.links == 0)
    }

    /// Every reason why it would be refused; none: it is done.
    fn refusals(&self, what: &What) -> Vec<i32> {
        match what {
            What::Make { at, .. } => {
                let mut no = self.no_dir(at.0);
                no.extend(self.names.contains_key(at).then_some(EEXIST));
                no
            }
            What::Unlink(at) => self.cannot_remove(*at, false),
            What::Rmdir(at) => self.cannot_remove(*at, true),
            What::Rename { from, to } => self.cannot_rename(*from, *to),
            What::Link { ino, to } => {
                let mut no = self.no_dir(to.0);
                no.extend(self.no_inode(*ino));
                no.extend(self.names.contains_key(to).then_some(EEXIST));
                no
            }
            What::Mode { ino, .. } | What::Cut { ino, .. } | What::Write { ino, .. } | What::Stat(ino) => {
                self.no_inode(*ino)
            }
            What::Lock { ino, by } => {
                let mut no = self.no_inode(*ino);
                let held = self.locks.get(ino).is_some_and(|who| who != by);
                no.extend(held.then_some(EAGAIN));
                no
            }
            What::Unlock { ino, .. } => self.no_inode(*ino),
            What::Lookup(at) => {
                let mut no = self.no_dir(at.0);
                no.extend((!self.names.contains_key(at)).then_some(ENOENT));
                no
            }
            What::List(dir) => self.no_dir(*dir),
        }
    }

    fn cannot_remove(&self, at: Place, is_dir: bool) -> Vec<i32> {
        let mut no = self.no_dir(at.0);
        match self.inode_at(at) {
            None => no.push(ENOENT),
            Some(i) if i.is_dir && !is_dir => no.push(EISDIR),
            Some(i) if !i.is_dir && is_dir => no.push(ENOTDIR),
            Some(_) if is_dir && !self.is_empty(self.names[&at]) => no.push(ENOTEMPTY),
            Some(_) => {}
        }
        no
    }

    fn is_empty(&self, dir: u64) -> bool {
        self.names_of(dir).next().is_none()
    }

    fn cannot_rename(&self, from: Place, to: Place) -> Vec<i32> {
        let mut no = self.no_dir(from.0);
        no.extend(self.no_dir(to.0));
        let (Some(moved), target) = (self.inode_at(from), self.inode_at(to)) else {
            no.push(ENOENT);
            return no;
        };
        if moved.is_dir && self.is_below(to.0, self.names[&from]) {
            no.push(EINVAL);
        }
        match target {
            Some(t) if moved.is_dir && !t.is_dir => no.push(ENOTDIR),
            Some(t) if !moved.is_dir && t.is_dir => no.push(EISDIR),
            Some(t) if t.is_dir && from != to && !self.is_empty(self.names[&to]) => no.push(ENOTEMPTY),
            _ => {}
        }
        no
    }

    /// The directory is the other, or lies in it.
    fn is_below(&self, dir: u64, other: u64) -> bool {
        let mut at = dir;
        while at != other {
            let Some((place, _)) = self.names.iter().find(|(_, ino)| **ino == at) else {
                return false;
            };
            at = place.0;
        }
        true
    }

    fn shows(&self, what: &What, said: &Said) -> bool {
        match (what, said) {
            (What::Lookup(at), Said::Found(ino)) => self.names.get(at) == Some(ino),
            (What::Stat(ino), Said::Attrs { mode, links, size }) => self.inodes.get(ino).is_some_and(|i| {
                mode.is_none_or(|m| m == i.mode)
                    && (i.is_dir || links.is_none_or(|n| n == i.links))
                    && (i.is_dir || size.is_none_or(|s| s == i.size))
            }),
            (What::List(dir), Said::Names(names)) => {
                let of = |ino: u64| self.inodes.get(&ino).is_some_and(|i| i.is_dir);
                let mine: Names = self.names_of(*dir).map(|(n, i)| (n, (i, of(i)))).collect();
                mine == *names
            }
            (What::Lookup(_) | What::Stat(_) | What::List(_), _) => false,
            _ => *said == Said::Done,
        }
    }

    fn change(&mut self, what: &What, made: u64) {
        match *what {
            What::Make { at, is_dir } => {
                let inode = Inode {
                    is_dir,
                    mode: if is_dir { 0o755 } else { 0o644 },
                    links: 1,
                    size: 0,
                };
                self.inodes.insert(made, inode);
                self.names.insert(at, made);
            }
            What::Unlink(at) | What::Rmdir(at) => self.unname(at),
            What::Rename { from, to } => self.rename(from, to),
            What::Link { ino, to } => {
                if let Some(i) = self.inodes.get_mut(&ino) {
                    i.links += 1;
                    self.names.insert(to, ino);
                }
            }
            What::Mode { ino, mode } => self.of(ino, |i| i.mode = mode),
            What::Cut { ino, size } => self.of(ino, |i| i.size = size),
            What::Write { ino, size } => self.of(ino, |i| i.size = i.size.max(size)),
            What::Lock { ino, by } => {
                self.locks.insert(ino, by);
            }
            What::Unlock { ino, by } => {
                if self.locks.get(&ino) == Some(&by) {
                    self.locks.remove(&ino);
                }
            }
            What::Lookup(_) | What::Stat(_) | What::List(_) => {}
        }
    }

    fn of(&mut self, ino: u64, change: impl FnOnce(&mut Inode)) {
        if let Some(i) = self.inodes.get_mut(&ino) {
            change(i);
        }
    }

    fn unname(&mut self, at: Place) {
        if let Some(ino) = self.names.remove(&at) {
            self.of(ino, |i| i.links -= 1);
        }
    }

    /// Two names of one inode stay as they are.
    fn rename(&mut self, from: Place, to: Place) {
        let (Some(moved), target) = (self.names.get(&from).copied(), self.names.get(&to).copied()) else {
            return;
        };
        if target == Some(moved) {
            return;
        }
        self.unname(to);
        self.names.remove(&from);
        self.names.insert(to, moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_said_is_refused() {
        let m = Model::default();
        let at = (ROOT, 1);
        let make = What::Make { at, is_dir: false };
        assert!(m.after(0, &make, Some(&Said::Error(EEXIST))).is_none());
        let made = m.after(0, &make, Some(&Said::Made(9))).unwrap();
        assert!(made.after(1, &make, Some(&Said::Made(10))).is_none());
        assert!(made.after(1, &make, Some(&Said::Error(EEXIST))).is_some());
        assert!(made.after(1, &What::Lookup(at), Some(&Said::Found(8))).is_none());
        assert!(made.after(1, &What::Lookup(at), Some(&Said::Found(9))).is_some());
        let none = Some(&Said::Error(ENOENT));
        assert!(made.after(1, &What::Lookup(at), none).is_none());
    }

    #[test]
    fn a_lock_is_one_clients() {
        let m = Model::default();
        let lock = |by: u64| What::Lock { ino: ROOT, by };
        let held = m.after(0, &lock(1), Some(&Said::Done)).unwrap();
        assert!(held.after(1, &lock(2), Some(&Said::Done)).is_none());
        assert!(held.after(1, &lock(2), Some(&Said::Error(EAGAIN))).is_some());
        let unlock = What::Unlock { ino: ROOT, by: 1 };
        let free = held.after(2, &unlock, Some(&Said::Done)).unwrap();
        assert!(free.after(3, &lock(2), Some(&Said::Done)).is_some());
    }

    #[test]
    fn what_nobody_was_told_of_has_the_number_under_which_it_is_seen() {
        let make = What::Make {
            at: (ROOT, 1),
            is_dir: true,
        };
        let made = Model::default().after(3, &make, None).unwrap();
        let found = Said::Found(70);
        let seen = made.after(4, &What::Lookup((ROOT, 1)), Some(&found)).unwrap();
        let below = What::Make {
            at: (70, 2),
            is_dir: false,
        };
        assert!(seen.after(5, &below, Some(&Said::Made(71))).is_some());
        assert!(made.after(5, &below, Some(&Said::Made(71))).is_none());
    }
}
