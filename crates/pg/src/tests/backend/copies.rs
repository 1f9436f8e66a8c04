//! Copies: [`Replicated`] on OSD 0, a [`LocalCopy`] on each of the others.

use super::*;
use crate::backend::ReadsHere;
use crate::backend::replicated::Replicated;
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

pub(super) struct Copies {
    backend: Replicated,
    pg: PgState,
    front: FreeTurns,
    store: MemoryStore,
    members: [Member; 2],
    out: Vec<Output>,
    now: Duration,
}

impl Copies {
    fn member(&mut self, osd: OsdId) -> &mut Member {
        &mut self.members[osd as usize - 1]
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
            if let Output::Peer { to, body, .. } = output {
                self.member(to).inbox.push_back(body);
            }
        }
    }

    /// The member's answers to what has come.
    fn deliver(&mut self, osd: OsdId) -> Vec<PeerBody> {
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
        let durable = m.store.seq;
        m.copy.committed(durable, &mut out);
        let answers = out.into_iter().filter_map(|o| match o {
            Output::Peer { body, .. } => Some(body),
            _ => None,
        });
        answers.collect()
    }
}

impl World for Copies {
    fn new() -> Self {
        let mut store = MemoryStore::default();
        store
            .submit(&Transaction {
                collection: spg(),
                ops: vec![Op::CreateCollection],
            })
            .unwrap();
        let member = |osd| Member {
            copy: LocalCopy::new(
                spg(),
                Group {
                    me: osd,
                    ..group(&[0, 1, 2])
                },
            ),
            store: store.clone(),
            here: true,
            inbox: VecDeque::new(),
            digests: Vec::new(),
        };
        let mut w = Self {
            backend: Replicated::alone(),
            pg: PgState::new(spg(), Arc::new(pool()), store.seq, Duration::ZERO),
            front: FreeTurns::default(),
            members: [member(1), member(2)],
            store,
            out: Vec::new(),
            now: Duration::from_secs(1000),
        };
        w.configure(&[0, 1, 2]);
        for osd in 1..3 {
            w.call(|b, lent| b.peer_up(osd, lent));
            w.flush_member(osd);
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

    fn store(&mut self) -> &mut MemoryStore {
        &mut self.store
    }

    fn flush(&mut self) {
        let seq = self.store.seq;
        self.call(|b, lent| b.durable(seq, lent));
    }

    fn flush_member(&mut self, osd: OsdId) {
        self.go_on();
        while self.member(osd).here && !self.member(osd).inbox.is_empty() {
            for body in self.deliver(osd) {
                if let PeerBody::Scrub(ScrubBody::Digests { items, .. }) = &body {
                    self.member(osd).digests = items.clone();
                }
                self.call(|b, lent| drop(b.on_message(osd, body, lent)));
            }
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
        self.call(|b, lent| b.set_group(group(in_sync), lent));
        for osd in 1..3 {
            self.member(osd).copy.set_group(
                Group {
                    me: osd,
                    ..group(in_sync)
                },
                &mut NoReads,
            );
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
        let stores = [&self.store, &self.members[0].store, &self.members[1].store];
        let all: Vec<_> = (0..3)
            .filter(|osd| *osd != lost)
            .map(|osd| {
                let mut store = stores[osd as usize].clone();
                let size = store.stat(oid).unwrap()?.size;
                Some(store.read(oid, 0, size).unwrap())
            })
            .collect();
        assert_eq!(all[0], all[1], "they hold the same");
        all[0].clone()
    }

    fn attr_on(&self, osd: OsdId, oid: &ObjectId, name: &[u8]) -> Option<Bytes> {
        let store = match osd {
            0 => &self.store,
            _ => &self.members[osd as usize - 1].store,
        };
        store.clone().attr(oid, name).unwrap()
    }

    fn log_on(&self, osd: OsdId) -> usize {
        let store = match osd {
            0 => &self.store,
            _ => &self.members[osd as usize - 1].store,
        };
        store.clone().log_entries(spg()).unwrap().len()
    }

    fn digest_of(&mut self, osd: OsdId, oid: &ObjectId) -> Option<ObjectDigest> {
        let found = std::mem::take(&mut self.member(osd).digests);
        found.into_iter().find(|d| d.object == oid.object)
    }

    fn spoil(&mut self, osd: OsdId, oid: &ObjectId) {
        self.member(osd).store.alter(oid, 2);
    }
}
