//! Single operations and messages: results on missing and existing objects, limits, checks. The recorded
//! cases of 16.2.15 run in full as `replay-osd`; here is what must not break between two runs of it.

use super::*;

/// Runs `op` on a missing and on an existing object: (result, rval, size afterwards or -2) of each.
fn check(o: OsdOp, missing: (i32, i32, i64), existing: (i32, i32, i64)) {
    for (want, there) in [(missing, false), (existing, true)] {
        let mut rig = Rig::new();
        if there {
            rig.run(
                "o",
                vec![
                    write_full(b"0123456789"),
                    set_xattr(b"a", b"v"),
                    omap_set(&[("k", "v")]),
                ],
            );
        }
        let r = rig.run("o", vec![o.clone()]);
        let size = rig.data("o", NOSNAP).map_or(-2, |d| d.len() as i64);
        assert_eq!(
            (r.result, r.ops[0].rval, size),
            want,
            "{} on a {} object",
            o.code,
            if there { "present" } else { "missing" }
        );
    }
}

#[test]
fn results_on_missing_and_existing_objects() {
    use messages::osd::code::*;
    check(read(0, 16), (-2, 0, -2), (0, 0, 10));
    check(op(STAT), (-2, 0, -2), (0, 0, 10));
    check(get_xattr(b"b"), (-2, 0, -2), (-61, -61, 10));
    check(
        OsdOp::on_xattr(CMPXATTR, b"a", b"v", 1, 1),
        (-2, 0, -2),
        (1, 1, 10),
    );
    check(
        OsdOp::on_xattr(CMPXATTR, b"a", b"w", 1, 1),
        (-2, 0, -2),
        (-125, -125, 10),
    );
    check(
        OsdOp::ranged(CMPEXT, 0, 2).with_data("0x"),
        (-2, 0, -2),
        (-4096, -4096, 10),
    );
    check(op(ASSERT_VER).with_assert_ver(0), (-2, 0, -2), (-22, -22, 10));
    check(write(2, b"xyz"), (0, 0, 5), (0, 0, 10));
    check(write_full(b"xyz"), (0, 0, 3), (0, 0, 3));
    check(append(b"xyz"), (0, 0, 3), (0, 0, 13));
    check(op(CREATE), (0, 0, 0), (0, 0, 10));
    check(excl(), (0, 0, 0), (-17, -17, 10));
    check(OsdOp::ranged(ZERO, 4, 100), (0, 0, -2), (0, 0, 4));
    check(OsdOp::ranged(ZERO, 3, 0), (0, 0, -2), (0, 0, 10));
    check(OsdOp::ranged(TRUNCATE, 5, 0), (0, 0, -2), (0, 0, 5));
    check(op(DELETE), (-2, -2, -2), (0, 0, -2));
    check(op(DELETE).with_flags(2), (0, -2, -2), (0, 0, -2));
    check(op(OMAPCLEAR), (-2, -2, -2), (0, 0, 10));
    check(op(ROLLBACK).with_first_u64(5), (0, 0, -2), (0, 0, 10));
    check(op(OpCode(0x12ff)), (-2, 0, -2), (-95, -95, 10));
    check(op(OpCode(0x22ff)), (-95, -95, -2), (-95, -95, 10));
    check(op(OpCode(0)), (-22, 0, -2), (-22, 0, 10));
    check(op(SETXATTRS), (-95, -95, -2), (-95, -95, 10));
    check(OsdOp::on_class("nosuch", "x", b""), (-95, 0, -2), (-95, 0, 10));
    check(OsdOp::on_class("lock", "nosuch", b""), (-95, 0, -2), (-95, 0, 10));
    check(
        OsdOp::on_class("hello", "say_hello", b"x"),
        (-2, 0, -2),
        (0, 0, 10),
    );
}

#[test]
fn a_failed_message_changes_nothing() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"abc")]);
    let r = rig.run("o", vec![write(0, b"X"), set_xattr(b"n", b"1"), excl()]);
    assert_eq!(r.result, -17);
    assert_eq!(r.ops.iter().map(|o| o.rval).collect::<Vec<_>>(), [0, 0, -17]);
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "abc");
    assert_eq!(rig.one("o", get_xattr(b"n")), -61);
}

#[test]
fn failok_takes_back_what_its_operation_did() {
    // record_hello writes and fails on an existing object; the message goes on.
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"abc")]);
    let call = OsdOp::on_class("hello", "record_hello", b"x").with_flags(2);
    let r = rig.run("o", vec![call, append(b"d")]);
    assert_eq!((r.result, r.ops[0].rval), (0, -17));
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "abcd");
}

#[test]
fn limits() {
    let mut rig = Rig::new();
    let name = |n: usize| "n".repeat(n);
    assert_eq!(rig.one(&name(2048), op(code::STAT)), -2);
    assert_eq!(rig.one(&name(2049), op(code::STAT)), -36);
    assert_eq!(rig.one("", op(code::STAT)), -22);
    assert_eq!(rig.one("o", set_xattr(&[b'n'; 100], b"v")), 0);
    assert_eq!(rig.one("o", set_xattr(&[b'n'; 101], b"v")), -36);
    assert_eq!(rig.one("o", set_xattr(b"", b"v")), -22);
    let max = 128 << 20;
    assert_eq!(rig.one("o", write(max - 1, b"xx")), -27);
    assert_eq!(rig.one("o", write(u64::MAX, b"x")), -27);
    assert_eq!(rig.one("o", OsdOp::ranged(code::TRUNCATE, max, 0)), -27);
    assert_eq!(rig.one("o", OsdOp::ranged(code::READ, u64::MAX, u64::MAX)), 0);
    assert_eq!(
        rig.one("o", OsdOp::ranged(code::SPARSE_READ, u64::MAX, u64::MAX)),
        0
    );
    assert_eq!(rig.one("o", OsdOp::ranged(code::ZERO, u64::MAX, u64::MAX)), -27);
    let big = OsdOp::ranged(code::WRITEFULL, 0, 0).with_data(vec![0; (90 << 20) + 1]);
    assert_eq!(rig.one("o", big), -90);
}

#[test]
fn an_operation_for_another_pg_is_dropped_with_a_word_to_the_shell() {
    let mut rig = Rig::with_pool(PoolView { pg_num: 4, ..pool() });
    let mut m = rig.request("o", vec![op(code::STAT)]);
    m.hash = 3;
    rig.send(m);
    assert!(matches!(rig.out[..], [Output::Dropped { tid: 1, .. }]));
}

#[test]
fn a_missing_capability_is_eperm() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"x")]);
    rig.caps = |a| matches!(a, Allow::Data { write: false, .. });
    assert_eq!(rig.one("o", op(code::STAT)), 0);
    assert_eq!(rig.one("o", write_full(b"y")), -1);
    assert_eq!(rig.one("o", OsdOp::on_class("hello", "say_hello", b"")), -1);
}

#[test]
fn an_unreadable_object_is_eio_and_the_pg_goes_on() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"x")]);
    rig.restart();
    rig.store.unreadable = true;
    assert_eq!(rig.one("o", read(0, 0)), -5);
    assert_eq!(rig.one("o", write_full(b"y")), -5);
    rig.store.unreadable = false;
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "x");
}

#[test]
fn statistics_follow_and_survive() {
    let mut rig = Rig::new();
    rig.run("a", vec![write_full(b"0123456789")]);
    rig.run("b", vec![write_full(b"01"), omap_set(&[("k", "v")])]);
    rig.snapc = (3, vec![3]);
    rig.run("a", vec![write(0, b"xy")]);
    rig.run("b", vec![op(code::DELETE)]);
    let check = |s: PgStats| {
        assert_eq!((s.objects, s.clones, s.whiteouts, s.omap_objects), (4, 2, 1, 0));
        // a: 10 and 2 unshared of its clone; b: 2 of its clone.
        assert_eq!(s.bytes, 14);
    };
    check(rig.pg.stats());
    let before = rig.pg.stats();
    rig.restart();
    check(rig.pg.stats());
    assert_eq!(rig.pg.stats().writes, before.writes);
    assert_eq!(rig.pg.stats().version, before.version);
    assert_eq!(rig.pg.stats().user_version, before.user_version);
}

#[test]
fn large_omaps_are_listed_in_pages_and_refused_where_there_are_none() {
    // A page that ended at its bytes and not at its rows claimed to be the last.
    let mut rig = Rig::new();
    let value = "v".repeat(3 << 20);
    let keys = ["a", "b", "c", "d", "e"];
    for k in keys {
        assert_eq!(rig.one("o", omap_set(&[(k, &value)])), 0);
    }
    let list = |rig: &mut Rig, after: &str| {
        let mut w = denc::Writer::new();
        w.string(after);
        w.u64(100);
        let r = rig.run("o", vec![op(code::OMAPGETKEYS).with_data(w.finish())]);
        assert_eq!(r.result, 0);
        let mut out = denc::Reader::new(r.ops[0].outdata.clone());
        let found: Vec<Bytes> = out.get().unwrap();
        (found, out.get::<bool>().unwrap())
    };
    assert_eq!(list(&mut rig, ""), (vec!["a".into(), "b".into()], true));
    assert_eq!(list(&mut rig, "b"), (vec!["c".into(), "d".into()], true));
    assert_eq!(list(&mut rig, "d"), (vec!["e".into()], false));
    let by_keys =
        |keys: &[String]| op(code::OMAPGETVALSBYKEYS).with_data(denc::Encode::to_bytes(&keys.to_vec()));
    let more: Vec<String> = (0..20).map(|n| format!("f{n}")).collect();
    for k in &more {
        assert_eq!(rig.one("o", omap_set(&[(k, &value)])), 0);
    }
    assert_eq!(rig.run("o", vec![by_keys(&more); 2]).result, 0);
    assert_eq!(rig.run("o", vec![by_keys(&more); 3]).result, -7);
    assert_eq!(rig.one("copy", copies::copy_from(POOL, "o", 0)), -7);
    rig.one("o", op(code::OMAPRMKEYS).with_data(denc::Encode::to_bytes(&more)));
    assert_eq!(rig.one("copy", copies::copy_from(POOL, "o", 0)), 0);
}

fn values(after: &str, prefix: &str, max: u64) -> OsdOp {
    let mut w = denc::Writer::new();
    w.string(after);
    w.u64(max);
    w.string(prefix);
    op(code::OMAPGETVALS).with_data(w.finish())
}

#[test]
fn pages_of_rows_are_parts_of_a_plain_list() {
    let keys = ["a", "b", "b0", "b1", "b2", "c", "d"];
    let mut rig = Rig::new();
    assert_eq!(rig.one("o", omap_set(&keys.map(|k| (k, k)))), 0);
    let page = |rig: &mut Rig, after: &str, prefix: &str, max: u64| {
        let r = rig.run("o", vec![values(after, prefix, max)]);
        assert_eq!(r.result, 0);
        let mut out = denc::Reader::new(r.ops[0].outdata.clone());
        let rows: Vec<(String, String)> = out.get().unwrap();
        let more: bool = out.get().unwrap();
        assert!(out.is_empty() && rows.iter().all(|(k, v)| k == v));
        (rows.into_iter().map(|(k, _)| k).collect::<Vec<_>>(), more)
    };
    for prefix in ["", "b", "c", "d", "x"] {
        for after in ["", "a", "b", "b1", "b2", "c", "z"] {
            let within = keys.iter().filter(|k| k.starts_with(prefix) && **k > after);
            let within: Vec<&str> = within.copied().collect();
            for max in [0, 1, 2, 3, 100] {
                let want = &within[..within.len().min(max)];
                // One row behind them tells whether others follow.
                let behind = keys.iter().filter(|k| **k > after && **k >= prefix);
                let read: usize = behind.take(want.len() + 1).map(|k| 2 * k.len()).sum();
                let before = rig.pg.stats().read_bytes;
                let found = page(&mut rig, after, prefix, max as u64);
                let case = format!("{prefix:?} behind {after:?}, {max}");
                assert_eq!(found.0, want, "{case}");
                assert_eq!(found.1, within.len() > max, "{case}");
                assert_eq!(rig.pg.stats().read_bytes - before, read as u64, "{case}");
            }
        }
    }
}

#[test]
fn rows_behind_a_prefix_cost_nothing() {
    let mut rig = Rig::new();
    let names: Vec<String> = (0..1000).map(|n| format!("b{n:03}")).collect();
    let mut rows = vec![("a", "")];
    rows.extend(names.iter().map(|k| (k.as_str(), "")));
    assert_eq!(rig.one("o", omap_set(&rows)), 0);
    assert_eq!(rig.run("o", vec![values("", "a", 1000); 100]).result, 0);
    // So many rows are more than a message may ask for.
    assert_eq!(rig.run("o", vec![values("", "b", 1000); 100]).result, -7);
}

/// An answer is written while rows are read: nothing of it is given where that fails.
#[test]
fn rows_that_end_in_an_error_are_not_answered() {
    let mut rig = Rig::new();
    assert_eq!(rig.one("o", omap_set(&[("a", "1"), ("b", "2"), ("c", "3")])), 0);
    let mut w = denc::Writer::new();
    w.string("");
    w.u64(9);
    let keys = op(code::OMAPGETKEYS).with_data(w.finish());
    for one in [keys, values("", "", 9)] {
        for (flags, result) in [(0, -5), (2, 0)] {
            let ops = vec![one.clone().with_flags(flags), op(code::STAT)];
            rig.store.rows_until = Some(2);
            let r = rig.run("o", ops.clone());
            assert_eq!((r.result, r.ops[0].rval), (result, -5), "{}", one.code);
            assert!(r.ops[0].outdata.is_empty(), "{}", one.code);
            rig.store.rows_until = None;
            let r = rig.run("o", ops);
            assert_eq!((r.result, r.ops[0].rval), (0, 0), "{}", one.code);
            assert!(!r.ops[0].outdata.is_empty() && !r.ops[1].outdata.is_empty());
        }
    }
}
