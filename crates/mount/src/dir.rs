//! Listings: the kernel asks for names from the one of a number on; a page of them is kept.

use bytes::Bytes;
use cephfs::{Cursor, Followed, Mount};
use fuser::FileType;

/// A name of a listing; its number is that of the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub ino: u64,
    pub kind: FileType,
    pub name: Bytes,
}

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    pub listing: tokio::sync::Mutex<Listing>,
    pub followed: Followed,
}

#[derive(Debug)]
pub struct Listing {
    ino: u64,
    page: Vec<Named>,
    /// The number of the page's first name.
    first: u64,
    /// Where the next page begins; None: there is none.
    next: Option<Cursor>,
    begun: bool,
}

impl Listing {
    pub fn new(ino: u64) -> Self {
        Self {
            ino,
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
                ino: self.ino,
                kind: FileType::Directory,
                name: Bytes::from_static(name),
            });
            self.page = dots.to_vec();
            self.first = 0;
            self.next = Some(mount.readdir_begin_of(self.ino).await?);
            self.begun = true;
        }
        while at >= self.first + self.page.len() as u64 {
            let Some(cursor) = &self.next else {
                return Ok(&[]);
            };
            let (entries, next) = mount.readdir_page_of(self.ino, cursor).await?;
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
