//! Objects of a bucket: what a client puts, gets, copies, deletes and lists. What becomes of buckets is in `buckets`.
//!
//! Invariants: a put writes data under a fresh tag, then commits one entry, so that readers see the old object or the new one,
//! whole; conditions are judged in the same operation as the commit. What an entry stops referring to is named as garbage in that
//! operation, too.

use crate::data::{Claim, DataStore, Held, Stored};
use crate::index::{Index, Position, Verdict};
use crate::rados::{Change, Pool};
use crate::record::{Attributes, Checksum, Entry, entry_row, escape, unescape};
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::BTreeSet;

/// Keys and prefixes of one answer to a listing.
pub const LIST_MAX: usize = 1000;
/// A commit whose key moved so often is given up.
const MOVES_MAX: usize = 16;

pub struct Objects<P> {
    pub index: Index<P>,
    pub data: DataStore<P>,
    pub clock: Clock,
}

impl<P: Clone> Clone for Objects<P> {
    fn clone(&self) -> Self {
        Self {
            index: self.index.clone(),
            data: self.data.clone(),
            clock: self.clock.clone(),
        }
    }
}

/// What a client demands of the object that is there.
#[derive(Debug, Clone, Default)]
pub struct Condition {
    pub matches: Option<Etags>,
    pub none_match: Option<Etags>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Etags {
    Any,
    One(String),
}

impl Etags {
    fn has(&self, entry: &Entry) -> bool {
        match self {
            Self::Any => true,
            Self::One(etag) => *etag == entry.etag,
        }
    }
}

impl Condition {
    /// Of a change: what is there now, if anything.
    pub fn check(&self, now: Option<&Entry>) -> Result<()> {
        match (&self.matches, now) {
            (Some(_), None) => return Err(Error::NoSuchKey),
            (Some(etags), Some(entry)) if !etags.has(entry) => return Err(Error::Precondition),
            _ => {}
        }
        match (&self.none_match, now) {
            (Some(etags), Some(entry)) if etags.has(entry) => Err(Error::Precondition),
            _ => Ok(()),
        }
    }
}

/// What is asked of a listing; prefixes are cut after the delimiter.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    pub prefix: String,
    pub delimiter: Option<String>,
    /// Only what comes after it.
    pub after: Option<String>,
    pub max: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Object(String, Box<Entry>),
    Prefix(String),
}

impl Item {
    pub fn name(&self) -> &str {
        match self {
            Self::Object(key, _) => key,
            Self::Prefix(prefix) => prefix,
        }
    }
}

#[derive(Debug, Default)]
pub struct Listed {
    pub items: Vec<Item>,
    /// There are more: go on after the last item.
    pub more: bool,
}

/// What was taken in, as an entry to be.
pub struct New {
    pub stored: Stored,
    pub etag: String,
    pub attributes: Attributes,
    pub checksum: Option<Checksum>,
}

impl<P: Pool> Objects<P> {
    pub async fn entry(&self, bucket: &str, key: &str) -> Result<Entry> {
        let entry = self.index.get_one(bucket, key, entry_row(key)).await?;
        entry.ok_or(Error::NoSuchKey)
    }

    /// Makes what was taken in the object of this key.
    pub async fn put(&self, bucket: &str, key: &str, new: New, condition: &Condition) -> Result<Entry> {
        let entry = Entry {
            size: new.stored.size,
            etag: new.etag,
            modified: self.clock.now_ms(),
            data: new.stored.data,
            attributes: new.attributes,
            checksum: new.checksum,
            parts: 0,
            upload: String::new(),
        };
        let claim = new.stored.claim;
        match self.commit(bucket, key, &entry, claim.clone(), condition).await {
            Ok(()) => Ok(entry),
            Err(e) => {
                // What the cluster did not answer may have come to pass: its row knows.
                self.data.abandon(claim).await;
                Err(e)
            }
        }
    }

    async fn commit(
        &self,
        bucket: &str,
        key: &str,
        entry: &Entry,
        mut claim: Option<Claim>,
        condition: &Condition,
    ) -> Result<()> {
        let row = entry_row(key);
        for _ in 0..MOVES_MAX {
            let mut rows = BTreeSet::from([row.clone()]);
            rows.extend(claim.as_ref().map(Claim::row));
            let held = self.index.update(bucket, key, rows, |view| {
                let old: Option<Entry> = view.get(&row)?;
                condition.check(old.as_ref())?;
                let mut change = Change::default().setting(&row, entry.to_bytes());
                if let Some(claim) = &claim {
                    if let Held::Elsewhere = DataStore::<P>::held(claim, view)? {
                        return Ok(Verdict::Leave(Held::Elsewhere));
                    }
                    change.unset.insert(claim.row());
                }
                change
                    .set
                    .extend(old.and_then(|o| self.data.garbage(o.data, o.size)));
                Ok(Verdict::Change(change, Held::Yes))
            });
            match (held.await?, &mut claim) {
                (Held::Elsewhere, Some(claim)) => self.data.follow(bucket, key, claim).await?,
                _ => return Ok(()),
            }
        }
        Err(Error::Busy("the bucket's index is being split"))
    }

    /// Changes what is said of an object, not its data.
    pub async fn amend(&self, bucket: &str, key: &str, change: impl Fn(&mut Entry)) -> Result<Entry> {
        let row = entry_row(key);
        let amended = self
            .index
            .update(bucket, key, BTreeSet::from([row.clone()]), |view| {
                let mut entry: Entry = view.get(&row)?.ok_or(Error::NoSuchKey)?;
                change(&mut entry);
                let set = Change::default().setting(&row, entry.to_bytes());
                Ok(Verdict::Change(set, entry))
            });
        amended.await
    }

    /// False: there was none.
    pub async fn delete(&self, bucket: &str, key: &str, condition: &Condition) -> Result<bool> {
        let row = entry_row(key);
        let deleted = self
            .index
            .update(bucket, key, BTreeSet::from([row.clone()]), |view| {
                let old: Option<Entry> = view.get(&row)?;
                condition.check(old.as_ref())?;
                let Some(old) = old else {
                    return Ok(Verdict::Leave(false));
                };
                let mut change = Change::default().unsetting(&row);
                change.set.extend(self.data.garbage(old.data, old.size));
                Ok(Verdict::Change(change, true))
            });
        deleted.await
    }

    /// Deletes this very object. False: it is another, or none, by now.
    pub async fn delete_seen(&self, bucket: &str, key: &str, seen: &Entry) -> Result<bool> {
        let row = entry_row(key);
        let deleted = self
            .index
            .update(bucket, key, BTreeSet::from([row.clone()]), |view| {
                let Some(old) = view.get(&row)?.filter(|old: &Entry| old == seen) else {
                    return Ok(Verdict::Leave(false));
                };
                let mut change = Change::default().unsetting(&row);
                change.set.extend(self.data.garbage(old.data, old.size));
                Ok(Verdict::Change(change, true))
            });
        deleted.await
    }

    /// Keys and common prefixes in the order of their bytes.
    pub async fn list(&self, bucket: &str, asked: &Listing) -> Result<Listed> {
        let max = asked.max.min(LIST_MAX);
        let mut listed = Listed::default();
        if max == 0 {
            return Ok(listed);
        }
        let prefix = escape(&asked.prefix);
        let mut at = Some(self.begin(asked));
        // Keys below it have a prefix that was printed.
        let mut skip: Option<Bytes> = None;
        while let Some(from) = at.take() {
            let want = (max + 1 - listed.items.len()) as u64;
            let page = self.index.rows(bucket, b'e', &prefix, &from, want).await?;
            at = page.next;
            for (rest, value) in page.rows {
                if skip.as_ref().is_some_and(|s| rest < s) {
                    continue;
                }
                if listed.items.len() == max {
                    listed.more = true;
                    return Ok(listed);
                }
                let key = unescape(&rest).ok_or_else(|| Error::Damaged("a key that is no text".into()))?;
                listed.items.push(match asked.common(&key) {
                    Some(common) => {
                        skip = asked.skip(&common);
                        Item::Prefix(common)
                    }
                    None => Item::Object(key, Box::new(Entry::from_bytes(&value)?)),
                });
            }
            if let (Some(next), Some(skip)) = (&mut at, &skip)
                && next.at < *skip
            {
                *next = Position::from(skip.clone());
            }
        }
        Ok(listed)
    }

    fn begin(&self, asked: &Listing) -> Position {
        match &asked.after {
            None => Position::start(),
            Some(after) => match asked.common(after) {
                // It was printed as a prefix: all that begins with it was.
                Some(common) if common == *after => asked
                    .skip(&common)
                    .map_or_else(|| Position::after(escape(after)), Position::from),
                _ => Position::after(escape(after)),
            },
        }
    }
}

impl Listing {
    /// The common prefix that stands for this key, if one does.
    fn common(&self, key: &str) -> Option<String> {
        let delimiter = self.delimiter.as_deref().filter(|d| !d.is_empty())?;
        let rest = key.strip_prefix(self.prefix.as_str())?;
        let end = rest.find(delimiter)? + delimiter.len();
        Some(key[..self.prefix.len() + end].to_string())
    }

    /// The first escaped key that does not begin with `prefix` and comes after those that do.
    fn skip(&self, prefix: &str) -> Option<Bytes> {
        let mut bytes = escape(prefix).to_vec();
        while let Some(last) = bytes.pop() {
            if last < u8::MAX {
                bytes.push(last + 1);
                return Some(bytes.into());
            }
        }
        None
    }
}
