//! What users did with their buckets, in steps of time. Each record has two rows, one for reading by time, one by user.

use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, list_max, out, stored};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer, envelope_denc};
use std::collections::BTreeMap;
use types::Errno;

/// Records that one call gives, and rows that it looks at.
const LISTED_MAX: usize = 1000;
const SCANNED_MAX: usize = 8000;

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

impl Selection {
    /// Calls `row(key, record)` for the records behind a key; says whether rows were left for another call.
    fn scan(
        &self,
        object: &mut Object<'_>,
        after: &Bytes,
        mut row: impl FnMut(&Bytes, Record) -> Result<Scan>,
    ) -> Result<bool> {
        let prefix: Bytes = match self.user.is_empty() {
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
        let (mut left, mut scanned) = (false, 0);
        object.scan(&prefix, &first, |rest, value| {
            let step = rest.get(..11).and_then(|d| std::str::from_utf8(d).ok());
            let Some(step) = step.and_then(|d| d.parse::<u64>().ok()) else {
                // Rows by user, and those of users whose names only begin so.
                return Ok(if self.user.is_empty() {
                    Scan::Stop
                } else {
                    Scan::Next
                });
            };
            if step >= self.end {
                return Ok(Scan::Stop);
            }
            scanned += 1;
            if scanned > SCANNED_MAX {
                left = true;
                return Ok(Scan::Stop);
            }
            let record: Record = stored(value)?;
            let is_asked = (self.user.is_empty() || *record.user() == self.user)
                && (self.bucket.is_empty() || record.bucket == self.bucket);
            if step < self.start || !is_asked {
                return Ok(Scan::Next);
            }
            let next = row(&crate::object::key(&prefix, rest), record)?;
            left = next == Scan::Stop;
            Ok(next)
        })?;
        Ok(left)
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
    let (mut last, mut count) = (Bytes::new(), 0);
    let truncated = selection.scan(object, &marker, |at, record| {
        let whose = Whose {
            user: record.user().clone(),
            bucket: record.bucket.clone(),
        };
        count += 1;
        last = at.clone();
        match records.entry(whose) {
            std::collections::btree_map::Entry::Vacant(v) => {
                v.insert(record);
            }
            std::collections::btree_map::Entry::Occupied(mut o) => o.get_mut().add(&record),
        }
        Ok(if count < max { Scan::Next } else { Scan::Stop })
    })?;
    out(&Listed {
        records,
        truncated,
        next: if truncated { last } else { Bytes::new() },
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
    selection.scan(object, &Bytes::new(), |_, record| {
        gone.extend(record.rows());
        Ok(if gone.len() < 2 * LISTED_MAX {
            Scan::Next
        } else {
            Scan::Stop
        })
    })?;
    if gone.is_empty() {
        return Err(Errno::ENODATA);
    }
    object.unset_keys(gone)?;
    done()
}

/// Removes all records.
pub fn clear(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let mut gone = Vec::new();
    object.scan(b"", b"", |at, _| {
        gone.push(at.clone());
        Ok(Scan::Next)
    })?;
    object.unset_keys(gone)?;
    done()
}
