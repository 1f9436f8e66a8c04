//! Where rows lie in the metadata pool, and files' bytes in data pools.
//!
//! A directory's names lie in the omaps of 2^bits objects by the upper bits of their hashes, of which the first `split` are already
//! two each: fragments become two one after the other, in the order of listings, and two numbers say where every name is.
//! Inodes lie 4096 numbers to an object: what was made together is found together.

use crate::row::{Inode, Key};
use bytes::Bytes;
use messages::fs::Layout;

/// A fragment that holds about so many names becomes two.
pub const NAMES_MAX: u64 = 16 << 10;

/// The fragment of a directory that is to become two, if one is.
pub fn to_split(dir: &Inode) -> Option<Fragment> {
    let crowded = (dir.files + dir.subdirs) >> dir.bits > NAMES_MAX;
    (crowded && dir.bits < BITS_MAX).then_some(Fragment {
        bits: dir.bits,
        value: dir.split,
    })
}

/// The directory after that.
pub fn after_split(dir: &mut Inode) {
    dir.split += 1;
    if dir.split == 1 << dir.bits {
        (dir.bits, dir.split) = (dir.bits + 1, 0);
    }
}

/// Bits of a name's hash.
const HASH_BITS: u8 = 24;
/// More fragments a directory never has.
pub const BITS_MAX: u8 = 16;
/// Inodes of one object, as a shift.
const INODES_SHIFT: u32 = 12;

/// A part of a directory, and the hashes that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fragment {
    pub bits: u8,
    pub value: u32,
}

impl Fragment {
    pub fn of(bits: u8, split: u32, hash: u32) -> Self {
        let prefix = |bits: u8| hash >> (HASH_BITS - bits);
        match bits < HASH_BITS && prefix(bits) < split {
            true => Self {
                bits: bits + 1,
                value: prefix(bits + 1),
            },
            false => Self {
                bits,
                value: prefix(bits),
            },
        }
    }

    /// The lowest hash behind it; None: it is the last.
    pub fn end(self) -> Option<u32> {
        let end = (u64::from(self.value) + 1) << (HASH_BITS - self.bits);
        (end < 1 << HASH_BITS).then_some(end as u32)
    }

    pub fn object(self, dir: u64) -> String {
        format!("skep.dir.{dir:x}.{}.{:x}", self.bits, self.value)
    }

    /// What it becomes.
    pub fn halves(self) -> [Self; 2] {
        [0, 1].map(|half| Self {
            bits: self.bits + 1,
            value: self.value * 2 + half,
        })
    }

    /// All of a directory, in order.
    pub fn all(bits: u8, split: u32) -> impl Iterator<Item = Self> {
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let fragment = Self::of(bits, split, next?);
            next = fragment.end();
            Some(fragment)
        })
    }
}

/// Object and omap key of a row. Of a dentry the directory says how it is split.
pub fn of(key: &Key, dir: Option<&Inode>) -> (String, Bytes) {
    match key {
        Key::Inode { ino, snap } => {
            let object = format!("skep.inodes.{:x}", ino >> INODES_SHIFT);
            (object, format!("{ino:016x}{snap:016x}").into())
        }
        Key::Dentry {
            dir: ino,
            hash,
            name,
            snap,
        } => {
            let (bits, split) = dir.map_or((0, 0), |d| (d.bits, d.split));
            let object = Fragment::of(bits, split, *hash).object(*ino);
            (object, dentry_key(*hash, name, *snap))
        }
        Key::Session(c) => ("skep.sessions".into(), hex(&[*c])),
        Key::Done { client, tid } => ("skep.done".into(), hex(&[*client, *tid])),
        Key::Flushed { client, tid } => ("skep.flushed".into(), hex(&[*client, *tid])),
        Key::Job(n) => ("skep.jobs".into(), hex(&[*n])),
        Key::Stray(ino) => ("skep.strays".into(), hex(&[*ino])),
        Key::Realm(ino) => ("skep.realms".into(), hex(&[*ino])),
        Key::Writing(ino) => ("skep.writing".into(), hex(&[*ino])),
        Key::Counters => ("skep.counters".into(), hex(&[0])),
        Key::Trace(ino) => ("skep.traces".into(), hex(&[*ino])),
    }
}

/// Tables that are read whole at the start.
pub const WHOLE: [&str; 9] = [
    "skep.sessions",
    "skep.done",
    "skep.flushed",
    "skep.jobs",
    "skep.strays",
    "skep.realms",
    "skep.writing",
    "skep.counters",
    "skep.traces",
];

fn hex(numbers: &[u64]) -> Bytes {
    numbers
        .iter()
        .map(|n| format!("{n:016x}"))
        .collect::<String>()
        .into()
}

/// The key of a row of one of [`WHOLE`].
pub fn key_of(object: &str, key: &[u8]) -> Option<Key> {
    let text = std::str::from_utf8(key).ok()?;
    let number = |i: usize| u64::from_str_radix(text.get(i * 16..i * 16 + 16)?, 16).ok();
    Some(match object {
        "skep.sessions" => Key::Session(number(0)?),
        "skep.done" => Key::Done {
            client: number(0)?,
            tid: number(1)?,
        },
        "skep.flushed" => Key::Flushed {
            client: number(0)?,
            tid: number(1)?,
        },
        "skep.jobs" => Key::Job(number(0)?),
        "skep.strays" => Key::Stray(number(0)?),
        "skep.realms" => Key::Realm(number(0)?),
        "skep.writing" => Key::Writing(number(0)?),
        "skep.counters" => Key::Counters,
        "skep.traces" => Key::Trace(number(0)?),
        _ => return None,
    })
}

/// The order of these keys is that of [`Key::Dentry`]: names hold no zero byte.
pub fn dentry_key(hash: u32, name: &[u8], snap: u64) -> Bytes {
    let mut key = format!("{hash:06x}").into_bytes();
    key.extend_from_slice(name);
    key.push(0);
    key.extend_from_slice(format!("{snap:016x}").as_bytes());
    key.into()
}

pub fn parse_dentry(dir: u64, key: &Bytes) -> Option<Key> {
    let split = key.len().checked_sub(17)?;
    if split < 6 || key[split] != 0 {
        return None;
    }
    let number = |b: &[u8]| u64::from_str_radix(std::str::from_utf8(b).ok()?, 16).ok();
    Some(Key::Dentry {
        dir,
        hash: number(&key[..6])? as u32,
        name: Bytes::copy_from_slice(&key[6..split]),
        snap: number(&key[split + 1..])?,
    })
}

/// The object of a file's bytes.
pub fn data_object(ino: u64, number: u64) -> String {
    format!("{ino:x}.{number:08x}")
}

/// How many objects a file of this size may have; one at least.
pub fn objects_of(layout: &Layout, size: u64) -> u64 {
    let (count, object) = (
        u64::from(layout.stripe_count).max(1),
        u64::from(layout.object_size).max(1),
    );
    let set = count * object;
    let unit = u64::from(layout.stripe_unit).max(1);
    let (full, rest) = (size / set, size % set);
    (full * count + rest.div_ceil(unit).min(count)).max(1)
}

/// Bytes of the object of this number in a file of this size.
pub fn object_bytes(layout: &Layout, size: u64, number: u64) -> u64 {
    let unit = u64::from(layout.stripe_unit).max(1);
    let count = u64::from(layout.stripe_count).max(1);
    let object = u64::from(layout.object_size).max(1);
    let (set, at) = (number / count, number % count);
    let rest = size.saturating_sub(set * count * object).min(count * object);
    let (rows, last) = (rest / (unit * count), rest % (unit * count));
    rows * unit + last.saturating_sub(at * unit).min(unit)
}

/// Where the byte lies in the file that ends an object of this length.
pub fn file_size_of(layout: &Layout, number: u64, bytes: u64) -> u64 {
    if bytes == 0 {
        return 0;
    }
    let unit = u64::from(layout.stripe_unit).max(1);
    let count = u64::from(layout.stripe_count).max(1);
    let object = u64::from(layout.object_size).max(1);
    let (set, at) = (number / count, number % count);
    let last = bytes - 1;
    set * count * object + last / unit * unit * count + at * unit + last % unit + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{NOSNAP, name_hash};

    const STRIPED: Layout = Layout {
        stripe_unit: 65536,
        stripe_count: 3,
        object_size: 131_072,
        unused: [0; 3],
        pool: 1,
    };

    #[test]
    fn a_cut_file_has_objects_of_the_recorded_sizes() {
        let sizes: Vec<u64> = (0..3).map(|n| object_bytes(&STRIPED, 200_000, n)).collect();
        assert_eq!(sizes, [68_928, 65_536, 65_536]);
        assert_eq!(object_bytes(&STRIPED, 200_000, 3), 0);
        assert_eq!(objects_of(&STRIPED, 200_000), 3);
        assert_eq!(objects_of(&STRIPED, 0), 1);
        assert_eq!(objects_of(&STRIPED, 393_217), 4);
    }

    #[test]
    fn the_last_byte_of_an_object_is_found_in_the_file() {
        for size in [
            1u64, 65_535, 65_536, 65_537, 131_073, 200_000, 393_216, 393_217, 1_000_001,
        ] {
            let all = (0..objects_of(&STRIPED, size))
                .map(|n| file_size_of(&STRIPED, n, object_bytes(&STRIPED, size, n)))
                .max();
            assert_eq!(all, Some(size));
        }
    }

    #[test]
    fn fragments_cover_all_hashes_once_and_in_order() {
        for (bits, split) in [(0, 0), (1, 0), (1, 1), (2, 3), (3, 0)] {
            let all: Vec<Fragment> = Fragment::all(bits, split).collect();
            assert_eq!(all.len() as u32, (1 << bits) + split, "{bits} {split}");
            let mut at = Some(0);
            for f in &all {
                let hash = at.unwrap();
                assert_eq!(Fragment::of(bits, split, hash), *f);
                if hash > 0 {
                    assert_ne!(Fragment::of(bits, split, hash - 1), *f);
                }
                at = f.end();
            }
            assert_eq!(at, None);
        }
    }

    #[test]
    fn keys_come_back_and_keep_their_order() {
        let names = ["a", "ab", "b", "abc", "z", "\u{e4}"].map(|n| Bytes::from_static(n.as_bytes()));
        let mut keys: Vec<Key> = names.iter().map(|n| Key::dentry(7, n)).collect();
        keys.push(Key::Dentry {
            dir: 7,
            hash: name_hash(b"a"),
            name: names[0].clone(),
            snap: 3,
        });
        keys.sort();
        let stored: Vec<Bytes> = keys.iter().map(|k| of(k, None).1).collect();
        assert!(stored.windows(2).all(|w| w[0] < w[1]));
        for (key, stored) in keys.iter().zip(&stored) {
            assert_eq!(parse_dentry(7, stored).as_ref(), Some(key));
        }
        assert_eq!(parse_dentry(7, &Bytes::from_static(b"short")), None);
        let done = Key::Done { client: 4, tid: 9 };
        assert_eq!(key_of("skep.done", &of(&done, None).1), Some(done));
        assert_eq!(of(&Key::inode(1), None).1.len(), 32);
        assert_eq!(NOSNAP, u64::MAX - 1);
    }
}
