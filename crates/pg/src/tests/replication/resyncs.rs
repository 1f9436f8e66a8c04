//! A copy of `in_sync` that is behind, and a primary that cannot give it what it lacks.

use super::*;

fn object(name: &str) -> ObjectId {
    let name = name.as_bytes();
    let copy = Bytes::copy_from_slice(name);
    ObjectId::replicated(HObject::new(
        POOL,
        hash(name),
        Bytes::new(),
        Bytes::new(),
        copy,
        NOSNAP,
    ))
}

/// A block had gone bad on the primary, and the other copy, without which nothing goes on, lacked a write to that object: it was to
/// be given the object, which could not be read, again and again. Seed 1046 of the simulation. It has everything that anybody
/// was answered for: it leads, and the other copy is mended from it.
#[test]
fn a_primary_that_cannot_read_what_is_needed_lets_the_other_lead() {
    let mut c = Cluster::new(2, 2, 2);
    c.run(in_turn(), 300);
    let whole: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
    for name in ["a", "b"] {
        let tid = c.send(name, vec![write_full(&whole)]);
        c.run(in_turn(), 200);
        assert_eq!(c.answered(tid).unwrap().result, 0);
    }
    let unseen = c.send("a", vec![set_xattr(b"x", b"y")]);
    c.cut(0, 1);
    c.flush(0);
    c.nodes[0].store.spoil(&object("a"), 9000);
    c.mend();
    c.run(in_turn(), 600);
    assert!(c.led.contains(&1), "it has all that was answered");
    c.run(in_turn(), 3000);
    assert_eq!(
        (&c.group.in_sync[..], c.group.primary),
        (&[0, 1][..], 0),
        "as before"
    );
    c.check_equal();
    c.send_again(unseen, "a", vec![set_xattr(b"x", b"y")]);
    let tid = c.send("a", vec![read(0, 0)]);
    c.run(in_turn(), 300);
    assert_eq!(c.answered(unseen).unwrap().result, 0);
    assert_eq!(&c.answered(tid).unwrap().ops[0].outdata[..], &whole[..]);
    c.check_equal();
}
