//! Leases of names: who is given one, and what waits for it.

use super::world::World;
use super::*;
use crate::row::ROOT;
use messages::fs::{LeaseStat, MClientLease, lease_action, request_flag};

/// Longer than a lease and what is added to it.
const OVER: u64 = 33;

/// A directory of the first client's that the second looks into: Fs of it was taken back twice.
pub fn contested(w: &mut World) -> u64 {
    let d = w.mkdir(1, ROOT, "d");
    for name in ["f0", "f1"] {
        for _ in 0..2 {
            w.look(2, d, "none");
        }
        assert_ne!(w.clients[&2].caps[&d].issued & cap::FS, 0);
        w.make(1, d, name);
        assert_eq!(w.clients[&2].caps[&d].issued & cap::FS, 0);
    }
    d
}

fn world() -> (World, u64) {
    let mut w = world_of(Options::default());
    w.watched = true;
    w.open(3);
    w.settle();
    let d = contested(&mut w);
    (w, d)
}

fn lease(reply: &messages::fs::MClientReply) -> LeaseStat {
    reply.trace.dentry.as_ref().unwrap().lease.clone()
}

/// Time goes by, and all say that they are there.
fn pass(w: &mut World, seconds: u64) {
    for _ in 0..seconds {
        w.clock += 1;
        for id in [1, 2, 3] {
            w.say(
                id,
                MClientSession::short(session_op::REQUEST_RENEWCAPS, 1).message(0),
            );
        }
        w.tick(0);
    }
}

fn say(w: &mut World, id: u64, action: u8, (dir, name): (u64, &str), seq: u32) {
    let m = MClientLease {
        action,
        mask: 1,
        ino: dir,
        seq,
        name: name.to_string().into(),
        ..MClientLease::default()
    };
    w.say(id, m.message(0));
    w.settle();
}

fn make_asked(w: &mut World, id: u64, at: (u64, &str)) -> u64 {
    let tid = w.ask(id, op::MKNOD, at, (0, ""), Args::words(&[0o644]));
    w.settle();
    tid
}

#[test]
fn names_of_a_contested_directory_are_told_one_by_one() {
    let (mut w, d) = world();
    let there = w.look(2, d, "f0");
    let given = lease(&there);
    assert_eq!((there.result, given.mask, given.duration_ms), (0, 7, 30_000));
    assert_eq!(
        w.clients[&2].caps[&d].issued & cap::FS,
        0,
        "the next change need not wait"
    );
    let absent = w.look(2, d, "none");
    assert_eq!((absent.result, lease(&absent).mask), (-2, 3));
    assert!(absent.trace.target.is_none());
    assert!(lease(&absent).seq > given.seq);
    // Who does not want to know how it may be known is told nothing more.
    let plain = w.call(2, op::LOOKUP, (d, "none"), (0, ""), Args::default());
    assert_eq!((plain.result, plain.trace.dentry), (-2, None));
    // What others do elsewhere in the directory takes nothing back.
    w.make(1, d, "f2");
    assert!(w.clients[&2].leases.is_empty());
    let now = w.now().monotonic;
    assert_eq!(w.clients[&2].cache.leased(d, "none", now), Some(None));
    // It ends by itself where nothing more happens.
    pass(&mut w, 60);
    w.look(2, d, "f0");
    assert_ne!(w.clients[&2].caps[&d].issued & cap::FS, 0);
}

#[test]
fn a_listing_begins_with_the_whole_directory_all_the_same() {
    let (mut w, d) = world();
    assert_eq!(w.list_by(2, d, 100).len(), 2);
    assert_eq!(w.clients[&2].cache.known(d), 2);
}

#[test]
fn who_makes_a_name_trusts_it() {
    let (mut w, d) = world();
    let made = w.call(2, op::MKNOD, (d, "own"), (0, ""), Args::words(&[0o644]));
    assert_eq!(lease(&made).mask, 7);
    let gone = w.call(2, op::UNLINK, (d, "own"), (0, ""), Args::default());
    assert_eq!(lease(&gone).mask, 3);
    let tid = make_asked(&mut w, 1, (d, "own"));
    assert_eq!(w.reply(1, tid).unwrap().result, 0);
    assert_eq!(w.clients[&2].leases.len(), 1);
}

#[test]
fn a_change_waits_until_the_lease_is_given_back_or_over() {
    for said in [None, Some(lease_action::RELEASE), Some(lease_action::REVOKE_ACK)] {
        let (mut w, d) = world();
        w.look(2, d, "g");
        w.clients.get_mut(&2).unwrap().stubborn = true;
        let tid = make_asked(&mut w, 1, (d, "g"));
        assert!(w.reply(1, tid).is_none());
        let asked = w.clients[&2].leases[0].clone();
        assert_eq!(
            (asked.action, asked.ino, &asked.name[..]),
            (lease_action::REVOKE, d, &b"g"[..])
        );
        // Nobody is given another one meanwhile.
        assert_eq!(lease(&w.look(3, d, "g")).mask, 0);
        match said {
            Some(action) => {
                say(&mut w, 2, action, (d, "g"), asked.seq.wrapping_sub(1));
                say(&mut w, 2, action, (d, "f0"), asked.seq);
                assert!(w.reply(1, tid).is_none(), "that is not what was asked for");
                w.clients.get_mut(&2).unwrap().cache.end_lease(d, &asked.name);
                say(&mut w, 2, action, (d, "g"), asked.seq);
            }
            None => {
                pass(&mut w, 25);
                assert!(w.reply(1, tid).is_none());
                pass(&mut w, OVER - 25);
            }
        }
        assert_eq!(w.reply(1, tid).unwrap().result, 0, "{said:?}");
        assert_eq!(w.fenced, [] as [u64; 0]);
        // What it counts before it closes.
        assert_eq!(w.m.sessions.get(2).unwrap().pushed, w.clients[&2].counted);
    }
}

#[test]
fn a_directory_and_its_name_are_asked_back_at_once() {
    let (mut w, d) = world();
    assert_ne!(lease(&w.look(2, d, "g")).mask, 0);
    w.list_by(3, d, 100);
    assert_ne!(w.clients[&3].caps[&d].issued & cap::FS, 0);
    w.clients.get_mut(&3).unwrap().stubborn = true;
    let tid = make_asked(&mut w, 1, (d, "g"));
    assert!(w.reply(1, tid).is_none());
    let asked: Vec<_> = w.clients[&2].leases.iter().map(|m| m.action).collect();
    assert_eq!(
        asked,
        [lease_action::REVOKE],
        "while the other keeps the directory"
    );
}

#[test]
fn each_way_of_changing_a_name_takes_it_back() {
    for change in 0..6 {
        let (mut w, d) = world();
        let p = w.mkdir(1, ROOT, "p");
        let file = w.make(1, p, "file");
        for name in ["f0", "g"] {
            assert_ne!(lease(&w.look(2, d, name)).mask, 0);
        }
        let before = w.clients[&2].leases.len();
        let (op, path, path2, args) = match change {
            0 => (op::UNLINK, (d, "f0"), (0, ""), Args::default()),
            1 => (op::LINK, (d, "g"), (file, ""), Args::default()),
            2 => (op::RENAME, (d, "g"), (p, "file"), Args::default()),
            3 => (op::RENAME, (p, "other"), (d, "f0"), Args::default()),
            4 => (op::SYMLINK, (d, "g"), (0, "text"), Args::default()),
            _ => (op::MKDIR, (d, "g"), (0, ""), Args::words(&[0o755])),
        };
        assert_eq!(w.call(1, op, path, path2, args).result, 0, "{change}");
        assert_eq!(w.clients[&2].leases.len(), before + 1, "{change}");
    }
}

/// A client takes them for gone, and a lease of its own would keep them so.
#[test]
fn other_names_of_what_is_replaced_are_taken_back_from_who_replaces_it() {
    for same in [false, true] {
        let (mut w, d) = world();
        let f = w.look(1, d, "f0").trace.target.unwrap().ino;
        assert_eq!(
            w.call(1, op::LINK, (d, "other"), (f, ""), Args::default()).result,
            0
        );
        for name in ["f0", "f1", "other"] {
            assert_ne!(lease(&w.look(2, d, name)).mask, 0);
        }
        let from = if same { "f0" } else { "f1" };
        let to = if same { "other" } else { "f0" };
        let reply = w.call(2, op::RENAME, (d, to), (d, from), Args::default());
        assert_eq!((reply.result, lease(&reply).mask), (0, 0));
        assert_eq!(w.clients[&2].leases.len(), if same { 2 } else { 3 });
        assert_eq!(w.lookup(2, d, if same { "f0" } else { "other" }), Some(f));
    }
}

#[test]
fn a_lease_is_renewed() {
    let (mut w, d) = world();
    let seq = lease(&w.look(2, d, "f0")).seq;
    pass(&mut w, 20);
    say(&mut w, 2, lease_action::RENEW, (d, "f0"), seq + 5);
    say(&mut w, 3, lease_action::RENEW, (d, "f0"), seq);
    assert!(w.clients[&2].leases.is_empty() && w.clients[&3].leases.is_empty());
    say(&mut w, 2, lease_action::RENEW, (d, "f0"), seq);
    let renewed = w.clients[&2].leases[0].clone();
    assert_eq!(
        (renewed.action, renewed.duration_ms),
        (lease_action::RENEW, 30_000)
    );
    assert!(renewed.seq > seq);
    pass(&mut w, 20);
    assert_eq!(w.m.leases.len_of(2), 1);
    pass(&mut w, OVER);
    assert_eq!(w.m.leases.len_of(2), 0);
}

#[test]
fn who_trusts_a_name_by_the_server_before_is_asked() {
    for silent in [false, true] {
        let (mut w, d) = world();
        assert_ne!(lease(&w.look(2, d, "g")).mask, 0);
        w.restart();
        w.settle();
        w.clients.get_mut(&2).unwrap().stubborn = silent;
        let tid = make_asked(&mut w, 1, (d, "g"));
        assert_eq!(w.reply(1, tid).is_some(), !silent);
        pass(&mut w, OVER);
        assert_eq!(w.reply(1, tid).unwrap().result, 0);
        assert_eq!(w.fenced, [] as [u64; 0]);
        // And from then on nobody.
        let told = w.clients[&2].leases.len();
        assert_eq!(told, 1);
        make_asked(&mut w, 1, (d, "h"));
        assert_eq!(w.clients[&2].leases.len(), told);
    }
}

#[test]
fn who_has_nothing_of_the_directory_is_not_asked_after_a_restart() {
    let (mut w, d) = world();
    w.restart();
    w.settle();
    make_asked(&mut w, 1, (d, "g"));
    assert_eq!(w.clients[&2].leases.len(), 1);
    assert!(w.clients[&3].leases.is_empty());
    // Nor is who changes it, before another does.
    assert!(w.clients[&1].leases.is_empty());
    let gone = w.call(3, op::UNLINK, (d, "g"), (0, ""), Args::default());
    assert_eq!(gone.result, 0);
    assert_eq!(w.clients[&1].leases.len(), 1);
}

#[test]
fn a_client_that_goes_takes_its_leases_with_it() {
    let (mut w, d) = world();
    w.look(2, d, "g");
    w.clients.get_mut(&2).unwrap().stubborn = true;
    let tid = make_asked(&mut w, 1, (d, "g"));
    assert!(w.reply(1, tid).is_none());
    w.watched = false;
    let m = MClientSession::short(session_op::REQUEST_CLOSE, w.clients[&2].counted);
    w.say(2, m.message(0));
    w.settle();
    assert_eq!(w.reply(1, tid).unwrap().result, 0);
    assert_eq!(w.m.leases.len_of(2), 0);
}

#[test]
fn they_can_be_switched_off() {
    let (mut w, d) = world();
    w.tell(
        1,
        r#"{"prefix": "config set", "var": "mds_name_leases", "val": ["false"]}"#,
    );
    w.settle();
    assert_eq!(w.told.pop().map(|r| r.result), Some(0));
    let absent = w.look(2, d, "none");
    assert_eq!((absent.result, absent.trace.dentry), (-2, None));
    let there = w.look(2, d, "f0");
    assert_eq!(lease(&there), LeaseStat::default());
    assert_ne!(w.clients[&2].caps[&d].issued & cap::FS, 0);
}

/// A kernel takes the name that comes for the one that it asked for.
#[test]
fn an_opening_by_another_name_is_answered_with_that() {
    let (mut w, d) = world();
    let f = w.lookup(1, d, "f0").unwrap();
    let e = w.mkdir(1, ROOT, "e");
    assert_eq!(w.call(1, op::LINK, (e, "g"), (f, ""), Args::default()).result, 0);
    let tid = w.ask_flagged(2, request_flag::WANT_DENTRY, op::OPEN, (e, "g"));
    w.settle();
    let reply = w.reply(2, tid).unwrap();
    let dentry = reply.trace.dentry.as_ref().unwrap();
    assert_eq!(
        (reply.result, dentry.dir.ino, &dentry.name[..]),
        (0, e, &b"g"[..])
    );
    assert_eq!(reply.trace.target.as_ref().unwrap().ino, f);
}

/// Its client goes on as if it were done.
#[test]
fn what_is_not_waited_for_is_refused() {
    let (mut w, d) = world();
    for (op, name) in [(op::CREATE, "g"), (op::UNLINK, "f0")] {
        let tid = w.ask_flagged(1, request_flag::ASYNC, op, (d, name));
        w.settle();
        assert_eq!(w.reply(1, tid).unwrap().result, -95);
    }
    assert_eq!(w.list(3, d), w.list(1, d));
    assert_eq!(w.list(3, d).len(), 2);
}
