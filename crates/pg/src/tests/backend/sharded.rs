//! Whole PGs over shards: clients' operations, snapshots and rollbacks against the model of [`super::super::model`], with data that
//! comes from elsewhere and one shard lost.

use super::xor::{Far, Xor};
use super::*;
use std::cell::RefCell;
use std::rc::Rc;

fn rig() -> (Rig, Rc<RefCell<Far>>) {
    let mut rig = Rig::new();
    let far = Far::new(&rig.store);
    rig.pg.backend = Box::new(Xor::new(group(&[0, 1, 2]), far.clone()));
    rig.far = Some(far.clone());
    (rig, far)
}

#[test]
fn operations_read_and_write_over_shards() {
    let (mut rig, _) = rig();
    let long: Vec<u8> = (0..100).collect();
    assert_eq!(rig.one("a", write_full(&long)), 0);
    assert_eq!(rig.one("a", write(30, b"over two units of a stripe")), 0);
    let mut want = long.clone();
    want[30..56].copy_from_slice(b"over two units of a stripe");
    assert_eq!(rig.data("a", NOSNAP).unwrap(), want[..]);
    let r = rig.run("a", vec![read(10, 40), read(90, 100)]);
    assert_eq!(
        (&r.ops[0].outdata[..], &r.ops[1].outdata[..]),
        (&want[10..50], &want[90..])
    );
    // A comparison reads before it lets the write through.
    let compare =
        |with: &'static [u8]| OsdOp::ranged(code::CMPEXT, 30, with.len() as u64).with_data(with.to_vec());
    assert_eq!(rig.run("a", vec![compare(b"over"), write(0, b"yes")]).result, 0);
    assert!(rig.run("a", vec![compare(b"under"), write(0, b"no!")]).result < 0);
    assert!(rig.data("a", NOSNAP).unwrap().starts_with(b"yes"));
    assert_eq!(
        rig.run("a", vec![set_xattr(b"k", b"v"), get_xattr(b"k")]).result,
        -61
    );
    assert_eq!(
        rig.run("a", vec![get_xattr(b"k")]).result,
        -61,
        "a failed message leaves nothing"
    );
    assert_eq!(rig.one("a", set_xattr(b"k", b"v")), 0);
    assert_eq!(rig.run("a", vec![get_xattr(b"k")]).ops[0].outdata, "v");
    assert_eq!(rig.one("a", op(code::DELETE)), 0);
    assert_eq!(rig.data("a", NOSNAP), None);
}

#[test]
fn answers_wait_for_every_shard() {
    let (mut rig, far) = rig();
    rig.auto_commit = false;
    rig.flush_far = false;
    let request = rig.request("a", vec![write(0, b"data")]);
    rig.send(request);
    assert!(rig.replies().is_empty(), "nobody has it durable");
    let seq = rig.store.seq;
    rig.apply(Input::Committed(seq));
    assert!(rig.replies().is_empty(), "only the first shard has");
    far.borrow_mut().flush(1);
    rig.apply(Input::Tick);
    assert!(rig.replies().is_empty());
    far.borrow_mut().flush(2);
    rig.apply(Input::Tick);
    assert_eq!(rig.replies().len(), 1);
}

/// Sends without waiting; the tid.
fn post(rig: &mut Rig, oid: &str, ops: Vec<OsdOp>) -> u64 {
    let m = rig.request(oid, ops);
    rig.send(m);
    rig.tid
}

/// What was asked of the other shards comes, one by one; what was answered then.
fn come(rig: &mut Rig) -> Vec<(u64, i32, Vec<u8>)> {
    while rig.end_far() {
        let seq = rig.store.seq;
        rig.apply(Input::Committed(seq));
    }
    let replies = rig.replies();
    let of = |r: &MOSDOpReply| (r.tid, r.result, r.ops[0].outdata.to_vec());
    replies.iter().map(of).collect()
}

/// Everything was released.
fn is_at_rest(rig: &Rig, far: &Rc<RefCell<Far>>) -> bool {
    rig.pg.front.is_at_rest() && far.borrow().holds() == 0
}

/// Each write changes the version of the object, so that what was asked for before it is of no use to those behind it.
#[test]
fn messages_behind_writes_see_what_these_have_made() {
    let (mut rig, far) = rig();
    let long: Vec<u8> = (0..100).collect();
    assert_eq!(rig.one("a", write_full(&long)), 0);
    far.borrow_mut().held = true;
    // Two parts of one stripe in a row, and of the next.
    let first = post(&mut rig, "a", vec![write(2, b"one")]);
    let second = post(&mut rig, "a", vec![write(20, b"two")]);
    let between = post(&mut rig, "a", vec![read(0, 24)]);
    let third = post(&mut rig, "a", vec![write(30, b"three")]);
    let after = post(&mut rig, "a", vec![read(0, 100)]);
    let beside = post(&mut rig, "b", vec![write_full(b"b")]);
    assert_eq!(
        rig.replies().len(),
        1,
        "what needs nothing waits for nobody: {beside}"
    );
    let mut want = long.clone();
    want[2..5].copy_from_slice(b"one");
    want[20..23].copy_from_slice(b"two");
    let seen = want[..24].to_vec();
    want[30..35].copy_from_slice(b"three");
    let got = come(&mut rig);
    let written = |tid| (tid, 0, Vec::new());
    assert_eq!(
        got,
        [
            written(first),
            written(second),
            (between, 0, seen),
            written(third),
            (after, 0, want)
        ]
    );
    assert!(is_at_rest(&rig, &far));
}

/// One of the PG's own changes comes between: what was asked for is of another version then.
#[test]
fn what_has_come_of_an_older_version_is_asked_for_anew() {
    let (mut rig, far) = rig();
    let watch = messages::osd::WatchArg {
        cookie: 1,
        op: 3,
        ..Default::default()
    };
    let long: Vec<u8> = (0..100).collect();
    assert_eq!(rig.one("a", write_full(&long)), 0);
    assert_eq!(rig.one("a", op(code::WATCH).with_watch(watch)), 0);
    rig.apply(Input::ConnectionClosed(1));
    far.borrow_mut().held = true;
    let reads = post(&mut rig, "a", vec![read(0, 100)]);
    let log = rig.pg.log_len();
    rig.tick_after(Duration::from_secs(3600));
    assert_eq!(
        rig.pg.log_len(),
        log + 1,
        "the watch has ended in the midst of the read"
    );
    assert_eq!(far.borrow().lacked, 0, "and needed no data for it");
    assert_eq!(come(&mut rig), [(reads, 0, long)]);
    assert_eq!(far.borrow().begun(), 2, "it was asked for twice");
    assert!(is_at_rest(&rig, &far));
}

#[test]
fn a_copy_of_an_object_here_waits_for_its_source() {
    let (mut rig, far) = rig();
    let long: Vec<u8> = (0..100).collect();
    assert_eq!(rig.one("p", write_full(&long)), 0);
    far.borrow_mut().held = true;
    let copy = post(&mut rig, "a", vec![super::super::copies::copy_from(POOL, "p", 0)]);
    assert!(rig.replies().is_empty());
    assert_eq!(come(&mut rig), [(copy, 0, Vec::new())]);
    // The source changes between the first look at it and the copy.
    let part = post(&mut rig, "p", vec![write(1, b"changed")]);
    let copy = post(&mut rig, "b", vec![super::super::copies::copy_from(POOL, "p", 0)]);
    assert_eq!(
        come(&mut rig).iter().map(|r| r.0).collect::<Vec<_>>(),
        [part, copy]
    );
    far.borrow_mut().held = false;
    assert_eq!(rig.data("a", NOSNAP).unwrap(), long);
    assert!(rig.data("b", NOSNAP).unwrap().starts_with(b"\0changed"));
    assert!(is_at_rest(&rig, &far));
}

/// A copy that was fetched from afar is kept while the message waits for something else.
#[test]
fn what_was_fetched_is_not_fetched_again() {
    let (mut rig, far) = rig();
    assert_eq!(rig.one("a", write_full(&[3; 100])), 0);
    far.borrow_mut().held = true;
    let copy = super::super::copies::copy_from(8, "src", 77);
    let compare = OsdOp::ranged(code::CMPEXT, 0, 3).with_data(vec![3; 3]);
    post(&mut rig, "a", vec![compare, copy]);
    while rig.end_far() {}
    let id = super::super::copies::fetch_id(&mut rig);
    far.borrow_mut().forgets = true;
    let result = Ok(super::super::copies::source());
    rig.apply(Input::Fetched { id, result });
    assert!(
        rig.out.is_empty() && far.borrow().begun() == 2,
        "the comparison is brought anew"
    );
    far.borrow_mut().forgets = false;
    let got = come(&mut rig);
    assert_eq!((got.len(), got[0].1), (1, 0));
    assert!(is_at_rest(&rig, &far));
}

/// A class method of a large object asks for what it wants when it runs.
#[test]
fn a_class_method_waits_for_what_the_plan_did_not_foresee() {
    let (mut rig, far) = rig();
    let resize = [2_000_000u64.to_le_bytes().as_slice(), &[0]].concat();
    let mut update = [1_500_000u64.to_le_bytes(), 1_500_001u64.to_le_bytes()].concat();
    update.extend([1, 0]);
    let resize = OsdOp::on_class("rbd", "object_map_resize", &resize);
    let update = OsdOp::on_class("rbd", "object_map_update", &update);
    let mut plain = Rig::new();
    for rig in [&mut rig, &mut plain] {
        assert_eq!(rig.one("a", resize.clone()), 0);
    }
    far.borrow_mut().held = true;
    let begun = far.borrow().begun();
    // All that was asked for when it came is of the version before this, which changes nothing but that.
    let end = plain.data("a", NOSNAP).unwrap();
    let at = end.len() - 3;
    let same = post(&mut rig, "a", vec![write(at as u64, &end[at..])]);
    let call = post(&mut rig, "a", vec![update.clone()]);
    let done = |tid| (tid, 0, Vec::new());
    assert_eq!(come(&mut rig), [done(same), done(call)]);
    assert!(far.borrow().begun() - begun >= 4, "header, footer, blocks");
    far.borrow_mut().held = false;
    assert_eq!(plain.one("a", update), 0);
    assert_eq!(rig.data("a", NOSNAP), plain.data("a", NOSNAP));
    assert!(is_at_rest(&rig, &far));
}

#[test]
fn what_cannot_be_had_is_an_error() {
    let (mut rig, far) = rig();
    assert_eq!(rig.one("a", write_full(&[3; 100])), 0);
    far.borrow_mut().fails = true;
    assert_eq!(rig.run("a", vec![read(0, 10)]).result, -5);
    assert_eq!(rig.one("a", write(3, b"part")), -5);
    assert_eq!(rig.one("a", op(code::STAT)), 0);
    far.borrow_mut().fails = false;
    assert_eq!(rig.one("a", write(3, b"part")), 0);
    assert_eq!(&rig.data("a", NOSNAP).unwrap()[..8], b"\x03\x03\x03part\x03");
    assert!(is_at_rest(&rig, &far));
}

/// Whatever comes is gone again: it ends.
#[test]
fn what_lacks_again_and_again_is_an_error() {
    let (mut rig, far) = rig();
    assert_eq!(rig.one("a", write_full(&[3; 100])), 0);
    far.borrow_mut().forgets = true;
    assert_eq!(rig.run("a", vec![read(0, 10)]).result, -5);
    assert_eq!(rig.one("a", write(3, b"part")), -5);
    assert!(is_at_rest(&rig, &far));
}

#[test]
fn an_export_waits_for_the_version_that_is_there_then() {
    let (mut rig, far) = rig();
    assert_eq!(rig.one("a", write_full(&[3; 100])), 0);
    far.borrow_mut().held = true;
    let object = HObject::new(POOL, hash(b"a"), Bytes::new(), Bytes::new(), "a".into(), NOSNAP);
    rig.apply(Input::Export { token: 9, object });
    // It waits for no one, and is passed.
    assert_eq!(rig.one("a", write_full(&[4; 100])), 0);
    while rig.end_far() {}
    let exported = rig.out.iter().find_map(|o| match o {
        Output::Exported { token: 9, result } => Some(result.as_ref().unwrap().data.clone()),
        _ => None,
    });
    assert_eq!(exported.unwrap(), [4; 100][..]);
    assert!(is_at_rest(&rig, &far));
}

/// What lacks something when the PG has ceased to be active waits with all others until it is active again.
#[test]
fn messages_are_held_where_the_pg_ceases_to_be_active() {
    let (mut rig, far) = rig();
    assert_eq!(rig.one("a", write_full(&[3; 100])), 0);
    far.borrow_mut().held = true;
    let first = post(&mut rig, "a", vec![write(3, b"one")]);
    let second = post(&mut rig, "a", vec![write(5, b"two")]);
    rig.apply(Input::Group(Box::new(group(&[0]))));
    far.borrow_mut().forgets = true;
    assert!(come(&mut rig).is_empty());
    assert_eq!(rig.pg.held(), 2);
    far.borrow_mut().forgets = false;
    rig.apply(Input::Group(Box::new(group(&[0, 1, 2]))));
    let got: Vec<u64> = come(&mut rig).iter().map(|r| r.0).collect();
    assert_eq!(got, [first, second]);
    far.borrow_mut().held = false;
    assert_eq!(&rig.data("a", NOSNAP).unwrap()[..9], b"\x03\x03\x03ontwo\x03");
    assert!(is_at_rest(&rig, &far));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn heads_and_snapshots_are_the_models(
        steps in proptest::collection::vec(super::super::model::step(), 1..40),
        lost in 1..3i32,
    ) {
        use super::super::model::{Model, Step, apply, verify};
        let (mut rig, far) = rig();
        let mut m = Model::default();
        for (n, s) in steps.iter().enumerate() {
            if matches!(s, Step::Restart) {
                // The other shards live in memory; they are lost and found again instead.
                let here = n % 2 == 0;
                far.borrow_mut().set_here(lost, here);
                let in_sync: Vec<OsdId> = (0..3).filter(|osd| here || *osd != lost).collect();
                rig.apply(Input::Group(Box::new(group(&in_sync))));
                continue;
            }
            apply(&mut m, &mut rig, s);
            verify(&m, &mut rig);
        }
    }
}
