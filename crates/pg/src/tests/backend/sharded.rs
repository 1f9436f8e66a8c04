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
