//! Whole PGs over shards, one for each OSD, with stores of their own and a network that a seed may cut. The configuration is kept as the
//! cluster state keeps it: sets, and who has which shard.

mod returns;
mod walks;

use super::replication::in_turn;
use super::*;
use crate::Replica;
use crate::backend::erasure::cut::{Coding, on_shard};
use crate::backend::group::{Group, Proposal};
use crate::broken::{self, Rule};
use messages::osd::peer::{PeerBody, PeerMsg};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const UNIT: u64 = 16;

#[expect(clippy::large_enum_variant)]
pub(super) enum Role {
    Primary(Box<Pg>),
    Member(Replica),
    /// It has no part in the PG.
    Out,
    Down,
}

pub(super) struct Node {
    pub store: MemoryStore,
    /// The store as of the newest flush.
    flushed: MemoryStore,
    role: Role,
    shard: i8,
}

/// A message for a shard.
pub(super) type Sent = (i8, Epoch, PeerBody);

/// A cluster of one PG.
pub(super) struct Cluster {
    coding: Arc<Coding>,
    pub nodes: Vec<Node>,
    interval: Epoch,
    pub primary: OsdId,
    pub in_sync: Vec<OsdId>,
    pub acting: Vec<Option<OsdId>>,
    /// Where CRUSH wants each shard, if everybody is up.
    pub crush: Vec<OsdId>,
    epoch: u32,
    links: BTreeMap<(OsdId, OsdId), VecDeque<Sent>>,
    cut: BTreeSet<(OsdId, OsdId)>,
    proposals: VecDeque<Proposal>,
    pub now: Duration,
    replies: Vec<MOSDOpReply>,
    tid: u64,
    led: BTreeSet<OsdId>,
    /// What is read.
    snap: u64,
    pub requests: Rig,
    min_size: usize,
}

impl Cluster {
    pub fn new(n: usize, k: usize, m: usize) -> Self {
        let all: Vec<OsdId> = (0..(k + m) as OsdId).collect();
        let mut c = Self {
            coding: Arc::new(Coding::new(k, m, UNIT).unwrap()),
            nodes: (0..n)
                .map(|_| Node {
                    store: MemoryStore::default(),
                    flushed: MemoryStore::default(),
                    role: Role::Down,
                    shard: -1,
                })
                .collect(),
            interval: 5,
            primary: 0,
            in_sync: all.clone(),
            acting: all.iter().copied().map(Some).collect(),
            crush: all,
            epoch: 5,
            links: BTreeMap::new(),
            cut: BTreeSet::new(),
            proposals: VecDeque::new(),
            now: Duration::from_secs(1000),
            replies: Vec::new(),
            tid: 0,
            led: BTreeSet::from([0]),
            snap: NOSNAP,
            requests: Rig::new(),
            min_size: k,
        };
        c.requests.snapc = (0, Vec::new());
        (0..n as OsdId).for_each(|osd| c.start(osd));
        c
    }

    fn is_up(&self, osd: OsdId) -> bool {
        !matches!(self.nodes[osd as usize].role, Role::Down)
    }

    fn alive(&self) -> Vec<OsdId> {
        (0..self.nodes.len() as OsdId)
            .filter(|o| self.is_up(*o))
            .collect()
    }

    fn view(&self, osd: OsdId) -> Group {
        let up: Vec<Option<OsdId>> = self
            .crush
            .iter()
            .map(|o| Some(*o).filter(|o| self.is_up(*o)))
            .collect();
        Group {
            me: osd,
            interval: self.interval,
            primary: self.primary,
            in_sync: self.in_sync.clone(),
            up: up.iter().copied().flatten().collect(),
            size: self.coding.layout.shards() as u32,
            min_size: self.min_size as u32,
            acting: self.acting.clone(),
            learners: types::places::learners(&self.acting, &self.in_sync, &up),
        }
    }

    fn pool(&self) -> Arc<PoolView> {
        Arc::new(PoolView {
            epoch: self.epoch,
            erasure: true,
            ec_overwrites: true,
            stripe_width: self.coding.layout.stripe() as u32,
            coding: Some(self.coding.clone()),
            ..pool()
        })
    }

    pub fn pg(&self) -> Option<&Pg> {
        match &self.nodes[self.primary as usize].role {
            Role::Primary(pg) => Some(pg),
            _ => None,
        }
    }

    fn slot(shard: i8) -> SPgId {
        let pg = PgId::new(POOL, 0);
        SPgId { pg, shard }
    }

    /// Gives an OSD the present configuration.
    fn tell(&mut self, osd: OsdId) {
        let (group, pool, now) = (self.view(osd), self.pool(), self.now);
        let shard = group.shard_of(osd);
        let node = &mut self.nodes[osd as usize];
        let moved = std::mem::replace(&mut node.shard, shard) != shard;
        let mut fresh = false;
        match &mut node.role {
            Role::Down => return,
            role if shard < 0 => *role = Role::Out,
            Role::Primary(_) if group.is_primary() && !moved => {}
            Role::Member(r) if !group.is_primary() && !moved => r.set_group(group.clone()),
            role if group.is_primary() => {
                let pg = Pg::load(Self::slot(shard), pool.clone(), &mut node.store, now).unwrap();
                *role = Role::Primary(Box::new(pg));
                fresh = true;
            }
            role => {
                let mut replica = Replica::new(Self::slot(shard), group.clone());
                replica.set_pg_num(1);
                *role = Role::Member(replica);
            }
        }
        if group.is_primary() && shard >= 0 {
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

    fn tell_all(&mut self) {
        self.epoch += 1;
        self.alive().into_iter().for_each(|o| self.tell(o));
    }

    /// Somebody who is up leads, if anybody of the set is.
    fn find_primary(&mut self) {
        if self.is_up(self.primary) {
            return;
        }
        if let Some(next) = self.in_sync.iter().copied().find(|o| self.is_up(*o)) {
            self.in_sync.retain(|o| *o != next);
            self.in_sync.insert(0, next);
            (self.primary, self.interval) = (next, self.epoch + 1);
            self.led.insert(next);
        }
    }

    pub fn start(&mut self, osd: OsdId) {
        if self.is_up(osd) {
            return;
        }
        if self.primary == osd {
            self.interval = self.epoch + 1;
        }
        (self.nodes[osd as usize].role, self.nodes[osd as usize].shard) = (Role::Out, -1);
        self.find_primary();
        self.tell_all();
        self.connect(osd, true);
    }

    fn connect(&mut self, osd: OsdId, up: bool) {
        self.links.retain(|(a, b), _| *a != osd && *b != osd);
        for other in self.alive().into_iter().filter(|o| *o != osd) {
            for (a, b) in [(osd, other), (other, osd)] {
                if !self.cut.contains(&(a, b)) {
                    self.input(a, if up { Input::PeerUp(b) } else { Input::PeerDown(b) });
                }
            }
        }
    }

    /// The process dies; of what was not flushed nothing is left.
    pub fn kill(&mut self, osd: OsdId) {
        if !self.is_up(osd) {
            return;
        }
        let node = &mut self.nodes[osd as usize];
        node.role = Role::Down;
        node.store = node.flushed.clone();
        self.connect(osd, false);
        if self.in_sync.contains(&osd) && self.in_sync.len() > self.min_size {
            self.in_sync.retain(|o| *o != osd);
            self.acting
                .iter_mut()
                .filter(|o| **o == Some(osd))
                .for_each(|o| *o = None);
        }
        self.find_primary();
        self.tell_all();
    }

    pub fn cut(&mut self, a: OsdId, b: OsdId) {
        self.cut.extend([(a, b), (b, a)]);
        for (a, b) in [(a, b), (b, a)] {
            self.links.remove(&(a, b));
            self.input(a, Input::PeerDown(b));
        }
    }

    pub fn mend(&mut self) {
        for (a, b) in std::mem::take(&mut self.cut) {
            if self.is_up(a) && self.is_up(b) {
                self.input(a, Input::PeerUp(b));
            }
        }
    }

    /// One input to one OSD's PG, and what comes of it.
    pub fn input(&mut self, osd: OsdId, input: Input) {
        let pool = self.pool();
        let node = &mut self.nodes[osd as usize];
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
            }
            (
                Role::Member(r),
                Input::Peer {
                    from, interval, body, ..
                },
            ) => r.peer(from, interval, body, &mut ctx),
            (Role::Member(r), Input::Committed(seq)) => r.committed(seq, ctx.out),
            (Role::Member(r), Input::ClientOp(c)) => r.read(c, &pool, &mut ctx),
            (Role::Member(r), Input::PeerDown(osd)) => r.disconnected(osd),
            _ => {}
        }
        self.carry_out(osd, out);
    }

    fn carry_out(&mut self, osd: OsdId, out: Vec<Output>) {
        for o in out {
            match o {
                Output::Peer {
                    to,
                    shard,
                    interval,
                    body,
                } => {
                    if !self.is_up(to) || self.cut.contains(&(osd, to)) {
                        continue;
                    }
                    let pg = Self::slot(shard);
                    // Through the wire form, as between processes.
                    let msg = PeerMsg::Pg { pg, interval, body };
                    let PeerMsg::Pg { pg, interval, body } =
                        PeerMsg::from_message(&msg.to_message()).unwrap()
                    else {
                        unreachable!()
                    };
                    let link = self.links.entry((osd, to)).or_default();
                    link.push_back((pg.shard, interval, body));
                }
                Output::Propose(p) => self.proposals.push_back(p),
                Output::Reply { reply, .. } => self.replies.push(reply),
                _ => {}
            }
        }
    }

    pub fn flush(&mut self, osd: OsdId) {
        let node = &mut self.nodes[osd as usize];
        node.flushed = node.store.clone();
        let seq = node.store.seq;
        self.input(osd, Input::Committed(seq));
    }

    fn decide(&mut self) {
        let Some(p) = self.proposals.pop_front() else {
            return;
        };
        let added = p.in_sync.iter().filter(|o| !self.in_sync.contains(o));
        let down = added.chain([&p.in_sync[0]]).any(|o| !self.is_up(*o));
        if p.interval != self.interval || p.expect != self.in_sync || down {
            return;
        }
        let acting = p.acting.expect("places are named");
        // As the cluster state has it.
        let mut standing: Vec<OsdId> = acting.iter().copied().flatten().collect();
        let mut set = p.in_sync.clone();
        standing.sort_unstable();
        set.sort_unstable();
        assert_eq!(standing, set, "each has a place");
        for (at, osd) in self.acting.iter().enumerate() {
            let stays = osd.is_some_and(|o| p.in_sync.contains(&o));
            assert!(!stays || acting[at] == *osd, "who stays has its shard");
        }
        if p.in_sync.len() < self.min_size.min(self.in_sync.len()) {
            return;
        }
        if p.in_sync[0] != self.primary || p.in_sync == self.in_sync {
            self.interval = self.epoch + 1;
        }
        self.primary = p.in_sync[0];
        self.led.insert(self.primary);
        (self.in_sync, self.acting) = (p.in_sync, acting);
        self.tell_all();
    }

    fn deliver(&mut self, link: (OsdId, OsdId)) {
        let Some((shard, interval, body)) = self.links.get_mut(&link).and_then(VecDeque::pop_front) else {
            return;
        };
        let (from, to) = link;
        let node = &self.nodes[to as usize];
        // A slot that is none any more answers nobody.
        if matches!(node.role, Role::Member(_)) && node.shard != shard {
            return;
        }
        self.input(
            to,
            Input::Peer {
                from,
                shard,
                interval,
                body,
            },
        );
    }

    /// Everything that can happen happens, the order by `pick`.
    pub fn run(&mut self, mut pick: impl FnMut(usize) -> usize, turns: usize) {
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
                i if i == n - 1 => self.decide(),
                _ => {
                    self.now += Duration::from_millis(50);
                    alive.into_iter().for_each(|o| self.input(o, Input::Tick));
                }
            }
        }
    }

    fn deliver_all(&mut self, link: (OsdId, OsdId)) {
        while self.links.get(&link).is_some_and(|q| !q.is_empty()) {
            self.deliver(link);
        }
    }

    pub fn send(&mut self, oid: &str, ops: Vec<OsdOp>) -> u64 {
        self.tid += 1;
        let tid = self.tid;
        self.send_again(tid, oid, ops);
        tid
    }

    fn send_again(&mut self, tid: u64, oid: &str, ops: Vec<OsdOp>) {
        let mut op = self.requests.request(oid, ops);
        (op.tid, op.epoch) = (tid, self.epoch);
        op.snapid = self.snap;
        op.pgid = Self::slot(self.nodes[self.primary as usize].shard);
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
        let permit = Permit::default();
        let op = ClientOp {
            conn: 1,
            client,
            op,
            permit,
        };
        self.input(self.primary, Input::ClientOp(Box::new(op)));
    }

    pub fn answered(&self, tid: u64) -> Option<&MOSDOpReply> {
        self.replies.iter().find(|r| r.tid == tid)
    }

    pub fn do_now(&mut self, oid: &str, ops: Vec<OsdOp>) -> MOSDOpReply {
        let tid = self.send(oid, ops);
        for _ in 0..40 {
            self.run(in_turn(), 100);
            if let Some(reply) = self.answered(tid) {
                return reply.clone();
            }
        }
        panic!("{oid} is not answered");
    }

    pub fn data(&mut self, oid: &str) -> Option<Vec<u8>> {
        self.data_at(oid, NOSNAP)
    }

    fn data_at(&mut self, oid: &str, snap: u64) -> Option<Vec<u8>> {
        self.snap = snap;
        let reply = self.do_now(oid, vec![read(0, 0)]);
        self.snap = NOSNAP;
        (reply.result != -2).then(|| {
            assert_eq!(reply.result, 0);
            reply.ops[0].outdata.to_vec()
        })
    }

    pub fn settle(&mut self) {
        for _ in 0..60 {
            self.run(in_turn(), 100);
            let whole = self.in_sync == self.crush && self.primary == self.crush[0];
            if whole && self.pg().is_some_and(Pg::is_active) {
                // What was set aside is let go, too.
                return self.run(in_turn(), 400);
            }
        }
        panic!(
            "in sync {:?}, shards {:?}, led by {}",
            self.in_sync, self.acting, self.primary
        );
    }

    /// All shards of an object fit, and give its data.
    pub fn check(&self, name: &str) -> Option<Vec<u8>> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        let object = HObject::new(POOL, hash(&name), Bytes::new(), Bytes::new(), name, NOSNAP);
        self.check_object(&object)
    }

    fn check_object(&self, object: &HObject) -> Option<Vec<u8>> {
        let coding = &self.coding;
        let mut columns = Vec::new();
        let mut sizes = BTreeSet::new();
        let mut attrs = BTreeSet::new();
        for (place, osd) in self.acting.iter().enumerate() {
            let mut store = self.nodes[osd.unwrap() as usize].store.clone();
            let oid = on_shard(&ObjectId::replicated(object.clone()), place);
            let size = store.stat(&oid).unwrap().map(|s| s.size);
            sizes.insert(size);
            attrs.insert(store.attrs(&oid).unwrap());
            let len = size.unwrap_or(0).div_ceil(coding.layout.stripe()) * UNIT;
            let mut units = store.read(&oid, 0, len).unwrap().to_vec();
            units.resize(len as usize, 0);
            columns.push(units);
        }
        assert_eq!(sizes.len(), 1, "{object}: each shard tells the size: {sizes:?}");
        assert_eq!(attrs.len(), 1, "{object}: and the attributes");
        let (data, parity) = columns.split_at(coding.layout.k());
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        assert_eq!(
            coding.code.encode(&data).unwrap(),
            parity,
            "{object}: the shards fit"
        );
        let size = sizes.pop_first().flatten()?;
        let mut all = coding.layout.join(&data).unwrap();
        all.truncate(size as usize);
        Some(all)
    }

    /// Whatever any shard has, clones too.
    fn check_all(&self) {
        let mut objects = BTreeSet::new();
        for (place, osd) in self.acting.iter().enumerate() {
            let mut store = self.nodes[osd.unwrap() as usize].store.clone();
            let first = on_shard(&ObjectId::replicated(HObject::min()), place);
            let all = store.list(&first, 10_000).unwrap();
            let ours = all.into_iter().filter(|o| usize::try_from(o.shard) == Ok(place));
            objects.extend(ours.map(|o| o.object));
        }
        for object in objects {
            assert!(self.check_object(&object).is_some(), "{object}");
        }
    }

    /// Logs are the same, and nothing is left aside.
    fn check_logs(&self) {
        let mut logs = BTreeSet::new();
        for (place, osd) in self.acting.iter().enumerate() {
            let mut store = self.nodes[osd.unwrap() as usize].store.clone();
            let log = store.log_entries(Self::slot(place as i8)).unwrap();
            logs.insert(log.into_iter().map(|(v, _)| v).collect::<Vec<_>>());
        }
        assert_eq!(logs.len(), 1, "{logs:?}");
    }

    fn asides(&self, osd: OsdId) -> usize {
        let mut store = self.nodes[osd as usize].store.clone();
        let least = ObjectId {
            shard: i8::MIN,
            object: HObject::min(),
        };
        let all = store.list(&least, 10_000).unwrap();
        all.iter().filter(|o| o.shard < -1).count()
    }
}

#[test]
fn a_write_is_answered_when_every_shard_has_it() {
    let mut c = Cluster::new(3, 2, 1);
    c.run(in_turn(), 300);
    assert!(c.pg().unwrap().is_active());
    let tid = c.send(
        "a",
        vec![write_full(
            b"hello, world: more than one stripe of it, and then some",
        )],
    );
    c.flush(0);
    c.deliver_all((0, 1));
    c.flush(1);
    c.deliver_all((1, 0));
    assert!(c.answered(tid).is_none(), "osd.2 has not said anything");
    c.run(in_turn(), 200);
    assert_eq!(c.answered(tid).unwrap().result, 0);
    assert_eq!(c.do_now("a", vec![write(20, b"over two units")]).result, 0);
    let want = b"hello, world: more tover two units of it, and then some";
    assert_eq!(c.data("a").unwrap(), want);
    c.settle();
    assert_eq!(c.check("a").unwrap(), want);
    c.check_logs();
    assert_eq!((0..3).map(|o| c.asides(o)).sum::<usize>(), 0, "all is let go");
}

#[test]
fn a_dead_member_leaves_and_comes_back() {
    let mut c = Cluster::new(3, 2, 1);
    c.run(in_turn(), 300);
    c.do_now("a", vec![write(0, &[1; 200])]);
    c.kill(2);
    assert_eq!(c.do_now("a", vec![write(40, &[2; 100])]).result, 0);
    assert_eq!(c.do_now("b", vec![write_full(&[3; 50])]).result, 0);
    assert_eq!(c.in_sync, [0, 1]);
    // Data shard 1 is there, and parity is not.
    let mut want = vec![1; 200];
    want[40..140].fill(2);
    assert_eq!(c.data("a").unwrap(), want);
    c.start(2);
    c.settle();
    assert_eq!(c.check("a").unwrap(), want);
    assert_eq!(c.check("b").unwrap(), [3; 50]);
    c.check_logs();
    c.kill(1);
    assert_eq!(c.data("a").unwrap(), want, "out of parity");
}

/// What one shard has and another has not was never answered: it is taken back.
fn a_primary_dies_with_a_write_on_the_way() -> Option<Vec<u8>> {
    let mut c = Cluster::new(3, 2, 1);
    c.run(in_turn(), 300);
    assert_eq!(c.do_now("a", vec![write_full(&[1; 100])]).result, 0);
    let lost = c.send("a", vec![write_full(&[2; 100])]);
    c.deliver_all((0, 2));
    c.flush(2);
    c.kill(0);
    assert!(c.answered(lost).is_none());
    assert_eq!(c.primary, 1);
    c.data("a")
}

#[test]
fn what_not_all_have_is_taken_back() {
    assert_eq!(a_primary_dies_with_a_write_on_the_way(), Some(vec![1; 100]));
}

#[test]
fn a_stripe_is_half_old_where_nothing_is_taken_back() {
    broken::set(Some(Rule::UndoneAtPeering));
    let got = std::panic::catch_unwind(a_primary_dies_with_a_write_on_the_way);
    broken::set(None);
    assert_ne!(got.ok(), Some(Some(vec![1; 100])));
}

#[test]
fn a_primary_that_has_more_takes_it_back_itself() {
    let mut c = Cluster::new(3, 2, 1);
    c.run(in_turn(), 300);
    assert_eq!(c.do_now("a", vec![write_full(&[1; 100])]).result, 0);
    let lost = c.send("a", vec![write_full(&[2; 100])]);
    c.deliver_all((0, 1));
    c.flush(1);
    c.kill(0);
    assert_eq!(c.primary, 1, "and 2 does not have it");
    // A client's message waits through that.
    let held = c.send("a", vec![read(0, 0)]);
    c.run(in_turn(), 400);
    assert_eq!(c.answered(held).unwrap().ops[0].outdata, vec![1; 100]);
    c.send_again(lost, "a", vec![write_full(&[2; 100])]);
    c.run(in_turn(), 200);
    assert_eq!(c.answered(lost).unwrap().result, 0);
    c.start(0);
    c.settle();
    assert_eq!(c.check("a").unwrap(), [2; 100]);
    c.check_logs();
}

#[test]
fn a_disk_that_was_lost_is_made_anew() {
    for lost in 0..3 {
        let mut c = Cluster::new(3, 2, 1);
        c.run(in_turn(), 300);
        c.do_now("a", vec![write_full(&[1; 100])]);
        c.do_now("b", vec![write_full(&[2; 40])]);
        c.kill(lost);
        // Back before anybody has noticed, with nothing.
        c.in_sync = vec![0, 1, 2];
        c.acting = vec![Some(0), Some(1), Some(2)];
        let node = &mut c.nodes[lost as usize];
        (node.store, node.flushed) = Default::default();
        if lost == 0 {
            (c.primary, c.interval) = (0, c.epoch);
        }
        c.start(lost);
        c.settle();
        assert_eq!(c.check("a").unwrap(), [1; 100], "without osd.{lost}");
        assert_eq!(c.check("b").unwrap(), [2; 40]);
        c.check_logs();
    }
}

#[test]
fn a_pg_moves_to_other_osds() {
    let mut c = Cluster::new(6, 2, 1);
    c.run(in_turn(), 300);
    for (n, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        c.do_now(name, vec![write_full(&vec![n as u8 + 1; 30 + 40 * n])]);
    }
    c.do_now("c", vec![op(code::DELETE)]);
    // All of them, the primary among them.
    c.crush = vec![3, 4, 5];
    c.tell_all();
    c.settle();
    for (n, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        let want = (name != "c").then(|| vec![n as u8 + 1; 30 + 40 * n]);
        assert_eq!(c.check(name), want, "{name}");
    }
    c.check_logs();
}
