//! What a transaction finds of the objects that it changes: sizes on the own shard, old stripes among what has come.
//!
//! Invariant: a stripe counts only of the version that the object has now. What has not come is noted, and nothing is cut before it has.

use super::cut::{Before, Coding, Written, cut_all};
use super::reads::{Held, Reads, too_few};
use crate::backend::Lack;
use crate::backend::digest::version_now;
use crate::state::intervals::Intervals;
use crate::store::{IoError, ObjectStore};
use std::collections::BTreeMap;
use types::{EVersion, ObjectId, Transaction};

/// What came of cutting a transaction.
#[derive(Debug)]
pub(crate) enum Cut {
    /// One for each shard, in their order, and what is to be kept of it.
    Done(Vec<Transaction>, Changes),
    /// This has to be here first.
    Lacks(Vec<Lack>),
}

/// What a transaction makes of objects, each with the version that it had before.
#[derive(Debug)]
pub(crate) struct Changes(pub(super) Vec<(ObjectId, EVersion, Written)>);

struct Old<'a> {
    reads: &'a Reads,
    stripe: u64,
    store: &'a mut dyn ObjectStore,
    known: BTreeMap<ObjectId, (EVersion, Option<u64>)>,
    lacks: BTreeMap<ObjectId, Intervals>,
}

impl Old<'_> {
    fn known(&mut self, oid: &ObjectId) -> Result<(EVersion, Option<u64>), IoError> {
        if let Some(known) = self.known.get(oid) {
            return Ok(*known);
        }
        let size = self.store.stat(oid)?.map(|s| s.size);
        let known = (version_now(oid, self.store), size);
        self.known.insert(oid.clone(), known);
        Ok(known)
    }
}

impl Before for Old<'_> {
    fn size(&mut self, oid: &ObjectId) -> Result<Option<u64>, IoError> {
        Ok(self.known(oid)?.1)
    }

    fn stripe(&mut self, oid: &ObjectId, stripe: u64) -> Result<Vec<u8>, IoError> {
        let (version, size) = self.known(oid)?;
        let (first, size) = (stripe * self.stripe, size.unwrap_or(0));
        let end = (first + self.stripe).min(size).max(first);
        let mut bytes = match self.reads.value(oid, version, first, end - first) {
            Held::Here(bytes) => bytes.to_vec(),
            Held::Failed => return Err(too_few(oid)),
            Held::Lacks => {
                let lacks = self.lacks.entry(oid.clone()).or_default();
                lacks.insert(first, end);
                Vec::new()
            }
        };
        bytes.resize(self.stripe as usize, 0);
        Ok(bytes)
    }
}

/// Cuts a transaction of this OSD's shard, whose objects are here as they are before it.
pub(crate) fn cut_here(
    txn: &Transaction,
    coding: &Coding,
    reads: &Reads,
    store: &mut dyn ObjectStore,
) -> Result<Cut, IoError> {
    let mut old = Old {
        reads,
        stripe: coding.layout.stripe(),
        store,
        known: BTreeMap::new(),
        lacks: BTreeMap::new(),
    };
    let done = cut_all(txn, coding, &mut old)?;
    if old.lacks.is_empty() {
        let known = old.known;
        let before = |oid: &ObjectId| known.get(oid).map_or(EVersion::default(), |(v, _)| *v);
        let written = done.written.into_iter();
        let changes = written.map(|(oid, w)| (oid.clone(), before(&oid), w));
        return Ok(Cut::Done(done.shards, Changes(changes.collect())));
    }
    let lacks = old.lacks.iter().flat_map(|(oid, ranges)| {
        ranges.intervals().iter().map(|(from, to)| Lack {
            oid: oid.clone(),
            offset: *from,
            len: to - from,
        })
    });
    Ok(Cut::Lacks(lacks.collect()))
}
