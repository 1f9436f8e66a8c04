//! Shards by erasure code: [`Shards`] on OSD 0, which has shard 0, a [`LocalCopy`] with its shard on each of the others.

use super::*;
use crate::backend::ReadsHere;
use crate::backend::erasure::cut::{Coding, on_shard};
use crate::backend::erasure::shards::Shards;
use crate::backend::replicated::local::LocalCopy;
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::{ObjectDigest, ScrubBody};

struct NoReads;
impl ReadsHere for NoReads {
    fn forget(&mut self) {}
    fn coming(&mut self, _: &Transaction, _: Duration) {}
}

struct Member {
    copy: LocalCopy,
    store: MemoryStore,
    here: bool,
    /// On their way to it.
    inbox: VecDeque<PeerBody>,
    digests: Vec<ObjectDigest>,
}

pub(super) struct Coded {
    backend: Shards,
    pg: PgState,
    front: FreeTurns,
    store: MemoryStore,
    members: [Member; 2],
    out: Vec<Output>,
    now: Duration,
}

fn coding() -> Coding {
    Coding::new(2, 1, 16).unwrap()
}

fn shard(osd: OsdId) -> SPgId {
    SPgId {
        shard: osd as i8,
        ..spg()
    }
}

/// OSD n has, or learns, shard n.
fn places(in_sync: &[OsdId]) -> Group {
    let has = |osd: &OsdId| in_sync.contains(osd);
    Group {
        acting: (0..3).map(|o| Some(o).filter(has)).collect(),
        learners: (0..3).map(|o| Some(o).filter(|o| !has(o))).collect(),
        ..group(in_sync)
    }
}

impl Coded {
    fn member(&mut self, osd: OsdId) -> &mut Member {
        &mut self.members[osd as usize - 1]
    }

    fn store_of(&self, osd: OsdId) -> MemoryStore {
        match osd {
            0 => self.store.clone(),
            _ => self.members[osd as usize - 1].store.clone(),
        }
    }

    fn call(&mut self, f: impl FnOnce(&mut dyn Backend, &mut Lent<'_>)) {
        let (backend, mut lent) = self.backend();
        f(backend, &mut lent);
        self.go_on();
    }

    /// What the last call has set going: turns, and messages as far as the members' inboxes.
    fn go_on(&mut self) {
        while let Some((whose, turn)) = self.front.next() {
            let (backend, mut lent) = self.backend();
            backend.turn_begins(whose, turn, &mut lent);
        }
        for output in std::mem::take(&mut self.out) {
            if let Output::Peer { to, shard, body, .. } = output {
                assert_eq!(i32::from(shard), to, "each has its own");
                self.member(to).inbox.push_back(body);
            }
        }
    }

    /// The member's answers to what has come. `durable`: also those that wait for its disk.
    fn deliver(&mut self, osd: OsdId, durable: bool) -> Vec<PeerBody> {
        let now = self.now;
        let m = self.member(osd);
        let mut out = Vec::new();
        for body in std::mem::take(&mut m.inbox) {
            let mut ctx = Context {
                store: &mut m.store,
                cluster: &View,
                now,
                wall: Utime::default(),
                random: &mut || 1,
                out: &mut out,
            };
            m.copy.peer(0, 5, body, &mut NoReads, &mut ctx);
        }
        if durable {
            let seq = m.store.seq;
            m.copy.committed(seq, &mut out);
        }
        let answers = out.into_iter().filter_map(|o| match o {
            Output::Peer { body, .. } => Some(body),
            _ => None,
        });
        answers.collect()
    }

    fn hear(&mut self, osd: OsdId, answers: Vec<PeerBody>) {
        for body in answers {
            if let PeerBody::Scrub(ScrubBody::Digests { items, .. }) = &body {
                self.member(osd).digests = items.clone();
            }
            self.call(|b, lent| drop(b.on_message(osd, body, lent)));
        }
    }
}

impl World for Coded {
    fn new() -> Self {
        let member = |osd| {
            let group = Group {
                me: osd,
                ..places(&[0, 1, 2])
            };
            let mut copy = LocalCopy::new(shard(osd), group);
            copy.set_pg_num(1);
            Member {
                copy,
                store: MemoryStore::default(),
                here: true,
                inbox: VecDeque::new(),
                digests: Vec::new(),
            }
        };
        let mut store = MemoryStore::default();
        let create = Transaction {
            collection: shard(0),
            ops: vec![Op::CreateCollection],
        };
        store.submit(&create).unwrap();
        let coding = Arc::new(coding());
        let pool = PoolView {
            erasure: true,
            stripe_width: 32,
            coding: Some(coding.clone()),
            ..pool()
        };
        let mut w = Self {
            backend: Shards::alone(coding, 0),
            pg: PgState::new(shard(0), Arc::new(pool), store.seq, Duration::ZERO),
            front: FreeTurns::default(),
            members: [member(1), member(2)],
            store,
            out: Vec::new(),
            now: Duration::from_secs(1000),
        };
        w.configure(&[0, 1, 2]);
        for osd in 1..3 {
            w.call(|b, lent| b.peer_up(osd, lent));
        }
        for _ in 0..3 {
            (1..3).for_each(|osd| w.flush_member(osd));
        }
        w
    }

    fn backend(&mut self) -> (&mut dyn Backend, Lent<'_>) {
        let lent = Lent {
            pg: &mut self.pg,
            front: &mut self.front,
            store: &mut self.store,
            now: self.now,
            out: &mut self.out,
        };
        (&mut self.backend, lent)
    }

    fn own(&self, oid: &ObjectId) -> ObjectId {
        on_shard(oid, 0)
    }

    /// Units come, and nothing becomes durable by that.
    fn bring(&mut self) {
        self.go_on();
        while (1..3).any(|osd| !self.member(osd).inbox.is_empty()) {
            for osd in 1..3 {
                let answers = self.deliver(osd, false);
                self.hear(osd, answers);
            }
        }
    }

    fn store(&mut self) -> &mut MemoryStore {
        &mut self.store
    }

    fn flush(&mut self) {
        let seq = self.store.seq;
        self.call(|b, lent| b.durable(seq, lent));
    }

    fn flush_member(&mut self, osd: OsdId) {
        self.go_on();
        while self.member(osd).here {
            let answers = self.deliver(osd, true);
            if answers.is_empty() && self.member(osd).inbox.is_empty() {
                return;
            }
            self.hear(osd, answers);
        }
    }

    fn lose(&mut self, osd: OsdId) {
        self.go_on();
        self.member(osd).here = false;
        self.member(osd).inbox.clear();
        self.call(|b, lent| b.peer_down(osd, lent));
        self.member(osd).inbox.clear();
    }

    fn configure(&mut self, in_sync: &[OsdId]) {
        self.call(|b, lent| b.set_group(places(in_sync), lent));
        for osd in 1..3 {
            let group = Group {
                me: osd,
                ..places(in_sync)
            };
            self.member(osd).copy.set_group(group, &mut NoReads);
        }
    }

    fn bring_back(&mut self, osd: OsdId) {
        self.member(osd).here = true;
        self.call(|b, lent| b.peer_up(osd, lent));
        for _ in 0..20 {
            self.now += Duration::from_secs(1);
            self.call(|b, lent| b.grant(8, lent));
            self.call(|b, lent| b.tick(lent));
            self.flush();
            (1..3).for_each(|osd| self.flush_member(osd));
        }
    }

    fn data_without(&self, lost: OsdId, oid: &ObjectId) -> Option<Bytes> {
        let coding = coding();
        let mut present = Vec::new();
        let mut size = 0;
        for osd in (0..3).filter(|osd| *osd != lost) {
            let mut store = self.store_of(osd);
            let oid = on_shard(oid, osd as usize);
            size = store.stat(&oid).unwrap()?.size;
            let len = size.div_ceil(coding.layout.stripe()) * coding.layout.unit();
            let mut units = store.read(&oid, 0, len).unwrap().to_vec();
            units.resize(len as usize, 0);
            present.push((osd as usize, units));
        }
        let present: Vec<(usize, &[u8])> = present.iter().map(|(n, u)| (*n, u.as_slice())).collect();
        let columns = coding.code.rebuild(&present, &[0, 1]).unwrap();
        let columns: Vec<&[u8]> = columns.iter().map(Vec::as_slice).collect();
        let mut all = coding.layout.join(&columns).unwrap();
        all.truncate(size as usize);
        Some(all.into())
    }

    fn attr_on(&self, osd: OsdId, oid: &ObjectId, name: &[u8]) -> Option<Bytes> {
        self.store_of(osd)
            .attr(&on_shard(oid, osd as usize), name)
            .unwrap()
    }

    fn log_on(&self, osd: OsdId) -> usize {
        self.store_of(osd).log_entries(shard(osd)).unwrap().len()
    }

    fn digest_of(&mut self, osd: OsdId, oid: &ObjectId) -> Option<ObjectDigest> {
        let found = std::mem::take(&mut self.member(osd).digests);
        found.into_iter().find(|d| d.object == oid.object)
    }

    fn spoil(&mut self, osd: OsdId, oid: &ObjectId) {
        let oid = on_shard(oid, osd as usize);
        self.member(osd).store.alter(&oid, 2);
    }
}
