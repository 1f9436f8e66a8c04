//! What clients may keep is taken back before it is changed: by histories of three clients that trust what they were given
//! ([`super::cache`]), and one by one.

use super::early::create;
use super::world::World;
use super::*;
use crate::machine::parts::early::Broken;
use crate::row::ROOT;
use messages::fs::{MClientCaps, Release, request_flag};

const SHARED: u32 = cap::AS | cap::LS | cap::XS | cap::FS;

fn shared() -> World {
    let mut w = world_of(Options::default());
    w.watched = true;
    w.open(3);
    w.settle();
    w
}

fn issued(w: &World, client: u64, ino: u64) -> u32 {
    w.clients[&client].caps.get(&ino).map_or(0, |c| c.issued)
}

fn mode(mode: u32) -> Args {
    Args::of_setattr(&SetAttr {
        mask: setattr::MODE,
        mode,
        ..SetAttr::default()
    })
}

fn getattr(w: &mut World, client: u64, ino: u64) -> u32 {
    let reply = w.call(client, op::GETATTR, (ino, ""), (0, ""), Args::words(&[SHARED]));
    assert_eq!(reply.result, 0);
    issued(w, client, ino)
}

#[test]
fn a_listing_brings_what_a_stat_asks_for() {
    let mut w = shared();
    let d = w.mkdir(1, ROOT, "d");
    let (sub, f) = (w.mkdir(1, d, "sub"), w.make(1, d, "f"));
    close(&mut w, 1, f, false);
    assert_eq!(w.list_by(2, d, 100).len(), 2);
    assert_eq!(issued(&w, 2, d) & SHARED, SHARED);
    assert_eq!(w.clients[&2].cache.known(d), 2);
    // Their maker was alone with them; by the next look it is not.
    for ino in [sub, f] {
        assert_eq!(issued(&w, 2, ino) & SHARED, SHARED & !cap::FS);
        assert_eq!(getattr(&mut w, 2, ino) & SHARED, SHARED);
        assert_eq!(issued(&w, 1, ino) & (cap::FX | cap::FS), cap::FS);
    }
    // And now there is nothing that it has to ask for.
    w.open(4);
    w.settle();
    w.list_by(4, d, 100);
    for ino in [d, sub, f] {
        assert_eq!(issued(&w, 4, ino) & SHARED, SHARED, "{ino:x}");
    }
}

#[test]
fn a_lookup_brings_its_directory() {
    let mut w = shared();
    let d = w.mkdir(1, ROOT, "d");
    w.mkdir(1, d, "a");
    for _ in 0..2 {
        assert!(w.lookup(2, d, "a").is_some());
        w.settle();
    }
    assert_eq!(issued(&w, 2, d) & SHARED, SHARED);
}

#[test]
fn nobody_trusts_what_another_changes() {
    for change in 0..8 {
        let mut w = shared();
        let d = w.mkdir(1, ROOT, "d");
        let f = w.make(1, d, "f");
        close(&mut w, 1, f, false);
        w.list_by(2, d, 100);
        for ino in [d, f] {
            assert_eq!(getattr(&mut w, 2, ino) & SHARED, SHARED);
        }
        w.clients.get_mut(&2).unwrap().stubborn = true;
        let size = SetAttr {
            mask: setattr::SIZE,
            size: 5,
            ..SetAttr::default()
        };
        let tid = match change {
            0 => w.ask(1, op::SETATTR, (f, ""), (0, ""), mode(0o600)),
            1 => w.ask(1, op::SETATTR, (f, ""), (0, ""), Args::of_setattr(&size)),
            2 => w.ask_xattr(1, f, "user.k", "v".into()),
            3 => w.ask_xattr(1, d, "ceph.quota.max_files", "100".into()),
            4 => w.ask(1, op::UNLINK, (d, "f"), (0, ""), Args::default()),
            5 => w.ask(1, op::RENAME, (ROOT, "g"), (d, "f"), Args::default()),
            6 => w.ask(1, op::CREATE, (d, "g"), (0, ""), create()),
            _ => w.ask(
                1,
                op::OPEN,
                (f, ""),
                (0, ""),
                Args::words(&[open_flag::TRUNC | 1]),
            ),
        };
        w.settle();
        assert!(
            w.reply(1, tid).is_none(),
            "{change}: the other still trusts what it has"
        );
        // It is silent, and is fenced.
        for _ in 0..5 {
            w.clock += 20;
            for id in [1, 3] {
                let renew = MClientSession::short(session_op::REQUEST_RENEWCAPS, 1);
                w.say(id, renew.message(0));
            }
            w.tick(0);
        }
        assert_eq!(w.fenced, [2], "{change}");
        assert_eq!(w.reply(1, tid).unwrap().result, 0, "{change}");
    }
}

/// It says how things were when it was sent: behind it the client may want more again.
#[test]
fn what_a_request_gives_up_is_heard_once() {
    let mut w = shared();
    let d = w.mkdir(1, ROOT, "d");
    let f = w.make(1, d, "f");
    close(&mut w, 1, f, false);
    w.settle();
    getattr(&mut w, 2, f);
    w.clients.get_mut(&2).unwrap().stubborn = true;
    let held = w.m.caps[&f].holders[&1].clone();
    let given = Release {
        ino: f,
        cap_id: held.id,
        caps: cap::PIN,
        seq: held.last_sent,
        issue_seq: held.last_issue,
        ..Release::default()
    };
    let tid = w.ask_mode_giving_up(1, f, 0o600, given);
    w.settle();
    assert!(w.reply(1, tid).is_none());
    assert_eq!(w.m.caps[&f].holders[&1].wanted, 0);
    let wants = MClientCaps {
        op: messages::fs::cap_op::UPDATE,
        ino: f,
        cap_id: held.id,
        seq: w.m.caps[&f].holders[&1].last_sent,
        issue_seq: held.last_issue,
        caps: cap::PIN,
        wanted: cap::FR,
        ..MClientCaps::default()
    };
    w.say(1, wants.message(0));
    w.settle();
    w.keeps(2, f, cap::PIN);
    w.settle();
    assert_eq!(w.reply(1, tid).unwrap().result, 0);
    assert_eq!(w.m.caps[&f].holders[&1].wanted & cap::FR, cap::FR);
}

/// As that of a change that the server died with, and that its client says again.
#[test]
fn what_is_trusted_after_a_restart_is_asked_back() {
    let mut w = shared();
    let d = w.mkdir(1, ROOT, "d");
    let f = w.make(1, d, "f");
    close(&mut w, 1, f, false);
    w.list_by(2, d, 100);
    getattr(&mut w, 2, f);
    w.restart();
    w.settle();
    assert_eq!(w.m.state(), MdsState::Active);
    for ino in [d, f] {
        assert_eq!(issued(&w, 2, ino) & SHARED, SHARED);
        assert_eq!(w.m.caps[&ino].holders[&2].issued & SHARED, SHARED);
    }
    assert_eq!(w.clients[&2].cache.known(d), 1);
    w.clients.get_mut(&2).unwrap().stubborn = true;
    let made = w.ask(1, op::CREATE, (d, "g"), (0, ""), create());
    let changed = w.ask(1, op::SETATTR, (f, ""), (0, ""), mode(0o600));
    w.settle();
    assert!(w.reply(1, made).is_none() && w.reply(1, changed).is_none());
}

/// Its maker lost Fs with each change of its own, and with it all names that it knew.
#[test]
fn who_changes_a_directory_alone_keeps_it() {
    let mut w = shared();
    let d = w.mkdir(1, ROOT, "d");
    assert_ne!(issued(&w, 1, d) & cap::FX, 0);
    w.make(1, d, "f");
    assert_ne!(issued(&w, 1, d) & cap::FX, 0);
    // Another looks: both look then.
    w.lookup(2, d, "f");
    w.lookup(2, d, "f");
    assert_eq!((issued(&w, 1, d) & cap::FX, issued(&w, 2, d) & cap::FX), (0, 0));
    assert_ne!(issued(&w, 2, d) & cap::FS, 0);
    // And goes; its maker has it for itself again.
    for i in 0..10 {
        w.make(1, d, &format!("g{i}"));
    }
    assert_eq!(issued(&w, 2, d) & cap::FS, 0);
    assert_ne!(issued(&w, 1, d) & cap::FX, 0);
}

/// A file that is removed stays in memory, and its objects in the pool, until nobody holds it.
#[test]
fn who_holds_a_file_without_a_name_is_told() {
    let mut w = shared();
    let d = w.mkdir(1, ROOT, "d");
    let f = w.make(1, d, "f");
    close(&mut w, 1, f, false);
    w.list_by(2, d, 100);
    let before = w.clients[&1].counted;
    assert_eq!(
        w.call(1, op::UNLINK, (d, "f"), (0, ""), Args::default()).result,
        0
    );
    assert!(w.clients[&2].cache.is_gone(f));
    // One that has just taken it away is not: its next answers would have to wait behind that.
    assert_eq!(w.clients[&1].counted, before + 1, "what was asked back");
    let id = w.clients[&2].caps[&f].cap_id;
    for (client, seq) in [(1, w.clients[&1].seqs[&f]), (2, w.clients[&2].seqs[&f])] {
        let last_issue = w.m.caps[&f].holders[&client].last_issue;
        assert!(last_issue <= seq);
        let item = CapItem {
            ino: f,
            cap_id: w.clients[&client].caps[&f].cap_id,
            mseq: 0,
            issue_seq: last_issue,
        };
        let m = MClientCapRelease {
            items: vec![item],
            osd_epoch_barrier: 0,
        };
        w.say(client, m.message(0));
    }
    w.settle();
    assert!(id > 0 && !w.m.caps.contains_key(&f));
    assert!(w.pool.jobs.iter().any(|j| j.ino == f));
}

/// A client takes all names of a file that it replaces for gone, as long as it trusts their directories without a pause; and the old name
/// where both were names of one file.
#[test]
fn other_names_of_what_is_replaced_are_asked_for_anew() {
    for same in [false, true] {
        let mut w = shared();
        let (p, q) = (w.mkdir(1, ROOT, "p"), w.mkdir(1, ROOT, "q"));
        let f = w.make(1, q, "f");
        assert_eq!(w.call(1, op::LINK, (p, "l"), (f, ""), Args::default()).result, 0);
        w.make(1, p, "g");
        assert!([p, q].into_iter().all(|dir| issued(&w, 1, dir) & cap::FS != 0));
        let (from, to) = if same {
            ((q, "f"), (p, "l"))
        } else {
            ((p, "g"), (p, "l"))
        };
        assert_eq!(w.call(1, op::RENAME, to, from, Args::default()).result, 0);
        assert!([p, q].into_iter().all(|dir| issued(&w, 1, dir) & cap::FS == 0));
        assert_eq!(w.lookup(1, q, "f"), Some(f));
        assert_ne!(issued(&w, 1, q) & cap::FS, 0);
    }
}

#[test]
fn a_reader_gives_up_what_it_caches_before_another_writes() {
    let mut w = shared();
    let f = w.make(1, ROOT, "f");
    close(&mut w, 1, f, false);
    w.call(2, op::OPEN, (f, ""), (0, ""), Args::words(&[0]));
    assert_eq!(issued(&w, 2, f) & (cap::FC | cap::FR), cap::FC | cap::FR);
    w.clients.get_mut(&2).unwrap().stubborn = true;
    w.call(1, op::OPEN, (f, ""), (0, ""), Args::words(&[1]));
    assert_eq!(
        issued(&w, 1, f) & cap::FW,
        0,
        "the other still reads what it has cached"
    );
    w.clients.get_mut(&2).unwrap().stubborn = false;
    w.keeps(2, f, cap::PIN | cap::AS | cap::LS | cap::XS | cap::FR);
    w.settle();
    assert_ne!(issued(&w, 1, f) & cap::FW, 0);
    assert_ne!(
        issued(&w, 1, f) & cap::AS,
        0,
        "or its first write would wait for ever"
    );
}

/// Where its end is, is still being found.
#[test]
fn a_size_that_is_sought_is_not_trusted() {
    let mut w = shared();
    let f = w.make(1, ROOT, "f");
    w.clients.get_mut(&1).unwrap().stubborn = true;
    let tid = w.ask(2, op::GETATTR, (f, ""), (0, ""), Args::words(&[SHARED]));
    for _ in 0..5 {
        w.clock += 20;
        for id in [2, 3] {
            w.say(
                id,
                MClientSession::short(session_op::REQUEST_RENEWCAPS, 1).message(0),
            );
        }
        w.apply(Event::Tick);
        while !matches!(w.effects.front(), Some(Effect::Job { .. }) | None) {
            assert!(w.step());
        }
    }
    assert!(w.m.probing(f));
    if w.reply(2, tid).is_none() {
        while w.reply(2, tid).is_none() && w.m.probing(f) {
            assert!(w.step());
        }
    }
    w.settle();
    assert_eq!(w.m.cached(f).unwrap().size, 4 << 20);
    assert_eq!(getattr(&mut w, 2, f) & SHARED, SHARED);
}

#[test]
fn listings_give_as_many_as_there_is_room_for() {
    let mut w = World::new(Options {
        cache_bytes: 40 << 10,
        ..Options::default()
    });
    w.settle();
    w.open(1);
    w.open(2);
    w.settle();
    let d = w.mkdir(1, ROOT, "d");
    for i in 0..60 {
        let reply = w.call(
            1,
            op::MKNOD,
            (d, &format!("f{i}")),
            (0, ""),
            Args::words(&[0o644]),
        );
        let ino = reply.trace.target.unwrap().ino;
        let item = CapItem {
            ino,
            cap_id: w.clients[&1].caps[&ino].cap_id,
            mseq: 0,
            issue_seq: w.clients[&1].seqs[&ino],
        };
        let m = MClientCapRelease {
            items: vec![item],
            osd_epoch_barrier: 0,
        };
        w.say(1, m.message(0));
        w.clients.get_mut(&1).unwrap().caps.remove(&ino);
    }
    assert_eq!(w.list_by(2, d, 100).len(), 60);
    let held: usize = w.m.caps.values().map(|ic| ic.holders.len()).sum();
    assert!((35..=43).contains(&held), "{held}");
    // And who holds more than that is asked to give back.
    w.m.options.cache_bytes = 10 << 10;
    w.tick(5);
    assert!(w.clients[&2].recalled.is_some_and(|n| n < 10));
}

#[test]
fn it_can_be_switched_off() {
    let mut w = shared();
    let d = w.mkdir(1, ROOT, "d");
    w.list_by(2, d, 100);
    w.tell(
        1,
        r#"{"prefix": "config set", "var": "mds_shared_caps", "val": ["false"]}"#,
    );
    w.settle();
    assert_eq!(w.told.pop().map(|r| r.result), Some(0));
    for id in [1, 2] {
        assert_eq!(issued(&w, id, d) & !cap::PIN, 0);
    }
    assert_eq!(getattr(&mut w, 2, d) & !cap::PIN, 0);
}

// Histories

/// A generator of small numbers, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// One of them begins something.
fn begin(w: &mut World, dice: &mut Dice, dirs: &[u64; 3]) {
    let who = 1 + dice.roll(3);
    let dir = dirs[dice.roll(3) as usize];
    let name = NAMES[dice.roll(4) as usize];
    let (to, other) = (dirs[dice.roll(3) as usize], NAMES[dice.roll(4) as usize]);
    let held: Vec<u64> = w.clients[&who].caps.keys().copied().collect();
    let ino = held.get(dice.roll(held.len().max(1) as u64) as usize).copied();
    let ino = ino.unwrap_or(ROOT);
    let size = SetAttr {
        mask: setattr::SIZE,
        size: dice.roll(9),
        ..SetAttr::default()
    };
    let times = SetAttr {
        mask: setattr::MTIME,
        mtime: types::Utime {
            sec: dice.roll(1000) as u32,
            nsec: 0,
        },
        ..SetAttr::default()
    };
    match dice.roll(22) {
        0 | 1 => drop(w.ask(who, op::CREATE, (dir, name), (0, ""), create())),
        2 => drop(w.ask(who, op::MKNOD, (dir, name), (0, ""), Args::words(&[0o644]))),
        3 => drop(w.ask(who, op::MKDIR, (dir, name), (0, ""), Args::words(&[0o755]))),
        4 | 5 => drop(w.ask(who, op::UNLINK, (dir, name), (0, ""), Args::default())),
        6 => drop(w.ask(who, op::RMDIR, (dir, name), (0, ""), Args::default())),
        7 | 8 => drop(w.ask(who, op::RENAME, (to, other), (dir, name), Args::default())),
        9 => drop(w.ask(who, op::LINK, (dir, name), (ino, ""), Args::default())),
        10 => drop(w.ask(
            who,
            op::SETATTR,
            (ino, ""),
            (0, ""),
            mode(0o600 + dice.roll(64) as u32),
        )),
        11 => drop(w.ask(who, op::SETATTR, (ino, ""), (0, ""), Args::of_setattr(&times))),
        12 => drop(w.ask(who, op::SETATTR, (ino, ""), (0, ""), Args::of_setattr(&size))),
        13 => drop(w.ask_xattr(who, ino, "user.k", format!("{}", dice.roll(99)))),
        14 => drop(w.ask(
            who,
            op::OPEN,
            (ino, ""),
            (0, ""),
            Args::words(&[dice.roll(3) as u32]),
        )),
        15 => close(w, who, ino, dice.roll(2) == 0),
        16 | 17 => drop(w.ask(who, op::READDIR, (dir, ""), (0, ""), Args::words(&[0, 0]))),
        18 => drop(w.ask(who, op::LOOKUP, (dir, name), (0, ""), Args::words(&[SHARED]))),
        19 => drop(w.ask_flagged(who, request_flag::WANT_DENTRY, op::LOOKUP, (dir, name))),
        _ => drop(w.ask(who, op::GETATTR, (ino, ""), (0, ""), Args::words(&[SHARED]))),
    }
}

/// A file is closed; what was written goes with it.
fn close(w: &mut World, who: u64, ino: u64, wrote: bool) {
    let stamp = w.clock as u32;
    let c = w.clients.get_mut(&who).unwrap();
    let issue_seq =
        w.m.caps
            .get(&ino)
            .and_then(|ic| ic.holders.get(&who))
            .map_or(0, |c| c.last_issue);
    let seq = c.seqs.get(&ino).copied().unwrap_or_default();
    let Some(record) = c.caps.get_mut(&ino) else {
        return;
    };
    let wrote = wrote && record.issued & cap::FW != 0;
    record.wanted = 0;
    record.issued &= !(cap::FR | cap::FW | cap::FC | cap::FB);
    if wrote {
        record.issued &= !(cap::FS | cap::FX);
    }
    let m = MClientCaps {
        op: messages::fs::cap_op::UPDATE,
        ino,
        cap_id: record.cap_id,
        seq,
        issue_seq,
        caps: record.issued,
        dirty: if wrote { cap::FW } else { 0 },
        body: messages::fs::CapBody {
            size: u64::from(stamp % 50),
            mtime: types::Utime { sec: stamp, nsec: 0 },
            ..Default::default()
        },
        ..MClientCaps::default()
    };
    w.clients.get_mut(&who).unwrap().next_tid += 1;
    let tid = if wrote { w.clients[&who].next_tid } else { 0 };
    w.say(who, m.message(tid));
}

fn history(seed: u64, caching: Caching, broken: Option<Broken>) -> World {
    let mut w = World::new(Options {
        caching,
        ..Options::default()
    });
    w.settle();
    (1..=3).for_each(|id| w.open(id));
    w.settle();
    w.m.early.broken = broken;
    w.watched = true;
    let dirs = [ROOT, w.mkdir(1, ROOT, "p"), w.mkdir(2, ROOT, "q")];
    let mut dice = Dice(seed);
    for turn in 0..200 {
        begin(&mut w, &mut dice, &dirs);
        w.slow = dice.roll(3) == 0;
        for _ in 0..dice.roll(12) {
            w.step();
        }
        if turn % 67 == 66 {
            w.restart();
        }
    }
    w.slow = false;
    w.settle();
    w
}

#[test]
fn no_history_shows_anybody_what_is_not_true_any_more() {
    let mut trusted = 0;
    for seed in 0..150 {
        let w = history(seed, Caching::Shared, None);
        assert_eq!(w.m.state(), MdsState::Active, "seed {seed}");
        for c in w.clients.values() {
            let open = c.asked.keys().filter(|t| !c.replies.contains_key(t)).count();
            trusted += c.cache.known(ROOT);
            assert!(open == 0 || c.asked.len() < 200, "seed {seed}");
        }
    }
    assert!(trusted > 100, "clients know names: {trusted}");
}

#[test]
fn names_changed_behind_leases_are_found() {
    let found = |broken| {
        let seeds = 0..150;
        seeds
            .filter(|seed| {
                history(*seed, Caching::Shared, Some(broken))
                    .stale
                    .is_some_and(|what| what.contains("by a lease"))
            })
            .count()
    };
    assert!(found(Broken::Trusted) > 10);
    assert!(found(Broken::Oblivious) > 0);
}

#[test]
fn what_is_not_asked_back_is_found() {
    let found = (0..20).filter(|seed| {
        history(*seed, Caching::Shared, Some(Broken::Rash))
            .stale
            .is_some()
    });
    assert!(found.count() > 10);
}
