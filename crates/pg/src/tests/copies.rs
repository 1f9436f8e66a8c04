//! COPY_FROM from another OSD: the message waits, and nothing overtakes it (docs/protocol/ceph/04-osd.md, 7.5, 9.6).

use super::*;
use denc::Writer;

pub(super) fn copy_from(pool: i64, oid: &str, version: u64) -> OsdOp {
    let mut w = Writer::new();
    w.string(oid);
    w.put(&ObjectLocator {
        pool,
        key: Bytes::new(),
        nspace: Bytes::new(),
        hash: -1,
    });
    op(code::COPY_FROM)
        .with_copy_from(messages::osd::CopyFromArg {
            snap: NOSNAP,
            version,
            flags: 0,
        })
        .with_data(w.finish())
}

pub(super) fn source() -> Box<ObjectCopy> {
    Box::new(ObjectCopy {
        user_version: 77,
        mtime: Utime { sec: 9, nsec: 9 },
        data: Bytes::from_static(b"from afar"),
        attrs: vec![("n".into(), "v".into())],
        omap_header: "H".into(),
        omap: vec![("k".into(), "v".into())],
    })
}

pub(super) fn fetch_id(rig: &mut Rig) -> u64 {
    let at = rig
        .out
        .iter()
        .position(|o| matches!(o, Output::FetchObject { .. }));
    match rig.out.remove(at.expect("a fetch")) {
        Output::FetchObject { id, .. } => id,
        _ => unreachable!(),
    }
}

#[test]
fn a_remote_source_is_fetched_and_later_operations_wait() {
    let mut rig = Rig::new();
    let m = rig.request("o", vec![copy_from(8, "src", 77)]);
    rig.send(m.clone());
    let id = fetch_id(&mut rig);
    let later = rig.request("o", vec![append(b"!")]);
    rig.send(later);
    // A re-send of the copy while it waits is not executed twice either.
    rig.send(m);
    let elsewhere = rig.run("p", vec![write_full(b"p")]);
    assert_eq!(elsewhere.result, 0, "another object does not wait");
    assert!(rig.replies().is_empty());
    rig.apply(Input::Fetched {
        id,
        result: Ok(source()),
    });
    let got: Vec<_> = rig
        .replies()
        .iter()
        .map(|r| (r.tid, r.result, r.user_version))
        .collect();
    assert_eq!(got[0], (1, 0, 77));
    assert_eq!((got[1].0, got[1].1), (2, 0));
    assert_eq!(got[2], (1, 0, 77), "the duplicate's answer is the original's");
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "from afar!");
    assert_eq!(rig.run("o", vec![get_xattr(b"n")]).ops[0].outdata, "v");
    assert_eq!(rig.run("o", vec![op(code::OMAPGETHEADER)]).ops[0].outdata, "H");
}

#[test]
fn what_goes_wrong_with_the_source_is_told() {
    let mut rig = Rig::new();
    let mut check = |version: u64, result: Result<Box<ObjectCopy>, Errno>, want: i32| {
        let m = rig.request("o", vec![copy_from(8, "src", version)]);
        rig.send(m);
        let id = fetch_id(&mut rig);
        rig.apply(Input::Fetched { id, result });
        assert_eq!(rig.replies()[0].result, want);
    };
    check(0, Err(Errno::ENOENT), -2);
    check(76, Ok(source()), -34);
    check(78, Ok(source()), -75);
    check(77, Ok(source()), 0);
    assert_eq!(rig.one("o", copy_from(99, "src", 0)), -2);
    assert_eq!(rig.one("o", copy_from(POOL, "o", 0)), -22);
}

#[test]
fn a_local_source_is_shared_and_exported_whole() {
    let mut rig = Rig::new();
    rig.run(
        "src",
        vec![write_full(b"abc"), set_xattr(b"n", b"v"), omap_set(&[("k", "v")])],
    );
    rig.run("dst", vec![write_full(b"old data"), set_xattr(b"old", b"v")]);
    let r = rig.run("dst", vec![copy_from(POOL, "src", 0), append(b"d")]);
    assert_eq!(r.result, 0);
    assert_eq!(rig.data("dst", NOSNAP).unwrap(), "abcd");
    assert_eq!(rig.one("dst", get_xattr(b"old")), -61);
    let object = HObject::new(
        POOL,
        hash(b"dst"),
        Bytes::new(),
        Bytes::new(),
        "dst".into(),
        NOSNAP,
    );
    rig.apply(Input::Export { token: 5, object });
    let exported = rig.out.pop();
    let Some(Output::Exported {
        token: 5,
        result: Ok(copy),
    }) = exported
    else {
        panic!("{exported:?}");
    };
    assert_eq!(copy.data, "abcd");
    assert_eq!(copy.attrs, [("n".into(), "v".into())]);
    assert_eq!(copy.omap, [("k".into(), "v".into())]);
}

/// The copy of a client that may only do what `places` says: its result, and whether the source was asked for.
fn copy_within(places: fn(&Need<'_>) -> bool, c: OpCode, pool: i64) -> (i32, bool) {
    let mut rig = Rig::new();
    rig.run("src", vec![write_full(b"secret")]);
    rig.places = places;
    let mut copy = copy_from(pool, "src", 0);
    copy.code = c;
    let m = rig.request("o", vec![write_full(b"own"), copy]);
    rig.send(m);
    let asked = rig.out.iter().any(|o| matches!(o, Output::FetchObject { .. }));
    let refused = rig.replies().first().map_or(0, |r| r.result);
    rig.places = |_| true;
    let wrote = !asked && rig.data("o", NOSNAP).is_some();
    assert!(!(refused == -1 && wrote), "a refused message did something");
    (refused, asked)
}

#[test]
fn a_copy_needs_the_right_to_read_its_source() {
    for c in [code::COPY_FROM, code::COPY_FROM2] {
        // Of another pool, of another object of the same one.
        assert_eq!(copy_within(|n| n.pool.id == POOL, c, 8), (-1, false), "{c}");
        assert_eq!(copy_within(|n| n.oid == b"o", c, POOL), (-1, false), "{c}");
        assert_eq!(copy_within(|n| n.oid == b"o", c, 8), (-1, false), "{c}");
        assert_eq!(copy_within(|_| true, c, 8), (0, true), "{c}");
        assert_eq!(
            copy_within(|n| n.oid == b"o" || n.pool.name == "others", c, 8),
            (0, true),
            "{c}"
        );
        // Nothing is there to be read.
        assert_eq!(copy_within(|n| n.pool.id == POOL, c, 99), (-2, false), "{c}");
    }
}

#[test]
fn a_copy_needs_the_right_to_read_where_writing_is_allowed() {
    let mut rig = Rig::new();
    rig.run("src", vec![write_full(b"secret")]);
    rig.caps = |what| matches!(what, Allow::Data { read: false, .. });
    assert_eq!(rig.one("o", write_full(b"x")), 0);
    assert_eq!(rig.one("o", copy_from(POOL, "src", 0)), -1);
    // In another namespace of the pool.
    rig.caps = |_| true;
    rig.places = |n| n.nspace.is_empty();
    let mut w = Writer::new();
    w.string("src");
    w.put(&ObjectLocator {
        pool: POOL,
        key: Bytes::new(),
        nspace: "theirs".into(),
        hash: -1,
    });
    let foreign = copy_from(POOL, "src", 0).with_data(w.finish());
    assert_eq!(rig.one("o", foreign), -1);
    assert_eq!(rig.one("o", copy_from(POOL, "src", 0)), 0);
}

#[test]
fn operations_that_would_name_another_object_are_not_served() {
    let mut rig = Rig::new();
    for c in [
        code::SET_REDIRECT,
        code::SET_CHUNK,
        code::TIER_PROMOTE,
        code::COPY_GET,
    ] {
        let named = copy_from(8, "src", 0);
        let op = op(c).with_data(named.indata);
        rig.run("o", vec![write_full(b"x")]);
        assert_eq!(rig.one("o", op), -95, "{c}");
        assert!(rig.out.is_empty(), "{c}");
    }
}

/// A copy and a read behind it that a client wants in order; their numbers.
fn copy_and_read_behind(rig: &mut Rig) -> (MOSDOp, MOSDOp) {
    let copy = rig.request("o", vec![copy_from(8, "src", 77)]);
    let mut behind = rig.request("o", vec![read(0, 1)]);
    behind.flags |= flag::RWORDERED;
    rig.send(copy.clone());
    rig.send(behind.clone());
    (copy, behind)
}

fn versions(rig: &mut Rig) -> Vec<(u64, i32, u64)> {
    let replies = rig.replies();
    replies
        .iter()
        .map(|r| (r.tid, r.result, r.user_version))
        .collect()
}

#[test]
fn a_copy_whose_source_cannot_be_had_now_is_not_overtaken() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"old")]);
    let (copy, behind) = copy_and_read_behind(&mut rig);
    for _ in 0..3 {
        let id = fetch_id(&mut rig);
        let result = Err(Errno::EAGAIN);
        rig.apply(Input::Fetched { id, result });
        assert!(
            rig.out.is_empty(),
            "neither is answered, and nobody is asked at once: {:?}",
            rig.out
        );
        rig.settle(1);
    }
    let id = fetch_id(&mut rig);
    let result = Ok(source());
    rig.apply(Input::Fetched { id, result });
    assert_eq!(versions(&mut rig), [(copy.tid, 0, 77), (behind.tid, 0, 77)]);
    assert!(rig.pg.front.is_at_rest());
}

#[test]
fn a_copy_that_waits_for_its_source_ends_with_its_connection() {
    let mut rig = Rig::new();
    copy_and_read_behind(&mut rig);
    let id = fetch_id(&mut rig);
    let result = Err(Errno::EAGAIN);
    rig.apply(Input::Fetched { id, result });
    rig.apply(Input::ConnectionClosed(rig.conn));
    assert!(rig.pg.front.is_at_rest());
    rig.settle(3);
    assert!(rig.out.is_empty(), "{:?}", rig.out);
}

#[test]
fn a_copy_that_is_sent_again_has_the_version_of_the_entry_that_stands() {
    let mut rig = Rig::new();
    let (copy, behind) = copy_and_read_behind(&mut rig);
    let id = fetch_id(&mut rig);
    let result = Ok(source());
    rig.apply(Input::Fetched { id, result });
    let first = versions(&mut rig);
    // To the primary of another interval, when the source is another one: nothing is copied again.
    rig.restart();
    rig.send(copy.clone());
    rig.send(behind.clone());
    assert_eq!(versions(&mut rig), first);
    // Behind a later copy of another version.
    let later = rig.request("o", vec![copy_from(8, "src", 0)]);
    rig.send(later.clone());
    let id = fetch_id(&mut rig);
    let newer = ObjectCopy {
        user_version: 99,
        ..*source()
    };
    let result = Ok(Box::new(newer));
    rig.apply(Input::Fetched { id, result });
    assert_eq!(versions(&mut rig), [(later.tid, 0, 99)]);
    for _ in 0..2 {
        rig.send(copy.clone());
        rig.send(later.clone());
        assert_eq!(versions(&mut rig), [(copy.tid, 0, 77), (later.tid, 0, 99)]);
        rig.restart();
    }
}

#[test]
fn a_copy_that_was_not_done_takes_the_source_as_it_is_when_it_is_done() {
    let mut rig = Rig::new();
    let m = rig.request("o", vec![copy_from(8, "src", 0)]);
    rig.send(m.clone());
    fetch_id(&mut rig);
    rig.restart();
    rig.out.clear();
    rig.send(m.clone());
    let id = fetch_id(&mut rig);
    let newer = ObjectCopy {
        user_version: 99,
        ..*source()
    };
    let result = Ok(Box::new(newer));
    rig.apply(Input::Fetched { id, result });
    assert_eq!(versions(&mut rig), [(m.tid, 0, 99)]);
    rig.send(m.clone());
    assert_eq!(
        versions(&mut rig),
        [(m.tid, 0, 99)],
        "and so says the answer to its repetition"
    );
    assert_eq!(rig.run("o", vec![read(0, 1)]).user_version, 99);
}
