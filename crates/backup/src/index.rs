//! Which blob is where, in memory: some 80 bytes for each blob.

use crate::forms::{Id, IndexBlob, IndexPack, Kind};
use std::collections::{HashMap, HashSet};

/// Where a blob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub pack: Id,
    pub offset: u32,
    pub length: u32,
    pub uncompressed_length: Option<u32>,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    pack: u32,
    offset: u32,
    length: u32,
    uncompressed_length: Option<u32>,
    kind: Kind,
}

#[derive(Debug, Default)]
pub struct Index {
    packs: Vec<Id>,
    blobs: HashMap<Id, Entry>,
    /// Copies in other packs, as two hosts make them that store the same at once; few.
    copies: HashMap<Id, Vec<Entry>>,
    /// On their way to a pack that is not written yet.
    pending: HashSet<Id>,
    /// The files that were read.
    pub files: HashSet<Id>,
}

impl Index {
    pub fn add(&mut self, pack: Id, blobs: &[IndexBlob]) {
        let number = self.packs.len() as u32;
        self.packs.push(pack);
        for blob in blobs {
            self.pending.remove(&blob.id);
            let entry = Entry {
                pack: number,
                offset: blob.offset,
                length: blob.length,
                uncompressed_length: blob.uncompressed_length,
                kind: blob.kind,
            };
            if let Some(other) = self.blobs.insert(blob.id, entry) {
                self.copies.entry(blob.id).or_default().push(other);
            }
        }
    }

    pub fn add_all(&mut self, packs: &[IndexPack]) {
        packs.iter().for_each(|p| self.add(p.id, &p.blobs));
    }

    pub fn get(&self, id: &Id) -> Option<Place> {
        self.place(self.blobs.get(id)?)
    }

    /// Besides that of [`Index::get`].
    pub fn copies(&self, id: &Id) -> Vec<Place> {
        let copies = self.copies.get(id).into_iter().flatten();
        copies.filter_map(|entry| self.place(entry)).collect()
    }

    fn place(&self, entry: &Entry) -> Option<Place> {
        Some(Place {
            pack: *self.packs.get(entry.pack as usize)?,
            offset: entry.offset,
            length: entry.length,
            uncompressed_length: entry.uncompressed_length,
            kind: entry.kind,
        })
    }

    /// True for whoever is the first to bring this blob: he stores it.
    pub fn claim(&mut self, id: Id) -> bool {
        !self.blobs.contains_key(&id) && self.pending.insert(id)
    }
}
