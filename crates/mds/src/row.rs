//! What is kept of a file system: rows with a key each, and how they are encoded.
//!
//! Vocabulary: a *row* is the smallest unit that is read, journaled and written back: always whole. A *dentry* is a name in a
//! directory; the inode behind it is a row of its own, so that every inode is found by its number alone. A *job* is work on data
//! objects that a change left behind: it is kept until it is done. A *stray* is an inode without a name that clients still hold.
//!
//! Invariants: an encoding begins with an envelope, so that fields can be added; where an older program must not read on without a new
//! field or a new kind of row, [`crate::journal::FORM`] is raised. A number of an inode is never used again.
//!
//! Not here: in which object a row lies ([`crate::place`]).

use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use messages::fs::{Layout, Quota, Xattrs};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{EntityAddr, Utime};

pub use types::NOSNAP;

pub const ROOT: u64 = 1;
/// The version of all rows.
pub const ENVELOPE: u8 = 1;
/// Where numbers of ordinary inodes begin.
pub const FIRST_INO: u64 = 0x100_0000_0000;

/// Names a row. The order is that of listings: names of a directory lie together, by their hash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// `snap`: the last snapshot in which it looked like this; [`NOSNAP`]: as it is now.
    Inode {
        ino: u64,
        snap: u64,
    },
    Dentry {
        dir: u64,
        hash: u32,
        name: Bytes,
        snap: u64,
    },
    Session(u64),
    /// A request of a client that was carried out: its answer may have been lost.
    Done {
        client: u64,
        tid: u64,
    },
    /// A flush of capabilities that was applied.
    Flushed {
        client: u64,
        tid: u64,
    },
    Job(u64),
    Stray(u64),
    /// A directory at which a realm begins.
    Realm(u64),
    /// A file that clients may be writing: its size may be behind its objects.
    Writing(u64),
    /// A snapshot that exists.
    Snap(u64),
    /// There is a version that this snapshot is the last to show: of the inode, or of a name in it.
    Old {
        snap: u64,
        ino: u64,
        hash: u32,
        name: Bytes,
    },
    Counters,
    /// Its object does not say its name yet.
    Trace(u64),
}

impl Key {
    pub fn inode(ino: u64) -> Self {
        Self::Inode { ino, snap: NOSNAP }
    }

    /// The inode's version that `snap` is the last to show.
    pub fn version(ino: u64, snap: u64) -> Self {
        Self::Inode { ino, snap }
    }

    pub fn old_inode(ino: u64, snap: u64) -> Self {
        Self::Old {
            snap,
            ino,
            hash: 0,
            name: Bytes::new(),
        }
    }

    pub fn dentry(dir: u64, name: &Bytes) -> Self {
        Self::Dentry {
            dir,
            hash: name_hash(name),
            name: name.clone(),
            snap: NOSNAP,
        }
    }
}

/// Where a name stands in its directory: the 24 lower bits of the string hash that also places objects.
pub fn name_hash(name: &[u8]) -> u32 {
    types::pool::string_hash_rjenkins(name) & 0xff_ffff
}

impl Encode for Key {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Inode { ino, snap } => {
                w.u8(1);
                w.u64(*ino);
                w.u64(*snap);
            }
            Self::Dentry {
                dir,
                hash,
                name,
                snap,
            } => {
                w.u8(2);
                w.u64(*dir);
                w.u32(*hash);
                w.put(name);
                w.u64(*snap);
            }
            Self::Session(c) => numbered(w, 3, &[*c]),
            Self::Done { client, tid } => numbered(w, 4, &[*client, *tid]),
            Self::Flushed { client, tid } => numbered(w, 5, &[*client, *tid]),
            Self::Job(n) => numbered(w, 6, &[*n]),
            Self::Stray(ino) => numbered(w, 7, &[*ino]),
            Self::Realm(ino) => numbered(w, 8, &[*ino]),
            Self::Writing(ino) => numbered(w, 10, &[*ino]),
            Self::Snap(id) => numbered(w, 12, &[*id]),
            Self::Old {
                snap,
                ino,
                hash,
                name,
            } => {
                numbered(w, 11, &[*snap, *ino]);
                w.u32(*hash);
                w.put(name);
            }
            Self::Counters => w.u8(9),
            Self::Trace(ino) => numbered(w, 16, &[*ino]),
        }
    }
}

fn numbered(w: &mut Writer, tag: u8, numbers: &[u64]) {
    w.u8(tag);
    numbers.iter().for_each(|n| w.u64(*n));
}

impl Decode for Key {
    fn decode(r: &mut Reader) -> Result<Self> {
        Ok(match r.u8()? {
            1 => Self::Inode {
                ino: r.u64()?,
                snap: r.u64()?,
            },
            2 => Self::Dentry {
                dir: r.u64()?,
                hash: r.u32()?,
                name: r.blob()?,
                snap: r.u64()?,
            },
            3 => Self::Session(r.u64()?),
            4 => Self::Done {
                client: r.u64()?,
                tid: r.u64()?,
            },
            5 => Self::Flushed {
                client: r.u64()?,
                tid: r.u64()?,
            },
            6 => Self::Job(r.u64()?),
            7 => Self::Stray(r.u64()?),
            8 => Self::Realm(r.u64()?),
            10 => Self::Writing(r.u64()?),
            11 => Self::Old {
                snap: r.u64()?,
                ino: r.u64()?,
                hash: r.u32()?,
                name: r.blob()?,
            },
            12 => Self::Snap(r.u64()?),
            9 => Self::Counters,
            16 => Self::Trace(r.u64()?),
            _ => return Err(r.invalid("unknown kind of row")),
        })
    }
}

/// What is under a directory, itself included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    pub bytes: i64,
    pub files: i64,
    pub subdirs: i64,
    pub ctime: Utime,
}
denc::plain_denc!(Sums {
    bytes,
    files,
    subdirs,
    ctime
});

impl Sums {
    pub fn add(&mut self, o: &Sums) {
        self.bytes += o.bytes;
        self.files += o.files;
        self.subdirs += o.subdirs;
        self.ctime = self.ctime.max(o.ctime);
    }

    pub fn negated(&self) -> Self {
        Self {
            bytes: -self.bytes,
            files: -self.files,
            subdirs: -self.subdirs,
            ctime: self.ctime,
        }
    }

    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inode {
    pub ino: u64,
    /// The first snapshot after which it looks like this.
    pub first: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub nlink: u32,
    pub version: u64,
    pub xattr_version: u64,
    pub change_attr: u64,
    pub ctime: Utime,
    pub mtime: Utime,
    pub atime: Utime,
    pub btime: Utime,
    pub time_warp_seq: u32,
    pub size: u64,
    /// Writers may have written up to here.
    pub max_size: u64,
    pub truncate_size: u64,
    pub truncate_seq: u32,
    /// Of a directory: what new files below it get; without a stripe unit it has none.
    pub layout: Layout,
    pub pool_ns: String,
    pub symlink: Bytes,
    pub xattrs: Xattrs,
    pub quota: Quota,
    pub pin: i32,
    /// Of a directory: its own names.
    pub files: u64,
    pub subdirs: u64,
    /// Of a directory: all below it, itself included, as far as it was told.
    pub sums: Sums,
    /// What the directory above was not told yet.
    pub untold: Sums,
    /// Its names, the first one made before the others.
    pub links: Vec<(u64, Bytes)>,
    /// Of a directory: its names lie in 2^bits objects, of which the first `split` are already two each.
    pub bits: u8,
    pub split: u32,
    /// Snapshots of this directory: id to name.
    pub snaps: BTreeMap<u64, SnapInfo>,
    /// Snapshots that it was in under directories above it where it no longer is.
    pub past_snaps: Vec<u64>,
    /// The sequence of the realm that begins here; 0: none does.
    pub realm_seq: u64,
    pub realm_created: u64,
    pub is_subvolume: bool,
    pub kept: Kept,
}

/// What is known of an inode's versions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kept {
    /// The first snapshot that could see it; 0: as [`Inode::first`].
    pub born: u64,
    /// Earlier snapshots of the directories above do not show it, or are in [`Inode::past_snaps`].
    pub since: u64,
    /// The first and the last snapshot of each version.
    pub olds: Vec<(u64, u64)>,
    /// Of a directory: versions of its names.
    pub old_names: u64,
    /// It is left in snapshots only.
    pub dead: bool,
}

impl Encode for Kept {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.born);
        w.u64(self.since);
        w.put(&self.olds);
        w.u64(self.old_names);
        w.put(&self.dead);
    }
}

impl Decode for Kept {
    const MIN_SIZE: usize = 0;
    /// A row that was written before there were versions ends here.
    fn decode(r: &mut Reader) -> Result<Self> {
        if r.is_empty() {
            return Ok(Self::default());
        }
        Ok(Self {
            born: r.u64()?,
            since: r.u64()?,
            olds: r.get()?,
            old_names: r.u64()?,
            dead: r.get()?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapInfo {
    pub name: Bytes,
    pub stamp: Utime,
    pub metadata: BTreeMap<String, String>,
}
denc::envelope_denc!(SnapInfo, ENVELOPE, ENVELOPE, { name, stamp, metadata });

denc::envelope_denc!(Inode, ENVELOPE, ENVELOPE, {
    ino, first, mode, uid, gid, rdev, nlink, version, xattr_version, change_attr, ctime, mtime, atime, btime,
    time_warp_seq, size, max_size, truncate_size, truncate_seq, layout, pool_ns, symlink, xattrs, quota, pin,
    files, subdirs, sums, untold, links, bits, split, snaps, past_snaps, realm_seq, realm_created, is_subvolume,
    kept,
});

pub const S_IFMT: u32 = 0o170_000;
pub const S_IFDIR: u32 = 0o040_000;
pub const S_IFREG: u32 = 0o100_000;
pub const S_IFLNK: u32 = 0o120_000;

impl Inode {
    pub fn is_dir(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }

    pub fn is_file(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }

    pub fn is_symlink(&self) -> bool {
        self.mode & S_IFMT == S_IFLNK
    }

    /// What it counts in the directory above.
    pub fn weight(&self) -> Sums {
        match self.is_dir() {
            true => self.sums,
            false => Sums {
                bytes: self.size as i64,
                files: 1,
                subdirs: 0,
                ctime: Utime::ZERO,
            },
        }
    }

    pub fn has_quota(&self) -> bool {
        self.quota.max_bytes > 0 || self.quota.max_files > 0
    }

    /// A realm of snapshots, or of a quota, begins here.
    pub fn is_realm(&self) -> bool {
        let many = !self.is_dir() && self.links.len() > 1;
        self.ino == ROOT || self.realm_seq > 0 || self.kept.since > 0 || many
    }

    /// The first snapshot that could see it.
    pub fn born(&self) -> u64 {
        match self.kept.born {
            0 => self.first,
            born => born,
        }
    }

    /// The directory in which it has its first name; of the root and of strays: none.
    pub fn parent(&self) -> Option<u64> {
        self.links.first().map(|(dir, _)| *dir)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dentry {
    pub ino: u64,
    /// The first snapshot after which the name means this.
    pub first: u64,
    pub is_dir: bool,
}
denc::envelope_denc!(Dentry, ENVELOPE, ENVELOPE, { ino, first, is_dir });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub entity: String,
    pub addr: EntityAddr,
    pub features: u64,
    pub metadata: BTreeMap<String, String>,
    /// As its ticket said when it was opened.
    pub caps: String,
    /// Runs of numbers that it may have given to files: first one, length.
    pub delegated: Vec<(u64, u64)>,
}

/// With numbers; an older program does without them, and refuses what was made under one and not answered.
const WITH_NUMBERS: u8 = 2;

impl Encode for SessionRow {
    fn encode(&self, w: &mut Writer) {
        let version = match self.delegated.is_empty() {
            true => ENVELOPE,
            false => WITH_NUMBERS,
        };
        w.envelope(version, ENVELOPE, |w| {
            w.put(&self.entity);
            w.put(&self.addr);
            w.u64(self.features);
            w.put(&self.metadata);
            w.put(&self.caps);
            if !self.delegated.is_empty() {
                w.put(&self.delegated);
            }
        });
    }
}

impl Decode for SessionRow {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(WITH_NUMBERS, |version, r| {
            Ok(Self {
                entity: r.get()?,
                addr: r.get()?,
                features: r.u64()?,
                metadata: r.get()?,
                caps: r.get()?,
                delegated: if version >= WITH_NUMBERS {
                    r.get()?
                } else {
                    Vec::new()
                },
            })
        })
    }
}

/// What is done to a file's objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job {
    /// One of [`job`].
    pub kind: u8,
    pub ino: u64,
    pub layout: Layout,
    pub pool_ns: String,
    /// Objects may exist up to here.
    pub from: u64,
    pub to: u64,
    pub truncate_seq: u32,
    pub snap_seq: u64,
    pub snaps: Vec<u64>,
    /// Of a directory: its fragments.
    pub bits: u8,
    pub split: u32,
}
denc::envelope_denc!(Job, ENVELOPE, ENVELOPE, {
    kind, ino, layout, pool_ns, from, to, truncate_seq, snap_seq, snaps, bits, split,
});

pub mod job {
    /// All objects of a file are removed.
    pub const PURGE: u8 = 1;
    /// Objects are cut from the size `from` to `to`.
    pub const CUT: u8 = 2;
    /// The objects of a directory that is gone are removed.
    pub const PURGE_DIR: u8 = 3;
    /// The size of a file is found by its objects: between `to` and `from`.
    pub const PROBE: u8 = 4;
    /// An object of names that is two others now is removed.
    pub const DROP: u8 = 5;
    /// What only the snapshot `from` shows is removed.
    pub const TRIM: u8 = 6;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    pub next_ino: u64,
    pub next_job: u64,
    pub last_snap: u64,
}
denc::envelope_denc!(Counters, ENVELOPE, ENVELOPE, { next_ino, next_job, last_snap });

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    Inode(Arc<Inode>),
    Dentry(Dentry),
    Session(Arc<SessionRow>),
    /// The inode that a request made; 0: none.
    Done(u64),
    Mark,
    /// The directory that a snapshot is of.
    Snap(u64),
    Job(Arc<Job>),
    Counters(Counters),
}

impl Row {
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Self::Inode(i) => i.to_bytes(),
            Self::Dentry(d) => d.to_bytes(),
            Self::Session(s) => s.to_bytes(),
            Self::Done(ino) | Self::Snap(ino) => ino.to_bytes(),
            Self::Mark => Bytes::new(),
            Self::Job(j) => j.to_bytes(),
            Self::Counters(c) => c.to_bytes(),
        }
    }

    pub fn from_bytes(key: &Key, b: &Bytes) -> Result<Self> {
        Ok(match key {
            Key::Inode { .. } => Self::Inode(Arc::new(Inode::from_bytes(b)?)),
            Key::Dentry { .. } => Self::Dentry(Dentry::from_bytes(b)?),
            Key::Session(_) => Self::Session(Arc::new(SessionRow::from_bytes(b)?)),
            Key::Done { .. } => Self::Done(u64::from_bytes(b)?),
            Key::Flushed { .. }
            | Key::Stray(_)
            | Key::Realm(_)
            | Key::Writing(_)
            | Key::Trace(_)
            | Key::Old { .. } => Self::Mark,
            Key::Snap(_) => Self::Snap(u64::from_bytes(b)?),
            Key::Job(_) => Self::Job(Arc::new(Job::from_bytes(b)?)),
            Key::Counters => Self::Counters(Counters::from_bytes(b)?),
        })
    }

    /// About how much memory it takes.
    pub fn cost(&self) -> usize {
        match self {
            Self::Inode(i) => {
                let xattrs: usize = i.xattrs.iter().map(|(k, v)| k.len() + v.len() + 128).sum();
                let links: usize = i.links.iter().map(|(_, n)| n.len() + 48).sum();
                600 + xattrs + links + i.symlink.len() + 16 * i.kept.olds.len()
            }
            _ => 150,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_without_numbers_is_as_it_was() {
        let mut row = SessionRow {
            entity: "client.x".into(),
            addr: EntityAddr::msgr2(([127, 0, 0, 1], 1).into(), 2),
            features: 7,
            metadata: BTreeMap::new(),
            caps: "allow".into(),
            delegated: Vec::new(),
        };
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.put(&row.entity);
            w.put(&row.addr);
            w.u64(row.features);
            w.put(&row.metadata);
            w.put(&row.caps);
        });
        assert_eq!(row.to_bytes(), w.finish());
        assert_eq!(SessionRow::from_bytes(&row.to_bytes()).unwrap(), row);
        row.delegated = vec![(10, 500)];
        let bytes = row.to_bytes();
        assert_eq!((bytes[0], bytes[1]), (2, 1), "an older program reads it, too");
        assert_eq!(SessionRow::from_bytes(&bytes).unwrap(), row);
    }

    #[test]
    fn names_stand_where_a_real_server_puts_them() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../vectors/filesystem/readdir-order.json"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let v: serde_json::Value = serde_json::from_str(&text).unwrap();
        let first: Vec<&str> = v["first_names_in_real_order"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_str().unwrap())
            .collect();
        let mut sorted = first.clone();
        sorted.sort_by_key(|n| (name_hash(n.as_bytes()), n.to_string()));
        assert_eq!(sorted, first);
    }
}
