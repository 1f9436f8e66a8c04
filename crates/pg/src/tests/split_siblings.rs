//! A PG that was split off and its members, who have its objects already; and what a member does not take.

use super::*;
use crate::Replica;
use crate::backend::group::Group;
use messages::osd::peer::{PeerBody, PgInfo};

const INTERVAL: u32 = 6;

fn group(me: OsdId) -> Group {
    Group {
        me,
        interval: INTERVAL,
        primary: 0,
        in_sync: vec![0, 1],
        up: vec![0, 1],
        size: 2,
        min_size: 2,
        ..Group::default()
    }
}

fn spg(seed: u32) -> SPgId {
    SPgId::replicated(PgId::new(POOL, seed))
}

/// One input to something with a store; the messages to the other OSD that come of it.
fn step(store: &mut MemoryStore, f: impl FnOnce(&mut Context<'_>)) -> Vec<PeerBody> {
    let mut out = Vec::new();
    f(&mut Context {
        store,
        cluster: &View,
        now: Duration::from_secs(1000),
        wall: Utime { sec: 1000, nsec: 0 },
        random: &mut || 7,
        out: &mut out,
    });
    let body = |o| match o {
        Output::Peer { body, .. } => Some(body),
        _ => None,
    };
    out.into_iter().filter_map(body).collect()
}

/// What a member answers, once all it was sent is durable.
fn ask(member: &mut Replica, store: &mut MemoryStore, body: PeerBody) -> PeerBody {
    let mut said = step(store, |ctx| {
        member.peer(0, INTERVAL, body, ctx);
        let seq = ctx.store.submitted();
        member.committed(seq, ctx.out);
    });
    assert_eq!(said.len(), 1, "{said:?}");
    said.remove(0)
}

fn info(body: PeerBody) -> PgInfo {
    match body {
        PeerBody::Info(info) => info,
        other => panic!("{other:?}"),
    }
}

/// A member that had refused a transaction took the next ones all the same, and said afterwards that it had all.
#[test]
fn nothing_is_taken_behind_what_was_refused() {
    let mut store = MemoryStore::default();
    let mut member = Replica::new(spg(0), group(1));
    let mut send = |seq: u64, collection: SPgId, ops: Vec<Op>| {
        let txn = Transaction { collection, ops };
        match ask(&mut member, &mut store, PeerBody::Apply { seq, txn: txn.into() }) {
            PeerBody::Applied { seq: s, result } if s == seq => result,
            other => panic!("{other:?}"),
        }
    };
    let log = |n: u64| Op::LogAppend {
        version: EVersion::new(5, n),
        entry: Bytes::from_static(b"x"),
    };
    assert_eq!(send(1, spg(0), vec![Op::CreateCollection, log(1)]), 0);
    assert!(send(2, spg(3), vec![log(2)]) < 0, "another PG's");
    assert!(send(3, spg(0), vec![log(3)]) < 0, "behind one that is missing");
    let said = info(ask(&mut member, &mut store, PeerBody::Query));
    assert_eq!(said.head, EVersion::new(5, 1));
    let txn = Transaction {
        collection: spg(0),
        ops: vec![log(2)],
    };
    let again = ask(
        &mut member,
        &mut store,
        PeerBody::Apply {
            seq: 4,
            txn: txn.into(),
        },
    );
    assert_eq!(again, PeerBody::Applied { seq: 4, result: 0 });
}

struct Split {
    store: MemoryStore,
    /// The other OSD's: it has the objects.
    other: MemoryStore,
    new: Pg,
}

fn split() -> Split {
    let mut rig = Rig::new();
    for n in 0..40 {
        rig.run(&format!("o{n}"), vec![write_full(b"12")]);
    }
    let grown = Arc::new(PoolView {
        epoch: INTERVAL,
        pg_num: 2,
        ..pool()
    });
    rig.set_pool((*grown).clone());
    assert_eq!(rig.pg.split_in(), Some(INTERVAL));
    let other = rig.store.clone();
    let mut store = rig.store.clone();
    let mut new = Pg::load(spg(1), grown, &mut store, rig.now).unwrap();
    assert_eq!(new.born_in(), Some(INTERVAL));
    let sent = step(&mut store, |ctx| {
        new.apply(Input::Group(Box::new(group(0))), ctx);
        new.apply(Input::PeerUp(1), ctx);
    });
    assert_eq!(sent, [PeerBody::Query]);
    Split { store, other, new }
}

impl Split {
    fn hear(&mut self, body: PeerBody) -> Vec<PeerBody> {
        let heard = Input::Peer {
            from: 1,
            shard: -1,
            interval: INTERVAL,
            body,
        };
        step(&mut self.store, |ctx| self.new.apply(heard, ctx))
    }
}

#[test]
fn a_sibling_is_given_the_log_and_nothing_is_compared() {
    let mut s = split();
    let mut member = Replica::new(spg(1), group(1));
    let first = info(ask(&mut member, &mut s.other, PeerBody::Query));
    assert!(!first.exists);
    step(&mut s.store, |ctx| s.new.apply(Input::SplitSibling(1), ctx));
    let sent = s.hear(PeerBody::Info(first));
    // It goes on at once; answers wait for the log's being durable there.
    assert!(!sent.is_empty() && s.new.is_active());
    for body in sent {
        assert!(matches!(body, PeerBody::Apply { .. }), "{body:?}");
        let said = ask(&mut member, &mut s.other, body);
        s.hear(said);
    }
    let said = info(ask(&mut member, &mut s.other, PeerBody::Query));
    assert!(said.exists && said.complete && said.dirty.is_empty());
    let logs = [&mut s.store, &mut s.other].map(|store| store.log_entries(spg(1)).unwrap());
    assert!(logs[0].len() > 5 && logs[0] == logs[1]);
}

#[test]
fn who_is_no_sibling_is_compared_with() {
    let first = PeerBody::Info(PgInfo::default());
    let mut s = split();
    assert_eq!(s.hear(first.clone()), [PeerBody::Reset]);
    // One whose connection has ended since is none any more.
    let mut s = split();
    let sent = step(&mut s.store, |ctx| {
        s.new.apply(Input::SplitSibling(1), ctx);
        s.new.apply(Input::PeerDown(1), ctx);
        s.new.apply(Input::PeerUp(1), ctx);
    });
    assert_eq!(sent, [PeerBody::Query]);
    assert_eq!(s.hear(first), [PeerBody::Reset]);
}
