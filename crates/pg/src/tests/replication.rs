//! Several PGs, one for each OSD, with stores of their own and a network that a seed may cut: a small cluster without
//! the shell. The configuration is kept as the cluster state keeps it.

mod copy_reads;
mod learners;
mod resyncs;

use super::*;
use crate::Replica;
use crate::backend::group::{Group, Proposal};
use messages::osd::peer::{PeerBody, PeerMsg};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[expect(clippy::large_enum_variant)]
pub(super) enum Role {
    Primary(Box<Pg>),
    Replica(Replica),
    Down,
}

pub(super) struct Node {
    pub(super) store: MemoryStore,
    /// The store as of the newest flush.
    flushed: MemoryStore,
    pub(super) role: Role,
}

/// A cluster of one PG.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) group: Group,
    pub(super) epoch: u32,
    /// Messages on the way, by sender and receiver; in order on each of these.
    pub(super) links: BTreeMap<(OsdId, OsdId), VecDeque<(u32, PeerBody)>>,
    pub(super) cut: BTreeSet<(OsdId, OsdId)>,
    pub(super) proposals: VecDeque<Proposal>,
    pub(super) now: Duration,
    pub(super) replies: Vec<MOSDOpReply>,
    /// What each answer had waited for last.
    words: BTreeMap<u64, Option<crate::Word>>,
    pub(super) tid: u64,
    pub(super) snapc: (u64, Vec<u64>),
    /// Snapshots that were removed.
    removed: SnapIntervals,
    /// The cluster state takes its time.
    undecided: bool,
    /// Who was primary.
    pub(super) led: BTreeSet<OsdId>,
    /// Hears nothing of the cluster state, but what primaries tell.
    pub(super) deaf: BTreeSet<OsdId>,
    /// Scrubs that were over.
    pub(super) scrubs: Vec<ScrubResult>,
}

fn id() -> SPgId {
    SPgId::replicated(PgId::new(POOL, 0))
}

fn member(group: Group) -> Replica {
    let mut replica = Replica::new(id(), group);
    replica.set_pg_num(pool().pg_num);
    replica
}

impl Cluster {
    pub(super) fn new(n: usize, size: u32, min_size: u32) -> Self {
        let members: Vec<OsdId> = (0..size as OsdId).collect();
        let mut c = Self {
            nodes: (0..n)
                .map(|_| Node {
                    store: MemoryStore::default(),
                    flushed: MemoryStore::default(),
                    role: Role::Down,
                })
                .collect(),
            group: Group {
                me: -1,
                interval: 5,
                primary: 0,
                in_sync: members.clone(),
                up: members,
                size,
                min_size,
                ..Group::default()
            },
            epoch: 5,
            links: BTreeMap::new(),
            cut: BTreeSet::new(),
            proposals: VecDeque::new(),
            now: Duration::from_secs(1000),
            replies: Vec::new(),
            words: BTreeMap::new(),
            tid: 0,
            snapc: (0, Vec::new()),
            removed: SnapIntervals::default(),
            undecided: false,
            led: BTreeSet::new(),
            deaf: BTreeSet::new(),
            scrubs: Vec::new(),
        };
        (0..n as OsdId).for_each(|o| c.start(o));
        c
    }

    pub(super) fn alive(&self) -> Vec<OsdId> {
        let up = |o: &OsdId| !matches!(self.nodes[*o as usize].role, Role::Down);
        (0..self.nodes.len() as OsdId).filter(up).collect()
    }

    pub(super) fn view(&self, osd: OsdId) -> Group {
        Group {
            me: osd,
            ..self.group.clone()
        }
    }

    pub(super) fn pool(&self) -> Arc<PoolView> {
        let full = |o: &OsdId| self.nodes[*o as usize].store.full;
        let all = 0..self.nodes.len() as OsdId;
        Arc::new(PoolView {
            epoch: self.epoch,
            full_osds: Arc::new(all.filter(full).collect()),
            removed_snaps: self.removed.clone(),
            ..pool()
        })
    }

    pub(super) fn pg(&self) -> &Pg {
        let Role::Primary(pg) = &self.nodes[self.group.primary as usize].role else {
            panic!("the primary is down");
        };
        pg
    }

    /// Gives an OSD the present configuration.
    pub(super) fn tell(&mut self, osd: OsdId) {
        if self.deaf.contains(&osd) {
            return;
        }
        let (group, pool, now) = (self.view(osd), self.pool(), self.now);
        let node = &mut self.nodes[osd as usize];
        let mut fresh = false;
        match &mut node.role {
            Role::Primary(_) if group.is_primary() => {}
            Role::Replica(r) if !group.is_primary() => r.set_group(group.clone()),
            Role::Down => return,
            role if group.is_primary() => {
                let pg = Pg::load(id(), pool.clone(), &mut node.store, now).unwrap();
                *role = Role::Primary(Box::new(pg));
                fresh = true;
            }
            role => *role = Role::Replica(member(group.clone())),
        }
        if group.is_primary() {
            self.input(osd, Input::MapChanged(pool));
            self.input(osd, Input::Group(Box::new(group)));
            if fresh {
                for peer in self.alive() {
                    if peer != osd && !self.cut.contains(&(osd, peer)) {
                        self.input(osd, Input::PeerUp(peer));
                    }
                }
            }
        }
    }

    pub(super) fn tell_all(&mut self) {
        self.alive().into_iter().for_each(|o| self.tell(o));
    }

    pub(super) fn start(&mut self, osd: OsdId) {
        self.epoch += 1;
        if self.group.primary == osd {
            self.group.interval = self.epoch;
        }
        self.nodes[osd as usize].role = Role::Replica(member(Group {
            interval: 0,
            ..self.view(osd)
        }));
        self.tell_all();
        self.connect_all(osd, true);
    }

    pub(super) fn connect_all(&mut self, osd: OsdId, up: bool) {
        self.links.retain(|(a, b), _| *a != osd && *b != osd);
        for other in self.alive().into_iter().filter(|o| *o != osd) {
            if self.cut.contains(&(osd, other)) {
                continue;
            }
            for (a, b) in [(osd, other), (other, osd)] {
                let event = if up { Input::PeerUp(b) } else { Input::PeerDown(b) };
                if matches!(self.nodes[a as usize].role, Role::Primary(_)) {
                    self.input(a, event);
                }
            }
        }
    }

    /// The process dies; of what was not flushed nothing is left.
    pub(super) fn kill(&mut self, osd: OsdId) {
        let node = &mut self.nodes[osd as usize];
        node.role = Role::Down;
        node.store = node.flushed.clone();
        self.connect_all(osd, false);
        self.mark_down(osd);
    }

    /// Rule 5.
    pub(super) fn mark_down(&mut self, osd: OsdId) {
        self.epoch += 1;
        let alive = self.alive();
        let g = &mut self.group;
        g.up.retain(|o| *o != osd);
        if g.in_sync.contains(&osd) && g.in_sync.len() > (g.min_size as usize).max(1) {
            g.in_sync.retain(|o| *o != osd);
        }
        if g.primary == osd
            && let Some(next) = g.in_sync.iter().find(|o| alive.contains(o)).copied()
        {
            g.in_sync.retain(|o| *o != next);
            g.in_sync.insert(0, next);
            (g.primary, g.interval) = (next, self.epoch);
        }
        self.tell_all();
    }

    fn set_full(&mut self, osd: OsdId, full: bool) {
        let node = &mut self.nodes[osd as usize];
        (node.store.full, node.flushed.full) = (full, full);
        // Its report says so, and then the map.
        self.epoch += 1;
        self.tell_all();
    }

    pub(super) fn set_up(&mut self, up: &[OsdId]) {
        self.epoch += 1;
        self.group.up = up.to_vec();
        self.tell_all();
    }

    pub(super) fn cut(&mut self, a: OsdId, b: OsdId) {
        self.cut.extend([(a, b), (b, a)]);
        self.links.retain(|k, _| *k != (a, b) && *k != (b, a));
        for (x, y) in [(a, b), (b, a)] {
            if matches!(self.nodes[x as usize].role, Role::Primary(_)) {
                self.input(x, Input::PeerDown(y));
            }
        }
    }

    pub(super) fn mend(&mut self) {
        for (a, b) in std::mem::take(&mut self.cut) {
            if matches!(self.nodes[a as usize].role, Role::Primary(_)) && self.alive().contains(&b) {
                self.input(a, Input::PeerUp(b));
            }
        }
    }

    /// One input to one OSD's PG, and what comes of it.
    pub(super) fn input(&mut self, osd: OsdId, input: Input) {
        let pool = self.pool();
        let node = &mut self.nodes[osd as usize];
        if let Role::Replica(r) = &mut node.role {
            let knows = r.group().is_in_sync(osd);
            r.set_serving(knows);
        }
        let mut out = Vec::new();
        let mut ctx = Context {
            store: &mut node.store,
            cluster: &View,
            now: self.now,
            wall: Utime { sec: 1000, nsec: 0 },
            random: &mut || 7,
            out: &mut out,
        };
        match (&mut node.role, input) {
            (Role::Primary(pg), input) => {
                pg.apply(input, &mut ctx);
                if pg.wants_to_copy().is_some() {
                    pg.apply(Input::Grant { objects: 2 }, &mut ctx);
                }
                if pg.scrub_view().wants_grant {
                    pg.apply(Input::ScrubGrant, &mut ctx);
                }
            }
            (
                Role::Replica(r),
                Input::Peer {
                    from, interval, body, ..
                },
            ) => r.peer(from, interval, body, &mut ctx),
            (Role::Replica(r), Input::Committed(seq)) => r.committed(seq, ctx.out),
            (Role::Replica(r), Input::ClientOp(c)) => r.read(c, &pool, &mut ctx),
            (Role::Replica(r), Input::Tick) => r.look_after_reads(&mut ctx),
            (Role::Replica(r), Input::Prefetched(ticket)) => r.prefetched(ticket, &mut ctx),
            _ => {}
        }
        self.carry_out(osd, out);
    }

    pub(super) fn carry_out(&mut self, osd: OsdId, out: Vec<Output>) {
        for o in out {
            match o {
                Output::Peer {
                    to, interval, body, ..
                } => {
                    let reachable = self.alive().contains(&to) && !self.cut.contains(&(osd, to));
                    if reachable {
                        // Through the wire form, as between processes.
                        let msg = PeerMsg::Pg {
                            pg: id(),
                            interval,
                            body,
                        };
                        let PeerMsg::Pg { interval, body, .. } =
                            PeerMsg::from_message(&msg.to_message()).unwrap()
                        else {
                            unreachable!()
                        };
                        self.links
                            .entry((osd, to))
                            .or_default()
                            .push_back((interval, body));
                    }
                }
                Output::Propose(p) => self.proposals.push_back(p),
                Output::Reply { reply, permit, .. } => {
                    self.words.insert(reply.tid, permit.last);
                    self.replies.push(reply);
                }
                Output::ScrubEnded(result) => self.scrubs.push(result),
                _ => {}
            }
        }
    }

    /// Ends what the OSD's disk is reading.
    pub(super) fn end_reads(&mut self, osd: OsdId) {
        while let Some(cold) = &mut self.nodes[osd as usize].store.cold
            && let Some(ticket) = cold.reading().first().copied()
        {
            cold.end(ticket);
            self.input(osd, Input::Prefetched(ticket));
        }
    }

    pub(super) fn flush(&mut self, osd: OsdId) {
        self.end_reads(osd);
        let node = &mut self.nodes[osd as usize];
        node.flushed = node.store.clone();
        let seq = node.store.seq;
        self.input(osd, Input::Committed(seq));
    }

    pub(super) fn decide(&mut self) {
        let Some(p) = self.proposals.pop_front() else {
            return;
        };
        let alive = self.alive();
        let g = &mut self.group;
        // Only who is up is added, or leads.
        let added = p.in_sync.iter().filter(|o| !g.in_sync.contains(o));
        let down = added.chain([&p.in_sync[0]]).any(|o| !alive.contains(o));
        if p.interval != g.interval || p.expect != g.in_sync || down {
            return;
        }
        self.epoch += 1;
        if p.in_sync[0] != g.primary || p.in_sync == g.in_sync {
            g.interval = self.epoch;
        }
        g.primary = p.in_sync[0];
        self.led.insert(g.primary);
        g.in_sync = p.in_sync;
        self.tell_all();
    }

    pub(super) fn deliver(&mut self, link: (OsdId, OsdId)) {
        let Some((interval, body)) = self.links.get_mut(&link).and_then(VecDeque::pop_front) else {
            return;
        };
        let from = link.0;
        self.input(
            link.1,
            Input::Peer {
                from,
                shard: -1,
                interval,
                body,
            },
        );
    }

    /// Everything that can happen happens, the order by `pick`, until nothing is on its way for a while.
    pub(super) fn run(&mut self, mut pick: impl FnMut(usize) -> usize, turns: usize) {
        for _ in 0..turns {
            let links: Vec<_> = self
                .links
                .iter()
                .filter(|(_, q)| !q.is_empty())
                .map(|(k, _)| *k)
                .collect();
            let alive = self.alive();
            let n = links.len() + alive.len() + 2;
            match pick(n) % n {
                i if i < links.len() => self.deliver(links[i]),
                i if i < links.len() + alive.len() => self.flush(alive[i - links.len()]),
                i if i == n - 1 && !self.undecided => self.decide(),
                i if i == n - 1 => {}
                _ => {
                    self.now += Duration::from_millis(50);
                    alive.into_iter().for_each(|o| self.input(o, Input::Tick));
                }
            }
        }
    }

    pub(super) fn send(&mut self, oid: &str, ops: Vec<OsdOp>) -> u64 {
        self.tid += 1;
        let tid = self.tid;
        self.send_again(tid, oid, ops);
        tid
    }

    pub(super) fn send_again(&mut self, tid: u64, oid: &str, ops: Vec<OsdOp>) {
        self.send_to(self.group.primary, tid, oid, ops);
    }

    pub(super) fn send_to(&mut self, osd: OsdId, tid: u64, oid: &str, ops: Vec<OsdOp>) {
        let rig = Rig::new();
        let mut op = {
            let mut rig = rig;
            rig.snapc = self.snapc.clone();
            rig.request(oid, ops)
        };
        (op.tid, op.epoch) = (tid, self.epoch);
        let client = Arc::new(Client {
            name: EntityName::client(4100),
            global_id: 4100,
            instance: 4100,
            addr: EntityAddr::msgr2("1.2.3.4:5000".parse().unwrap(), 1),
            from: None,
            features: 0,
            caps: Arc::new(Caps(|_| true, |_| true)),
            fence: Fence::default(),
        });
        let input = Input::ClientOp(Box::new(ClientOp {
            conn: 1,
            client,
            op,
            permit: Permit::default(),
        }));
        self.input(osd, input);
    }

    pub(super) fn answered(&self, tid: u64) -> Option<&MOSDOpReply> {
        self.replies.iter().find(|r| r.tid == tid)
    }

    /// Objects with their attributes, and the log.
    pub(super) fn content(&mut self, osd: OsdId) -> Vec<String> {
        let store = &mut self.nodes[osd as usize].store;
        let mut out = Vec::new();
        for oid in store.list(&ObjectId::replicated(HObject::min()), 10_000).unwrap() {
            let data = store.read(&oid, 0, u64::MAX).unwrap();
            let attrs = store.attrs(&oid).unwrap();
            let omap = store
                .omap_range(&oid, std::ops::Bound::Unbounded, 1000, 1 << 20)
                .unwrap();
            out.push(format!("{} {data:?} {attrs:?} {omap:?}", oid.object));
        }
        for (v, e) in store.log_entries(id()).unwrap() {
            out.push(format!("{v} {e:?}"));
        }
        out
    }

    pub(super) fn check_equal(&mut self) {
        let all = self.group.in_sync.clone();
        let want = self.content(all[0]);
        for osd in &all[1..] {
            let got = self.content(*osd);
            assert_eq!(got, want, "osd.{osd} and osd.{}", all[0]);
        }
    }
}

/// Each now and then: a fixed walk without a rhythm that could leave something out for ever.
pub(super) fn in_turn() -> impl FnMut(usize) -> usize {
    let mut n = 1u64;
    move |max| {
        n = n
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (n >> 33) as usize % max
    }
}

#[test]
fn a_write_is_answered_when_it_is_durable_on_all() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    assert!(c.pg().is_active());
    let tid = c.send("a", vec![write_full(b"hello")]);
    c.flush(0);
    c.flush(1);
    while c.links.get(&(0, 1)).is_some_and(|q| !q.is_empty()) {
        c.deliver((0, 1));
    }
    c.flush(1);
    while c.links.get(&(1, 0)).is_some_and(|q| !q.is_empty()) {
        c.deliver((1, 0));
    }
    assert!(c.answered(tid).is_none(), "osd.2 has not said anything");
    c.run(in_turn(), 100);
    assert_eq!(c.answered(tid).unwrap().result, 0);
    assert_eq!(c.words[&tid], Some(crate::Word::Osd(2)));
    c.check_equal();
    // A read waits for nobody.
    let tid = c.send("a", vec![read(0, 5)]);
    c.run(in_turn(), 100);
    assert_eq!(c.words[&tid], None);
}

/// Who spoke before is not who was waited for.
#[test]
fn an_answer_that_waited_for_who_went_says_so() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    let tid = c.send("a", vec![write_full(b"hello")]);
    c.flush(0);
    c.flush(1);
    while c.links.get(&(0, 1)).is_some_and(|q| !q.is_empty()) {
        c.deliver((0, 1));
    }
    c.flush(1);
    while c.links.get(&(1, 0)).is_some_and(|q| !q.is_empty()) {
        c.deliver((1, 0));
    }
    assert!(c.answered(tid).is_none(), "osd.2 is waited for");
    c.kill(2);
    c.run(in_turn(), 300);
    assert!(c.answered(tid).is_some());
    assert_eq!(c.words[&tid], Some(crate::Word::Change));
}

#[test]
fn a_dead_member_leaves_and_comes_back_by_its_log() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    let tid = c.send("a", vec![write(0, &[1; 9000])]);
    c.run(in_turn(), 100);
    assert!(c.answered(tid).is_some());
    c.kill(2);
    let tid = c.send("a", vec![write(4096, &[2; 100])]);
    let other = c.send("b", vec![omap_set(&[("k", "v")])]);
    c.run(in_turn(), 200);
    assert!(c.answered(tid).is_some() && c.answered(other).is_some());
    assert_eq!(c.group.in_sync, [0, 1]);
    c.set_up(&[0, 1, 2]);
    c.start(2);
    c.run(in_turn(), 400);
    assert_eq!(c.group.in_sync, [0, 1, 2]);
    c.check_equal();
}

#[test]
fn a_dead_primary_is_followed_by_one_that_has_everything() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    let tid = c.send("a", vec![append(b"one")]);
    c.run(in_turn(), 100);
    assert!(c.answered(tid).is_some());
    // This one reaches osd.2 alone.
    let lost = c.send("a", vec![append(b"two")]);
    c.deliver((0, 2));
    c.flush(2);
    c.kill(0);
    assert_eq!(c.group.primary, 1);
    c.run(in_turn(), 400);
    assert!(c.led.contains(&2), "its log is longer");
    c.send_again(lost, "a", vec![append(b"two")]);
    c.run(in_turn(), 200);
    assert_eq!(c.answered(lost).unwrap().result, 0);
    let read = c.send("a", vec![read(0, 0)]);
    c.run(in_turn(), 100);
    assert_eq!(&c.answered(read).unwrap().ops[0].outdata[..], b"onetwo", "once");
    c.check_equal();
    c.set_up(&[0, 1, 2]);
    c.start(0);
    c.run(in_turn(), 800);
    assert_eq!(
        c.group.in_sync,
        [0, 1, 2],
        "the primary that CRUSH wants leads again"
    );
    c.check_equal();
}

/// A member without room refuses a write, and has room for what follows: which must not stand in its log without the
/// write, or it would pass for whole.
#[test]
fn a_member_that_refused_a_write_takes_nothing_behind_it() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    c.set_full(1, true);
    let lost = c.send("a", vec![append(b"one")]);
    let small = c.send("b", vec![set_xattr(b"x", b"y")]);
    c.run(in_turn(), 200);
    assert!(c.answered(lost).is_some() && c.answered(small).is_some());
    assert_eq!(c.group.in_sync, [0, 2]);
    c.set_full(1, false);
    c.now += Duration::from_secs(6);
    c.run(in_turn(), 600);
    assert_eq!(c.group.in_sync, [0, 1, 2]);
    c.check_equal();
}

impl Cluster {
    /// The OSD hears that it was marked down, and up again, which the primary learns in one step: nothing changed for it.
    fn leave_and_return(&mut self, osd: OsdId) {
        let role = Role::Replica(member(self.view(osd)));
        let node = &mut self.nodes[osd as usize];
        let Role::Replica(before) = std::mem::replace(&mut node.role, role) else {
            panic!("osd.{osd} is no member");
        };
        let mut out = Vec::new();
        before.leave(&mut Context {
            store: &mut node.store,
            cluster: &View,
            now: self.now,
            wall: Utime { sec: 1000, nsec: 0 },
            random: &mut || 7,
            out: &mut out,
        });
        self.carry_out(osd, out);
    }
}

#[test]
fn a_member_that_left_and_came_back_unseen_owes_no_answer() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    let tid = c.send("a", vec![write_full(b"hello")]);
    c.deliver((0, 2));
    // Not durable there yet: its answer waits for that, and goes with its part in the PG.
    c.leave_and_return(2);
    c.run(in_turn(), 400);
    assert!(c.answered(tid).is_some_and(|r| r.result == 0));
    assert_eq!(c.group.in_sync, [0, 1, 2]);
    c.check_equal();
}

/// The same while it is caught up: objects are held for its word of what it has.
#[test]
fn a_learner_that_left_and_came_back_unseen_holds_no_object() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    c.kill(2);
    c.send("a", vec![write_full(b"before")]);
    c.run(in_turn(), 200);
    c.set_up(&[0, 1, 2]);
    c.start(2);
    let is_scan = |(_, body): &(Epoch, PeerBody)| matches!(body, PeerBody::Scan { .. });
    let mut pick = in_turn();
    while !c.links.get(&(0, 2)).is_some_and(|q| q.iter().any(is_scan)) {
        c.run(&mut pick, 1);
    }
    while c.links.get(&(0, 2)).is_some_and(|q| !q.is_empty()) {
        c.deliver((0, 2));
    }
    c.leave_and_return(2);
    let tid = c.send("a", vec![write_full(b"after")]);
    c.run(in_turn(), 600);
    assert!(c.answered(tid).is_some_and(|r| r.result == 0));
    assert_eq!(c.group.in_sync, [0, 1, 2]);
    c.check_equal();
}

/// Whatever came in put the next look at the members off, so that under load there never was one: a member that had refused
/// a write (its disk was damaged) was not asked again while clients wrote. Seed 85 of the simulation.
#[test]
fn a_member_that_failed_is_asked_again_under_load() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    c.set_full(1, true);
    c.send("a", vec![append(b"one")]);
    c.run(in_turn(), 200);
    assert_eq!(c.group.in_sync, [0, 2]);
    c.set_full(1, false);
    // Some word of the other member every 10 ms.
    for _ in 0..1000 {
        c.send("b", vec![append(b"x")]);
        for _ in 0..3 {
            (0..3).for_each(|osd| c.flush(osd));
            for link in c.links.keys().copied().collect::<Vec<_>>() {
                c.deliver(link);
            }
        }
        c.decide();
        c.now += Duration::from_millis(10);
        c.input(c.group.primary, Input::Tick);
    }
    assert_eq!(c.group.in_sync, [0, 1, 2]);
}

/// A client sends what was not answered to whoever leads now, as librados does when its PG moves.
fn settle(c: &mut Cluster, sent: &[(u64, &str, Vec<OsdOp>)]) {
    let mut pick = in_turn();
    for _ in 0..80 {
        let primary = c.group.primary;
        c.run(&mut pick, 5);
        let waiting = sent.iter().filter(|_| c.group.primary != primary);
        let waiting: Vec<_> = waiting.filter(|(tid, ..)| c.answered(*tid).is_none()).collect();
        for (tid, oid, ops) in waiting {
            c.send_again(*tid, oid, ops.clone());
        }
    }
}

#[test]
fn a_primary_without_room_lets_another_lead_and_leads_again_when_it_has_some() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    let first = c.send("a", vec![append(b"0")]);
    c.run(in_turn(), 200);
    assert_eq!(c.answered(first).unwrap().result, 0);
    c.set_full(0, true);
    let ops = |n: u8| vec![append(&[b'0' + n])];
    let sent: Vec<_> = (1..6).map(|n| (c.send("a", ops(n)), "a", ops(n))).collect();
    assert_eq!(
        c.pg().held(),
        5,
        "the first found no room, the others wait behind it"
    );
    settle(&mut c, &sent);
    assert_eq!((c.group.primary, &c.group.in_sync[..]), (1, &[1, 2][..]));
    assert!(sent.iter().all(|(tid, ..)| c.answered(*tid).unwrap().result == 0));
    c.set_full(0, false);
    c.now += Duration::from_secs(6);
    c.run(in_turn(), 1500);
    assert_eq!(c.group.in_sync, [0, 1, 2]);
    let read = c.send("a", vec![read(0, 0)]);
    c.run(in_turn(), 200);
    assert_eq!(&c.answered(read).unwrap().ops[0].outdata[..], b"012345");
    c.check_equal();
}

/// ENOSPC went to clients where the primary's disk was full and another copy was behind for the moment; and reads stood still.
#[test]
fn a_write_without_room_waits_for_a_copy_that_is_behind_and_reads_go_on() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    let first = c.send("a", vec![append(b"0")]);
    c.run(in_turn(), 200);
    assert_eq!(c.answered(first).unwrap().result, 0);
    c.cut(0, 2);
    c.now += Duration::from_secs(1);
    c.input(0, Input::Tick);
    c.run(in_turn(), 300);
    assert_eq!(c.group.in_sync, [0, 1]);
    c.set_full(0, true);
    let ops = |n: u8| vec![append(&[b'0' + n])];
    let sent: Vec<_> = (1..4).map(|n| (c.send("a", ops(n)), "a", ops(n))).collect();
    let elsewhere = c.send("b", vec![read(0, 0)]);
    let behind = c.send("a", vec![read(0, 0)]);
    c.run(in_turn(), 300);
    assert!(
        sent.iter().all(|(tid, ..)| c.answered(*tid).is_none()),
        "they wait"
    );
    assert!(
        c.answered(behind).is_none(),
        "in order with the writes of its object"
    );
    assert_eq!(c.answered(elsewhere).unwrap().result, Errno::ENOENT.code());
    assert_eq!(c.group.in_sync, [0, 1], "one other is not enough to lead");
    c.mend();
    for _ in 0..20 {
        c.now += Duration::from_millis(500);
        c.input(c.group.primary, Input::Tick);
        settle(&mut c, &sent);
    }
    assert!(sent.iter().all(|(tid, ..)| c.answered(*tid).unwrap().result == 0));
    assert_eq!(c.group.primary, 1);
    c.set_full(0, false);
    c.now += Duration::from_secs(6);
    c.run(in_turn(), 1500);
    assert_eq!(c.group.in_sync, [0, 1, 2]);
    let read = c.send("a", vec![read(0, 0)]);
    c.run(in_turn(), 200);
    assert_eq!(&c.answered(read).unwrap().ops[0].outdata[..], b"0123");
    c.check_equal();
}

/// One that is down may come back, but not for ever.
#[test]
fn a_write_without_room_waits_a_while_for_who_is_down() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    c.kill(2);
    c.run(in_turn(), 300);
    assert_eq!(c.group.in_sync, [0, 1]);
    c.set_full(0, true);
    let sent = c.send("a", vec![append(b"0")]);
    c.run(in_turn(), 300);
    assert_eq!(c.answered(sent).map(|r| r.result), None);
    c.now += Duration::from_secs(31);
    c.input(0, Input::Tick);
    c.run(in_turn(), 300);
    assert_eq!(c.answered(sent).map(|r| r.result), Some(Errno::ENOSPC.code()));
    // And the next one does not wait as long once more.
    let next = c.send("a", vec![append(b"0")]);
    c.run(in_turn(), 300);
    assert_eq!(c.answered(next).map(|r| r.result), Some(Errno::ENOSPC.code()));
}

#[test]
fn no_room_on_too_many_is_said() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    (0..2).for_each(|n| c.set_full(n, true));
    let sent = [(c.send("a", vec![append(b"0")]), "a", vec![append(b"0")])];
    settle(&mut c, &sent);
    let answer = c.answered(sent[0].0).map(|r| r.result);
    assert_eq!(answer, Some(Errno::ENOSPC.code()), "{:?}", c.group);
    // What takes no room is done all the same.
    let touched = c.send("b", vec![set_xattr(b"x", b"y")]);
    c.run(in_turn(), 300);
    assert_eq!(c.answered(touched).unwrap().result, 0);
}

/// The doctor names who has no room where writes wait for it.
#[test]
fn a_needed_copy_without_room_is_named_until_it_has_everything() {
    let mut c = Cluster::new(2, 2, 2);
    c.run(in_turn(), 300);
    let copy = |c: &Cluster| c.pg().members().into_iter().find(|m| m.osd == 1).unwrap();
    assert!(!copy(&c).no_room);
    c.set_full(1, true);
    let first = c.send("a", vec![append(b"0")]);
    let second = c.send("b", vec![append(b"1")]);
    for _ in 0..4 {
        c.run(in_turn(), 300);
        assert!(c.answered(first).is_none() && c.answered(second).is_none());
        assert!(copy(&c).no_room && copy(&c).in_sync, "{:?}", copy(&c));
        assert_eq!(copy(&c).lacks, 2);
        c.now += Duration::from_secs(6);
    }
    c.set_full(1, false);
    c.now += Duration::from_secs(6);
    c.run(in_turn(), 1500);
    assert!(c.answered(first).is_some_and(|r| r.result == 0));
    assert!(c.answered(second).is_some_and(|r| r.result == 0));
    assert_eq!((copy(&c).no_room, copy(&c).lacks), (false, 0));
    c.check_equal();
}

#[test]
fn a_new_osd_is_filled_and_replaces_another() {
    let mut c = Cluster::new(4, 3, 2);
    c.run(in_turn(), 300);
    for n in 0..40 {
        c.send(
            &format!("object {n}"),
            vec![write_full(&[n; 5000]), set_xattr(b"x", b"y")],
        );
    }
    c.run(in_turn(), 600);
    c.set_up(&[0, 1, 3]);
    for n in 0..40 {
        c.send(&format!("object {n}"), vec![write(n, b"new")]);
        c.run(in_turn(), 20);
    }
    c.run(in_turn(), 3000);
    assert_eq!(c.group.in_sync, [0, 1, 3]);
    c.check_equal();
}

/// Kills, cuts, restarts, moves and full disks at random; then quiet. Every acknowledged append is there once, in order;
/// the copies are equal.
#[test]
fn random_histories_lose_nothing() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    let cases = std::env::var("SKEP_PG_HISTORIES")
        .ok()
        .and_then(|n| n.parse().ok());
    let mut runner = TestRunner::new(Config::with_cases(cases.unwrap_or(1000)));
    // What is done, and in which order things happen until the next is done: few of them, so that faults meet.
    let steps = prop::collection::vec(
        (0u8..20, any::<u16>(), prop::collection::vec(any::<u16>(), 0..60)),
        5..40,
    );
    let sizes = prop::sample::select(vec![(3, 2), (2, 1), (3, 1)]);
    runner
        .run(&(sizes, steps), |(sizes, steps)| {
            history(sizes, steps);
            Ok(())
        })
        .unwrap();
}

fn history((size, min_size): (u32, u32), steps: Vec<(u8, u16, Vec<u16>)>) {
    let mut c = Cluster::new(4, size, min_size);
    c.run(in_turn(), 300);
    // By object: what was sent, in order, each with its request.
    let mut sent: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    let mut n = 0;
    for (what, arg, order) in steps {
        let osd = OsdId::from(arg % 4);
        let alive = c.alive();
        match what {
            0..=5 => {
                // One append at a time for each object: the client waits for its answer.
                let oid = format!("o{}", arg % 5);
                let log = sent.entry(oid.clone()).or_default();
                if log.last().is_none_or(|(tid, _)| c.answered(*tid).is_some()) {
                    n += 1;
                    let word = format!("<{n}>");
                    if alive.contains(&c.group.primary) {
                        let tid = c.send(&oid, vec![append(word.as_bytes())]);
                        log.push((tid, word));
                    }
                } else if let Some((tid, word)) = log.last().cloned()
                    && alive.contains(&c.group.primary)
                {
                    c.send_again(tid, &oid, vec![append(word.as_bytes())]);
                }
            }
            6 if alive.len() > 2 && alive.contains(&osd) => c.kill(osd),
            // The power is lost: everywhere, or but for one; also right after something was decided.
            17 | 18 => {
                while what == 18 && !c.proposals.is_empty() {
                    c.decide();
                }
                let spared = (arg % 8 < 4).then_some(osd);
                let primary = c.group.primary;
                let mut falls: Vec<OsdId> = alive.into_iter().filter(|o| Some(*o) != spared).collect();
                falls.sort_by_key(|o| *o != primary);
                falls.into_iter().for_each(|o| c.kill(o));
            }
            7 if !alive.contains(&osd) => {
                c.start(osd);
                let mut up = c.group.up.clone();
                if up.len() < size as usize {
                    up.push(osd);
                    c.set_up(&up);
                }
            }
            8 if alive.contains(&osd) => {
                let other = OsdId::from((arg / 4) % 4);
                if other != osd {
                    c.cut(osd, other);
                }
            }
            9 => c.mend(),
            // Other changes, whose result only has to be the same everywhere.
            11..=14 if alive.contains(&c.group.primary) => {
                let oid = format!("x{}", arg % 3);
                c.snapc = match arg % 3 {
                    0 => (c.snapc.0 + 1, vec![c.snapc.0 + 1]),
                    _ => c.snapc.clone(),
                };
                let at = u64::from(arg) % 20_000;
                let ops = match arg % 11 {
                    0 => vec![op(code::DELETE)],
                    1 => vec![omap_set(&[("k", "v"), ("l", "w")])],
                    2 => vec![op(code::OMAPCLEAR)],
                    3 => vec![OsdOp::ranged(code::TRUNCATE, at, 0)],
                    4 => vec![OsdOp::ranged(code::ZERO, at, 5000)],
                    5 => vec![set_xattr(b"n", &arg.to_le_bytes())],
                    6 => vec![write_full(&[arg as u8; 9000])],
                    _ => vec![write(at, &[arg as u8; 3000])],
                };
                c.send(&oid, ops);
            }
            15 => {
                let full = arg % 8 < 4;
                c.set_full(osd, full);
            }
            10 => {
                let mut up: Vec<OsdId> = alive
                    .iter()
                    .copied()
                    .cycle()
                    .skip(arg as usize % 4)
                    .take(alive.len())
                    .collect();
                up.truncate(size as usize);
                c.set_up(&up);
            }
            19 => c.undecided = !c.undecided,
            16 if c.snapc.0 > 0 => {
                let snap = u64::from(arg) % c.snapc.0 + 1;
                c.snapc.1.retain(|s| *s != snap);
                c.removed.insert(snap, snap + 1);
                c.tell_all();
            }
            _ => {}
        }
        let turns = order.len();
        let mut order = order.into_iter();
        c.run(|_| order.next().map_or(0, usize::from), turns);
    }
    c.mend();
    c.undecided = false;
    for osd in 0..4 {
        c.set_full(osd, false);
        if !c.alive().contains(&osd) {
            c.start(osd);
        }
    }
    let all: Vec<OsdId> = (0..size as OsdId).collect();
    c.set_up(&all);
    c.run(in_turn(), 6000);
    let members = c
        .alive()
        .contains(&c.group.primary)
        .then(|| format!("{:?}", c.pg().backend));
    assert_eq!(c.group.in_sync, all, "{members:?}");
    sent.retain(|_, log| !log.is_empty());
    for (oid, log) in &sent {
        let (tid, word) = log.last().unwrap();
        if c.answered(*tid).is_none() {
            c.send_again(*tid, oid, vec![append(word.as_bytes())]);
        }
    }
    c.run(in_turn(), 1500);
    c.check_equal();
    for (oid, log) in sent {
        let tid = c.send(&oid, vec![read(0, 0)]);
        c.run(in_turn(), 200);
        let got = String::from_utf8(c.answered(tid).unwrap().ops[0].outdata.to_vec()).unwrap();
        let mut rest = got.as_str();
        for (tid, word) in &log {
            match rest.strip_prefix(word.as_str()) {
                Some(behind) => rest = behind,
                // It was refused for lack of room; of one that was sent again another copy may have found some.
                None => assert!(
                    c.answered(*tid).unwrap().result < 0,
                    "{oid}: {word} in {got}: {log:?}"
                ),
            }
        }
        assert_eq!(rest, "", "{oid}: {got}: {log:?}");
    }
}

/// An OSD is proposed, the outcome stays open, and the map wants it no more: a write that its primary answered alone meanwhile was lost when
/// the proposal came true and the primary died.
#[test]
fn answers_wait_for_who_is_wanted_no_more_and_may_join_all_the_same() {
    let steps = vec![
        (0u8, 0u16, vec![]),
        (6, 44505, vec![]),
        (19, 0, vec![]),
        (0, 0, vec![]),
        (10, 8823, vec![371]),
        (
            7,
            32602,
            vec![
                960, 3461, 11262, 1258, 45880, 8926, 12354, 30211, 1812, 13548, 2116, 10518,
            ],
        ),
        (
            0,
            0,
            vec![
                7726, 23830, 9786, 223, 64543, 461, 36588, 10920, 50531, 138, 46648, 8280, 22626, 50034,
            ],
        ),
        (
            10,
            24662,
            vec![
                57130, 29290, 50326, 62748, 36168, 32283, 18797, 22228, 38812, 49954, 1594, 15058,
            ],
        ),
        (
            0,
            0,
            vec![2721, 4291, 37186, 15670, 57844, 61030, 24838, 22546, 47008, 46006],
        ),
        (6, 7863, vec![48658, 31422, 48522, 45402, 17206, 2310, 12038]),
        (
            0,
            1,
            vec![
                6306, 11130, 11318, 51766, 36210, 29750, 49622, 8158, 34774, 16530, 30994, 51058, 52502,
                20150, 23212,
            ],
        ),
        (18, 89, vec![]),
    ];
    history((2, 1), steps);
}
