//! The journal: what changed, in order, before it is written where it belongs.
//!
//! Vocabulary: a *transaction* is the rows that one change leaves, whole; a *batch* is the transactions of one append, which are
//! durable together; a *segment* is one object of batches.
//!
//! Format: a batch is `u32 length, u32 crc32c of the body, body`; the body is `u64 number of its first transaction, u32 count`, and the
//! transactions, each `u32 count` of `key, bool, value` (no value: the row is gone). Numbers go on without a gap, but for [`LIFE`] at each start. Saying a batch twice changes
//! nothing, since rows are whole: replay may begin anywhere before the oldest row that is not written back, and begin again.

use crate::row::{Key, Row};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};

/// A segment that has so many bytes is followed by another.
pub const SEGMENT_BYTES: u64 = 1 << 20;
/// So many segments are kept at most; then changes wait until rows are written back.
pub const SEGMENTS_MAX: usize = 64;
/// How far numbers jump at a start: versions of inodes are made of them, and a client may have been told one that was lost. A server makes
/// fewer transactions before it makes a durable one.
pub const LIFE: u64 = 1 << 32;
/// From so many on rows are written back.
pub const SEGMENTS_KEPT: usize = 4;

pub type Change = (Key, Option<Row>);

/// The transactions of one append, being made.
#[derive(Debug, Default)]
pub struct Batch {
    first: u64,
    count: u32,
    body: Option<Writer>,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn bytes(&self) -> usize {
        self.body.as_ref().map_or(0, |w| w.as_slice().len())
    }

    pub fn add(&mut self, number: u64, changes: &[Change]) {
        if self.count == 0 {
            self.first = number;
        }
        self.count += 1;
        let w = self.body.get_or_insert_default();
        w.u32(changes.len() as u32);
        for (key, row) in changes {
            w.put(key);
            w.put(&row.as_ref().map(Row::to_bytes));
        }
    }

    /// The bytes to append, and the numbers of its first and its last transaction.
    pub fn take(&mut self) -> (Bytes, u64, u64) {
        let last = self.first + u64::from(self.count) - 1;
        let body = self.body.take().unwrap_or_default();
        let mut w = Writer::with_capacity(body.len() + 20);
        w.u32(body.len() as u32 + 12);
        w.u32(0);
        w.u64(self.first);
        w.u32(self.count);
        w.raw(body.as_slice());
        let crc = types::checksum::crc32c(0, &w.as_slice()[8..]);
        w.patch_u32(4, crc);
        self.count = 0;
        (w.finish(), self.first, last)
    }
}

/// Transactions with their numbers, in order.
pub type Replayed = Vec<(u64, Vec<Change>)>;

/// What a segment holds.
pub fn parse(segment: &Bytes) -> Result<Replayed> {
    let mut r = Reader::new(segment.clone());
    let mut all = Vec::new();
    while !r.is_empty() {
        let len = r.u32()? as usize;
        let crc = r.u32()?;
        let body = r.bytes(len)?;
        if types::checksum::crc32c(0, &body) != crc {
            return Err(r.invalid("a batch of the journal with a wrong checksum"));
        }
        let mut b = Reader::new(body);
        let first = b.u64()?;
        for i in 0..b.u32()? {
            let n = b.count(2)?;
            let changes: Result<Vec<Change>> = (0..n).map(|_| change(&mut b)).collect();
            all.push((first + u64::from(i), changes?));
        }
    }
    Ok(all)
}

fn change(r: &mut Reader) -> Result<Change> {
    let key: Key = r.get()?;
    let value: Option<Bytes> = r.get()?;
    let row = value.map(|v| Row::from_bytes(&key, &v)).transpose()?;
    Ok((key, row))
}

/// Where the journal begins, and which number a transaction had at least when that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    pub first_segment: u64,
    pub next_tx: u64,
}

/// What a program has to know to read the pool. It is raised where an older one would not find, or lose, what it does not know.
///
/// 2: snapshots, versions and backtraces that are due have rows of their own, and inodes say which versions there are.
pub const FORM: u8 = 2;
denc::envelope_denc!(Head, FORM, FORM, { first_segment, next_tx });

pub const HEAD: &str = "skep.journal";

pub fn segment(number: u64) -> String {
    format!("skep.journal.{number:x}")
}

impl Head {
    pub fn to_object(self) -> Bytes {
        self.to_bytes()
    }

    /// And whether older programs read the pool still; an error in a sentence.
    pub fn of_object(bytes: &Bytes) -> std::result::Result<(Self, bool), String> {
        match Self::from_bytes(bytes) {
            Ok(head) => Ok((head, bytes.first().is_some_and(|form| *form < FORM))),
            Err(denc::Error::TooNew { compat, .. }) => Err(format!(
                "the file system has form {compat}, and this program reads forms up to {FORM}: a newer Skep has written it; start that one"
            )),
            Err(e) => Err(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Dentry;

    fn batch(first: u64, n: u64) -> Bytes {
        let mut b = Batch::default();
        for i in 0..n {
            let key = Key::dentry(1, &Bytes::from(format!("f{i}")));
            let row = (i % 2 == 0).then_some(Row::Dentry(Dentry {
                ino: i,
                ..Dentry::default()
            }));
            b.add(first + i, &[(key, row)]);
        }
        let (bytes, begin, last) = b.take();
        assert_eq!((begin, last), (first, first + n - 1));
        assert!(b.is_empty());
        bytes
    }

    #[test]
    fn batches_come_back_in_order() {
        let both: Bytes = [batch(1, 3), batch(4, 2)].concat().into();
        let numbers: Vec<u64> = parse(&both).unwrap().iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
    }

    /// Snapshots were no more, for a program from before them.
    #[test]
    fn who_does_not_know_the_form_of_the_pool_refuses_it() {
        let head = Head {
            first_segment: 7,
            next_tx: 9,
        };
        let of_form = |form: u8| {
            let mut w = Writer::new();
            w.envelope(form, form, |w| [7, 9].into_iter().for_each(|n| w.u64(n)));
            w.finish()
        };
        assert_eq!(head.to_object(), of_form(FORM));
        assert_eq!(Head::of_object(&of_form(1)), Ok((head, true)));
        assert_eq!(Head::of_object(&of_form(FORM)), Ok((head, false)));
        let newer = Head::of_object(&of_form(FORM + 1)).unwrap_err();
        assert!(newer.contains("a newer Skep"), "{newer}");
        let of_old = Reader::new(head.to_object()).envelope(1, |_, r| r.u64());
        assert!(matches!(of_old, Err(denc::Error::TooNew { .. })));
    }

    #[test]
    fn what_is_damaged_is_not_taken_for_a_change() {
        let good = batch(1, 3);
        for at in 4..good.len() {
            let mut bad = good.to_vec();
            bad[at] ^= 1;
            assert!(parse(&bad.into()).is_err(), "{at}");
        }
        for len in 1..good.len() {
            assert!(parse(&good.slice(..len)).is_err());
        }
    }
}
