//! Operations on whole objects, and transactions as a whole.

use super::data::whole;
use super::rows::{check_attrs, check_rows};
use super::*;
use crate::store::ObjectReads;

pub fn run<S: Subject>(s: &mut S) {
    cloned(s);
    ranges_cloned(s);
    renamed(s);
    all_or_nothing(s);
    in_order(s);
    too_large(s);
    no_room_for_numbers(s);
}

fn clone(src: &str, dst: &str) -> Op {
    let (src, dst) = (oid(src), oid(dst));
    Op::Clone { src, dst }
}

fn rename(src: &str, dst: &str) -> Op {
    let (src, dst) = (oid(src), oid(dst));
    Op::Rename { src, dst }
}

/// An object with something of each kind.
fn full(o: &str) -> Vec<Op> {
    vec![
        write(o, 0, pattern(10_000, 1)),
        set_attrs(o, [("n", "v")]),
        set_rows(o, [("k", "v")]),
        set_header(o, "h"),
    ]
}

fn check_full(s: &mut impl ObjectReads, o: &str) {
    let o = oid(o);
    assert!(whole(s, &o) == pattern(10_000, 1));
    check_attrs(s, &o, &pairs([("n", "v")]));
    check_rows(s, &o, &pairs([("k", "v")]));
    assert_eq!(s.omap_header(&o).unwrap(), "h");
}

fn is_missing(s: &mut impl ObjectReads, o: &str) -> bool {
    s.stat(&oid(o)).unwrap().is_none()
}

fn cloned<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    case.refused([clone("a", "b")], Errno::ENOENT);
    case.submit(full("a"));
    case.age();
    // What was there is replaced, all of it.
    case.submit([
        write("b", 0, pattern(50_000, 9)),
        set_attrs("b", [("other", "x")]),
        set_rows("b", [("other", "x")]),
    ]);
    case.submit([clone("a", "b"), clone("a", "c"), clone("a", "a")]);
    case.holds(|s| ["a", "b", "c"].iter().for_each(|o| check_full(s, o)));
    // From now on each goes its own way.
    case.submit([
        write("a", 4000, "changed"),
        set_attrs("a", [("n", "2")]),
        set_rows("a", [("k", "2")]),
        set_header("a", "2"),
    ]);
    case.submit([
        Op::Truncate {
            oid: oid("b"),
            size: 100,
        },
        Op::OmapClear { oid: oid("b") },
    ]);
    case.holds(|s| {
        check_full(s, "c");
        assert_eq!(s.read(&oid("a"), 4000, 7).unwrap(), "changed");
        assert!(whole(s, &oid("b")) == pattern(10_000, 1)[..100]);
        check_attrs(s, &oid("b"), &pairs([("n", "v")]));
    });
    // Nor does one need the other.
    case.submit([remove("a"), remove("b")]);
    case.submit([write("new", 0, pattern(60_000, 8))]);
    case.holds(|s| check_full(s, "c"));
}

fn ranges_cloned<S: Subject>(s: &mut S) {
    let source = pattern(30_000, 1);
    let target = pattern(20_000, 2);
    for (from, len, to) in [
        (0, 30_000, 0),
        (4096, 8192, 4096),
        (4096, 8192, 8192),
        (100, 9000, 4196),
        (100, 9000, 7),
        (5, 10, 19_995),
        // Behind the target's end, and behind the source's.
        (8192, 4096, 40_960),
        (29_000, 5000, 0),
        (30_000, 1, 50_000),
        (99_999, 10, 0),
        (10, 0, 50_000),
    ] {
        let mut case = Case::new(s);
        case.submit([
            write("a", 0, &source),
            write("b", 0, &target),
            set_attrs("a", [("n", "v")]),
        ]);
        case.age();
        for dst in ["b", "new", "a"] {
            let (src, dst) = (oid("a"), oid(dst));
            let range = Op::CloneRange {
                src,
                dst,
                src_offset: from,
                len,
                dst_offset: to,
            };
            case.submit([range]);
        }
        let part = &source[(from as usize).min(30_000)..((from + len) as usize).min(30_000)];
        let put = |before: &[u8]| {
            let mut data = before.to_vec();
            if !part.is_empty() {
                let end = to as usize + part.len();
                data.resize(data.len().max(end), 0);
                data[to as usize..end].copy_from_slice(part);
            }
            data
        };
        case.holds(|s| {
            for (o, before) in [("b", &target[..]), ("new", b""), ("a", &source)] {
                assert!(whole(s, &oid(o)) == put(before), "{from}~{len} to {o} at {to}");
            }
            check_attrs(s, &oid("b"), &[]);
        });
    }
    holes_cloned(s);
}

/// A hole is copied as what it reads as.
fn holes_cloned<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let range = |src, dst| Op::CloneRange {
        src,
        dst,
        src_offset: 0,
        len: 20_000,
        dst_offset: 0,
    };
    case.refused([range(oid("a"), oid("b"))], Errno::ENOENT);
    case.submit([
        touch("a"),
        Op::Truncate {
            oid: oid("a"),
            size: 20_000,
        },
    ]);
    case.submit([write("b", 0, pattern(25_000, 3)), range(oid("a"), oid("b"))]);
    case.holds(|s| {
        let data = whole(s, &oid("b"));
        assert!(data[..20_000].iter().all(|b| *b == 0));
        assert!(data[20_000..] == pattern(25_000, 3)[20_000..]);
    });
}

fn renamed<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    case.refused([rename("a", "b")], Errno::ENOENT);
    case.submit(full("a"));
    case.submit([touch("c")]);
    case.age();
    case.refused([rename("a", "c")], Errno::EEXIST);
    case.submit([rename("a", "b")]);
    case.holds(|s| {
        assert!(is_missing(s, "a"));
        check_full(s, "b");
    });
    case.submit([touch("a"), remove("c"), rename("b", "c")]);
    case.holds(|s| {
        assert!(whole(s, &oid("a")).is_empty());
        check_rows(s, &oid("a"), &[]);
        assert!(is_missing(s, "b"));
        check_full(s, "c");
    });
}

/// One step that fails undoes all that were before it.
fn all_or_nothing<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let version = types::EVersion::new(1, 1);
    case.submit(full("a"));
    case.submit([
        touch("gone"),
        Op::SetMeta {
            meta: bytes("before"),
        },
    ]);
    let steps = [
        write("a", 0, pattern(20_000, 5)),
        write("large", 0, pattern(200_000, 5)),
        Op::Zero {
            oid: oid("a"),
            offset: 5,
            len: 10,
        },
        Op::Truncate {
            oid: oid("a"),
            size: 9,
        },
        remove("gone"),
        set_attrs("a", [("n", "other"), ("more", "x")]),
        Op::RemoveAttrs { oid: oid("a") },
        set_rows("a", [("k", "other"), ("more", "x")]),
        Op::OmapClear { oid: oid("a") },
        set_header("a", "other"),
        clone("a", "copy"),
        rename("a", "moved"),
        Op::SetMeta { meta: bytes("after") },
        Op::LogAppend {
            version,
            entry: bytes("entry"),
        },
    ];
    let fails = || Op::Truncate {
        oid: oid("none"),
        size: 1,
    };
    let unchanged = |s: &mut S::Store| {
        check_full(s, "a");
        assert!(!is_missing(s, "gone"));
        assert!(["large", "copy", "moved"].iter().all(|o| is_missing(s, o)));
        assert_eq!(s.meta(PG).unwrap().unwrap(), "before");
        assert!(s.log_entries(PG).unwrap().is_empty());
        assert_eq!(s.list(&ObjectId::replicated(HObject::min()), 9).unwrap().len(), 2);
    };
    for step in &steps {
        case.refused([step.clone(), fails()], Errno::ENOENT);
        unchanged(case.store());
    }
    let mut together = steps.to_vec();
    together.push(fails());
    case.refused(together, Errno::ENOENT);
    case.holds(unchanged);
    case.submit([Op::LogAppend {
        version,
        entry: bytes("entry"),
    }]);
}

/// Steps see those before them.
fn in_order<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    case.submit([
        write("a", 0, "first"),
        clone("a", "b"),
        write("a", 0, "second"),
        set_rows("b", [("x", "1"), ("y", "2")]),
        clone("b", "c"),
        Op::OmapRemove {
            oid: oid("b"),
            keys: vec![bytes("x")],
        },
        rename("b", "d"),
        write("b", 3, "new"),
        remove("a"),
        write("a", 0, "third"),
        Op::Truncate {
            oid: oid("a"),
            size: 2,
        },
        Op::Truncate {
            oid: oid("a"),
            size: 4,
        },
    ]);
    case.holds(|s| {
        assert_eq!(whole(s, &oid("a")), "th\0\0");
        assert_eq!(whole(s, &oid("b")), "\0\0\0new");
        check_rows(s, &oid("b"), &[]);
        assert_eq!(whole(s, &oid("c")), "first");
        check_rows(s, &oid("c"), &pairs([("x", "1"), ("y", "2")]));
        assert_eq!(whole(s, &oid("d")), "first");
        check_rows(s, &oid("d"), &pairs([("y", "2")]));
    });
}

/// More than fits in one transaction is refused like any other error.
fn too_large<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let value = pattern(8 << 20, 1);
    let entries = (0..6u8)
        .map(|i| (Bytes::copy_from_slice(&[i]), value.clone()))
        .collect();
    let many = Op::OmapSet {
        oid: oid("a"),
        entries,
    };
    case.refused([touch("a"), many], Errno::EFBIG);
    case.holds(|s| assert!(is_missing(s, "a")));
    case.submit([touch("a")]);
}

/// Ranges whose end no number can say, and sizes that no object has.
fn no_room_for_numbers<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    case.submit([write("a", 0, "data")]);
    let a = || oid("a");
    for op in [
        write("a", u64::MAX, "x"),
        Op::Zero {
            oid: a(),
            offset: u64::MAX - 1,
            len: 9,
        },
        Op::Zero {
            oid: a(),
            offset: 0,
            len: u64::MAX,
        },
        Op::Truncate {
            oid: a(),
            size: u64::MAX,
        },
        Op::CloneRange {
            src: a(),
            dst: oid("b"),
            src_offset: 0,
            len: 4,
            dst_offset: u64::MAX - 2,
        },
    ] {
        case.refused([op], Errno::EFBIG);
    }
    case.holds(|s| {
        assert_eq!(whole(s, &oid("a")), "data");
        assert!(is_missing(s, "b"));
        assert!(s.read(&oid("a"), u64::MAX, u64::MAX).unwrap().is_empty());
        assert_eq!(s.read(&oid("a"), 1, u64::MAX).unwrap(), "ata");
        assert!(s.extents(&oid("a"), u64::MAX, u64::MAX).unwrap().is_empty());
    });
}
