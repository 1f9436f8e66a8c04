//! What a layout promises: every byte of an object has one place, and shards are no longer than what lies on them.

#![allow(clippy::unwrap_used)]

use erasure::{Code, Layout};
use proptest::prelude::*;

fn layout() -> impl Strategy<Value = Layout> {
    (1..=8usize, 1..=4usize, 1..=40u64).prop_map(|(k, m, unit)| Layout::new(k, m, unit).unwrap())
}

/// Bytes that tell where they belong.
fn content(len: u64) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8 + 1).collect()
}

#[test]
fn an_object_of_two_and_a_half_stripes() {
    // Stripes of 3 * 4 bytes; 30 bytes end in the second unit of the third stripe.
    let l = Layout::new(3, 2, 4).unwrap();
    assert_eq!(l.stripe(), 12);
    assert_eq!(l.place(0), (0, 0));
    assert_eq!(l.place(5), (1, 1));
    assert_eq!(l.place(29), (1, 9));
    assert_eq!(l.offset(1, 9), Some(29));
    assert_eq!(l.offset(3, 9), None, "parity");
    assert_eq!(l.stripes(11, 2), 0..2);
    assert_eq!(l.stripes(12, 12), 1..2);
    assert_eq!(l.stripes(30, 0), 2..2);
    assert_eq!(l.extent(&(1..3)), (12, 24));
    assert_eq!(l.extent_on_shard(&(1..3)), (4, 8));
    let sizes: Vec<u64> = (0..5).map(|s| l.shard_size(s, 30)).collect();
    assert_eq!(sizes, [12, 10, 8, 12, 12]);
    let small: Vec<u64> = (0..5).map(|s| l.shard_size(s, 3)).collect();
    assert_eq!(
        small,
        [3, 0, 0, 3, 3],
        "a small object is as long on parity as it is"
    );
}

#[test]
fn what_makes_no_layout_is_refused() {
    assert!(Layout::new(0, 1, 4096).is_err());
    assert!(Layout::new(2, 0, 4096).is_err());
    assert!(Layout::new(2, 1, 0).is_err());
    assert!(Layout::new(2, 1, 1 << 40).is_err());
    assert!(Layout::new(33, 1, 4096).is_err());
    let l = Layout::new(2, 1, 4).unwrap();
    assert!(l.join(&[b"abcd"]).is_err());
    assert!(l.join(&[b"abcd", b"abc"]).is_err());
    assert!(l.join(&[b"abc", b"abc"]).is_err(), "units are whole");
}

proptest! {
    #[test]
    fn every_byte_has_one_place(l in layout(), offset in 0..10_000u64) {
        let (shard, at) = l.place(offset);
        prop_assert!(shard < l.k());
        prop_assert_eq!(l.offset(shard, at), Some(offset));
    }

    #[test]
    fn pieces_are_the_range(l in layout(), offset in 0..1000u64, len in 0..1000u64) {
        let mut at = offset;
        for p in l.pieces(offset, len) {
            prop_assert_eq!(p.offset, at);
            prop_assert!(p.len > 0);
            prop_assert_eq!((p.shard, p.at), l.place(at));
            prop_assert_eq!((p.shard, p.at + p.len - 1), l.place(at + p.len - 1));
            at += p.len;
        }
        prop_assert_eq!(at, offset + len);
    }

    #[test]
    fn stripes_are_those_of_the_bytes(l in layout(), offset in 0..1000u64, len in 1..1000u64) {
        let stripes = l.stripes(offset, len);
        prop_assert_eq!(stripes.start, offset / l.stripe());
        prop_assert_eq!(stripes.end, (offset + len - 1) / l.stripe() + 1);
        let (from, bytes) = l.extent(&stripes);
        prop_assert!(from <= offset && offset + len <= from + bytes);
    }

    /// Sizes of shards: each byte lies within its shard, and nothing but zeros is cut off, also of parity.
    #[test]
    fn shards_hold_what_is_not_zero(l in layout(), size in 0..1000u64) {
        let data = l.cut(&content(size));
        let units: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let code = Code::reed_solomon(l.k(), l.m()).unwrap();
        let parity = code.encode(&units).unwrap();
        for (shard, column) in data.iter().chain(&parity).enumerate() {
            let end = l.shard_size(shard, size) as usize;
            prop_assert!(end <= column.len());
            prop_assert!(column[end..].iter().all(|b| *b == 0), "shard {}", shard);
            // Data shards end with a byte of the object.
            prop_assert!(shard >= l.k() || end == 0 || column[end - 1] != 0);
        }
        let mut all = l.join(&units).unwrap();
        all.truncate(size as usize);
        prop_assert_eq!(all, content(size));
    }
}
