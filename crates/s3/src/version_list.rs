//! Listing versions: by key, then newest first.
//!
//! Rows of current and of other versions are read at the same moment, so that one which becomes the other is there once; and
//! where a page goes on within a key it looks at the current version, too, which may be an older one than those that were told.

use crate::history::Which;
use crate::index::Located;
use crate::objects::{LIST_MAX, Listing, Objects};
use crate::rados::{Look, PAGE, Pool, Span};
use crate::record::{Entry, Older, escape, older_of, unescape};
use crate::version::Order;
use crate::{Error, Result};
use bytes::Bytes;
use denc::Decode;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionItem {
    pub key: String,
    pub entry: Entry,
    pub marker: bool,
    pub latest: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Version(Box<VersionItem>),
    Prefix(String),
}

#[derive(Debug, Default)]
pub struct ListedVersions {
    pub items: Vec<Item>,
    /// There are more: go on after this key, or this version of it, by its id.
    pub next: Option<(String, Option<String>)>,
}

/// Where a listing is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum At {
    /// An escaped key, with all that it has.
    From(Bytes),
    /// The versions of a key after this one.
    Within(Bytes, Order),
    After(Bytes),
}

impl At {
    fn key(&self) -> &Bytes {
        match self {
            Self::From(key) | Self::Within(key, _) | Self::After(key) => key,
        }
    }

    /// What is looked at from here on.
    fn look(&self, prefix: &Bytes, max: u64) -> Look {
        let row = |class: u8, rest: &[u8]| -> Bytes { [&[class], rest].concat().into() };
        let key = self.key();
        let others = match self {
            Self::From(_) => row(b'v', key),
            Self::Within(_, order) => row(b'v', &[key, &[0, 1][..], order.to_string().as_bytes()].concat()),
            Self::After(_) => row(b'v', &[key, &[0, 2][..]].concat()),
        };
        let mut look = Look::rows(&row(b'e', key), &row(b'e', prefix), max);
        if !matches!(self, Self::After(_)) && key.starts_with(prefix) {
            look.keys.insert(row(b'e', key));
        }
        look.beside = Some(Span::new(&others, &row(b'v', prefix), max));
        look
    }
}

/// An escaped key, the place of a version, and what it is.
type Row = (Bytes, Order, Older);

/// The versions of one look in order, and where to go on; None: there are no more.
fn merged(seen: &Located, at: &At, prefix: &Bytes) -> Result<(Vec<Row>, Option<At>)> {
    let mut rows: Vec<Row> = Vec::new();
    let own = seen.values.iter().filter(|(row, _)| row.first() == Some(&b'e'));
    for (row, value) in own.chain(seen.rows.iter().map(|(k, v)| (k, v))) {
        let entry = Entry::from_bytes(value)?;
        let order = entry.version().order;
        let older = Older {
            since: 0,
            marker: false,
            entry,
        };
        rows.push((row.slice(1..), order, older));
    }
    for (row, value) in &seen.beside.0 {
        let place = older_of(&row.slice(1..));
        let (key, order) = place.ok_or_else(|| Error::Damaged("a version without its place".into()))?;
        rows.push((key, order, Older::from_bytes(value)?));
    }
    rows.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    if let At::Within(key, order) = at {
        rows.retain(|(k, o, _)| k != key || o > order);
    }
    // What lies beyond the end of either page may have something between.
    let current = seen.rows.last().filter(|_| seen.more);
    let current = current.map(|(row, _)| row.slice(1..));
    let other = seen.beside.0.last().filter(|_| seen.beside.1);
    let other = other.and_then(|(row, _)| older_of(&row.slice(1..)));
    if (seen.more && current.is_none()) || (seen.beside.1 && other.is_none()) {
        return Err(Error::Damaged("an omap that does not go on".into()));
    }
    let next = match (current, other) {
        (None, None) => {
            let end = seen.state.end.clone();
            // Beyond the prefix there is nothing to look for.
            let end = end.filter(|end| end <= prefix || end.starts_with(prefix));
            return Ok((rows, end.map(At::From)));
        }
        (Some(key), Some((other, _))) if key < other => At::After(key),
        (Some(key), None) => At::After(key),
        (_, Some((key, order))) => At::Within(key, order),
    };
    rows.retain(|(key, order, _)| match &next {
        At::After(last) => key <= last,
        At::Within(last, until) => (key, order) <= (last, until),
        At::From(_) => false,
    });
    Ok((rows, Some(next)))
}

impl<P: Pool> Objects<P> {
    /// Versions and common prefixes. `version`: a version of the key that `asked` begins after, to begin within it.
    pub async fn list_versions(
        &self,
        bucket: &str,
        asked: &Listing,
        version: Option<Which>,
    ) -> Result<ListedVersions> {
        let max = asked.max.min(LIST_MAX);
        if max == 0 {
            return Ok(ListedVersions::default());
        }
        let prefix = escape(&asked.prefix);
        let mut at = Some(self.begin_versions(bucket, asked, version).await?);
        let mut told = Told::default();
        while let Some(mut from) = at.take() {
            if from.key() < &prefix {
                from = At::From(prefix.clone());
            }
            let want = ((max + 1 - told.listed.items.len()) as u64).min(PAGE);
            let seen = self
                .index
                .look(bucket, from.key(), &from.look(&prefix, want))
                .await?;
            let (rows, next) = merged(&seen, &from, &prefix)?;
            if told.take(asked, max, rows)? {
                break;
            }
            at = next;
            if let (Some(next), Some(skip)) = (&mut at, &told.skip)
                && next.key() < skip
            {
                *next = At::From(skip.clone());
            }
        }
        Ok(told.listed)
    }

    async fn begin_versions(&self, bucket: &str, asked: &Listing, version: Option<Which>) -> Result<At> {
        let Some(after) = &asked.after else {
            return Ok(At::From(Bytes::new()));
        };
        let key = escape(after);
        match (asked.common(after), version) {
            // It was told as a prefix: all that begins with it was.
            (Some(common), _) if common == *after => Ok(match asked.skip(common) {
                Some(skip) => At::From(skip),
                None => At::After(key),
            }),
            (_, Some(Which::Of(order))) => Ok(At::Within(key, order)),
            (_, Some(Which::Null)) => {
                use crate::history::Found;
                Ok(match self.version(bucket, after, Which::Null).await? {
                    Found::Object(entry) => At::Within(key, entry.version().order),
                    Found::Marker(version, _) => At::Within(key, version.order),
                    Found::Nothing => At::After(key),
                })
            }
            _ => Ok(At::After(key)),
        }
    }
}

/// A page as far as it is told.
#[derive(Default)]
struct Told {
    listed: ListedVersions,
    /// Keys below it have a prefix that was told.
    skip: Option<Bytes>,
    last: Option<(Bytes, Order)>,
}

impl Told {
    /// True: the page is full, and there is more.
    fn take(&mut self, asked: &Listing, max: usize, rows: Vec<Row>) -> Result<bool> {
        for (rest, order, older) in rows {
            if self.skip.as_ref().is_some_and(|s| rest < s) {
                continue;
            }
            if self.listed.items.len() == max {
                self.listed.next = Some(self.go_on(&rest));
                return Ok(true);
            }
            let key = unescape(&rest).ok_or_else(|| Error::Damaged("a key that is no text".into()))?;
            self.listed.items.push(match asked.common(&key) {
                Some(common) => {
                    self.skip = asked.skip(common);
                    Item::Prefix(common.to_string())
                }
                None => Item::Version(Box::new(VersionItem {
                    key,
                    marker: older.marker,
                    latest: older.since == 0,
                    entry: older.entry,
                })),
            });
            self.last = Some((rest, order));
        }
        Ok(false)
    }

    /// What the next page goes on after: the last item, where the key `next` follows. The id of a version `null` is its place where
    /// there may be others of its key: it may be gone by then, or be another.
    fn go_on(&self, next: &Bytes) -> (String, Option<String>) {
        match (self.listed.items.last(), &self.last) {
            (Some(Item::Version(item)), Some((rest, order))) => {
                let id = match rest == next || !item.latest {
                    true => order.to_string(),
                    false => item.entry.version().to_string(),
                };
                (item.key.clone(), Some(id))
            }
            (Some(Item::Prefix(prefix)), _) => (prefix.clone(), None),
            _ => (String::new(), None),
        }
    }
}
