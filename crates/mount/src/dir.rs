//! Listings: the kernel asks for names from the one of a number on; a page of them is kept.

use crate::snaps::Place;
use bytes::Bytes;
use cephfs::{Cursor, Entry, Followed, Mount};
use fuser::FileType;

/// A name of a listing; its number is that of the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub ino: u64,
    pub kind: FileType,
    pub name: Bytes,
}

/// Which directory it is.
#[derive(Debug, Clone)]
pub enum Of {
    Now(u64),
    Snap(Place),
}

impl Of {
    /// As the server numbers it; in a snapshot that of the directory from which it is reached.
    pub fn ino(&self) -> u64 {
        match self {
            Self::Now(ino) => *ino,
            Self::Snap(place) => place.dir,
        }
    }

    async fn begin(&self, mount: &Mount) -> cephfs::Result<Cursor> {
        match self {
            Self::Now(ino) => mount.readdir_begin_of(*ino).await,
            Self::Snap(place) if place.is_snap_dir() => Ok(Cursor::default()),
            Self::Snap(place) => mount.readdir_begin_in(place.dir, &place.path).await,
        }
    }

    async fn page(&self, mount: &Mount, at: &Cursor) -> cephfs::Result<(Vec<Entry>, Option<Cursor>)> {
        match self {
            Self::Now(ino) => mount.readdir_page_of(*ino, at).await,
            Self::Snap(place) if place.is_snap_dir() => mount.snaps_page(place.dir, at).await,
            Self::Snap(place) => mount.readdir_page_in(place.dir, &place.path, at).await,
        }
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    pub listing: tokio::sync::Mutex<Listing>,
    pub followed: Followed,
}

#[derive(Debug)]
pub struct Listing {
    of: Of,
    page: Vec<Named>,
    /// The number of the page's first name.
    first: u64,
    /// Where the next page begins; None: there is none.
    next: Option<Cursor>,
    begun: bool,
}

impl Listing {
    pub fn new(of: Of) -> Self {
        Self {
            of,
            page: Vec::new(),
            first: 0,
            next: None,
            begun: false,
        }
    }

    /// Names from number `at` on, some of them; none: there are no more. Who goes back before the page begins anew, and sees what is
    /// there now.
    pub async fn from(&mut self, mount: &Mount, at: u64) -> cephfs::Result<&[Named]> {
        if !self.begun || at < self.first || at == 0 {
            let dots = [&b"."[..], b".."].map(|name| Named {
                ino: self.of.ino(),
                kind: FileType::Directory,
                name: Bytes::from_static(name),
            });
            self.page = dots.to_vec();
            self.first = 0;
            self.next = Some(self.of.begin(mount).await?);
            self.begun = true;
        }
        while at >= self.first + self.page.len() as u64 {
            let Some(cursor) = &self.next else {
                return Ok(&[]);
            };
            let (entries, next) = self.of.page(mount, cursor).await?;
            self.first += self.page.len() as u64;
            let named = entries.into_iter().map(|e| Named {
                ino: e.stat.ino,
                kind: crate::attr::kind_of(e.stat.mode),
                name: e.name,
            });
            self.page = named.collect();
            self.next = next;
        }
        Ok(&self.page[(at - self.first) as usize..])
    }
}
