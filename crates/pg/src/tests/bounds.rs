//! What one message may cost (docs/protocol/osd.md, Limits). Each of these short messages once held an OSD's loop for
//! seconds, or filled its memory.

use super::copies::{copy_from, fetch_id, source};
use super::*;
use crate::exec::cost::{
    CLONED_ROWS_MAX, COPIES_MAX, OPS_MAX, PG_OPS_MAX, READ_CALLS_MAX, SNAPS_MAX, STEPS_MAX,
};
use crate::exec::ops::omap::HEADER_MAX;
use crate::exec::ops::xattr::{XATTR_VALUE_MAX, XATTRS_BYTES_MAX, XATTRS_MAX};
use crate::state::object_info::user_attr;
use messages::osd::{ChecksumArg, PgListArg, WatchArg, WriteSameArg, op_flag};

const E2BIG: i32 = -7;
const EFBIG: i32 = -27;
const EMSGSIZE: i32 = -90;
const MIB: u64 = 1 << 20;

fn checksum(offset: u64, length: u64, chunk_size: u32) -> OsdOp {
    let arg = ChecksumArg {
        offset,
        length,
        chunk_size,
        kind: 2,
    };
    op(code::CHECKSUM).with_checksum(arg).with_data(vec![0; 4])
}

fn write_same(length: u64, data: &[u8]) -> OsdOp {
    let arg = WriteSameArg {
        offset: 0,
        length,
        data_length: data.len() as u64,
    };
    op(code::WRITESAME).with_write_same(arg).with_data(data.to_vec())
}

fn rows(from: u64, n: u64) -> OsdOp {
    let all: Vec<(String, String)> = (from..from + n)
        .map(|i| (format!("{i:08}"), "v".into()))
        .collect();
    op(code::OMAPSETVALS).with_data(denc::Encode::to_bytes(&all))
}

fn list_rows() -> OsdOp {
    let mut w = denc::Writer::new();
    w.string("");
    w.u64(5000);
    w.string("");
    op(code::OMAPGETVALS).with_data(w.finish())
}

fn remove_rows(first: &str, last: &str) -> OsdOp {
    let mut w = denc::Writer::new();
    w.string(first);
    w.string(last);
    op(code::OMAPRMKEYRANGE).with_data(w.finish())
}

fn call(class: &str, method: &str, input: Bytes) -> OsdOp {
    let mut o = op(code::CALL);
    o.arg[..2].copy_from_slice(&[class.len() as u8, method.len() as u8]);
    o.arg[3..7].copy_from_slice(&(input.len() as u32).to_le_bytes());
    o.with_data([class.as_bytes(), method.as_bytes(), &input].concat())
}

fn watch(cookie: u64) -> OsdOp {
    op(code::WATCH).with_watch(WatchArg {
        cookie,
        op: 3,
        timeout: 30,
        ..Default::default()
    })
}

fn notify(payload: usize) -> OsdOp {
    let mut w = denc::Writer::new();
    w.u32(1);
    w.u32(10);
    w.blob(&vec![7; payload]);
    op(code::NOTIFY).with_first_u64(1).with_data(w.finish())
}

#[test]
fn a_short_message_does_not_read_a_large_object_again_and_again() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(&vec![1; 8 << 20])]);
    let before = rig.pg.stats().read_bytes;
    let reads = [
        checksum(0, 0, 0),
        read(0, 0),
        op(code::TMAPGET),
        OsdOp::ranged(code::SPARSE_READ, 0, 8 << 20),
    ];
    for one in reads {
        // FAILOK does not save it.
        for flags in [0, op_flag::FAILOK] {
            let r = rig.run("o", vec![one.clone().with_flags(flags); 300]);
            assert_eq!(r.result, E2BIG, "{:?}", one.code);
            assert!(r.ops.iter().all(|o| o.outdata.is_empty()));
        }
    }
    assert_eq!(rig.pg.stats().read_bytes, before, "nothing was read");
    // A whole object of the largest size is read in one message.
    assert_eq!(rig.run("o", vec![read(0, 0); 16]).result, 0);
    assert_eq!(rig.run("o", vec![checksum(0, 0, 0); 16]).result, 0);
}

/// Of a tag that one message sets twice the row by its first time was left behind.
#[test]
fn a_second_call_of_a_message_sees_the_rows_of_the_first() {
    let mut rig = Rig::new();
    let doomed = |after_s: u32| {
        let mut w = denc::Writer::new();
        w.envelope(1, 1, |w| {
            w.u32(after_s);
            w.envelope(1, 1, |w| {
                w.blob(b"tag");
                w.envelope(1, 1, |w| w.u32(0));
                w.u64(0);
            });
        });
        call("rgw", "gc_set_entry", w.finish())
    };
    let rows = |rig: &mut Rig| {
        let all = rig.run("o", vec![list_rows()]);
        u32::from_le_bytes(*all.ops[0].outdata.first_chunk().unwrap())
    };
    assert_eq!(rig.run("o", vec![doomed(5), doomed(500)]).result, 0);
    assert_eq!(rows(&mut rig), 2);
    assert_eq!(rig.run("o", vec![doomed(7), doomed(70), doomed(700)]).result, 0);
    assert_eq!(rows(&mut rig), 2);
}

#[test]
fn checksums_of_small_chunks_do_not_make_a_large_answer() {
    let mut rig = Rig::new();
    let size = 17 * MIB;
    rig.run("o", vec![write_full(&vec![1; size as usize])]);
    assert_eq!(rig.one("o", checksum(0, size, 1)), E2BIG);
    assert_eq!(rig.one("o", checksum(0, size, 4096)), 0);
}

#[test]
fn a_short_pattern_does_not_become_a_gigabyte() {
    let mut rig = Rig::new();
    assert_eq!(
        rig.run("o", vec![write_same(128 * MIB, b"z"); 4]).result,
        EMSGSIZE
    );
    assert_eq!(rig.run("o", vec![write_same(32 * MIB, b"z"); 3]).result, EMSGSIZE);
    assert_eq!(rig.one("o", write_same(129 * MIB, b"z")), EFBIG, "fits no object");
    assert!(rig.data("o", NOSNAP).is_none());
    // What is written lies in memory once.
    assert_eq!(rig.one("o", write_same(8 * MIB + 4, b"abcd")), 0);
    let data = |o: &Op| match o {
        Op::Write { data, .. } => Some(data.as_ptr()),
        _ => None,
    };
    let places: std::collections::BTreeSet<_> = rig.store.last.iter().filter_map(data).collect();
    assert_eq!(places.len(), 1);
    let written = rig.data("o", NOSNAP).unwrap();
    assert_eq!(written.len() as u64, 8 * MIB + 4);
    assert!(written.chunks(4).all(|c| c == b"abcd"));
    // Nor where the pattern does not divide anything.
    assert_eq!(rig.one("p", write_same(3 * MIB, b"abc")), 0);
    assert!(rig.data("p", NOSNAP).unwrap().chunks(3).all(|c| c == b"abc"));
}

#[test]
fn a_message_has_a_limited_number_of_operations() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"x")]);
    assert_eq!(rig.run("o", vec![op(code::STAT); OPS_MAX]).result, 0);
    assert_eq!(rig.run("o", vec![op(code::STAT); OPS_MAX + 1]).result, E2BIG);
    // Who opens an image asks for all its snapshots at once.
    let calls = |n: usize| vec![call("hello", "say_hello", Bytes::new()); n];
    assert_eq!(rig.run("o", calls(READ_CALLS_MAX)).result, 0);
    assert_eq!(rig.run("o", calls(READ_CALLS_MAX + 1)).result, E2BIG);
    let and_a_read = [calls(OPS_MAX), vec![op(code::STAT)]].concat();
    assert_eq!(rig.run("o", and_a_read).result, E2BIG);
    assert_eq!(rig.run("o", vec![append(b"x"); OPS_MAX + 1]).result, E2BIG);
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "x");
    let list = || {
        op(code::PGNLS)
            .with_pg_list(PgListArg {
                count: 10,
                ..Default::default()
            })
            .with_data(denc::Encode::to_bytes(&HObject {
                pool: POOL,
                ..HObject::min()
            }))
    };
    let mut m = rig.request("", vec![list(); PG_OPS_MAX]);
    m.hash = 0;
    assert_eq!(rig.answer(m).result, 1);
    let mut m = rig.request("", vec![list(); PG_OPS_MAX + 1]);
    m.hash = 0;
    assert_eq!(rig.answer(m).result, E2BIG);
}

#[test]
fn a_message_fetches_one_object_of_other_osds() {
    let mut rig = Rig::new();
    assert_eq!(
        rig.run("o", vec![copy_from(8, "src", 0); COPIES_MAX + 1]).result,
        E2BIG
    );
    assert!(rig.out.is_empty(), "nothing was asked for");
}

#[test]
fn a_failed_operation_under_failok_leaves_what_others_did() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"0")]);
    let mut ops = Vec::new();
    for n in 0..400 {
        ops.push(append(format!("{},", n % 10).as_bytes()).with_flags(op_flag::FAILOK));
        // Fails after it has written.
        ops.push(excl().with_flags(op_flag::EXCL | op_flag::FAILOK));
        ops.push(set_xattr(&[b'n'; 101], b"x").with_flags(op_flag::FAILOK));
    }
    let r = rig.run("o", ops);
    assert_eq!(r.result, 0);
    let want: String = (0..400).map(|n| format!("{},", n % 10)).collect();
    assert_eq!(rig.data("o", NOSNAP).unwrap(), format!("0{want}"));
}

#[test]
fn a_message_writes_and_compares_a_limited_number_of_rows() {
    let mut rig = Rig::new();
    assert_eq!(rig.one("o", rows(0, 500_000)), E2BIG);
    assert!(rig.data("o", NOSNAP).is_none());
    assert_eq!(
        rig.run("o", vec![rows(0, 20_480), rows(20_480, 20_481)]).result,
        E2BIG
    );
    assert_eq!(rig.one("o", rows(0, 32_768)), 0);
    assert_eq!(rig.one("o", rows(32_768, 32_768)), 0);
    // A number that the bytes do not bear out is malformed, not large.
    assert_eq!(rig.one("o", op(code::OMAPSETVALS).with_data(vec![0xff; 4])), -22);
    let keys: Vec<String> = (0..STEPS_MAX + 1).map(|i| format!("{i:08}")).collect();
    let keys = denc::Encode::to_bytes(&keys);
    assert_eq!(
        rig.one("o", op(code::OMAPGETVALSBYKEYS).with_data(keys.clone())),
        E2BIG
    );
    assert_eq!(rig.one("o", op(code::OMAPRMKEYS).with_data(keys)), E2BIG);
    assert_eq!(
        rig.one("o", remove_rows("", "9")),
        E2BIG,
        "a short message for many rows"
    );
    assert_eq!(rig.one("o", remove_rows("00000000", "00040000")), 0);
    let left = rig.run("o", vec![list_rows()]).ops[0].outdata.clone();
    let (first, _): (Vec<(Bytes, Bytes)>, bool) = denc::Decode::from_bytes(&left).unwrap();
    assert_eq!(first[0].0, "00040000");
    assert_eq!(first.len(), 1024, "a page of a large omap");
    assert_eq!(
        rig.one("o", op(code::OMAPCLEAR)),
        0,
        "all of it at once costs little"
    );
}

#[test]
fn a_message_lists_a_limited_number_of_rows() {
    let mut rig = Rig::new();
    rig.run("o", vec![rows(0, 2_000)]);
    assert_eq!(rig.run("o", vec![list_rows(); 30]).result, 0);
    assert_eq!(rig.run("o", vec![list_rows(); 50]).result, E2BIG);
    // Class methods read by the same function.
    let all: Vec<(String, String)> = (0..2_000)
        .map(|n| (format!("metadata_{n:05}"), "v".into()))
        .collect();
    rig.run(
        "h",
        vec![op(code::OMAPSETVALS).with_data(denc::Encode::to_bytes(&all))],
    );
    let list = || {
        let mut w = denc::Writer::new();
        w.string("");
        w.u64(2_000);
        call("rbd", "metadata_list", w.finish())
    };
    assert_eq!(rig.run("h", vec![list(); 10]).result, 0);
    assert_eq!(rig.run("h", vec![list(); 50]).result, E2BIG);
    assert_eq!(
        rig.run("h", vec![list().with_flags(op_flag::FAILOK); 50]).result,
        E2BIG
    );
}

#[test]
fn a_snapshot_of_many_rows_does_not_copy_them_in_one_go() {
    let mut rig = Rig::new();
    for n in 0..=CLONED_ROWS_MAX / 32_768 {
        assert_eq!(rig.one("o", rows(n * 32_768, 32_768)), 0);
    }
    rig.run("small", vec![rows(0, 100)]);
    rig.snapc = (3, vec![3]);
    assert_eq!(rig.one("o", write_full(b"x")), E2BIG);
    assert_eq!(rig.one("small", write_full(b"x")), 0);
    rig.snapc = (0, Vec::new());
    assert_eq!(
        rig.one("o", write_full(b"x")),
        0,
        "without a clone it costs little"
    );
    rig.snapc = (SNAPS_MAX as u64 + 1, (1..=SNAPS_MAX as u64 + 1).rev().collect());
    assert_eq!(rig.one("p", write_full(b"x")), E2BIG);
}

#[test]
fn a_notification_is_charged_for_each_of_its_watchers() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"x")]);
    assert_eq!(rig.run("o", (0..64).map(watch).collect()).result, 0);
    rig.out.clear();
    assert_eq!(rig.one("o", notify(4 << 20)), E2BIG);
    assert!(rig.events().is_empty());
    assert_eq!(rig.run("o", vec![notify(10); 1000]).result, E2BIG);
    assert!(rig.events().is_empty());
    assert_eq!(rig.one("o", notify(1000)), 0);
    assert_eq!(rig.events().len(), 64);
}

#[test]
fn xattrs_are_bounded() {
    let mut rig = Rig::new();
    let value = |n: usize| vec![b'v'; n];
    assert_eq!(rig.one("o", set_xattr(b"a", &value(XATTR_VALUE_MAX))), 0);
    assert_eq!(rig.one("o", set_xattr(b"a", &value(XATTR_VALUE_MAX + 1))), EFBIG);
    let many = |n: usize| {
        (0..n)
            .map(|i| set_xattr(format!("n{i}").as_bytes(), b"v"))
            .collect::<Vec<_>>()
    };
    assert_eq!(rig.run("o", many(XATTRS_MAX)).result, E2BIG);
    assert_eq!(rig.run("o", many(XATTRS_MAX - 1)).result, 0);
    assert_eq!(rig.one("o", set_xattr(b"one more", b"")), E2BIG);
    assert_eq!(rig.one("o", set_xattr(b"n1", b"other")), 0, "there already");
    let instead = vec![
        OsdOp::on_xattr(code::RMXATTR, b"n1", b"", 0, 0),
        set_xattr(b"one more", b""),
    ];
    assert_eq!(rig.run("o", instead).result, 0);
    // All together.
    let large: Vec<_> = (0..8)
        .map(|i| set_xattr(format!("n{i}").as_bytes(), &value(XATTR_VALUE_MAX)))
        .collect();
    assert_eq!(rig.run("b", large.clone()).result, E2BIG);
    assert_eq!(rig.run("b", large[..7].to_vec()).result, 0);
    assert_eq!(
        rig.run(
            "b",
            vec![op(code::DELETE), set_xattr(b"z", &value(XATTR_VALUE_MAX))]
        )
        .result,
        0
    );
    assert_eq!(8 * XATTR_VALUE_MAX as u64, XATTRS_BYTES_MAX);
    // To the byte: names of two bytes, eight of them.
    let mut full = large[..7].to_vec();
    full.push(set_xattr(b"n7", &value(XATTR_VALUE_MAX - 16)));
    assert_eq!(rig.run("full", full).result, 0);
    assert_eq!(rig.one("full", set_xattr(b"n", b"")), E2BIG);
    // What they cost to read, again and again.
    rig.run("c", large[..7].to_vec());
    assert_eq!(rig.run("c", vec![op(code::GETXATTRS); 100]).result, 0);
    assert_eq!(rig.run("c", vec![op(code::GETXATTRS); 200]).result, E2BIG);
    assert_eq!(rig.run("c", vec![get_xattr(b"n1"); 1200]).result, E2BIG);
    let header = |n: usize| op(code::OMAPSETHEADER).with_data(value(n));
    assert_eq!(rig.one("c", header(HEADER_MAX)), 0);
    assert_eq!(rig.one("c", header(HEADER_MAX + 1)), E2BIG);
}

#[test]
fn xattrs_of_a_copied_object_are_bounded() {
    let mut rig = Rig::new();
    let m = rig.request("o", vec![copy_from(8, "src", 0)]);
    rig.send(m);
    let id = fetch_id(&mut rig);
    let mut copy = source();
    copy.attrs = vec![("n".into(), vec![0; 12 << 20].into())];
    rig.apply(Input::Fetched { id, result: Ok(copy) });
    assert_eq!(rig.replies()[0].result, E2BIG);
    assert!(rig.data("o", NOSNAP).is_none());
}

/// Attributes that only a build without limits took: 96 MiB of them.
pub(super) fn poison(oid: &ObjectId, pg: SPgId, store: &mut MemoryStore) {
    for n in 0..8 {
        let mut txn = Transaction::new(pg);
        let name = user_attr(format!("a{n}").as_bytes());
        let attrs = vec![(name, Bytes::from(vec![n; 12 << 20]))];
        txn.ops.push(Op::SetAttrs {
            oid: oid.clone(),
            attrs,
        });
        store.submit(&txn).unwrap();
    }
}

fn poisoned(rig: &mut Rig) {
    rig.run("o", vec![write_full(b"data"), set_xattr(b"small", b"1")]);
    let oid = super::scrub::oid("o");
    let pg = rig.pg.id();
    poison(&oid, pg, &mut rig.store);
    rig.restart();
}

#[test]
fn an_oversized_object_of_an_older_build_is_read_and_shrunk_and_deleted() {
    let mut rig = Rig::new();
    poisoned(&mut rig);
    assert_eq!(
        rig.run("o", vec![get_xattr(b"a3")]).ops[0].outdata.len(),
        12 << 20
    );
    assert_eq!(rig.one("o", append(b"!")), 0);
    assert_eq!(rig.one("o", set_xattr(b"b", b"new")), E2BIG);
    assert_eq!(rig.one("o", set_xattr(b"a1", b"small")), 0, "smaller than it was");
    assert_eq!(rig.one("o", OsdOp::on_xattr(code::RMXATTR, b"a2", b"", 0, 0)), 0);
    assert_eq!(rig.one("o", op(code::DELETE)), 0);
    assert_eq!(rig.one("o", set_xattr(b"b", b"new")), 0);
}

/// Namespace, name and locator key.
type Name = (Bytes, (Bytes, Bytes));

#[test]
fn a_listing_of_long_names_comes_in_pages() {
    let mut rig = Rig::new();
    let count = 800u64;
    for n in 0..count {
        assert_eq!(rig.one(&format!("{n:0>2000}"), op(code::CREATE)), 0);
    }
    let mut at = HObject {
        pool: POOL,
        ..HObject::min()
    };
    let (mut found, mut pages) = (0, 0);
    loop {
        let list = op(code::PGNLS)
            .with_pg_list(PgListArg {
                count: 1000,
                ..Default::default()
            })
            .with_data(denc::Encode::to_bytes(&at));
        let mut m = rig.request("", vec![list]);
        m.hash = 0;
        let r = rig.answer(m);
        assert!(r.ops[0].outdata.len() < (1 << 20) + 10_000);
        let (next, entries): (HObject, Vec<Name>) = denc::Reader::new(r.ops[0].outdata.clone())
            .envelope(1, |_, r| Ok((r.get()?, r.get()?)))
            .unwrap();
        found += entries.len() as u64;
        pages += 1;
        if r.result == 1 {
            break;
        }
        at = next;
    }
    assert_eq!((found, pages), (count, 2));
}

#[test]
fn a_write_does_not_leave_a_large_log_entry() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(&[7; 4096])]);
    rig.flags = flag::RETURNVEC;
    let mut reads = vec![read(0, 64); 500];
    reads.push(append(b"x"));
    assert_eq!(rig.run("o", reads.clone()).result, -75);
    assert_eq!(rig.run("o", reads[450..].to_vec()).result, 0);
    let too_much = OsdOp::on_class("hello", "write_too_much_return_data", b"");
    let r = rig.run("o", vec![read(0, 1), too_much]);
    assert_eq!((r.result, r.ops[0].rval, r.ops[1].rval), (-75, 0, -75));
    rig.flags = 0;
    let pieces = |n: u64| (0..n).map(|i| write(i * 2, b"p")).collect::<Vec<_>>();
    assert_eq!(rig.run("o", pieces(900)).result, 0);
    let all = rig.store.log_entries(rig.pg.id()).unwrap();
    let largest = all.iter().map(|(_, e)| e.len()).max().unwrap();
    assert!(largest < 10_000, "{largest} bytes");
}

#[test]
fn a_poisoned_object_does_not_keep_a_member_from_catching_up() {
    use super::replication::{Cluster, in_turn};
    let mut c = Cluster::new(4, 3, 2);
    c.run(in_turn(), 300);
    for n in 0..20 {
        super::scrub::done(&mut c, &format!("o{n}"), vec![write_full(b"data")]);
    }
    // All copies have it, as if an older build had written it; and one of the largest allowed.
    let bad = super::scrub::oid("o7");
    for osd in [0, 1, 2] {
        poison(
            &bad,
            SPgId::replicated(PgId::new(POOL, 0)),
            super::scrub::store(&mut c, osd),
        );
    }
    let value = vec![1; XATTR_VALUE_MAX];
    let largest = (0..7)
        .map(|i| set_xattr(format!("n{i}").as_bytes(), &value))
        .collect();
    assert_eq!(super::scrub::done(&mut c, "o8", largest).result, 0);
    // By its log.
    c.kill(2);
    super::scrub::done(&mut c, "o7", vec![append(b"!")]);
    super::scrub::done(&mut c, "o8", vec![set_xattr(b"n1", b"other")]);
    assert_eq!(c.group.in_sync, [0, 1]);
    c.set_up(&[0, 1, 2]);
    c.start(2);
    c.run(in_turn(), 3000);
    assert_eq!(c.group.in_sync, [0, 1, 2]);
    // One that has nothing.
    c.set_up(&[0, 1, 3]);
    c.run(in_turn(), 3000);
    assert_eq!(c.group.in_sync, [0, 1, 3]);
    let sizes = |c: &mut Cluster, osd, o: &ObjectId| super::scrub::store(c, osd).attr_sizes(o).unwrap();
    for o in [bad, super::scrub::oid("o8")] {
        let want = sizes(&mut c, 0, &o);
        assert!(want.len() > 7);
        for osd in [2, 3] {
            assert_eq!(sizes(&mut c, osd, &o), want, "osd.{osd}: {}", o.object);
        }
    }
}

#[test]
fn a_listing_for_a_peer_looks_at_a_limited_part_of_large_records() {
    let mut rig = Rig::new();
    for n in 0..10 {
        rig.run(&format!("o{n}"), vec![write_full(b"data")]);
        poison(&super::scrub::oid(&format!("o{n}")), rig.pg.id(), &mut rig.store);
    }
    let mut at = ObjectId::replicated(HObject {
        pool: POOL,
        snap: 0,
        ..HObject::min()
    });
    let end = HObject {
        pool: POOL + 1,
        ..HObject::min()
    };
    let mut found = Vec::new();
    loop {
        let (items, next) = crate::state::versions::list_versions(&at, &end, 1000, &mut rig.store).unwrap();
        assert_eq!(items.len(), 1, "one such object at a time");
        found.extend(items);
        match next {
            Some(next) => at.object = next,
            None => break,
        }
    }
    assert_eq!(found.len(), 10);
}
