//! What every back end keeps (the contract of [`Backend`]), as one suite that each implementation passes: copies
//! ([`copies`]), shards by erasure code ([`coded`]), and a toy of two data shards with one of parity ([`xor`]), which also serves whole
//! PGs ([`sharded`]).
//!
//! A [`World`] is one back end on OSD 0 and the two others of its configuration, whose flushes and losses the suite decides.

mod coded;
mod copies;
mod sharded;
mod xor;

pub(super) use xor::Far;

use super::*;
use crate::backend::{Anew, Backend, Lent, TurnId, Turns, Whose};
use crate::exec::gathered::{Gathered, Read, Value};
use crate::state::log::{EntryKind, LogEntry};
use crate::state::pg::PgState;
use proptest::prelude::*;
use std::collections::VecDeque;

/// Three OSDs, 0 to 2.
pub(super) trait World {
    fn new() -> Self;
    fn backend(&mut self) -> (&mut dyn Backend, Lent<'_>);
    fn store(&mut self) -> &mut MemoryStore;
    /// The object as OSD 0 has it.
    fn own(&self, oid: &ObjectId) -> ObjectId {
        oid.clone()
    }
    /// What the back end has asked others for comes.
    fn bring(&mut self) {}
    /// All that was queued on OSD 0 is durable there.
    fn flush(&mut self);
    /// What was sent to the member arrives, is durable there, and it says so.
    fn flush_member(&mut self, osd: OsdId);
    /// The member is gone. It keeps what is durable there.
    fn lose(&mut self, osd: OsdId);
    /// The configuration is now these, in the same interval.
    fn configure(&mut self, in_sync: &[OsdId]);
    /// It is here again, and is brought up as far as that goes.
    fn bring_back(&mut self, osd: OsdId);
    /// The object's data as all but this one have it durable; None: they do not have it.
    fn data_without(&self, lost: OsdId, oid: &ObjectId) -> Option<Bytes>;
    /// An attribute as one OSD has it durable.
    fn attr_on(&self, osd: OsdId, oid: &ObjectId, name: &[u8]) -> Option<Bytes>;
    /// Log entries on one OSD.
    fn log_on(&self, osd: OsdId) -> usize;
    /// What the one OSD answers to a deep look at the object.
    fn digest_of(&mut self, osd: OsdId, oid: &ObjectId) -> Option<messages::osd::peer_scrub::ObjectDigest>;
    /// The bytes of the object on one OSD are others than were written.
    fn spoil(&mut self, osd: OsdId, oid: &ObjectId);
}

/// Gives turns at once, after the call.
#[derive(Debug, Default)]
pub(super) struct FreeTurns {
    begin: VecDeque<Whose>,
    last: TurnId,
    pub ended: usize,
}

impl FreeTurns {
    pub(super) fn next(&mut self) -> Option<(Whose, TurnId)> {
        self.last += 1;
        Some((self.begin.pop_front()?, self.last))
    }
}

impl Turns for FreeTurns {
    fn wait(&mut self, _: HObject, member: OsdId, token: u64, tickets: Vec<Ticket>) {
        assert!(tickets.is_empty(), "nothing is on a disk here");
        self.begin.push_back(Whose::Copy { member, token });
    }
    fn wait_first(&mut self, _: HObject, repair: u64) {
        self.begin.push_front(Whose::Repair(repair));
    }
    fn end(&mut self, _: TurnId, _: &mut dyn ObjectStore) {
        self.ended += 1;
    }
    fn give_up(&mut self, token: u64, _: &mut dyn ObjectStore) {
        self.begin
            .retain(|w| !matches!(w, Whose::Copy { token: t, .. } if *t == token));
    }
    fn checked(&mut self, _: u64) {}
    fn came(&mut self, _: Ticket) {}
    fn reload(&mut self) {}
    fn unreadable(&mut self, _: &HObject) {}
    fn version(&self, _: &HObject) -> Option<EVersion> {
        None
    }
    fn replaced(&mut self, _: &HObject, _: &[HObject], _: Seq, _: &mut Anew<'_>) -> Result<(), IoError> {
        Ok(())
    }
    fn last_write(&self, _: &HObject, pg: &PgState) -> Seq {
        pg.last_seq
    }
    fn answers_wait(&self, _: Seq) -> bool {
        false
    }
    fn has_messages(&self) -> bool {
        false
    }
    fn is_idle(&self) -> bool {
        self.begin.is_empty()
    }
}

pub(super) fn spg() -> SPgId {
    SPgId::replicated(PgId::new(POOL, 0))
}

pub(super) fn group(in_sync: &[OsdId]) -> Group {
    Group {
        me: 0,
        interval: 5,
        primary: 0,
        in_sync: in_sync.to_vec(),
        up: vec![0, 1, 2],
        size: 3,
        min_size: 2,
        ..Group::default()
    }
}

fn oid(name: &'static str) -> ObjectId {
    let none = Bytes::new();
    ObjectId::replicated(HObject::new(
        POOL,
        hash(name.as_bytes()),
        none.clone(),
        none,
        name.into(),
        NOSNAP,
    ))
}

/// The PG's next transaction about an object, as the PG makes it: with object info, log entry, and both remembered.
fn submit(w: &mut impl World, oid: &ObjectId, mut ops: Vec<Op>) -> Result<Seq, Errno> {
    let (mut backend, mut lent) = w.backend();
    let version = EVersion::new(5, lent.pg.meta.stats.version + 1);
    let info = crate::state::object_info::ObjectInfo {
        version,
        ..Default::default()
    };
    ops.push(Op::SetAttrs {
        oid: oid.clone(),
        attrs: vec![(
            Bytes::from_static(crate::state::object_info::INFO_ATTR),
            denc::Encode::to_bytes(&info),
        )],
    });
    let entry = LogEntry {
        kind: EntryKind::Modify,
        version,
        prior_version: EVersion::default(),
        object: oid.object.clone(),
        reqid: crate::state::object_info::NO_REQID,
        user_version: 1,
        last_user_version: 1,
        mtime: Utime::default(),
        result: 0,
        clone: 0,
        returns: Vec::new(),
        delta: Default::default(),
        ranges: None,
        instance: 0,
    };
    ops.push(Op::LogAppend {
        version,
        entry: denc::Encode::to_bytes(&entry),
    });
    let collection = lent.pg.id;
    let mut txn = Transaction { collection, ops };
    if collection.shard >= 0 {
        txn = moved_to(collection, &txn);
    }
    let mut done = backend.submit(txn.clone(), Some(&oid.object), &mut lent);
    let mut tickets = Vec::new();
    // As the front does: what it lacks is brought.
    while done == Err(Errno::EAGAIN) {
        let lacks = backend.take_lacking();
        assert!(!lacks.is_empty(), "what can be tried again says what it lacks");
        for l in lacks {
            let asked = backend.prefetch(&l.oid, l.offset, l.len, &mut lent);
            if let Some(ticket) = asked {
                backend.read_ended(ticket, &mut lent);
            }
            tickets.extend(asked);
        }
        w.bring();
        (backend, lent) = w.backend();
        done = backend.submit(txn.clone(), Some(&oid.object), &mut lent);
    }
    tickets.into_iter().for_each(|t| backend.release(t, lent.store));
    let seq = done?;
    lent.pg.meta.stats.version = version.version;
    lent.pg.log.push(entry, seq);
    Ok(seq)
}

/// The same about one shard's objects.
fn moved_to(collection: SPgId, txn: &Transaction) -> Transaction {
    let place = collection.shard as usize;
    let ops = txn
        .ops
        .iter()
        .map(|op| crate::backend::erasure::cut::moved(op, place));
    Transaction {
        collection,
        ops: ops.collect(),
    }
}

fn write_op(oid: &ObjectId, offset: u64, data: &[u8]) -> Op {
    Op::Write {
        oid: oid.clone(),
        offset,
        data: Bytes::copy_from_slice(data),
    }
}

fn put(w: &mut impl World, oid: &ObjectId, offset: u64, data: &[u8]) -> Seq {
    submit(w, oid, vec![write_op(oid, offset, data)]).unwrap()
}

/// As the front reads it: asked for, come, gathered.
fn data(w: &mut impl World, oid: &ObjectId, offset: u64, len: u64) -> Result<Bytes, IoError> {
    let oid = &w.own(oid);
    let (backend, mut lent) = w.backend();
    let ticket = backend.prefetch(oid, offset, len, &mut lent);
    if let Some(ticket) = ticket {
        backend.read_ended(ticket, &mut lent);
    }
    w.bring();
    let (backend, lent) = w.backend();
    let mut gathered = Gathered::default();
    backend.gather(oid, &[Read::bytes(offset, len)], lent.store, &mut gathered);
    if let Some(ticket) = ticket {
        backend.release(ticket, lent.store);
    }
    gathered.bytes(&mut 0, offset, len).unwrap()
}

fn confirmed(w: &mut impl World) -> Seq {
    w.backend().0.confirmed()
}

fn settle(w: &mut impl World) {
    w.flush();
    (1..3).for_each(|osd| w.flush_member(osd));
}

fn ready<W: World>() -> W {
    let mut w = W::new();
    settle(&mut w);
    assert!(w.backend().0.is_active(), "all are there");
    assert!(w.backend().0.all_full());
    w
}

fn shown_at_once_and_confirmed_when_all_have_it<W: World>() {
    let mut w = ready::<W>();
    let a = oid("a");
    let before = confirmed(&mut w);
    let seq = put(&mut w, &a, 5, b"hello, world: more than one unit of each shard");
    assert_eq!(data(&mut w, &a, 12, 5).unwrap(), "world");
    assert_eq!(data(&mut w, &a, 0, 7).unwrap(), "\0\0\0\0\0he"[..]);
    assert_eq!(confirmed(&mut w), before, "nobody has flushed");
    w.flush();
    assert_eq!(confirmed(&mut w), before, "only OSD 0 has");
    w.flush_member(1);
    assert_eq!(confirmed(&mut w), before, "one is missing");
    w.flush_member(2);
    assert!(confirmed(&mut w) >= seq);
}

fn a_refused_transaction_leaves_nothing<W: World>() {
    let mut w = ready::<W>();
    let a = oid("a");
    put(&mut w, &a, 0, b"first");
    settle(&mut w);
    let (before, log) = (confirmed(&mut w), w.log_on(1));
    w.store().fail_next = Some(Errno::ENOSPC);
    assert_eq!(
        submit(&mut w, &a, vec![write_op(&a, 0, b"other")]),
        Err(Errno::ENOSPC)
    );
    settle(&mut w);
    assert_eq!(data(&mut w, &a, 0, 5).unwrap(), "first");
    assert_eq!((confirmed(&mut w), w.log_on(1)), (before, log));
    for lost in 0..3 {
        assert_eq!(w.data_without(lost, &a).unwrap(), "first");
    }
    let seq = put(&mut w, &a, 0, b"again");
    settle(&mut w);
    assert!(confirmed(&mut w) >= seq, "it goes on");
}

fn attributes_and_log_are_on_every_osd<W: World>() {
    let mut w = ready::<W>();
    let (a, b) = (oid("a"), oid("b"));
    let attr = |oid: &ObjectId| Op::SetAttrs {
        oid: oid.clone(),
        attrs: vec![("_k".into(), "v".into())],
    };
    submit(&mut w, &a, vec![Op::Touch { oid: a.clone() }, attr(&a)]).unwrap();
    put(&mut w, &b, 0, b"data");
    settle(&mut w);
    for osd in 0..3 {
        assert_eq!(w.attr_on(osd, &a, b"_k"), Some("v".into()), "osd.{osd}");
        assert!(w.attr_on(osd, &b, crate::state::object_info::INFO_ATTR).is_some());
        assert_eq!(w.log_on(osd), 2, "osd.{osd}");
    }
}

fn a_lost_member_holds_up_what_is_confirmed_until_it_leaves<W: World>() {
    let mut w = ready::<W>();
    let a = oid("a");
    put(&mut w, &a, 0, b"0123456789");
    settle(&mut w);
    let before = confirmed(&mut w);
    w.lose(2);
    let seq = put(&mut w, &a, 3, b"xyz");
    w.flush();
    w.flush_member(1);
    assert_eq!(
        confirmed(&mut w),
        before,
        "it may come back with the right to lead"
    );
    w.configure(&[0, 1]);
    assert!(confirmed(&mut w) >= seq);
    assert!(w.backend().0.is_active(), "two are enough");
    assert_eq!(data(&mut w, &a, 0, 10).unwrap(), "012xyz6789");
}

fn a_member_that_returns_gets_what_it_missed<W: World>() {
    let mut w = ready::<W>();
    let (a, b) = (oid("a"), oid("b"));
    put(&mut w, &a, 0, b"before");
    settle(&mut w);
    w.lose(2);
    w.configure(&[0, 1]);
    put(&mut w, &a, 0, b"change");
    put(
        &mut w,
        &b,
        0,
        b"new while it was away, and longer than one stripe of two units",
    );
    w.flush();
    w.flush_member(1);
    assert!(!w.backend().0.all_full());
    w.bring_back(2);
    assert!(w.backend().0.all_full(), "it has everything");
    w.configure(&[0, 1, 2]);
    let seq = put(&mut w, &a, 6, b", and after");
    settle(&mut w);
    assert!(confirmed(&mut w) >= seq);
    for lost in 0..3 {
        assert_eq!(
            w.data_without(lost, &a).unwrap(),
            "change, and after",
            "without osd.{lost}"
        );
        assert!(
            w.data_without(lost, &b).unwrap().starts_with(b"new while"),
            "without osd.{lost}"
        );
    }
}

fn a_bad_one_is_told_from_the_good<W: World>() {
    let mut w = ready::<W>();
    let a = oid("a");
    put(
        &mut w,
        &a,
        0,
        b"the same on all: a few units of it, so that each shard has some",
    );
    settle(&mut w);
    let look = |w: &mut W| {
        let (backend, mut lent) = w.backend();
        let look = backend.digest(&a.object.with_snap(0), &a.object, true, &mut lent);
        let mut look = look.unwrap();
        assert!(look.own.go_on(lent.store), "nothing is on a disk");
        look
    };
    let judge = |w: &mut W| {
        let own = look(w);
        let mut sides = vec![(0, own.own.into_found().0.pop())];
        for osd in own.asked {
            w.flush_member(osd);
            sides.push((osd, w.digest_of(osd, &a)));
        }
        assert_eq!(sides.len(), 3, "everybody was asked");
        let sides: Vec<_> = sides.iter().map(|(osd, d)| (*osd, d.as_ref())).collect();
        w.backend().0.judge(&a.object, &sides)
    };
    assert_eq!(judge(&mut w), None, "nothing is wrong");
    w.spoil(1, &a);
    let wrong = judge(&mut w).expect("it differs");
    // Of as many shards as the code has over, none can be named.
    assert!(wrong.bad().count() >= 1 || wrong.errors != 0);
}

/// Any writes: what is read is what was written, whoever is lost.
fn any_one_can_be_lost<W: World>(steps: &[(bool, u64, u8)]) {
    let mut w = ready::<W>();
    let mut model: [Vec<u8>; 2] = Default::default();
    for (n, (which, at, len)) in steps.iter().enumerate() {
        let (name, model) = match which {
            true => (oid("a"), &mut model[0]),
            false => (oid("b"), &mut model[1]),
        };
        if *len == 0 {
            let size = *at;
            model.resize(size as usize, 0);
            let oid = name.clone();
            let ops = vec![Op::Touch { oid: oid.clone() }, Op::Truncate { oid, size }];
            submit(&mut w, &name, ops).unwrap();
            continue;
        }
        let bytes = vec![n as u8 + 1; *len as usize];
        let end = *at as usize + bytes.len();
        model.resize(model.len().max(end), 0);
        model[*at as usize..end].copy_from_slice(&bytes);
        put(&mut w, &name, *at, &bytes);
        let len = model.len() as u64;
        assert_eq!(data(&mut w, &name, 0, len).unwrap(), model[..]);
    }
    settle(&mut w);
    for (name, model) in [("a", &model[0]), ("b", &model[1])] {
        for lost in (0..3).filter(|_| !model.is_empty()) {
            assert_eq!(
                w.data_without(lost, &oid(name)).unwrap(),
                model[..],
                "{name} without osd.{lost}"
            );
        }
    }
}

macro_rules! suite {
    ($name:ident, $world:ty) => {
        mod $name {
            use super::*;

            #[test]
            fn shown_at_once_and_confirmed_when_all_have_it() {
                super::shown_at_once_and_confirmed_when_all_have_it::<$world>();
            }
            #[test]
            fn a_refused_transaction_leaves_nothing() {
                super::a_refused_transaction_leaves_nothing::<$world>();
            }
            #[test]
            fn attributes_and_log_are_on_every_osd() {
                super::attributes_and_log_are_on_every_osd::<$world>();
            }
            #[test]
            fn a_lost_member_holds_up_what_is_confirmed_until_it_leaves() {
                super::a_lost_member_holds_up_what_is_confirmed_until_it_leaves::<$world>();
            }
            #[test]
            fn a_member_that_returns_gets_what_it_missed() {
                super::a_member_that_returns_gets_what_it_missed::<$world>();
            }
            #[test]
            fn a_bad_one_is_told_from_the_good() {
                super::a_bad_one_is_told_from_the_good::<$world>();
            }
            proptest! {
                #![proptest_config(ProptestConfig::with_cases(100))]
                #[test]
                fn any_one_can_be_lost(
                    steps in proptest::collection::vec((any::<bool>(), 0..100u64, 0..60u8), 1..20)
                ) {
                    super::any_one_can_be_lost::<$world>(&steps);
                }
            }
        }
    };
}

suite!(by_copies, copies::Copies);
suite!(by_shards, xor::Shards);
suite!(by_code, coded::Coded);
