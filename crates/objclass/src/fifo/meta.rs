//! The object that describes a queue, in whose data the description is; the objects of its entries are `part`'s.

use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done, out, stored};
use bytes::Bytes;
use denc::{Decode, Encode, envelope_denc};
use types::Errno;

/// Bytes at the beginning of an object of entries, and beside each entry.
pub const PART_HEADER: u32 = 512;
pub const ENTRY_OVERHEAD: u32 = 58;
/// A description is never larger.
const META_MAX: u64 = 1 << 20;
/// Of one update; a gateway says a handful. Each is looked for in the journal.
const INTENTS_MAX: usize = 1024;
const INSTANCE_LEN: usize = 16;
const SUFFIX_LEN: usize = 11;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789AB";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    instance: Bytes,
    number: u64,
}
envelope_denc!(Version, 1, 1, { instance, number });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    pub part_max: u64,
    pub entry_max: u64,
    /// A part of this size takes no more.
    pub full_at: u64,
}
envelope_denc!(Parameters, 1, 1, { part_max, entry_max, full_at });

/// What somebody is about to do with a part, or was when he ended: to make it, to make it the head, to remove it (1, 2, 3).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Intent {
    op: u32,
    part: i64,
    /// Of no use any more: empty, whatever a client says.
    tag: Bytes,
}
envelope_denc!(Intent, 1, 1, { op, part, tag });

const INTENTS: std::ops::RangeInclusive<u32> = 1..=3;

struct Meta {
    id: Bytes,
    version: Version,
    prefix: Bytes,
    parameters: Parameters,
    /// The first part, and the last one.
    tail: i64,
    head: i64,
    /// What is pushed goes to a part from `push_min` to `push_max`.
    push_min: i64,
    push_max: i64,
    /// Of parts, and of the head: no more used.
    tags: Vec<(i64, Bytes)>,
    head_tag: Bytes,
    /// By the part's number, in the order of what is to be done.
    journal: Vec<(i64, Intent)>,
}
envelope_denc!(Meta, 1, 1, {
    id, version, prefix, parameters, tail, head, push_min, push_max, tags, head_tag, journal
});

impl Meta {
    /// Of a queue without parts, with the most that a part and an entry have.
    fn new(id: Bytes, version: Version, prefix: Bytes, (part_max, entry_max): (u64, u64)) -> Self {
        let taken = entry_max.saturating_add(ENTRY_OVERHEAD.into());
        Self {
            id,
            version,
            prefix,
            parameters: Parameters {
                part_max,
                entry_max,
                full_at: part_max.wrapping_sub(taken),
            },
            tail: 0,
            head: -1,
            push_min: 0,
            push_max: -1,
            tags: Vec::new(),
            head_tag: Bytes::new(),
            journal: Vec::new(),
        }
    }
}

struct Given {
    id: Bytes,
    version: Option<Version>,
    prefix: Option<Bytes>,
    part_max: u64,
    entry_max: u64,
    exclusive: bool,
}

fn text<const N: usize>(object: &mut Object<'_>) -> Bytes {
    let random: [u8; N] = object.random();
    let text: Vec<u8> = random.iter().map(|b| ALPHABET[usize::from(b % 64)]).collect();
    text.into()
}

/// Makes a queue. One that is there already is taken if it is the same by id, version and prefix, unless it must not be.
pub fn create(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let given = input.envelope(|r| {
        let (id, version) = (r.blob()?, r.get()?);
        // Name and namespace of a pool, of nobody.
        r.blob()?;
        r.blob()?;
        Ok(Given {
            id,
            version,
            prefix: r.get()?,
            part_max: r.u64()?,
            entry_max: r.u64()?,
            exclusive: r.bool()?,
        })
    })?;
    if given.id.is_empty() || given.part_max == 0 || given.entry_max == 0 || given.part_max < given.entry_max
    {
        return Err(Errno::EINVAL);
    }
    if object.exists()? {
        let meta = load(object).map_err(|e| if e == Errno::ENODATA { Errno::EIO } else { e })?;
        let is_it = meta.id == given.id
            && given.version.is_none_or(|v| v == meta.version)
            && given.prefix.is_none_or(|p| p == meta.prefix);
        return match is_it && !given.exclusive {
            true => done(),
            false => Err(Errno::EEXIST),
        };
    }
    let version = match given.version {
        Some(version) => version,
        None => Version {
            instance: text::<INSTANCE_LEN>(object),
            number: 1,
        },
    };
    let prefix = match given.prefix {
        Some(prefix) => prefix,
        None => [&given.id[..], b".", &text::<SUFFIX_LEN>(object)].concat().into(),
    };
    let meta = Meta::new(given.id, version, prefix, (given.part_max, given.entry_max));
    object.write_full(meta.to_bytes())?;
    done()
}

/// ENODATA: there is nothing in the object. EIO: it is no queue.
fn load(object: &mut Object<'_>) -> Result<Meta> {
    match object.must_exist()?.size {
        0 => Err(Errno::ENODATA),
        size if size > META_MAX => Err(Errno::EIO),
        _ => stored(&object.read_all()?),
    }
}

struct Described {
    meta: Meta,
    part_header: u32,
    entry_overhead: u32,
}
envelope_denc!(Described, 1, 1, { meta, part_header, entry_overhead });

/// The description. ECANCELED: it is not of the version that was asked for.
pub fn get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let version: Option<Version> = input.envelope(Option::decode)?;
    let meta = load(object)?;
    if version.is_some_and(|v| v != meta.version) {
        return Err(Errno::ECANCELED);
    }
    out(&Described {
        meta,
        part_header: PART_HEADER,
        entry_overhead: ENTRY_OVERHEAD,
    })
}

/// What an update changes.
struct Update {
    version: Version,
    tail: Option<i64>,
    head: Option<i64>,
    push_min: Option<i64>,
    push_max: Option<i64>,
    add: Vec<Intent>,
    remove: Vec<Intent>,
}
envelope_denc!(Update, 1, 1, { version, tail, head, push_min, push_max, add, remove });

impl Meta {
    /// True if anything is not as before.
    fn apply(&mut self, update: &Update) -> bool {
        let mut changed = false;
        let numbers = [
            (&mut self.tail, update.tail),
            (&mut self.head, update.head),
            (&mut self.push_min, update.push_min),
            (&mut self.push_max, update.push_max),
        ];
        for (number, new) in numbers {
            let new = new.unwrap_or(*number);
            changed |= std::mem::replace(number, new) != new;
        }
        for intent in &update.add {
            let intent = intent.without_tag();
            let found = self.journal.binary_search_by(|(_, i)| i.cmp(&intent));
            if let Err(at) = found {
                self.journal.insert(at, (intent.part, intent));
                changed = true;
            }
        }
        for intent in &update.remove {
            let intent = intent.without_tag();
            let before = self.journal.len();
            self.journal.retain(|(_, i)| *i != intent);
            changed |= self.journal.len() < before;
        }
        changed
    }
}

impl Intent {
    fn without_tag(&self) -> Self {
        Self {
            op: self.op,
            part: self.part,
            tag: Bytes::new(),
        }
    }
}

/// ECANCELED: it is not of the version that the update is for. Without anything new it stays that version.
pub fn update(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let update: Update = input.get()?;
    if update.add.iter().any(|i| !INTENTS.contains(&i.op)) {
        // 16.2's OSD ends of it.
        return Err(Errno::EINVAL);
    }
    if update.add.len() + update.remove.len() > INTENTS_MAX {
        return Err(Errno::E2BIG);
    }
    let mut meta = load(object)?;
    if update.version != meta.version {
        return Err(Errno::ECANCELED);
    }
    if meta.apply(&update) {
        meta.version.number = meta.version.number.wrapping_add(1);
        let bytes = meta.to_bytes();
        if bytes.len() as u64 > META_MAX {
            return Err(Errno::E2BIG);
        }
        object.write_full(bytes)?;
    }
    done()
}
