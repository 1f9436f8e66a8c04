//! Snapshots: what they show stays, whatever is done, and whenever the server dies; what only a removed one showed goes.

use super::super::*;
use super::world::World;
use crate::row::{Key, NOSNAP, Row, job};
use messages::fs::{Args, CapBody, InodeStat, MClientCaps, SetAttr, cap, cap_op, op, setattr};
use messages::mon::Body;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    fn snap(&mut self, dir: u64, name: &str) -> i32 {
        let path = format!("/{name}");
        self.call(1, op::MKSNAP, (dir, &path), (0, ""), Args::words(&[0o755]))
            .result
    }

    fn rmsnap(&mut self, dir: u64, name: &str) -> i32 {
        let path = format!("/{name}");
        self.call(1, op::RMSNAP, (dir, &path), (0, ""), Args::default())
            .result
    }

    fn stat(&mut self, dir: u64, path: &str) -> std::result::Result<InodeStat, i32> {
        let reply = self.call(1, op::GETATTR, (dir, path), (0, ""), Args::words(&[cap::FS]));
        match reply.result {
            0 => Ok(*reply.trace.target.unwrap()),
            e => Err(e),
        }
    }

    /// Names with what they stand for, in pages.
    fn entries(&mut self, op: u32, dir: u64, path: &str) -> BTreeMap<String, InodeStat> {
        let (mut all, mut last) = (BTreeMap::new(), String::new());
        loop {
            let args = Args::words(&[0, 3]);
            let reply = self.call(1, op, (dir, path), (0, &last.clone()), args);
            assert_eq!(reply.result, 0, "{path}");
            let mut r = denc::Reader::new(reply.extra);
            let _: messages::fs::DirStat = r.get().unwrap();
            let (n, flags) = (r.u32().unwrap(), r.u16().unwrap());
            for _ in 0..n {
                last = String::from_utf8(r.blob().unwrap().to_vec()).unwrap();
                let _: messages::fs::LeaseStat = r.get().unwrap();
                assert!(
                    all.insert(last.clone(), r.get().unwrap()).is_none(),
                    "{last} twice"
                );
            }
            if flags & 1 == 1 {
                return all;
            }
            assert!(n > 0);
        }
    }

    fn change(&mut self, ino: u64, mask: u32, size: u64, mode: u32) {
        let s = SetAttr {
            mask,
            size,
            mode,
            ..SetAttr::default()
        };
        let reply = self.call(1, op::SETATTR, (ino, ""), (0, ""), Args::of_setattr(&s));
        assert_eq!(reply.result, 0);
    }

    fn done(&mut self, op: u32, to: (u64, &str), from: (u64, &str)) -> i32 {
        self.call(1, op, to, from, Args::default()).result
    }

    /// It gives all of its capabilities back.
    fn release_all(&mut self) {
        let held = std::mem::take(&mut self.clients.get_mut(&1).unwrap().caps);
        held.keys().for_each(|ino| self.m.drop_cap(1, *ino));
        self.apply(Event::Tick);
        self.settle();
    }

    /// Everything is written back, and what is not used is forgotten.
    fn forget(&mut self) {
        self.m.wb.drain = true;
        for _ in 0..4 {
            self.tick(1);
        }
        self.m.wb.drain = false;
    }

    fn versions(&self) -> Vec<Key> {
        let of_version = |k: &&Key| match k {
            Key::Inode { snap, .. } | Key::Dentry { snap, .. } => *snap != NOSNAP,
            Key::Old { .. } => true,
            _ => false,
        };
        let rows = self.m.table.rows().map(|(k, _)| k);
        rows.filter(of_version).cloned().collect()
    }
}

fn world() -> World {
    world_of(Options::default().cache_bytes)
}

fn world_of(cache_bytes: usize) -> World {
    let mut w = World::new(Options {
        caching: Caching::Nothing,
        cache_bytes,
        ..Options::default()
    });
    w.settle();
    w.open(1);
    w.settle();
    w
}

#[test]
fn a_snapshot_shows_what_was() {
    let mut w = world();
    let d = w.mkdir(1, 1, "d");
    let f = w.make(1, d, "f");
    w.change(f, setattr::SIZE, 10, 0);
    let sub = w.mkdir(1, d, "sub");
    w.make(1, sub, "deep");
    assert_eq!(w.snap(d, "s1"), 0);
    w.change(f, setattr::MODE, 0, 0o600);
    assert_eq!(w.done(op::UNLINK, (d, "f"), (0, "")), 0);
    w.make(1, d, "g");
    assert_eq!(w.done(op::UNLINK, (sub, "deep"), (0, "")), 0);
    assert_eq!(w.done(op::RMDIR, (d, "sub"), (0, "")), 0);
    for restarted in [false, true] {
        let all = w.entries(op::READDIR, d, "/s1");
        assert_eq!(all.keys().collect::<Vec<_>>(), ["f", "sub"], "{restarted}");
        let at = w.stat(d, "/s1/f").unwrap();
        assert_eq!((at.ino, at.snapid, at.size, at.mode & 0o777), (f, 2, 10, 0o644));
        assert_eq!(w.stat(d, "/s1/sub/deep").unwrap().snapid, 2);
        assert_eq!(w.stat(d, "/s1/g").unwrap_err(), -2);
        assert_eq!(w.list(1, d), ["g"]);
        for (what, path) in [(op::UNLINK, "/s1/f"), (op::MKDIR, "/s1/x"), (op::UNLINK, "/s1")] {
            assert_eq!(w.done(what, (d, path), (0, "")), -30, "{path}");
        }
        w.forget();
        w.restart();
        w.settle();
    }
    assert_eq!(w.done(op::RMDIR, (1, "d"), (0, "")), -39);
}

#[test]
fn names_of_snapshots_are_checked() {
    let mut w = world();
    let d = w.mkdir(1, 1, "d");
    let e = w.mkdir(1, d, "e");
    let f = w.make(1, d, "f");
    assert_eq!(w.snap(d, "s1"), 0);
    for (dir, name, result) in [
        (d, "s1", -17),
        (d, "_x", -22),
        (d, "", -22),
        (f, "s", -20),
        (0x1234, "s", -116),
    ] {
        assert_eq!(w.snap(dir, name), result, "{name}");
    }
    assert_eq!(w.rmsnap(d, "s9"), -2);
    let below = format!("_s1_{d}");
    let seen = w.entries(op::LSSNAP, e, "");
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&below]);
    assert_eq!(w.stat(e, &format!("/{below}")).unwrap().ino, e);
    // What is made later was not there.
    let g = w.mkdir(1, d, "g");
    assert!(w.entries(op::LSSNAP, g, "").is_empty());
    let renamed = w.call(1, op::RENAMESNAP, (d, "/s2"), (d, "/s1"), Args::default());
    assert_eq!(renamed.result, 0);
    assert_eq!(w.entries(op::LSSNAP, d, "").keys().collect::<Vec<_>>(), ["s2"]);
    for i in 3..102 {
        assert_eq!(w.snap(d, &format!("s{i}")), 0);
    }
    assert_eq!(w.snap(d, "more"), -31);
    assert_eq!(w.entries(op::LSSNAP, d, "").len(), 100);
    w.m.place.settings.allow_snaps = false;
    assert_eq!(w.snap(e, "s"), -1);
}

#[test]
fn what_only_a_removed_snapshot_showed_goes() {
    let mut w = world_of(0);
    let d = w.mkdir(1, 1, "d");
    let sub = w.mkdir(1, d, "sub");
    let f = w.make(1, sub, "f");
    for i in 0..40 {
        w.make(1, sub, &format!("f{i}"));
    }
    assert_eq!(w.snap(d, "s1"), 0);
    assert_eq!(w.snap(d, "s2"), 0);
    w.change(f, setattr::MODE, 0, 0o600);
    for i in 0..40 {
        assert_eq!(w.done(op::UNLINK, (sub, &format!("f{i}")), (0, "")), 0);
    }
    w.release_all();
    assert_eq!(w.done(op::UNLINK, (sub, "f"), (0, "")), 0);
    assert_eq!(w.done(op::RMDIR, (d, "sub"), (0, "")), 0);
    w.release_all();
    w.forget();
    assert!(w.pool.jobs.iter().all(|j| j.kind != job::PURGE_DIR));
    // The later one goes: the one before shows the same.
    assert_eq!(w.rmsnap(d, "s2"), 0);
    w.forget();
    assert_eq!(w.entries(op::READDIR, d, "/s1/sub").len(), 41);
    assert_eq!(w.stat(d, "/s1/sub/f").unwrap().mode & 0o777, 0o644);
    assert_eq!(w.pool.dropped, BTreeSet::from([3]));
    assert_eq!(w.rmsnap(d, "s1"), 0);
    // It goes on where it was.
    for _ in 0..5 {
        w.step();
    }
    w.restart();
    w.settle();
    w.forget();
    assert!(w.pool.dropped.contains(&2));
    assert_eq!(w.versions(), Vec::new());
    let gone = |j: &crate::row::Job| j.kind == job::PURGE_DIR && j.ino == sub;
    assert!(w.pool.jobs.iter().any(gone));
    for (object, rows) in &w.pool.rows {
        let rest = rows.keys().filter(|k| !k.ends_with(b"fffffffffffffffe")).count();
        let of_names = object.starts_with("skep.dir.") || object.starts_with("skep.inodes.");
        assert!(!of_names || rest == 0, "{object}: {rest} versions are left");
        assert!(!object.starts_with("skep.olds") || rows.is_empty(), "{object}");
    }
    let purged = w.pool.jobs.iter().filter(|j| j.kind == job::PURGE);
    let contexts: BTreeSet<Vec<u64>> = purged.map(|j| j.snaps.clone()).collect();
    assert_eq!(
        contexts,
        BTreeSet::from([vec![3, 2]]),
        "clones are made for snapshots"
    );
}

fn wrote(w: &World, ino: u64, follows: u64, size: u64, op: u32) -> MClientCaps {
    let c = &w.clients[&1];
    MClientCaps {
        op,
        ino,
        cap_id: if op == cap_op::FLUSHSNAP {
            0
        } else {
            c.caps[&ino].cap_id
        },
        seq: c.seqs[&ino],
        caps: c.caps[&ino].issued,
        wanted: cap::FW,
        dirty: cap::FW,
        snap_follows: follows,
        body: CapBody {
            size,
            truncate_seq: u32::from(op != cap_op::FLUSHSNAP),
            ..CapBody::default()
        },
        ..MClientCaps::default()
    }
}

#[test]
fn what_a_writer_had_not_told_is_in_the_snapshot() {
    let mut w = world();
    let d = w.mkdir(1, 1, "d");
    let f = w.make(1, d, "f");
    assert_eq!(w.snap(d, "s1"), 0);
    assert_eq!(w.snap(d, "s2"), 0);
    w.clients.get_mut(&1).unwrap().stubborn = true;
    let tid = w.ask(1, op::GETATTR, (d, "/s1/f"), (0, ""), Args::words(&[cap::FS]));
    w.settle();
    assert!(
        w.reply(1, tid).is_none(),
        "while the writer has not said what it wrote"
    );
    let m = wrote(&w, f, 1, 100, cap_op::FLUSHSNAP);
    w.say(1, m.message(1));
    let m = wrote(&w, f, 2, 300, cap_op::FLUSHSNAP);
    w.say(1, m.message(2));
    let mut m = wrote(&w, f, 3, 1000, cap_op::UPDATE);
    m.caps = cap::PIN | cap::AS;
    w.say(1, m.message(3));
    w.settle();
    assert_eq!(w.reply(1, tid).unwrap().trace.target.as_ref().unwrap().size, 100);
    w.clients.get_mut(&1).unwrap().stubborn = false;
    // The same again, after a death.
    w.restart();
    w.settle();
    let m = wrote(&w, f, 1, 700, cap_op::FLUSHSNAP);
    w.say(1, m.message(1));
    w.settle();
    let size = |w: &mut World, path: &str| w.stat(d, path).unwrap().size;
    assert_eq!(size(&mut w, "/s1/f"), 100);
    assert_eq!(size(&mut w, "/s2/f"), 300);
    assert_eq!(size(&mut w, "f"), 1000);
}

/// It waited for versions that it had nothing to say of, which were not in memory; the writer's next message did not.
#[test]
fn what_a_writer_says_first_is_taken_first() {
    for next in [cap_op::UPDATE, cap_op::RELEASE] {
        let mut w = world_of(0);
        let d = w.mkdir(1, 1, "d");
        let f = w.make(1, d, "f");
        assert_eq!(w.snap(d, "s1"), 0);
        w.change(f, setattr::MODE, 0, 0o600);
        w.release_all();
        w.forget();
        assert!(!w.versions().contains(&Key::version(f, 2)));
        w.call(1, op::OPEN, (f, ""), (0, ""), Args::words(&[1]));
        assert_eq!(w.snap(d, "s2"), 0);
        w.clients.get_mut(&1).unwrap().stubborn = true;
        let tid = w.ask(1, op::GETATTR, (d, "/s2/f"), (0, ""), Args::words(&[cap::FS]));
        w.settle();
        assert!(w.reply(1, tid).is_none());
        let m = wrote(&w, f, 2, 100, cap_op::FLUSHSNAP);
        w.say(1, m.message(1));
        match next {
            cap_op::RELEASE => w.m.drop_cap(1, f),
            _ => {
                let mut m = wrote(&w, f, 3, 1000, next);
                m.caps = cap::PIN | cap::AS;
                w.say(1, m.message(2));
            }
        }
        w.apply(Event::Tick);
        w.settle();
        assert_eq!(w.reply(1, tid).unwrap().trace.target.as_ref().unwrap().size, 100);
        let now = if next == cap_op::UPDATE { 1000 } else { 100 };
        assert_eq!(w.stat(d, "f").unwrap().size, now);
    }
}

/// What a holder may have to say of a version it says later: that one stays in memory, and is read after a restart.
#[test]
fn versions_that_writers_may_be_behind_stay_in_memory() {
    let mut w = world_of(0);
    let d = w.mkdir(1, 1, "d");
    let f = w.make(1, d, "f");
    for (restarts, snap, tid) in [(false, 2, 1), (true, 3, 2)] {
        assert_eq!(w.snap(d, &format!("s{snap}")), 0);
        w.change(f, setattr::MODE, 0, 0o600 + snap as u32);
        w.forget();
        if restarts {
            w.restart();
            w.settle();
        }
        // Not a FLUSHSNAP: it had not heard.
        let m = wrote(&w, f, snap - 1, 100 * snap, cap_op::UPDATE);
        w.say(1, m.message(tid));
        w.settle();
        let at = w.stat(d, &format!("/s{snap}/f")).unwrap();
        assert_eq!(
            (at.size, at.mode & 7),
            (100 * snap, 4 * u32::from(snap == 2) + u32::from(snap == 3) * 2)
        );
    }
}

/// All that is held is not looked through at every tick; what is above it stays all the same.
#[test]
fn directories_above_what_is_held_stay_at_any_tick() {
    let mut w = world_of(0);
    let d = w.mkdir(1, 1, "d");
    let sub = w.mkdir(1, d, "sub");
    let f = w.make(1, sub, "f");
    let other = w.mkdir(1, d, "other");
    assert_eq!(w.snap(d, "s1"), 0);
    w.release_all();
    w.call(1, op::OPEN, (f, ""), (0, ""), Args::words(&[1]));
    w.forget();
    assert!(w.m.cached(other).is_none());
    w.call(1, op::GETATTR, (other, ""), (0, ""), Args::words(&[cap::FS]));
    w.m.drop_cap(1, other);
    for _ in 0..9 {
        w.apply(Event::Tick);
        w.settle();
    }
    assert!(
        w.m.cached(other).is_some(),
        "nobody looked whether something below it is held"
    );
    w.forget();
    for (ino, stays) in [(other, false), (sub, true), (d, true), (f, true)] {
        assert_eq!(w.m.cached(ino).is_some(), stays, "{ino:x}");
    }
}

#[test]
fn a_flush_of_who_had_not_heard_belongs_to_the_snapshot() {
    let mut w = world();
    let d = w.mkdir(1, 1, "d");
    let f = w.make(1, d, "f");
    assert_eq!(w.snap(d, "s1"), 0);
    assert_eq!(w.snap(d, "s2"), 0);
    let m = wrote(&w, f, 2, 50, cap_op::UPDATE);
    w.say(1, m.message(1));
    w.settle();
    let size = |w: &mut World, path: &str| w.stat(d, path).unwrap().size;
    assert_eq!(size(&mut w, "/s1/f"), 0);
    assert_eq!(size(&mut w, "/s2/f"), 50);
    let m = wrote(&w, f, 3, 70, cap_op::UPDATE);
    w.say(1, m.message(2));
    w.settle();
    assert_eq!(size(&mut w, "/s2/f"), 50);
    assert_eq!(size(&mut w, "f"), 70);
}

#[test]
fn nobody_rewrites_snapshots_that_were_there_before_it_came() {
    let mut w = world();
    w.open(2);
    let d = w.mkdir(1, 1, "d");
    let f = w.make(1, d, "f");
    w.change(f, setattr::SIZE, 10, 0);
    assert_eq!(w.snap(d, "s1"), 0);
    for holds in [false, true] {
        if holds {
            w.call(2, op::OPEN, (f, ""), (0, ""), Args::words(&[1]));
        }
        for (tid, op) in [(1, cap_op::FLUSHSNAP), (2, cap_op::UPDATE)] {
            let m = MClientCaps {
                cap_id: w.clients[&2].caps.get(&f).map_or(0, |c| c.cap_id),
                ..wrote(&w, f, 1, 500, op)
            };
            w.say(2, m.message(tid + 10 * u64::from(holds)));
            w.settle();
        }
        assert_eq!(w.stat(d, "/s1/f").unwrap().size, 10, "{holds}");
        assert_eq!(w.stat(d, "f").unwrap().size, if holds { 500 } else { 10 });
    }
}

#[test]
fn clients_below_hear_of_a_snapshot_and_its_end() {
    let mut w = world();
    w.open(2);
    let d = w.mkdir(1, 1, "d");
    let f = w.make(1, d, "f");
    w.make(1, 1, "other");
    let g = w.make(1, 1, "g");
    assert_eq!(w.done(op::LINK, (d, "h"), (g, "")), 0);
    w.lookup(2, 1, "other");
    w.clients.values_mut().for_each(|c| c.snaps.clear());
    assert_eq!(w.snap(d, "s1"), 0);
    let told = std::mem::take(&mut w.clients.get_mut(&1).unwrap().snaps);
    assert!(w.clients[&2].snaps.is_empty(), "it holds nothing there");
    let of = |split: u64| told.iter().find(|m| m.split == split).unwrap();
    assert_eq!(of(d).op, messages::fs::snap_op::SPLIT);
    assert!(of(d).split_inos.contains(&d) && of(d).split_inos.contains(&f));
    assert!(!of(d).split_inos.contains(&g));
    let realm = |m: &messages::fs::MClientSnap| {
        let mut r = denc::Reader::new(m.trace.clone());
        r.get::<messages::fs::Realm>().unwrap()
    };
    assert_eq!((realm(of(d)).seq, realm(of(d)).snaps), (2, vec![2]));
    // A file of two names is in the snapshot by its second one.
    assert_eq!(realm(of(g)).prior_parent_snaps, [2]);
    assert!(realm(of(g)).seq >= 2);
    assert_eq!(w.rmsnap(d, "s1"), 0);
    let told = std::mem::take(&mut w.clients.get_mut(&1).unwrap().snaps);
    let m = told.iter().find(|m| realm(m).ino == d).unwrap();
    assert_eq!(m.op, messages::fs::snap_op::DESTROY);
    assert_eq!((realm(m).seq, realm(m).snaps), (3, vec![]));
    // After a restart they hear what there is.
    assert_eq!(w.snap(d, "s2"), 0);
    w.clients.values_mut().for_each(|c| c.snaps.clear());
    w.restart();
    w.settle();
    let told = &w.clients[&1].snaps;
    assert_eq!(realm(told.iter().find(|m| m.split == d).unwrap()).snaps, [4]);
}

/// Realms that a client was told of, and what lies in which.
fn told_of(w: &mut World, client: u64) -> Vec<(u64, u64, Vec<u64>)> {
    let told = std::mem::take(&mut w.clients.get_mut(&client).unwrap().snaps);
    let one = |m: messages::fs::MClientSnap| {
        let realm: messages::fs::Realm = denc::Reader::new(m.trace.clone()).get().unwrap();
        (realm.ino, realm.parent, m.split_inos)
    };
    told.into_iter().map(one).collect()
}

/// Once a client kept it below the directory of the name that went, and did not hear of snapshots of the other one.
#[test]
fn who_holds_a_file_hears_where_it_is_when_its_first_name_goes() {
    for goes in [op::UNLINK, op::RENAME] {
        let mut w = world();
        w.open(2);
        let (a, b) = (w.mkdir(1, 1, "a"), w.mkdir(1, 1, "b"));
        let f = w.make(1, a, "f");
        w.make(1, a, "g");
        assert_eq!(w.snap(b, "s1"), 0);
        assert_eq!(w.done(op::LINK, (b, "f"), (f, "")), 0);
        w.lookup(2, b, "f");
        told_of(&mut w, 2);
        let from = if goes == op::RENAME { "g" } else { "" };
        assert_eq!(w.done(goes, (a, "f"), (a, from)), 0);
        let told = told_of(&mut w, 2);
        assert!(told.contains(&(f, b, vec![f])), "{told:?}");
        assert_eq!(w.snap(b, "s2"), 0);
        let told = told_of(&mut w, 2);
        assert!(told.iter().any(|(realm, ..)| *realm == b), "{told:?}");
    }
}

/// Clients leave what they hold in the realm that was created later; neither has a snapshot to give it a realm of its own.
#[test]
fn what_moves_into_an_older_realm_moves_for_its_holders() {
    let mut w = world();
    let (b, a) = (w.mkdir(1, 1, "b"), w.mkdir(1, 1, "a"));
    for dir in [b, a] {
        assert_eq!(w.snap(dir, "s"), 0);
        assert_eq!(w.rmsnap(dir, "s"), 0);
    }
    let f = w.make(1, a, "f");
    let dir = w.mkdir(1, a, "dir");
    let created = |w: &World, ino: u64| w.m.cached(ino).unwrap().realm_created;
    for (ino, name) in [(f, "f"), (dir, "dir")] {
        w.clients.get_mut(&1).unwrap().snaps.clear();
        assert_eq!(w.done(op::RENAME, (b, name), (a, name)), 0);
        let told = &w.clients[&1].snaps[0];
        assert!(told.split == b && told.split_inos.contains(&ino), "{told:?}");
        let realm: messages::fs::Realm = denc::Reader::new(told.trace.clone()).get().unwrap();
        assert!(realm.ino == b && realm.created >= created(&w, a), "{realm:?}");
    }
}

#[test]
fn nobody_hears_of_realms_that_stay_as_they_are() {
    let mut w = world();
    let (a, b) = (w.mkdir(1, 1, "a"), w.mkdir(1, 1, "b"));
    let f = w.make(1, a, "f");
    let g = w.make(1, a, "g");
    let sub = w.mkdir(1, a, "sub");
    assert_eq!(w.snap(a, "s1"), 0);
    assert_eq!(w.snap(b, "s2"), 0);
    told_of(&mut w, 1);
    assert_eq!(w.done(op::RENAME, (a, "h"), (a, "f")), 0);
    assert_eq!(w.done(op::RENAME, (sub, "h"), (a, "h")), 0);
    assert_eq!(told_of(&mut w, 1), []);
    // A file that is elsewhere is all that is there.
    assert_eq!(w.done(op::RENAME, (b, "f"), (sub, "h")), 0);
    assert_eq!(told_of(&mut w, 1), [(f, b, vec![f])]);
    assert_eq!(w.done(op::LINK, (b, "g"), (g, "")), 0);
    assert_eq!(told_of(&mut w, 1).len(), 1);
    assert_eq!(w.done(op::LINK, (b, "g2"), (g, "")), 0);
    assert_eq!(told_of(&mut w, 1), []);
    // Of a directory all that is below it hears.
    assert_eq!(w.done(op::RENAME, (b, "sub"), (a, "sub")), 0);
    assert_eq!(told_of(&mut w, 1), [(sub, b, vec![sub])]);
}

#[test]
fn keys_hold_in_snapshots() {
    let mut w = world();
    let d = w.mkdir(1, 1, "d");
    let a = w.mkdir(1, d, "a");
    w.make(1, a, "f");
    let b = w.mkdir(1, d, "b");
    w.make(1, b, "g");
    assert_eq!(w.snap(d, "s1"), 0);
    w.open_with(3, "allow rw path=/d/a", "/d/a");
    w.settle();
    let below = format!("/_s1_{d}/f");
    let ask = |w: &mut World, dir: u64, path: &str| {
        w.call(3, op::GETATTR, (dir, path), (0, ""), Args::default())
            .result
    };
    assert_eq!(ask(&mut w, a, &below), 0);
    assert_eq!(ask(&mut w, d, "/s1/b/g"), -13);
    assert_eq!(ask(&mut w, d, "/s1/a/f"), 0);
    let r = w.call(3, op::MKSNAP, (a, "/x"), (0, ""), Args::words(&[0o755]));
    assert_eq!(r.result, -1, "without the right to");
    // What was moved away is seen where it was, by who may look there.
    assert_eq!(w.done(op::RENAME, (a, "b"), (d, "b")), 0);
    assert_eq!(ask(&mut w, a, "b/g"), 0);
    assert_eq!(ask(&mut w, d, "/s1/b/g"), -13);
}

// A model

#[derive(Clone, PartialEq, Debug)]
struct Seen {
    ino: u64,
    mode: u32,
    size: u64,
}

#[derive(Default)]
struct Model {
    dirs: BTreeMap<u64, BTreeMap<String, u64>>,
    inodes: BTreeMap<u64, Seen>,
    /// By directory and name.
    snaps: BTreeMap<(u64, String), BTreeMap<String, Seen>>,
}

impl Model {
    fn tree(&self, dir: u64) -> BTreeMap<String, Seen> {
        let mut all = BTreeMap::new();
        let mut todo = vec![(String::new(), dir)];
        while let Some((path, dir)) = todo.pop() {
            for (name, ino) in &self.dirs[&dir] {
                let path = format!("{path}/{name}");
                all.insert(path.clone(), self.inodes[ino].clone());
                if self.dirs.contains_key(ino) {
                    todo.push((path, *ino));
                }
            }
        }
        all
    }

    fn is_below(&self, ino: u64, above: u64) -> bool {
        ino == above
            || self.dirs[&above]
                .values()
                .any(|i| self.dirs.contains_key(i) && self.is_below(ino, *i))
    }
}

fn tree_of(w: &mut World, dir: u64, at: &str) -> BTreeMap<String, Seen> {
    let (mut all, mut todo) = (BTreeMap::new(), vec![String::new()]);
    // A slash in front would lead into `.snap`.
    let whole = |path: &str| match at {
        "" => path.trim_start_matches('/').to_string(),
        at => format!("{at}{path}"),
    };
    while let Some(path) = todo.pop() {
        for (name, stat) in w.entries(op::READDIR, dir, &whole(&path)) {
            let path = format!("{path}/{name}");
            let again = w.stat(dir, &whole(&path));
            let again = again.unwrap_or_else(|e| panic!("{dir:x}{at}{path}: {e}"));
            assert_eq!(
                (again.ino, again.mode, again.size),
                (stat.ino, stat.mode, stat.size)
            );
            if stat.mode & 0o040_000 != 0 {
                todo.push(path.clone());
            }
            let size = if stat.mode & 0o040_000 != 0 { 0 } else { stat.size };
            let (ino, mode) = (stat.ino, stat.mode & 0o777);
            all.insert(path, Seen { ino, mode, size });
        }
    }
    all
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len())].clone()
    }
}

/// One random operation, in the file system and in the model.
fn step(w: &mut World, m: &mut Model, dice: &mut Dice) {
    let dirs: Vec<u64> = m.dirs.keys().copied().collect();
    let (a, b) = (dice.pick(&dirs), dice.pick(&dirs));
    let (x, y) = (format!("n{}", dice.roll(5)), format!("n{}", dice.roll(5)));
    let (at, target) = (m.dirs[&a].get(&x).copied(), m.dirs[&b].get(&y).copied());
    let is_dir = |m: &Model, ino: u64| m.dirs.contains_key(&ino);
    let new = |mode| Seen {
        ino: 0,
        mode,
        size: 0,
    };
    match (dice.roll(12), at, target) {
        (0 | 1, None, _) => {
            let ino = w.make(1, a, &x);
            m.dirs.get_mut(&a).unwrap().insert(x, ino);
            m.inodes.insert(ino, Seen { ino, ..new(0o644) });
        }
        (2, None, _) => {
            let ino = w.mkdir(1, a, &x);
            m.dirs.get_mut(&a).unwrap().insert(x, ino);
            m.dirs.insert(ino, BTreeMap::new());
            m.inodes.insert(ino, Seen { ino, ..new(0o755) });
        }
        (3 | 4, Some(ino), _) if !is_dir(m, ino) => {
            assert_eq!(w.done(op::UNLINK, (a, &x), (0, "")), 0);
            m.dirs.get_mut(&a).unwrap().remove(&x);
        }
        (3, Some(ino), _) => {
            let snapped = m.snaps.keys().any(|(d, _)| *d == ino);
            let empty = m.dirs[&ino].is_empty() && !snapped;
            let result = w.done(op::RMDIR, (a, &x), (0, ""));
            assert_eq!(result, if empty { 0 } else { -39 });
            if empty {
                m.dirs.get_mut(&a).unwrap().remove(&x);
                m.dirs.remove(&ino);
            }
        }
        (5 | 6, Some(ino), None) if !is_dir(m, ino) || !m.is_below(b, ino) => {
            assert_eq!(w.done(op::RENAME, (b, &y), (a, &x)), 0);
            m.dirs.get_mut(&a).unwrap().remove(&x);
            m.dirs.get_mut(&b).unwrap().insert(y, ino);
        }
        (6, Some(ino), Some(other)) if !is_dir(m, ino) && !is_dir(m, other) && ino != other => {
            assert_eq!(w.done(op::RENAME, (b, &y), (a, &x)), 0);
            m.dirs.get_mut(&a).unwrap().remove(&x);
            m.dirs.get_mut(&b).unwrap().insert(y, ino);
        }
        (7, Some(ino), None) if !is_dir(m, ino) => {
            assert_eq!(w.done(op::LINK, (b, &y), (ino, "")), 0);
            m.dirs.get_mut(&b).unwrap().insert(y, ino);
        }
        (8, Some(ino), _) => {
            let mode = 0o600 | dice.roll(64) as u32;
            w.change(ino, setattr::MODE, 0, mode);
            m.inodes.get_mut(&ino).unwrap().mode = mode;
        }
        (9, Some(ino), _) if !is_dir(m, ino) => {
            let size = dice.roll(1000) as u64;
            w.change(ino, setattr::SIZE, size, 0);
            m.inodes.get_mut(&ino).unwrap().size = size;
        }
        (10, ..) => {
            let name = format!("s{}", dice.roll(3));
            let key = (a, name.clone());
            let there = m.snaps.contains_key(&key);
            assert_eq!(w.snap(a, &name), if there { -17 } else { 0 });
            if !there {
                m.snaps.insert(key, m.tree(a));
            }
        }
        (11, ..) if m.snaps.len() > 6 => {
            let all: Vec<(u64, String)> = m.snaps.keys().cloned().collect();
            let (dir, name) = dice.pick(&all);
            assert_eq!(w.rmsnap(dir, &name), 0);
            m.snaps.remove(&(dir, name));
        }
        _ => {}
    }
}

#[test]
fn snapshots_are_those_of_a_model() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let mut w = world_of(if seed % 2 == 0 { 0 } else { 1 << 20 });
        let mut m = Model::default();
        m.dirs.insert(1, BTreeMap::new());
        for i in 0..400 {
            step(&mut w, &mut m, &mut dice);
            match dice.roll(60) {
                0 => {
                    w.restart();
                    w.settle();
                }
                1 => w.forget(),
                2 => {
                    w.release_all();
                    w.forget();
                }
                _ => {}
            }
            if i % 50 == 49 {
                for ((dir, name), tree) in &m.snaps {
                    assert_eq!(
                        &tree_of(&mut w, *dir, &format!("/{name}")),
                        tree,
                        "seed {seed} at {i}: {name}"
                    );
                }
                assert_eq!(tree_of(&mut w, 1, ""), m.tree(1), "seed {seed} at {i}");
            }
        }
        for (dir, name) in m.snaps.keys() {
            assert_eq!(w.rmsnap(*dir, name), 0);
        }
        w.forget();
        w.settle();
        assert_eq!(
            w.versions(),
            Vec::new(),
            "seed {seed}: nothing is left of removed snapshots"
        );
        let dead =
            w.m.table
                .rows()
                .filter(|(_, r)| matches!(r, Row::Inode(i) if i.kept.dead));
        assert_eq!(dead.count(), 0, "seed {seed}");
    }
}

/// A snapshot between changes, and one that goes: the server dies at each effect.
#[test]
fn snapshots_survive_a_death_at_any_effect() {
    let script: [(u32, &str, &str); 8] = [
        (op::CREATE, "f", ""),
        (op::MKSNAP, "/s1", ""),
        (op::RENAME, "g", "f"),
        (op::MKSNAP, "/s2", ""),
        (op::UNLINK, "g", ""),
        (op::RMSNAP, "/s1", ""),
        (op::CREATE, "f", ""),
        (op::MKSNAP, "/s3", ""),
    ];
    // What each snapshot shows, from when to when it is there.
    let shows = [("s1", 1, 5, "f"), ("s2", 3, 99, "g"), ("s3", 7, 99, "f")];
    for dies in 0.. {
        let mut w = world();
        let d = w.mkdir(1, 1, "d");
        w.done = 0;
        let mut answered = 0;
        'script: for (what, a, b) in script {
            let args = match what {
                op::CREATE => Args::words(&[0o1101, 0o644, 0, 0, 0, u32::MAX]),
                _ => Args::words(&[0o755]),
            };
            let old = if b.is_empty() { (0, "") } else { (d, b) };
            let tid = w.ask(1, what, (d, a), old, args);
            while w.reply(1, tid).is_none() {
                if w.done >= dies {
                    break 'script;
                }
                assert!(w.step(), "{a}: nothing goes on");
            }
            assert_eq!(w.reply(1, tid).unwrap().result, 0, "{a}");
            answered += 1;
            if answered % 3 == 0 {
                w.m.wb.drain = true;
                w.apply(Event::Tick);
            }
        }
        w.restart();
        w.settle();
        w.forget();
        let seen = w.entries(op::LSSNAP, d, "");
        for (name, from, to, file) in shows {
            let there = seen.contains_key(name);
            assert!(
                there || answered <= from || answered >= to,
                "{name} is lost after {dies}"
            );
            assert!(
                !there || answered >= from && answered <= to,
                "{name} after {dies}"
            );
            if there {
                let names = w.entries(op::READDIR, d, &format!("/{name}"));
                assert_eq!(names.keys().collect::<Vec<_>>(), [file], "{name} after {dies}");
            }
        }
        assert_eq!(w.snap(d, "last"), 0, "after {dies}");
        if answered == script.len() {
            assert!(dies > 20);
            break;
        }
    }
}
