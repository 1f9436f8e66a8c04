//! Before a migration is aborted: what clients have written to the target's head since `prepare` goes back to the source's. Sizes, snapshots and
//! metadata of the target do not.

use super::Record;
use super::content::{Piece, differing, joined};
use super::execute::at_once;
use super::times::{Times, has_head};
use crate::image::{Image, Inner, View};
use crate::{Result, together};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Objects of the target that are looked at before any of them is read.
const LOOK: u64 = 256;

/// `source` can be written; nobody writes to `target`.
pub(super) async fn carry_back(
    source: &Image,
    target: &Inner,
    record: &Record,
    progress: &(dyn Fn(u64, u64) + Send + Sync),
) -> Result<()> {
    let view = target.seen();
    let ids: Vec<u64> = view.header.snaps.iter().map(|s| s.id).collect();
    let times = Times::new(&record.snap_seqs, &ids)?;
    let limit = record.overlap.min(view.header.size).min(source.size().await?);
    let end = target.fixed.layout.objects(limit);
    let at_once = at_once(&target.fixed.layout);
    let mut from = 0;
    while from < end {
        let to = end.min(from + LOOK);
        let (view, times) = (&view, &times);
        let asked = (from..to).map(|o| async move {
            match view.data.list_snaps(target.data_oid(o)).await {
                // One that is only half copied has an older state for its head.
                Ok(set) => Ok((times.is_whole(&set) && has_head(&set)).then_some(o)),
                Err(e) if e.is_not_found() => Ok(None),
                Err(e) => Err(crate::Error::from(e)),
            }
        });
        let there: Vec<u64> = together::all(asked).await?.into_iter().flatten().collect();
        for group in there.chunks(at_once as usize) {
            let carried = group
                .iter()
                .map(|o| carry_object(source, target, view, *o, limit));
            together::all(carried).await?;
            progress(group.last().map_or(from, |o| *o), end);
        }
        progress(to, end);
        from = to;
    }
    Ok(())
}

async fn carry_object(
    source: &Image,
    target: &Inner,
    view: &Arc<View>,
    object: u64,
    limit: u64,
) -> Result<()> {
    let layout = &target.fixed.layout;
    let used = layout.used(object, limit);
    let read = match view.data.read(target.data_oid(object), 0, used).await {
        Err(e) if e.is_not_found() => return Ok(()),
        read => read?,
    };
    let mut new = BytesMut::from(&read[..]);
    new.resize(used as usize, 0);
    let (inner, seen) = (&source.inner, &source.inner.seen());
    let ranges = layout.ranges(object, 0, used);
    let reads = ranges.into_iter().map(|(at, n)| inner.read_range(seen, at, n));
    let old: Bytes = joined(together::all(reads).await?);
    for piece in differing(&old, &new.freeze(), layout.object_size()) {
        match piece {
            Piece::Write(at, mut data) => {
                for (place, n) in layout.ranges(object, at, data.len() as u64) {
                    source.write(place, data.split_to(n as usize)).await?;
                }
            }
            Piece::Zero(at, n) => {
                for (place, n) in layout.ranges(object, at, n) {
                    source.discard(place, n).await?;
                }
            }
            // Nothing else comes of a comparison.
            Piece::Remove | Piece::Create | Piece::Truncate(_) => {}
        }
    }
    Ok(())
}
