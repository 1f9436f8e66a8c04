//! Listings, and the removal of whole trees.
//!
//! A directory of the real server may lie in several fragments, which are listed one after the other, in the order of the names' hashes.

use crate::mount::{Mount, about};
use crate::page::{Entry, Page};
use bytes::Bytes;
use client::Error;
use messages::fs::{Args, FilePath, MClientRequest, op, readdir_flag};

const PAGE_NAMES: u32 = 1024;
const PAGE_BYTES: u32 = 512 << 10;
const FRAG_BITS: u32 = 24;
/// Directories within each other that are looked into.
const DEPTH_MAX: usize = 4096;
/// Directories that wait beside those.
const WAITING_MAX: usize = 4096;

/// Where a listing goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    frag: u32,
    after: Bytes,
}

impl Cursor {
    /// In what is not in fragments.
    pub(crate) fn behind(after: Bytes) -> Self {
        Self { frag: 0, after }
    }

    /// Of the last name that was listed.
    pub(crate) fn name(&self) -> &Bytes {
        &self.after
    }
}

/// The fragment that holds a hash, by the splits of the directory.
fn leaf(tree: &[(u32, i32)], hash: u32) -> u32 {
    let mut bits = 0;
    loop {
        let mask = if bits == 0 {
            0
        } else {
            u32::MAX << (FRAG_BITS - bits) & 0xff_ffff
        };
        let frag = bits << FRAG_BITS | hash & mask;
        match tree.iter().find(|(f, by)| *f == frag && *by > 0) {
            Some((_, by)) if bits + (*by as u32) <= FRAG_BITS => bits += *by as u32,
            _ => return frag,
        }
    }
}

/// The first hash behind a fragment; None: it is the last.
fn end(frag: u32) -> Option<u32> {
    let (bits, value) = (frag >> FRAG_BITS, frag & 0xff_ffff);
    let end = value + (1 << (FRAG_BITS - bits.min(FRAG_BITS)));
    (end < 1 << FRAG_BITS).then_some(end)
}

pub(crate) fn beginning(tree: &[(u32, i32)]) -> Cursor {
    Cursor {
        frag: leaf(tree, 0),
        after: Bytes::new(),
    }
}

impl Mount {
    /// Some names of a directory, and where it goes on, if it does. What is there throughout is listed once.
    pub async fn readdir_page(
        &self,
        path: impl AsRef<[u8]>,
        from: &Cursor,
    ) -> crate::Result<(Vec<Entry>, Option<Cursor>)> {
        self.page(about(op::READDIR, path), from).await
    }

    /// The same of a directory by its number.
    pub async fn readdir_page_of(
        &self,
        ino: u64,
        from: &Cursor,
    ) -> crate::Result<(Vec<Entry>, Option<Cursor>)> {
        let request = MClientRequest {
            op: op::READDIR,
            path: FilePath::new(ino, Bytes::new()),
            ..MClientRequest::default()
        };
        self.page(request, from).await
    }

    /// Where a listing of it begins.
    pub async fn readdir_begin_of(&self, ino: u64) -> crate::Result<Cursor> {
        Ok(beginning(&self.getattr(ino).await?.fragtree))
    }

    pub(crate) async fn page(
        &self,
        request: MClientRequest,
        from: &Cursor,
    ) -> crate::Result<(Vec<Entry>, Option<Cursor>)> {
        let mut args = Vec::with_capacity(18);
        args.extend(from.frag.to_le_bytes());
        args.extend(PAGE_NAMES.to_le_bytes());
        args.extend(PAGE_BYTES.to_le_bytes());
        args.extend(1u16.to_le_bytes());
        let request = MClientRequest {
            args: Args::from_slice(&args),
            path2: FilePath::new(0, from.after.clone()),
            ..request
        };
        let reply = self.ask(request).await?;
        let page = Page::parse(&reply.extra)?;
        let next = match (page.entries.last(), page.flags & readdir_flag::FRAG_END) {
            (Some(last), 0) => Some(Cursor {
                frag: page.frag,
                after: last.name.clone(),
            }),
            (None, 0) => return Err(Error::Malformed("an empty page of a listing".into())),
            _ => {
                let tree = reply.trace.target.as_ref().map_or(&[][..], |t| &t.fragtree);
                end(page.frag).map(|hash| Cursor {
                    frag: leaf(tree, hash),
                    after: Bytes::new(),
                })
            }
        };
        Ok((page.entries, next))
    }

    /// Where a listing begins.
    pub async fn readdir_begin(&self, path: impl AsRef<[u8]>) -> crate::Result<Cursor> {
        Ok(beginning(&self.stat(path).await?.fragtree))
    }

    /// The whole directory, if it has no more than `max` names.
    pub async fn readdir(&self, path: impl AsRef<[u8]>, max: usize) -> crate::Result<Vec<Entry>> {
        let path = path.as_ref();
        let mut at = Some(self.readdir_begin(path).await?);
        let mut all = Vec::new();
        while let Some(cursor) = at {
            let (entries, next) = self.readdir_page(path, &cursor).await?;
            all.extend(entries);
            if all.len() > max {
                return Err(Error::Busy);
            }
            at = next;
        }
        Ok(all)
    }

    /// Removes a directory with all in it. It can be stopped at any point, and begun again; `removed` hears of each name that has
    /// gone. What is gone already counts as removed.
    pub async fn remove_tree(&self, path: impl AsRef<[u8]>, mut removed: impl FnMut()) -> crate::Result<()> {
        let gone = |done: crate::Result<()>| match done {
            Err(e) if e.is_not_found() => Ok(()),
            done => done,
        };
        // With how deep each lies. A page of directories comes at once while there is room.
        let mut stack = vec![(path.as_ref().to_vec(), 1)];
        while let Some((dir, depth)) = stack.last().cloned() {
            if depth > DEPTH_MAX {
                return Err(Error::Malformed("directories too deep".into()));
            }
            // From the beginning each time: what was listed has gone.
            let mut at = match self.find(&dir).await? {
                Some(stat) => Some(beginning(&stat.fragtree)),
                None => {
                    stack.pop();
                    continue;
                }
            };
            let above = stack.len();
            while let (Some(cursor), true) = (at.take(), stack.len() == above) {
                let (entries, next) = self.readdir_page(&dir, &cursor).await?;
                for entry in entries {
                    let child = [&dir[..], b"/", &entry.name].concat();
                    if entry.is_dir() {
                        if stack.len() == above || stack.len() < WAITING_MAX {
                            stack.push((child, depth + 1));
                        }
                        continue;
                    }
                    gone(self.unlink(&child).await)?;
                    removed();
                }
                at = next;
            }
            if stack.len() == above {
                gone(self.rmdir(&dir).await)?;
                removed();
                stack.pop();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_walked_in_order() {
        // The whole into four, the second of them into two.
        let tree = [(0, 2), (2 << 24 | 0x40_0000, 1)];
        let mut at = Some(0);
        let mut all = Vec::new();
        while let Some(hash) = at {
            let frag = leaf(&tree, hash);
            all.push((frag >> 24, frag & 0xff_ffff));
            at = end(frag);
        }
        let want = [
            (2, 0),
            (3, 0x40_0000),
            (3, 0x60_0000),
            (2, 0x80_0000),
            (2, 0xc0_0000),
        ];
        assert_eq!(all, want);
        assert_eq!((leaf(&[], 7), end(0)), (0, None));
    }
}
