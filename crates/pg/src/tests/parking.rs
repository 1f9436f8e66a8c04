//! Messages whose data lies on a disk: in which order they are executed and answered, that they give the same
//! results as from memory, and that no ticket stays with the store.

use super::hostile;
use super::*;
use messages::osd::{ChecksumArg, WriteSameArg};
use proptest::prelude::*;
use std::collections::BTreeMap;

const BLOCK: u64 = 4096;

/// A PG with object `o` of ten blocks and a half, cold, whose reads end when the test says.
fn cold_rig() -> Rig {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(&vec![7; 10 * 4096 + 2048])]);
    rig.run("p", vec![write_full(&vec![8; 5000])]);
    rig.cool_down(0);
    rig.auto_read = false;
    rig
}

/// Sends without waiting; the tid.
fn post(rig: &mut Rig, oid: &str, ops: Vec<OsdOp>) -> u64 {
    let m = rig.request(oid, ops);
    rig.send(m);
    rig.tid
}

fn tids(rig: &mut Rig) -> Vec<u64> {
    rig.replies().iter().map(|r| r.tid).collect()
}

fn newest(rig: &Rig) -> Ticket {
    *rig.cold().reading().last().unwrap()
}

fn is_idle(rig: &Rig) -> bool {
    rig.pg.front.is_at_rest() && rig.cold().held() == 0
}

#[test]
fn a_message_asks_for_all_that_it_reads_and_no_more() {
    let truncating = messages::osd::ExtentArg {
        offset: 8192,
        length: 4096,
        truncate_size: 4097,
        truncate_seq: 3,
    };
    let cases: Vec<(OsdOp, usize)> = vec![
        (read(0, 0), 1),
        (read(5, 10), 1),
        (read(1 << 20, 10), 0),
        (OsdOp::ranged(code::SYNC_READ, 100, 0), 1),
        (OsdOp::ranged(code::SPARSE_READ, 5000, 9000), 1),
        (OsdOp::ranged(code::CMPEXT, 0, 3).with_data(vec![7; 3]), 1),
        (op(code::TMAPGET), 1),
        (op(code::TMAPUP).with_data("R\u{1}\0\0\0k"), 1),
        (op(code::TMAP2OMAP), 1),
        (op(code::STAT), 0),
        (OsdOp::ranged(code::MAPEXT, 0, 9000), 0),
        (
            op(code::CHECKSUM)
                .with_checksum(ChecksumArg {
                    kind: 2,
                    ..Default::default()
                })
                .with_data(vec![0; 4]),
            1,
        ),
        (set_xattr(b"a", b"b"), 0),
        (write(4096, &[1; 4096]), 0),
        (write(5000, &[1; 10]), 1),
        (write(4097, &[1; 8192]), 2),
        (write(100_000, &[1; 10]), 0),
        (write(10 * BLOCK + 3000, &[1; 10]), 1),
        (write(10 * BLOCK, &[1; 2048]), 0),
        (
            op(code::WRITE).with_extent(truncating).with_data(vec![1; 4096]),
            1,
        ),
        (append(b"x"), 1),
        (write_full(&[2; 4096 * 11]), 0),
        (write_full(&[2; 5000]), 1),
        (OsdOp::ranged(code::ZERO, 4096, 4096), 0),
        (OsdOp::ranged(code::ZERO, 5000, 9000), 2),
        (OsdOp::ranged(code::TRUNCATE, 4096, 0), 0),
        (OsdOp::ranged(code::TRUNCATE, 5000, 0), 1),
        (OsdOp::ranged(code::TRUNCATE, 1 << 20, 0), 0),
        (
            op(code::WRITESAME)
                .with_write_same(WriteSameArg {
                    offset: 100,
                    length: 8192,
                    data_length: 4,
                })
                .with_data(vec![3; 4]),
            2,
        ),
        (OsdOp::on_class("rbd", "get_id", b""), 1),
        (OsdOp::on_class("rbd", "get_features", b""), 0),
        (copies::copy_from(POOL, "p", 0), 1),
        (op(code::DELETE), 0),
    ];
    for (o, asked) in cases {
        let mut rig = cold_rig();
        let name = format!("{} {:?}", o.code, o.extent());
        post(&mut rig, "o", vec![o]);
        assert_eq!(rig.cold().held(), asked, "{name}");
        rig.end_reads(|_| 0);
        assert_eq!(rig.replies().len(), 1, "{name}");
        assert_eq!(rig.cold().blocked, 0, "{name} read what it had not asked for");
        assert!(is_idle(&rig), "{name}");
    }
}

#[test]
fn a_read_of_a_snapshot_asks_for_the_clone() {
    let mut rig = cold_rig();
    rig.auto_read = true;
    rig.snapc = (1, vec![1]);
    rig.run("o", vec![write_full(b"new")]);
    assert_eq!(rig.data("o", 1).unwrap().len(), 10 * 4096 + 2048);
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "new");
    let back = op(code::ROLLBACK).with_first_u64(1);
    assert_eq!(rig.one("o", back), 0);
    assert_eq!(rig.cold().blocked, 0);
    assert!(is_idle(&rig));
}

#[test]
fn reads_of_one_object_end_in_any_order_and_other_objects_go_on() {
    let mut rig = cold_rig();
    let first = post(&mut rig, "o", vec![read(0, 10)]);
    let second = post(&mut rig, "o", vec![read(8192, 10)]);
    let stat = post(&mut rig, "o", vec![op(code::STAT)]);
    let other = post(&mut rig, "q", vec![write_full(b"q")]);
    assert_eq!(tids(&mut rig), [stat, other]);
    let ticket = newest(&rig);
    rig.end_read(ticket);
    assert_eq!(tids(&mut rig), [second]);
    rig.end_reads(|_| 0);
    assert_eq!(tids(&mut rig), [first]);
    assert!(is_idle(&rig));
}

#[test]
fn writes_keep_their_place_among_reads() {
    let mut rig = cold_rig();
    let before = post(&mut rig, "o", vec![read(0, 1)]);
    let write_1 = post(&mut rig, "o", vec![write(0, b"1")]);
    let between = post(&mut rig, "o", vec![read(0, 1)]);
    let write_2 = post(&mut rig, "o", vec![write_full(b"2")]);
    let after = post(&mut rig, "o", vec![read(0, 1)]);
    assert!(rig.replies().is_empty());
    // The last one's data comes first, the first one's last.
    rig.end_reads(|n| n - 1);
    let got: Vec<_> = rig
        .replies()
        .iter()
        .map(|r| (r.tid, r.ops[0].outdata.to_vec()))
        .collect();
    let want: [(u64, &[u8]); 5] = [
        (before, &[7]),
        (write_1, b""),
        (between, b"1"),
        (write_2, b""),
        (after, b"2"),
    ];
    assert_eq!(got, want.map(|(t, d)| (t, d.to_vec())));
    assert!(is_idle(&rig));
}

#[test]
fn a_read_that_asks_for_order_has_it_and_so_has_a_notify() {
    let mut rig = cold_rig();
    let first = post(&mut rig, "o", vec![read(0, 10)]);
    rig.flags = flag::RWORDERED;
    let ordered = post(&mut rig, "o", vec![op(code::STAT)]);
    rig.flags = 0;
    let last = post(&mut rig, "o", vec![read(8192, 10)]);
    let ticket = newest(&rig);
    rig.end_read(ticket);
    assert!(rig.replies().is_empty(), "behind the ordered one");
    rig.end_reads(|_| 0);
    assert_eq!(tids(&mut rig), [first, ordered, last]);

    let first = post(&mut rig, "o", vec![read(0, 10)]);
    let told = post(&mut rig, "o", vec![op(code::NOTIFY_ACK).with_data(vec![0; 16])]);
    assert!(rig.replies().is_empty());
    rig.end_reads(|_| 0);
    assert_eq!(tids(&mut rig), [first, told]);
}

#[test]
fn a_refused_message_and_a_duplicate_wait_for_the_writes_before_them() {
    let mut rig = cold_rig();
    let m = rig.request("o", vec![append(b"!")]);
    rig.send(m.clone());
    let refused = post(&mut rig, "o", vec![op(OpCode(0))]);
    rig.send(m.clone());
    assert!(rig.replies().is_empty());
    rig.end_reads(|_| 0);
    let got: Vec<_> = rig.replies().iter().map(|r| (r.tid, r.result)).collect();
    assert_eq!(got, [(m.tid, 0), (refused, -22), (m.tid, 0)]);
    rig.auto_read = true;
    assert_eq!(rig.data("o", NOSNAP).unwrap().len(), 10 * 4096 + 2049);
    assert!(is_idle(&rig));
}

#[test]
fn a_client_blocklisted_while_its_write_waits_writes_nothing() {
    let mut rig = cold_rig();
    post(&mut rig, "o", vec![append(b"late")]);
    let me = EntityAddr::msgr2("1.2.3.4:5000".parse().unwrap(), rig.gid as u32);
    rig.set_pool(PoolView {
        blocklist: Arc::new(Blocklist::new(&[me])),
        ..pool()
    });
    let seq = rig.store.seq;
    rig.end_reads(|_| 0);
    assert_eq!(rig.replies()[0].result, -108);
    assert_eq!(rig.store.seq, seq);
    assert!(is_idle(&rig));
}

#[test]
fn what_a_closed_connection_sent_is_dropped_and_the_others_go_on() {
    let mut rig = cold_rig();
    let kept = post(&mut rig, "o", vec![read(0, 10)]);
    rig.conn = 2;
    rig.gid += 1;
    let watch = messages::osd::WatchArg {
        cookie: 1,
        op: 3,
        ..Default::default()
    };
    post(&mut rig, "o", vec![append(b"x")]);
    post(&mut rig, "o", vec![op(code::WATCH).with_watch(watch)]);
    rig.conn = 1;
    let behind = post(&mut rig, "o", vec![read(8192, 10)]);
    rig.apply(Input::ConnectionClosed(2));
    let ticket = newest(&rig);
    rig.end_read(ticket);
    assert_eq!(tids(&mut rig), [behind], "the write before it is gone");
    rig.end_reads(|_| 0);
    assert_eq!(tids(&mut rig), [kept]);
    assert!(is_idle(&rig));
    let r = rig.run("o", vec![op(code::LIST_WATCHERS)]);
    assert_eq!(r.ops[0].outdata[..], [1, 1, 4, 0, 0, 0, 0, 0, 0, 0]);
    // A read that ends after its message was dropped is nothing to the PG.
    rig.apply(Input::Prefetched(1));
}

#[test]
fn a_split_and_the_end_of_a_pg_release_every_ticket() {
    let named = |want| {
        let mut names = (0..).map(|n| format!("o{n}"));
        names.find(|o| seed_of(hash(o.as_bytes()), 2) == want).unwrap()
    };
    let mut rig = Rig::new();
    for seed in [0, 1] {
        rig.run(&named(seed), vec![write_full(&[5; 100])]);
    }
    rig.cool_down(0);
    rig.auto_read = false;
    for seed in [0, 1] {
        post(&mut rig, &named(seed), vec![read(0, 1)]);
        post(&mut rig, &named(seed), vec![append(b"x")]);
        post(&mut rig, &named(seed), vec![read(0, 2)]);
    }
    let object = |seed| {
        let name = named(seed);
        let (none, hash) = (Bytes::new(), hash(name.as_bytes()));
        HObject::new(POOL, hash, none.clone(), none, name.into(), NOSNAP)
    };
    for seed in [0, 1] {
        let token = u64::from(seed);
        rig.apply(Input::Export {
            token,
            object: object(seed),
        });
    }
    assert_eq!(rig.cold().held(), 8);
    rig.set_pool(PoolView { pg_num: 2, ..pool() });
    assert_eq!(rig.cold().held(), 4, "those of the other half are gone");
    let exported = |rig: &mut Rig| match rig.out.pop() {
        Some(Output::Exported { token, result }) => (token, result.map(|c| c.data).map_err(|e| e.code())),
        o => panic!("{o:?}"),
    };
    assert_eq!(exported(&mut rig), (1, Err(-11)));
    let ticket = newest(&rig);
    rig.end_read(ticket);
    let whole = Bytes::from_static(&[5; 100]);
    assert_eq!(exported(&mut rig), (0, Ok(whole)), "past the write that waits");
    assert!(rig.replies().is_empty());
    rig.restart();
    assert!(is_idle(&rig), "{}", rig.cold().held());
    assert!(rig.out.is_empty());
}

#[test]
fn an_export_that_waits_for_a_flush_is_told_when_the_pg_ends() {
    let mut rig = Rig::new();
    rig.auto_commit = false;
    post(&mut rig, "o", vec![write_full(b"x")]);
    let object = HObject::new(POOL, hash(b"o"), Bytes::new(), Bytes::new(), "o".into(), NOSNAP);
    rig.apply(Input::Export { token: 3, object });
    assert!(rig.out.is_empty());
    rig.restart();
    let told = matches!(&rig.out[..], [Output::Exported { token: 3, result: Err(e) }] if *e == Errno::EAGAIN);
    assert!(told, "{:?}", rig.out);
}

#[test]
fn the_answer_to_a_fetch_of_the_life_before_is_not_taken() {
    let mut rig = cold_rig();
    post(&mut rig, "o", vec![copies::copy_from(8, "src", 77)]);
    let old = copies::fetch_id(&mut rig);
    rig.now += Duration::from_secs(1);
    rig.restart();
    post(&mut rig, "o", vec![copies::copy_from(8, "other", 77)]);
    let new = copies::fetch_id(&mut rig);
    let result = Ok(copies::source());
    rig.apply(Input::Fetched { id: old, result });
    assert!(rig.replies().is_empty());
    let result = Err(Errno::ENOENT);
    rig.apply(Input::Fetched { id: new, result });
    assert_eq!(rig.replies()[0].result, -2);
    assert!(is_idle(&rig));
}

#[test]
fn a_damaged_object_is_told_when_its_turn_comes() {
    let mut rig = cold_rig();
    post(&mut rig, "o", vec![read(0, 10)]);
    post(&mut rig, "o", vec![append(b"x")]);
    rig.store.unreadable = true;
    rig.end_reads(|_| 0);
    let results: Vec<i32> = rig.replies().iter().map(|r| r.result).collect();
    assert_eq!(results[0], -5);
    assert!(is_idle(&rig));
}

#[test]
fn a_copy_from_afar_waits_for_the_disk_and_then_for_the_source() {
    let mut rig = cold_rig();
    let m = rig.request("o", vec![read(0, 1), copies::copy_from(8, "src", 77)]);
    rig.send(m);
    let later = post(&mut rig, "o", vec![read(0, 4)]);
    assert!(rig.out.is_empty(), "the source is asked for when it is wanted");
    rig.end_reads(|_| 0);
    let id = copies::fetch_id(&mut rig);
    assert!(rig.replies().is_empty());
    rig.apply(Input::Fetched {
        id,
        result: Ok(copies::source()),
    });
    let got = rig.replies();
    assert_eq!((got[0].result, got[1].tid), (0, later));
    assert_eq!(got[1].ops[0].outdata, "from");
    assert!(is_idle(&rig));
}

#[test]
fn thousands_of_messages_behind_one_are_a_loop() {
    let mut rig = cold_rig();
    let first = post(&mut rig, "o", vec![append(b"x")]);
    let n = 20_000;
    for i in 0..n {
        let o = if i % 2 == 0 {
            op(code::STAT)
        } else {
            set_xattr(b"a", b"b")
        };
        // Hot, and only behind the first.
        post(&mut rig, "o", vec![o]);
    }
    assert!(rig.replies().is_empty());
    rig.end_reads(|_| 0);
    let want: Vec<u64> = (first..=first + n).collect();
    assert_eq!(tids(&mut rig), want);
    assert!(is_idle(&rig));
}

// --- the same as from memory --------------------------------------------------------------------------------

fn place() -> impl Strategy<Value = (u64, usize)> {
    let offset = prop_oneof![0..20_000u64, (0..5u64).prop_map(|b| b * BLOCK)];
    let len = prop_oneof![0..9000usize, (0..3usize).prop_map(|b| b * 4096)];
    (offset, len)
}

fn friendly() -> impl Strategy<Value = OsdOp> {
    let ranged = |c: OpCode| place().prop_map(move |(at, n)| OsdOp::ranged(c, at, n as u64));
    prop_oneof![
        4 => ranged(code::READ),
        1 => ranged(code::SPARSE_READ),
        1 => ranged(code::ZERO),
        1 => ranged(code::TRUNCATE),
        4 => (place(), any::<u8>()).prop_map(|((at, n), v)| write(at, &vec![v; n])),
        1 => (place(), any::<u8>()).prop_map(|((_, n), v)| write_full(&vec![v; n])),
        1 => (place(), any::<u8>()).prop_map(|((_, n), v)| append(&vec![v; n])),
        1 => (place(), any::<u8>()).prop_map(|((at, n), v)| {
            OsdOp::ranged(code::CMPEXT, at, n as u64).with_data(vec![v; n])
        }),
        1 => Just(op(code::STAT)),
        1 => Just(op(code::DELETE).with_flags(2)),
        1 => Just(excl()),
        1 => (0..4u64).prop_map(|s| op(code::ROLLBACK).with_first_u64(s)),
        1 => any::<u8>().prop_map(|v| set_xattr(b"a", &[v])),
        1 => Just(get_xattr(b"a")),
        1 => (0..2usize).prop_map(|o| copies::copy_from(POOL, ["a", "b"][o], 0)),
    ]
}

#[derive(Debug, Clone)]
struct Post {
    oid: &'static str,
    ops: Vec<OsdOp>,
    snap: u64,
    seq: u64,
    ordered: bool,
    /// Sent again under the number of the message so many before it.
    again: Option<usize>,
}

fn posted(names: &'static [&'static str]) -> impl Strategy<Value = Post> {
    let snap = prop_oneof![4 => Just(NOSNAP), 1 => 0..4u64];
    let again = prop_oneof![6 => Just(None), 1 => (1..5usize).prop_map(Some)];
    let ops = proptest::collection::vec(friendly(), 1..4);
    (proptest::sample::select(names), ops, snap, 0..4u64, 0..8u8, again).prop_map(
        |(oid, ops, snap, seq, ordered, again)| Post {
            oid,
            ops,
            snap,
            seq,
            ordered: ordered == 0,
            again,
        },
    )
}

fn may_change(m: &MOSDOp) -> bool {
    let reads = |o: &OsdOp| {
        matches!(
            o.code,
            code::READ | code::SPARSE_READ | code::CMPEXT | code::STAT | code::GETXATTR
        )
    };
    let copies = m.ops.iter().filter(|o| o.code == code::COPY_FROM).count();
    // One that is refused at once changes nothing.
    copies <= crate::exec::cost::COPIES_MAX && (m.has(flag::RWORDERED) || !m.ops.iter().all(reads))
}

/// The requests of a run. A reply is known by the attempt that it echoes.
fn requests(rig: &mut Rig, posts: &[Post]) -> Vec<MOSDOp> {
    let mut out: Vec<MOSDOp> = Vec::new();
    for (n, p) in posts.iter().enumerate() {
        let mut m = rig.request(p.oid, p.ops.clone());
        (m.snap_seq, m.snaps) = (p.seq, (1..=p.seq).rev().collect());
        m.flags = if p.ordered { flag::RWORDERED } else { 0 };
        if !may_change(&m) {
            m.snapid = p.snap;
        }
        if let Some(earlier) = p.again.and_then(|back| n.checked_sub(back)).map(|i| &out[i]) {
            m = earlier.clone();
        }
        m.retry_attempt = n as i32;
        out.push(m);
    }
    out
}

fn replies_by_number(rig: &mut Rig) -> (Vec<i32>, BTreeMap<i32, MOSDOpReply>) {
    let replies = rig.replies();
    let order = replies.iter().map(|r| r.retry_attempt).collect();
    (order, replies.into_iter().map(|r| (r.retry_attempt, r)).collect())
}

/// Sends all, and between them ends as many reads as `steps` says, picked by it, too.
fn run_cold(rig: &mut Rig, all: &[MOSDOp], lucky: u64, steps: &[u8]) {
    rig.cool_down(lucky);
    rig.auto_read = false;
    let mut steps = steps.iter().copied().cycle();
    for m in all {
        rig.send(m.clone());
        for _ in 0..steps.next().unwrap_or(0) % 4 {
            let reading = rig.cold().reading();
            if !reading.is_empty() {
                rig.end_read(reading[usize::from(steps.next().unwrap_or(0)) % reading.len()]);
            }
        }
    }
    rig.end_reads(|_| usize::from(steps.next().unwrap_or(0)));
}

fn results(r: &MOSDOpReply) -> (i32, Vec<(i32, Bytes)>) {
    let ops = r.ops.iter().map(|o| (o.rval, o.outdata.clone()));
    (r.result, ops.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_pipeline_on_a_cold_object_gives_what_it_gives_on_a_hot_one(
        posts in proptest::collection::vec(posted(&["a"]), 1..40),
        lucky in 0..4u64,
        steps in proptest::collection::vec(any::<u8>(), 1..50),
    ) {
        let (mut hot, mut cold) = (Rig::new(), Rig::new());
        let all = requests(&mut hot, &posts);
        all.iter().for_each(|m| hot.send(m.clone()));
        run_cold(&mut cold, &all, lucky, &steps);
        let (_, want) = replies_by_number(&mut hot);
        let (order, got) = replies_by_number(&mut cold);
        prop_assert_eq!(order.len(), all.len());
        prop_assert_eq!(got, want);
        prop_assert_eq!(cold.pg.stats(), hot.pg.stats());
        prop_assert!(is_idle(&cold));
        // Whatever may change the object is answered after all before it, and before all behind it.
        let mut place = vec![0; all.len()];
        order.iter().enumerate().for_each(|(at, n)| place[*n as usize] = at);
        for (i, m) in all.iter().enumerate().filter(|(_, m)| may_change(m)) {
            prop_assert!(place[..i].iter().all(|p| *p < place[i]), "{} {:?}", i, m);
            prop_assert!(place[i + 1..].iter().all(|p| *p > place[i]), "{} {:?}", i, m);
        }
    }

    #[test]
    fn objects_do_not_disturb_each_other(
        posts in proptest::collection::vec(posted(&["a", "b"]), 1..40),
        lucky in 0..4u64,
        steps in proptest::collection::vec(any::<u8>(), 1..50),
    ) {
        let (mut hot, mut cold) = (Rig::new(), Rig::new());
        // What is copied between objects depends on when the other one changed.
        let copies = |o: &OsdOp| o.code == code::COPY_FROM;
        let posts: Vec<Post> = posts.into_iter().filter(|p| !p.ops.iter().any(copies)).collect();
        let all = requests(&mut hot, &posts);
        all.iter().for_each(|m| hot.send(m.clone()));
        run_cold(&mut cold, &all, lucky, &steps);
        let (_, want) = replies_by_number(&mut hot);
        let (_, got) = replies_by_number(&mut cold);
        prop_assert_eq!(got.len(), all.len());
        for (n, r) in &got {
            prop_assert_eq!(results(r), results(&want[n]), "message {}", n);
        }
        prop_assert!(is_idle(&cold));
        cold.auto_read = true;
        for o in ["a", "b"] {
            prop_assert_eq!(cold.data(o, NOSNAP), hot.data(o, NOSNAP));
        }
    }

    #[test]
    fn hostile_messages_in_a_pipeline_are_answered_as_one_by_one(
        posts in proptest::collection::vec(hostile::message(), 1..30),
        lucky in 0..4u64,
        steps in proptest::collection::vec(any::<u8>(), 1..50),
    ) {
        let (mut hot, mut cold) = (Rig::new(), Rig::new());
        // A listing shows what is there when it comes.
        let lists = |h: &hostile::Hostile| h.ops.iter().any(|o| o.code.is_pg());
        let posts = posts.into_iter().filter(|h| h.oid == "a" && !lists(h));
        let all: Vec<MOSDOp> = posts
            .enumerate()
            .map(|(n, h)| {
                let mut m = h.request(&mut hot);
                m.retry_attempt = n as i32;
                m
            })
            .collect();
        for rig in [&mut hot, &mut cold] {
            rig.tid = 5000;
            rig.run("a", vec![write_full(&[9; 5000]), set_xattr(b"a", b"1"), omap_set(&[("k", "v")])]);
        }
        all.iter().for_each(|m| hot.send(m.clone()));
        run_cold(&mut cold, &all, lucky, &steps);
        let (_, want) = replies_by_number(&mut hot);
        let (order, got) = replies_by_number(&mut cold);
        prop_assert_eq!(order.len(), got.len());
        prop_assert_eq!(got, want);
        prop_assert_eq!(cold.pg.stats(), hot.pg.stats());
        prop_assert!(is_idle(&cold));
    }
}
