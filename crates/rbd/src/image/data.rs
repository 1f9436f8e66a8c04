//! Reading and writing ranges of the image.

use super::object::Change;
use super::{Image, Inner, View, detached};
use crate::{Error, Result, together};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use types::Errno;

/// One call's most.
pub const LENGTH_MAX: u64 = 1 << 30;

impl Image {
    /// `length` bytes; all of it must lie in the image.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Bytes> {
        let inner = &self.inner;
        let view = inner.view().await?;
        check_range(offset, length, view.header.size_at(inner.snap))?;
        inner.read_range(&view, offset, length).await
    }

    /// As [`Image::read`], but zeros at the end may be missing, all of them where nothing was written: nobody fills them in only to
    /// look through them.
    pub async fn read_short(&self, offset: u64, length: u64) -> Result<Bytes> {
        let inner = &self.inner;
        let view = inner.view().await?;
        check_range(offset, length, view.header.size_at(inner.snap))?;
        match inner.fixed.layout.extents(offset, length)[..] {
            [ref one] => inner.read_object(&view, one.object, one.offset, one.length).await,
            _ => inner.read_range(&view, offset, length).await,
        }
    }

    /// Durable when it is answered. Parts of a write that goes over several objects may be seen before the others.
    pub async fn write(&self, offset: u64, data: impl Into<Bytes>) -> Result<()> {
        let (inner, data) = (self.inner.clone(), data.into());
        detached(async move {
            let _writing = inner.writing().await?;
            let view = inner.seen();
            check_range(offset, data.len() as u64, view.header.size)?;
            let extents = inner.fixed.layout.extents(offset, data.len() as u64);
            let (inner, view) = (&inner, &view);
            let writes = extents.into_iter().map(|extent| {
                let data = gather(&data, &extent.pieces);
                let change = Change::Write(extent.offset, data);
                async move { inner.change(view, extent.object, change).await }
            });
            together::all(writes).await.map(drop)
        })
        .await
    }

    /// The range reads as zeros; objects that it covers go. No part of it is left out, however small.
    pub async fn discard(&self, offset: u64, length: u64) -> Result<()> {
        let inner = self.inner.clone();
        detached(async move {
            let _writing = inner.writing().await?;
            let view = inner.seen();
            let size = view.header.size;
            check_place(offset, length, size)?;
            inner.zero(&view, offset, length).await
        })
        .await
    }

    /// As [`Image::discard`]: zeros take no room.
    pub async fn write_zeroes(&self, offset: u64, length: u64) -> Result<()> {
        self.discard(offset, length).await
    }

    /// Waits for all writes under way; what is answered is durable anyway.
    pub async fn flush(&self) -> Result<()> {
        drop(self.inner.gate.write().await);
        Ok(())
    }
}

fn check_place(offset: u64, length: u64, size: u64) -> Result<()> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::refused(
            Errno::EINVAL,
            format!("{length} bytes at {offset} of an image of {size} bytes"),
        )),
    }
}

fn check_range(offset: u64, length: u64, size: u64) -> Result<()> {
    check_place(offset, length, size)?;
    match length > LENGTH_MAX {
        true => Err(Error::refused(Errno::EMSGSIZE, "more than 1 GiB at once")),
        false => Ok(()),
    }
}

/// The pieces of `data` one behind the other; a single one is not copied.
fn gather(data: &Bytes, pieces: &[(u64, u64)]) -> Bytes {
    let piece = |(at, n): &(u64, u64)| data.slice(*at as usize..(*at + *n) as usize);
    match pieces {
        [one] => piece(one),
        many => {
            let mut all = BytesMut::new();
            many.iter().for_each(|p| all.extend_from_slice(&piece(p)));
            all.freeze()
        }
    }
}

impl Inner {
    /// Reads what lies below the size; the caller checked that.
    pub(super) async fn read_range(&self, view: &Arc<View>, offset: u64, length: u64) -> Result<Bytes> {
        let mut extents = self.fixed.layout.extents(offset, length);
        if extents.len() == 1
            && let Some(one) = extents.pop()
        {
            // One extent of a range is the range.
            let mut data = self.read_object(view, one.object, one.offset, one.length).await?;
            if data.len() as u64 != length {
                let mut whole = BytesMut::from(&data[..]);
                whole.resize(length as usize, 0);
                data = whole.freeze();
            }
            return Ok(data);
        }
        let reads = extents.into_iter().map(|e| async move {
            let data = self.read_object(view, e.object, e.offset, e.length).await?;
            Ok::<_, Error>((e, data))
        });
        let mut all = BytesMut::zeroed(length as usize);
        for (extent, data) in together::all(reads).await? {
            let mut from = 0;
            for (at, n) in &extent.pieces {
                let end = data.len().min(from + *n as usize);
                // Bytes that are missing at the object's end are zeros.
                if let Some(piece) = data.get(from..end) {
                    let to = *at as usize;
                    all[to..to + piece.len()].copy_from_slice(piece);
                }
                from += *n as usize;
            }
        }
        Ok(all.freeze())
    }

    /// A long range in steps, so that what is noted of it is bounded.
    async fn zero(&self, view: &Arc<View>, offset: u64, length: u64) -> Result<()> {
        let mut done = 0;
        while done < length {
            let n = (length - done).min(LENGTH_MAX);
            let extents = self.fixed.layout.extents(offset + done, n);
            let zeros = extents.into_iter().map(|e| async move {
                let change = Change::Zero(e.offset, e.length);
                self.change(view, e.object, change).await
            });
            together::all(zeros).await?;
            done += n;
        }
        Ok(())
    }
}
