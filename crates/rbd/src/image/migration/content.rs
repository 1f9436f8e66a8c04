//! What an object holds at a moment, and what makes the next state of one. Pure.

use bytes::{Bytes, BytesMut};
use client::Operation;

/// Differences are looked for in blocks of so many bytes at least; an object has at most [`BLOCKS_MAX`].
const BLOCK_MIN: usize = 4096;
const BLOCKS_MAX: usize = 512;

/// Without zeros at the end. None: there is no object, or none is needed.
pub(super) type Content = Option<Bytes>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Remove,
    /// Without data.
    Create,
    Truncate(u64),
    Write(u64, Bytes),
    Zero(u64, u64),
}

impl Piece {
    pub fn add_to(self, op: Operation) -> Operation {
        match self {
            Self::Remove => op.remove(),
            Self::Create => op.create(false),
            Self::Truncate(size) => op.truncate(size),
            Self::Write(at, data) => op.write(at, data),
            Self::Zero(at, n) => op.zero(at, n),
        }
    }
}

/// `data` as it is kept. `hides`: an object without data is not the same as none, since a parent would show through.
pub(super) fn kept(data: &Bytes, is_there: bool, hides: bool) -> Content {
    let end = data.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    let needed = is_there && (end > 0 || hides);
    needed.then(|| data.slice(..end))
}

/// What makes `after` of an object that holds `before`, in an object of `size` bytes.
pub(super) fn pieces(before: &Content, after: &Content, size: u64) -> Vec<Piece> {
    match (before, after) {
        (None, None) => Vec::new(),
        (Some(_), None) => vec![Piece::Remove],
        (None, Some(data)) => match differing(&Bytes::new(), data, size) {
            none if none.is_empty() => vec![Piece::Create],
            writes => writes,
        },
        (Some(old), Some(new)) => {
            let mut out = Vec::new();
            if new.len() < old.len() {
                out.push(Piece::Truncate(new.len() as u64));
            }
            let old = old.slice(..old.len().min(new.len()));
            out.extend(differing(&old, new, size));
            out
        }
    }
}

/// Runs of blocks of `new` that are not as in `old`, which has zeros behind its end; zeros are no data.
pub(super) fn differing(old: &Bytes, new: &Bytes, size: u64) -> Vec<Piece> {
    let block = BLOCK_MIN.max(size as usize / BLOCKS_MAX);
    let mut out: Vec<Piece> = Vec::new();
    let (mut start, mut at) = (None, 0);
    // Whether the block at `at` is to be zeroed (true) or written; None: it is as it was.
    let kind = |at: usize| {
        let of_new = &new[at..new.len().min(at + block)];
        let of_old = old.get(at..old.len().min(at + block)).unwrap_or_default();
        let (same, rest) = of_new.split_at(of_old.len().min(of_new.len()));
        let is_same = same == of_old && rest.iter().all(|b| *b == 0);
        (!is_same).then(|| of_new.iter().all(|b| *b == 0))
    };
    while at <= new.len() {
        let now = if at < new.len() { kind(at) } else { None };
        if let Some((from, is_zero)) = start
            && now != Some(is_zero)
        {
            let end = at.min(new.len());
            out.push(match is_zero {
                true => Piece::Zero(from as u64, (end - from) as u64),
                false => Piece::Write(from as u64, new.slice(from..end)),
            });
            start = None;
        }
        if start.is_none() {
            start = now.map(|is_zero| (at, is_zero));
        }
        if at == new.len() {
            break;
        }
        at = new.len().min(at + block);
    }
    out
}

/// Made of the parts one behind the other.
pub(super) fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1
        && let Some(one) = parts.pop()
    {
        return one;
    }
    let mut all = BytesMut::new();
    parts.iter().for_each(|p| all.extend_from_slice(p));
    all.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 22;
    const B: usize = 8192;

    /// Blocks of these bytes, without zeros at the end.
    fn content(blocks: &[u8]) -> Content {
        let data: Vec<u8> = blocks.iter().flat_map(|b| vec![*b; B]).collect();
        kept(&data.into(), true, true)
    }

    fn applied(before: &Content, pieces: &[Piece]) -> Content {
        let mut now: Option<Vec<u8>> = before.as_ref().map(|b| b.to_vec());
        for piece in pieces {
            let object = now.get_or_insert_with(Vec::new);
            match piece {
                Piece::Remove => now = None,
                Piece::Create => {}
                Piece::Truncate(n) => object.resize(*n as usize, 0),
                Piece::Write(at, data) => {
                    let end = *at as usize + data.len();
                    object.resize(object.len().max(end), 0);
                    object[*at as usize..end].copy_from_slice(data);
                }
                Piece::Zero(at, n) => {
                    let end = object.len().min((at + n) as usize);
                    object[*at as usize..end].fill(0);
                }
            }
        }
        now.and_then(|o| kept(&o.into(), true, true))
    }

    #[test]
    fn pieces_make_the_next_state() {
        let states = [
            None,
            content(&[]),
            content(&[1]),
            content(&[1, 2, 3]),
            content(&[1, 0, 3, 0, 4]),
            content(&[0, 0, 3]),
            content(&[5, 5, 5, 0, 0, 0, 7]),
        ];
        for before in &states {
            for after in &states {
                let made = pieces(before, after, SIZE);
                assert_eq!(&applied(before, &made), after, "{made:?}");
                assert_eq!(made.is_empty(), before == after, "{made:?}");
            }
        }
    }

    #[test]
    fn only_what_differs_is_written_and_zeros_are_no_data() {
        let (b, data) = (B as u64, |byte| Bytes::from(vec![byte; B]));
        let made = pieces(&content(&[1, 2, 3]), &content(&[1, 0, 4]), SIZE);
        assert_eq!(made, [Piece::Zero(b, b), Piece::Write(2 * b, data(4))]);
        let made = pieces(&None, &content(&[0, 0, 9]), SIZE);
        assert_eq!(made, [Piece::Write(2 * b, data(9))]);
        assert_eq!(pieces(&content(&[1]), &None, SIZE), [Piece::Remove]);
        assert_eq!(pieces(&None, &content(&[]), SIZE), [Piece::Create]);
    }

    #[test]
    fn zeros_are_kept_only_where_they_hide_something() {
        let zeros = Bytes::from_static(&[0; 9]);
        for (is_there, hides, kept_) in [
            (true, true, Some(0)),
            (true, false, None),
            (false, true, None),
            (false, false, None),
        ] {
            assert_eq!(kept(&zeros, is_there, hides).map(|b| b.len()), kept_);
        }
        assert_eq!(
            kept(&Bytes::from_static(b"ab\0"), true, false),
            Some(Bytes::from_static(b"ab"))
        );
    }
}
