//! The machine against a pool in memory: what is acknowledged stays, whenever the server dies.

mod cache;
mod caching;
mod crash;
mod deaths;
mod delegated;
mod early;
mod leases;
mod lost;
mod replays;
mod room;
mod sim;
mod snaps;
mod traces;
mod world;

use super::*;
use crate::membership::MdsState;
use messages::fs::{
    Args, CapItem, MClientCapRelease, MClientSession, SetAttr, cap, op, open_flag, session_op, setattr,
};
use messages::mon::Body;
use world::World;

fn world() -> World {
    world_of(Options {
        caching: Caching::Nothing,
        ..Options::default()
    })
}

fn world_of(options: Options) -> World {
    let mut w = World::new(options);
    w.settle();
    w.open(1);
    w.open(2);
    w.settle();
    w
}

#[test]
fn a_new_file_system_is_made_and_served() {
    let mut w = world();
    assert_eq!(w.states, [MdsState::Creating, MdsState::Active]);
    let d = w.mkdir(1, 1, "d");
    let f = w.make(1, d, "f");
    assert_eq!(w.lookup(2, d, "f"), Some(f));
    assert_eq!(w.lookup(2, d, "g"), None);
    assert_eq!(w.list(2, 1), ["d"]);
    let reply = w.call(1, op::MKDIR, (1, "d"), (0, ""), Args::default());
    assert_eq!(reply.result, -17);
    let reply = w.call(1, op::RMDIR, (1, "d"), (0, ""), Args::default());
    assert_eq!(reply.result, -39);
    let reply = w.call(1, op::UNLINK, (1, "d"), (0, ""), Args::default());
    assert_eq!(reply.result, -21);
    let reply = w.call(1, 0x1999, (1, "d"), (0, ""), Args::default());
    assert_eq!(reply.result, -95);
}

#[test]
fn nothing_is_answered_before_it_is_durable() {
    let mut w = world_of(Options {
        early: false,
        ..Options::default()
    });
    w.ask(1, op::MKDIR, (1, "a"), (0, ""), Args::words(&[0o755]));
    assert!(
        w.effects.iter().all(|e| !matches!(e, Effect::Send { .. })),
        "{:?}",
        w.effects
    );
    // Somebody who sees it before would see what may never have been.
    let tid = w.ask(2, op::LOOKUP, (1, "a"), (0, ""), Args::default());
    assert!(w.effects.iter().all(|e| !matches!(e, Effect::Send { .. })));
    w.settle();
    assert_eq!(w.reply(2, tid).map(|r| r.result), Some(0));
}

#[test]
fn many_changes_are_one_append() {
    let mut w = world_of(Options {
        early: false,
        ..Options::default()
    });
    for i in 0..50 {
        w.ask(
            1,
            op::MKDIR,
            (1, &format!("d{i}")),
            (0, ""),
            Args::words(&[0o755]),
        );
    }
    let mut appends = 0;
    while let Some(e) = w.effects.front() {
        appends += usize::from(matches!(e, Effect::Append { .. }));
        w.step();
    }
    assert_eq!(appends, 2, "the first one, and one for all that came meanwhile");
    assert_eq!(w.list(1, 1).len(), 50);
}

#[test]
fn a_size_waits_for_the_writer() {
    let mut w = world();
    let f = w.make(1, 1, "f");
    assert_ne!(w.clients[&1].caps[&f].issued & cap::FW, 0);
    w.clients.get_mut(&1).unwrap().stubborn = true;
    let mask = Args::words(&[cap::FS]);
    let tid = w.ask(2, op::GETATTR, (f, ""), (0, ""), mask);
    w.settle();
    assert!(w.reply(2, tid).is_none(), "while the writer has not given back");
    // It gives back with what it wrote.
    let c = &w.clients[&1];
    let update = messages::fs::MClientCaps {
        op: messages::fs::cap_op::UPDATE,
        ino: f,
        cap_id: c.caps[&f].cap_id,
        seq: c.seqs[&f],
        caps: cap::PIN | cap::AS,
        wanted: cap::FW,
        dirty: cap::FW,
        body: messages::fs::CapBody {
            size: 77,
            truncate_seq: 1,
            ..Default::default()
        },
        ..Default::default()
    };
    w.say(1, update.message(5));
    w.settle();
    let reply = w.reply(2, tid).unwrap();
    assert_eq!(reply.trace.target.as_ref().unwrap().size, 77);
    assert_ne!(
        w.clients[&1].caps[&f].issued & cap::FW,
        0,
        "it is given back afterwards"
    );
    // The same flush again changes nothing.
    w.restart();
    w.settle();
    w.say(1, update.message(5));
    w.settle();
    assert_eq!(w.m.cached(f).unwrap().size, 77);
}

#[test]
fn a_shorter_file_is_cut_before_anybody_goes_on() {
    let mut w = world();
    let f = w.make(1, 1, "f");
    let longer = SetAttr {
        mask: setattr::SIZE,
        size: 10 << 20,
        ..SetAttr::default()
    };
    let reply = w.call(2, op::SETATTR, (f, ""), (0, ""), Args::of_setattr(&longer));
    assert_eq!(reply.trace.target.unwrap().truncate_seq, 1);
    let shorter = SetAttr { size: 5, ..longer };
    let tid = w.ask(2, op::SETATTR, (f, ""), (0, ""), Args::of_setattr(&shorter));
    while !matches!(w.effects.front(), Some(Effect::Job { .. })) {
        assert!(w.step());
    }
    assert!(w.reply(2, tid).is_none());
    assert_eq!(w.clients[&1].caps[&f].issued & (cap::FW | cap::FR), 0);
    w.settle();
    let target = w.reply(2, tid).unwrap().trace.target.clone().unwrap();
    assert_eq!(
        (target.size, target.truncate_seq, target.truncate_size),
        (5, 2, 5)
    );
    assert_ne!(w.clients[&1].caps[&f].issued & cap::FW, 0);
    let cut = w.pool.jobs.last().unwrap();
    assert_eq!((cut.kind, cut.from, cut.to), (crate::row::job::CUT, 10 << 20, 5));
}

#[test]
fn a_file_without_a_name_goes_with_its_last_user() {
    let mut w = world();
    let f = w.make(1, 1, "f");
    let reply = w.call(2, op::UNLINK, (1, "f"), (0, ""), Args::default());
    assert_eq!(reply.result, 0);
    assert!(w.pool.jobs.is_empty(), "somebody has it open");
    w.restart();
    w.settle();
    assert!(w.pool.jobs.is_empty());
    assert_eq!(
        w.call(1, op::GETATTR, (f, ""), (0, ""), Args::default()).result,
        0
    );
    let release = |w: &World, id: u64| MClientCapRelease {
        items: vec![CapItem {
            ino: f,
            cap_id: w.clients[&id].caps[&f].cap_id,
            mseq: 0,
            issue_seq: w.clients[&id].seqs[&f],
        }],
        osd_epoch_barrier: 0,
    };
    let m = release(&w, 1);
    w.say(1, m.message(0));
    w.settle();
    assert_eq!(w.pool.jobs.len(), 1);
    assert_eq!(w.pool.jobs[0].ino, f);
    assert_eq!(
        w.call(1, op::GETATTR, (f, ""), (0, ""), Args::default()).result,
        -116
    );
}

#[test]
fn closing_waits_until_both_have_counted_the_same() {
    let mut w = world();
    w.clients.get_mut(&2).unwrap().counted = 0;
    let f = w.make(1, 1, "f");
    w.call(2, op::GETATTR, (f, ""), (0, ""), Args::words(&[cap::FS]));
    let counted = w.clients[&1].counted;
    assert!(counted > 0);
    w.say(
        1,
        MClientSession::short(session_op::REQUEST_CLOSE, counted - 1).message(0),
    );
    w.settle();
    assert!(!w.clients[&1].closed);
    w.say(
        1,
        MClientSession::short(session_op::REQUEST_CLOSE, counted).message(0),
    );
    w.settle();
    assert!(w.clients[&1].closed);
    assert_eq!(w.m.sessions_len(), 1);
}

#[test]
fn what_is_under_a_directory_is_told_upward() {
    let mut w = world();
    let a = w.mkdir(1, 1, "a");
    let b = w.mkdir(1, a, "b");
    let f = w.make(1, b, "f");
    let size = SetAttr {
        mask: setattr::SIZE,
        size: 1000,
        ..SetAttr::default()
    };
    w.call(1, op::SETATTR, (f, ""), (0, ""), Args::of_setattr(&size));
    w.tick(1);
    let sums = |w: &World, ino: u64| {
        let s = w.m.cached(ino).unwrap().sums;
        (s.bytes, s.files, s.subdirs)
    };
    assert_eq!(sums(&w, 1), (1000, 1, 3));
    assert_eq!(sums(&w, a), (1000, 1, 2));
    w.call(1, op::RENAME, (1, "g"), (b, "f"), Args::default());
    w.tick(1);
    assert_eq!(sums(&w, 1), (1000, 1, 3));
    assert_eq!(sums(&w, a), (0, 0, 2));
    w.call(1, op::UNLINK, (1, "g"), (0, ""), Args::default());
    w.call(1, op::RMDIR, (a, "b"), (0, ""), Args::default());
    w.tick(1);
    assert_eq!(sums(&w, 1), (0, 0, 2));
}

#[test]
fn a_silent_client_is_fenced_before_its_capabilities_go() {
    let mut w = world();
    let f = w.make(1, 1, "f");
    w.clients.get_mut(&1).unwrap().stubborn = true;
    let tid = w.ask(2, op::GETATTR, (f, ""), (0, ""), Args::words(&[cap::FS]));
    w.settle();
    for _ in 0..4 {
        w.clock += 20;
        w.say(
            2,
            MClientSession::short(session_op::REQUEST_RENEWCAPS, 1).message(0),
        );
        w.tick(0);
    }
    assert_eq!(w.fenced, [1]);
    w.settle();
    // How far it wrote is found by its objects: the probe of this pool says 4 MiB. Who asked waited for that.
    let reply = w.reply(2, tid).unwrap();
    assert_eq!(reply.result, 0);
    assert_eq!(reply.trace.target.as_ref().unwrap().size, 4 << 20);
    assert_eq!(w.m.cached(f).unwrap().size, 4 << 20);
}

#[test]
fn directories_larger_than_memory_are_listed_whole() {
    let mut w = World::new(Options {
        cache_bytes: 20_000,
        ..Options::default()
    });
    w.settle();
    w.open(1);
    w.settle();
    let d = w.mkdir(1, 1, "d");
    let mut names = std::collections::BTreeSet::new();
    for i in 0..300 {
        let name = format!("f{i}");
        let reply = w.call(1, op::MKNOD, (d, &name), (0, ""), Args::words(&[0o644]));
        assert_eq!(reply.result, 0);
        let ino = reply.trace.target.unwrap().ino;
        let c = &w.clients[&1];
        let item = CapItem {
            ino,
            cap_id: c.caps[&ino].cap_id,
            mseq: 0,
            issue_seq: c.seqs[&ino],
        };
        let m = MClientCapRelease {
            items: vec![item],
            osd_epoch_barrier: 0,
        };
        w.say(1, m.message(0));
        names.insert(name);
    }
    w.m.wb.drain = true;
    for _ in 0..20 {
        w.tick(1);
    }
    assert!(w.m.usage().1 < 60_000, "{:?}", w.m.usage());
    assert!(!w.m.table.is_complete(d));
    let listed: std::collections::BTreeSet<String> = w.list(1, d).into_iter().collect();
    assert_eq!(listed, names);
    assert_eq!(w.lookup(1, d, "nothing"), None);
    assert!(w.lookup(1, d, "f7").is_some());
}

#[test]
fn a_large_directory_lies_in_many_objects() {
    let mut w = World::new(Options {
        cache_bytes: 20_000,
        ..Options::default()
    });
    w.settle();
    w.open(1);
    w.settle();
    let d = w.mkdir(1, 1, "d");
    let n = 70_000;
    for i in 0..n {
        w.ask(
            1,
            op::MKNOD,
            (d, &format!("f{i}")),
            (0, ""),
            Args::words(&[0o644]),
        );
        if i % 500 == 499 {
            w.settle();
            let c = w.clients.get_mut(&1).unwrap();
            c.replies.clear();
            let item = |(ino, r): (&u64, &messages::fs::CapRecord)| CapItem {
                ino: *ino,
                cap_id: r.cap_id,
                mseq: 0,
                issue_seq: c.seqs[ino],
            };
            let items = c.caps.iter().filter(|(i, _)| **i > d).map(item).collect();
            c.caps.retain(|i, _| *i <= d);
            let m = MClientCapRelease {
                items,
                osd_epoch_barrier: 0,
            };
            w.say(1, m.message(0));
            w.tick(1);
        }
    }
    w.m.wb.drain = true;
    for _ in 0..40 {
        w.tick(1);
    }
    let prefix = format!("skep.dir.{d:x}.");
    let sizes: Vec<usize> = w
        .pool
        .rows
        .iter()
        .filter(|(k, _)| k.starts_with(&prefix))
        .map(|(_, rows)| rows.len())
        .collect();
    assert!(sizes.len() >= 4, "{sizes:?}");
    assert_eq!(
        sizes.iter().sum::<usize>(),
        n,
        "each name lies in one object: {sizes:?}"
    );
    w.restart();
    w.settle();
    assert!(w.lookup(1, d, "f69999").is_some());
    assert_eq!(w.lookup(1, d, "f70000"), None);
    let names = w.list_by(1, d, 1000);
    assert_eq!(names.len(), n);
    assert_eq!(
        names.into_iter().collect::<std::collections::BTreeSet<_>>().len(),
        n
    );
}

fn caching() -> World {
    world_of(Options {
        caching: Caching::Exclusive,
        ..Options::default()
    })
}

fn issued(w: &World, client: u64, ino: u64) -> u32 {
    w.clients[&client].caps[&ino].issued
}

#[test]
fn who_is_alone_caches_and_several_share() {
    let mut w = caching();
    let f = w.make(1, 1, "f");
    let all = cap::AX | cap::XX | cap::FX | cap::FW | cap::FB | cap::FC;
    assert_eq!(issued(&w, 1, f) & all, all);
    // A second one that looks takes for a moment what stands against it, and nothing more.
    let reply = w.call(
        2,
        op::GETATTR,
        (f, ""),
        (0, ""),
        Args::words(&[cap::FS | cap::AS]),
    );
    assert_eq!(reply.result, 0);
    assert_eq!(
        issued(&w, 1, f) & (cap::AX | cap::FX),
        cap::FX,
        "{:x}",
        issued(&w, 1, f)
    );
    assert_ne!(issued(&w, 2, f) & cap::AS, 0);
    // One that reads ends what is buffered.
    let reply = w.call(2, op::OPEN, (f, ""), (0, ""), Args::words(&[0]));
    assert_eq!(reply.result, 0);
    w.settle();
    assert_eq!(
        issued(&w, 1, f) & (cap::FB | cap::FX | cap::FC | cap::FW),
        cap::FW
    );
    assert_ne!(issued(&w, 2, f) & cap::FR, 0);
}

#[test]
fn a_directory_that_changes_is_trusted_by_nobody_else() {
    let mut w = caching();
    let d = w.mkdir(1, 1, "d");
    w.call(2, op::GETATTR, (d, ""), (0, ""), Args::words(&[cap::FS]));
    w.settle();
    assert_ne!(issued(&w, 2, d) & cap::FS, 0);
    w.clients.get_mut(&2).unwrap().stubborn = true;
    let tid = w.ask(1, op::MKNOD, (d, "n"), (0, ""), Args::words(&[0o644]));
    w.settle();
    assert!(w.reply(1, tid).is_none(), "the other still trusts what it has");
}

#[test]
fn scripts_of_both_policies_end_the_same() {
    for caching in [Caching::Nothing, Caching::Shared, Caching::Exclusive] {
        let mut w = world_of(Options {
            caching,
            ..Options::default()
        });
        let d = w.mkdir(1, 1, "d");
        for i in 0..40u64 {
            let who = 1 + i % 2;
            let f = w.make(who, d, &format!("f{i}"));
            w.call(3 - who, op::OPEN, (f, ""), (0, ""), Args::words(&[i as u32 % 3]));
            if i % 5 == 0 {
                w.call(
                    who,
                    op::RENAME,
                    (1, &format!("g{i}")),
                    (d, &format!("f{i}")),
                    Args::default(),
                );
            }
            let cut = SetAttr {
                mask: setattr::SIZE | setattr::MODE,
                size: i,
                mode: 0o600,
                ..SetAttr::default()
            };
            w.call(3 - who, op::SETATTR, (f, ""), (0, ""), Args::of_setattr(&cut));
        }
        assert_eq!(w.list(1, d).len(), 32);
        assert_eq!(w.list(2, 1).len(), 9);
        w.restart();
        w.settle();
        assert_eq!(w.m.state(), MdsState::Active);
        assert_eq!(w.list(2, d).len(), 32);
    }
}

/// A client flushed right after it came back, while another had not: the flush was taken for one of nobody, and never acknowledged.
#[test]
fn what_is_flushed_before_all_are_back_is_heard() {
    let mut w = world();
    let f = w.make(1, 1, "f");
    w.restart_as(true);
    w.settle();
    w.come_back(1);
    let c = &w.clients[&1];
    let flush = messages::fs::MClientCaps {
        op: messages::fs::cap_op::UPDATE,
        ino: f,
        cap_id: c.caps[&f].cap_id,
        caps: c.caps[&f].issued,
        wanted: cap::FW,
        dirty: cap::FW,
        body: messages::fs::CapBody {
            size: 99,
            truncate_seq: 1,
            ..Default::default()
        },
        ..Default::default()
    };
    w.say(1, flush.message(3));
    w.settle();
    let counted = w.clients[&1].counted;
    w.come_back(2);
    w.settle();
    assert_eq!(w.m.cached(f).unwrap().size, 99);
    assert!(w.clients[&1].counted > counted, "it is acknowledged");
}

/// The answer to a creation was lost with the server; what was answered to its retry brought no capability, and the client's first
/// write waited for ever.
#[test]
fn an_opening_whose_answer_was_lost_brings_capabilities() {
    for truncates in [false, true] {
        let mut w = world();
        if truncates {
            w.make(2, 1, "f");
        }
        let args = Args::words(&[0o1101, 0o644, 0, 0, 0, u32::MAX]);
        let tid = w.ask(1, op::CREATE, (1, "f"), (0, ""), args);
        while !matches!(w.effects.front(), Some(Effect::Send { .. }))
            || w.m.requests.values().any(|r| r.client == 1)
        {
            assert!(w.step());
        }
        w.restart();
        w.settle();
        assert!(w.reply(1, tid).is_none());
        let again = w.clients[&1].last.clone().unwrap();
        w.say(1, again);
        w.settle();
        let reply = w.reply(1, tid).unwrap();
        assert_eq!(
            (reply.result, reply.extra.len()),
            (0, if truncates { 0 } else { 8 })
        );
        let target = reply.trace.target.clone().unwrap();
        assert_ne!(target.cap.caps & cap::FW, 0);
        assert!(target.max_size > 0);
    }
}

/// The number of a request that was carried out opened whatever it was said to have been about.
#[test]
fn who_asks_again_gets_nothing_that_its_key_does_not_allow() {
    let mut w = world();
    let (a, b) = (w.mkdir(1, 1, "a"), w.mkdir(1, 1, "b"));
    w.open_with(3, "allow rw path=/a", "/a");
    w.open_with(4, "allow r", "/");
    w.settle();
    let (own, other) = (w.make(3, a, "own"), w.make(1, b, "other"));
    let mode = SetAttr {
        mask: setattr::MODE,
        mode: 0o600,
        ..SetAttr::default()
    };
    let tid = w.ask(3, op::SETATTR, (own, ""), (0, ""), Args::of_setattr(&mode));
    w.settle();
    assert_eq!(w.reply(3, tid).unwrap().result, 0);
    for flags in [0, 1, 2] {
        w.ask_as(3, tid, op::OPEN, (other, ""), (0, ""), Args::words(&[flags]));
        w.settle();
        assert_eq!(w.reply(3, tid).unwrap().result, -13, "{flags}");
        assert!(!w.clients[&3].caps.contains_key(&other));
    }
    w.ask_as(3, tid, op::CREATE, (b, "other"), (0, ""), Args::words(&[1]));
    w.settle();
    assert_eq!(w.reply(3, tid).unwrap().result, -13);
    w.ask_as(3, tid, op::OPEN, (own, ""), (0, ""), Args::words(&[1]));
    w.settle();
    assert_eq!(w.reply(3, tid).unwrap().result, 0);
    assert_ne!(w.clients[&3].caps[&own].issued & cap::FW, 0);
    // To cut is to write.
    let reply = w.call(4, op::OPEN, (own, ""), (0, ""), Args::words(&[open_flag::TRUNC]));
    assert_eq!(reply.result, -13);
}

/// Its answer was lost; when it is asked again, another has removed the file and its directory, or has moved the file.
#[test]
fn what_was_made_where_no_directory_is_any_more_was_made() {
    for moved in [false, true] {
        let mut w = world();
        let d = w.mkdir(2, 1, "d");
        let f = w.make(1, d, "f");
        let again = w.clients[&1].last.clone().unwrap();
        let gone = match moved {
            true => w.call(2, op::RENAME, (1, "g"), (d, "f"), Args::default()),
            false => w.call(2, op::UNLINK, (d, "f"), (0, ""), Args::default()),
        };
        assert_eq!(gone.result, 0);
        assert_eq!(w.call(2, op::RMDIR, (1, "d"), (0, ""), Args::default()).result, 0);
        let tid = again.tid;
        w.clients.get_mut(&1).unwrap().replies.remove(&tid);
        w.say(1, again);
        w.settle();
        let reply = w.reply(1, tid).unwrap();
        assert_eq!(reply.result, 0, "moved: {moved}");
        let shown = reply.trace.target.as_ref().map(|t| t.ino);
        assert_eq!(shown, moved.then_some(f));
    }
}

/// As rename(2) has it: two names of one inode stay, and a directory need not be empty for that.
#[test]
fn a_directory_is_renamed_to_its_own_name() {
    let mut w = world();
    let d = w.mkdir(1, 1, "d");
    let f = w.make(1, d, "f");
    let reply = w.call(1, op::RENAME, (1, "d"), (1, "d"), Args::default());
    assert_eq!(reply.result, 0);
    assert_eq!((w.lookup(2, 1, "d"), w.lookup(2, d, "f")), (Some(d), Some(f)));
}

#[test]
fn an_eviction_by_command_is_answered_when_the_client_is_fenced() {
    let mut w = world();
    w.tell(1, r#"{"prefix": "session evict", "filters": ["id=2"]}"#);
    while w.told.is_empty() {
        assert!(w.step(), "no answer");
        assert!(w.told.is_empty() || w.fenced == [2]);
    }
    assert_eq!(w.told.remove(0).result, 0);
    w.tell(1, r#"{"prefix": "client ls", "format": "json"}"#);
    w.settle();
    let said: serde_json::Value = serde_json::from_slice(&w.told.remove(0).output).unwrap();
    assert_eq!(said[0]["id"], 1);
    assert_eq!(said.as_array().unwrap().len(), 1);
}

#[test]
fn commands_that_are_wrong_change_nothing() {
    let mut w = world();
    for (command, code) in [
        ("session evict", -22),
        (r#"{"prefix": "session evict"}"#, -22),
        (r#"{"prefix": "session evict", "filters": ["id=two"]}"#, -22),
        (r#"{"prefix": "session evict", "filters": ["colour=2"]}"#, -22),
        (r#"{"prefix": "config set", "var": "mds_reconnect_timeout"}"#, -22),
        (
            r#"{"prefix": "config set", "var": "mds_colour", "val": ["red"]}"#,
            -2,
        ),
        (r#"{"prefix": "scrub start", "arg": ["/"]}"#, -95),
        (r#"{"prefix": "dance"}"#, -22),
        // Of nobody.
        (r#"{"prefix": "session evict", "filters": ["7"]}"#, 0),
    ] {
        w.tell(1, command);
        w.settle();
        assert_eq!(w.told.pop().map(|r| r.result), Some(code), "{command}");
    }
    assert!(w.fenced.is_empty() && w.m.sessions_len() == 2);
}

#[test]
fn commands_take_a_key_that_allows_everything() {
    let mut w = world();
    for (id, caps, code) in [
        (3, "allow *", 0),
        (4, "allow all", 0),
        (5, "allow", -13),
        (6, "allow rwfps", -13),
        (7, "allow * path=/a", -13),
        (8, "allow r, allow *", 0),
        (9, "allow * network 10.0.0.0/8", -13),
        (10, "", -13),
    ] {
        w.open_with(id, caps, "/");
        w.tell(id, r#"{"prefix": "session evict", "filters": ["id=2"]}"#);
        w.settle();
        assert_eq!(w.told.pop().map(|r| r.result), Some(code), "{caps}");
        assert_eq!(w.fenced, [2]);
    }
}

#[test]
fn of_many_requests_the_oldest_are_shown() {
    let mut w = world();
    let f = w.make(1, 1, "f");
    w.clients.get_mut(&1).unwrap().stubborn = true;
    for _ in 0..5000 {
        w.ask(2, op::GETATTR, (f, ""), (0, ""), Args::words(&[cap::FS]));
    }
    w.tell(2, r#"{"prefix": "ops", "format": "json"}"#);
    w.settle();
    let said: serde_json::Value = serde_json::from_slice(&w.told.remove(0).output).unwrap();
    assert_eq!(said["num_ops"], 5000);
    let ops = said["ops"].as_array().unwrap();
    assert_eq!(
        (ops.len(), &ops[0]["type_data"]["client_info"]["tid"]),
        (4096, &1.into())
    );
}
