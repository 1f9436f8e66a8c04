//! The server dies at each of its effects while two clients change names and attributes, and again while it begins. What was answered is
//! there afterwards, once, for whoever comes back.

use super::super::parts::early::Broken;
use super::early::create;
use super::world;
use super::world::World;
use crate::membership::MdsState;
use crate::row::{Inode, ROOT};
use messages::fs::{Args, SetAttr, op, setattr};
use std::collections::{BTreeMap, BTreeSet};

type Outcome<T> = std::result::Result<T, String>;

#[derive(Debug, Clone, Copy)]
enum What {
    Create,
    Mkdir,
    Unlink,
    /// From this name.
    Rename(&'static str),
    /// Of this one.
    Link(&'static str),
    Mode(u32),
    Xattr(u32),
    NoXattr,
    Quota(i64),
    Unit(u32),
    Snap,
}
use What::*;

/// Client, what, and of which name.
type Step = (usize, What, &'static str);

const SCRIPT: [Step; 35] = [
    (1, Mkdir, "d"),
    (1, Create, "d/x"),
    (2, Mkdir, "e"),
    (1, Unlink, "d/x"),
    (1, Create, "d/x"),
    (2, Create, "d/z"),
    (2, Create, "e/p"),
    (1, Mode(0o600), "d/x"),
    (2, Xattr(7), "e/p"),
    (1, Rename("d/x"), "d/y"),
    (2, Rename("e/p"), "e/q"),
    (1, Create, "d/x"),
    (1, Link("d/y"), "d/l"),
    (1, Xattr(5), "d/y"),
    (2, Link("d/y"), "e/w"),
    (2, Unlink, "d/z"),
    (2, Create, "e/p"),
    (2, Mode(0o640), "e/q"),
    (1, Unlink, "d/y"),
    (2, NoXattr, "e/q"),
    (2, Rename("e/q"), "e/p"),
    (1, Mkdir, "d/y"),
    (2, Quota(100), "e"),
    (1, Mkdir, "g"),
    (1, Rename("d/l"), "g/l"),
    (2, Create, "e/q"),
    (1, Link("g/l"), "d/m"),
    (2, Unit(65536), "e"),
    (1, Snap, "g"),
    (2, Create, "e/n"),
    (1, Rename("d/x"), "g/l"),
    (1, Mode(0o604), "g/l"),
    (2, Create, "d/z"),
    (1, Rename("d/y"), "g/y"),
    (1, Create, "d/x"),
];

/// What a name shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Seen {
    nlink: u32,
    mode: u32,
    xattr: u32,
    quota: i64,
    unit: u32,
    snaps: usize,
}

impl Seen {
    fn of(i: &Inode) -> Self {
        let value = i
            .xattrs
            .get(&b"user.k"[..])
            .map(|v| String::from_utf8(v.to_vec()).unwrap());
        Self {
            nlink: i.nlink,
            mode: i.mode & 0o7777,
            xattr: value.map_or(0, |v| v.parse().unwrap()),
            quota: i.quota.max_files,
            unit: i.layout.stripe_unit,
            snaps: i.snaps.len(),
        }
    }
}

/// What there should be.
#[derive(Default)]
struct Model {
    names: BTreeMap<&'static str, usize>,
    inodes: Vec<Seen>,
}

impl Model {
    fn of(&mut self, name: &str) -> Option<&mut Seen> {
        self.names.get(name).map(|i| &mut self.inodes[*i])
    }

    fn make(&mut self, at: &'static str, mode: u32, unit: u32) {
        self.inodes.push(Seen {
            nlink: 1,
            mode,
            unit,
            ..Seen::default()
        });
        self.names.insert(at, self.inodes.len() - 1);
    }

    /// One name of an inode less.
    fn lose(&mut self, inode: Option<usize>) {
        if let Some(i) = inode {
            self.inodes[i].nlink -= 1;
        }
    }

    fn step(&mut self, what: What, at: &'static str) {
        match what {
            Create => {
                let dir = at.split_once('/').unwrap().0;
                let unit = self.of(dir).map_or(0, |d| d.unit);
                self.make(at, 0o644, if unit == 0 { 4 << 20 } else { unit });
            }
            Mkdir => self.make(at, 0o755, 0),
            Unlink => {
                let gone = self.names.remove(at);
                self.lose(gone);
            }
            Rename(old) => {
                if let Some(i) = self.names.remove(old) {
                    let replaced = self.names.insert(at, i);
                    self.lose(replaced);
                }
            }
            Link(old) => {
                if let Some(i) = self.names.get(old).copied() {
                    self.inodes[i].nlink += 1;
                    self.names.insert(at, i);
                }
            }
            other => {
                let Some(i) = self.of(at) else { return };
                match other {
                    Mode(m) => i.mode = m,
                    Xattr(v) => i.xattr = v,
                    NoXattr => i.xattr = 0,
                    Quota(n) => i.quota = n,
                    Unit(n) => i.unit = n,
                    _ => i.snaps += 1,
                }
            }
        }
    }
}

/// After so many steps of each client.
fn after(done: [usize; 2]) -> BTreeMap<String, Seen> {
    let mut m = Model::default();
    let mut left = done;
    for (client, what, at) in SCRIPT {
        let left = &mut left[client - 1];
        if *left > 0 {
            *left -= 1;
            m.step(what, at);
        }
    }
    let shown = m.names.iter();
    shown
        .map(|(name, i)| (name.to_string(), m.inodes[*i].clone()))
        .collect()
}

/// Numbers of inodes as clients were told.
type Told = BTreeMap<String, u64>;

/// The directory of a name, and the rest of it.
fn placed<'a>(told: &Told, at: &'a str) -> (u64, &'a str) {
    match at.split_once('/') {
        Some((dir, name)) => (told[dir], name),
        None => (ROOT, at),
    }
}

fn ask(w: &mut World, told: &Told, (client, what, at): Step) -> u64 {
    let (client, place) = (client as u64, placed(told, at));
    let none = (0, "");
    match what {
        Create => w.ask(client, op::CREATE, place, none, create()),
        Mkdir => w.ask(client, op::MKDIR, place, none, Args::words(&[0o755])),
        Unlink => w.ask(client, op::UNLINK, place, none, Args::default()),
        Rename(old) => w.ask(client, op::RENAME, place, placed(told, old), Args::default()),
        Link(old) => w.ask(client, op::LINK, place, (told[old], ""), Args::default()),
        Mode(mode) => {
            let set = SetAttr {
                mask: setattr::MODE,
                mode,
                ..SetAttr::default()
            };
            w.ask(client, op::SETATTR, (told[at], ""), none, Args::of_setattr(&set))
        }
        Xattr(v) => w.ask_xattr(client, told[at], "user.k", v.to_string()),
        NoXattr => w.ask(
            client,
            op::RMXATTR,
            (told[at], ""),
            (0, "user.k"),
            Args::default(),
        ),
        Quota(n) => w.ask_xattr(client, told[at], "ceph.quota.max_files", n.to_string()),
        Unit(n) => {
            let text = format!("stripe_unit={n} stripe_count=1 object_size={n}");
            w.ask_xattr(client, told[at], "ceph.dir.layout", text)
        }
        Snap => w.ask(client, op::MKSNAP, (told[at], "/s"), none, Args::words(&[0o755])),
    }
}

struct Run {
    w: World,
    /// Steps of each client that were answered.
    answered: [usize; 2],
    /// Of these, those before the first that is not safe.
    safe: [usize; 2],
    told: Told,
    ended: bool,
}

fn run(dies: usize, seed: u64, broken: Option<Broken>) -> Run {
    let mut w = world();
    w.m.early.broken = broken;
    (w.done, w.slow) = (0, true);
    let mut r = Run {
        w,
        answered: [0; 2],
        safe: [0; 2],
        told: BTreeMap::new(),
        ended: false,
    };
    let mut tids: [Vec<u64>; 2] = Default::default();
    for (n, step) in SCRIPT.into_iter().enumerate() {
        let (who, what, at) = step;
        let client = who as u64;
        let tid = ask(&mut r.w, &r.told, step);
        tids[who - 1].push(tid);
        // More or less of what is under way gets done between them.
        let mut more = (seed >> (n % 16)) & 3;
        while r.w.reply(client, tid).is_none() || more > 0 {
            if r.w.done >= dies {
                break;
            }
            more = more.saturating_sub(1);
            if !r.w.step() {
                assert!(r.w.reply(client, tid).is_some(), "{step:?}: nothing goes on");
                break;
            }
        }
        let Some(reply) = r.w.reply(client, tid) else {
            break;
        };
        assert_eq!(reply.result, 0, "{step:?}");
        r.answered[who - 1] += 1;
        if let Some(target) = &reply.trace.target
            && !matches!(what, Snap)
        {
            r.told.insert(at.to_string(), target.ino);
        }
        r.ended = n + 1 == SCRIPT.len();
        if r.w.done >= dies {
            break;
        }
    }
    for (i, tids) in tids.iter().enumerate() {
        let safe = &r.w.clients[&(i as u64 + 1)].safe;
        r.safe[i] = tids.iter().take_while(|t| safe.contains_key(t)).count();
    }
    r
}

/// What is there, by somebody new.
fn names(w: &mut World) -> Outcome<BTreeMap<String, (u64, Seen)>> {
    if !w.clients.contains_key(&9) {
        w.open(9);
    }
    w.settle();
    let mut all = BTreeMap::new();
    let mut dirs = vec![(String::new(), ROOT)];
    while let Some((dir, ino)) = dirs.pop() {
        let listed = w.list(9, ino);
        let inode = w.m.cached(ino).unwrap();
        if inode.files + inode.subdirs != listed.len() as u64 {
            return Err(format!("{dir}: counted {}, listed {listed:?}", inode.files));
        }
        for name in listed {
            let child = w.lookup(9, ino, &name).ok_or("a name that stands for nothing")?;
            let inode = w.m.cached(child).unwrap();
            let path = format!("{dir}{name}");
            if inode.is_dir() && dir.is_empty() {
                dirs.push((format!("{path}/"), child));
            }
            all.insert(path, (child, Seen::of(&inode)));
        }
    }
    Ok(all)
}

fn begin_again(w: &mut World, back: &[u64]) {
    w.restart_as(true);
    for client in back {
        w.come_back(*client);
    }
}

/// `back`: the clients that come back. `soon`: it dies again so many effects later.
fn check(mut r: Run, back: &[u64], soon: Option<usize>) -> Outcome<()> {
    let w = &mut r.w;
    begin_again(w, back);
    if let Some(soon) = soon {
        for _ in 0..soon {
            w.step();
        }
        begin_again(w, back);
    }
    w.settle();
    if w.m.state() != MdsState::Active {
        w.tick(60);
    }
    if w.m.state() != MdsState::Active {
        return Err(format!("it stays in {:?}", w.m.state()));
    }
    let found = names(w)?;
    let seen: BTreeMap<String, Seen> = found.iter().map(|(k, (_, s))| (k.clone(), s.clone())).collect();
    let counts = |i: usize| match back.contains(&(i as u64 + 1)) {
        true => r.answered[i]..=r.answered[i] + 1,
        false => r.safe[i]..=r.answered[i] + 1,
    };
    let fits = counts(0).any(|a| counts(1).any(|b| seen == after([a, b])));
    if !fits {
        return Err(format!(
            "answered {:?}, of these safe {:?}, back {back:?}; there is {seen:?}",
            r.answered, r.safe
        ));
    }
    if back.len() == 2 && seen == after(r.answered) {
        for (path, (ino, _)) in &found {
            if r.told.get(path) != Some(ino) {
                return Err(format!("{path} is {ino:x}, told {:?}", r.told.get(path)));
            }
        }
    }
    goes_on(w, back, &found)
}

/// And all of it is there after one more death.
fn goes_on(w: &mut World, back: &[u64], found: &BTreeMap<String, (u64, Seen)>) -> Outcome<()> {
    let mut expected: BTreeSet<String> = found.keys().cloned().collect();
    for client in back {
        let name = format!("on{client}");
        let tid = w.ask(*client, op::MKDIR, (ROOT, &name), (0, ""), Args::words(&[0o755]));
        w.settle();
        let target = w.reply(*client, tid).and_then(|r| r.trace.target.as_ref());
        if target.is_none() {
            return Err(format!("client {client} does not go on"));
        }
        expected.insert(name);
    }
    let mut all = back.to_vec();
    all.push(9);
    begin_again(w, &all);
    w.settle();
    w.tick(60);
    let again = names(w)?;
    let same = found.iter().all(|(name, was)| again.get(name) == Some(was));
    if !same || again.keys().cloned().collect::<BTreeSet<_>>() != expected {
        return Err(format!(
            "after one more death there is {again:?}, there was {found:?}"
        ));
    }
    Ok(())
}

const SEEDS: [u64; 3] = [0, 0x5a5a_1234, 0x1110_4444];
const BACK: [&[u64]; 5] = [&[1, 2], &[2, 1], &[2], &[1], &[]];

/// The first thing that is wrong.
fn look(broken: Option<Broken>) -> Outcome<usize> {
    let mut deaths = 0;
    for seed in SEEDS {
        for dies in 0.. {
            let mut ended = false;
            for back in BACK {
                let r = run(dies, seed, broken);
                ended = r.ended && r.w.done < dies;
                let soon = (dies % 2 == 1).then_some(dies % 23);
                check(r, back, soon).map_err(|e| format!("seed {seed:x}, death after {dies}: {e}"))?;
                deaths += 1;
            }
            if ended {
                break;
            }
        }
    }
    Ok(deaths)
}

#[test]
fn what_was_answered_is_there_whoever_comes_back() {
    let deaths = look(None).unwrap();
    assert!(deaths > 800, "only {deaths}");
}

#[test]
fn what_is_broken_is_found() {
    for broken in [
        Broken::SafeAtOnce,
        Broken::SeenByOthers,
        Broken::Twice,
        Broken::Deaf,
    ] {
        assert!(look(Some(broken)).is_err(), "{broken:?} is not found");
    }
}
