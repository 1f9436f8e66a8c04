//! Shards in stores of their own, against one store with the objects whole.

#![allow(clippy::unwrap_used)]

use super::collect::Collect;
use super::cut::{Before, Coding, cut, on_shard};
use super::fill::fill;
use super::undo;
use crate::api::{ClusterView, Context, Located, Output};
use crate::backend::ReadsHere;
use crate::backend::group::Group;
use crate::backend::replicated::local::LocalCopy;
use crate::memory::MemoryStore;
use crate::pool::PoolView;
use crate::state::log::{EntryKind, LogEntry};
use crate::state::meta::PgMeta;
use crate::state::object_info::NO_REQID;
use crate::state::range::HashRange;
use crate::store::{IoError, ObjectReads, ObjectStore};
use bytes::Bytes;
use denc::{Decode, Encode};
use messages::osd::peer::PeerBody;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{EVersion, HObject, NOSNAP, ObjectId, Op, PgId, SPgId, Transaction, Utime};

const POOL: i64 = 3;
const UNIT: u64 = 8;

fn spg(shard: usize) -> SPgId {
    SPgId {
        pg: PgId::new(POOL, 0),
        shard: shard as i8,
    }
}

fn all() -> HashRange {
    HashRange::of(0, 1)
}

fn oid(name: &'static str) -> ObjectId {
    let none = Bytes::new();
    let hash = types::checksum::crc32c(0, name.as_bytes());
    let object = HObject::new(POOL, hash, none.clone(), none, name.into(), NOSNAP);
    on_shard(&ObjectId::replicated(object), 0)
}

/// What a store shows of a shard: data, and attributes.
type Shown = BTreeMap<HObject, (Bytes, Vec<(Bytes, Bytes)>)>;

fn shown(store: &MemoryStore) -> Shown {
    let mut store = store.clone();
    let from = ObjectId {
        shard: i8::MIN,
        object: HObject::min(),
    };
    let mut found = store.list(&from, usize::MAX).unwrap();
    found.retain(|o| o.shard >= 0);
    let one = |o: ObjectId| {
        let size = store.stat(&o).unwrap().unwrap().size;
        let data = store.read(&o, 0, size).unwrap();
        (o.object.clone(), (data, store.attrs(&o).unwrap()))
    };
    found.into_iter().map(one).collect()
}

fn log(store: &MemoryStore, shard: usize) -> Vec<EVersion> {
    let rows = store.clone().log_entries(spg(shard)).unwrap();
    rows.into_iter().map(|(v, _)| v).collect()
}

/// All shards, and the objects whole.
#[derive(Clone)]
struct Shards {
    coding: Coding,
    stores: Vec<MemoryStore>,
    whole: MemoryStore,
    version: EVersion,
    /// Shards that are read: as many as are needed.
    reads: Vec<usize>,
}

impl Before for Shards {
    fn size(&mut self, oid: &ObjectId) -> Result<Option<u64>, IoError> {
        let sizes: Vec<Option<u64>> = (0..self.stores.len())
            .map(|n| self.stores[n].stat(&on_shard(oid, n)).unwrap().map(|s| s.size))
            .collect();
        assert!(sizes.iter().all(|s| *s == sizes[0]), "every shard tells the size");
        Ok(sizes[0])
    }

    fn stripe(&mut self, oid: &ObjectId, stripe: u64) -> Result<Vec<u8>, IoError> {
        let (at, len) = self.coding.layout.extent_on_shard(&(stripe..stripe + 1));
        let mut units = Vec::new();
        for shard in self.reads.clone() {
            let bytes = self.stores[shard].read(&on_shard(oid, shard), at, len)?;
            let mut unit = bytes.to_vec();
            unit.resize(len as usize, 0);
            units.push((shard, unit));
        }
        let present: Vec<(usize, &[u8])> = units.iter().map(|(n, u)| (*n, u.as_slice())).collect();
        let data: Vec<usize> = (0..self.coding.layout.k()).collect();
        let data = self.coding.code.rebuild(&present, &data).unwrap();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        Ok(self.coding.layout.join(&data).unwrap())
    }
}

impl Shards {
    fn new(k: usize, m: usize) -> Self {
        let store = |shard: usize| {
            let mut store = MemoryStore::default();
            let mut txn = Transaction::new(spg(shard));
            txn.ops.push(Op::CreateCollection);
            store.submit(&txn).unwrap();
            store
        };
        Self {
            coding: Coding::new(k, m, UNIT).unwrap(),
            stores: (0..k + m).map(store).collect(),
            whole: store(0),
            version: EVersion::new(1, 0),
            reads: (0..k).collect(),
        }
    }

    /// A transaction with its log entry, cut, with what it changes set aside.
    fn transactions(&mut self, head: &ObjectId, mut ops: Vec<Op>) -> (Transaction, Vec<Transaction>) {
        self.version.version += 1;
        let entry = LogEntry {
            kind: EntryKind::Modify,
            version: self.version,
            prior_version: EVersion::default(),
            object: head.object.clone(),
            reqid: NO_REQID,
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
            version: self.version,
            entry: entry.to_bytes(),
        });
        let txn = Transaction {
            collection: spg(0),
            ops,
        };
        let coding = self.coding.clone();
        let mut cut = cut(&txn, &coding, self).unwrap();
        for (n, txn) in cut.iter_mut().enumerate() {
            let store = &mut self.stores[n];
            undo::set_aside(txn, &mut |oid| Ok(store.stat(oid)?.is_some())).unwrap();
        }
        (txn, cut)
    }

    fn write(&mut self, head: &ObjectId, ops: Vec<Op>) {
        let (whole, cut) = self.transactions(head, ops);
        self.whole.submit(&whole).unwrap();
        for (store, txn) in self.stores.iter_mut().zip(&cut) {
            store.submit(txn).unwrap();
        }
    }

    /// What the shards give, whichever k are asked, is what the whole objects are.
    fn verify(&mut self, whole: &MemoryStore) {
        let want = shown(whole);
        let (k, layout) = (self.coding.layout.k(), self.coding.layout);
        for (n, store) in self.stores.iter().enumerate() {
            let got = shown(store);
            assert!(got.keys().eq(want.keys()), "shard {n}: the same objects");
            for (object, (data, attrs)) in &got {
                let (whole, whole_attrs) = &want[object];
                assert_eq!(attrs, whole_attrs, "shard {n}, {object}");
                assert_eq!(data.len(), whole.len(), "shard {n}, {object}");
                let behind = layout.shard_size(n, data.len() as u64) as usize;
                assert!(data[behind..].iter().all(|b| *b == 0), "shard {n}, {object}");
            }
        }
        for first in 0..self.stores.len() {
            self.reads = (0..k).map(|n| (first + n) % self.stores.len()).collect();
            for (object, (data, _)) in &want {
                let oid = on_shard(&ObjectId::replicated(object.clone()), 0);
                let mut got = Vec::new();
                for stripe in layout.stripes(0, data.len() as u64) {
                    got.extend(self.stripe(&oid, stripe).unwrap());
                }
                got.truncate(data.len());
                assert_eq!(got, data[..], "{object} from {:?}", self.reads);
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write(u64, u8),
    Zero(u64, u64),
    Truncate(u64),
    Attr(u8),
    Snapshot,
    Rollback,
    Range(u64, u64, u64),
    /// A message without effect: a log entry alone.
    Nothing,
    /// A write and a truncation behind it, in one transaction.
    Both(u64, u8, u64),
    Remove,
}

fn step() -> impl Strategy<Value = (bool, Step)> {
    let at = || 0..120u64;
    let step = prop_oneof![
        4 => (at(), 1..90u8).prop_map(|(at, len)| Step::Write(at, len)),
        2 => (at(), 1..90u64).prop_map(|(at, len)| Step::Zero(at, len)),
        2 => at().prop_map(Step::Truncate),
        1 => any::<u8>().prop_map(Step::Attr),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Rollback),
        1 => (at(), 1..60u64, at()).prop_map(|(from, len, to)| Step::Range(from, len, to)),
        2 => (at(), 1..90u8, at()).prop_map(|(at, len, size)| Step::Both(at, len, size)),
        1 => Just(Step::Remove),
        1 => Just(Step::Nothing),
    ];
    (any::<bool>(), step)
}

/// The steps' operations, for a store that shows what is there. Empty: it makes no sense now.
fn ops_of(step: &Step, oid: &ObjectId, n: usize, whole: &mut MemoryStore) -> Vec<Op> {
    let oid = || oid.clone();
    let clone = || ObjectId {
        object: oid().object.with_snap(4),
        ..oid()
    };
    let exists = |whole: &mut MemoryStore, oid: &ObjectId| whole.stat(oid).unwrap().is_some();
    let write = |offset: u64, len: u8| Op::Write {
        oid: oid(),
        offset,
        data: vec![n as u8 + 1; len as usize].into(),
    };
    let cut = |size| Op::Truncate { oid: oid(), size };
    let touch = Op::Touch { oid: oid() };
    match *step {
        Step::Write(at, len) => vec![write(at, len)],
        Step::Zero(offset, len) => vec![
            touch,
            Op::Zero {
                oid: oid(),
                offset,
                len,
            },
        ],
        Step::Truncate(size) => vec![touch, cut(size)],
        Step::Attr(v) => vec![
            touch,
            Op::SetAttrs {
                oid: oid(),
                attrs: vec![("_k".into(), vec![v].into())],
            },
        ],
        Step::Both(at, len, size) => vec![write(at, len), cut(size), write(at / 2, len / 2)],
        Step::Snapshot if exists(whole, &oid()) => vec![
            Op::Clone {
                src: oid(),
                dst: clone(),
            },
            write(3, 20),
        ],
        Step::Rollback if exists(whole, &clone()) => vec![
            Op::Clone {
                src: clone(),
                dst: oid(),
            },
            write(50, 5),
        ],
        Step::Range(src_offset, len, dst_offset) if exists(whole, &clone()) => {
            // A range behind the source's end is refused by nobody and copies nothing.
            let size = whole.stat(&clone()).unwrap().unwrap().size;
            let len = len.min(size.saturating_sub(src_offset));
            match len {
                0 => Vec::new(),
                _ => vec![Op::CloneRange {
                    src: clone(),
                    dst: oid(),
                    src_offset,
                    len,
                    dst_offset,
                }],
            }
        }
        Step::Remove if exists(whole, &oid()) => vec![Op::Remove { oid: oid() }],
        _ => Vec::new(),
    }
}

fn run(shards: &mut Shards, n: usize, (which, step): &(bool, Step)) -> Option<(ObjectId, Vec<Op>)> {
    let oid = if *which { oid("a") } else { oid("b") };
    let ops = ops_of(step, &oid, n, &mut shards.whole);
    (!ops.is_empty() || matches!(step, Step::Nothing)).then_some((oid, ops))
}

#[test]
fn a_change_of_one_unit_writes_to_its_shard_and_to_parity_only() {
    let mut s = Shards::new(4, 2);
    let a = oid("a");
    let write = |offset, len: usize| Op::Write {
        oid: oid("a"),
        offset,
        data: vec![7; len].into(),
    };
    s.write(&a, vec![write(0, 64)]);
    let (_, cut) = s.transactions(&a, vec![write(UNIT + 2, 3)]);
    let writes = |txn: &Transaction| txn.ops.iter().filter(|op| matches!(op, Op::Write { .. })).count();
    assert_eq!(cut.iter().map(writes).collect::<Vec<_>>(), [0, 1, 0, 0, 1, 1]);
}

#[test]
fn omap_is_refused() {
    let mut s = Shards::new(2, 1);
    let mut txn = Transaction::new(spg(0));
    txn.ops.push(Op::OmapSet {
        oid: oid("a"),
        entries: vec![("k".into(), "v".into())],
    });
    let coding = s.coding.clone();
    assert!(cut(&txn, &coding, &mut s).is_err());
}

#[test]
fn what_was_let_go_is_not_undone() {
    let mut s = Shards::new(2, 1);
    let a = oid("a");
    let write = || Op::Write {
        oid: oid("a"),
        offset: 0,
        data: "data".into(),
    };
    for _ in 0..3 {
        s.write(&a, vec![write()]);
    }
    let store = &mut s.stores[1];
    let ops = undo::let_go(spg(1), all(), EVersion::new(1, 2), 10, store).unwrap();
    assert_eq!(ops.len(), 2);
    let mut txn = Transaction::new(spg(1));
    txn.ops = ops;
    store.submit(&txn).unwrap();
    assert!(undo::undo(spg(1), all(), EVersion::new(1, 1), store).is_err());
    assert!(undo::undo(spg(1), all(), EVersion::new(1, 2), store).is_ok());
}

/// Metadata that counts what is undone is counted anew.
#[test]
fn what_is_undone_is_not_counted() {
    let mut s = Shards::new(2, 1);
    let a = oid("a");
    s.write(&a, vec![Op::Touch { oid: a.clone() }]);
    let mut meta = PgMeta {
        pg_num: 1,
        ..PgMeta::default()
    };
    meta.stats.version = 2;
    let set = Op::SetMeta {
        meta: meta.to_bytes(),
    };
    s.write(&a, vec![Op::Touch { oid: a.clone() }, set]);
    let store = &mut s.stores[2];
    let txn = undo::undo(spg(2), all(), EVersion::new(1, 1), store).unwrap();
    store.submit(&txn).unwrap();
    let meta = PgMeta::from_bytes(&store.meta(spg(2)).unwrap().unwrap()).unwrap();
    assert_eq!((meta.pg_num, meta.stats.version), (0, 1));
}

struct NoReads;
impl ReadsHere for NoReads {
    fn forget(&mut self) {}
    fn coming(&mut self, _: &Transaction, _: Duration) {}
}

/// No cluster beyond this PG.
struct Nothing;
impl ClusterView for Nothing {
    fn pool(&self, _: types::PoolId) -> Option<&PoolView> {
        None
    }
    fn locate(&self, _: &types::ObjectLocator, _: &Bytes, _: u64) -> Located {
        Located::NoPool
    }
}

/// What a member of `in_sync` with a shard answers to a message of its primary, once all that it has is durable.
fn answer(member: &mut LocalCopy, store: &mut MemoryStore, body: PeerBody) -> Vec<PeerBody> {
    let mut out = Vec::new();
    let mut ctx = Context {
        store,
        cluster: &Nothing,
        now: Duration::ZERO,
        wall: Utime::default(),
        random: &mut || 1,
        out: &mut out,
    };
    member.peer(0, 5, body, &mut NoReads, &mut ctx);
    assert!(ctx.out.is_empty(), "not before it is durable");
    let durable = ctx.store.submitted();
    member.committed(durable, &mut out);
    let body = |o| match o {
        Output::Peer { body, .. } => Some(body),
        _ => None,
    };
    out.into_iter().filter_map(body).collect()
}

/// A member that is in sync takes back what its primary says not all have, and has then what it had, with nothing dirty.
#[test]
fn a_member_undoes_by_message() {
    let mut s = Shards::new(2, 1);
    let group = Group {
        me: 2,
        interval: 5,
        primary: 0,
        in_sync: vec![0, 1, 2],
        ..Group::default()
    };
    let mut member = LocalCopy::new(spg(2), group);
    member.set_pg_num(1);
    let mut store = s.stores[2].clone();
    let write = |data: &'static str| Op::Write {
        oid: oid("a"),
        offset: 0,
        data: data.into(),
    };
    let mut before = Shown::default();
    for (seq, ops) in [
        vec![write("first, over more than one stripe of two units")],
        vec![write("second")],
        vec![Op::Remove { oid: oid("a") }],
    ]
    .into_iter()
    .enumerate()
    {
        if seq == 1 {
            before = shown(&store);
        }
        let (whole, cut) = s.transactions(&oid("a"), ops);
        s.whole.submit(&whole).unwrap();
        for (store, txn) in s.stores.iter_mut().zip(&cut) {
            store.submit(txn).unwrap();
        }
        let seq = seq as u64 + 1;
        let body = PeerBody::Apply {
            seq,
            txn: cut[2].clone().into(),
        };
        let done = PeerBody::Applied { seq, result: 0 };
        assert_eq!(answer(&mut member, &mut store, body), [done]);
    }
    assert_ne!(shown(&store), before);
    let to = EVersion::new(1, 1);
    let answers = answer(&mut member, &mut store, PeerBody::Rewind { to });
    let [PeerBody::Info(info)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!((info.head, info.complete, info.dirty.len()), (to, true, 0));
    assert_eq!(shown(&store), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Any steps: any k shards give what was written.
    #[test]
    fn shards_hold_what_was_written(
        k in 1..=4usize,
        m in 1..=3usize,
        steps in proptest::collection::vec(step(), 1..25),
    ) {
        let mut s = Shards::new(k, m);
        for (n, step) in steps.iter().enumerate() {
            if let Some((oid, ops)) = run(&mut s, n, step) {
                s.write(&oid, ops);
                // What the next one reads, others than the last one did.
                let (whole, first) = (s.whole.clone(), n);
                s.verify(&whole);
                s.reads = (0..k).map(|n| (first + n) % (k + m)).collect();
            }
        }
    }

    /// The primary dies, and of what it sent each shard has as much as it pleases, but all that was confirmed: they undo what not
    /// all have, are then of one version (a stripe is never half old and half new), and go on.
    #[test]
    fn after_a_failure_all_shards_are_of_one_version(
        k in 1..=4usize,
        m in 1..=3usize,
        before in proptest::collection::vec(step(), 0..12),
        open in proptest::collection::vec(step(), 1..10),
        after in proptest::collection::vec(step(), 0..6),
        has in proptest::collection::vec(0..100usize, 7),
        lets_go in any::<bool>(),
    ) {
        let mut s = Shards::new(k, m);
        for (n, step) in before.iter().enumerate() {
            if let Some((oid, ops)) = run(&mut s, n, step) {
                s.write(&oid, ops);
            }
        }
        let confirmed = s.version;
        if lets_go {
            for n in 0..k + m {
                let mut txn = Transaction::new(spg(n));
                txn.ops = undo::let_go(spg(n), all(), confirmed, usize::MAX, &mut s.stores[n]).unwrap();
                s.stores[n].submit(&txn).unwrap();
            }
        }
        // The states of all that the primary went through, by version.
        let mut states = vec![s.clone()];
        for (n, step) in open.iter().enumerate() {
            if let Some((oid, ops)) = run(&mut s, 100 + n, step) {
                s.write(&oid, ops);
                states.push(s.clone());
            }
        }
        let reached: Vec<usize> = (0..k + m).map(|n| has[n] % states.len()).collect();
        for (n, to) in reached.iter().enumerate() {
            s.stores[n] = states[*to].stores[n].clone();
        }
        let heads: Vec<EVersion> = (0..k + m)
            .map(|n| log(&s.stores[n], n).last().copied().unwrap_or_default())
            .collect();
        let common = undo::common(&heads).unwrap();
        let want = &states[*reached.iter().min().unwrap()];
        prop_assert!(common >= confirmed || confirmed.version == 0, "nothing that was confirmed is undone");
        for n in 0..k + m {
            let txn = undo::undo(spg(n), all(), common, &mut s.stores[n]).unwrap();
            s.stores[n].submit(&txn).unwrap();
            prop_assert_eq!(shown(&s.stores[n]), shown(&want.stores[n]), "shard {}", n);
            prop_assert_eq!(log(&s.stores[n], n), log(&want.stores[n], n));
        }
        s.whole = want.whole.clone();
        let whole = s.whole.clone();
        s.verify(&whole);
        // The next primary's versions.
        s.version = EVersion::new(2, common.version);
        for (n, step) in after.iter().enumerate() {
            if let Some((oid, ops)) = run(&mut s, 200 + n, step) {
                s.write(&oid, ops);
                let whole = s.whole.clone();
                s.verify(&whole);
            }
        }
        // All is let go in the end, and nothing is left aside.
        for n in 0..k + m {
            let mut txn = Transaction::new(spg(n));
            txn.ops = undo::let_go(spg(n), all(), s.version, usize::MAX, &mut s.stores[n]).unwrap();
            s.stores[n].submit(&txn).unwrap();
            prop_assert_eq!(s.stores[n].object_count(), shown(&s.stores[n]).len());
        }
    }

    /// A shard is lost with all that it held, and made anew object by object out of k others.
    #[test]
    fn a_lost_shard_is_made_anew(
        k in 1..=4usize,
        m in 1..=3usize,
        steps in proptest::collection::vec(step(), 1..20),
        lost in 0..7usize,
        order in Just((0..7).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let mut s = Shards::new(k, m);
        for (n, step) in steps.iter().enumerate() {
            if let Some((oid, ops)) = run(&mut s, n, step) {
                s.write(&oid, ops);
            }
        }
        let (lost, coding) = (lost % (k + m), s.coding.clone());
        let want = shown(&s.stores[lost]);
        let empty = Shards::new(k, m).stores.swap_remove(lost);
        s.stores[lost] = empty;
        let can: Vec<usize> = order.into_iter().filter(|n| *n < k + m && *n != lost).collect();
        let version = EVersion::new(1, 1);
        for (object, (data, attrs)) in shown(&s.whole) {
            let size = data.len() as u64;
            let mut c = Collect::new(version, coding.layout.stripes(0, size), vec![lost]);
            let (at, len) = c.extent(&coding);
            let oid = ObjectId::replicated(object);
            let asked = c.ask(&coding, &can).unwrap();
            prop_assert_eq!(asked.len(), k, "no more than are needed");
            for n in asked {
                let bytes = s.stores[n].read(&on_shard(&oid, n), at, len).unwrap();
                c.came(&coding, n, version, Some(bytes));
            }
            let units = c.units(&coding).unwrap().swap_remove(0);
            let mut txn = Transaction::new(spg(lost));
            txn.ops = fill(&oid, lost, &coding, size, units, attrs);
            s.stores[lost].submit(&txn).unwrap();
        }
        prop_assert_eq!(shown(&s.stores[lost]), want);
        let whole = s.whole.clone();
        s.verify(&whole);
    }
}
