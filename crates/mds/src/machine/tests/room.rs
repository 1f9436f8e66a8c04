//! How far a writer may write without asking.

use super::*;
use crate::row::{ROOT, job};
use messages::fs::{CapBody, MClientCaps, cap_op};

fn asks_for_room(w: &mut World, id: u64, ino: u64, size: u64) {
    let record = w.clients[&id].caps[&ino].clone();
    let m = MClientCaps {
        op: cap_op::UPDATE,
        ino,
        cap_id: record.cap_id,
        seq: w.clients[&id].seqs[&ino],
        caps: record.issued,
        wanted: record.wanted,
        body: CapBody {
            max_size: size,
            ..CapBody::default()
        },
        ..MClientCaps::default()
    };
    w.say(id, m.message(0));
}

fn sized(size: u64) -> Args {
    Args::of_setattr(&SetAttr {
        mask: setattr::SIZE,
        size,
        ..SetAttr::default()
    })
}

/// It asks once; a wish that is not heard is a write that never ends.
#[test]
fn who_asks_while_the_file_is_cut_is_given_room_afterwards() {
    let mut w = world();
    let f = w.make(1, ROOT, "f");
    w.call(2, op::SETATTR, (f, ""), (0, ""), sized(9 << 20));
    w.ask(2, op::SETATTR, (f, ""), (0, ""), sized(0));
    while !matches!(w.effects.front(), Some(Effect::Job { .. })) {
        assert!(w.step());
    }
    asks_for_room(&mut w, 1, f, 64 << 20);
    assert!(w.m.cached(f).unwrap().max_size < 64 << 20);
    w.settle();
    assert!(w.m.cached(f).unwrap().max_size > 64 << 20);
    assert_ne!(w.m.caps[&f].holders[&1].pending & cap::FW, 0);
}

/// A client that is given exactly what it asked for does not ask again when the file has become shorter.
#[test]
fn room_is_more_than_what_was_asked_for() {
    let mut w = world();
    let f = w.make(1, ROOT, "f");
    let has = w.m.cached(f).unwrap().max_size;
    asks_for_room(&mut w, 1, f, has);
    w.settle();
    assert!(w.m.cached(f).unwrap().max_size > has);
}

/// A large file that is open was cut in all the objects that it once had, by each truncation.
#[test]
fn room_goes_with_what_is_cut() {
    let mut w = world();
    let f = w.make(1, ROOT, "f");
    asks_for_room(&mut w, 1, f, 1 << 30);
    w.settle();
    let mut cut_from = Vec::new();
    for to in [1 << 30, 5, 0, 0] {
        w.call(2, op::SETATTR, (f, ""), (0, ""), sized(to));
        let cuts = w.pool.jobs.iter().filter(|j| j.kind == job::CUT);
        cut_from = cuts.map(|j| j.from).collect();
        assert_ne!(w.m.caps[&f].holders[&1].pending & cap::FW, 0);
        assert!(w.m.cached(f).unwrap().max_size > to);
    }
    assert!(
        cut_from[0] > 1 << 30,
        "the first one looks for all that a writer may have left"
    );
    assert_eq!(cut_from[1..], [4 << 20, 4 << 20]);
    asks_for_room(&mut w, 1, f, 1 << 30);
    w.settle();
    assert!(w.m.cached(f).unwrap().max_size > 1 << 30);
    // At the end of what a file may have, too.
    let limit = w.m.place.settings.max_file_size;
    asks_for_room(&mut w, 1, f, limit);
    w.settle();
    assert!(w.m.cached(f).unwrap().max_size > limit);
}

/// A writer and the server die while its file is cut: its end was sought in what was not cut yet.
#[test]
fn no_end_is_sought_while_a_file_is_cut() {
    let mut w = world();
    let f = w.make(1, ROOT, "f");
    w.call(2, op::SETATTR, (f, ""), (0, ""), sized(9 << 20));
    w.ask(2, op::SETATTR, (f, ""), (0, ""), sized(0));
    let is = |e: &Effect, kind: u8| matches!(e, Effect::Job { job, .. } if job.kind == kind);
    while !w.effects.front().is_some_and(|e| is(e, job::CUT)) {
        assert!(w.step());
    }
    w.clients.remove(&1);
    w.restart();
    w.clock += 1000;
    w.apply(Event::Tick);
    while !w.effects.front().is_some_and(|e| is(e, job::CUT)) {
        assert!(w.step());
    }
    assert!(!w.effects.iter().any(|e| is(e, job::PROBE)));
    w.settle();
    let of_f = w.pool.jobs.iter().filter(|j| j.ino == f).map(|j| j.kind);
    assert_eq!(of_f.collect::<Vec<_>>(), [job::CUT, job::PROBE]);
}
