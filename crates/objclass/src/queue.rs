//! Class `queue`: a ring of entries in an object's data (docs/protocol/classes.md, "queue").
//!
//! The object begins with the *head*: magic, length, and the ring's ends. Behind the space that the head may take lies the
//! *ring*; an entry in it is magic, length and bytes, and may go on at the ring's beginning. A *position* is an offset in
//! the object and a generation, one more each time round; as text, the *marker* of clients, it is `generation/offset`.
//! Beside the ends the head keeps *urgent data* of a class that stands on this one (`2pc_queue`).
//!
//! Invariant: the entries lie one behind the other from `front` to `tail`, and take no more than the ring has.

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, Scan, done, out};
use bytes::{Bytes, BytesMut};
use denc::{Decode, Encode, envelope_denc};
use types::Errno;

pub const METHODS: &[Method] = &[
    Method::rw("queue_init", init),
    Method::r("queue_get_capacity", capacity),
    Method::rw("queue_enqueue", enqueue),
    Method::r("queue_list_entries", list_entries),
    Method::rw("queue_remove_entries", remove_entries),
];

const HEAD_MAGIC: u16 = 0xDEAD;
const ENTRY_MAGIC: u16 = 0xBEEF;
/// Magic and length, of the head and of each entry.
pub const PREFIX: u64 = 10;
/// Space of a head without urgent data.
const HEAD_BYTES: u64 = 1024;
/// How much of the ring one listing looks at: more is for the next one, but for one entry.
const LISTED_BYTES: u64 = 1 << 20;
/// Of urgent data, and of the ring: an object is never larger.
const URGENT_MAX: u64 = 1 << 20;
const RING_MAX: u64 = 1 << 40;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Position {
    offset: u64,
    generation: u64,
}
envelope_denc!(Position, 1, 1, { generation, offset });

#[derive(Debug, Clone)]
pub struct Head {
    /// Where the ring begins.
    begin: u64,
    front: Position,
    tail: Position,
    /// Where the ring ends.
    end: u64,
    urgent_max: u64,
    pub urgent: Bytes,
}
envelope_denc!(Head, 1, 1, { begin, front, tail, end, urgent_max, urgent });

/// Input of `queue_init`, `2pc_queue_init`.
pub struct Init {
    pub size: u64,
    pub urgent_max: u64,
    pub urgent: Bytes,
}
envelope_denc!(Init, 1, 1, { size, urgent_max, urgent });

struct Capacity {
    bytes: u64,
}
envelope_denc!(Capacity, 1, 1, { bytes });

struct Entry {
    data: Bytes,
    marker: String,
}
envelope_denc!(Entry, 1, 1, { data, marker });

struct Listed {
    truncated: bool,
    next_marker: String,
    entries: Vec<Entry>,
}
envelope_denc!(Listed, 1, 1, { truncated, next_marker, entries });

impl Head {
    /// Of a new queue with so many bytes in the ring. EINVAL: no queue has that size.
    fn new(of: Init) -> Result<Self> {
        if of.size == 0
            || of.size > RING_MAX
            || of.urgent_max > URGENT_MAX
            || of.urgent.len() as u64 > of.urgent_max
        {
            return Err(Errno::EINVAL);
        }
        let begin = HEAD_BYTES + of.urgent_max;
        let start = Position {
            offset: begin,
            generation: 0,
        };
        Ok(Self {
            begin,
            front: start,
            tail: start,
            end: begin + of.size,
            urgent_max: of.urgent_max,
            urgent: of.urgent,
        })
    }

    /// EINVAL where there is no queue; EIO where one is damaged.
    pub fn load(object: &mut Object<'_>) -> Result<Self> {
        if !object.exists()? {
            return Err(Errno::EINVAL);
        }
        let prefix = object.read(0, PREFIX)?;
        let (magic, len): (u16, u64) = Decode::from_bytes(&prefix).map_err(|_| Errno::EINVAL)?;
        if magic != HEAD_MAGIC || len > HEAD_BYTES + URGENT_MAX {
            return Err(Errno::EINVAL);
        }
        let bytes = object.read(PREFIX, len)?;
        let head = Self::from_bytes(&bytes).map_err(|_| Errno::EIO)?;
        match head.is_sound() {
            true => Ok(head),
            false => Err(Errno::EIO),
        }
    }

    fn is_sound(&self) -> bool {
        let sized = self.urgent_max <= URGENT_MAX
            && self.begin == HEAD_BYTES + self.urgent_max
            && self.end > self.begin
            && self.end - self.begin <= RING_MAX;
        let (front, tail) = (self.front, self.tail);
        let in_order = match tail.generation.checked_sub(front.generation) {
            Some(0) => front.offset <= tail.offset,
            Some(1) => tail.offset <= front.offset,
            _ => false,
        };
        let ring = self.begin..self.end;
        sized && in_order && ring.contains(&front.offset) && ring.contains(&tail.offset)
    }

    /// ENOSPC: the urgent data has outgrown its space.
    pub fn save(&self, object: &mut Object<'_>) -> Result<()> {
        if self.urgent.len() as u64 > self.urgent_max {
            return Err(Errno::ENOSPC);
        }
        let body = self.to_bytes();
        let mut bytes = BytesMut::with_capacity(body.len() + PREFIX as usize);
        put_prefix(&mut bytes, HEAD_MAGIC, body.len());
        bytes.extend_from_slice(&body);
        object.write(0, bytes.freeze())
    }

    fn capacity(&self) -> u64 {
        self.end - self.begin
    }

    pub fn used(&self) -> u64 {
        match self.front.generation == self.tail.generation {
            true => self.tail.offset - self.front.offset,
            false => self.capacity() - (self.front.offset - self.tail.offset),
        }
    }

    pub fn free(&self) -> u64 {
        self.capacity() - self.used()
    }

    /// The position so many bytes behind the front.
    fn at(&self, index: u64) -> Position {
        let offset = self.front.offset + index;
        match offset < self.end {
            true => Position { offset, ..self.front },
            false => Position {
                offset: offset - self.end + self.begin,
                generation: self.front.generation.wrapping_add(1),
            },
        }
    }

    pub fn marker(&self, index: u64) -> String {
        let at = self.at(index);
        format!("{}/{}", at.generation, at.offset)
    }

    /// How far behind the front a marker is; 0 for what was removed before. EINVAL: it is none of this queue's.
    pub fn index(&self, marker: &str) -> Result<u64> {
        let (generation, offset) = marker.split_once('/').ok_or(Errno::EINVAL)?;
        let generation: u64 = generation.parse().map_err(|_| Errno::EINVAL)?;
        let offset: u64 = offset.parse().map_err(|_| Errno::EINVAL)?;
        if offset < self.begin || offset >= self.end {
            return Err(Errno::EINVAL);
        }
        let front = self.front;
        let rounds = i128::from(generation) - i128::from(front.generation);
        let index = rounds * i128::from(self.capacity()) + i128::from(offset) - i128::from(front.offset);
        match u64::try_from(index.max(0)) {
            Ok(index) if index <= self.used() => Ok(index),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Where a listing begins: at the front where its marker has no offset.
    pub fn from(&self, marker: &str) -> Result<u64> {
        match marker.split_once('/') {
            Some((_, offset)) if !offset.is_empty() => self.index(marker),
            _ => Ok(0),
        }
    }

    /// Bytes of the ring, from behind the front on. They are within what is used.
    fn read(&self, object: &mut Object<'_>, index: u64, len: u64) -> Result<Bytes> {
        let at = self.at(index).offset;
        let first = len.min(self.end - at);
        let mut bytes = BytesMut::from(&object.read(at, first)?[..]);
        if first < len {
            bytes.extend_from_slice(&object.read(self.begin, len - first)?);
        }
        match bytes.len() as u64 == len {
            true => Ok(bytes.freeze()),
            false => Err(Errno::EIO),
        }
    }

    /// Calls `entry(index, bytes)` for the entries from `from` on, as far as one reading of the ring shows them whole, and for one
    /// at least if there is one. Gives the index behind the last one that was taken: an entry at which `Stop` is said is not.
    pub fn walk(
        &self,
        object: &mut Object<'_>,
        from: u64,
        mut entry: impl FnMut(u64, Bytes) -> Scan,
    ) -> Result<u64> {
        let used = self.used();
        let mut window = self.read(object, from, LISTED_BYTES.min(used - from))?;
        let mut at = from;
        while at < used {
            let there = window.len() as u64;
            if there < PREFIX && at + there < used && at > from {
                break;
            }
            let len = entry_len(&window).ok_or(Errno::EIO)?;
            let whole = len.checked_add(PREFIX).filter(|n| *n <= used - at);
            let whole = whole.ok_or(Errno::EIO)?;
            if whole > there {
                if at > from {
                    break;
                }
                window = self.read(object, at, whole)?;
            }
            let bytes = window.split_to(usize::try_from(whole).map_err(|_| Errno::EIO)?);
            if entry(at, bytes.slice(PREFIX as usize..)) == Scan::Stop {
                break;
            }
            at += whole;
        }
        Ok(at)
    }

    /// Moves the front. The index is an entry's beginning, or the tail's.
    pub fn drop_front(&mut self, index: u64) {
        self.front = self.at(index);
    }

    /// Puts entries behind the tail. ENOSPC: they do not fit. The head is to be saved.
    pub fn push(&mut self, object: &mut Object<'_>, entries: &[Bytes]) -> Result<()> {
        let total: u64 = entries.iter().map(|e| PREFIX + e.len() as u64).sum();
        if total > self.free() {
            return Err(Errno::ENOSPC);
        }
        let mut bytes = BytesMut::with_capacity(usize::try_from(total).unwrap_or(0));
        for entry in entries {
            put_prefix(&mut bytes, ENTRY_MAGIC, entry.len());
            bytes.extend_from_slice(entry);
        }
        let mut bytes = bytes.freeze();
        let at = self.tail.offset;
        self.tail = self.at(self.used() + total);
        let first = usize::try_from(self.end - at)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let behind = bytes.split_off(first);
        if !bytes.is_empty() {
            object.write(at, bytes)?;
        }
        if !behind.is_empty() {
            object.write(self.begin, behind)?;
        }
        Ok(())
    }
}

fn put_prefix(to: &mut BytesMut, magic: u16, len: usize) {
    to.extend_from_slice(&magic.to_le_bytes());
    to.extend_from_slice(&(len as u64).to_le_bytes());
}

/// Length of the entry that begins here, if one does.
fn entry_len(bytes: &[u8]) -> Option<u64> {
    let (magic, rest) = bytes.split_first_chunk::<2>()?;
    let len = rest.first_chunk::<8>()?;
    (u16::from_le_bytes(*magic) == ENTRY_MAGIC).then_some(u64::from_le_bytes(*len))
}

/// Makes the object a queue. EEXIST: it is one.
pub fn create(object: &mut Object<'_>, of: Init) -> Result<()> {
    match object.exists()?.then(|| Head::load(object)) {
        None | Some(Err(Errno::EINVAL | Errno::ENOENT)) => Head::new(of)?.save(object),
        Some(_) => Err(Errno::EEXIST),
    }
}

fn init(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    create(object, input.get()?)?;
    done()
}

/// Bytes of the ring.
pub fn capacity(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let bytes = Head::load(object)?.capacity();
    out(&Capacity { bytes })
}

fn enqueue(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let entries: Vec<Bytes> = input.envelope(Vec::decode)?;
    let mut head = Head::load(object)?;
    head.push(object, &entries)?;
    head.save(object)?;
    done()
}

/// Entries from a marker on, from the front if it is none. At least one, if there is one.
pub fn list_entries(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (max, marker) = input.envelope(<(u64, String)>::decode)?;
    let head = Head::load(object)?;
    let from = head.from(&marker)?;
    let max = crate::object::list_max(max.max(1));
    let mut entries = Vec::new();
    let at = head.walk(object, from, |index, data| {
        if entries.len() == max {
            return Scan::Stop;
        }
        entries.push(Entry {
            data,
            marker: head.marker(index),
        });
        Scan::Next
    })?;
    let used = head.used();
    out(&Listed {
        truncated: at < used,
        next_marker: head.marker(at),
        entries,
    })
}

/// Removes the entries in front of a marker.
pub fn remove_entries(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let end: String = input.envelope(String::decode)?;
    let mut head = Head::load(object)?;
    let index = head.index(&end)?;
    // The end is one entry's beginning, or nothing could be read from there again.
    if index < head.used() {
        let prefix = head.read(object, index, PREFIX.min(head.used() - index))?;
        entry_len(&prefix).ok_or(Errno::EINVAL)?;
    }
    head.drop_front(index);
    head.save(object)?;
    done()
}
