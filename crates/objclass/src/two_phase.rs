//! Class `2pc_queue`: a queue into which one writes in two phases (docs/protocol/classes.md, "2pc_queue"): space is
//! reserved first, and the entries are committed later, or the reservation is aborted or expires.
//!
//! The reservations are the queue's urgent data; those that do not fit there are in an attribute. A reservation counts with
//! its bytes and with what each of its entries takes in the ring beside them.

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done, out};
use crate::queue::{self, Head, Init, PREFIX};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer, envelope_denc};
use std::collections::BTreeMap;
use types::{Errno, Utime};

pub const METHODS: &[Method] = &[
    Method::rw("2pc_queue_init", init),
    Method::r("2pc_queue_get_capacity", queue::capacity),
    Method::rw("2pc_queue_reserve", reserve),
    Method::rw("2pc_queue_commit", commit),
    Method::rw("2pc_queue_abort", abort),
    Method::r("2pc_queue_list_reservations", list_reservations),
    Method::rw("2pc_queue_expire_reservations", expire),
    Method::r("2pc_queue_list_entries", queue::list_entries),
    Method::rw("2pc_queue_remove_entries", queue::remove_entries),
];

const XATTR: &[u8] = b"cls_queue_urgent_data";
/// Space for reservations in the head.
const URGENT_BYTES: u64 = 23 << 10;
/// Reservations there: 34 bytes each, and 32 in all beside them.
const IN_HEAD_MAX: usize = 690;
/// In the attribute, of 128 KiB.
const IN_XATTR_MAX: usize = 3800;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Reservation {
    bytes: u64,
    since: Utime,
    /// What 16.2 does not write: its reservations count without what entries take beside their bytes.
    entries: u32,
}

impl Encode for Reservation {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.u64(self.bytes);
            w.put(&self.since);
            w.u32(self.entries);
        });
    }
}

impl Decode for Reservation {
    const MIN_SIZE: usize = 22;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(2, |version, r| {
            Ok(Self {
                bytes: r.u64()?,
                since: r.get()?,
                entries: if version >= 2 { r.u32()? } else { 0 },
            })
        })
    }
}

impl Reservation {
    fn counts(&self) -> u64 {
        self.bytes.saturating_add(u64::from(self.entries) * PREFIX)
    }
}

type Reservations = BTreeMap<u32, Reservation>;

#[derive(Default)]
struct Urgent {
    reserved: u64,
    last: u32,
    here: Reservations,
    has_more: bool,
}
envelope_denc!(Urgent, 1, 1, { reserved, last, here, has_more });

struct Listed {
    reservations: Reservations,
}
envelope_denc!(Listed, 1, 1, { reservations });

struct Reserved {
    id: u32,
}
envelope_denc!(Reserved, 1, 1, { id });

/// The queue, and all its reservations.
struct Queue {
    head: Head,
    last: u32,
    all: Reservations,
    had_more: bool,
}

impl Queue {
    fn load(object: &mut Object<'_>) -> Result<Self> {
        let head = Head::load(object)?;
        let urgent = Urgent::from_bytes(&head.urgent).map_err(|_| Errno::EINVAL)?;
        let mut all = urgent.here;
        if urgent.has_more {
            all.extend(object.xattr::<Reservations>(XATTR)?.unwrap_or_default());
        }
        Ok(Self {
            head,
            last: urgent.last,
            all,
            had_more: urgent.has_more,
        })
    }

    fn reserved(&self) -> u64 {
        let each = self.all.values().map(Reservation::counts);
        each.fold(0, u64::saturating_add)
    }

    /// ENOSPC: so many reservations have no room.
    fn save(mut self, object: &mut Object<'_>) -> Result<()> {
        let reserved = self.reserved();
        let split = self.all.keys().nth(IN_HEAD_MAX).copied();
        let more = split.map_or_else(Reservations::new, |id| self.all.split_off(&id));
        if more.len() > IN_XATTR_MAX {
            return Err(Errno::ENOSPC);
        }
        if !more.is_empty() {
            object.set_xattr(XATTR, &more)?;
        } else if self.had_more {
            object.remove_xattr(XATTR)?;
        }
        let urgent = Urgent {
            reserved,
            last: self.last,
            here: self.all,
            has_more: !more.is_empty(),
        };
        self.head.urgent = urgent.to_bytes();
        self.head.save(object)
    }
}

/// What the input says of urgent data is not looked at: that is this class's own.
fn init(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let given: Init = input.get()?;
    let of = Init {
        size: given.size,
        urgent_max: URGENT_BYTES,
        urgent: Urgent::default().to_bytes(),
    };
    queue::create(object, of)?;
    done()
}

fn reserve(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (bytes, entries) = input.envelope(<(u64, u32)>::decode)?;
    if bytes == 0 || entries == 0 {
        return Err(Errno::EINVAL);
    }
    let mut queue = Queue::load(object)?;
    let since = object.now();
    let reservation = Reservation {
        bytes,
        since,
        entries,
    };
    if reservation.counts() > queue.head.free().saturating_sub(queue.reserved()) {
        return Err(Errno::ENOSPC);
    }
    // Ids come round after four thousand millions: 0 is none, and one that is still there is passed over.
    let next = |id: u32| id.checked_add(1).unwrap_or(1);
    let mut id = next(queue.last);
    while queue.all.contains_key(&id) {
        id = next(id);
    }
    queue.last = id;
    queue.all.insert(id, reservation);
    queue.save(object)?;
    out(&Reserved { id })
}

/// ENOENT: no such reservation. EINVAL: more bytes than were reserved.
fn commit(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, entries) = input.envelope(<(u32, Vec<Bytes>)>::decode)?;
    let mut queue = Queue::load(object)?;
    let reservation = queue.all.remove(&id).ok_or(Errno::ENOENT)?;
    let bytes: u64 = entries.iter().map(|e| e.len() as u64).sum();
    if bytes > reservation.bytes {
        return Err(Errno::EINVAL);
    }
    queue.head.push(object, &entries)?;
    queue.save(object)?;
    done()
}

/// One that is not there is no error.
fn abort(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: u32 = input.envelope(u32::decode)?;
    let mut queue = Queue::load(object)?;
    if queue.all.remove(&id).is_some() {
        queue.save(object)?;
    }
    done()
}

fn list_reservations(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let reservations = Queue::load(object)?.all;
    out(&Listed { reservations })
}

/// Ends those that began before a time.
fn expire(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let before: Utime = input.envelope(Utime::decode)?;
    let mut queue = Queue::load(object)?;
    let had = queue.all.len();
    queue.all.retain(|_, r| r.since >= before);
    if queue.all.len() < had {
        queue.save(object)?;
    }
    done()
}
