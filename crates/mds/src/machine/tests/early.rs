//! Early answers: who sees what before it is durable.

use super::super::parts::early::UNSAFE_MAX;
use super::super::*;
use super::world;
use super::world::World;
use crate::membership::MdsState;
use crate::row::ROOT;
use messages::fs::{Args, MClientReply, MClientSession, cap, op, session_op};
use messages::mon::Body;
use std::collections::BTreeSet;

pub fn create() -> Args {
    Args::words(&[0o1101, 0o644, 0, 0, 0, u32::MAX])
}

/// Answers on their way to a client.
fn on_the_way(w: &World, client: u64) -> Vec<(u64, bool)> {
    let reply = |e: &Effect| match e {
        Effect::Send { conn, message } if *conn == client && message.kind == MClientReply::KIND => {
            Some((message.tid, MClientReply::from_message(message).unwrap().safe))
        }
        _ => None,
    };
    w.effects.iter().filter_map(reply).collect()
}

#[test]
fn what_is_not_durable_is_seen_by_who_made_it_alone() {
    let mut w = world();
    let made = w.ask(1, op::MKDIR, (1, "a"), (0, ""), Args::words(&[0o755]));
    assert_eq!(on_the_way(&w, 1), [(made, false)]);
    let other = w.ask(2, op::LOOKUP, (1, "a"), (0, ""), Args::default());
    let missing = w.ask(2, op::LOOKUP, (1, "b"), (0, ""), Args::default());
    assert_eq!(on_the_way(&w, 2), [], "the directory shows it, too");
    // That one waits lets nobody gather; its maker goes on meanwhile.
    let own = w.ask(1, op::LOOKUP, (1, "a"), (0, ""), Args::default());
    assert_eq!(on_the_way(&w, 1), [(made, false), (own, true)]);
    w.settle();
    assert_eq!(w.reply(2, other).map(|r| r.result), Some(0));
    assert_eq!(w.reply(2, missing).map(|r| r.result), Some(-2));
    assert_eq!(w.clients[&1].safe[&made], 0);
    assert!(w.clients[&1].unsafes.is_empty());
    assert!(w.m.is_durable());
}

#[test]
fn who_depends_on_another_is_answered_when_that_is_durable() {
    let mut w = world();
    let d = w.mkdir(1, 1, "d");
    w.ask(1, op::CREATE, (d, "x"), (0, ""), create());
    let second = w.ask(2, op::CREATE, (d, "y"), (0, ""), create());
    assert_eq!(on_the_way(&w, 2), []);
    // What is nobody's is not early for its maker either.
    let third = w.ask(2, op::CREATE, (d, "z"), (0, ""), create());
    assert_eq!(on_the_way(&w, 2), []);
    w.settle();
    for tid in [second, third] {
        assert!(w.reply(2, tid).unwrap().safe);
    }
}

#[test]
fn what_a_client_cannot_bring_back_is_never_unsafe() {
    let mut w = world();
    let f = w.make(1, 1, "f");
    let cut = messages::fs::SetAttr {
        mask: messages::fs::setattr::SIZE,
        size: 5,
        ..Default::default()
    };
    let asked = [
        w.ask(1, op::SETATTR, (f, ""), (0, ""), Args::of_setattr(&cut)),
        w.ask(1, op::MKSNAP, (1, "/s"), (0, ""), Args::words(&[0o755])),
    ];
    assert_eq!(on_the_way(&w, 1), []);
    w.settle();
    for tid in asked {
        let reply = w.reply(1, tid).unwrap();
        assert!(reply.safe, "{:#x}: {}", reply.op, reply.result);
    }
}

/// What another asked for below it before looked at where it is.
#[test]
fn a_directory_is_moved_durably() {
    let mut w = world();
    let d = w.mkdir(1, ROOT, "d");
    let below = w.mkdir(1, d, "below");
    w.make(1, ROOT, "file");
    w.settle();
    let file = w.ask(1, op::RENAME, (ROOT, "file2"), (ROOT, "file"), Args::default());
    assert_eq!(on_the_way(&w, 1), [(file, false)]);
    w.settle();
    let empty = w.mkdir(1, ROOT, "empty");
    w.ask(1, op::RENAME, (ROOT, "empty2"), (ROOT, "empty"), Args::default());
    assert_eq!(on_the_way(&w, 1), []);
    w.settle();
    assert_eq!(w.lookup(2, ROOT, "empty2"), Some(empty));
    // May do all below it, by its path.
    w.open_with(3, "allow rw path=/d", "/d");
    w.settle();
    let made = w.ask(3, op::MKDIR, (below, "x"), (0, ""), Args::words(&[0o755]));
    assert_eq!(on_the_way(&w, 3), [(made, false)]);
    let moved = w.ask(1, op::RENAME, (ROOT, "e"), (ROOT, "d"), Args::default());
    w.slow = true;
    while !matches!(
        w.effects.front(),
        None | Some(Effect::Append { .. } | Effect::Nudge { .. })
    ) {
        w.step();
    }
    assert!(w.clients[&3].unsafes.contains_key(&made));
    // Both are lost, and the mover comes back first.
    w.restart_as(true);
    w.come_back(1);
    w.come_back(3);
    w.come_back(2);
    w.settle();
    assert_eq!(w.clients[&3].safe.get(&made), Some(&0));
    assert_eq!(w.clients[&1].safe.get(&moved), None, "it was not answered");
    let names: BTreeSet<String> = w.list(1, ROOT).into_iter().collect();
    assert_eq!(names, ["d", "empty2", "file2"].map(String::from).into());
}

fn appends(w: &World) -> usize {
    w.effects
        .iter()
        .filter(|e| matches!(e, Effect::Append { .. }))
        .count()
}

fn make_next(w: &mut World, names: &mut impl Iterator<Item = String>) {
    let name = names.next().unwrap();
    w.ask(1, op::MKNOD, (1, &name), (0, ""), Args::words(&[0o644]));
}

/// In fsync a client changes nothing; it may look at something.
#[test]
fn who_was_silent_before_is_not_kept_waiting() {
    let mut w = world();
    w.still = true;
    let names = &mut (0..).map(|n| format!("f{n}"));
    for _ in 0..3 {
        make_next(&mut w, names);
        assert_eq!(appends(&w), 1);
        w.ask(1, op::LOOKUP, (1, "f0"), (0, ""), Args::default());
        w.millis += 1;
        w.settle();
    }
    // It goes on before it is durable.
    make_next(&mut w, names);
    make_next(&mut w, names);
    w.settle();
    make_next(&mut w, names);
    assert_eq!(appends(&w), 0, "more may be gathered");
    assert!(matches!(w.effects.back(), Some(Effect::Nudge { .. })));
    w.millis += 1;
    w.settle();
    make_next(&mut w, names);
    assert_eq!(appends(&w), 1, "it was silent");
}

#[test]
fn behind_a_pause_nothing_is_gathered() {
    let mut w = world();
    w.still = true;
    let names = &mut (0..).map(|n| format!("f{n}"));
    for _ in 0..3 {
        make_next(&mut w, names);
        make_next(&mut w, names);
        w.settle();
    }
    w.millis += 1;
    make_next(&mut w, names);
    assert_eq!(appends(&w), 0, "there was one just now");
    make_next(&mut w, names);
    w.settle();
    w.millis += 2;
    make_next(&mut w, names);
    assert_eq!(appends(&w), 1);
}

#[test]
fn who_asks_for_it_is_not_kept_waiting() {
    let mut w = world();
    w.still = true;
    for name in ["a", "b"] {
        w.ask(1, op::MKDIR, (1, name), (0, ""), Args::words(&[0o755]));
    }
    w.settle();
    w.ask(1, op::MKDIR, (1, "c"), (0, ""), Args::words(&[0o755]));
    assert_eq!(appends(&w), 0, "more may be gathered");
    w.say(
        1,
        MClientSession::short(session_op::REQUEST_FLUSH_MDLOG, 0).message(0),
    );
    assert_eq!(appends(&w), 1);
}

#[test]
fn so_many_are_unsafe_and_no_more() {
    let mut w = world();
    let d = w.mkdir(1, 1, "d");
    for i in 0..UNSAFE_MAX + 100 {
        w.ask(
            1,
            op::MKNOD,
            (d, &format!("f{i}")),
            (0, ""),
            Args::words(&[0o644]),
        );
    }
    let answers = on_the_way(&w, 1);
    assert_eq!(answers.len(), UNSAFE_MAX);
    assert!(answers.iter().all(|(_, safe)| !safe));
    w.settle();
    assert_eq!(w.clients[&1].safe.len(), UNSAFE_MAX + 101);
    assert_eq!(w.m.early.unsafes, 0);
    let tid = w.ask(1, op::MKNOD, (d, "last"), (0, ""), Args::words(&[0o644]));
    assert_eq!(on_the_way(&w, 1), [(tid, false)]);
}

/// One append fits one operation, however large the rows are.
#[test]
fn so_many_bytes_are_unsafe_and_no_more() {
    let mut w = world();
    let f = w.make(1, 1, "f");
    for _ in 0..300 {
        w.ask_xattr(1, f, "user.a", "x".repeat(60_000));
    }
    let answers = on_the_way(&w, 1);
    assert!((60..80).contains(&answers.len()), "{}", answers.len());
    w.settle();
    assert_eq!(w.m.early.unsafes, 0);
    assert_eq!(w.clients[&1].safe.len(), 301);
}

/// A client takes no attributes of an older version than it was told.
#[test]
fn versions_do_not_go_back() {
    let mut w = world();
    let version = |r: MClientReply| r.trace.target.unwrap().version;
    for i in 0..10 {
        w.ask(1, op::CREATE, (1, &format!("lost{i}")), (0, ""), create());
    }
    let tid = w.ask(1, op::CREATE, (1, "f"), (0, ""), create());
    while w.reply(1, tid).is_none() {
        assert!(w.step());
    }
    let told = version(w.reply(1, tid).unwrap().clone());
    // Its client forgot the others: they are not made again.
    w.clients.get_mut(&1).unwrap().unsafes.retain(|t, _| *t == tid);
    w.restart();
    w.settle();
    assert_eq!(w.lookup(2, 1, "lost9"), None);
    let seen = version(w.call(2, op::LOOKUP, (1, "f"), (0, ""), Args::default()));
    assert!(seen > told, "{seen} after {told}");
}

/// A file that was made and not kept, and is open: its client writes on.
#[test]
fn a_file_comes_back_with_its_capability() {
    let mut w = world();
    let tid = w.ask(1, op::CREATE, (1, "f"), (0, ""), create());
    w.step();
    let f = w.reply(1, tid).unwrap().trace.target.clone().unwrap();
    assert_eq!(w.clients[&1].unsafes[&tid], f.ino);
    w.restart_as(true);
    w.come_back(1);
    // Said before all are back, and before the file is.
    let flush = messages::fs::MClientCaps {
        op: messages::fs::cap_op::UPDATE,
        ino: f.ino,
        cap_id: f.cap.id,
        seq: 0,
        caps: f.cap.caps,
        wanted: f.cap.wanted,
        dirty: cap::FW,
        body: messages::fs::CapBody {
            size: 77,
            truncate_seq: 1,
            ..Default::default()
        },
        ..Default::default()
    };
    w.say(1, flush.message(5));
    w.come_back(2);
    w.settle();
    let states = [MdsState::Rejoin, MdsState::ClientReplay, MdsState::Active];
    assert_eq!(w.states[w.states.len() - 3..], states);
    assert_eq!(w.clients[&1].safe[&tid], 0);
    assert_eq!(w.lookup(2, 1, "f"), Some(f.ino));
    assert_eq!(w.m.cached(f.ino).unwrap().size, 77);
    let held = &w.m.caps[&f.ino].holders[&1];
    assert_eq!((held.id, held.last_issue), (f.cap.id, 0));
    assert_ne!(held.issued & cap::FW, 0);
    // Numbers that may have been given out are not given again.
    let next = w.make(2, 1, "g");
    assert!(next > f.ino + 10_000, "{next:x}");
}

/// Numbers that were passed over after one death are passed over after the next, too.
#[test]
fn a_file_comes_back_after_a_second_death() {
    // With a change that is said again, and without one.
    for first in [false, true] {
        let mut w = world();
        w.mkdir(2, 1, "d");
        if first {
            w.ask(1, op::CREATE, (1, "first"), (0, ""), create());
            w.step();
        }
        w.restart();
        w.settle();
        // An append without a new number says nothing of numbers.
        w.call(2, op::RMDIR, (1, "d"), (0, ""), Args::default());
        let (tid, f) = w.make_unsafe(1, "f");
        w.restart();
        w.settle();
        assert_eq!(w.clients[&1].safe[&tid], 0);
        assert_eq!(w.lookup(2, 1, "f"), Some(f));
        assert!(w.m.caps[&f].holders.contains_key(&1));
        let next = w.make(2, 1, "g");
        assert!(next > f + 10_000, "{next:x}, told {f:x}");
    }
}

/// The first number behind those passed over waits until they are so durably.
#[test]
fn nothing_is_early_behind_numbers_that_are_not_passed_over_durably() {
    let mut w = world();
    w.slow = true;
    w.restart();
    while w.m.state() != MdsState::Active {
        assert!(w.step());
    }
    assert!(!w.m.is_durable());
    let tid = w.ask(1, op::CREATE, (1, "f"), (0, ""), create());
    assert_eq!(on_the_way(&w, 1), []);
    w.settle();
    assert!(w.reply(1, tid).unwrap().safe);
}

/// A replay cannot wait for work on objects, which begins when the server serves.
#[test]
fn a_replay_cuts_nothing() {
    let mut w = world();
    let f = w.make(2, ROOT, "f");
    let tid = w.ask(1, op::CREATE, (ROOT, "f"), (0, ""), create());
    w.clients.get_mut(&1).unwrap().unsafes.insert(tid, f + 1);
    w.restart();
    w.settle();
    assert_eq!(w.m.state(), MdsState::Active);
    assert_eq!(w.clients[&1].safe[&tid], -22);
    assert_eq!(w.lookup(2, ROOT, "f"), Some(f));
}

/// It is there, and gives nothing back.
#[test]
fn a_replay_that_cannot_end_keeps_nobody_from_being_served() {
    let mut w = world();
    let d = w.mkdir(2, ROOT, "d");
    let tid = w.ask(1, op::MKDIR, (d, "x"), (0, ""), Args::words(&[0o755]));
    w.clients.get_mut(&1).unwrap().unsafes.insert(tid, d + 1);
    w.clients.get_mut(&2).unwrap().stubborn = true;
    w.holds(2, d, cap::FS | cap::FX);
    w.restart();
    w.settle();
    assert_eq!(w.m.state(), MdsState::ClientReplay);
    w.renew_for(60, &[1, 2]);
    assert_eq!(w.m.state(), MdsState::ClientReplay);
    w.renew_for(120, &[1, 2]);
    assert_eq!(w.m.state(), MdsState::Active);
    assert_eq!(w.clients[&1].safe[&tid], -110);
    assert!(w.fenced.is_empty());
    w.mkdir(1, ROOT, "on");
}

#[test]
fn a_truncation_of_nothing_is_not_unsafe_either() {
    let mut w = world();
    w.call(2, op::MKNOD, (ROOT, "f"), (0, ""), Args::words(&[0o644]));
    let args = Args::words(&[0o1100, 0o644, 0, 0, 0, u32::MAX]);
    let tid = w.ask(1, op::CREATE, (ROOT, "f"), (0, ""), args);
    assert_eq!(on_the_way(&w, 1), []);
    w.settle();
    assert!(w.reply(1, tid).unwrap().safe);
}

#[test]
fn a_number_that_was_not_given_out_is_not_taken() {
    let given = world().make(1, 1, "own");
    for ino in [0, ROOT, 0x200, given, given + 1, given + (1 << 30)] {
        let mut w = world();
        let (own, other) = (w.make(1, 1, "own"), w.make(2, 1, "other"));
        assert_eq!((own, other), (given, given + 1));
        let tid = w.ask(1, op::CREATE, (1, "f"), (0, ""), create());
        w.step();
        w.clients.get_mut(&1).unwrap().unsafes.insert(tid, ino);
        w.restart();
        w.settle();
        assert_eq!(w.clients[&1].safe[&tid], -22, "{ino:x}");
        assert_eq!(w.lookup(2, 1, "f"), None);
        assert_eq!(w.lookup(2, 1, "other"), Some(other));
    }
}

/// The flag means nothing to one that serves.
#[test]
fn who_serves_takes_no_numbers() {
    let mut w = world();
    let f = w.make(2, 1, "f");
    let m = messages::fs::MClientRequest {
        op: op::CREATE,
        flags: 1,
        ino: f + 1,
        path: messages::fs::FilePath::new(1, "g".to_string()),
        args: create(),
        ..Default::default()
    };
    let next = w.make(2, 1, "next");
    assert_eq!(next, f + 1);
    w.say(1, m.message(77));
    w.settle();
    assert_eq!(w.lookup(2, 1, "g"), Some(f + 2));
    assert_eq!(w.lookup(2, 1, "next"), Some(next));
}
