//! The checksum of a disk's contents: over all its bytes, holes as zeros, whatever form they are kept in.
//!
//! The disk is cut into pieces of 4 MiB (the last one may be shorter). Each piece's SHA-256 in lowercase hexadecimal is a line, and
//! the SHA-256 of all these lines is the checksum. So holes cost next to nothing, pieces may come in any order, a difference is
//! known by its place, and anybody can compute it: `split -b 4M --filter='sha256sum | cut -c1-64' FILE | sha256sum`.

use aws_lc_rs::digest::{Context, SHA256, digest};
use std::collections::BTreeMap;

pub const PIECE: u64 = 4 << 20;
/// How it is called where it is printed.
pub const NAME: &str = "sha256-4M";

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

pub fn is_zero(data: &[u8]) -> bool {
    data.chunks(ZEROS.len()).all(|c| *c == ZEROS[..c.len()])
}

/// Of one piece that is not all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

impl Hash {
    pub fn of(data: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, data).as_ref());
        Self(hash)
    }

    fn of_zeros(length: u64) -> Self {
        Self::of(&vec![0; length as usize])
    }

    /// Of a piece of `length` bytes of which `data` came, and then only zeros; None: all are zeros.
    pub fn of_piece(data: &[u8], length: u64) -> Option<Self> {
        if is_zero(data) {
            return None;
        }
        let mut context = Context::new(&SHA256);
        context.update(data);
        let mut left = (length as usize).saturating_sub(data.len());
        while left > 0 {
            let n = left.min(ZEROS.len());
            context.update(&ZEROS[..n]);
            left -= n;
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(context.finish().as_ref());
        Some(Self(hash))
    }

    fn hex(self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// What is known of a disk of `size` bytes; pieces that were not noted are zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    size: u64,
    pieces: BTreeMap<u64, Hash>,
}

impl Digest {
    pub fn new(size: u64) -> Self {
        Self {
            size,
            pieces: BTreeMap::new(),
        }
    }

    pub fn note(&mut self, piece: u64, hash: Option<Hash>) {
        if let Some(hash) = hash {
            self.pieces.insert(piece, hash);
        }
    }

    /// Bytes of the pieces that are not zeros.
    pub fn data(&self) -> u64 {
        self.pieces.keys().map(|p| length(self.size, *p)).sum()
    }

    /// Where the two differ first.
    pub fn difference(&self, other: &Self) -> Option<u64> {
        let all = self.pieces.keys().chain(other.pieces.keys());
        let differ = all.filter(|p| self.pieces.get(p) != other.pieces.get(p));
        differ.min().map(|p| p * PIECE)
    }

    pub fn text(&self) -> String {
        let mut lines = Context::new(&SHA256);
        let line = |hash: Hash| hash.hex() + "\n";
        let (whole, rest) = (line(Hash::of_zeros(PIECE)), self.size % PIECE);
        for piece in 0..self.size.div_ceil(PIECE) {
            match self.pieces.get(&piece) {
                Some(hash) => lines.update(line(*hash).as_bytes()),
                None if length(self.size, piece) == PIECE => lines.update(whole.as_bytes()),
                None => lines.update(line(Hash::of_zeros(rest)).as_bytes()),
            }
        }
        let all = lines.finish();
        all.as_ref().iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// Bytes of a piece of a disk of `size` bytes.
pub fn length(size: u64, piece: u64) -> u64 {
    size.saturating_sub(piece * PIECE).min(PIECE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with `truncate -s 5M f; printf abc | dd of=f bs=1 seek=4194304 conv=notrunc` and the line above.
    #[test]
    fn as_coreutils_compute_it() {
        let mut digest = Digest::new(5 << 20);
        digest.note(0, Hash::of_piece(&[0; 100], PIECE));
        digest.note(1, Hash::of_piece(b"abc", 1 << 20));
        assert_eq!(
            digest.text(),
            "94685705215796a90cd742fdaadf66c19f3086c28de9bcf6c3214757cb3570f6"
        );
        assert_eq!(digest.data(), 1 << 20);
        let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::new(0).text(), nothing);
    }

    #[test]
    fn zeros_that_are_missing_count() {
        let whole = [&b"abc"[..], &[0; 997]].concat();
        assert_eq!(Hash::of_piece(b"abc", 1000), Some(Hash::of(&whole)));
        assert_eq!(Hash::of_piece(&[0; 1000], 1000), None);
        assert_eq!(Hash::of_piece(&[], 1000), None);
    }

    #[test]
    fn differences_have_places() {
        let (mut a, b) = (Digest::new(3 * PIECE), Digest::new(3 * PIECE));
        assert_eq!(a.difference(&b), None);
        a.note(2, Hash::of_piece(b"x", PIECE));
        assert_eq!(
            (a.difference(&b), b.difference(&a)),
            (Some(2 * PIECE), Some(2 * PIECE))
        );
    }
}
