//! Class `rgw_gc`: what radosgw has to remove later, in a queue (docs/protocol/classes.md, "rgw_gc").
//!
//! An *entry* is a tag, a chain of objects, and the time from which on they may be removed. It may be *deferred*: it is then put
//! behind the tail once more, with a later time, and the queue's urgent data note that time for its tag. Entries of the tag with an
//! earlier time are *stale*: they are in no listing, and go when what lies behind them is removed.
//!
//! Invariant: who lists the entries that are due, and removes as many from the front, removes none that was not listed, whatever was
//! deferred in between. So such a listing ends at the first entry that is not due, and stale entries count in a removal.
//!
//! Not here: what is in a chain. It is passed on as it came.

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, Scan, done, list_max, out, stored};
use crate::opaque::Opaque;
use crate::queue::{self, Head, Init};
use bytes::Bytes;
use denc::{Decode, Encode, Writer, envelope_denc};
use std::collections::BTreeMap;
use types::{Errno, Utime};

pub const METHODS: &[Method] = &[
    Method::rw("rgw_gc_queue_init", init),
    Method::rw("rgw_gc_queue_enqueue", enqueue),
    Method::r("rgw_gc_queue_list_entries", list_entries),
    Method::rw("rgw_gc_queue_remove_entries", remove_entries),
    Method::rw("rgw_gc_queue_update_entry", update_entry),
];

const XATTR: &[u8] = b"cls_queue_urgent_data";
/// Space for deferred tags in the head; those beyond it are in the attribute, up to a size that every store takes.
const URGENT_BYTES: u64 = 3 << 10;
const XATTR_BYTES_MAX: usize = 60 << 10;
/// How many readings of the ring a removal does at most: what it leaves is listed, and removed, again.
const READINGS_MAX: usize = 8;

type Deferred = BTreeMap<Bytes, Utime>;

/// Tag, chain (an envelope, not looked into), time.
pub struct Entry {
    pub tag: Bytes,
    pub chain: Opaque,
    pub time: Utime,
}
envelope_denc!(Entry, 1, 1, { tag, chain, time });

struct Urgent {
    deferred: Deferred,
    max: u32,
    here: u32,
    in_xattr: u32,
}
envelope_denc!(Urgent, 1, 1, { deferred, max, here, in_xattr });

/// Entries as they lie there.
pub struct Listed {
    pub entries: Vec<Bytes>,
    pub next_marker: Bytes,
    pub truncated: bool,
}

impl Encode for Listed {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.u32(self.entries.len() as u32);
            self.entries.iter().for_each(|e| w.raw(e));
            w.put(&self.next_marker);
            w.bool(self.truncated);
        });
    }
}

/// The queue, and all its deferred tags.
struct Queue {
    head: Head,
    deferred: Deferred,
    max: u32,
    had_more: bool,
}

impl Queue {
    fn load(object: &mut Object<'_>) -> Result<Self> {
        let head = Head::load(object)?;
        let urgent: Urgent = stored(&head.urgent)?;
        let mut deferred = urgent.deferred;
        let more: Option<Deferred> = object.xattr(XATTR)?;
        let had_more = more.is_some();
        for (tag, time) in more.unwrap_or_default() {
            let known = deferred.entry(tag).or_insert(time);
            *known = time.max(*known);
        }
        Ok(Self {
            head,
            deferred,
            max: urgent.max,
            had_more,
        })
    }

    /// ENOSPC: too many tags are deferred.
    fn save(mut self, object: &mut Object<'_>) -> Result<()> {
        let mut urgent = Urgent {
            deferred: Deferred::new(),
            max: self.max,
            here: 0,
            in_xattr: 0,
        };
        let mut more = Deferred::new();
        let mut space = URGENT_BYTES as usize - urgent.to_bytes().len();
        for (tag, time) in self.deferred {
            let takes = tag.len() + 12;
            if takes <= space {
                space -= takes;
                urgent.deferred.insert(tag, time);
            } else {
                more.insert(tag, time);
            }
        }
        (urgent.here, urgent.in_xattr) = (urgent.deferred.len() as u32, more.len() as u32);
        if !more.is_empty() {
            let bytes = more.to_bytes();
            if bytes.len() > XATTR_BYTES_MAX {
                return Err(Errno::ENOSPC);
            }
            object.set_xattr_raw(XATTR, bytes)?;
        } else if self.had_more {
            object.remove_xattr(XATTR)?;
        }
        self.head.urgent = urgent.to_bytes();
        self.head.save(object)
    }

    fn is_stale(&self, entry: &Entry) -> bool {
        self.deferred.get(&entry.tag).is_some_and(|t| *t > entry.time)
    }

    /// Forgets a tag when the entry that it was deferred to goes.
    fn forget(&mut self, entry: &Entry) {
        if self.deferred.get(&entry.tag).is_some_and(|t| *t == entry.time) {
            self.deferred.remove(&entry.tag);
        }
    }
}

fn init(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (size, max) = input.envelope(<(u64, u64)>::decode)?;
    let urgent = Urgent {
        deferred: Deferred::new(),
        max: u32::try_from(max).unwrap_or(u32::MAX),
        here: 0,
        in_xattr: 0,
    };
    let of = Init {
        size,
        urgent_max: URGENT_BYTES,
        urgent: urgent.to_bytes(),
    };
    queue::create(object, of)?;
    done()
}

/// The entry of an input, and from when on it counts.
fn timed(object: &Object<'_>, input: &mut Input) -> Result<Entry> {
    let (after_s, mut entry) = input.envelope(<(u32, Entry)>::decode)?;
    let now = object.now();
    entry.time = Utime {
        sec: now.sec.saturating_add(after_s),
        ..now
    };
    Ok(entry)
}

fn enqueue(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let entry = timed(object, input)?;
    let mut head = Head::load(object)?;
    head.push(object, &[entry.to_bytes()])?;
    head.save(object)?;
    done()
}

/// At most so many entries that are not stale. Of those that are due alone it ends, as if there were no more, at one that is not:
/// what is due behind that waits for it.
fn list_entries(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (marker, max, due_only) = input.versioned(2, |_, r| Ok((r.string()?, r.u32()?, r.bool()?)))?;
    let queue = Queue::load(object)?;
    let from = queue.head.from(&marker)?;
    // 0 is no limit.
    let max = if max == 0 { u64::MAX } else { max.into() };
    let (max, now) = (list_max(max), object.now());
    let mut entries = Vec::new();
    let (mut damaged, mut waits) = (false, false);
    let at = queue.head.walk(object, from, |_, bytes| {
        let Ok(entry) = Entry::from_bytes(&bytes) else {
            damaged = true;
            return Scan::Stop;
        };
        if entries.len() == max {
            return Scan::Stop;
        }
        if queue.is_stale(&entry) {
            return Scan::Next;
        }
        if due_only && entry.time > now {
            waits = true;
            return Scan::Stop;
        }
        entries.push(entry.to_bytes());
        Scan::Next
    })?;
    if damaged {
        return Err(Errno::EIO);
    }
    let truncated = !waits && at < queue.head.used();
    out(&Listed {
        entries,
        next_marker: match truncated {
            true => queue.head.marker(at).into(),
            false => Bytes::new(),
        },
        truncated,
    })
}

/// Removes so many entries from the front, and the stale ones behind them. A stale one may have been listed before it was deferred.
fn remove_entries(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let mut left = input.envelope(u64::decode)?;
    let mut queue = Queue::load(object)?;
    let mut at = 0;
    for _ in 0..READINGS_MAX {
        let mut gone = Vec::new();
        let mut damaged = false;
        let to = queue.head.walk(object, at, |_, bytes| {
            let Ok(entry) = Entry::from_bytes(&bytes) else {
                damaged = true;
                return Scan::Stop;
            };
            let is_stale = queue.is_stale(&entry);
            if left == 0 && !is_stale {
                return Scan::Stop;
            }
            left = left.saturating_sub(1);
            if !is_stale {
                gone.push(entry);
            }
            Scan::Next
        })?;
        if damaged {
            return Err(Errno::EIO);
        }
        gone.iter().for_each(|entry| queue.forget(entry));
        if to == at {
            break;
        }
        at = to;
    }
    queue.head.drop_front(at);
    queue.save(object)?;
    done()
}

fn update_entry(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let entry = timed(object, input)?;
    let mut queue = Queue::load(object)?;
    queue.head.push(object, &[entry.to_bytes()])?;
    let new = queue.deferred.insert(entry.tag, entry.time).is_none();
    if new && queue.deferred.len() > queue.max as usize {
        return Err(Errno::ENOSPC);
    }
    queue.save(object)?;
    done()
}
