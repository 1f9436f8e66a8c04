//! What users did with their buckets, in steps of time. Each record has two rows, one for reading by time, one by user.

use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, key, list_max, out, stored};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer, envelope_denc};
use std::collections::BTreeMap;
use types::Errno;

/// Records that one call gives, and rows that it looks at.
const LISTED_MAX: usize = 1000;
const SCANNED_MAX: usize = 8000;
/// Of a second in a key.
const STEP_DIGITS: usize = 11;

#[derive(Debug, Clone, Copy, Default)]
struct Data {
    sent: u64,
    received: u64,
    ops: u64,
    successful: u64,
}
envelope_denc!(Data, 1, 1, { sent, received, ops, successful });

impl Data {
    fn add(&mut self, other: Data) {
        self.sent = self.sent.wrapping_add(other.sent);
        self.received = self.received.wrapping_add(other.received);
        self.ops = self.ops.wrapping_add(other.ops);
        self.successful = self.successful.wrapping_add(other.successful);
    }
}

#[derive(Debug, Clone)]
struct Record {
    owner: Bytes,
    bucket: Bytes,
    /// Seconds, the beginning of the step.
    epoch: u64,
    total: Data,
    by_category: BTreeMap<Bytes, Data>,
    payer: Bytes,
}

impl Encode for Record {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            w.put(&self.owner);
            w.put(&self.bucket);
            w.u64(self.epoch);
            w.u64(self.total.sent);
            w.u64(self.total.received);
            w.u64(self.total.ops);
            w.u64(self.total.successful);
            w.put(&self.by_category);
            w.put(&self.payer);
        });
    }
}

impl Decode for Record {
    const MIN_SIZE: usize = 54;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(3, |version, r| {
            let (owner, bucket, epoch) = (r.get()?, r.get()?, r.u64()?);
            let total = Data {
                sent: r.u64()?,
                received: r.u64()?,
                ops: r.u64()?,
                successful: r.u64()?,
            };
            let by_category = match version {
                1 => BTreeMap::from([(Bytes::new(), total)]),
                _ => r.get()?,
            };
            Ok(Self {
                owner,
                bucket,
                epoch,
                total,
                by_category,
                payer: if version >= 3 { r.get()? } else { Bytes::new() },
            })
        })
    }
}

impl Record {
    /// Who pays: the owner, if nobody else does.
    fn user(&self) -> &Bytes {
        match self.payer.is_empty() {
            true => &self.owner,
            false => &self.payer,
        }
    }

    fn rows(&self) -> [Bytes; 2] {
        let (user, bucket) = (self.user(), &self.bucket);
        let epoch = format!("{:011}", self.epoch);
        let by_time = [epoch.as_bytes(), b"_", user, b"_", bucket].concat();
        let by_user = [user, &b"_"[..], epoch.as_bytes(), b"_", bucket].concat();
        [by_time.into(), by_user.into()]
    }

    fn add(&mut self, other: &Record) {
        self.total.add(other.total);
        for (category, data) in &other.by_category {
            self.by_category.entry(category.clone()).or_default().add(*data);
        }
    }
}

pub fn add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let records: Vec<Record> = input.versioned(2, |_, r| r.envelope(1, |_, r| r.get()))?;
    let mut rows: BTreeMap<Bytes, (Bytes, Record)> = BTreeMap::new();
    for record in records {
        let [by_time, by_user] = record.rows();
        let known = match rows.remove(&by_time) {
            Some((_, known)) => Some(known),
            None => object.get(&by_time)?,
        };
        let record = match known {
            Some(mut known) => {
                known.add(&record);
                known
            }
            None => record,
        };
        rows.insert(by_time, (by_user, record));
    }
    let pair = |(by_time, (by_user, record)): (Bytes, (Bytes, Record))| {
        let value = record.to_bytes();
        [(by_time, value.clone()), (by_user, value)]
    };
    object.set_rows(rows.into_iter().flat_map(pair).collect())?;
    done()
}

/// Which records: of steps from `start` on and before `end`, of a user and a bucket unless those are empty.
struct Selection {
    start: u64,
    end: u64,
    user: Bytes,
    bucket: Bytes,
}

/// The second that a row's key shows in front, if it does.
fn step(rest: &[u8]) -> Option<u64> {
    let (digits, behind) = rest.split_at_checked(STEP_DIGITS)?;
    if behind.first() != Some(&b'_') || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Selection {
    /// Calls `row(scanned, record)` for the rows behind a key, with how many it has looked at, and without a record where the row is
    /// none of those that are asked for. Gives the key of the row at which `Stop` was said, if it was.
    fn scan(
        &self,
        object: &mut Object<'_>,
        after: &Bytes,
        mut row: impl FnMut(usize, Option<Record>) -> Result<Scan>,
    ) -> Result<Option<Bytes>> {
        let by_time = self.user.is_empty();
        let prefix: Bytes = match by_time {
            true => Bytes::new(),
            false => [&self.user[..], b"_"].concat().into(),
        };
        // Rows of a step begin with its number.
        let first = match after.is_empty() {
            true => [&prefix[..], format!("{:011}", self.start).as_bytes()]
                .concat()
                .into(),
            false => after.clone(),
        };
        let (mut left_at, mut scanned) = (None, 0);
        object.scan(&prefix, &first, |rest, value| {
            // Behind the steps are rows by user, and those of users whose names only begin so; some are between.
            let step = step(rest);
            let is_behind = match step {
                Some(step) => step >= self.end,
                None => rest.first().is_some_and(|b| *b > b'9'),
            };
            if is_behind {
                return Ok(Scan::Stop);
            }
            scanned += 1;
            let at = key(&prefix, rest);
            let record = match step {
                Some(step) if step >= self.start => self.asked(&at, stored(value)?),
                _ => None,
            };
            let next = row(scanned, record)?;
            left_at = (next == Scan::Stop).then_some(at);
            Ok(next)
        })?;
        Ok(left_at)
    }

    /// The record of a row, if it is asked for.
    fn asked(&self, at: &Bytes, record: Record) -> Option<Record> {
        let is_users = match self.user.is_empty() {
            // Not of a user whose name looks like a second.
            true => record.rows()[0] == *at,
            false => *record.user() == self.user,
        };
        let is_asked = is_users && (self.bucket.is_empty() || record.bucket == self.bucket);
        is_asked.then_some(record)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Whose {
    user: Bytes,
    bucket: Bytes,
}
envelope_denc!(Whose, 1, 1, { user, bucket });

struct Listed {
    records: BTreeMap<Whose, Record>,
    truncated: bool,
    next: Bytes,
}
envelope_denc!(Listed, 1, 1, { records, truncated, next });

/// Records of one user and bucket are added up.
pub fn read(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (selection, marker, max) = input.versioned(2, |version, r| {
        let (start, end, user) = (r.u64()?, r.u64()?, r.blob()?);
        let (marker, max) = (r.blob()?, r.u32()?);
        let bucket = if version >= 2 { r.blob()? } else { Bytes::new() };
        let selection = Selection {
            start,
            end,
            user,
            bucket,
        };
        Ok((selection, marker, max))
    })?;
    let max = match max {
        0 => LISTED_MAX,
        max => list_max(max.into()).min(LISTED_MAX),
    };
    let mut records = BTreeMap::new();
    let mut count = 0;
    let left_at = selection.scan(object, &marker, |scanned, record| {
        let go_on = |count| match count < max && scanned < SCANNED_MAX {
            true => Ok(Scan::Next),
            false => Ok(Scan::Stop),
        };
        let Some(record) = record else {
            return go_on(count);
        };
        let whose = Whose {
            user: record.user().clone(),
            bucket: record.bucket.clone(),
        };
        count += 1;
        match records.entry(whose) {
            std::collections::btree_map::Entry::Vacant(v) => {
                v.insert(record);
            }
            std::collections::btree_map::Entry::Occupied(mut o) => o.get_mut().add(&record),
        }
        go_on(count)
    })?;
    out(&Listed {
        records,
        truncated: left_at.is_some(),
        next: left_at.unwrap_or_default(),
    })
}

/// ENODATA: there is nothing (more) to remove; clients call until then.
pub fn trim(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    object.must_exist()?;
    let selection = input.versioned(3, |version, r| {
        Ok(Selection {
            start: r.u64()?,
            end: r.u64()?,
            user: r.blob()?,
            bucket: if version >= 3 { r.blob()? } else { Bytes::new() },
        })
    })?;
    let mut gone = Vec::new();
    selection.scan(object, &Bytes::new(), |scanned, record| {
        gone.extend(record.iter().flat_map(Record::rows));
        // The client cannot say where to go on: while nothing is found, others in front are gone past.
        let go_on = gone.is_empty() || gone.len() < 2 * LISTED_MAX && scanned < SCANNED_MAX;
        Ok(if go_on { Scan::Next } else { Scan::Stop })
    })?;
    if gone.is_empty() {
        return Err(Errno::ENODATA);
    }
    object.unset_keys(gone)?;
    done()
}

/// Removes all records.
pub fn clear(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    object.clear_omap()?;
    done()
}
