//! Reads of shards that lie in stores of their own, whose answers come, or do not, in any order.

#![allow(clippy::unwrap_used)]

use super::cut::{Coding, on_shard};
use super::fill::fill;
use super::old::{Cut, cut_here};
use super::reads::{Ask, Held, Reads, What};
use super::units::{Question, UnitReads};
use crate::exec::gathered::{Gathered, Read};
use crate::memory::{Cold, MemoryStore};
use crate::state::object_info::{INFO_ATTR, ObjectInfo};
use crate::store::{ObjectReads, ObjectStore, Ticket};
use bytes::Bytes;
use denc::Encode;
use messages::osd::peer::PeerBody;
use proptest::prelude::*;
use std::sync::Arc;
use types::{EVersion, HObject, NOSNAP, ObjectId, Op, OsdId, PgId, SPgId, Transaction};

const POOL: i64 = 3;
const UNIT: u64 = 8;

fn spg(shard: usize) -> SPgId {
    SPgId {
        pg: PgId::new(POOL, 0),
        shard: shard as i8,
    }
}

fn v(version: u64) -> EVersion {
    EVersion::new(2, version)
}

fn osd(shard: usize) -> OsdId {
    10 + shard as OsdId
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n * 7 % 251) as u8 ^ seed).collect()
}

struct World {
    coding: Arc<Coding>,
    own: usize,
    stores: Vec<MemoryStore>,
    members: Vec<UnitReads>,
    reads: Reads,
    /// Questions that were not answered.
    open: Vec<Ask>,
    ended: Vec<Ticket>,
}

impl World {
    fn new(k: usize, m: usize, own: usize) -> Self {
        let coding = Arc::new(Coding::new(k, m, UNIT).unwrap());
        let store = |shard: usize| {
            let mut store = MemoryStore::default();
            let mut txn = Transaction::new(spg(shard));
            txn.ops.push(Op::CreateCollection);
            store.submit(&txn).unwrap();
            store
        };
        let mut w = Self {
            reads: Reads::new(coding.clone(), own),
            own,
            coding,
            stores: (0..k + m).map(store).collect(),
            members: (0..k + m).map(|_| UnitReads::default()).collect(),
            open: Vec::new(),
            ended: Vec::new(),
        };
        let sources = (0..k + m).map(|n| (n, osd(n))).collect();
        w.call(|r, store| r.set_sources(sources, store));
        w
    }

    fn oid(&self, name: &'static str) -> ObjectId {
        let none = Bytes::new();
        let object = HObject::new(POOL, 7, none.clone(), none, name.into(), NOSNAP);
        on_shard(&ObjectId::replicated(object), self.own)
    }

    fn call<R>(&mut self, f: impl FnOnce(&mut Reads, &mut dyn ObjectStore) -> R) -> R {
        let out = f(&mut self.reads, &mut self.stores[self.own]);
        self.open.extend(self.reads.take_asks());
        self.ended.extend(self.reads.take_ended());
        out
    }

    /// The object, as some shards shall have it.
    fn put_on(&mut self, shards: &[usize], name: &'static str, data: &[u8], version: EVersion) {
        let oid = self.oid(name);
        let mut whole = data.to_vec();
        whole.resize(
            data.len().next_multiple_of(self.coding.layout.stripe() as usize),
            0,
        );
        let mut units = self.coding.layout.cut(&whole);
        let columns: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
        let parity = self.coding.code.encode(&columns).unwrap();
        units.extend(parity);
        let info = ObjectInfo {
            version,
            ..Default::default()
        };
        for n in shards {
            let attrs = vec![(Bytes::from_static(INFO_ATTR), info.to_bytes())];
            let size = data.len() as u64;
            let ops = fill(&oid, *n, &self.coding, size, units[*n].clone(), attrs);
            let collection = spg(*n);
            self.stores[*n].submit(&Transaction { collection, ops }).unwrap();
        }
    }

    fn put(&mut self, name: &'static str, data: &[u8], version: EVersion) {
        let all: Vec<usize> = (0..self.stores.len()).collect();
        self.put_on(&all, name, data, version);
    }

    fn begin(&mut self, name: &'static str, version: EVersion, offset: u64, len: u64) -> Option<Ticket> {
        let oid = self.oid(name);
        self.call(|r, store| r.begin(&oid, version, offset, len, store))
    }

    /// One of the questions is answered.
    fn answer(&mut self, pick: usize) {
        let ask = self.open.remove(pick % self.open.len());
        let question = Question {
            asker: 1,
            interval: 1,
            token: ask.token,
            object: ask.object,
            offset: ask.offset,
            len: ask.len,
        };
        let n = ask.shard;
        let (_, _, body) = self.members[n]
            .ask(spg(n), question, &mut self.stores[n])
            .unwrap();
        let PeerBody::Units {
            token,
            result,
            version,
            data,
        } = body
        else {
            panic!("{body:?}")
        };
        let data = (result == 0).then_some(data);
        self.call(|r, store| r.said(ask.to, token, version, data, store));
    }

    fn answer_all(&mut self) {
        while !self.open.is_empty() {
            self.answer(0);
        }
    }

    fn value(&self, name: &'static str, version: EVersion, offset: u64, len: u64) -> Held {
        self.reads.value(&self.oid(name), version, offset, len)
    }

    fn release_all(&mut self, tickets: impl IntoIterator<Item = Ticket>) {
        for t in tickets {
            self.call(|r, store| r.release(t, store));
        }
        self.ended.clear();
        assert!(self.reads.is_idle());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Good,
    Unreadable,
    Older,
    Away,
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        3 => Just(How::Good),
        1 => Just(How::Unreadable),
        1 => Just(How::Older),
        1 => Just(How::Away),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// The right bytes of the right version wherever enough shards have them; an error where these are too few; and it waits for those
    /// that are away where they would be enough.
    #[test]
    fn a_range_is_read_as_long_as_enough_shards_have_it(
        (k, m) in (1..=4usize, 1..=3usize),
        own in 0..7usize,
        size in 1..150u64,
        (at, len) in (0..150u64, 1..150u64),
        shards in proptest::collection::vec(how(), 7),
        picks in proptest::collection::vec(0..7usize, 60),
    ) {
        let own = own % (k + m);
        let mut w = World::new(k, m, own);
        let new = bytes(size as usize, 0);
        w.put("a", &new, v(5));
        let of = |n: usize| match shards[n] {
            How::Older | How::Away if n == own => How::Good,
            how => how,
        };
        let oid = w.oid("a");
        for n in 0..k + m {
            match of(n) {
                How::Good => {}
                How::Unreadable => w.stores[n].spoil(&on_shard(&oid, n), 0),
                How::Older => w.put_on(&[n], "a", &bytes(size as usize, 0x55), v(4)),
                How::Away => w.call(|r, store| r.lost(osd(n), store)),
            }
        }
        let at = at % size;
        let len = len.min(size - at);
        let first = w.coding.layout.pieces(at, len.min(w.coding.layout.stripe()));
        let wanted: Vec<usize> = first.map(|p| p.shard).collect();
        let ticket = w.begin("a", v(5), at, len).unwrap();
        let mut picks = picks.into_iter().cycle();
        while !w.open.is_empty() {
            w.answer(picks.next().unwrap());
        }
        let has = |n: usize, away: bool| of(n) == How::Good || away && of(n) == How::Away;
        let enough = |away: bool| {
            let left = (0..k + m).filter(|n| has(*n, away)).count();
            wanted.iter().all(|n| has(*n, away)) || left >= k
        };
        let right = Held::Here(Bytes::copy_from_slice(&new[at as usize..(at + len) as usize]));
        let (now, then) = (enough(false), enough(true));
        let got = w.value("a", v(5), at, len);
        let away = (0..k + m).any(|n| of(n) == How::Away);
        match (now, then, &got) {
            (true, ..) => prop_assert_eq!(&got, &right),
            (false, true, _) => prop_assert_eq!(&got, &Held::Lacks),
            // Those that were not asked yet may be good, as far as it knows.
            (false, false, Held::Lacks) => prop_assert!(away),
            (false, false, _) => prop_assert_eq!(&got, &Held::Failed),
        }
        prop_assert_eq!(w.ended.len(), usize::from(got != Held::Lacks), "it is told once");
        for n in 0..k + m {
            w.call(|r, store| r.back(osd(n), store));
        }
        w.answer_all();
        prop_assert_eq!(w.value("a", v(5), at, len), if then { right } else { Held::Failed });
        prop_assert_eq!(std::mem::take(&mut w.ended), vec![ticket]);
        prop_assert_eq!(w.value("a", v(4), at, len), Held::Lacks);
        w.release_all([ticket]);
    }
}

/// That the test above sees it where units are mixed: a shard that names the wrong version for what it has.
#[test]
fn mixed_units_would_be_seen() {
    let mut w = World::new(2, 1, 0);
    let new = bytes(32, 0);
    w.put("a", &new, v(5));
    w.put_on(&[1], "a", &bytes(32, 0x55), v(5));
    let ticket = w.begin("a", v(5), 0, 32).unwrap();
    w.answer_all();
    let Held::Here(got) = w.value("a", v(5), 0, 32) else {
        panic!("it has come")
    };
    assert_ne!(got, new[..]);
    w.release_all([ticket]);
}

#[test]
fn a_read_ends_when_its_object_is_written() {
    let mut w = World::new(2, 1, 0);
    w.put("a", &bytes(32, 0), v(5));
    let ticket = w.begin("a", v(5), 0, 32).unwrap();
    w.put("a", &bytes(32, 1), v(6));
    w.answer_all();
    assert_eq!(w.ended, [ticket]);
    assert_eq!(w.value("a", v(5), 0, 32), Held::Lacks);
    assert_eq!(w.value("a", v(6), 0, 32), Held::Lacks);
    let again = w.begin("a", v(6), 0, 32).unwrap();
    w.answer_all();
    assert_eq!(
        w.value("a", v(6), 3, 9),
        Held::Here(bytes(32, 1)[3..12].to_vec().into())
    );
    w.release_all([ticket, again]);
}

/// What has come of an older version is let go as soon as a newer one is asked for.
#[test]
fn what_is_older_is_not_kept() {
    let mut w = World::new(2, 1, 0);
    w.put("a", &bytes(32, 0), v(5));
    let old = w.begin("a", v(5), 0, 32).unwrap();
    w.answer_all();
    let (_, before) = w.reads.going();
    w.put("a", &bytes(32, 1), v(6));
    let new = w.begin("a", v(6), 0, 32).unwrap();
    assert_eq!(w.reads.going(), (1, before));
    assert_eq!(w.value("a", v(5), 0, 32), Held::Lacks);
    w.answer_all();
    w.release_all([old, new]);
}

#[test]
fn a_connection_that_is_lost_is_made_up_for() {
    let mut w = World::new(2, 2, 0);
    let data = bytes(32, 0);
    w.put("a", &data, v(5));
    let ticket = w.begin("a", v(5), 0, 32).unwrap();
    assert_eq!(w.open.iter().map(|a| a.shard).collect::<Vec<_>>(), [1]);
    w.open.clear();
    w.call(|r, store| r.lost(osd(1), store));
    assert_eq!(w.open.iter().map(|a| a.shard).collect::<Vec<_>>(), [2]);
    // An answer of the connection before is none.
    w.call(|r, store| assert!(!r.said(osd(1), ticket, v(5), Some(Bytes::new()), store)));
    w.answer_all();
    assert_eq!(w.value("a", v(5), 0, 32), Held::Here(data.into()));
    w.release_all([ticket]);
}

/// Who is not in sync any more is not waited for.
#[test]
fn a_read_fails_where_too_few_are_left() {
    let mut w = World::new(2, 1, 0);
    w.put("a", &bytes(32, 0), v(5));
    let ticket = w.begin("a", v(5), 0, 32).unwrap();
    for n in [1, 2] {
        w.call(|r, store| r.lost(osd(n), store));
    }
    assert!(w.ended.is_empty());
    w.call(|r, store| r.set_sources(vec![(0, osd(0))], store));
    assert_eq!(w.ended, [ticket]);
    assert_eq!(w.value("a", v(5), 0, 32), Held::Failed);
    w.release_all([ticket]);
}

#[test]
fn who_cannot_read_is_named() {
    let mut w = World::new(2, 1, 0);
    w.put("a", &bytes(32, 0), v(5));
    let oid = w.oid("a");
    w.stores[1].spoil(&on_shard(&oid, 1), 0);
    let ticket = w.begin("a", v(5), 0, 32).unwrap();
    w.answer_all();
    assert_eq!(w.value("a", v(5), 0, 32), Held::Here(bytes(32, 0).into()));
    assert_eq!(w.reads.take_bad(), [(oid.object, 1)]);
    w.release_all([ticket]);
}

/// However many are begun and never let go of: few are under way at a time, and all come.
#[test]
fn few_reads_are_under_way_and_none_waits_for_ever() {
    let mut w = World::new(2, 1, 0);
    let data = bytes(4000, 0);
    w.put("a", &data, v(5));
    let tickets: Vec<Ticket> = (0..300)
        .map(|n| w.begin("a", v(5), n * 13, 40).unwrap())
        .collect();
    assert_eq!(w.reads.going().0, 64);
    while !w.open.is_empty() {
        assert!(w.open.len() <= 64);
        w.answer(0);
    }
    assert_eq!(w.ended.len(), tickets.len());
    for n in 0..300u64 {
        let at = (n * 13) as usize;
        assert_eq!(
            w.value("a", v(5), n * 13, 40),
            Held::Here(data[at..at + 40].to_vec().into())
        );
    }
    w.release_all(tickets);
    // And few bytes.
    let tickets: Vec<Ticket> = (0..300).map(|_| w.begin("a", v(5), 0, 4000).unwrap()).collect();
    assert!(w.reads.going().1 <= 64 << 10, "{:?}", w.reads.going());
    w.answer_all();
    assert_eq!(w.ended.len(), tickets.len());
    w.release_all(tickets);
}

#[test]
fn the_own_shard_is_read_beside_the_loop() {
    let mut w = World::new(2, 1, 1);
    w.put("a", &bytes(32, 0), v(5));
    w.stores[1].cold = Some(Cold::new(0));
    let first = w.begin("a", v(5), 0, 32).unwrap();
    let second = w.begin("a", v(5), 0, 8).unwrap();
    let third = w.begin("a", v(5), 8, 8).unwrap();
    w.answer_all();
    assert_eq!(w.ended, [second], "nothing of it lies here");
    let reading = w.stores[1].cold.as_ref().unwrap().reading();
    assert_eq!(reading.len(), 2);
    w.stores[1].cold.as_mut().unwrap().end(reading[0]);
    assert!(w.call(|r, store| r.own_read_ended(reading[0], store)));
    assert_eq!(w.ended, [second, first]);
    assert_eq!(w.value("a", v(5), 0, 32), Held::Here(bytes(32, 0).into()));
    assert_eq!(w.stores[1].cold.as_ref().unwrap().blocked, 0);
    // One is let go of before it has come.
    w.release_all([first, second, third]);
    assert_eq!(w.stores[1].cold.as_ref().unwrap().held(), 0);
    assert!(!w.call(|r, store| r.own_read_ended(reading[1], store)));
}

#[test]
fn nothing_outlives_an_interval() {
    let mut w = World::new(2, 1, 0);
    w.put("a", &bytes(32, 0), v(5));
    let here = w.begin("a", v(5), 0, 32).unwrap();
    w.answer_all();
    let going = w.begin("a", v(5), 0, 32).unwrap();
    w.ended.clear();
    w.call(|r, _| r.interval_changed());
    assert_eq!(w.ended, [going]);
    assert_eq!(w.value("a", v(5), 0, 32), Held::Lacks);
    let late = w.open.pop().unwrap();
    w.call(|r, store| assert!(!r.said(late.to, late.token, v(5), Some(Bytes::new()), store)));
    w.release_all([here, going]);
}

/// A shard's units are made of the others', which are asked without it.
#[test]
fn units_of_one_shard_are_made_of_others() {
    let mut w = World::new(2, 2, 0);
    w.put("a", &bytes(40, 0), v(5));
    for shard in 0..4 {
        let oid = w.oid("a");
        let what = What {
            oid: oid.clone(),
            version: v(5),
            stripes: 0..3,
            wanted: vec![shard],
            without: vec![shard],
        };
        let ticket = w.call(|r, store| r.begin_units(what, store));
        assert!(w.open.iter().all(|a| a.shard != shard));
        w.answer_all();
        let units = w.reads.take_units(ticket).unwrap();
        let mut want = w.stores[shard]
            .read(&on_shard(&oid, shard), 0, 24)
            .unwrap()
            .to_vec();
        want.resize(24, 0);
        assert_eq!(units, [want], "shard {shard}");
        w.release_all([ticket]);
    }
}

#[test]
fn what_is_gathered_is_asked_for_first_and_ends_with_the_object() {
    let mut w = World::new(2, 1, 0);
    let data = bytes(45, 0);
    w.put("a", &data, v(5));
    let oid = w.oid("a");
    let read = Read::bytes(30, 100);
    let gather = |w: &mut World| {
        let mut gathered = Gathered::default();
        w.call(|r, store| r.gather(&oid, &[read], store, &mut gathered));
        gathered
    };
    assert_eq!(gather(&mut w).take_lacking(), [read]);
    let ticket = w.call(|r, store| r.prefetch(&oid, 30, 100, store)).unwrap();
    w.answer_all();
    let mut got = gather(&mut w);
    assert_eq!(got.take_lacking(), []);
    assert_eq!(got.bytes(&mut 0, 30, 100).unwrap().unwrap(), data[30..]);
    assert_eq!(
        w.call(|r, store| r.prefetch(&oid, 45, 9, store)),
        None,
        "nothing is there"
    );
    assert_eq!(w.call(|r, store| r.prefetch(&oid, u64::MAX, 9, store)), None);
    w.release_all([ticket]);
}

/// A write asks for what it leaves of its stripes, and is cut out of that.
#[test]
fn a_write_is_cut_out_of_what_has_come() {
    let mut w = World::new(2, 1, 1);
    let mut data = bytes(100, 0);
    w.put("a", &data, v(5));
    let oid = w.oid("a");
    let info = ObjectInfo {
        version: v(6),
        ..Default::default()
    };
    let txn = Transaction {
        collection: spg(1),
        ops: vec![
            Op::Write {
                oid: oid.clone(),
                offset: 20,
                data: Bytes::from_static(&[9; 50]),
            },
            Op::SetAttrs {
                oid: oid.clone(),
                attrs: vec![(Bytes::from_static(INFO_ATTR), info.to_bytes())],
            },
        ],
    };
    let coding = w.coding.clone();
    let cut = |w: &mut World| w.call(|r, store| cut_here(&txn, &coding, r, store)).unwrap();
    let Cut::Lacks(lacks) = cut(&mut w) else {
        panic!("nothing is here")
    };
    let ranges: Vec<(u64, u64)> = lacks.iter().map(|l| (l.offset, l.len)).collect();
    assert_eq!(
        ranges,
        [(16, 16), (64, 16)],
        "the first and the last of its stripes"
    );
    let begin = |w: &mut World, l: &crate::backend::Lack| {
        w.call(|r, store| r.prefetch(&l.oid, l.offset, l.len, store))
    };
    let tickets: Vec<Ticket> = lacks.iter().map(|l| begin(&mut w, l).unwrap()).collect();
    w.answer_all();
    let Cut::Done(shards, changes) = cut(&mut w) else {
        panic!("all is here")
    };
    for (store, txn) in w.stores.iter_mut().zip(&shards) {
        store.submit(txn).unwrap();
    }
    data[20..70].fill(9);
    let before = w.value("a", v(6), 16, 16);
    assert_eq!(before, Held::Lacks);
    w.call(|r, store| r.keep(changes, store));
    // What was written is here, and need not be asked for.
    assert_eq!(
        w.value("a", v(6), 64, 16),
        Held::Here(data[64..80].to_vec().into())
    );
    assert_eq!(w.call(|r, store| r.prefetch(&oid, 65, 3, store)), None);
    w.call(|r, _| r.interval_changed());
    w.ended.clear();
    assert!(matches!(cut(&mut w), Cut::Lacks(_)), "of the version before");
    w.release_all(tickets);
    for without in 0..3 {
        let what = What {
            oid: oid.clone(),
            version: v(6),
            stripes: 0..7,
            wanted: vec![0, 1],
            without: vec![without],
        };
        let ticket = w.call(|r, store| r.begin_units(what, store));
        w.answer_all();
        assert_eq!(
            w.value("a", v(6), 0, 100),
            Held::Here(data.clone().into()),
            "without {without}"
        );
        w.release_all([ticket]);
    }
}

mod member {
    use super::*;
    use types::Errno;

    fn question(w: &World, asker: OsdId, len: u64) -> Question {
        Question {
            asker,
            interval: 4,
            token: 8,
            object: w.oid("a").object,
            offset: 0,
            len,
        }
    }

    fn result(answer: Option<(OsdId, u32, PeerBody)>) -> (OsdId, i32, EVersion, Bytes) {
        match answer {
            Some((
                to,
                4,
                PeerBody::Units {
                    token: 8,
                    result,
                    version,
                    data,
                },
            )) => (to, result, version, data),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_answers_with_the_version_that_it_has() {
        let mut w = World::new(2, 1, 0);
        let (mut units, id) = (UnitReads::default(), spg(1));
        let ask = |w: &mut World, units: &mut UnitReads, q: Question| units.ask(id, q, &mut w.stores[1]);
        let q = question(&w, 1, 8);
        assert_eq!(result(ask(&mut w, &mut units, q.clone())).1, Errno::ENOENT.code());
        w.put("a", &bytes(32, 0), v(5));
        let (to, ok, version, data) = result(ask(&mut w, &mut units, q.clone()));
        assert_eq!((to, ok, version), (1, 0, v(5)));
        assert_eq!(data, bytes(32, 0)[8..16]);
        let mut other = q.clone();
        other.object.pool = POOL + 1;
        assert_eq!(result(ask(&mut w, &mut units, other)).1, Errno::EINVAL.code());
        let much = question(&w, 1, u64::MAX);
        assert_eq!(result(ask(&mut w, &mut units, much)).1, Errno::EINVAL.code());
        let oid = on_shard(&w.oid("a"), 1);
        w.stores[1].spoil(&oid, 0);
        assert_eq!(result(ask(&mut w, &mut units, q)).1, Errno::EIO.code());
    }

    #[test]
    fn it_waits_for_the_disk_and_releases_what_it_holds() {
        let mut w = World::new(2, 1, 0);
        w.put("a", &bytes(32, 0), v(5));
        w.stores[1].cold = Some(Cold::new(0));
        let (mut units, id) = (UnitReads::default(), spg(1));
        for asker in [1, 2, 3] {
            let q = question(&w, asker, 8);
            assert!(units.ask(id, q, &mut w.stores[1]).is_none());
        }
        units.disconnected(2);
        assert_eq!(units.askers().collect::<Vec<_>>(), [(1, 4), (3, 4)]);
        let reading = w.stores[1].cold.as_ref().unwrap().reading();
        // The object is written meanwhile: what is told is of one version.
        w.put("a", &bytes(32, 1), v(6));
        for (n, ticket) in reading[..2].iter().enumerate() {
            w.stores[1].cold.as_mut().unwrap().end(*ticket);
            let answer = units
                .ended(id, *ticket, &mut w.stores[1])
                .expect("it is one of these");
            match n {
                0 => {
                    let (to, _, version, data) = result(answer);
                    assert_eq!(
                        (to, version, data),
                        (1, v(6), bytes(32, 1)[8..16].to_vec().into())
                    );
                }
                _ => assert!(answer.is_none(), "nobody hears it"),
            }
        }
        assert!(units.ended(id, reading[0], &mut w.stores[1]).is_none());
        units.leave(&mut w.stores[1]);
        assert_eq!(w.stores[1].cold.as_ref().unwrap().held(), 0);
    }

    #[test]
    fn beyond_the_bound_it_reads_at_once() {
        let mut w = World::new(2, 1, 0);
        w.put("a", &bytes(32, 0), v(5));
        w.stores[1].cold = Some(Cold::new(0));
        let mut units = UnitReads::default();
        let q = question(&w, 1, 8);
        let answered = (0..200).filter(|_| units.ask(spg(1), q.clone(), &mut w.stores[1]).is_some());
        assert_eq!(answered.count(), 200 - 128);
        units.leave(&mut w.stores[1]);
        assert_eq!(w.stores[1].cold.as_ref().unwrap().held(), 0);
    }
}
