//! Whether what is written fits together: for `skep s3 check`, and tests. It reads alone, and gateways may go on: what does not fit is
//! looked at once more before it is told.

use crate::buckets::{Bucket, Buckets};
use crate::notify::Event;
use crate::objects::Objects;
use crate::rados::{Look, PAGE, Pool, Span};
use crate::record::{
    Data, Entry, Garbage, Intent, Older, Part, Piece, Place, Upload, entry_row, escape, head_row, key_of,
    older_of, older_prefix, unescape,
};
use crate::topics::Topics;
use crate::version::{Head, Order};
use crate::{Error, Result};
use bytes::Bytes;
use denc::Decode;
use std::collections::BTreeSet;
use std::future::Future;

/// Problems that are told; others are counted.
const TOLD_MAX: usize = 1000;
/// Changes of a key by others while it is read.
const TRIES_MAX: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub buckets: u64,
    pub shards: u64,
    /// Current objects.
    pub objects: u64,
    /// Those that others have followed.
    pub older: u64,
    pub markers: u64,
    pub uploads: u64,
    /// Of objects, older ones, and parts.
    pub bytes: u64,
    pub topics: u64,
    /// That wait to be told: in indexes, and in topics' queues.
    pub events: u64,
    /// Events that found no room in their queues, or could not be told for too long.
    pub dropped: u64,
    /// Queues that others went on changing while they were read: nothing is said of them.
    pub changing: u64,
    pub problems: Vec<String>,
    pub untold: u64,
}

impl Report {
    pub(crate) fn tell(&mut self, problem: String) {
        match self.problems.len() < TOLD_MAX {
            true => self.problems.push(problem),
            false => self.untold += 1,
        }
    }
}

pub struct Check<P> {
    pub objects: Objects<P>,
    pub buckets: Buckets<P>,
    pub topics: Topics<P>,
}

/// A key's versions at one moment.
struct Key {
    current: Option<Entry>,
    head: Option<Head>,
    others: Vec<(Order, Older)>,
}

impl<P: Pool> Check<P> {
    /// Of all buckets and topics, or of one bucket.
    pub async fn run(&self, only: Option<&str>) -> Result<Report> {
        let mut report = Report::default();
        let mut all = self.buckets.all().await?;
        all.retain(|(name, _)| only.is_none_or(|o| o == name));
        if all.is_empty() && only.is_some() {
            return Err(Error::NoSuchBucket);
        }
        for (name, bucket) in all {
            match self.bucket(&name, &bucket, &mut report).await {
                // Deleted meanwhile.
                Err(e) if e.is_not_found() || e == Error::NoSuchBucket => {}
                Err(e) => report.tell(format!("{name}: {e}")),
                Ok(()) => {}
            }
            report.buckets += 1;
        }
        if only.is_none() {
            self.queues(&mut report).await?;
        }
        Ok(report)
    }

    async fn bucket(&self, name: &str, bucket: &Bucket, report: &mut Report) -> Result<()> {
        let mut shard: Option<String> = None;
        loop {
            let mut next = None;
            for class in *b"ehvupign" {
                let mut after = Bytes::new();
                let mut last = Bytes::new();
                loop {
                    let index = &self.objects.index;
                    let seen = index
                        .shard_page(&bucket.id, shard.as_deref(), &after, class)
                        .await?;
                    for (row, value) in &seen.rows {
                        let of = (name, bucket.id.as_str());
                        if let Err(e) = self.row(of, row, value, &mut last, report).await {
                            report.tell(format!("{name}: {}: {e}", row.escape_ascii()));
                        }
                    }
                    next = seen.state.next;
                    match seen.rows.last() {
                        Some((row, _)) if seen.more => after = row.clone(),
                        _ => break,
                    }
                }
            }
            report.shards += 1;
            match next {
                Some(next) => shard = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// `last`: the key of the row before, of versions.
    async fn row(
        &self,
        (name, id): (&str, &str),
        row: &Bytes,
        value: &Bytes,
        last: &mut Bytes,
        report: &mut Report,
    ) -> Result<()> {
        match row.first() {
            Some(b'e') => {
                let entry = Entry::from_bytes(value)?;
                report.objects += 1;
                report.bytes += entry.size;
                self.data((name, id), row, value, self.has_entry(&entry), report)
                    .await
            }
            Some(b'v') => {
                let older = Older::from_bytes(value)?;
                match older.marker {
                    true => report.markers += 1,
                    false => report.older += 1,
                }
                report.bytes += older.entry.size;
                let key = key_of(row);
                if key != *last {
                    self.key((name, id), &key, report).await?;
                    *last = key;
                }
                let whole = self.has_entry(&older.entry);
                self.data((name, id), row, value, whole, report).await
            }
            Some(b'h') => {
                Head::from_bytes(value)?;
                self.key((name, id), &key_of(row), report).await
            }
            Some(b'u') => {
                Upload::from_bytes(value)?;
                report.uploads += 1;
                Ok(())
            }
            Some(b'p') => {
                let part = Part::from_bytes(value)?;
                report.bytes += part.size;
                let whole = self.has_part(part.data, part.size);
                self.data((name, id), row, value, whole, report).await
            }
            Some(b'n') => {
                report.events += 1;
                Ok(Event::from_bytes(value).map(drop)?)
            }
            Some(b'i') => Ok(Intent::from_bytes(value).map(drop)?),
            _ => Ok(Garbage::from_bytes(value).map(drop)?),
        }
    }

    /// Whether all bytes are there that a row refers to.
    async fn data(
        &self,
        (name, id): (&str, &str),
        row: &Bytes,
        value: &Bytes,
        whole: impl Future<Output = Result<()>>,
        report: &mut Report,
    ) -> Result<()> {
        let Err(e) = whole.await else {
            return Ok(());
        };
        // It may have been removed meanwhile.
        let look = Look::keys([row]);
        let at = row.slice(1..);
        let now = self.objects.index.look(id, &at, &look).await?;
        if now.values.get(row) == Some(value) {
            report.tell(format!("{name}: {}: its data: {e}", row.escape_ascii()));
        }
        Ok(())
    }

    async fn has_entry(&self, entry: &Entry) -> Result<()> {
        let pieces = self.objects.data.pieces_of(entry).await?;
        let of = (entry.data.place(), entry.sealed.is_some());
        self.has_all(pieces, entry.size, of).await
    }

    /// Whether its data are sealed its upload says; what is sealed is longer.
    async fn has_part(&self, data: Data, size: u64) -> Result<()> {
        let pieces = self.objects.data.pieces(data, size).await?;
        self.has_all(pieces, size, (data.place(), false)).await
    }

    async fn has_all(&self, pieces: Vec<Piece>, size: u64, (place, sealed): (Place, bool)) -> Result<()> {
        let mut total = 0;
        for piece in pieces {
            total += piece.size;
            for stripe in 0..piece.stripes() {
                self.objects.data.probe(&piece, place, stripe, sealed).await?;
            }
        }
        match total == size {
            true => Ok(()),
            false => Err(Error::Damaged(format!("{total} bytes in place of {size}"))),
        }
    }

    /// The versions of a key, all of one moment.
    async fn read_key(&self, id: &str, escaped: &Bytes) -> Result<Key> {
        let key = unescape(escaped).ok_or_else(|| Error::Damaged("a key that is no text".into()))?;
        let prefix = older_prefix(&key);
        let (entry, head) = (entry_row(&key), head_row(&key));
        'again: for _ in 0..TRIES_MAX {
            let mut after = prefix.clone();
            let (mut first, mut others) = (None, Vec::new());
            loop {
                let mut look = Look::keys([&entry, &head]);
                look.page = Some(Span::new(&after, &prefix, PAGE));
                let seen = self.objects.index.look(id, &escape(&key), &look).await?;
                if first.as_ref().is_some_and(|f| *f != seen.values) {
                    continue 'again;
                }
                for (row, value) in &seen.rows {
                    let place = older_of(&row.slice(1..));
                    let (_, order) = place.ok_or_else(|| Error::Damaged("no place".into()))?;
                    others.push((order, Older::from_bytes(value)?));
                }
                match seen.rows.last() {
                    Some((row, _)) if seen.more => after = row.clone(),
                    _ => {
                        let (e, h) = (seen.values.get(&entry), seen.values.get(&head));
                        return Ok(Key {
                            current: e.map(Entry::from_bytes).transpose()?,
                            head: h.map(Head::from_bytes).transpose()?,
                            others,
                        });
                    }
                }
                first.get_or_insert(seen.values);
            }
        }
        Err(Error::Busy("others go on changing the key"))
    }

    async fn key(&self, (name, id): (&str, &str), escaped: &Bytes, report: &mut Report) -> Result<()> {
        let key = self.read_key(id, escaped).await?;
        if let Some(what) = key.problem() {
            report.tell(format!("{name}: {}: {what}", escaped.escape_ascii()));
        }
        Ok(())
    }
}

impl Key {
    fn problem(&self) -> Option<&'static str> {
        let first = self.others.first().map(|(_, o)| o);
        let current = self.current.as_ref();
        let nulls: BTreeSet<Order> = self
            .others
            .iter()
            .filter(|(_, o)| o.entry.version().null)
            .map(|(order, _)| *order)
            .collect();
        let named: BTreeSet<Order> = self.head.and_then(|h| h.null).into_iter().collect();
        let null_current = current.is_some_and(|e| e.version().null);
        let is_current = |n: usize| current.is_none() && n == 0;
        let misplaced = |(order, o): &(Order, Older)| o.entry.version().order != *order;
        let ill_dated = |(n, (_, o)): (usize, &(Order, Older))| (o.since == 0) != is_current(n);
        let newest = current.map(|e| e.version().order);
        if self.head.is_some() == self.others.is_empty() {
            Some("its head does not go with its versions")
        } else if current.is_none() && first.is_some_and(|o| !o.marker) {
            Some("its newest version is an object and not the current one")
        } else if nulls != named || (null_current && !nulls.is_empty()) {
            Some("its version null is not the one that its head names")
        } else if self.others.iter().any(misplaced) {
            Some("a version is not in its place")
        } else if newest.is_some_and(|n| self.others.iter().any(|(order, _)| *order <= n)) {
            Some("a version is newer than the current one")
        } else if self.others.iter().enumerate().any(ill_dated) {
            Some("a version does not say since when it is not the current one")
        } else {
            None
        }
    }
}
