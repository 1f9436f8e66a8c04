//! The suite is run by the store in memory, and notices what a store may get wrong.

use super::data::BLOCK;
use super::*;
use crate::memory::{Cold, MemoryStore};
use crate::store::{IoError, ObjectReads, ObjectStat, OmapPage};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use types::EVersion;

struct InMemory {
    cold: Option<Cold>,
}

impl Subject for InMemory {
    type Store = MemoryStore;

    fn make(&mut self) -> MemoryStore {
        let mut store = MemoryStore::default();
        store.cold = self.cold.clone();
        store
    }

    fn age(&mut self, store: MemoryStore) -> MemoryStore {
        store
    }

    fn fetched(&mut self, store: &mut MemoryStore) -> Vec<Ticket> {
        let Some(cold) = &mut store.cold else {
            return Vec::new();
        };
        let ended = cold.reading();
        ended.iter().for_each(|t| cold.end(*t));
        ended
    }
}

#[test]
fn the_store_in_memory_conforms() {
    run(&mut InMemory { cold: None });
    run(&mut InMemory {
        cold: Some(Cold::new(0)),
    });
}

macro_rules! faults {
    ($($fault:ident),* $(,)?) => {
        /// One thing each that a store may do wrong.
        #[derive(Debug, Clone, Copy, PartialEq)]
        enum Fault { Nothing, $($fault),* }
        const FAULTS: &[Fault] = &[$(Fault::$fault),*];
    };
}

faults!(
    // Transactions.
    StepsOneByOne,
    NumbersStand,
    NumberAfterAnError,
    LostWhenAged,
    NumbersAnew,
    ErrorIsAnother,
    // Steps.
    TruncateIgnored,
    CutIsKept,
    ZeroIgnored,
    CloneMerges,
    RangeUncut,
    RemoveKeepsRows,
    RemoveRangeTooFar,
    ClearKeepsHeader,
    AttrsReplaceAll,
    TrimsFar,
    TrimsShort,
    // Reads.
    ReadPastTheRange,
    PiecesDiffer,
    ExtentsEmpty,
    ExtentsPastTheRange,
    AttrSizesWrong,
    AttrsUnordered,
    EmptyAttrIsNone,
    ExcludedIsIncluded,
    NeverMore,
    RowsUnbounded,
    BytesUnbounded,
    EnoughIgnored,
    MoreBehindEnough,
    KeysSorted,
    RowsUncounted,
    ListSkipsFirst,
    ListUnbounded,
    WithinExcludesLast,
    MetaOfNone,
    LogReversed,
    CollectionsAlways,
    TicketTwice,
    StalePrefetch,
);

use Fault::*;

#[derive(Debug)]
struct Faulty {
    inner: MemoryStore,
    fault: Fault,
    /// What a prefetch brought.
    fetched: Option<(ObjectId, u64, Bytes)>,
    ticket: Ticket,
}

impl Faulty {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// The steps that are done in place of this one.
    fn instead(&mut self, op: Op) -> Vec<Op> {
        match (self.fault, op) {
            (TruncateIgnored, Op::Truncate { oid, .. }) => vec![Op::RemoveAttr {
                oid,
                name: bytes("none"),
            }],
            (CutIsKept, Op::Truncate { oid, size }) => {
                let behind = self.inner.read(&oid, size, 100).unwrap();
                let (kept, offset) = (oid.clone(), size);
                let back = Op::Write {
                    oid: kept,
                    offset,
                    data: behind,
                };
                vec![
                    back,
                    Op::Truncate {
                        oid,
                        size: size.saturating_add(1),
                    },
                ]
            }
            (ZeroIgnored, Op::Zero { oid, .. }) => vec![Op::RemoveAttr {
                oid,
                name: bytes("none"),
            }],
            (CloneMerges, Op::Clone { src, dst }) => {
                let attrs = self.inner.attrs(&dst).unwrap();
                let oid = dst.clone();
                vec![Op::Clone { src, dst }, Op::SetAttrs { oid, attrs }]
            }
            (
                RangeUncut,
                Op::CloneRange {
                    src,
                    dst,
                    src_offset,
                    len,
                    dst_offset,
                },
            ) => {
                let data = Bytes::from(vec![0; len.min(1 << 20) as usize]);
                let zeros = Op::Write {
                    oid: dst.clone(),
                    offset: dst_offset,
                    data,
                };
                vec![
                    zeros,
                    Op::CloneRange {
                        src,
                        dst,
                        src_offset,
                        len,
                        dst_offset,
                    },
                ]
            }
            (RemoveKeepsRows, Op::Remove { oid }) => {
                let rows = self
                    .inner
                    .omap_range(&oid, Bound::Unbounded, usize::MAX, usize::MAX);
                let entries = rows.unwrap().rows;
                let (remove, touch) = (Op::Remove { oid: oid.clone() }, Op::Touch { oid: oid.clone() });
                match entries.is_empty() {
                    true => vec![remove],
                    false => vec![remove, touch, Op::OmapSet { oid, entries }],
                }
            }
            (RemoveRangeTooFar, Op::OmapRemoveRange { oid, first, last }) => {
                let keys = vec![last.clone()];
                vec![
                    Op::OmapRemove {
                        oid: oid.clone(),
                        keys,
                    },
                    Op::OmapRemoveRange { oid, first, last },
                ]
            }
            (ClearKeepsHeader, Op::OmapClear { oid }) => {
                let header = self.inner.omap_header(&oid).unwrap();
                vec![
                    Op::OmapClear { oid: oid.clone() },
                    Op::OmapSetHeader { oid, header },
                ]
            }
            (AttrsReplaceAll, Op::SetAttrs { oid, attrs }) => {
                vec![Op::RemoveAttrs { oid: oid.clone() }, Op::SetAttrs { oid, attrs }]
            }
            (TrimsFar, Op::LogTrim { to }) => vec![Op::LogTrim {
                to: EVersion::new(to.epoch, to.version + 1),
            }],
            (TrimsShort, Op::LogTrim { to }) => {
                vec![Op::LogTrim {
                    to: EVersion::new(to.epoch, to.version.saturating_sub(1)),
                }]
            }
            (_, op) => vec![op],
        }
    }
}

impl ObjectStore for Faulty {
    fn submitted(&self) -> Seq {
        if self.has(NumbersStand) {
            1
        } else {
            self.inner.submitted()
        }
    }

    fn submit(&mut self, txn: &Transaction) -> Result<Seq, Errno> {
        let collection = txn.collection;
        let one_by_one = self.has(StepsOneByOne);
        let mut last = Ok(self.inner.submitted());
        let mut ops: Vec<Op> = Vec::new();
        for op in txn.ops.iter().cloned() {
            let instead = self.instead(op);
            if one_by_one {
                last = self.inner.submit(&Transaction {
                    collection,
                    ops: instead,
                });
                last?;
            } else {
                ops.extend(instead);
            }
        }
        if !one_by_one {
            last = self.inner.submit(&Transaction { collection, ops });
        }
        if last.is_err() && self.has(NumberAfterAnError) {
            self.inner.seq += 1;
        }
        match self.has(ErrorIsAnother) {
            true => last.map_err(|_| Errno::EIO),
            false => last,
        }
    }
}

impl ObjectReads for Faulty {
    fn stat(&mut self, oid: &ObjectId) -> Result<Option<ObjectStat>, IoError> {
        let mut stat = self.inner.stat(oid)?;
        if let (RowsUncounted, Some(stat)) = (self.fault, &mut stat) {
            stat.omap_keys = stat.omap_keys.min(2);
        }
        Ok(stat)
    }

    fn read(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Bytes, IoError> {
        if let (StalePrefetch, Some((of, at, data))) = (self.fault, &self.fetched)
            && (of, *at) == (oid, offset)
        {
            return Ok(data.clone());
        }
        let more = u64::from(self.has(ReadPastTheRange));
        self.inner.read(oid, offset, len.saturating_add(more))
    }

    fn read_pieces(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<Bytes>, IoError> {
        let mut pieces = vec![self.read(oid, offset, len)?];
        if self.has(PiecesDiffer) && offset % BLOCK != 0 {
            pieces.push(bytes("more"));
        }
        Ok(pieces)
    }

    fn prefetch(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Option<Ticket> {
        let data = self.inner.read(oid, offset, len).unwrap();
        if data.is_empty() {
            return None;
        }
        if self.fetched.is_none() {
            self.fetched = Some((oid.clone(), offset, data));
        }
        self.ticket += u64::from(!self.has(TicketTwice));
        Some(self.ticket)
    }

    fn release(&mut self, _ticket: Ticket) {
        self.fetched = None;
    }

    fn extents(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, IoError> {
        match self.fault {
            ExtentsEmpty => Ok(Vec::new()),
            ExtentsPastTheRange => self.inner.extents(oid, offset, len.saturating_add(BLOCK)),
            _ => self.inner.extents(oid, offset, len),
        }
    }

    fn attr(&mut self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>, IoError> {
        let value = self.inner.attr(oid, name)?;
        Ok(value.filter(|v| !(self.has(EmptyAttrIsNone) && v.is_empty())))
    }

    fn attr_sizes(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, u64)>, IoError> {
        let mut sizes = self.inner.attr_sizes(oid)?;
        if self.has(AttrSizesWrong) {
            sizes.iter_mut().for_each(|(n, len)| *len += n.len() as u64);
        }
        Ok(sizes)
    }

    fn attrs(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        let mut attrs = self.inner.attrs(oid)?;
        if self.has(AttrsUnordered) {
            attrs.reverse();
        }
        Ok(attrs)
    }

    fn omap_header(&mut self, oid: &ObjectId) -> Result<Bytes, IoError> {
        self.inner.omap_header(oid)
    }

    fn omap_get(&mut self, oid: &ObjectId, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        let mut rows = self.inner.omap_get(oid, keys)?;
        if self.has(KeysSorted) {
            rows.sort();
        }
        Ok(rows)
    }

    fn omap_range(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage, IoError> {
        let from = match from {
            Bound::Excluded(k) if self.has(ExcludedIsIncluded) => Bound::Included(k),
            other => other,
        };
        let max_entries = if self.has(RowsUnbounded) {
            usize::MAX
        } else {
            max_entries
        };
        let max_bytes = if self.has(BytesUnbounded) {
            usize::MAX
        } else {
            max_bytes
        };
        let mut page = self.inner.omap_range(oid, from, max_entries, max_bytes)?;
        page.more &= !self.has(NeverMore);
        Ok(page)
    }

    fn omap_each(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, IoError> {
        let page = self.omap_range(oid, from, max_entries, max_bytes)?;
        let goes_on = self.has(EnoughIgnored);
        let wanted = page.rows.iter().all(|(k, v)| each(k, v) || goes_on);
        Ok(page.more && (wanted || self.has(MoreBehindEnough)))
    }

    fn list(&mut self, from: &ObjectId, max: usize) -> Result<Vec<ObjectId>, IoError> {
        let max = if self.has(ListUnbounded) { usize::MAX } else { max };
        let mut found = self.inner.list(from, max)?;
        if self.has(ListSkipsFirst) {
            found.retain(|o| o != from);
        }
        Ok(found)
    }

    fn list_within(&mut self, from: &ObjectId, to: &ObjectId, max: usize) -> Result<Vec<ObjectId>, IoError> {
        let mut found = self.inner.list_within(from, to, max)?;
        if self.has(WithinExcludesLast) {
            found.retain(|o| o != to);
        }
        Ok(found)
    }

    fn meta(&mut self, collection: SPgId) -> Result<Option<Bytes>, IoError> {
        let meta = self.inner.meta(collection)?;
        Ok(if self.has(MetaOfNone) {
            meta.or(Some(Bytes::new()))
        } else {
            meta
        })
    }

    fn log_entries(&mut self, collection: SPgId) -> Result<Vec<(EVersion, Bytes)>, IoError> {
        let mut entries = self.inner.log_entries(collection)?;
        if self.has(LogReversed) {
            entries.reverse();
        }
        Ok(entries)
    }

    fn has_collection(&mut self, collection: SPgId) -> Result<bool, IoError> {
        Ok(self.has(CollectionsAlways) || self.inner.has_collection(collection)?)
    }
}

impl Subject for Fault {
    type Store = Faulty;

    fn make(&mut self) -> Faulty {
        Faulty {
            inner: MemoryStore::default(),
            fault: *self,
            fetched: None,
            ticket: 0,
        }
    }

    fn age(&mut self, mut store: Faulty) -> Faulty {
        match self {
            LostWhenAged => store.inner.lose(&oid("a")),
            NumbersAnew => store.inner.seq = 0,
            _ => {}
        }
        store
    }

    fn fetched(&mut self, store: &mut Faulty) -> Vec<Ticket> {
        (1..=store.ticket).collect()
    }
}

#[test]
fn each_fault_is_noticed() {
    let unnoticed = |fault: &Fault| {
        let mut subject = *fault;
        catch_unwind(AssertUnwindSafe(|| run(&mut subject))).is_ok()
    };
    assert!(unnoticed(&Nothing), "without one it passes");
    let missed: Vec<&Fault> = FAULTS.iter().filter(|f| unnoticed(f)).collect();
    assert!(missed.is_empty(), "the suite passes with {missed:?}");
}
