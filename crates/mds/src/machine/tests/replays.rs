//! What clients say of capabilities while requests are carried out again, and who is served meanwhile.

use super::super::parts::held::HELD_MAX;
use super::super::*;
use super::early::create;
use super::world;
use super::world::World;
use crate::membership::MdsState;
use crate::row::ROOT;
use bytes::Bytes;
use messages::fs::{
    Args, CapBody, CapItem, MClientCapRelease, MClientCaps, SetAttr, cap, cap_op, op, setattr,
};
use messages::mon::Body;
use std::collections::BTreeMap;
use types::Utime;

fn at(sec: u32) -> Utime {
    Utime { sec, nsec: 0 }
}

/// What a client wrote: it keeps what it has.
fn flush(w: &mut World, client: u64, ino: u64, size: u64, mtime: Utime) {
    let record = &w.clients[&client].caps[&ino];
    let m = MClientCaps {
        op: cap_op::UPDATE,
        ino,
        cap_id: record.cap_id,
        caps: record.issued,
        wanted: record.wanted,
        dirty: cap::FW,
        body: CapBody {
            size,
            mtime,
            truncate_seq: 1,
            ..CapBody::default()
        },
        ..MClientCaps::default()
    };
    w.say(client, m.message(5));
}

fn release(w: &mut World, client: u64, inos: &[u64]) {
    let item = |ino: &u64| CapItem {
        ino: *ino,
        cap_id: w.clients[&client].caps[ino].cap_id,
        mseq: 0,
        issue_seq: 0,
    };
    let m = MClientCapRelease {
        items: inos.iter().map(item).collect(),
        osd_epoch_barrier: 0,
    };
    w.say(client, m.message(0));
}

/// A request that was answered, and is not there.
fn lost(w: &mut World, client: u64, dir: u64, name: &str, ino: u64) -> u64 {
    let tid = w.ask(client, op::MKDIR, (dir, name), (0, ""), Args::words(&[0o755]));
    w.clients.get_mut(&client).unwrap().unsafes.insert(tid, ino);
    tid
}

/// Client 1's next replay, which makes that inode, waits until client 2 gives this directory back.
fn stuck(w: &mut World, ino: u64) -> u64 {
    let d = w.mkdir(2, ROOT, "d");
    w.clients.get_mut(&2).unwrap().stubborn = true;
    w.holds(2, d, cap::FS);
    let ino = if ino == 0 { d + 1 } else { ino };
    lost(w, 1, d, "x", ino);
    d
}

/// The server serves two clients again.
fn go_on(w: &mut World, d: u64) {
    assert_eq!(w.m.state(), MdsState::ClientReplay);
    w.keeps(2, d, cap::PIN);
    w.settle();
    assert_eq!(w.m.state(), MdsState::Active);
    assert!(w.fenced.is_empty());
    assert!(w.clients[&1].safe.values().all(|r| *r == 0));
    assert!(w.clients[&1].unsafes.is_empty());
}

/// One sets a file's time, which is not durable, and writes; what it wrote it flushes to the next server at once.
#[test]
fn what_was_flushed_later_is_not_undone() {
    let mut w = world();
    let f = w.make(2, ROOT, "f");
    w.slow = true;
    let set = SetAttr {
        mask: setattr::MTIME,
        mtime: at(50),
        ..SetAttr::default()
    };
    let set = w.ask(1, op::SETATTR, (f, ""), (0, ""), Args::of_setattr(&set));
    while w.reply(1, set).is_none() {
        assert!(w.step());
    }
    assert!(w.clients[&1].unsafes.contains_key(&set));
    w.slow = false;
    w.holds(1, f, cap::FW);
    w.restart_as(true);
    w.come_back(1);
    flush(&mut w, 1, f, 77, at(90_000));
    w.come_back(2);
    w.settle();
    assert_eq!(w.clients[&1].safe[&set], 0);
    let inode = w.m.cached(f).unwrap();
    assert_eq!((inode.size, inode.mtime), (77, at(90_000)));
}

/// One message gives two back; it comes when one of them is there already, and what was said before is still held.
#[test]
fn what_is_said_of_a_new_file_is_heard_in_its_order() {
    let mut w = world();
    let own = w.make(1, ROOT, "own");
    let d = w.mkdir(2, ROOT, "d");
    w.settle();
    let (_, f) = w.make_unsafe(1, "f");
    w.clients.get_mut(&2).unwrap().stubborn = true;
    w.holds(2, d, cap::FS);
    lost(&mut w, 1, d, "x", f + 1);
    w.restart_as(true);
    w.come_back(1);
    flush(&mut w, 1, f, 77, at(90_000));
    w.come_back(2);
    while w.m.cached(f).is_none() {
        assert!(w.step());
    }
    release(&mut w, 1, &[f, own]);
    w.settle();
    go_on(&mut w, d);
    assert_eq!(w.m.cached(f).unwrap().size, 77);
    assert!(!w.m.caps.contains_key(&f) && !w.m.caps.contains_key(&own));
}

/// What one gave up before it was asked for it is not said a second time.
#[test]
fn two_that_wait_for_each_other_go_on() {
    let mut w = world();
    let (d, e) = (w.mkdir(1, ROOT, "d"), w.mkdir(1, ROOT, "e"));
    w.holds(2, d, cap::FS);
    w.holds(1, e, cap::FS);
    let tids = [lost(&mut w, 1, d, "x", e + 1), lost(&mut w, 2, e, "y", e + 2)];
    w.clients.get_mut(&1).unwrap().stubborn = true;
    w.restart_as(true);
    w.come_back(1);
    w.keeps(1, e, cap::PIN);
    w.come_back(2);
    w.settle();
    assert_eq!(w.m.state(), MdsState::Active);
    assert_eq!(
        (w.clients[&1].safe[&tids[0]], w.clients[&2].safe[&tids[1]]),
        (0, 0)
    );
    assert_eq!(w.lookup(2, d, "x"), Some(e + 1));
}

/// It would change what an older request changes then.
#[test]
fn nobody_is_given_anything_before_all_are_carried_out() {
    let mut w = world();
    let f = w.make(2, ROOT, "f");
    let d = stuck(&mut w, 0);
    let record = w.clients.get_mut(&2).unwrap().caps.get_mut(&f).unwrap();
    record.issued = cap::PIN;
    w.restart();
    w.settle();
    let wants = MClientCaps {
        op: cap_op::UPDATE,
        ino: f,
        cap_id: w.clients[&2].caps[&f].cap_id,
        caps: cap::PIN,
        wanted: cap::FW,
        ..MClientCaps::default()
    };
    w.say(2, wants.message(0));
    w.settle();
    assert_eq!(w.m.caps[&f].holders[&2].issued & cap::FW, 0);
    go_on(&mut w, d);
    assert_ne!(w.m.caps[&f].holders[&2].issued & cap::FW, 0);
}

/// It would wait for ever for what it flushes, and its user would take the file for there.
#[test]
fn who_holds_what_cannot_be_made_again_is_evicted() {
    let mut w = world();
    let f = w.make(2, ROOT, "f");
    let tid = w.ask(1, op::CREATE, (f + 7, "g"), (0, ""), create());
    w.clients.get_mut(&1).unwrap().unsafes.insert(tid, f + 1);
    w.holds(1, f + 1, cap::FW);
    w.restart_as(true);
    w.come_back(1);
    flush(&mut w, 1, f + 1, 77, at(1));
    w.come_back(2);
    w.settle();
    assert_eq!(w.m.state(), MdsState::Active);
    assert_eq!(w.fenced, [1]);
    w.make(2, ROOT, "g");
}

#[test]
fn so_much_is_held_and_no_more() {
    let mut w = world();
    let f = w.make(1, ROOT, "f");
    w.restart_as(true);
    w.come_back(1);
    let value = Bytes::from(vec![b'x'; 1 << 20]);
    let m = MClientCaps {
        op: cap_op::UPDATE,
        ino: f,
        cap_id: w.clients[&1].caps[&f].cap_id,
        xattrs: Some(BTreeMap::from([(Bytes::from_static(b"user.x"), value)])),
        ..MClientCaps::default()
    };
    let cut = |w: &World| {
        w.effects
            .iter()
            .any(|e| matches!(e, Effect::Close { conn: 1, .. }))
    };
    let said = (1..100).find(|_| {
        w.say(1, m.message(0));
        cut(&w)
    });
    assert_eq!(said, Some(HELD_MAX >> 20));
}

#[test]
fn who_comes_while_requests_are_carried_out_again_waits() {
    let mut w = world();
    let d = stuck(&mut w, 0);
    w.restart();
    w.settle();
    w.open(3);
    let tid = w.ask(3, op::LOOKUP, (ROOT, "d"), (0, ""), Args::default());
    w.settle();
    assert!(w.reply(3, tid).is_none());
    go_on(&mut w, d);
    assert_eq!(w.reply(3, tid).unwrap().result, 0);
}

/// Its maker has closed it, and given it back.
#[test]
fn a_file_that_was_made_again_and_is_closed_is_not_being_written() {
    let mut w = world();
    let (_, f) = w.make_unsafe(1, "f");
    w.clients.get_mut(&1).unwrap().caps.remove(&f);
    w.restart();
    w.settle();
    assert_eq!(w.m.cached(f).unwrap().max_size, 0);
    assert!(w.m.writing.is_empty());
}
