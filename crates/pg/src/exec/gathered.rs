//! Data that an execution wants to read, and what came of it.
//!
//! Vocabulary: a [`Read`] is a range of the one object that a message reads (its head, or a clone of it). *Gathering* it
//! is the back end's: from this disk, from another OSD, from several shards.

use crate::stored::IoError;
use bytes::Bytes;

/// In what form a range is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Its bytes, holes as zeros, cut off at the object's end.
    Bytes,
    /// What is allocated of it, with the bytes.
    Extents,
    /// What is allocated of it.
    Map,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Read {
    pub form: Form,
    pub offset: u64,
    /// Not 0.
    pub len: u64,
}

impl Read {
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    pub fn bytes(offset: u64, len: u64) -> Self {
        Self {
            form: Form::Bytes,
            offset,
            len,
        }
    }
}

/// An allocated range, and what it holds in pieces behind one another (none under [`Form::Map`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extent {
    pub offset: u64,
    pub len: u64,
    pub pieces: Vec<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Bytes(Bytes),
    /// Ascending, not touching, within the range that was asked for.
    Extents(Vec<Extent>),
}

/// Reads with what came of each.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    found: Vec<(Read, Result<Value, IoError>)>,
    lacking: Vec<Read>,
}

impl Gathered {
    pub fn add(&mut self, read: Read, value: Result<Value, IoError>) {
        self.found.push((read, value));
    }

    /// It is not here, and can be brought.
    pub fn lack(&mut self, read: Read) {
        self.lacking.push(read);
    }

    /// What has to be brought before anything is executed with this.
    pub fn take_lacking(&mut self) -> Vec<Read> {
        std::mem::take(&mut self.lacking)
    }

    /// The first entry from `from` on, and round, for which `fits` holds: operations ask in the order of the plan.
    fn find(&self, from: &mut usize, fits: impl Fn(&Read) -> bool) -> Option<&Result<Value, IoError>> {
        let (before, behind) = self.found.split_at((*from).min(self.found.len()));
        let at = behind
            .iter()
            .position(|(r, _)| fits(r))
            .map(|at| before.len() + at)
            .or_else(|| before.iter().position(|(r, _)| fits(r)))?;
        *from = at + 1;
        self.found.get(at).map(|(_, value)| value)
    }

    /// Bytes of a range, which may be part of one that was gathered. None: it was not.
    pub fn bytes(&self, from: &mut usize, offset: u64, len: u64) -> Option<Result<Bytes, IoError>> {
        let end = offset.saturating_add(len);
        let fits = |r: &Read| r.form == Form::Bytes && r.offset <= offset && end <= r.end();
        let found = self.find(from, fits)?;
        let start = self.found.get(*from - 1).map_or(0, |(r, _)| r.offset);
        Some(match found {
            Ok(Value::Bytes(all)) => {
                let first = ((offset - start) as usize).min(all.len());
                Ok(all.slice(first..first.saturating_add(len as usize).min(all.len())))
            }
            Ok(Value::Extents(_)) => Err(IoError("extents came in place of bytes".into())),
            Err(e) => Err(e.clone()),
        })
    }

    /// What is allocated of exactly this range.
    pub fn extents(&self, from: &mut usize, read: Read) -> Option<Result<&[Extent], IoError>> {
        Some(match self.find(from, |r| *r == read)? {
            Ok(Value::Extents(all)) => Ok(all),
            Ok(Value::Bytes(_)) => Err(IoError("bytes came in place of extents".into())),
            Err(e) => Err(e.clone()),
        })
    }
}

/// Extents `(offset, length)` as a store tells them: cut to the range, those that touch as one.
pub(crate) fn merged(found: Vec<(u64, u64)>, offset: u64, len: u64) -> Vec<(u64, u64)> {
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (first, n) in found {
        let (first, end) = (first.max(offset), (first + n).min(offset + len));
        match merged.last_mut() {
            _ if first >= end => {}
            Some(last) if last.0 + last.1 == first => last.1 += end - first,
            _ => merged.push((first, end - first)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_what_was_gathered_are_found_in_any_order() {
        let mut g = Gathered::default();
        g.add(
            Read::bytes(100, 10),
            Ok(Value::Bytes(Bytes::from_static(b"0123456789"))),
        );
        g.add(Read::bytes(0, 4), Ok(Value::Bytes(Bytes::from_static(b"abcd"))));
        g.add(Read::bytes(50, 4), Err(IoError("bad".into())));
        // It ended before the range did.
        g.add(Read::bytes(200, 9), Ok(Value::Bytes(Bytes::from_static(b"xyz"))));
        let mut at = 0;
        let mut get = |offset, len| g.bytes(&mut at, offset, len).map(|r| r.ok());
        assert_eq!(get(0, 4), Some(Some(Bytes::from_static(b"abcd"))));
        assert_eq!(get(103, 4), Some(Some(Bytes::from_static(b"3456"))));
        assert_eq!(get(100, 10), Some(Some(Bytes::from_static(b"0123456789"))));
        assert_eq!(get(50, 1), Some(None));
        assert_eq!(get(201, 5), Some(Some(Bytes::from_static(b"yz"))));
        assert_eq!(get(205, 1), Some(Some(Bytes::new())));
        for (offset, len) in [(99, 2), (109, 2), (60, 1)] {
            assert_eq!(get(offset, len), None, "{offset}~{len}");
        }
    }

    #[test]
    fn extents_are_cut_and_joined() {
        let got = merged(vec![(0, 10), (10, 5), (20, 10), (40, 4)], 5, 20);
        assert_eq!(got, [(5, 10), (20, 5)]);
    }
}
