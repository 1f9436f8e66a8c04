//! What makes one state of a data object out of another one.

use bytes::Bytes;
use client::Operation;

/// Pieces of one object are at most about this many: one request carries all.
const PIECES_MAX: u64 = 128;
const GRAIN_MIN: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// There, with nothing in it.
    Create,
    Remove,
    Truncate(u64),
    Write(u64, Bytes),
    /// Offset and length.
    Zero(u64, u64),
}

impl Piece {
    pub fn add_to(self, op: Operation) -> Operation {
        match self {
            Self::Create => op.create(false),
            Self::Remove => op.remove(),
            Self::Truncate(size) => op.truncate(size),
            Self::Write(at, data) => op.write(at, data),
            Self::Zero(at, n) => op.zero(at, n),
        }
    }
}

pub fn is_zero(data: &[u8]) -> bool {
    data.iter().all(|b| *b == 0)
}

/// Without the zeros at its end.
pub fn trimmed(data: Bytes) -> Bytes {
    let end = data.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    data.slice(..end)
}

/// From `old` to `new` (None: no object; neither ends with zeros) of an object of `size` bytes at most.
pub fn between(old: Option<&Bytes>, new: Option<&Bytes>, size: u64) -> Vec<Piece> {
    let (had, data) = match (old, new) {
        (None, None) => return Vec::new(),
        (Some(_), None) => return vec![Piece::Remove],
        (None, Some(data)) if data.is_empty() => return vec![Piece::Create],
        (had, Some(data)) => (had.cloned().unwrap_or_default(), data),
    };
    let mut out = Vec::new();
    if data.len() < had.len() {
        out.push(Piece::Truncate(data.len() as u64));
    }
    let grain = (size / PIECES_MAX).max(GRAIN_MIN) as usize;
    let mut at = 0;
    while at < data.len() {
        let end = data.len().min(at + grain);
        let (before, block) = (
            had.get(at..had.len().min(end)).unwrap_or(&[]),
            data.slice(at..end),
        );
        let (same, rest) = block.split_at(before.len());
        if same != before || !is_zero(rest) {
            add(&mut out, at, block, data);
        }
        at = end;
    }
    out
}

/// One more block that is another one now; together with that before it, if they are alike.
fn add(out: &mut Vec<Piece>, at: usize, block: Bytes, data: &Bytes) {
    let (start, length) = (at as u64, block.len() as u64);
    match (out.last_mut(), is_zero(&block)) {
        (Some(Piece::Zero(from, n)), true) if *from + *n == start => *n += length,
        (_, true) => out.push(Piece::Zero(start, length)),
        (Some(Piece::Write(from, written)), false) if *from + written.len() as u64 == start => {
            *written = data.slice(*from as usize..at + block.len());
        }
        (_, false) => out.push(Piece::Write(start, block)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the OSD makes of it.
    fn applied(old: Option<&Bytes>, pieces: Vec<Piece>) -> Option<Bytes> {
        let mut object = old.map(|d| d.to_vec());
        for piece in pieces {
            let data = object.get_or_insert_default();
            match piece {
                Piece::Create => {}
                Piece::Remove => object = None,
                Piece::Truncate(size) => data.resize(size as usize, 0),
                Piece::Write(at, new) => {
                    let (at, end) = (at as usize, at as usize + new.len());
                    data.resize(data.len().max(end), 0);
                    data[at..end].copy_from_slice(&new);
                }
                Piece::Zero(at, n) => {
                    let end = data.len().min((at + n) as usize);
                    data[(at as usize).min(end)..end].fill(0);
                }
            }
        }
        object.map(|d| trimmed(d.into()))
    }

    fn blocks(of: &[u8]) -> Option<Bytes> {
        let all = of.iter().flat_map(|b| vec![*b; 4096]).collect::<Vec<u8>>();
        Some(trimmed(all.into()))
    }

    #[test]
    fn any_state_becomes_any_other_one() {
        let odd = Some(Bytes::from_static(b"odd"));
        let states = [
            None,
            blocks(&[]),
            blocks(&[1, 2, 3]),
            blocks(&[0, 2]),
            blocks(&[1, 0, 0, 4]),
            blocks(&[0, 0, 3, 4]),
            odd,
        ];
        for old in &states {
            for new in &states {
                let pieces = between(old.as_ref(), new.as_ref(), 1 << 22);
                assert_eq!(pieces.is_empty(), old == new, "{pieces:?}");
                assert_eq!(applied(old.as_ref(), pieces), *new);
            }
        }
    }

    #[test]
    fn only_what_differs_is_written() {
        let pieces = between(
            blocks(&[1, 2, 3, 4]).as_ref(),
            blocks(&[1, 5, 5, 4]).as_ref(),
            1 << 22,
        );
        assert_eq!(pieces, [Piece::Write(4096, Bytes::from(vec![5; 8192]))]);
        let pieces = between(None, blocks(&[0, 0, 3]).as_ref(), 1 << 22);
        assert_eq!(pieces, [Piece::Write(8192, Bytes::from(vec![3; 4096]))]);
    }
}
