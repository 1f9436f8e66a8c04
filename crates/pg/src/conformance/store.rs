//! The suite that every implementation of [`ObjectStore`] passes: its contract, as tests.
//!
//! It verifies: transactions are whole and in order, their numbers ascend, and reads show what was submitted, for each kind of
//! operation and each kind of read, before and after the store moved what it holds ([`Subject::age`]). Small cases first, then
//! random transactions compared with [`MemoryStore`](crate::memory::MemoryStore), which so is the contract in a program.
//! It does not verify: what survives a power cut, or damage; a store proves that by its own means.

mod collections;
mod data;
#[cfg(test)]
mod faults;
mod order;
mod prefetch;
mod random;
mod rows;
mod whole;

use crate::store::{ObjectStore, Seq, Ticket};
use bytes::Bytes;
use types::{Errno, HObject, NOSNAP, ObjectId, Op, PgId, SPgId, Transaction};

/// The implementation under test.
pub trait Subject {
    type Store: ObjectStore;

    /// An empty store.
    fn make(&mut self) -> Self::Store;
    /// What may happen to a store at any time without being seen: a checkpoint, a restart after all became durable.
    fn age(&mut self, store: Self::Store) -> Self::Store;
    /// Waits until the prefetches under way have ended, and gives those that did since the last call.
    fn fetched(&mut self, store: &mut Self::Store) -> Vec<Ticket>;
}

/// All of it.
pub fn run<S: Subject>(subject: &mut S) {
    data::run(subject);
    rows::run(subject);
    whole::run(subject);
    collections::run(subject);
    order::run(subject);
    prefetch::run(subject);
    for seed in 0..RANDOM_SEEDS {
        random::run(subject, seed);
    }
}

const RANDOM_SEEDS: u64 = 12;

/// One store of the subject, with a collection, for one case.
struct Case<'a, S: Subject> {
    subject: &'a mut S,
    store: Option<S::Store>,
}

impl<'a, S: Subject> Case<'a, S> {
    fn new(subject: &'a mut S) -> Self {
        let store = Some(subject.make());
        let mut case = Self { subject, store };
        case.submit([Op::CreateCollection]);
        case
    }

    fn store(&mut self) -> &mut S::Store {
        self.store.as_mut().unwrap()
    }

    fn try_submit(&mut self, ops: impl Into<Vec<Op>>) -> Result<Seq, Errno> {
        self.submit_to(PG, ops)
    }

    /// The number is that of the newest, and behind the one before; after an error it is what it was.
    fn submit_to(&mut self, collection: SPgId, ops: impl Into<Vec<Op>>) -> Result<Seq, Errno> {
        let before = self.store().submitted();
        let ops = ops.into();
        let result = self.store().submit(&Transaction { collection, ops });
        let now = self.store().submitted();
        match result {
            Ok(seq) => assert!(seq == now && seq > before, "{seq} after {before}, newest {now}"),
            Err(e) => assert_eq!(now, before, "{e:?}"),
        }
        result
    }

    fn submit(&mut self, ops: impl Into<Vec<Op>>) {
        self.try_submit(ops).unwrap();
    }

    fn refused(&mut self, ops: impl Into<Vec<Op>>, with: Errno) {
        assert_eq!(self.try_submit(ops), Err(with));
    }

    fn age(&mut self) {
        let store = self.store.take().unwrap();
        let before = store.submitted();
        let store = self.subject.age(store);
        assert!(store.submitted() >= before, "numbers go on where they were");
        self.store = Some(store);
    }

    /// So it is, and so it stays when the store grows older.
    fn holds(&mut self, check: impl Fn(&mut S::Store)) {
        check(self.store());
        self.age();
        check(self.store());
    }
}

const PG: SPgId = SPgId {
    pg: PgId { pool: 3, seed: 5 },
    shard: -1,
};

fn oid(name: &str) -> ObjectId {
    oid_at(3, 5, name)
}

fn oid_at(pool: i64, hash: u32, name: &str) -> ObjectId {
    let (none, name) = (Bytes::new(), Bytes::copy_from_slice(name.as_bytes()));
    ObjectId::replicated(HObject::new(pool, hash, none.clone(), none, name, NOSNAP))
}

fn bytes(s: &str) -> Bytes {
    Bytes::copy_from_slice(s.as_bytes())
}

fn pairs<const N: usize>(rows: [(&str, &str); N]) -> Vec<(Bytes, Bytes)> {
    rows.map(|(k, v)| (bytes(k), bytes(v))).to_vec()
}

/// `len` bytes that differ from place to place, and by `salt`; none is 0.
fn pattern(len: usize, salt: u64) -> Bytes {
    let at = |i: usize| ((i as u64 * 7 + (i as u64 >> 8) * 13 + salt * 31) % 255) as u8 + 1;
    (0..len).map(at).collect()
}

fn touch(o: &str) -> Op {
    Op::Touch { oid: oid(o) }
}

fn write(o: &str, offset: u64, data: impl AsRef<[u8]>) -> Op {
    let (oid, data) = (oid(o), Bytes::copy_from_slice(data.as_ref()));
    Op::Write { oid, offset, data }
}

fn set_attrs<const N: usize>(o: &str, attrs: [(&str, &str); N]) -> Op {
    let (oid, attrs) = (oid(o), pairs(attrs));
    Op::SetAttrs { oid, attrs }
}

fn set_rows<const N: usize>(o: &str, rows: [(&str, &str); N]) -> Op {
    let (oid, entries) = (oid(o), pairs(rows));
    Op::OmapSet { oid, entries }
}

fn set_header(o: &str, header: &str) -> Op {
    let (oid, header) = (oid(o), bytes(header));
    Op::OmapSetHeader { oid, header }
}

fn remove(o: &str) -> Op {
    Op::Remove { oid: oid(o) }
}
