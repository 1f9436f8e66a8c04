//! Migration as the target sees it: what it has not yet is the source's (docs/protocol/ceph/05-rbd.md, 10.3).

use super::open::{At, Mode};
use super::{Image, Inner};
use crate::Result;
use crate::migration::{End, Migration};
use types::NOSNAP;

/// Two records of one migration, at different times.
pub(super) fn same_source(a: &Migration, b: &Migration) -> bool {
    (a.pool, &a.pool_namespace, &a.image_id, &a.image_name)
        == (b.pool, &b.pool_namespace, &b.image_id, &b.image_name)
}

/// The source's snapshot that is seen in a snapshot of the target; its head in those that were made since.
pub(super) fn seen_in(record: &Migration, snap: u64) -> u64 {
    let from = record.snap_seqs.iter().find(|(_, to)| **to == snap);
    from.map_or(NOSNAP, |(from, _)| *from)
}

impl Inner {
    /// At what this image is open at.
    pub(super) async fn open_source(&self, record: &Migration) -> Result<Image> {
        let source = End::other(&self.io, record);
        let at = match seen_in(record, self.snap) {
            NOSNAP => At::Head,
            snap => At::Snap(snap),
        };
        let mode = Mode {
            migrates: true,
            ..Mode::behind(self.depth)
        };
        let opened = open_end(&source, at, mode).await;
        opened.map_err(|e| e.about("the source of its migration"))
    }
}

pub(super) async fn open_end(end: &End, at: At, mode: Mode) -> Result<Image> {
    match end.is_old() {
        true => Image::open_old(end.io.clone(), end.name.clone(), at, mode).await,
        false => Image::open_at(end.io.clone(), end.id.clone(), at, mode).await,
    }
}
