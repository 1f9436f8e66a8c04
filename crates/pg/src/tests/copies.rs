//! COPY_FROM from another OSD: the message waits, and nothing overtakes it (spec chapter 04, 7.5, 9.6).

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
