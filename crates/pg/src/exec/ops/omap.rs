//! The omap: an ordered map of byte strings and one header per object (docs/protocol/ceph/04-osd.md, 9.4).

use crate::exec::result::{Fail, OpResult, done};
use crate::exec::run::Exec;
use crate::exec::work::Own;
use bytes::Bytes;
use denc::{Reader, Writer};
use messages::osd::OsdOp;
use std::collections::BTreeMap;
use std::ops::Bound;
use types::{Errno, Op};

/// Keys in one answer (osd_max_omap_entries_per_request).
pub const KEYS_MAX: u64 = 1024;
/// Bytes of rows in one answer, about; the client asks again.
const ROWS_BYTES_MAX: usize = 8 << 20;
/// An object's header.
pub(crate) const HEADER_MAX: usize = 1 << 20;
/// An omap of so few rows is taken whole for the cost of removing a range of it.
const FEW_ROWS: u64 = 256;
/// Rows counted at a time.
const COUNTED_ROWS: usize = 1024;

/// Rows and whether more of the range follow.
type Page = (Vec<(Bytes, Bytes)>, bool);

impl Exec<'_> {
    /// Hands on at most `max` rows with `prefix` strictly behind `after`; how many they were, and whether more follow.
    fn omap_each(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max: usize,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(usize, bool), Fail> {
        if !self.req.old.exists || !self.req.old.info.omap || self.req.pool.erasure {
            return Ok((0, false));
        }
        let from = if after < prefix {
            Bound::Included(prefix)
        } else {
            Bound::Excluded(after)
        };
        // A page may always be shorter, but not empty.
        self.cost.charge(0, 1)?;
        let max = max.min(self.cost.steps_left().max(1));
        let most = ROWS_BYTES_MAX.min(self.cost.bytes_left());
        // One row more than asked for tells whether the prefix goes on. Behind the first without it nothing is read.
        let asked = max.saturating_add(1);
        let (mut found, mut in_prefix, mut bytes) = (0_usize, 0_usize, 0_usize);
        let mut take = |k: &[u8], v: &[u8]| {
            found += 1;
            bytes += k.len() + v.len();
            if !k.starts_with(prefix) {
                return false;
            }
            in_prefix += 1;
            if in_prefix <= max {
                each(k, v);
            }
            in_prefix <= max
        };
        let others = self
            .known
            .omap_each(self.req.source, from, asked, most, &mut take)?;
        let more = in_prefix > max || (others && in_prefix == found);
        self.read_bytes += bytes as u64;
        let left = (self.cost.bytes_left(), self.cost.steps_left());
        self.cost
            .charge(bytes.min(left.0) as u64, found.min(left.1) as u64)?;
        Ok((in_prefix.min(max), more))
    }

    /// The same rows in buffers of their own.
    pub fn omap_page(&mut self, after: &[u8], prefix: &[u8], max: usize) -> Result<Page, Fail> {
        let mut rows = Vec::new();
        let (_, more) = self.omap_each(after, prefix, max, &mut |k, v| {
            rows.push((Bytes::copy_from_slice(k), Bytes::copy_from_slice(v)));
        })?;
        Ok((rows, more))
    }

    pub fn omap_keys(&mut self, op: &OsdOp) -> OpResult {
        let mut r = Reader::new(op.indata.clone());
        let (after, max) = (r.blob()?, r.u64()?);
        self.must_have_existed()?;
        let mut w = Writer::new();
        // How many they are is known behind them.
        w.u32(0);
        let max = max.min(KEYS_MAX) as usize;
        let (count, more) = self.omap_each(&after, b"", max, &mut |k, _| w.blob(k))?;
        w.patch_u32(0, count as u32);
        w.bool(more);
        Ok(w.finish().into())
    }

    pub fn omap_values(&mut self, op: &OsdOp) -> OpResult {
        let mut r = Reader::new(op.indata.clone());
        let (after, max, prefix) = (r.blob()?, r.u64()?, r.blob()?);
        self.must_have_existed()?;
        let mut w = Writer::new();
        w.u32(0);
        let max = max.min(KEYS_MAX) as usize;
        let (count, more) = self.omap_each(&after, &prefix, max, &mut |k, v| {
            w.blob(k);
            w.blob(v);
        })?;
        w.patch_u32(0, count as u32);
        w.bool(more);
        Ok(w.finish().into())
    }

    pub fn omap_header_op(&mut self) -> OpResult {
        self.must_have_existed()?;
        Ok(self.omap_header()?.into())
    }

    /// Empty where there is none.
    pub fn omap_header(&mut self) -> Result<Bytes, Fail> {
        if !self.req.old.exists || !self.req.old.info.omap || self.req.pool.erasure {
            return Ok(Bytes::new());
        }
        Ok(self.known.omap_header(self.req.source)?)
    }

    /// Values of those keys that exist. The keys are charged, the rows are here; such an answer has no "more".
    pub fn omap_get(&mut self, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, Fail> {
        let mut rows = Vec::new();
        if !self.req.old.exists || !self.req.old.info.omap || self.req.pool.erasure {
            return Ok(rows);
        }
        for key in keys {
            let found = self.known.omap_get(self.req.source, std::slice::from_ref(key))?;
            let bytes: usize = found.iter().map(|(k, v)| k.len() + v.len()).sum();
            self.cost.charge(bytes as u64, 0)?;
            rows.extend(found);
        }
        Ok(rows)
    }

    /// What this message has made of a row of the head so far. Each step that is looked at is charged.
    pub fn omap_own(&mut self, key: &[u8]) -> Result<Own, Errno> {
        let head = self.req.head;
        for op in self.work.txn.iter().rev() {
            let found = match op {
                Op::OmapSet { oid, entries } if oid == head => {
                    self.cost.charge(0, entries.len() as u64)?;
                    let last = entries.iter().rev().find(|(k, _)| k.as_ref() == key);
                    last.map(|(_, value)| Own::Set(value.clone()))
                }
                Op::OmapRemove { oid, keys } if oid == head => {
                    self.cost.charge(0, keys.len() as u64)?;
                    keys.iter().any(|k| k.as_ref() == key).then_some(Own::Gone)
                }
                Op::OmapRemoveRange { oid, first, last } if oid == head => {
                    let within = first.as_ref() <= key && key < last.as_ref();
                    within.then_some(Own::Gone)
                }
                Op::OmapClear { oid } | Op::Remove { oid } if oid == head => Some(Own::Gone),
                _ => None,
            };
            self.cost.charge(0, 1)?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Ok(Own::Untouched)
    }

    pub fn omap_by_keys(&mut self, op: &OsdOp) -> OpResult {
        let mut keys: Vec<Bytes> = Reader::new(op.indata.clone()).get()?;
        keys.sort_unstable();
        keys.dedup();
        self.must_have_existed()?;
        let rows = self.omap_get(&keys)?;
        let mut w = Writer::new();
        w.put(&rows);
        Ok(w.finish().into())
    }

    /// True if *stored OP operand* for every key; a missing key is an empty value.
    pub fn omap_compare(&mut self, op: &OsdOp) -> OpResult {
        let asserts: BTreeMap<Bytes, (Bytes, i32)> = Reader::new(op.indata.clone()).get()?;
        self.must_have_existed()?;
        let keys: Vec<Bytes> = asserts.keys().cloned().collect();
        let stored: BTreeMap<Bytes, Bytes> = self.omap_get(&keys)?.into_iter().collect();
        let empty = Bytes::new();
        for (key, (operand, cmp_op)) in &asserts {
            let order = stored.get(key).unwrap_or(&empty).cmp(operand);
            let holds = match cmp_op {
                1 => order.is_eq(),
                3 => order.is_gt(),
                5 => order.is_lt(),
                _ => return Err(Errno::EINVAL.into()),
            };
            if !holds {
                return Err(Errno::ECANCELED.into());
            }
        }
        done()
    }

    pub fn omap_set_op(&mut self, op: &OsdOp) -> OpResult {
        let rows: Vec<(Bytes, Bytes)> = Reader::new(op.indata.clone()).get()?;
        self.omap_set(rows)?;
        done()
    }

    pub fn omap_set(&mut self, entries: Vec<(Bytes, Bytes)>) -> Result<(), Fail> {
        if self.req.pool.erasure {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.ensure_exists();
        if entries.is_empty() {
            return Ok(());
        }
        self.work.new.info.omap = true;
        self.work.write_bytes += entries
            .iter()
            .map(|(k, v)| (k.len() + v.len()) as u64)
            .sum::<u64>();
        self.work.txn.push(Op::OmapSet {
            oid: self.req.head.clone(),
            entries,
        });
        Ok(())
    }

    pub fn omap_set_header_op(&mut self, op: &OsdOp) -> OpResult {
        self.omap_set_header(op.indata.clone())?;
        done()
    }

    pub fn omap_set_header(&mut self, header: Bytes) -> Result<(), Fail> {
        if self.req.pool.erasure {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if header.len() > HEADER_MAX {
            return Err(Errno::E2BIG.into());
        }
        self.ensure_exists();
        self.work.new.info.omap = true;
        self.work.txn.push(Op::OmapSetHeader {
            oid: self.req.head.clone(),
            header,
        });
        Ok(())
    }

    pub fn omap_clear(&mut self) -> OpResult {
        self.must_exist()?;
        self.work.new.info.omap = false;
        self.work.txn.push(Op::OmapClear {
            oid: self.req.head.clone(),
        });
        self.changed();
        done()
    }

    pub fn omap_remove_op(&mut self, op: &OsdOp) -> OpResult {
        let keys: Vec<Bytes> = Reader::new(op.indata.clone()).get()?;
        self.must_exist()?;
        self.omap_remove(keys)?;
        done()
    }

    pub fn omap_remove(&mut self, keys: Vec<Bytes>) -> Result<(), Fail> {
        if self.req.pool.erasure {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.ensure_exists();
        if keys.is_empty() {
            return Ok(());
        }
        self.work.txn.push(Op::OmapRemove {
            oid: self.req.head.clone(),
            keys,
        });
        Ok(())
    }

    pub fn omap_remove_range(&mut self, op: &OsdOp) -> OpResult {
        let mut r = Reader::new(op.indata.clone());
        let (first, last) = (r.blob()?, r.blob()?);
        self.must_exist()?;
        if first < last {
            self.charge_range(&first, &last)?;
            self.work.txn.push(Op::OmapRemoveRange {
                oid: self.req.head.clone(),
                first,
                last,
            });
        }
        self.changed();
        done()
    }

    /// The rows of a range that is to be removed, one by one; E2BIG if they are too many for one message. Those that this
    /// message has set are charged already.
    fn charge_range(&mut self, first: &[u8], last: &[u8]) -> Result<(), Fail> {
        if !self.req.old.exists || !self.req.old.info.omap {
            return Ok(());
        }
        let rows = self.known.stat(self.req.head)?.map_or(0, |s| s.omap_keys);
        if rows <= FEW_ROWS {
            return Ok(self.cost.charge(0, rows)?);
        }
        let mut from = Bound::Included(Bytes::copy_from_slice(first));
        loop {
            let at = from.as_ref().map(|k| k.as_ref());
            let page = self
                .known
                .omap_range(self.req.head, at, COUNTED_ROWS, ROWS_BYTES_MAX)?;
            let found = page.rows.iter().take_while(|(k, _)| k.as_ref() < last).count();
            self.cost.charge(0, found as u64)?;
            match page.rows.last() {
                Some((k, _)) if page.more && found == page.rows.len() => from = Bound::Excluded(k.clone()),
                _ => return Ok(()),
            }
        }
    }
}
