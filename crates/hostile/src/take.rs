//! Input taken apart, from its front.

/// Takes a little-endian number off the front; 0 when nothing is left.
pub fn take<const N: usize>(data: &mut &[u8]) -> usize {
    let n = N.min(data.len());
    let (head, rest) = data.split_at(n);
    *data = rest;
    head.iter().rev().fold(0, |v, b| v << 8 | usize::from(*b))
}

/// Takes at most `n` bytes off the front.
pub fn take_bytes<'a>(data: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (head, rest) = data.split_at(n.min(data.len()));
    *data = rest;
    head
}
