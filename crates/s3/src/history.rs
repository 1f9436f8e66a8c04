//! The versions of one key, as one operation sees and changes them.
//!
//! ```text
//! e K            the current version, if it is an object
//! h K            there are rows of other versions
//! v K 00 01 O    the others, newest first: objects that another has followed, and delete markers
//! ```
//!
//! Invariants: where there is no `e` the newest of the others is a delete marker, which is the current version. `h` is there exactly
//! when others are, and changes with each change of them; each operation expects `e`, `h` and the rows that it looked at as they
//! were. So what is decided here on the newest two holds however many there are, and a key that never had other versions has the
//! one row that it had before there was versioning.
//!
//! The version `null` is what was written while versioning was off or suspended. There is one at most, which what is written so replaces.

use crate::amount::Amount;
use crate::index::{Verdict, View};
use crate::rados::{Change, Look, Span};
use crate::record::{Attributes, Data, Entry, Older, entry_row, head_row, older_of, older_prefix, older_row};
use crate::version::{Head, Lock, Order, Version};
use crate::{Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// What was moved elsewhere stays for so much longer (milliseconds) than what was deleted: nobody has a reason to think that a download breaks off.
pub const MOVED_GRACE: u64 = 6 * 60 * 60 * 1000;

/// Of a bucket. It cannot be turned off again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Versioning {
    #[default]
    Off,
    Enabled,
    Suspended,
}

impl Encode for Versioning {
    fn encode(&self, w: &mut Writer) {
        w.u8(match self {
            Self::Off => 0,
            Self::Enabled => 1,
            Self::Suspended => 2,
        });
    }
}

impl Decode for Versioning {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        match r.u8()? {
            0 => Ok(Self::Off),
            1 => Ok(Self::Enabled),
            2 => Ok(Self::Suspended),
            _ => Err(r.invalid("state of versioning")),
        }
    }
}

/// Which version of a key is meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Which {
    #[default]
    Current,
    Null,
    Of(Order),
}

impl Which {
    /// None: no version has this id.
    pub fn parse(id: Option<&str>) -> Option<Self> {
        match id {
            None => Some(Self::Current),
            Some("null") => Some(Self::Null),
            Some(id) => Order::parse(id).map(Self::Of),
        }
    }

    pub fn is(self, version: Version) -> bool {
        match self {
            Self::Current => false,
            Self::Null => version.null,
            Self::Of(order) => !version.null && version.order == order,
        }
    }
}

/// What becomes of a version that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Object(Box<Entry>),
    Marker(Version, u64),
    Nothing,
}

/// Why nothing is decided.
pub enum Stop {
    /// This has to be seen, too.
    Look(Box<Look>),
    Fail(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(e: E) -> Self {
        Self::Fail(e.into())
    }
}

impl Stop {
    pub fn verdict<T>(self) -> Result<Verdict<T>> {
        match self {
            Self::Look(look) => Ok(Verdict::Look(*look)),
            Self::Fail(e) => Err(e),
        }
    }

    /// Of a read.
    pub fn look<T>(self) -> Result<ControlFlow<T, Look>> {
        match self {
            Self::Look(look) => Ok(ControlFlow::Continue(*look)),
            Self::Fail(e) => Err(e),
        }
    }
}

/// The newest of the others that an operation looks at.
const NEWEST: u64 = 2;

fn row_of(key: &str, order: Order) -> Stop {
    Stop::Look(Box::new(Look::keys([&older_row(key, order)])))
}

/// What a delete did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// What was made, or removed; None: there was nothing to remove, or there is no versioning.
    pub version: Option<Version>,
    /// It is a delete marker.
    pub marker: bool,
    /// There was something to remove.
    pub there: bool,
}

/// The part of a key's versions that was looked at, before and after.
#[derive(Debug)]
pub struct History {
    key: String,
    was: Rows,
    now: Rows,
    head: Option<Head>,
    /// There are others beyond those that were looked at.
    more: bool,
    at: u64,
    random: u64,
    /// Others that were looked for by themselves.
    asked: BTreeSet<Order>,
    /// Whose data nobody refers to any more.
    gone: Vec<(Entry, u64)>,
}

#[derive(Debug, Clone, Default)]
struct Rows {
    current: Option<Entry>,
    others: BTreeMap<Order, Older>,
}

impl Rows {
    fn amount(&self) -> Amount {
        let mut amount = Amount::default();
        let others = self.others.values().map(|o| &o.entry);
        for entry in self.current.iter().chain(others) {
            amount += Amount::object(entry.size);
        }
        amount
    }
}

impl History {
    /// What is looked at first; more where there are others.
    pub fn look(key: &str) -> Look {
        Look::keys([&entry_row(key), &head_row(key)])
    }

    /// So many of the others, or more.
    pub fn look_newest(key: &str, n: u64) -> Look {
        let prefix = older_prefix(key);
        Look {
            page: Some(Span::new(&prefix, &prefix, n.max(NEWEST))),
            ..Look::default()
        }
    }

    /// `at`: milliseconds since 1970.
    pub fn of(view: &View<'_>, key: &str, at: u64, random: u64) -> std::result::Result<Self, Stop> {
        let head: Option<Head> = view.get(&head_row(key))?;
        if head.is_some() && !view.has_page() {
            return Err(Stop::Look(Box::new(Self::look_newest(key, NEWEST))));
        }
        let mut rows = Rows {
            current: view.get(&entry_row(key))?,
            ..Rows::default()
        };
        let place = |row: &Bytes| older_of(&row.slice(1..)).map(|(_, order)| order);
        let versions = view.asked().filter(|row| row.first() == Some(&b'v'));
        let asked: BTreeSet<Order> = versions.filter_map(place).collect();
        for order in &asked {
            rows.others
                .extend(view.get(&older_row(key, *order))?.map(|older| (*order, older)));
        }
        for (row, value) in view.rows {
            let order = place(row).ok_or_else(no_place)?;
            rows.others.insert(order, Older::from_bytes(value)?);
        }
        Ok(Self {
            key: key.to_string(),
            now: rows.clone(),
            was: rows,
            head,
            more: view.more,
            at,
            random,
            asked,
            gone: Vec::new(),
        })
    }

    /// What a reader of the key gets.
    pub fn current(&self) -> Option<&Entry> {
        self.now.current.as_ref()
    }

    /// When what is read of the key was put, or removed by a delete marker, at last; 0: nothing is there.
    pub fn changed(&self) -> u64 {
        let newest = self
            .newest()
            .map(|(_, older)| older.since.max(older.entry.modified));
        let current = self.now.current.as_ref().map(|e| e.modified);
        current.max(newest).unwrap_or(0)
    }

    fn newest(&self) -> Option<(Order, &Older)> {
        self.now.others.iter().next().map(|(o, v)| (*o, v))
    }

    /// The delete marker that is the current version, if one is.
    pub fn marker(&self) -> Option<&Older> {
        let newest = self.newest().filter(|_| self.now.current.is_none());
        newest.map(|(_, v)| v)
    }

    /// A place before all others.
    fn next(&self) -> Order {
        let newest = self.now.current.as_ref().map(|e| e.version().order);
        let newest = newest.or(self.newest().map(|(o, _)| o));
        let after = newest.map_or(0, |o| o.time().saturating_add(1));
        Order::new(Order::at(self.at).max(after), self.random)
    }

    /// Without versioning, and without a trace of it.
    fn is_plain(&self, versioning: Versioning) -> bool {
        let null = self.now.current.as_ref().is_none_or(|e| e.version().null);
        versioning == Versioning::Off && self.head.is_none() && null
    }

    fn version(&self, versioning: Versioning) -> Version {
        Version {
            order: self.next(),
            null: versioning != Versioning::Enabled,
        }
    }

    /// The current version is one of the others from now on.
    fn retire(&mut self) {
        match self.now.current.take() {
            Some(entry) => {
                let older = Older {
                    since: self.at,
                    marker: false,
                    entry,
                };
                self.now.others.insert(older.entry.version().order, older);
            }
            None => {
                if let Some(mut newest) = self.now.others.first_entry()
                    && newest.get().since == 0
                {
                    newest.get_mut().since = self.at;
                }
            }
        }
    }

    /// The newest of the others is the current version from now on.
    fn promote(&mut self) -> std::result::Result<(), Stop> {
        let Some(mut newest) = self.now.others.first_entry() else {
            return match self.more {
                true => Err(Error::Damaged("an omap that does not go on".into()).into()),
                false => Ok(()),
            };
        };
        match newest.get().marker {
            true => newest.get_mut().since = 0,
            false => self.now.current = Some(newest.remove().entry),
        }
        Ok(())
    }

    fn drop_entry(&mut self, entry: Entry, bypass: bool) -> Result<()> {
        if entry.lock.holds(self.at, bypass) {
            return Err(Error::Locked);
        }
        self.gone.push((entry, 0));
        Ok(())
    }

    /// What is written without versioning replaces what was.
    fn drop_null(&mut self) -> std::result::Result<(), Stop> {
        match self.now.current.take() {
            Some(entry) if entry.version().null => self.drop_entry(entry, false)?,
            other => self.now.current = other,
        }
        if let Some(order) = self.head.and_then(|h| h.null) {
            match self.now.others.remove(&order) {
                Some(older) => self.drop_entry(older.entry, false)?,
                None if self.asked.contains(&order) => {
                    return Err(Error::Damaged("a version null that is not there".into()).into());
                }
                None => return Err(row_of(&self.key, order)),
            }
        }
        Ok(())
    }

    /// Makes an entry the current version; as it is then.
    pub fn put(&mut self, mut entry: Entry, versioning: Versioning) -> std::result::Result<Entry, Stop> {
        let plain = self.is_plain(versioning);
        entry.version = (!plain).then(|| self.version(versioning));
        if versioning != Versioning::Enabled {
            self.drop_null()?;
        }
        self.retire();
        self.now.current = Some(entry.clone());
        Ok(entry)
    }

    /// What a delete without an id does: removes, or has a delete marker follow.
    pub fn delete(&mut self, versioning: Versioning) -> std::result::Result<Deleted, Stop> {
        let there = self.now.current.is_some();
        if self.is_plain(versioning) {
            if let Some(entry) = self.now.current.take() {
                self.drop_entry(entry, false)?;
            }
            return Ok(Deleted {
                there,
                ..Deleted::default()
            });
        }
        let version = self.version(versioning);
        if versioning != Versioning::Enabled {
            self.drop_null()?;
        }
        self.retire();
        let older = Older {
            since: 0,
            marker: true,
            entry: marker(self.at, version),
        };
        self.now.others.insert(version.order, older);
        Ok(Deleted {
            version: Some(version),
            marker: true,
            there,
        })
    }

    /// The version, if it is there.
    pub fn find(&self, which: Which) -> std::result::Result<Option<(bool, &Entry)>, Stop> {
        if let Some(entry) = self.current()
            && (which == Which::Current || which.is(entry.version()))
        {
            return Ok(Some((false, entry)));
        }
        let order = match which {
            Which::Current => return Ok(self.marker().map(|m| (true, &m.entry))),
            Which::Null => self.head.and_then(|h| h.null),
            Which::Of(order) => self.head.map(|_| order),
        };
        let Some(order) = order else { return Ok(None) };
        match self.now.others.get(&order) {
            Some(older) if which.is(older.entry.version()) => Ok(Some((older.marker, &older.entry))),
            Some(_) => Ok(None),
            None if self.asked.contains(&order) => Ok(None),
            None => Err(row_of(&self.key, order)),
        }
    }

    /// Changes what is said of a version; as it is then. A delete marker is left alone.
    pub fn amend(
        &mut self,
        which: Which,
        change: impl FnOnce(&mut Entry) -> Result<()>,
    ) -> std::result::Result<Entry, Stop> {
        let entry = match self.find(which)? {
            None if which == Which::Current => return Err(Error::NoSuchKey.into()),
            None => return Err(Error::NoSuchVersion.into()),
            Some((true, entry)) => return Err(gone(which, entry).into()),
            Some((false, entry)) => entry.clone(),
        };
        let order = entry.version().order;
        let target = match &mut self.now.current {
            Some(current) if current.version().order == order => Some(current),
            _ => self.now.others.get_mut(&order).map(|o| &mut o.entry),
        };
        let target = target.ok_or_else(no_place)?;
        change(target)?;
        Ok(target.clone())
    }

    /// Has a version refer to other data; what it referred to is collected. A lock holds the version, wherever its data are.
    pub fn relocate(&mut self, which: Which, to: impl FnOnce(&mut Entry)) -> std::result::Result<(), Stop> {
        let was = self.find(which)?.map(|(_, entry)| entry.clone());
        let now = self.amend(which, |entry| {
            to(entry);
            Ok(())
        })?;
        let was = was.filter(|was| was.data != now.data);
        self.gone.extend(was.map(|was| (was, MOVED_GRACE)));
        Ok(())
    }

    /// Removes one version for good. `bypass`: a lock of governance does not hold it.
    pub fn remove(&mut self, which: Which, bypass: bool) -> std::result::Result<Deleted, Stop> {
        let Some((marker, entry)) = self.find(which)? else {
            return Ok(Deleted::default());
        };
        let version = entry.version();
        let current = self.current().is_some_and(|e| e.version() == version);
        let was_current = current || self.marker().is_some_and(|m| m.entry.version() == version);
        let entry = match current {
            true => self.now.current.take(),
            false => self.now.others.remove(&version.order).map(|o| o.entry),
        };
        self.drop_entry(entry.ok_or_else(no_place)?, bypass)?;
        if was_current {
            self.promote()?;
        }
        Ok(Deleted {
            version: Some(version),
            marker,
            there: true,
        })
    }

    /// One of the others, if it was looked at.
    pub fn other(&self, order: Order) -> std::result::Result<Option<&Older>, Stop> {
        match self.now.others.get(&order) {
            None if self.head.is_some() && !self.asked.contains(&order) => Err(row_of(&self.key, order)),
            other => Ok(other),
        }
    }

    /// How many of the others that were looked at are newer than this one, but for a delete marker that is the current version.
    pub fn newer(&self, order: Order) -> usize {
        let newer = self.now.others.range(..order);
        newer.filter(|(_, other)| other.since != 0).count()
    }

    /// There is no other version than this one, or none.
    pub fn is_alone(&self) -> bool {
        usize::from(self.now.current.is_some()) + self.now.others.len() <= 1 && !self.more
    }

    /// Rows that differ, and what has to be collected, by `garbage`: its size, and how much later than what is deleted.
    pub fn change(self, garbage: impl Fn(Data, u64, u64) -> Option<(Bytes, Bytes)>) -> Change {
        let mut change = Change::default();
        if self.now.current != self.was.current {
            let row = entry_row(&self.key);
            match &self.now.current {
                Some(entry) => drop(change.set.insert(row, entry.to_bytes())),
                None => drop(change.unset.insert(row)),
            }
        }
        let mut null = self.head.and_then(|h| h.null);
        for order in self.was.others.keys() {
            if !self.now.others.contains_key(order) {
                change.unset.insert(older_row(&self.key, *order));
                null = null.filter(|n| n != order);
            }
        }
        for (order, older) in &self.now.others {
            if self.was.others.get(order) != Some(older) {
                change.set.insert(older_row(&self.key, *order), older.to_bytes());
                if older.entry.version().null {
                    null = Some(*order);
                }
            }
        }
        if self.was.others != self.now.others {
            let head = Head {
                generation: self.random,
                null,
            };
            match self.now.others.is_empty() && !self.more {
                true => drop(change.unset.insert(head_row(&self.key))),
                false => drop(change.set.insert(head_row(&self.key), head.to_bytes())),
            }
        }
        change.counted = self.now.amount();
        change.counted += self.was.amount().less();
        let gone = self.gone.iter();
        let gone = gone.filter_map(|(e, later)| garbage(e.data, e.size, *later));
        change.set.extend(gone);
        change
    }
}

fn no_place() -> Error {
    Error::Damaged("a version without its place".into())
}

/// Why a delete marker is no object.
fn gone(which: Which, marker: &Entry) -> Error {
    match which {
        Which::Current => Error::Deleted(marker.version().to_string()),
        _ => Error::IsMarker(marker.version().to_string(), marker.modified),
    }
}

fn marker(at: u64, version: Version) -> Entry {
    Entry {
        size: 0,
        etag: String::new(),
        modified: at,
        data: Data::None,
        attributes: Attributes::default(),
        checksum: None,
        parts: 0,
        upload: String::new(),
        version: Some(version),
        lock: Lock::default(),
        sealed: None,
    }
}
