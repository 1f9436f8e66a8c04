//! What a code promises: any k shards give all the others, a change of data changes parity as a new encoding does, and the bytes
//! are those of another implementation.

#![allow(clippy::unwrap_used)]

use erasure::{Code, K_MAX, Kernel, M_MAX, Matrix, Unfit};
use proptest::prelude::*;

/// Bytes that are the same in every run.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// All shards' units.
fn encoded(code: &Code, seed: u64, len: usize) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..code.k()).map(|n| noise(seed + n as u64, len)).collect();
    let data: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    let parity = code.encode(&data).unwrap();
    all.extend(parity);
    all
}

/// What is left gives what is lost, byte for byte.
fn check_loss(code: &Code, all: &[Vec<u8>], lost: impl Fn(usize) -> bool) {
    let present: Vec<(usize, &[u8])> = (0..all.len())
        .filter(|n| !lost(*n))
        .map(|n| (n, all[n].as_slice()))
        .collect();
    let wanted: Vec<usize> = (0..all.len()).collect();
    let got = code.rebuild(&present, &wanted).unwrap();
    assert_eq!(got, all, "k {}, m {}", code.k(), code.m());
}

#[test]
fn every_loss_of_small_codes_is_made_good() {
    for k in 1..=6 {
        for m in 1..=4 {
            let code = Code::reed_solomon(k, m).unwrap();
            let all = encoded(&code, (k * 100 + m) as u64, 37);
            for mask in 0u32..1 << (k + m) {
                let lost = |n: usize| mask >> n & 1 == 1;
                if mask.count_ones() as usize <= m {
                    check_loss(&code, &all, lost);
                    continue;
                }
                let present: Vec<usize> = (0..k + m).filter(|n| !lost(*n)).collect();
                let have = present.len();
                let too_few = Err(Unfit::TooFew { have, want: k });
                assert_eq!(code.recipe(&present, &[0]), too_few, "{mask:b}");
            }
        }
    }
}

#[test]
fn every_code_survives_the_loss_of_its_first_and_of_its_last() {
    for k in 1..=K_MAX {
        for m in 1..=M_MAX {
            let code = Code::reed_solomon(k, m).unwrap();
            let all = encoded(&code, (k * 1000 + m) as u64, 3);
            check_loss(&code, &all, |n| n < m);
            check_loss(&code, &all, |n| n >= k);
        }
    }
}

#[test]
fn what_makes_no_code_is_refused() {
    for (k, m) in [(0, 1), (1, 0), (K_MAX + 1, 1), (1, M_MAX + 1)] {
        assert_eq!(Code::reed_solomon(k, m), Err(Unfit::Size { k, m }));
    }
    let code = Code::reed_solomon(2, 1).unwrap();
    let shards = 3;
    assert_eq!(
        code.recipe(&[0, 1], &[3]),
        Err(Unfit::NoSuchShard { shard: 3, shards })
    );
    assert_eq!(code.encode(&[b"ab"]), Err(Unfit::Count { got: 1, want: 2 }));
    assert_eq!(code.encode(&[b"ab", b"c"]), Err(Unfit::Lengths));
    let mut parity = [0; 2];
    let wrong = |shard| Err(Unfit::NoSuchShard { shard, shards });
    assert_eq!(code.change(2, b"ab", b"cd", 2, &mut parity), wrong(2));
    assert_eq!(code.change(0, b"ab", b"cd", 1, &mut parity), wrong(1));
    assert_eq!(code.change(0, b"ab", b"c", 2, &mut parity), Err(Unfit::Lengths));
    // The same shard twice is one.
    assert_eq!(
        code.recipe(&[1, 1], &[0]),
        Err(Unfit::TooFew { have: 2, want: 2 })
    );
}

/// Two groups of two, each with a parity of its own, and one over all: a lost shard is made of its own group.
#[test]
fn a_code_may_be_of_any_rows() {
    let rows = Matrix::new(
        4,
        vec![
            1, 0, 0, 0, /**/ 0, 1, 0, 0, /**/ 0, 0, 1, 0, /**/ 0, 0, 0, 1, /**/ 1, 1, 0,
            0, //
            0, 0, 1, 1, /**/ 1, 2, 4, 8,
        ],
    );
    let code = Code::of(rows.unwrap()).unwrap();
    assert_eq!((code.k(), code.m()), (4, 3));
    let all = encoded(&code, 9, 50);
    check_loss(&code, &all, |n| [0, 3].contains(&n));
    check_loss(&code, &all, |n| [2, 3, 4].contains(&n));
    // A whole group, with its parity: the other parities say too little.
    assert!(code.recipe(&[2, 3, 5, 6], &[0]).is_err());
    let bad = Matrix::new(2, vec![1, 0, 1, 1, 1, 1]).unwrap();
    assert_eq!(Code::of(bad), Err(Unfit::NotSystematic));
}

#[test]
fn bytes_are_those_of_another_implementation() {
    use reed_solomon_erasure::galois_8::ReedSolomon;
    for (k, m) in [(1, 1), (2, 1), (3, 2), (4, 2), (8, 3), (10, 4), (32, 16)] {
        let code = Code::reed_solomon(k, m).unwrap();
        let all = encoded(&code, k as u64, 100);
        let mut theirs: Vec<Vec<u8>> = all.clone();
        theirs[k..].iter_mut().for_each(|p| p.fill(0));
        ReedSolomon::new(k, m).unwrap().encode(&mut theirs).unwrap();
        assert_eq!(all, theirs, "k {k}, m {m}");
        // And they rebuild what we encoded.
        let lost = |n: usize| n % 3 == 0 && n / 3 < m;
        let mut left: Vec<Option<Vec<u8>>> = all
            .iter()
            .enumerate()
            .map(|(n, unit)| (!lost(n)).then(|| unit.clone()))
            .collect();
        ReedSolomon::new(k, m).unwrap().reconstruct(&mut left).unwrap();
        let left: Vec<Vec<u8>> = left.into_iter().map(Option::unwrap).collect();
        assert_eq!(left, all, "k {k}, m {m}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_loss_that_leaves_k_is_made_good(
        k in 1..=K_MAX,
        m in 1..=M_MAX,
        len in 0..200usize,
        order in Just((0..K_MAX + M_MAX).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let code = Code::reed_solomon(k, m).unwrap();
        let all = encoded(&code, (k + m + len) as u64, len);
        let lost: Vec<usize> = order.into_iter().filter(|n| *n < k + m).take(m).collect();
        check_loss(&code, &all, |n| lost.contains(&n));
    }

    #[test]
    fn a_change_of_data_changes_parity_as_a_new_encoding_does(
        k in 1..=8usize,
        m in 1..=4usize,
        which in 0..8usize,
        len in 1..100usize,
    ) {
        let code = Code::reed_solomon(k, m).unwrap();
        let (before, which) = (encoded(&code, 1, len), which % k);
        let mut after = before.clone();
        after[which] = noise(77, len);
        let data: Vec<&[u8]> = after[..k].iter().map(Vec::as_slice).collect();
        let want = code.encode(&data).unwrap();
        for shard in k..k + m {
            let mut parity = before[shard].clone();
            code.change(which, &before[which], &after[which], shard, &mut parity).unwrap();
            prop_assert_eq!(&parity, &want[shard - k]);
        }
    }

    /// Also over blocks, which long units are worked on in.
    #[test]
    fn every_kernel_encodes_the_same(k in 1..=8usize, m in 1..=4usize, len in 0..40_000usize) {
        let code = Code::reed_solomon(k, m).unwrap();
        let portable = code.clone().with_kernel(Kernel::PORTABLE);
        prop_assert_eq!(encoded(&code, 5, len), encoded(&portable, 5, len));
    }
}
