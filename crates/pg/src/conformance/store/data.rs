//! Data: writes, holes, sizes, and what reads of it show.

use super::*;
use crate::store::ObjectReads;

/// What a store may keep data in. Borders between blocks are where it goes wrong.
pub const BLOCK: u64 = 4096;

pub fn run<S: Subject>(s: &mut S) {
    missing(s);
    made(s);
    written(s);
    nothing_written(s);
    zeroed(s);
    truncated(s);
    allocated(s);
    large(s);
}

/// The object's whole data, read in each of the ways there are.
pub fn whole(s: &mut impl ObjectReads, o: &ObjectId) -> Bytes {
    let data = s.read(o, 0, u64::MAX).unwrap();
    assert_eq!(s.stat(o).unwrap().unwrap().size, data.len() as u64, "the size");
    assert_eq!(s.read_pieces(o, 0, u64::MAX).unwrap().concat(), data, "in pieces");
    s.uncache(o, 0, u64::MAX);
    assert_eq!(s.read(o, 0, u64::MAX).unwrap(), data, "from below the cache");
    check_extents(s, o, &data);
    data
}

/// They ascend, do not touch, lie within what was asked for, and what is not zeros lies in them.
fn check_extents(s: &mut impl ObjectReads, o: &ObjectId, data: &[u8]) {
    let size = data.len() as u64;
    for (from, to) in [(0, u64::MAX), (0, size), (size / 3, size / 2), (1, BLOCK + 1)] {
        let end = to.min(size);
        let extents = s.extents(o, from, to - from).unwrap();
        let mut at = from;
        for (start, len) in extents {
            assert!(
                start >= at && len > 0 && start + len <= end,
                "{start}~{len} of {from}..{end}"
            );
            assert!(
                data[at as usize..start as usize].iter().all(|b| *b == 0),
                "a hole before {start}"
            );
            at = start + len;
        }
        let rest = data.get(at as usize..end as usize).unwrap_or_default();
        assert!(rest.iter().all(|b| *b == 0), "a hole behind {at}");
    }
}

fn check(s: &mut impl ObjectReads, o: &str, expected: &[u8]) {
    let found = whole(s, &oid(o));
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    let lengths = (found.len(), expected.len());
    assert!(
        found == expected,
        "{o}: differs at {differs:?}, lengths {lengths:?}"
    );
}

fn missing<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    for op in [
        Op::Zero {
            oid: oid("a"),
            offset: 0,
            len: 1,
        },
        Op::Truncate {
            oid: oid("a"),
            size: 0,
        },
        remove("a"),
    ] {
        case.refused([op], Errno::ENOENT);
    }
    case.holds(|s| {
        let a = oid("a");
        assert_eq!(s.stat(&a).unwrap(), None);
        assert!(s.read(&a, 0, 10).unwrap().is_empty());
        assert!(s.read_pieces(&a, 0, 10).unwrap().concat().is_empty());
        assert!(s.extents(&a, 0, 10).unwrap().is_empty());
        assert_eq!(s.prefetch(&a, 0, 10), None);
    });
}

fn made<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    case.submit([touch("a"), write("b", 0, "data"), touch("b")]);
    case.holds(|s| {
        check(s, "a", b"");
        check(s, "b", b"data");
    });
    case.submit([remove("a"), remove("b"), touch("b")]);
    case.holds(|s| {
        assert_eq!(s.stat(&oid("a")).unwrap(), None);
        check(s, "b", b"");
    });
}

fn written<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let mut expected = Vec::new();
    let writes = [
        (0, 10),
        (3, 4),
        (10, 5),
        // Behind the end: a hole between.
        (3 * BLOCK + 7, 100),
        (BLOCK - 1, 2),
        (BLOCK, BLOCK),
        (2 * BLOCK - 5, 2 * BLOCK + 10),
        // Whole blocks, and many.
        (8 * BLOCK, 40 * BLOCK),
        (20 * BLOCK + 1, BLOCK),
    ];
    for (salt, (offset, len)) in writes.into_iter().enumerate() {
        let data = pattern(len as usize, salt as u64);
        case.submit([write("a", offset, &data)]);
        let (from, to) = (offset as usize, (offset + len) as usize);
        expected.resize(expected.len().max(to), 0);
        expected[from..to].copy_from_slice(&data);
        case.holds(|s| check(s, "a", &expected));
    }
    case.holds(|s| {
        let size = expected.len() as u64;
        for (offset, len) in [
            (0, 0),
            (5, 3),
            (BLOCK - 3, 9),
            (size - 1, 5),
            (size, 1),
            (size + BLOCK, 1),
        ] {
            let from = offset.min(size) as usize;
            let to = (offset + len).min(size) as usize;
            assert_eq!(
                s.read(&oid("a"), offset, len).unwrap(),
                expected[from..to],
                "{offset}~{len}"
            );
            assert_eq!(
                s.read_pieces(&oid("a"), offset, len).unwrap().concat(),
                expected[from..to]
            );
        }
    });
}

/// A range of no bytes makes the object, and changes nothing of it.
fn nothing_written<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    case.submit([write("a", 100, "")]);
    case.holds(|s| check(s, "a", b""));
    let nothing = Op::Zero {
        oid: oid("a"),
        offset: 100,
        len: 0,
    };
    case.submit([write("a", 0, "some"), write("a", 100, ""), nothing]);
    case.holds(|s| check(s, "a", b"some"));
}

fn zeroed<S: Subject>(s: &mut S) {
    let mut expected = pattern(5 * BLOCK as usize + 100, 1).to_vec();
    let mut case = Case::new(s);
    case.submit([write("a", 0, &expected)]);
    let size = expected.len() as u64;
    for (offset, len) in [
        (3, 5),
        (BLOCK - 4, 8),
        (2 * BLOCK, BLOCK),
        (3 * BLOCK + 1, BLOCK + 1),
        (size - 10, 10),
        // Behind the end: that makes it longer.
        (size - 20, 2 * BLOCK),
        (9 * BLOCK, 1),
    ] {
        case.submit([Op::Zero {
            oid: oid("a"),
            offset,
            len,
        }]);
        let (from, to) = (offset as usize, (offset + len) as usize);
        expected.resize(expected.len().max(to), 0);
        expected[from..to].fill(0);
        case.holds(|s| check(s, "a", &expected));
    }
}

/// What was cut off does not come back.
fn truncated<S: Subject>(s: &mut S) {
    let mut expected = pattern(3 * BLOCK as usize, 2).to_vec();
    let mut case = Case::new(s);
    case.submit([write("a", 0, &expected)]);
    for size in [
        2 * BLOCK + 9,
        3 * BLOCK,
        3 * BLOCK,
        BLOCK,
        BLOCK + 1,
        5,
        4 * BLOCK + 5,
        0,
        7,
    ] {
        case.submit([Op::Truncate { oid: oid("a"), size }]);
        expected.resize(size as usize, 0);
        case.holds(|s| check(s, "a", &expected));
    }
}

/// What was never written takes nothing.
fn allocated<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let far = 1 << 20;
    case.submit([write("a", 0, "x"), write("a", far, "y"), touch("b")]);
    case.submit([Op::Truncate {
        oid: oid("b"),
        size: far,
    }]);
    case.holds(|s| {
        let extents = s.extents(&oid("a"), 0, u64::MAX).unwrap();
        let sum: u64 = extents.iter().map(|(_, len)| len).sum();
        assert!(sum < far / 2, "{sum} of {far} bytes, two of them written");
        assert_eq!(s.extents(&oid("b"), 0, u64::MAX).unwrap(), []);
        assert_eq!(s.read(&oid("b"), far - 3, 10).unwrap(), [0; 3][..]);
    });
}

/// One that goes to the disk another way than small ones.
fn large<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let mut expected = pattern(1 << 20, 3).to_vec();
    case.submit([write("a", 0, &expected)]);
    case.holds(|s| check(s, "a", &expected));
    let again = pattern(300 << 10, 4);
    case.submit([write("a", 1000, &again)]);
    expected[1000..1000 + again.len()].copy_from_slice(&again);
    case.holds(|s| check(s, "a", &expected));
}
