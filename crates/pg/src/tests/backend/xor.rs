//! A tiny back end of shards: two of data, one of parity, which is the one XOR the other. Shard 0 lies in the PG's own store, the
//! others in memory here, where their messages would go to in a real one.
//!
//! A shard is an object of the full size in which only the shard's own units are written: unit 0 of each stripe on shard 0,
//! unit 1 on shard 1, parity on shard 2 in the place of unit 0. Attributes and log are on every shard. A read of data is
//! *asked for* first, comes, and is gathered then: what nobody asked for is not there, and neither is what came of another version of the
//! object. So it is with the stripes of which a write changes a part.

use super::*;
use crate::api::Word;
use crate::backend::digest::{Walk, version_now};
use crate::backend::erasure::cut::{self, Before, Coding};
use crate::backend::findings::{Inconsistent, Side, shard_error};
use crate::backend::group::Group;
use crate::backend::reports::{CopyNeed, Kin, MemberState};
use crate::backend::{Lack, Look};
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::{ObjectDigest, ScrubBody};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes of one unit.
const UNIT: usize = 16;
const STRIPE: usize = 2 * UNIT;

/// One of the two shards that are not the PG's own.
#[derive(Debug)]
struct Shard {
    /// With all that was sent there.
    store: MemoryStore,
    /// With what is durable there.
    flushed: MemoryStore,
    /// The newest transaction of the PG in either.
    newest: (Seq, Seq),
    here: bool,
    /// What was not sent while it was away, in order.
    missed: VecDeque<(Seq, Transaction)>,
}

impl Shard {
    fn take(&mut self, seq: Seq, txn: Transaction) {
        self.store.submit(&txn).unwrap();
        self.newest.0 = seq;
    }
}

/// A range of an object that was asked for when the object had this version.
#[derive(Debug, Clone)]
pub(in crate::tests) struct Asked {
    oid: ObjectId,
    version: EVersion,
    at: u64,
    len: u64,
    /// It cannot be had.
    fails: bool,
}

/// The two shards, and reads of them that are under way.
#[derive(Debug)]
pub(in crate::tests) struct Far {
    shards: [Shard; 2],
    /// What was asked for and has not come.
    pub(in crate::tests) asked: BTreeMap<Ticket, Asked>,
    come: BTreeMap<Ticket, Asked>,
    last: Ticket,
    /// Nothing comes by itself.
    pub(in crate::tests) held: bool,
    /// What is asked for from now on cannot be had.
    pub(super) fails: bool,
    /// What has come is not there any more.
    pub(super) forgets: bool,
    /// Submits that lacked something.
    pub(super) lacked: usize,
}

/// How a range stands.
enum Stand {
    Here,
    Fails,
    Lacks,
}

#[derive(Debug)]
pub(super) struct Xor {
    group: Group,
    durable: Seq,
    confirmed: Seq,
    number: u64,
    pub(super) far: Rc<RefCell<Far>>,
    /// Whether the shards of an object fitted one another when they were looked at last.
    fits: BTreeMap<HObject, bool>,
    lacking: Vec<Lack>,
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// The steps that give a shard's object its part of `content`. Behind the object's end all is zeros, and so is parity: nothing is
/// lost by the cut.
fn shard_steps(oid: &ObjectId, content: &[u8], shard: usize) -> Vec<Op> {
    let cut = |size| Op::Truncate {
        oid: oid.clone(),
        size,
    };
    let mut raw = Vec::new();
    for stripe in content.chunks(STRIPE) {
        let mut full = stripe.to_vec();
        full.resize(STRIPE, 0);
        let (a, b) = full.split_at(UNIT);
        let none = vec![0; UNIT];
        raw.extend(match shard {
            0 => [a.to_vec(), none],
            1 => [none, b.to_vec()],
            _ => [xor(a, b), none],
        });
    }
    vec![
        Op::Touch { oid: oid.clone() },
        cut(0),
        write_op(oid, 0, &raw.concat()),
        cut(content.len() as u64),
    ]
}

/// The shard's units of an object, one behind the other, and the object's size.
fn part(store: &mut dyn ObjectStore, oid: &ObjectId, shard: usize) -> Option<(Vec<u8>, u64)> {
    let size = store.stat(oid).unwrap()?.size;
    let mut raw = store.read(oid, 0, size).ok()?.to_vec();
    raw.resize((size as usize).div_ceil(STRIPE) * STRIPE, 0);
    let skip = if shard == 1 { UNIT } else { 0 };
    Some((
        raw.chunks(STRIPE)
            .flat_map(|s| s[skip..skip + UNIT].to_vec())
            .collect(),
        size,
    ))
}

/// The object out of any two shards.
fn join(parts: [Option<(Vec<u8>, u64)>; 3]) -> Option<Bytes> {
    let (a, b, size) = match parts {
        [Some((a, size)), Some((b, _)), _] => (a, b, size),
        [Some((a, size)), None, Some((p, _))] => (a.clone(), xor(&a, &p), size),
        [None, Some((b, size)), Some((p, _))] => (xor(&b, &p), b, size),
        _ => return None,
    };
    let mut all: Vec<u8> = Vec::new();
    for (a, b) in a.chunks(UNIT).zip(b.chunks(UNIT)) {
        all.extend_from_slice(a);
        all.extend_from_slice(b);
    }
    all.truncate(size as usize);
    Some(all.into())
}

impl Far {
    pub(super) fn new(first: &MemoryStore) -> Rc<RefCell<Self>> {
        let shard = || Shard {
            store: first.clone(),
            flushed: first.clone(),
            newest: (0, 0),
            here: true,
            missed: VecDeque::new(),
        };
        Rc::new(RefCell::new(Self {
            shards: [shard(), shard()],
            asked: BTreeMap::new(),
            come: BTreeMap::new(),
            last: 1 << 40,
            held: false,
            fails: false,
            forgets: false,
            lacked: 0,
        }))
    }

    pub(in crate::tests) fn flush(&mut self, osd: OsdId) {
        let s = &mut self.shards[osd as usize - 1];
        if s.here {
            s.flushed = s.store.clone();
            s.newest.1 = s.newest.0;
        }
    }

    pub(super) fn set_here(&mut self, osd: OsdId, here: bool) {
        let s = &mut self.shards[osd as usize - 1];
        s.here = here;
        while let Some((seq, txn)) = s.missed.pop_front_if(|_| here) {
            s.take(seq, txn);
        }
        if !here {
            // What was not durable there does not outlive it, and is sent again.
            (s.store, s.newest.0) = (s.flushed.clone(), s.newest.1);
        }
    }

    /// What was not released.
    pub(super) fn holds(&self) -> usize {
        self.asked.len() + self.come.len()
    }

    /// Reads that were asked for so far.
    pub(super) fn begun(&self) -> u64 {
        self.last - (1 << 40)
    }

    /// Whether a range of the object as it is now has come. What lies behind the object's end need not.
    fn stand(&self, oid: &ObjectId, at: u64, end: u64, store: &mut dyn ObjectStore) -> Stand {
        let size = store.stat(oid).unwrap().map_or(0, |s| s.size);
        let (end, version) = (end.min(size), version_now(oid, store));
        if end <= at {
            return Stand::Here;
        }
        let covers = |a: &&Asked| {
            !self.forgets && a.oid == *oid && a.version == version && a.at <= at && end <= a.at + a.len
        };
        let found: Vec<&Asked> = self.come.values().filter(covers).collect();
        match found.is_empty() {
            true => Stand::Lacks,
            false if found.iter().all(|a| a.fails) => Stand::Fails,
            false => Stand::Here,
        }
    }

    /// The object as two of those that are here have it.
    fn content(&mut self, own: &mut dyn ObjectStore, oid: &ObjectId) -> Option<Bytes> {
        let [one, two] = &mut self.shards;
        let one = one.here.then(|| part(&mut one.store, oid, 1)).flatten();
        let two = two.here.then(|| part(&mut two.store, oid, 2)).flatten();
        join([part(own, oid, 0), one, two])
    }
}

impl Xor {
    pub(super) fn new(group: Group, far: Rc<RefCell<Far>>) -> Self {
        Self {
            group,
            durable: 0,
            confirmed: 0,
            number: 0,
            far,
            fits: BTreeMap::new(),
            lacking: Vec::new(),
        }
    }

    /// The stripes that a cut of the transaction needs and that have not come.
    fn lacks(&self, txn: &Transaction, own: &mut dyn ObjectStore) -> Result<Vec<Lack>, Errno> {
        let omap = |op: &&Op| !matches!(op, Op::OmapSet { .. } | Op::OmapSetHeader { .. });
        let txn = Transaction {
            collection: txn.collection,
            ops: txn.ops.iter().filter(omap).cloned().collect(),
        };
        let far = &mut *self.far.borrow_mut();
        let coding = Coding::new(2, 1, UNIT as u64).unwrap();
        let mut old = Old {
            far,
            own,
            lacks: Vec::new(),
        };
        let cut = cut::cut(&txn, &coding, &mut old);
        old.far.lacked += usize::from(!old.lacks.is_empty());
        cut.map(|_| old.lacks).map_err(|_| Errno::EIO)
    }

    fn confirm(&mut self) {
        let far = self.far.borrow();
        let of = |osd: &OsdId| match osd {
            0 => self.durable,
            n => far.shards[*n as usize - 1].newest.1,
        };
        let all = self.group.in_sync.iter().map(of).min().unwrap_or(0);
        self.confirmed = self.confirmed.max(all);
    }

    /// Cuts a transaction into one for each shard. An object whose data changes is written whole: this is small.
    fn cut(&self, txn: &Transaction, own: &mut dyn ObjectStore) -> [Transaction; 3] {
        let mut far = self.far.borrow_mut();
        let mut now: BTreeMap<ObjectId, Option<Vec<u8>>> = BTreeMap::new();
        let mut out = [(); 3].map(|()| Transaction::new(txn.collection));
        for op in &txn.ops {
            let mut get = |oid: &ObjectId| {
                let load = || far.content(own, oid).map(|c| c.to_vec());
                now.get(oid).cloned().unwrap_or_else(load)
            };
            let data = match op {
                Op::Write { oid, offset, data } => Some((oid, put_at(get(oid), *offset, data))),
                Op::Zero { oid, offset, len } => {
                    Some((oid, put_at(get(oid), *offset, &vec![0; *len as usize])))
                }
                Op::Truncate { oid, size } => {
                    let mut content = get(oid).unwrap_or_default();
                    content.resize(*size as usize, 0);
                    Some((oid, content))
                }
                Op::CloneRange {
                    src,
                    dst,
                    src_offset,
                    len,
                    dst_offset,
                } => {
                    let from = get(src).unwrap_or_default();
                    let end = ((src_offset + len) as usize).min(from.len());
                    Some((
                        dst,
                        put_at(get(dst), *dst_offset, &from[*src_offset as usize..end]),
                    ))
                }
                Op::Clone { src, dst } | Op::Rename { src, dst } => {
                    let content = get(src);
                    now.insert(dst.clone(), content);
                    None
                }
                Op::Remove { oid } => {
                    now.insert(oid.clone(), None);
                    None
                }
                _ => None,
            };
            for (shard, txn) in out.iter_mut().enumerate() {
                match &data {
                    Some((oid, content)) => txn.ops.extend(shard_steps(oid, content, shard)),
                    None => txn.ops.push(op.clone()),
                }
            }
            if let Some((oid, content)) = data {
                now.insert(oid.clone(), Some(content));
            }
        }
        out
    }
}

/// What was there before a transaction, as far as it has come.
struct Old<'a> {
    far: &'a mut Far,
    own: &'a mut dyn ObjectStore,
    lacks: Vec<Lack>,
}

impl Before for Old<'_> {
    fn size(&mut self, oid: &ObjectId) -> Result<Option<u64>, IoError> {
        Ok(self.own.stat(oid)?.map(|s| s.size))
    }

    fn stripe(&mut self, oid: &ObjectId, stripe: u64) -> Result<Vec<u8>, IoError> {
        let (offset, len) = (stripe * STRIPE as u64, STRIPE as u64);
        match self.far.stand(oid, offset, offset + len, self.own) {
            Stand::Fails => return Err(IoError(format!("{}: too few shards", oid.object))),
            Stand::Lacks => {
                let oid = oid.clone();
                self.lacks.push(Lack { oid, offset, len });
                return Ok(vec![0; STRIPE]);
            }
            Stand::Here => {}
        }
        let all = self.far.content(self.own, oid).unwrap_or_default();
        let end = all.len().min(offset as usize + STRIPE);
        let mut bytes = all[end.min(offset as usize)..end].to_vec();
        bytes.resize(STRIPE, 0);
        Ok(bytes)
    }
}

fn put_at(content: Option<Vec<u8>>, at: u64, bytes: &[u8]) -> Vec<u8> {
    let mut content = content.unwrap_or_default();
    let (at, end) = (at as usize, at as usize + bytes.len());
    content.resize(content.len().max(end), 0);
    content[at..end].copy_from_slice(bytes);
    content
}

impl Backend for Xor {
    fn group(&self) -> &Group {
        &self.group
    }
    fn set_group(&mut self, group: Group, _: &mut Lent<'_>) {
        self.group = group;
        self.confirm();
    }
    fn peer_up(&mut self, osd: OsdId, _: &mut Lent<'_>) {
        self.far.borrow_mut().set_here(osd, true);
    }
    fn peer_down(&mut self, osd: OsdId, _: &mut Lent<'_>) {
        self.far.borrow_mut().set_here(osd, false);
    }
    fn is_active(&self) -> bool {
        self.group.is_enough()
    }
    fn all_full(&self) -> bool {
        let far = self.far.borrow();
        far.shards.iter().all(|s| s.here && s.missed.is_empty())
    }
    fn members(&self, _: &PgState) -> Vec<MemberState> {
        Vec::new()
    }
    fn is_shared(&self) -> bool {
        false
    }

    fn prefetch(&mut self, oid: &ObjectId, at: u64, len: u64, lent: &mut Lent<'_>) -> Option<Ticket> {
        let mut far = self.far.borrow_mut();
        far.last += 1;
        let ticket = far.last;
        let asked = Asked {
            oid: oid.clone(),
            version: version_now(oid, lent.store),
            at,
            len,
            fails: far.fails,
        };
        far.asked.insert(ticket, asked);
        Some(ticket)
    }
    fn release(&mut self, ticket: Ticket, _: &mut dyn ObjectStore) {
        let mut far = self.far.borrow_mut();
        let known = far.asked.remove(&ticket).is_some() || far.come.remove(&ticket).is_some();
        assert!(known, "released once");
    }
    fn read_ended(&mut self, ticket: Ticket, lent: &mut Lent<'_>) -> bool {
        let mut far = self.far.borrow_mut();
        let asked = far.asked.remove(&ticket);
        if let Some(what) = asked {
            far.come.insert(ticket, what);
            lent.front.came(ticket);
        }
        ticket > 1 << 40
    }
    fn gather(&self, oid: &ObjectId, reads: &[Read], store: &mut dyn ObjectStore, into: &mut Gathered) {
        let mut far = self.far.borrow_mut();
        let all = far.content(store, oid).unwrap_or_default();
        for read in reads {
            let end = read.end().min(all.len() as u64);
            let value = match far.stand(oid, read.offset, end, store) {
                Stand::Here => Ok(Value::Bytes(
                    all.slice(read.offset.min(end) as usize..end as usize),
                )),
                Stand::Fails => Err(IoError(format!("{oid:?}: {read:?} cannot be had"))),
                Stand::Lacks => {
                    into.lack(*read);
                    continue;
                }
            };
            into.add(*read, value);
        }
    }

    fn submit(&mut self, txn: Transaction, _: Option<&HObject>, lent: &mut Lent<'_>) -> Result<Seq, Errno> {
        self.lacking = self.lacks(&txn, lent.store)?;
        if !self.lacking.is_empty() {
            return Err(Errno::EAGAIN);
        }
        let [own, one, two] = self.cut(&txn, lent.store);
        let seq = lent.store.submit(&own)?;
        lent.pg.last_seq = seq;
        let mut far = self.far.borrow_mut();
        for (shard, txn) in far.shards.iter_mut().zip([one, two]) {
            match shard.here {
                true => shard.take(seq, txn),
                false => shard.missed.push_back((seq, txn)),
            }
        }
        Ok(seq)
    }
    fn take_lacking(&mut self) -> Vec<Lack> {
        std::mem::take(&mut self.lacking)
    }
    fn durable(&mut self, seq: Seq, _: &mut Lent<'_>) {
        self.durable = self.durable.max(seq);
        self.confirm();
    }
    fn confirmed(&self) -> Seq {
        self.confirmed
    }
    fn take_word(&mut self) -> Option<Word> {
        None
    }
    fn waits_for_durability(&self) -> bool {
        false
    }

    fn hears(&self, _: OsdId, _: i8, interval: Epoch) -> bool {
        interval == self.group.interval
    }
    fn on_message(&mut self, _: OsdId, _: PeerBody, _: &mut Lent<'_>) -> Option<ScrubBody> {
        self.confirm();
        None
    }

    fn recover(&mut self, _: &mut Lent<'_>) {
        self.confirm();
    }
    fn next_timer(&self) -> Option<Duration> {
        None
    }
    fn tick(&mut self, _: &mut Lent<'_>) {}
    fn wants_to_copy(&self) -> Option<CopyNeed> {
        None
    }
    fn grant(&mut self, _: usize, _: &mut Lent<'_>) {}
    fn turn_begins(&mut self, _: Whose, _: TurnId, _: &mut Lent<'_>) -> bool {
        false
    }
    fn repair_dropped(&mut self, _: u64, _: &mut Lent<'_>) {}
    fn leave(&mut self, _: &mut Lent<'_>) {}

    fn damaged(&mut self, _: &HObject, _: &mut Lent<'_>) -> bool {
        false
    }
    fn digest(
        &mut self,
        from: &HObject,
        to: &HObject,
        deep: bool,
        lent: &mut Lent<'_>,
    ) -> Result<Look, IoError> {
        let own = Walk::begin(&lent.pg.object_id(from.clone()), to, deep, lent.store)?;
        self.number += 1;
        // The sums of shards cannot be compared with one another: whether they fit is looked at here, for one object.
        let oid = lent.pg.object_id(to.clone());
        let mut far = self.far.borrow_mut();
        let [one, two] = &mut far.shards;
        let parts = (
            part(lent.store, &oid, 0),
            part(&mut one.store, &oid, 1),
            part(&mut two.store, &oid, 2),
        );
        let fits = match parts {
            (Some((a, _)), Some((b, _)), Some((p, _))) => xor(&a, &b) == p,
            (None, None, None) => true,
            _ => false,
        };
        self.fits.insert(to.clone(), fits);
        Ok(Look {
            token: self.number,
            own,
            asked: vec![1, 2],
        })
    }
    fn judge(&self, object: &HObject, sides: &[(OsdId, Option<&ObjectDigest>)]) -> Option<Inconsistent> {
        let same = sides.windows(2).all(|w| match (w[0].1, w[1].1) {
            (Some(a), Some(b)) => {
                (a.version, a.size, a.attrs, a.faults) == (b.version, b.size, b.attrs, b.faults)
            }
            _ => false,
        });
        if same && self.fits[object] {
            return None;
        }
        // Parity tells that one is wrong, not which.
        let side = |(osd, digest): &(OsdId, Option<&ObjectDigest>)| Side {
            osd: *osd,
            shard: *osd as i8,
            digest: digest.cloned(),
            errors: shard_error::READ,
            bad: true,
        };
        Some(Inconsistent {
            object: object.clone(),
            errors: 0,
            sides: sides.iter().map(side).collect(),
            good: None,
            shallow: 0,
            deep: 1,
        })
    }
    fn mend(&mut self, _: HObject, _: &[Inconsistent], token: u64, lent: &mut Lent<'_>) {
        lent.front.checked(token);
    }
    fn drop_mending(&mut self, _: Option<u64>, _: &mut Lent<'_>) {}
    fn repaired(&self) -> u64 {
        0
    }
    fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
    fn split(&mut self, _: &mut Lent<'_>) {}
    fn kin(&self, _: &PgState) -> Kin {
        Kin::default()
    }
    fn has_kept(&self, _: &Kin, _: &PgState) -> bool {
        false
    }
}

pub(super) struct Shards {
    backend: Xor,
    pg: PgState,
    front: FreeTurns,
    store: MemoryStore,
    flushed: MemoryStore,
    out: Vec<Output>,
}

impl Shards {
    fn far(&self) -> std::cell::RefMut<'_, Far> {
        self.backend.far.borrow_mut()
    }
}

impl World for Shards {
    fn new() -> Self {
        let mut store = MemoryStore::default();
        let ops = vec![Op::CreateCollection];
        let collection = spg();
        store.submit(&Transaction { collection, ops }).unwrap();
        Self {
            backend: Xor::new(group(&[0, 1, 2]), Far::new(&store)),
            pg: PgState::new(spg(), Arc::new(pool()), store.seq, Duration::ZERO),
            front: FreeTurns::default(),
            flushed: store.clone(),
            store,
            out: Vec::new(),
        }
    }

    fn backend(&mut self) -> (&mut dyn Backend, Lent<'_>) {
        let lent = Lent {
            pg: &mut self.pg,
            front: &mut self.front,
            store: &mut self.store,
            now: Duration::from_secs(1000),
            out: &mut self.out,
        };
        (&mut self.backend, lent)
    }

    fn store(&mut self) -> &mut MemoryStore {
        &mut self.store
    }

    fn flush(&mut self) {
        self.flushed = self.store.clone();
        let seq = self.store.seq;
        let (backend, mut lent) = self.backend();
        backend.durable(seq, &mut lent);
    }

    fn flush_member(&mut self, osd: OsdId) {
        self.far().flush(osd);
        let (backend, mut lent) = self.backend();
        backend.recover(&mut lent);
    }

    fn lose(&mut self, osd: OsdId) {
        let (backend, mut lent) = self.backend();
        backend.peer_down(osd, &mut lent);
    }

    fn configure(&mut self, in_sync: &[OsdId]) {
        let (backend, mut lent) = self.backend();
        backend.set_group(group(in_sync), &mut lent);
    }

    fn bring_back(&mut self, osd: OsdId) {
        let (backend, mut lent) = self.backend();
        backend.peer_up(osd, &mut lent);
        self.flush_member(osd);
    }

    fn data_without(&self, lost: OsdId, oid: &ObjectId) -> Option<Bytes> {
        let far = self.far();
        let stores = [&self.flushed, &far.shards[0].flushed, &far.shards[1].flushed];
        let of = |shard: usize| match shard == lost as usize {
            true => None,
            false => part(&mut stores[shard].clone(), oid, shard),
        };
        join([of(0), of(1), of(2)])
    }

    fn attr_on(&self, osd: OsdId, oid: &ObjectId, name: &[u8]) -> Option<Bytes> {
        match osd {
            0 => self.flushed.clone().attr(oid, name).unwrap(),
            n => self.far().shards[n as usize - 1].flushed.attr(oid, name).unwrap(),
        }
    }

    fn log_on(&self, osd: OsdId) -> usize {
        match osd {
            0 => self.flushed.clone().log_entries(spg()).unwrap().len(),
            n => self.far().shards[n as usize - 1]
                .flushed
                .log_entries(spg())
                .unwrap()
                .len(),
        }
    }

    fn digest_of(&mut self, osd: OsdId, oid: &ObjectId) -> Option<ObjectDigest> {
        let mut far = self.far();
        let store = &mut far.shards[osd as usize - 1].store;
        let mut walk = Walk::begin(oid, &oid.object, true, store).unwrap();
        assert!(walk.go_on(store));
        walk.into_found().0.pop()
    }

    fn spoil(&mut self, osd: OsdId, oid: &ObjectId) {
        // Of shard 1 the first unit is empty.
        let at = if osd == 1 { UNIT } else { 0 };
        self.far().shards[osd as usize - 1].store.alter(oid, at);
    }
}
