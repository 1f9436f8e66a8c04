//! A part of a queue: an object of entries, one behind the other.
//!
//! The object begins with the *header*, for which 512 bytes are kept. An entry is a *head* (44 bytes: magic, 44, length of
//! what follows up to the data, length of the data, number, 0), the time of its push in an envelope (14 bytes), and the data.
//! The magic number is random and the same for all of a part.
//!
//! Invariant: entries lie behind one another from `min_ofs` to `next_ofs`, the last one at `last_ofs`.

use super::meta::{ENTRY_OVERHEAD, PART_HEADER, Parameters};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done, out, stored};
use bytes::{Bytes, BytesMut};
use denc::{Encode, Writer, envelope_denc};
use types::{Errno, Utime};

const HEADER: u64 = PART_HEADER as u64;
const OVERHEAD: u64 = ENTRY_OVERHEAD as u64;
/// No part comes near it by pushes.
const NUMBERS_MAX: u64 = 1 << 62;
/// Length of an entry's head.
const HEAD: u64 = 44;
/// How much of the object a listing looks at: more is for the next one, but for one entry.
const LISTED_BYTES: u64 = 1 << 20;
/// Entries of one listing.
const LISTED_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// Of no use any more: empty, whatever a client says.
    tag: Bytes,
    parameters: Parameters,
    magic: u64,
    /// The first entry, the last one, and where the next one begins.
    min_ofs: u64,
    last_ofs: u64,
    next_ofs: u64,
    min_index: u64,
    max_index: u64,
    /// Of the last push, or when it was made.
    max_time: Utime,
}
envelope_denc!(Part, 1, 1, {
    tag, parameters, magic, min_ofs, last_ofs, next_ofs, min_index, max_index, max_time
});

impl Part {
    /// EIO: it is no part.
    fn load(object: &mut Object<'_>) -> Result<Self> {
        if !object.exists()? {
            return Err(Errno::EIO);
        }
        let part: Self = stored(&object.read(0, HEADER)?)?;
        // Anybody may have written it by hand: what is added to its numbers has to fit.
        match part.next_ofs.max(part.max_index) < NUMBERS_MAX {
            true => Ok(part),
            false => Err(Errno::EIO),
        }
    }

    fn save(&self, object: &mut Object<'_>) -> Result<()> {
        let bytes = self.to_bytes();
        if bytes.len() as u64 > HEADER {
            return Err(Errno::EIO);
        }
        object.write(0, bytes)
    }

    fn is_full(&self) -> bool {
        self.next_ofs > self.parameters.full_at
    }
}

struct Init {
    _tag: Bytes,
    parameters: Parameters,
}
envelope_denc!(Init, 1, 1, { _tag, parameters });

/// Makes a part. EEXIST: there is one with other parameters.
pub fn init(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let given: Init = input.get()?;
    if object.stat()?.is_some_and(|s| s.size > 0) {
        let part = Part::load(object)?;
        return match part.parameters == given.parameters {
            true => done(),
            false => Err(Errno::EEXIST),
        };
    }
    let part = Part {
        tag: Bytes::new(),
        parameters: given.parameters,
        magic: u64::from_le_bytes(object.random()),
        min_ofs: HEADER,
        last_ofs: 0,
        next_ofs: HEADER,
        min_index: 0,
        max_index: 0,
        max_time: object.now(),
    };
    part.save(object)?;
    done()
}

struct Push {
    _tag: Bytes,
    entries: Vec<Bytes>,
    /// Of the entries' data together, as the client says.
    total: u64,
}
envelope_denc!(Push, 1, 1, { _tag, entries, total });

/// Puts entries behind the last one, until the part is full; how many is the call's value. EINVAL: they are longer together than a
/// part may be, or not as long as is said. ERANGE: it is full. EFAULT: there are none.
pub fn push(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let given: Push = input.get()?;
    let mut part = Part::load(object)?;
    let count = given.entries.len() as u64;
    let total: u64 = given.entries.iter().map(|e| e.len() as u64).sum();
    if given.total != total || total + count * OVERHEAD > part.parameters.part_max {
        return Err(Errno::EINVAL);
    }
    if part.is_full() {
        return Err(Errno::ERANGE);
    }
    if count == 0 {
        return Err(Errno::EFAULT);
    }
    let (now, begin) = (object.now(), part.next_ofs);
    let mut bytes = BytesMut::new();
    let mut taken: u16 = 0;
    for data in &given.entries {
        // The value has sixteen bits.
        if part.is_full() || taken == u16::MAX {
            break;
        }
        part.last_ofs = part.next_ofs;
        part.put(&mut bytes, data, now);
        taken += 1;
    }
    part.max_time = now;
    object.write(begin, bytes.freeze())?;
    part.save(object)?;
    object.set_rval(taken);
    done()
}

impl Part {
    fn put(&mut self, to: &mut BytesMut, data: &Bytes, now: Utime) {
        let mut w = Writer::new();
        w.u64(self.magic);
        w.u64(HEAD);
        w.u64(OVERHEAD - HEAD);
        w.u64(data.len() as u64);
        w.u64(self.max_index);
        w.u32(0);
        w.envelope(1, 1, |w| w.put(&now));
        to.extend_from_slice(&w.finish());
        to.extend_from_slice(data);
        self.max_index += 1;
        self.next_ofs += OVERHEAD + data.len() as u64;
    }
}

/// What stands before an entry's data.
struct Head {
    len: u64,
    index: u64,
    time: Utime,
}

/// A look at entries from one on.
#[derive(Default)]
struct Window {
    at: u64,
    bytes: Bytes,
}

impl Window {
    /// So many bytes at an offset, as far as there are any; reads on where it has to.
    fn get(&mut self, object: &mut Object<'_>, at: u64, len: u64, end: u64) -> Result<Bytes> {
        let have = self.at + self.bytes.len() as u64;
        if at < self.at || at.saturating_add(len) > have {
            let more = len.max(LISTED_BYTES.min(end.saturating_sub(at)));
            (self.at, self.bytes) = (at, object.read(at, more)?);
        }
        let from = (at - self.at) as usize;
        match self.bytes.get(from..from.saturating_add(len as usize)) {
            Some(found) => Ok(self.bytes.slice_ref(found)),
            None => Err(Errno::EIO),
        }
    }
}

impl Part {
    /// ERANGE: no entry begins there.
    fn head(&self, object: &mut Object<'_>, window: &mut Window, at: u64) -> Result<Head> {
        let head = window.get(object, at, OVERHEAD, self.next_ofs)?;
        let (magic, pre): (u64, u64) = stored(&head)?;
        let (middle, len): (u64, u64) = stored(&head.slice(16..))?;
        let index: u64 = stored(&head.slice(32..))?;
        if magic != self.magic || pre != HEAD || middle != OVERHEAD - HEAD {
            return Err(Errno::ERANGE);
        }
        let time: Stamp = stored(&head.slice(HEAD as usize..))?;
        let end = at.checked_add(OVERHEAD).and_then(|e| e.checked_add(len));
        match end.is_some_and(|e| e <= self.next_ofs) {
            true => Ok(Head {
                len,
                index,
                time: time.time,
            }),
            false => Err(Errno::EIO),
        }
    }
}

struct Stamp {
    time: Utime,
}
envelope_denc!(Stamp, 1, 1, { time });

struct Entry {
    data: Bytes,
    ofs: u64,
    time: Utime,
}
envelope_denc!(Entry, 1, 1, { data, ofs, time });

struct Listed {
    tag: Bytes,
    entries: Vec<Entry>,
    more: bool,
    full: bool,
}
envelope_denc!(Listed, 1, 1, { tag, entries, more, full });

struct List {
    _tag: Option<Bytes>,
    ofs: u64,
    max: i32,
}
envelope_denc!(List, 1, 1, { _tag, ofs, max });

/// Entries behind that at an offset, from the first one on if that lies before it. ERANGE: no entry begins there.
pub fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let given: List = input.get()?;
    let part = Part::load(object)?;
    let max = usize::try_from(given.max).unwrap_or(0).min(LISTED_MAX);
    let mut window = Window::default();
    let mut at = part.min_ofs;
    if given.ofs >= part.next_ofs {
        at = part.next_ofs;
    } else if given.ofs >= at {
        at = given.ofs + OVERHEAD + part.head(object, &mut window, given.ofs)?.len;
    }
    let (mut entries, mut bytes) = (Vec::new(), 0);
    while at < part.next_ofs && entries.len() < max && bytes < LISTED_BYTES {
        let head = part.head(object, &mut window, at)?;
        let data = window.get(object, at + OVERHEAD, head.len, part.next_ofs)?;
        entries.push(Entry {
            data,
            ofs: at,
            time: head.time,
        });
        bytes += OVERHEAD + head.len;
        at += OVERHEAD + head.len;
    }
    out(&Listed {
        tag: part.tag.clone(),
        entries,
        more: at < part.next_ofs,
        full: part.is_full(),
    })
}

struct Trim {
    _tag: Option<Bytes>,
    ofs: u64,
    exclusive: bool,
}
envelope_denc!(Trim, 1, 1, { _tag, ofs, exclusive });

/// Drops the entries up to an offset, that at it among them unless `exclusive`. They stay where they are, out of sight, until the
/// object goes: a full part does with an offset behind its last entry. ERANGE: no entry begins there.
pub fn trim(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let given: Trim = input.get()?;
    let mut part = Part::load(object)?;
    if given.ofs < part.min_ofs || given.exclusive && given.ofs == part.min_ofs {
        return done();
    }
    if given.ofs >= part.next_ofs {
        if part.is_full() {
            object.remove()?;
            return done();
        }
        part.min_ofs = part.next_ofs;
        part.min_index = part.max_index;
    } else {
        let head = part.head(object, &mut Window::default(), given.ofs)?;
        let behind = if given.exclusive { 0 } else { OVERHEAD + head.len };
        part.min_ofs = given.ofs + behind;
        let index = head.index.checked_add(u64::from(!given.exclusive));
        part.min_index = index.ok_or(Errno::EIO)?;
    }
    part.save(object)?;
    done()
}

struct Shown {
    part: Part,
}
envelope_denc!(Shown, 1, 1, { part });

/// The header.
pub fn info(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    input.envelope(|_| Ok(()))?;
    let part = Part::load(object)?;
    out(&Shown { part })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryObject, State};
    use crate::registry::lookup;

    /// Whoever may write an object may have written any numbers.
    #[test]
    fn numbers_at_their_end_are_refused() {
        let parameters = Parameters {
            part_max: 1 << 22,
            entry_max: 1 << 15,
            full_at: u64::MAX,
        };
        let good = Part {
            tag: Bytes::new(),
            parameters,
            magic: 7,
            min_ofs: HEADER,
            last_ofs: 0,
            next_ofs: HEADER,
            min_index: 0,
            max_index: 0,
            max_time: Utime::ZERO,
        };
        let push = Push {
            _tag: Bytes::new(),
            entries: vec![Bytes::from_static(b"x")],
            total: 1,
        };
        let put = |part: &Part| {
            let mut object = MemoryObject::new(false);
            let mut data = part.to_bytes().to_vec();
            data.resize(HEADER as usize, 0);
            object.pending = Some(State {
                data,
                ..State::default()
            });
            object.commit();
            let method = lookup(b"fifo", b"push_part").unwrap();
            method.call(&mut object, push.to_bytes()).rval
        };
        assert_eq!(put(&good), 1);
        let full = Part {
            max_index: u64::MAX,
            ..good.clone()
        };
        assert_eq!(put(&full), Errno::EIO.code());
        let far = Part {
            next_ofs: u64::MAX - 1,
            ..good
        };
        assert_eq!(put(&far), Errno::EIO.code());
    }
}
