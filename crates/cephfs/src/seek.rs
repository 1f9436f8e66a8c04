//! Where a file has bytes and where it has none, by what its objects say of themselves (MAPEXT).
//!
//! What a pool cannot say is taken for data, and so is all of a file that somebody here has open to read and write: whoever looks for
//! holes reads zeros then.

use crate::file::File;
use crate::layout::{Extent, extents, object_name};
use client::{Error, IoCtx, Operation, SnapContext};
use denc::Reader;
use messages::osd::{ExtentArg, OsdOp, code};
use types::Errno;

/// Looked through in one go, between which others get the file.
const STEP: u64 = 256 << 20;
/// Objects that are asked at once.
const AT_ONCE: usize = 16;

/// From, and up to but not including.
type Range = (u64, u64);

/// Of the ranges that hold data in a stretch of so many bytes.
fn first(ranges: &[Range], length: u64, data: bool) -> Option<u64> {
    if data {
        return ranges.first().map(|r| r.0);
    }
    let mut end = 0;
    for (from, to) in ranges {
        if *from > end {
            break;
        }
        end = end.max(*to);
    }
    (end < length).then_some(end)
}

/// From `at` to `end`, each with its length: the rest of an object first, as the answer is mostly there, and more with each step.
fn stretches(mut at: u64, end: u64, object: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut step = object.clamp(1, STEP);
    let mut length = step - at % step;
    std::iter::from_fn(move || {
        let from = at;
        let n = length.min(end.saturating_sub(at));
        at += n;
        length = step;
        step = (step * 2).min(STEP);
        (n > 0).then_some((from, n))
    })
}

/// The answer of an object, from the beginning of the stretch that was asked for.
fn ranges_of(data: bytes::Bytes, e: &Extent) -> crate::Result<Vec<Range>> {
    let mut r = Reader::new(data);
    let mut all = Vec::new();
    for _ in 0..r.u32()? {
        let (at, n) = (r.u64()?, r.u64()?);
        let from = at.max(e.offset);
        let to = at.saturating_add(n).min(e.offset + e.length);
        if from < to {
            all.push((from - e.offset, to - e.offset));
        }
    }
    all.sort_unstable();
    Ok(all)
}

impl File {
    /// The first place from `offset` on with data, or without: the end of the file is such a place. ENXIO: there is none, or `offset` lies
    /// behind the end.
    pub async fn seek(&self, offset: u64, data: bool) -> crate::Result<u64> {
        let none = || Error::invalid(Errno::ENXIO, "no such place in the file");
        let size = self.mount().getattr(self.ino()).await?.size;
        if offset >= size {
            return Err(none());
        }
        for (at, n) in stretches(offset, size, u64::from(self.layout().object_size)) {
            if let Some(found) = self.seek_within(at, n, data).await? {
                return Ok(found);
            }
        }
        match data {
            true => Err(none()),
            false => Ok(size),
        }
    }

    async fn seek_within(&self, at: u64, length: u64, data: bool) -> crate::Result<Option<u64>> {
        let Some(_using) = self.begin_look().await? else {
            return Ok(data.then_some(at));
        };
        let io = self.pool(SnapContext::default());
        let all = extents(self.layout(), at, length)?;
        let mut asked = Vec::with_capacity(all.len());
        for e in &all {
            asked.push(self.ranges(&io, e));
        }
        let told = io::task::several(AT_ONCE, asked).await;
        let mut begin = at;
        for (e, ranges) in all.iter().zip(told) {
            if let Some(found) = first(&ranges?, e.length, data) {
                return Ok(Some(begin + found));
            }
            begin += e.length;
        }
        Ok(None)
    }

    async fn ranges(&self, io: &IoCtx, e: &Extent) -> crate::Result<Vec<Range>> {
        let step = OsdOp::new(code::MAPEXT).with_extent(ExtentArg {
            offset: e.offset,
            length: e.length,
            truncate_size: 0,
            truncate_seq: 0,
        });
        let name = object_name(self.ino(), e.object);
        match io.operate(name, Operation::new().raw(step)).await?.done() {
            Ok(done) => ranges_of(done.step(0)?.data.clone(), e),
            Err(err) if err.is_not_found() => Ok(Vec::new()),
            Err(err) if err.errno() == Errno::EOPNOTSUPP => Ok(vec![(0, e.length)]),
            Err(err) => Err(err),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::Writer;

    #[test]
    fn the_first_place_with_and_without_data() {
        let all = [(10, 20), (20, 30), (40, 100)];
        assert_eq!(
            (first(&all, 100, true), first(&all, 100, false)),
            (Some(10), Some(0))
        );
        assert_eq!((first(&[], 100, true), first(&[], 100, false)), (None, Some(0)));
        assert_eq!(first(&[(0, 20), (20, 30), (40, 100)], 100, false), Some(30));
        assert_eq!(first(&[(0, 100)], 100, false), None);
        assert_eq!(first(&[(0, 60)], 100, false), Some(60));
    }

    #[test]
    fn the_first_question_is_about_one_object() {
        const MB: u64 = 1 << 20;
        let all: Vec<(u64, u64)> = stretches(5 * MB, 1 << 30, 4 * MB).collect();
        let want = [(5, 3), (8, 4), (12, 8), (20, 16)].map(|(at, n)| (at * MB, n * MB));
        assert_eq!(all[..4], want);
        assert_eq!(all.iter().map(|s| s.1).max(), Some(STEP));
        assert_eq!(all.last().map(|s| s.0 + s.1), Some(1 << 30));
        assert_eq!(stretches(7, 10, 0).count(), 3);
        assert_eq!(stretches(10, 10, 4 * MB).count(), 0);
    }

    #[test]
    fn what_an_object_says_is_cut_to_what_was_asked() {
        let e = Extent {
            object: 0,
            offset: 100,
            length: 50,
        };
        let mut w = Writer::new();
        w.u32(3);
        for n in [140u64, 100, 0, 110, 300, 1] {
            w.u64(n);
        }
        assert_eq!(ranges_of(w.finish(), &e).unwrap(), [(0, 10), (40, 50)]);
        let mut w = Writer::new();
        w.u32(2);
        w.u64(1);
        assert!(ranges_of(w.finish(), &e).is_err());
    }
}
