//! Asynchronous creates and unlinks, as a kernel asks for them.

use super::super::*;
use super::world::World;
use crate::membership::MdsState;
use crate::row::ROOT;
use denc::Decode;
use messages::fs::{
    Args, Created, FilePath, MClientCaps, MClientReply, MClientRequest, cap, cap_op, op, request_flag,
};
use messages::mon::Body;
use std::collections::{BTreeSet, VecDeque};

/// What a kernel wants of a directory in which it makes names.
const OPS: u32 = cap::FC | cap::FR;
const WANTED: u32 = cap::EXCL | OPS | cap::FA | cap::FL;

fn world() -> World {
    let mut w = World::new(Options {
        async_names: true,
        ..Options::default()
    });
    w.settle();
    w.open(1);
    w.open(2);
    w.settle();
    w
}

/// A directory that the first client has for itself.
fn own(w: &mut World) -> u64 {
    let d = w.mkdir(1, ROOT, "d");
    let c = w.clients.get_mut(&1).unwrap();
    let record = c.caps.get_mut(&d).unwrap();
    record.wanted = WANTED;
    let m = MClientCaps {
        op: cap_op::UPDATE,
        ino: d,
        cap_id: record.cap_id,
        seq: c.seqs[&d],
        issue_seq: c.seqs[&d],
        caps: record.issued,
        wanted: WANTED,
        ..MClientCaps::default()
    };
    w.say(1, m.message(0));
    w.settle();
    d
}

/// Numbers that an answer brings.
fn brought(reply: &MClientReply) -> Vec<u64> {
    let made = Created::from_bytes(&reply.extra).unwrap();
    assert_eq!(made.ino, reply.trace.target.as_ref().unwrap().ino);
    made.delegated
        .iter()
        .flat_map(|(first, n)| *first..first + n)
        .collect()
}

/// A directory of its own, and the numbers that come with the first file.
fn stocked(w: &mut World) -> (u64, VecDeque<u64>) {
    let d = own(w);
    let reply = w.call(1, op::CREATE, (d, "first"), (0, ""), super::early::create());
    assert_eq!(reply.trace.dentry.as_ref().unwrap().dir.cap.caps & OPS, OPS);
    (d, brought(&reply).into())
}

fn ask(w: &mut World, id: u64, op: u32, at: (u64, &str), ino: u64) -> u64 {
    let c = w.clients.get_mut(&id).unwrap();
    c.next_tid += 1;
    let tid = c.next_tid - 1;
    let flags = 0o301;
    let m = MClientRequest {
        op,
        flags: request_flag::ASYNC | request_flag::WANT_DENTRY,
        ino,
        path: FilePath::new(at.0, at.1.to_string()),
        args: Args::words(&[flags, 0o644, 0, 0, 0, u32::MAX]),
        ..MClientRequest::default()
    };
    w.ask_of(id, tid, m);
    tid
}

fn call(w: &mut World, id: u64, op: u32, at: (u64, &str), ino: u64) -> MClientReply {
    let tid = ask(w, id, op, at, ino);
    w.settle();
    w.reply(id, tid).unwrap().clone()
}

#[test]
fn a_name_is_made_under_a_number_of_the_client() {
    let mut w = world();
    let (d, mut numbers) = stocked(&mut w);
    assert_eq!(numbers.len(), 500);
    let n = numbers.pop_front().unwrap();
    let made = call(&mut w, 1, op::CREATE, (d, "a"), n);
    assert_eq!((made.result, made.safe), (0, false));
    let target = made.trace.target.as_ref().unwrap();
    assert_eq!((target.ino, target.cap.id, target.cap.seq), (n, 1, 1));
    // What a kernel takes for its own, with that number.
    assert_eq!(target.cap.caps, 0x3fdd);
    assert!(brought(&made).is_empty());
    // What it may not keep was asked back behind the answer.
    assert_eq!(w.clients[&1].caps[&n].issued & (cap::AX | cap::FB), 0);
    assert_eq!(w.lookup(2, d, "a"), Some(n));
    let gone = call(&mut w, 1, op::UNLINK, (d, "a"), 0);
    assert_eq!(gone.result, 0);
    assert_eq!(w.lookup(2, d, "a"), None);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut w = world();
    let (d, mut numbers) = stocked(&mut w);
    let (n, next) = (numbers.pop_front().unwrap(), numbers.pop_front().unwrap());
    assert_eq!(call(&mut w, 1, op::CREATE, (d, "first"), n).result, -17);
    assert_eq!(call(&mut w, 1, op::UNLINK, (d, "none"), 0).result, -2);
    assert_eq!(call(&mut w, 1, op::MKDIR, (d, "dir"), n).result, -95);
    assert_eq!(call(&mut w, 2, op::CREATE, (d, "of-another"), n).result, -22);
    assert_eq!(call(&mut w, 1, op::CREATE, (d, "a"), next + 100_000).result, -22);
    assert_eq!(call(&mut w, 1, op::CREATE, (d, "a"), 0).result, -22);
    // A number is used once, also where the file is gone again.
    assert_eq!(call(&mut w, 1, op::CREATE, (d, "a"), n).result, 0);
    assert_eq!(call(&mut w, 1, op::CREATE, (d, "b"), n).result, -22);
    assert_eq!(call(&mut w, 1, op::UNLINK, (d, "a"), 0).result, 0);
    assert_eq!(call(&mut w, 1, op::CREATE, (d, "b"), n).result, -22);
    assert_eq!(call(&mut w, 1, op::CREATE, (d, "b"), next).result, 0);
}

#[test]
fn who_was_not_told_of_it_is_refused() {
    let mut w = World::new(Options::default());
    w.settle();
    w.open(1);
    w.settle();
    let d = own(&mut w);
    let reply = w.call(1, op::CREATE, (d, "first"), (0, ""), super::early::create());
    assert_eq!(reply.extra.len(), 8);
    assert_eq!(reply.trace.dentry.unwrap().dir.cap.caps & OPS, 0);
    assert_eq!(call(&mut w, 1, op::CREATE, (d, "a"), 1 << 41).result, -95);
}

#[test]
fn a_low_stock_is_filled_with_numbers_that_nobody_had() {
    let mut w = world();
    let (d, mut numbers) = stocked(&mut w);
    let mut all: BTreeSet<u64> = numbers.iter().copied().collect();
    for i in 0..700 {
        let n = numbers.pop_front().expect("a number is left");
        let made = call(&mut w, 1, op::CREATE, (d, &format!("f{i}")), n);
        assert_eq!(made.result, 0);
        for n in brought(&made) {
            assert!(all.insert(n), "{n:#x} comes again");
            numbers.push_back(n);
        }
        assert!(numbers.len() <= 500);
        if i % 50 == 0 {
            // Others' files have others.
            let other = w.make(2, ROOT, &format!("o{i}"));
            assert!(all.insert(other));
        }
    }
}

#[test]
fn the_directory_is_taken_back_whole_before_another_changes_it() {
    let mut w = world();
    let (d, mut numbers) = stocked(&mut w);
    w.clients.get_mut(&1).unwrap().stubborn = true;
    let tid = w.ask(2, op::MKNOD, (d, "b"), (0, ""), Args::words(&[0o644]));
    w.settle();
    assert!(w.reply(2, tid).is_none());
    // What it sent before it heard of that is carried out.
    let n = numbers.pop_front().unwrap();
    let made = ask(&mut w, 1, op::CREATE, (d, "a"), n);
    w.settle();
    assert_eq!(w.reply(1, made).map(|r| r.result), Some(0));
    w.clients.get_mut(&1).unwrap().stubborn = false;
    // It keeps none of the bits for changes alone.
    w.keeps(1, d, cap::PIN | cap::AS | OPS);
    w.settle();
    assert!(w.reply(2, tid).is_none());
    w.keeps(1, d, cap::PIN | cap::AS);
    w.settle();
    assert_eq!(w.reply(2, tid).map(|r| r.result), Some(0));
    assert_eq!(w.lookup(2, d, "a"), Some(n));
}

/// What was sent and not answered comes again, before the client says what it holds.
#[test]
fn after_a_restart_what_was_sent_is_done_and_the_stock_is_void() {
    let mut w = world();
    let (d, mut numbers) = stocked(&mut w);
    w.settle();
    let (a, b) = (numbers.pop_front().unwrap(), numbers.pop_front().unwrap());
    // One is answered and lost, one is not heard at all.
    w.slow = true;
    let early = ask(&mut w, 1, op::CREATE, (d, "a"), a);
    while w.reply(1, early).is_none() {
        assert!(w.step());
    }
    w.slow = false;
    let sent = ask(&mut w, 1, op::CREATE, (d, "b"), b);
    let gone = ask(&mut w, 1, op::UNLINK, (d, "first"), 0);
    let again: Vec<(u64, MClientRequest)> = [sent, gone]
        .map(|tid| (tid, w.clients[&1].asked[&tid].clone()))
        .into();
    for tid in [sent, gone] {
        let c = w.clients.get_mut(&1).unwrap();
        c.unsafes.remove(&tid);
        c.replies.remove(&tid);
    }
    w.restart_as(true);
    w.apply(Event::Opened {
        conn: 1,
        peer: super::world::peer(1),
    });
    for (tid, m) in again {
        w.say(1, m.message(tid));
    }
    w.say_held(1, 1);
    w.come_back(2);
    w.settle();
    assert_eq!(w.m.state(), MdsState::Active);
    assert!(w.fenced.is_empty());
    for tid in [early, sent, gone] {
        assert_eq!(w.clients[&1].safe.get(&tid), Some(&0));
    }
    // The answer that its client waits for shows what was made, and gives nothing.
    let target = w.reply(1, sent).unwrap().trace.target.clone().unwrap();
    assert_eq!((target.ino, target.cap.caps), (b, 0));
    assert_eq!(
        (w.lookup(2, d, "a"), w.lookup(2, d, "b"), w.lookup(2, d, "first")),
        (Some(a), Some(b), None)
    );
    // It begins anew with a file that it waits for.
    let c = numbers.pop_front().unwrap();
    assert_eq!(call(&mut w, 1, op::CREATE, (d, "c"), c).result, -22);
    let reply = w.call(1, op::CREATE, (d, "c"), (0, ""), super::early::create());
    let new = brought(&reply);
    assert_eq!(new.len(), 500);
    assert!(new.iter().all(|n| !numbers.contains(n) && ![a, b, c].contains(n)));
    assert!(!numbers.contains(&reply.trace.target.unwrap().ino));
}

/// UNLINK comes again without the flag of what was answered; the second client is back, too.
fn unlinks_over_a_restart(w: &mut World, dir: u64, name: &str) -> Option<i32> {
    let c = w.clients.get_mut(&1).unwrap();
    let tid = c.next_tid;
    c.next_tid += 1;
    let m = MClientRequest {
        op: op::UNLINK,
        flags: request_flag::ASYNC | request_flag::WANT_DENTRY,
        path: FilePath::new(dir, name.to_string()),
        oldest_tid: tid,
        ..MClientRequest::default()
    };
    c.asked.insert(tid, m.clone());
    w.restart_as(true);
    w.apply(Event::Opened {
        conn: 1,
        peer: super::world::peer(1),
    });
    w.say(1, m.message(tid));
    w.say_held(1, 1);
    w.come_back(2);
    w.settle();
    assert!(w.fenced.is_empty());
    w.reply(1, tid).map(|r| r.result)
}

/// Nobody has given up for it how many names the file has.
#[test]
fn links_are_asked_back_for_what_was_not_answered() {
    let mut w = world();
    let (d, _) = stocked(&mut w);
    let file = w.lookup(1, d, "first").unwrap();
    w.call(1, op::LINK, (d, "second"), (file, ""), Args::default());
    let attributes = Args::words(&[cap::AS | cap::LS]);
    w.call(1, op::GETATTR, (file, ""), (0, ""), attributes);
    w.call(2, op::GETATTR, (file, ""), (0, ""), attributes);
    w.settle();
    let links = |w: &World, id: u64| w.clients[&id].cache.attributes(file).map(|a| a.1);
    for id in [1, 2] {
        assert_ne!(w.clients[&id].caps[&file].issued & cap::LS, 0);
        assert_eq!(links(&w, id), Some(2));
    }
    assert_eq!(unlinks_over_a_restart(&mut w, d, "second"), Some(0));
    assert_eq!(w.m.cached(file).map(|i| i.nlink), Some(1));
    for id in [1, 2] {
        let trusts = w.clients[&id].caps[&file].issued & cap::LS != 0;
        assert!(!trusts || links(&w, id) == Some(1), "client {id}");
    }
}

/// And nobody the name: it was sent before its client heard that the directory is not its own any more.
#[test]
fn leases_are_asked_back_for_what_was_not_answered() {
    let mut w = world();
    let d = super::leases::contested(&mut w);
    w.look(2, d, "f0");
    let trusts = |w: &World| w.clients[&2].cache.leased(d, "f0", w.now().monotonic);
    assert!(trusts(&w).is_some_and(|known| known.is_some()));
    assert_eq!(unlinks_over_a_restart(&mut w, d, "f0"), Some(0));
    assert_eq!(w.lookup(1, d, "f0"), None);
    assert!(trusts(&w).is_none_or(|known| known.is_none()));
}
