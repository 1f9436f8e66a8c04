//! Objects of a bucket: what a client puts, gets, copies, deletes and lists. What becomes of buckets is in `buckets`.
//!
//! Invariants: a put writes data under a fresh tag, then commits one entry, so that readers see the old object or the new one,
//! whole; conditions are judged in the same operation as the commit. What an entry stops referring to is named as garbage in that
//! operation, too.

use crate::claims::{Claim, Held};
use crate::data::{DataStore, Stored};
use crate::history::{Deleted, Found, History, Stop, Versioning, Which};
use crate::index::{Ahead, Index, Position, Verdict, View};
use crate::notify::{self, Notice, What};
use crate::rados::{Change, Look, Pool};
use crate::record::{Attributes, Checksum, Entry, Older, entry_row, escape, unescape_into};
use crate::seal::Sealed;
use crate::settings::DefaultRetention;
use crate::version::Lock;
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Keys and prefixes of one answer to a listing.
pub const LIST_MAX: usize = 1000;
/// A commit whose key moved so often is given up.
const MOVES_MAX: usize = 16;

pub struct Objects<P> {
    pub index: Index<P>,
    pub data: DataStore<P>,
    pub clock: Clock,
    /// What is told of changes; None: nobody wants to know.
    pub notice: Option<Arc<Notice>>,
}

impl<P: Clone> Clone for Objects<P> {
    fn clone(&self) -> Self {
        Self {
            index: self.index.clone(),
            data: self.data.clone(),
            clock: self.clock.clone(),
            notice: self.notice.clone(),
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

/// Takes what a listing finds.
pub trait Sink: Send {
    /// So many rows come next, of which each may be an object.
    fn coming(&mut self, _rows: usize) {}
    /// An object, with its entry as it is written down.
    fn object(&mut self, key: &str, entry: &Bytes) -> Result<()>;
    fn prefix(&mut self, prefix: &str);
}

impl Sink for Listed {
    fn object(&mut self, key: &str, entry: &Bytes) -> Result<()> {
        let entry = Box::new(Entry::from_bytes(entry)?);
        self.items.push(Item::Object(key.to_string(), entry));
        Ok(())
    }

    fn prefix(&mut self, prefix: &str) {
        self.items.push(Item::Prefix(prefix.to_string()));
    }
}

/// How a page of a listing ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Keys and prefixes on it.
    pub items: usize,
    /// The name to go on after; None: there are no more.
    pub more: Option<String>,
}

/// What was taken in, as an entry to be.
pub struct New {
    pub stored: Stored,
    pub etag: String,
    pub attributes: Attributes,
    pub checksum: Option<Checksum>,
    pub lock: Lock,
    /// How its data were sealed.
    pub sealed: Option<Sealed>,
}

/// What a change of a key is under.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    pub condition: Condition,
    /// The bucket's.
    pub versioning: Versioning,
    /// Whoever asks may remove what is locked for governance.
    pub bypass: bool,
    /// Of what is put without one of its own.
    pub retention: Option<DefaultRetention>,
}

impl Terms {
    /// The lock of what is put then.
    pub(crate) fn locked(&self, mut lock: Lock, at: u64) -> Lock {
        let default = self.retention.map(|r| r.from(at));
        lock.retention = lock.retention.or(default);
        lock
    }
}

impl<P: Pool> Objects<P> {
    pub fn new(index: Index<P>, data: DataStore<P>, clock: Clock) -> Self {
        Self {
            index,
            data,
            clock,
            notice: None,
        }
    }

    /// The same, for one change, which is told of.
    pub fn telling(&self, notice: Option<Notice>) -> Self {
        Self {
            notice: notice.map(Arc::new),
            ..self.clone()
        }
    }

    /// Has the change tell of itself, if somebody wants to know. `after`: when the key was changed before (milliseconds since 1970), as far as is known.
    pub(crate) fn tell(&self, key: &str, after: u64, what: What<'_>, change: &mut Change) {
        let Some(notice) = &self.notice else { return };
        let told = self.index.told();
        let number = told.next(&self.clock, after);
        if let Some(event) = notice.event(key, what, self.clock.now_ms(), number) {
            change.set.insert(told.row(&self.clock, number), event.to_bytes());
        }
    }

    pub async fn entry(&self, bucket: &str, key: &str) -> Result<Entry> {
        let entry = self.index.get_one(bucket, key, entry_row(key)).await?;
        entry.ok_or(Error::NoSuchKey)
    }

    /// A version, as it is at one moment.
    pub async fn version(&self, bucket: &str, key: &str, which: Which) -> Result<Found> {
        let found = self.index.read(bucket, key, History::look(key), |view| {
            let history = match History::of(view, key, 0, 0) {
                Ok(history) => history,
                Err(stop) => return stop.look(),
            };
            match history.find(which) {
                Ok(None) => Ok(ControlFlow::Break(Found::Nothing)),
                Ok(Some((marker, entry))) => Ok(ControlFlow::Break(match marker {
                    true => Found::Marker(entry.version(), entry.modified),
                    false => Found::Object(Box::new(entry.clone())),
                })),
                Err(stop) => stop.look(),
            }
        });
        found.await
    }

    /// Changes the versions of a key, all together, and takes the claim of new data away. `decide` may be asked several times; None: it
    /// leaves all as it is.
    pub(crate) async fn change<T>(
        &self,
        of: (&str, &str),
        further: Look,
        claim: Option<Claim>,
        decide: impl FnMut(&View<'_>, &mut History, &mut Change) -> std::result::Result<Option<T>, Stop>,
    ) -> Result<Option<T>> {
        self.change_ahead(of, further, (claim, None), decide).await
    }

    /// The same, of which something was looked at before.
    async fn change_ahead<T>(
        &self,
        (bucket, key): (&str, &str),
        further: Look,
        (mut claim, mut ahead): (Option<Claim>, Option<Ahead>),
        mut decide: impl FnMut(&View<'_>, &mut History, &mut Change) -> std::result::Result<Option<T>, Stop>,
    ) -> Result<Option<T>> {
        for _ in 0..MOVES_MAX {
            let mut look = History::look(key);
            look.widen(further.clone());
            look.keys.extend(claim.as_ref().map(Claim::row));
            let seen = (look, ahead.take());
            let held = self.index.update_seen(bucket, key, seen, |view| {
                let mut more = Change::default();
                let (at, random) = (self.clock.now_ms(), self.clock.random_u64());
                let decided = History::of(view, key, at, random)
                    .and_then(|mut h| decide(view, &mut h, &mut more).map(|d| (h, d)));
                let (history, done) = match decided {
                    Ok((history, Some(done))) => (history, done),
                    Ok((_, None)) => return Ok(Verdict::Leave((Held::Yes, None))),
                    Err(stop) => return stop.verdict(),
                };
                let mut change =
                    history.change(|data, size, later| self.data.garbage_later(data, size, later));
                let tells = more.set.keys().any(|r| r.first() == Some(&notify::CLASS));
                if tells && self.index.told().is_full(view.shard) {
                    return Err(Error::Busy("events of changes before wait to be told"));
                }
                change.counted += more.counted;
                change.set.extend(more.set);
                change.unset.extend(more.unset);
                if let Some(claim) = &claim {
                    if let Held::Elsewhere = DataStore::<P>::held(claim, view)? {
                        return Ok(Verdict::Leave((Held::Elsewhere, None)));
                    }
                    change.unset.insert(claim.row());
                }
                match change.set.is_empty() && change.unset.is_empty() {
                    true => Ok(Verdict::Leave((Held::Yes, Some(done)))),
                    false => Ok(Verdict::Change(change, (Held::Yes, Some(done)))),
                }
            });
            match (held.await?, &mut claim) {
                ((Held::Elsewhere, _), Some(claim)) => self.data.follow(bucket, key, claim).await?,
                ((_, done), _) => return Ok(done),
            }
        }
        Err(Error::Busy("the bucket's index is being split"))
    }

    /// Makes what was taken in the object of this key.
    pub async fn put(&self, bucket: &str, key: &str, new: New, terms: &Terms) -> Result<Entry> {
        let entry = Entry {
            size: new.stored.size,
            etag: new.etag,
            modified: self.clock.now_ms(),
            data: new.stored.data,
            attributes: new.attributes,
            checksum: new.checksum,
            parts: 0,
            upload: String::new(),
            version: None,
            lock: terms.locked(new.lock, self.clock.now_ms()),
            sealed: new.sealed,
        };
        let claim = new.stored.claim;
        let put = self.change_ahead(
            (bucket, key),
            Look::default(),
            (claim.clone(), new.stored.ahead),
            |_, history, change| {
                terms.condition.check(history.current())?;
                let after = history.changed();
                let put = history.put(entry.clone(), terms.versioning)?;
                self.tell(key, after, What::Put(&put), change);
                Ok(Some(put))
            },
        );
        match put.await {
            Ok(put) => put.ok_or(Error::Busy("others change the same key")),
            Err(e) => {
                // What the cluster did not answer may have come to pass: its row knows.
                self.data.abandon(claim).await;
                Err(e)
            }
        }
    }

    /// As [`Self::change`], of something without new data.
    async fn alter<T>(
        &self,
        bucket: &str,
        key: &str,
        mut decide: impl FnMut(&mut History, &mut Change) -> std::result::Result<Option<T>, Stop>,
    ) -> Result<Option<T>> {
        let altered = self.change((bucket, key), Look::default(), None, |_, history, change| {
            decide(history, change)
        });
        altered.await
    }

    /// Changes what is said of a version, not its data.
    pub async fn amend(
        &self,
        bucket: &str,
        key: &str,
        which: Which,
        change: impl Fn(&mut Entry) -> Result<()>,
    ) -> Result<Entry> {
        let amended = self.alter(bucket, key, |history, more| {
            let after = history.changed();
            let entry = history.amend(which, |e| change(e))?;
            self.tell(key, after, What::Amended(&entry), more);
            Ok(Some(entry))
        });
        amended.await?.ok_or(Error::NoSuchKey)
    }

    /// What a delete does to a key, or to one version of it.
    pub async fn delete(&self, bucket: &str, key: &str, which: Which, terms: &Terms) -> Result<Deleted> {
        let deleted = self.alter(bucket, key, |history, change| {
            let (condition, after) = (&terms.condition, history.changed());
            Ok(Some(match which {
                Which::Current => {
                    condition.check(history.current())?;
                    let had = self.labels(history.current());
                    let deleted = history.delete(terms.versioning)?;
                    self.tell_deleted(key, after, (deleted, had.as_ref()), change);
                    deleted
                }
                _ => {
                    let target = history.find(which)?.filter(|(marker, _)| !marker);
                    condition.check(target.map(|(_, entry)| entry))?;
                    let had = self.labels(target.map(|(_, entry)| entry));
                    let deleted = history.remove(which, terms.bypass)?;
                    if deleted.there {
                        let what = What::Removed(deleted.version, had.as_ref());
                        self.tell(key, after, what, change);
                    }
                    deleted
                }
            }))
        });
        Ok(deleted.await?.unwrap_or_default())
    }

    /// What an object has that is to be removed, where somebody wants to be told by that.
    fn labels(&self, of: Option<&Entry>) -> Option<Attributes> {
        let asked = self.notice.as_ref().is_some_and(|n| n.looks_inside());
        of.filter(|_| asked).map(|entry| entry.attributes.clone())
    }

    /// Of a delete without an id.
    fn tell_deleted(
        &self,
        key: &str,
        after: u64,
        (deleted, had): (Deleted, Option<&Attributes>),
        change: &mut Change,
    ) {
        match deleted {
            Deleted {
                marker: true,
                version,
                ..
            } => self.tell(key, after, What::Marked(version), change),
            Deleted {
                there: true, version, ..
            } => self.tell(key, after, What::Removed(version, had), change),
            // Nothing was there: nothing was changed.
            _ => {}
        }
    }

    /// What a delete does, if the current version is this very one. False: it is another, or none, by now.
    pub async fn delete_seen(
        &self,
        bucket: &str,
        key: &str,
        seen: &Entry,
        versioning: Versioning,
    ) -> Result<bool> {
        let deleted = self.alter(bucket, key, |history, change| {
            if history.current() != Some(seen) {
                return Ok(None);
            }
            let after = history.changed();
            let had = self.labels(Some(seen));
            let deleted = history.delete(versioning)?;
            self.tell_deleted(key, after, (deleted, had.as_ref()), change);
            Ok(Some(deleted))
        });
        Ok(deleted.await?.is_some())
    }

    /// Removes this very version, if it is not the current one, or a delete marker that is all there is of its key. False: it is not
    /// so (by now), or a lock holds it, or fewer than `keep` that are not the current one are newer.
    pub async fn remove_seen(&self, bucket: &str, key: &str, (seen, keep): (&Older, u32)) -> Result<bool> {
        let version = seen.entry.version();
        let which = match version.null {
            true => Which::Null,
            false => Which::Of(version.order),
        };
        // One of them may be a delete marker that is the current version.
        let look = match keep {
            0 => Look::default(),
            keep => History::look_newest(key, u64::from(keep) + 1),
        };
        let removed = self.change((bucket, key), look, None, |_, history, change| {
            let same = history.other(version.order)? == Some(seen);
            let kept = history.newer(version.order) < keep as usize;
            if !same || kept || (seen.since == 0 && !history.is_alone()) {
                return Ok(None);
            }
            let after = history.changed();
            let deleted = history.remove(which, false)?;
            let had = self.labels(Some(&seen.entry).filter(|_| !seen.marker));
            let what = What::Removed(deleted.version, had.as_ref());
            self.tell(key, after, what, change);
            Ok(Some(deleted))
        });
        match removed.await {
            Err(Error::Locked) => Ok(false),
            other => Ok(other?.is_some()),
        }
    }

    /// Keys and common prefixes in the order of their bytes.
    pub async fn list(&self, bucket: &str, asked: &Listing) -> Result<Listed> {
        let mut listed = Listed::default();
        let ended = self.list_into(bucket, asked, &mut listed).await?;
        listed.more = ended.more.is_some();
        Ok(listed)
    }

    /// The same, handed on one by one.
    pub async fn list_into(&self, bucket: &str, asked: &Listing, sink: &mut impl Sink) -> Result<Ended> {
        let max = asked.max.min(LIST_MAX);
        let mut ended = Ended::default();
        if max == 0 {
            return Ok(ended);
        }
        let prefix = escape(&asked.prefix);
        let mut at = Some(self.begin(asked));
        // Of what was handed on last.
        let mut name = String::new();
        // Keys below it have a prefix that was printed.
        let mut skip: Option<Bytes> = None;
        while let Some(from) = at.take() {
            let want = (max + 1 - ended.items) as u64;
            let page = self.index.rows(bucket, b'e', &prefix, &from, want).await?;
            at = page.next;
            sink.coming(page.rows.len());
            for (rest, value) in &page.rows {
                if skip.as_ref().is_some_and(|s| rest < s) {
                    continue;
                }
                if ended.items == max {
                    ended.more = Some(name);
                    return Ok(ended);
                }
                if !unescape_into(rest, &mut name) {
                    return Err(Error::Damaged("a key that is no text".into()));
                }
                match asked.common(&name).map(str::len) {
                    Some(end) => {
                        name.truncate(end);
                        skip = asked.skip(&name);
                        sink.prefix(&name);
                    }
                    None => sink.object(&name, value)?,
                }
                ended.items += 1;
            }
            if let (Some(next), Some(skip)) = (&mut at, &skip)
                && next.at < *skip
            {
                *next = Position::from(skip.clone());
            }
        }
        Ok(ended)
    }

    fn begin(&self, asked: &Listing) -> Position {
        match &asked.after {
            None => Position::start(),
            Some(after) => match asked.common(after) {
                // It was printed as a prefix: all that begins with it was.
                Some(common) if common == *after => asked
                    .skip(common)
                    .map_or_else(|| Position::after(escape(after)), Position::from),
                _ => Position::after(escape(after)),
            },
        }
    }
}

impl Listing {
    /// The common prefix that stands for this key, if one does.
    pub(crate) fn common<'a>(&self, key: &'a str) -> Option<&'a str> {
        let delimiter = self.delimiter.as_deref().filter(|d| !d.is_empty())?;
        let rest = key.strip_prefix(self.prefix.as_str())?;
        let end = rest.find(delimiter)? + delimiter.len();
        key.get(..self.prefix.len() + end)
    }

    /// The first escaped key that does not begin with `prefix` and comes after those that do.
    pub(crate) fn skip(&self, prefix: &str) -> Option<Bytes> {
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
