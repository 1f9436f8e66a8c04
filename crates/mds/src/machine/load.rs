//! Reads of rows: who waits for which.
//!
//! A row is read once at a time, however many wait for it.

use super::parts::loads::{PAGE, PageRead, READ_MAX, Read};
use super::{Effect, Machine};
use crate::place::{self, Fragment};
use crate::row::{Inode, Key, NOSNAP, Row};
use crate::table::Position;
use bytes::Bytes;

impl Machine {
    /// A request waits for rows.
    pub(crate) fn load(&mut self, request: u64, keys: Vec<Key>) {
        for key in &keys {
            self.loads.waiting.entry(key.clone()).or_default().push(request);
        }
        self.prefetch(keys);
    }

    /// Rows are read, and nobody waits for them yet.
    pub(crate) fn prefetch(&mut self, keys: Vec<Key>) {
        let mut wanted = Vec::new();
        for key in keys {
            if !self.table.contains(&key) && !self.loads.is_reading(&key) {
                wanted.push(key);
            }
        }
        while !wanted.is_empty() {
            let rest = wanted.split_off(wanted.len().min(READ_MAX));
            self.read(wanted);
            wanted = rest;
        }
    }

    fn read(&mut self, keys: Vec<Key>) {
        let mut reads = Vec::new();
        for key in &keys {
            let mut dir = None;
            if let Key::Dentry { dir: ino, .. } = key {
                self.table.begin_read(*ino);
                dir = self.cached(*ino);
            }
            let (object, stored) = place::of(key, dir.as_deref());
            reads.push(Read { object, key: stored });
            self.loads.reading.insert(key.clone());
        }
        self.loads.last += 1;
        let id = self.loads.last;
        self.loads.rows.insert(id, keys);
        self.push_now(Effect::Load { id, reads });
    }

    pub(crate) fn loaded(&mut self, id: u64, rows: Vec<Option<Bytes>>) {
        let keys = self.loads.rows.remove(&id).unwrap_or_default();
        for (key, bytes) in keys.into_iter().zip(rows) {
            if let Key::Dentry { dir, .. } = &key {
                self.table.end_read(*dir);
            }
            self.loads.reading.remove(&key);
            let row = bytes.and_then(|b| decode(&key, &b));
            self.table.fill(key.clone(), row);
            let waiting = self.loads.waiting.remove(&key).unwrap_or_default();
            self.runnable.extend(waiting);
        }
        self.go_on_reconnecting();
        self.start_jobs();
    }

    /// What follows a place in a directory.
    pub(crate) fn page_of(dir: &Inode, after: &Position) -> PageRead {
        let hash = after.as_ref().map_or(0, |(h, _)| *h);
        let fragment = Fragment::of(dir.bits, dir.split, hash);
        let key = match after {
            None => Bytes::new(),
            // Behind all that is of this name.
            Some((h, name)) => place::dentry_key(*h, name, NOSNAP),
        };
        PageRead {
            dir: dir.ino,
            after: after.clone(),
            object: fragment.object(dir.ino),
            key,
            max: PAGE,
            next_hash: fragment.end(),
        }
    }

    pub(crate) fn load_page(&mut self, request: u64, read: PageRead) {
        let under_way = self
            .loads
            .pages
            .iter()
            .find(|(_, p)| **p == read)
            .map(|(id, _)| *id);
        let id = under_way.unwrap_or_else(|| {
            self.loads.last += 1;
            let id = self.loads.last;
            self.table.begin_read(read.dir);
            self.loads.pages.insert(id, read.clone());
            self.push_now(Effect::Page { id, read });
            id
        });
        self.loads.waiting_pages.entry(id).or_default().push(request);
    }

    pub(crate) fn paged(&mut self, id: u64, rows: Vec<(Bytes, Bytes)>, end: bool) {
        let Some(read) = self.loads.pages.remove(&id) else {
            return;
        };
        let (mut last, mut before) = (None, None);
        let keys: Vec<Option<Key>> = rows
            .iter()
            .map(|(key, _)| place::parse_dentry(read.dir, key))
            .collect();
        for key in keys.iter().flatten() {
            if let Key::Dentry { hash, name, .. } = key {
                let at = Some((*hash, name.clone()));
                if at != last {
                    before = std::mem::replace(&mut last, at);
                }
            }
        }
        if !end && !matches!(keys.last(), Some(Some(Key::Dentry { snap: NOSNAP, .. }))) {
            // There may be more of the last name.
            if before.is_none() {
                let max = read.max * 2;
                let read = PageRead { max, ..read };
                self.loads.pages.insert(id, read.clone());
                return self.push_now(Effect::Page { id, read });
            }
            last = before;
        }
        self.table.end_read(read.dir);
        for (key, (_, value)) in keys.into_iter().zip(rows) {
            let Some(key) = key else {
                tracing::error!("object {}: a name that cannot be read", read.object);
                continue;
            };
            if let Some(row) = decode(&key, &value) {
                self.table.fill(key, Some(row));
            }
        }
        let to = match (end, read.next_hash) {
            // Before the first name of that hash.
            (true, Some(hash)) => Some((hash, Bytes::new())),
            (true, None) => None,
            (false, _) => last.or_else(|| read.after.clone()),
        };
        self.table.learned(read.dir, read.after, to);
        let waiting = self.loads.waiting_pages.remove(&id).unwrap_or_default();
        self.runnable.extend(waiting);
        self.start_jobs();
    }
}

/// A row that cannot be decoded is worse than none: it is not taken for one that is missing.
fn decode(key: &Key, bytes: &Bytes) -> Option<Row> {
    match Row::from_bytes(key, bytes) {
        Ok(row) => Some(row),
        Err(e) => panic!("row {key:?} of the metadata pool is damaged: {e}"),
    }
}
