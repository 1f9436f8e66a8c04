//! Attributes, and omap with its header.

use super::*;
use crate::store::{ObjectReads, OmapPage};
use std::ops::Bound;

pub fn run<S: Subject>(s: &mut S) {
    missing(s);
    attributes(s);
    rows(s);
    header(s);
    ranges_removed(s);
    pages(s);
    pages_above(s);
    many(s);
}

pub fn check_attrs(s: &mut impl ObjectReads, o: &ObjectId, expected: &[(Bytes, Bytes)]) {
    assert_eq!(s.attrs(o).unwrap(), expected);
    let sizes: Vec<_> = expected
        .iter()
        .map(|(n, v)| (n.clone(), v.len() as u64))
        .collect();
    assert_eq!(s.attr_sizes(o).unwrap(), sizes);
    for (n, v) in expected {
        assert_eq!(s.attr(o, n).unwrap().as_ref(), Some(v));
    }
}

/// The same page, by the way that copies nothing; it ends behind `enough` rows (1 at least).
fn each_row(
    s: &mut impl ObjectReads,
    o: &ObjectId,
    from: Bound<&[u8]>,
    (rows, bytes): (usize, usize),
    enough: usize,
) -> OmapPage {
    let mut page = OmapPage::default();
    let mut take = |k: &[u8], v: &[u8]| {
        let row = (Bytes::copy_from_slice(k), Bytes::copy_from_slice(v));
        page.rows.push(row);
        page.rows.len() < enough
    };
    let more = s.omap_each(o, from, rows, bytes, &mut take).unwrap();
    OmapPage { more, ..page }
}

/// The same page whole, and ended early.
fn check_each(
    s: &mut impl ObjectReads,
    o: &ObjectId,
    from: Bound<&[u8]>,
    bounds: (usize, usize),
    page: &OmapPage,
) {
    assert_eq!(each_row(s, o, from, bounds, usize::MAX), *page);
    for enough in 1..=page.rows.len().min(4) {
        let wanted = OmapPage {
            rows: page.rows[..enough].to_vec(),
            more: false,
        };
        assert_eq!(each_row(s, o, from, bounds, enough), wanted, "{from:?} {enough}");
    }
}

/// Whole, in pages of one row, one by one, and as they are counted.
pub fn check_rows(s: &mut impl ObjectReads, o: &ObjectId, expected: &[(Bytes, Bytes)]) {
    let all = s.omap_range(o, Bound::Unbounded, usize::MAX, usize::MAX).unwrap();
    assert_eq!(all.rows, expected);
    assert!(!all.more);
    check_each(s, o, Bound::Unbounded, (usize::MAX, usize::MAX), &all);
    let mut found: Vec<(Bytes, Bytes)> = Vec::new();
    loop {
        let last = found.last().map(|(k, _)| k.clone());
        let from = last
            .as_ref()
            .map_or(Bound::Unbounded, |k| Bound::Excluded(&k[..]));
        let page = s.omap_range(o, from, 3, usize::MAX).unwrap();
        assert_eq!(each_row(s, o, from, (3, usize::MAX), usize::MAX), page);
        let before = found.len();
        found.extend(page.rows);
        assert_eq!(page.more, found.len() < expected.len(), "behind {before} rows");
        if !page.more {
            break;
        }
        assert_eq!(found.len(), before + 3);
    }
    assert_eq!(found, expected);
    let keys: Vec<Bytes> = expected.iter().rev().map(|(k, _)| k.clone()).collect();
    let reversed: Vec<_> = expected.iter().rev().cloned().collect();
    assert_eq!(
        s.omap_get(o, &keys).unwrap(),
        reversed,
        "in the order that was asked for"
    );
    let stat = s.stat(o).unwrap().unwrap();
    let bytes: usize = expected.iter().map(|(k, v)| k.len() + v.len()).sum();
    assert_eq!(
        (stat.omap_keys, stat.omap_bytes),
        (expected.len() as u64, bytes as u64)
    );
}

fn missing<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let (oid, name) = (oid("a"), bytes("n"));
    let keys = vec![bytes("k")];
    for op in [
        set_attrs("a", [("n", "v")]),
        Op::RemoveAttr {
            oid: oid.clone(),
            name,
        },
        Op::RemoveAttrs { oid: oid.clone() },
        set_rows("a", [("k", "v")]),
        Op::OmapRemove {
            oid: oid.clone(),
            keys: keys.clone(),
        },
        Op::OmapRemoveRange {
            oid: oid.clone(),
            first: bytes("a"),
            last: bytes("b"),
        },
        Op::OmapClear { oid: oid.clone() },
        set_header("a", "h"),
    ] {
        case.refused([op], Errno::ENOENT);
    }
    case.holds(|s| {
        assert_eq!(s.stat(&oid).unwrap(), None);
        assert_eq!(s.attr(&oid, b"n").unwrap(), None);
        assert!(s.attrs(&oid).unwrap().is_empty() && s.attr_sizes(&oid).unwrap().is_empty());
        assert!(s.omap_header(&oid).unwrap().is_empty());
        assert!(s.omap_get(&oid, &keys).unwrap().is_empty());
        let page = s.omap_range(&oid, Bound::Unbounded, 9, 999).unwrap();
        assert_eq!(page, OmapPage::default());
        check_each(s, &oid, Bound::Unbounded, (9, 999), &page);
    });
}

fn attributes<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let a = oid("a");
    case.submit([
        touch("a"),
        set_attrs("a", [("b", "2"), ("a", "1"), ("c", ""), ("b", "3")]),
    ]);
    case.holds(|s| {
        check_attrs(s, &a, &pairs([("a", "1"), ("b", "3"), ("c", "")]));
        assert_eq!(s.attr(&a, b"d").unwrap(), None);
    });
    // Others stay as they are; one that is not there can be removed.
    let gone = |name| Op::RemoveAttr {
        oid: oid("a"),
        name: bytes(name),
    };
    let large = "x".repeat(100_000);
    case.submit([
        gone("a"),
        gone("z"),
        set_attrs("a", [("c", "4"), ("large", &large)]),
    ]);
    case.holds(|s| check_attrs(s, &a, &pairs([("b", "3"), ("c", "4"), ("large", &large)])));
    case.submit([gone("large"), set_attrs("a", [("d", "5")])]);
    case.holds(|s| check_attrs(s, &a, &pairs([("b", "3"), ("c", "4"), ("d", "5")])));
    case.submit([set_rows("a", [("k", "v")]), Op::RemoveAttrs { oid: a.clone() }]);
    case.holds(|s| {
        check_attrs(s, &a, &[]);
        check_rows(s, &a, &pairs([("k", "v")]));
    });
}

fn rows<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let a = oid("a");
    case.submit([
        touch("a"),
        set_rows("a", [("b", "2"), ("a", "1"), ("", "none"), ("c", ""), ("b", "3")]),
    ]);
    case.holds(|s| {
        check_rows(s, &a, &pairs([("", "none"), ("a", "1"), ("b", "3"), ("c", "")]));
        assert!(s.attrs(&a).unwrap().is_empty());
        let keys = ["z", "c", "x", "a"].map(bytes);
        assert_eq!(s.omap_get(&a, &keys).unwrap(), pairs([("c", ""), ("a", "1")]));
    });
    let keys = ["a", "z", ""].map(bytes).to_vec();
    case.submit([
        Op::OmapRemove { oid: a.clone(), keys },
        set_rows("a", [("d", "5"), ("c", "longer")]),
    ]);
    case.holds(|s| check_rows(s, &a, &pairs([("b", "3"), ("c", "longer"), ("d", "5")])));
    // Removed, and made anew: nothing is left of it.
    case.submit([
        set_header("a", "h"),
        set_attrs("a", [("n", "v")]),
        remove("a"),
        touch("a"),
    ]);
    case.holds(|s| {
        check_rows(s, &a, &[]);
        check_attrs(s, &a, &[]);
        assert!(s.omap_header(&a).unwrap().is_empty());
    });
}

fn header<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let a = oid("a");
    let large = "h".repeat(50_000);
    case.submit([touch("a"), set_header("a", "first")]);
    case.holds(|s| assert_eq!(s.omap_header(&a).unwrap(), "first"));
    case.submit([set_header("a", &large), set_rows("a", [("k", "v")])]);
    case.holds(|s| {
        assert_eq!(s.omap_header(&a).unwrap(), large);
        check_rows(s, &a, &pairs([("k", "v")]));
    });
    case.submit([Op::OmapClear { oid: a.clone() }]);
    case.holds(|s| {
        assert_eq!(s.omap_header(&a).unwrap(), "", "it goes with the rows");
        check_rows(s, &a, &[]);
    });
    case.submit([set_rows("a", [("k", "2")]), set_header("a", "")]);
    case.holds(|s| check_rows(s, &a, &pairs([("k", "2")])));
}

fn ranges_removed<S: Subject>(s: &mut S) {
    let all = [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")];
    for (first, last, left) in [
        ("b", "d", pairs([("a", "1"), ("d", "4")])),
        ("", "a", pairs(all)),
        ("", "b", pairs([("b", "2"), ("c", "3"), ("d", "4")])),
        ("bb", "zz", pairs([("a", "1"), ("b", "2")])),
        // Nothing lies between these.
        ("c", "c", pairs(all)),
        ("d", "b", pairs(all)),
        ("a", "", pairs(all)),
    ] {
        let mut case = Case::new(s);
        case.submit([touch("a"), set_rows("a", all), touch("b"), set_rows("b", all)]);
        case.age();
        let (first, last) = (bytes(first), bytes(last));
        case.submit([Op::OmapRemoveRange {
            oid: oid("a"),
            first,
            last,
        }]);
        case.holds(|s| {
            check_rows(s, &oid("a"), &left);
            check_rows(s, &oid("b"), &pairs(all));
        });
    }
}

fn pages<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    case.submit([
        touch("a"),
        set_rows("a", [("a", "1"), ("b", "22"), ("c", "333"), ("d", "4")]),
    ]);
    check_pages(&mut case);
}

/// The same rows above others, which they hide.
fn pages_above<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let below = [
        ("a", "old"),
        ("a0", "gone"),
        ("b", "old"),
        ("bb", "gone"),
        ("d", "4"),
        ("e", "gone"),
    ];
    case.submit([touch("a"), set_rows("a", below)]);
    case.age();
    let keys = ["a0", "bb", "e"].map(bytes).to_vec();
    case.submit([
        set_rows("a", [("a", "1"), ("b", "22"), ("c", "333")]),
        Op::OmapRemove { oid: oid("a"), keys },
    ]);
    check_pages(&mut case);
}

fn check_pages<S: Subject>(case: &mut Case<'_, S>) {
    let all = pairs([("a", "1"), ("b", "22"), ("c", "333"), ("d", "4")]);
    case.holds(|s| {
        let mut page = |from: Bound<&'static [u8]>, rows, bytes, expected: std::ops::Range<usize>| {
            let found = s.omap_range(&oid("a"), from, rows, bytes).unwrap();
            assert_eq!(found.rows, all[expected.clone()], "{from:?} {rows} {bytes}");
            assert_eq!(found.more, expected.end < 4, "{from:?} {rows} {bytes}");
            check_each(s, &oid("a"), from, (rows, bytes), &found);
        };
        use Bound::*;
        page(Included(b"b"), 9, 999, 1..4);
        page(Excluded(b"b"), 9, 999, 2..4);
        page(Included(b"bb"), 9, 999, 2..4);
        page(Excluded(b"bb"), 9, 999, 2..4);
        page(Excluded(b""), 9, 999, 0..4);
        page(Included(b"c"), 1, 999, 2..3);
        page(Unbounded, 3, 999, 0..3);
        page(Unbounded, 4, 999, 0..4);
        page(Excluded(b"d"), 9, 999, 4..4);
        // One row at least.
        page(Unbounded, 9, 1, 0..1);
        page(Unbounded, 0, 999, 0..1);
        page(Excluded(b"b"), 9, 0, 2..3);
        // Two and three bytes fit, four more do not.
        page(Unbounded, 9, 5, 0..2);
    });
}

/// Rows of several ages, among them removed ones.
fn many<S: Subject>(s: &mut S) {
    let key = |i: usize| Bytes::from(format!("{i:05}"));
    let rows = |range: std::ops::Range<usize>, step: usize, value: &'static str| Op::OmapSet {
        oid: oid("a"),
        entries: range.step_by(step).map(|i| (key(i), bytes(value))).collect(),
    };
    let mut case = Case::new(s);
    case.submit([touch("a"), rows(0..1500, 1, "old")]);
    case.age();
    let range = Op::OmapRemoveRange {
        oid: oid("a"),
        first: key(300),
        last: key(1200),
    };
    case.submit([range, rows(0..1500, 5, "new")]);
    let keys = (0..1500).step_by(50).map(key).collect();
    case.submit([Op::OmapRemove { oid: oid("a"), keys }]);
    let left = (0..1500).filter(|i| i % 50 != 0 && (i % 5 == 0 || !(300..1200).contains(i)));
    let value = |i: usize| bytes(if i % 5 == 0 { "new" } else { "old" });
    let expected: Vec<_> = left.map(|i| (key(i), value(i))).collect();
    case.holds(|s| check_rows(s, &oid("a"), &expected));
}
