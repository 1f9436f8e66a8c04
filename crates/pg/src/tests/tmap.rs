//! Trivial maps (docs/protocol/osd.md). Where a comment does not say otherwise, 16.2.15 gave the same answers; group `tmap`
//! of tests/tools/replay-osd asks it again.

use super::*;
use crate::exec::cost::STEPS_MAX;
use crate::exec::ops::omap::HEADER_MAX;
use denc::Writer;
use messages::osd::op_flag;

const ENOENT: i32 = -2;
const E2BIG: i32 = -7;
const EEXIST: i32 = -17;
const EINVAL: i32 = -22;
const EOPNOTSUPP: i32 = -95;

/// A map from its header and rows `key=value`.
fn map(header: &str, rows: &str) -> Vec<u8> {
    let rows: Vec<_> = rows
        .split_whitespace()
        .map(|r| r.split_once('=').unwrap())
        .collect();
    let mut w = Writer::new();
    w.string(header);
    w.u32(rows.len() as u32);
    for (key, value) in rows {
        w.string(key);
        w.string(value);
    }
    w.finish().to_vec()
}

/// TMAPUP's input from commands such as `s:key=value`, `r:key`, `h:header`.
fn commands(text: &str) -> Vec<u8> {
    let mut w = Writer::new();
    for (what, args) in text.split_whitespace().map(|c| c.split_once(':').unwrap()) {
        w.raw(what.as_bytes());
        match args.split_once('=') {
            Some((key, value)) => {
                w.string(key);
                w.string(value);
            }
            None => w.string(args),
        }
    }
    w.finish().to_vec()
}

fn put(data: &[u8]) -> OsdOp {
    op(code::TMAPPUT).with_data(data.to_vec())
}

fn update(text: &str) -> OsdOp {
    op(code::TMAPUP).with_data(commands(text))
}

/// What becomes of the object.
#[track_caller]
fn check(old: Option<&[u8]>, ops: Vec<OsdOp>, result: i32, new: Option<&[u8]>) {
    let mut rig = Rig::new();
    if let Some(old) = old {
        assert_eq!(rig.one("o", write_full(old)), 0);
    }
    assert_eq!(rig.run("o", ops).result, result);
    assert_eq!(rig.data("o", NOSNAP).as_deref(), new);
}

#[test]
fn commands_change_header_and_rows() {
    let old = map("hd", "b=1 d=2 f=3");
    let becomes = |text: &str, header: &str, rows: &str| {
        let new = map(header, rows);
        check(Some(&old), vec![update(text)], 0, Some(&new));
    };
    becomes("h:new", "new", "b=1 d=2 f=3");
    becomes("s:c=x", "hd", "b=1 c=x d=2 f=3");
    becomes("s:b=longer", "hd", "b=longer d=2 f=3");
    becomes("c:c=x", "hd", "b=1 c=x d=2 f=3");
    becomes("r:b", "hd", "d=2 f=3");
    becomes("R:f", "hd", "b=1 d=2");
    becomes("R:c", "hd", "b=1 d=2 f=3");
    becomes("h:X s:a=1 s:b=9 s:z=8", "X", "a=1 b=9 d=2 f=3 z=8");
    becomes("s:z=1 s:b=9 s:a=8", "hd", "a=8 b=9 d=2 f=3 z=1");
    becomes("s:m=1 h:last", "last", "b=1 d=2 f=3 m=1");
    becomes("r:b s:b=2", "hd", "b=2 d=2 f=3");
    becomes("r:b c:b=2", "hd", "b=2 d=2 f=3");
    becomes("s:z=1 s:a=1 r:a", "hd", "b=1 d=2 f=3 z=1");
    becomes("s:=x", "hd", "=x b=1 d=2 f=3");
}

#[test]
fn commands_that_cannot_be_done_change_nothing() {
    let old = map("hd", "b=1 d=2 f=3");
    let refused = |o: OsdOp, result| check(Some(&old), vec![o], result, Some(&old));
    refused(update("c:b=x"), EEXIST);
    refused(update("r:c"), ENOENT);
    refused(update("s:a=1 r:c"), ENOENT);
    refused(update("r:b r:b"), ENOENT);
    refused(update("x:a"), EINVAL);
    let cut = |n: usize| op(code::TMAPUP).with_data(commands("s:a=1")[..n].to_vec());
    (1..11).for_each(|n| refused(cut(n), EINVAL));
    check(Some(&old), vec![cut(0)], 0, Some(&old));
}

/// In ascending input 16.2 looks for each key in the old map alone: the first of these it refuses (-2), the second it
/// accepts, and either way a key set twice is in its map twice. A header behind a smaller key it refuses (-22).
#[test]
fn a_command_sees_what_those_before_it_made() {
    let old = map("", "b=1");
    check(Some(&old), vec![update("s:a=1 r:a")], 0, Some(&old));
    check(Some(&old), vec![update("c:a=1 c:a=2")], EEXIST, Some(&old));
    check(Some(&old), vec![update("s:b=1 s:b=2")], 0, Some(&map("", "b=2")));
    check(
        Some(&old),
        vec![update("s:a=1 h:b")],
        0,
        Some(&map("b", "a=1 b=1")),
    );
}

#[test]
fn no_object_and_no_data_are_an_empty_map() {
    for old in [None, Some(b"".as_slice())] {
        let becomes = |text: &str, header: &str, rows: &str| {
            check(old, vec![update(text)], 0, Some(&map(header, rows)));
        };
        becomes("h:new", "new", "");
        becomes("s:b=2 s:a=1", "", "a=1 b=2");
        becomes("c:b=2", "", "b=2");
        becomes("R:b", "", "");
        check(old, vec![update("r:b")], ENOENT, old);
        check(old, vec![update("")], 0, old);
    }
}

#[test]
fn rows_that_are_not_ascending_are_put_in_order() {
    let rows = map("h", "f=1 b=2 f=3 d=4");
    let new = map("h", "a=x b=2 d=4 f=3");
    check(Some(&rows), vec![update("s:a=x")], 0, Some(&new));
    check(None, vec![put(&rows)], 0, Some(&map("h", "b=2 d=4 f=3")));
    // 16.2 stores this one as it is.
    let twice = map("", "a=1 b=1 b=2");
    check(None, vec![put(&twice)], 0, Some(&map("", "a=1 b=2")));
}

#[test]
fn what_follows_the_map_stays() {
    let behind = |rows: &str| [map("h", rows).as_slice(), b"qq"].concat();
    check(
        Some(&behind("b=1")),
        vec![update("s:a=2")],
        0,
        Some(&behind("a=2 b=1")),
    );
    check(
        Some(&behind("b=1")),
        vec![update("s:z=2")],
        0,
        Some(&behind("b=1 z=2")),
    );
    check(None, vec![put(&behind("b=1"))], 0, Some(&behind("b=1")));
    check(None, vec![put(&behind("b=1 a=2"))], 0, Some(&behind("a=2 b=1")));
}

#[test]
fn a_put_replaces_all_of_the_object() {
    let new = map("p", "a=1");
    for old in [
        None,
        Some(b"".as_slice()),
        Some(b"0123456789 and more than the map is long"),
    ] {
        check(old, vec![put(&new)], 0, Some(&new));
        check(old, vec![put(&map("", ""))], 0, Some(&map("", "")));
    }
}

/// 16.2's OSD dies of most of these.
#[test]
fn what_is_no_map_is_refused() {
    let whole = map("hd", "b=1 d=2");
    for n in 0..whole.len() {
        check(Some(b"old"), vec![put(&whole[..n])], EINVAL, Some(b"old"));
        if n > 0 {
            check(
                Some(&whole[..n]),
                vec![update("s:a=1")],
                EINVAL,
                Some(&whole[..n]),
            );
        }
    }
    let many = [map("", "")[..4].to_vec(), vec![0xff; 4]].concat();
    check(Some(&many), vec![update("h:x")], EINVAL, Some(&many));
    check(
        Some(b"0123456789"),
        vec![update("h:x")],
        EINVAL,
        Some(b"0123456789"),
    );
}

#[test]
fn within_a_message_the_map_is_the_one_before_it() {
    let (old, other) = (map("h", "b=1"), map("", "n=1"));
    let set = || update("s:a=2");
    check(
        Some(&old),
        vec![update("s:z=1"), set()],
        0,
        Some(&map("h", "a=2 b=1")),
    );
    check(None, vec![put(&other), set()], ENOENT, None);
    check(None, vec![excl(), set()], 0, Some(&map("", "a=2")));
    for gone in [op(code::DELETE), OsdOp::ranged(code::TRUNCATE, 0, 0)] {
        check(Some(&old), vec![gone, set()], 0, Some(&map("", "a=2")));
    }
    let failing = update("r:q").with_flags(op_flag::FAILOK);
    check(Some(&old), vec![failing, set()], 0, Some(&map("h", "a=2 b=1")));
}

#[test]
fn a_map_leaves_the_omap_alone_and_snapshots_keep_the_old_one() {
    let mut rig = Rig::new();
    let (old, new) = (map("", "b=1"), map("", "a=2 b=1"));
    rig.run("o", vec![put(&old), omap_set(&[("k", "v")])]);
    rig.snapc = (1, vec![1]);
    assert_eq!(rig.one("o", update("s:a=2")), 0);
    assert_eq!(rig.data("o", 1).unwrap(), old);
    assert_eq!(rig.run("o", vec![op(code::TMAPGET)]).ops[0].outdata, new);
    let keys = op(code::OMAPGETKEYS).with_data([[0; 4].as_slice(), &9u64.to_le_bytes()].concat());
    assert_eq!(
        rig.run("o", vec![keys]).ops[0].outdata[..],
        *b"\x01\0\0\0\x01\0\0\0k\0"
    );
}

#[test]
fn maps_of_an_erasure_coded_pool_are_not_supported() {
    let mut rig = Rig::with_pool(PoolView {
        erasure: true,
        ec_overwrites: true,
        stripe_width: 4,
        ..pool()
    });
    for _ in 0..2 {
        for o in [update("s:a=1"), update(""), put(&map("", "")), put(b"")] {
            assert_eq!(rig.one("o", o), EOPNOTSUPP);
        }
        assert_eq!(rig.one("o", write_full(&map("", "b=1"))), 0);
    }
}

fn to_omap() -> OsdOp {
    op(code::TMAP2OMAP)
}

/// Header and rows of the omap, as text.
fn omap(rig: &mut Rig, oid: &str) -> String {
    let mut args = Writer::new();
    args.string("");
    args.u64(1000);
    args.string("");
    let values = op(code::OMAPGETVALS).with_data(args.finish());
    let r = rig.run(oid, vec![op(code::OMAPGETHEADER), values]);
    let rows: Vec<(String, String)> = denc::Reader::new(r.ops[1].outdata.clone()).get().unwrap();
    let rows: String = rows.iter().map(|(k, v)| format!(" {k}={v}")).collect();
    format!("{}:{rows}", String::from_utf8_lossy(&r.ops[0].outdata))
}

#[test]
fn a_map_becomes_an_omap() {
    let becomes = |before: Vec<OsdOp>, want: &str| {
        let mut rig = Rig::new();
        assert_eq!(rig.run("o", before).result, 0);
        assert_eq!(rig.one("o", to_omap()), 0);
        assert_eq!(rig.data("o", NOSNAP).unwrap(), "");
        assert_eq!(omap(&mut rig, "o"), want);
    };
    let with = |map: &[u8]| vec![write_full(map)];
    becomes(with(&map("hd", "b=1 d=2")), "hd: b=1 d=2");
    becomes(with(&map("hd", "b=1 b=2 d=3")), "hd: b=2 d=3");
    becomes(with(&map("hd", "f=1 b=2")), "hd: b=2 f=1");
    becomes(with(&[map("", "b=2").as_slice(), b"behind"].concat()), ": b=2");
    becomes(with(&map("x", "")), "x:");
    becomes(with(&map("", "")), ":");
    let header = || op(code::OMAPSETHEADER).with_data("old");
    let over = |map: &[u8]| vec![write_full(map), header(), omap_set(&[("b", "old"), ("k", "v")])];
    becomes(over(&map("hd", "b=1 d=2")), "hd: b=1 d=2 k=v");
    becomes(over(&map("", "")), ": b=old k=v");
}

#[test]
fn without_data_there_is_no_map_to_make_an_omap_of() {
    const ENODATA: i32 = -61;
    for old in [None, Some(b"".as_slice())] {
        check(old, vec![to_omap()], ENODATA, old);
        check(old, vec![to_omap().with_tmap2omap_flags(1)], 0, old);
    }
    let whole = map("hd", "b=1 d=2");
    for n in 1..whole.len() {
        check(Some(&whole[..n]), vec![to_omap()], EINVAL, Some(&whole[..n]));
    }
    // The message's own data cannot be read.
    check(None, vec![put(&whole), to_omap()], EINVAL, None);
    let (old, cut) = (map("", "a=1 b=2"), map("", "n=1"));
    check(Some(&old), vec![put(&cut), to_omap()], EINVAL, Some(&old));
    // All that it was is an omap now.
    check(
        Some(&old),
        vec![to_omap(), update("s:a=1")],
        0,
        Some(&map("", "a=1")),
    );
    let coded = PoolView {
        erasure: true,
        ..pool()
    };
    let mut rig = Rig::with_pool(coded);
    assert_eq!(rig.one("o", to_omap()), ENODATA);
    rig.run("o", vec![write_full(&whole)]);
    assert_eq!(rig.one("o", to_omap()), EINVAL);
}

#[test]
fn an_omap_made_of_a_map_is_bounded() {
    let mut rig = Rig::new();
    for (rows, want) in [(STEPS_MAX + 1, E2BIG), (STEPS_MAX, 0)] {
        rig.run("o", vec![write_full(&many_rows(rows))]);
        assert_eq!(rig.one("o", to_omap()), want);
    }
    for (header, want) in [(HEADER_MAX + 1, E2BIG), (HEADER_MAX, 0)] {
        rig.run("p", vec![write_full(&map(&"h".repeat(header), ""))]);
        assert_eq!(rig.one("p", to_omap()), want);
    }
    let mut large = Writer::new();
    large.blob(b"");
    large.u32(1);
    large.blob(b"k");
    large.blob(&vec![7; 67 << 20]);
    rig.run("q", vec![write_full(&large.finish())]);
    assert_eq!(rig.one("q", to_omap()), E2BIG);
    assert_eq!(rig.data("q", NOSNAP).unwrap().len(), 17 + (67 << 20));
}

/// A map of so many rows.
fn many_rows(n: u64) -> Vec<u8> {
    let rows: Vec<String> = (0..n).map(|i| format!("{i:08}=")).collect();
    map("", &rows.join(" "))
}

#[test]
fn rows_and_commands_are_steps() {
    let mut rig = Rig::new();
    assert_eq!(rig.one("o", put(&many_rows(STEPS_MAX + 1))), E2BIG);
    assert_eq!(rig.one("o", put(&many_rows(STEPS_MAX))), 0);
    assert_eq!(rig.one("o", update("R:x")), E2BIG);
    // It can still be replaced.
    assert_eq!(rig.one("o", put(&many_rows(STEPS_MAX - 1))), 0);
    assert_eq!(rig.one("o", update("R:x")), 0);
    assert_eq!(rig.one("o", update("R:x R:x")), E2BIG);
    // Each update of a message takes the map apart again.
    rig.run("o", vec![put(&many_rows(STEPS_MAX / 8))]);
    assert_eq!(rig.run("o", vec![update("R:x"); 7]).result, 0);
    assert_eq!(rig.run("o", vec![update("R:x"); 8]).result, E2BIG);
    let text = vec!["s:a=1"; STEPS_MAX as usize + 1].join(" ");
    assert_eq!(rig.one("p", update(&text)), E2BIG);
}

#[test]
fn a_short_message_does_not_write_a_large_map_again_and_again() {
    let mut rig = Rig::new();
    let mut w = Writer::new();
    w.blob(&vec![7; 8 << 20]);
    w.u32(0);
    rig.run("o", vec![put(&w.finish())]);
    assert_eq!(rig.run("o", vec![update("R:x"); 8]).result, 0);
    for flags in [0, op_flag::FAILOK] {
        let again = vec![update("R:x").with_flags(flags); 9];
        assert_eq!(rig.run("o", again).result, E2BIG);
    }
    let mut large = Writer::new();
    large.blob(&vec![7; 67 << 20]);
    large.u32(0);
    assert_eq!(rig.one("p", put(&large.finish())), 0);
    assert_eq!(rig.one("p", update("h:x s:a=1")), 0, "it becomes small");
    rig.run(
        "p",
        vec![
            write_full(&many_rows(10)),
            OsdOp::ranged(code::TRUNCATE, 67 << 20, 0),
        ],
    );
    assert_eq!(
        rig.one("p", update("R:x")),
        E2BIG,
        "what follows is read, and would be written"
    );
}
