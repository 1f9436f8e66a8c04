//! The omap: an ordered map of byte strings and one header per object (spec chapter 04, 9.4).

use crate::execute::{Exec, Fail, OpResult, done};
use bytes::Bytes;
use denc::{Reader, Writer};
use messages::osd::OsdOp;
use std::collections::BTreeMap;
use std::ops::Bound;
use types::{Errno, Op};

/// Keys in one answer (osd_max_omap_entries_per_request).
const KEYS_MAX: u64 = 1024;
/// Bytes of rows in one answer, about; the client asks again.
const ROWS_BYTES_MAX: usize = 64 << 20;

/// Bytes of rows that were asked for by their keys: more is refused, since such an answer has no "more".
const GET_BYTES_MAX: usize = 128 << 20;

/// Rows and whether more of the range follow.
type Page = (Vec<(Bytes, Bytes)>, bool);

impl Exec<'_, '_> {
    /// At most `max` rows with `prefix` strictly behind `after`.
    pub fn omap_page(&mut self, after: &[u8], prefix: &[u8], max: usize) -> Result<Page, Fail> {
        if !self.old.exists || !self.old.info.omap || self.pool.erasure {
            return Ok((Vec::new(), false));
        }
        let from = if after < prefix {
            Bound::Included(prefix)
        } else {
            Bound::Excluded(after)
        };
        // One row more than asked for tells whether the prefix goes on.
        let asked = max.saturating_add(1);
        let page = self
            .ctx
            .store
            .omap_range(self.source, from, asked, ROWS_BYTES_MAX)?;
        let mut rows = page.rows;
        let found = rows.len();
        let bytes: usize = rows.iter().map(|(k, v)| k.len() + v.len()).sum();
        let in_prefix = rows.iter().take_while(|(k, _)| k.starts_with(prefix)).count();
        rows.truncate(in_prefix.min(max));
        let more = in_prefix > max || (page.more && in_prefix == found);
        self.read_bytes += bytes as u64;
        Ok((rows, more))
    }

    pub fn omap_keys(&mut self, op: &OsdOp) -> OpResult {
        let mut r = Reader::new(op.indata.clone());
        let (after, max) = (r.blob()?, r.u64()?);
        self.must_have_existed()?;
        let (rows, more) = self.omap_page(&after, b"", max.min(KEYS_MAX) as usize)?;
        let mut w = Writer::new();
        w.u32(rows.len() as u32);
        rows.iter().for_each(|(k, _)| w.blob(k));
        w.bool(more);
        Ok(w.finish().into())
    }

    pub fn omap_values(&mut self, op: &OsdOp) -> OpResult {
        let mut r = Reader::new(op.indata.clone());
        let (after, max, prefix) = (r.blob()?, r.u64()?, r.blob()?);
        self.must_have_existed()?;
        let (rows, more) = self.omap_page(&after, &prefix, max.min(KEYS_MAX) as usize)?;
        let mut w = Writer::new();
        w.put(&rows);
        w.bool(more);
        Ok(w.finish().into())
    }

    pub fn omap_header(&mut self) -> OpResult {
        self.must_have_existed()?;
        if !self.old.info.omap || self.pool.erasure {
            return done();
        }
        Ok(self.ctx.store.omap_header(self.source)?.into())
    }

    /// Values of those keys that exist; E2BIG if that is more than an answer holds.
    pub fn omap_get(&mut self, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, Fail> {
        let mut rows = Vec::new();
        if !self.old.exists || !self.old.info.omap || self.pool.erasure {
            return Ok(rows);
        }
        let mut bytes = 0;
        for key in keys {
            let found = self.ctx.store.omap_get(self.source, std::slice::from_ref(key))?;
            bytes += found.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
            if bytes > GET_BYTES_MAX {
                return Err(Errno::E2BIG.into());
            }
            rows.extend(found);
        }
        Ok(rows)
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
        if self.pool.erasure {
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
            oid: self.head.clone(),
            entries,
        });
        Ok(())
    }

    pub fn omap_set_header(&mut self, op: &OsdOp) -> OpResult {
        self.ensure_exists();
        self.work.new.info.omap = true;
        self.work.txn.push(Op::OmapSetHeader {
            oid: self.head.clone(),
            header: op.indata.clone(),
        });
        done()
    }

    pub fn omap_clear(&mut self) -> OpResult {
        self.must_exist()?;
        self.work.new.info.omap = false;
        self.work.txn.push(Op::OmapClear {
            oid: self.head.clone(),
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
        if self.pool.erasure {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.ensure_exists();
        if keys.is_empty() {
            return Ok(());
        }
        self.work.txn.push(Op::OmapRemove {
            oid: self.head.clone(),
            keys,
        });
        Ok(())
    }

    pub fn omap_remove_range(&mut self, op: &OsdOp) -> OpResult {
        let mut r = Reader::new(op.indata.clone());
        let (first, last) = (r.blob()?, r.blob()?);
        self.must_exist()?;
        if first < last {
            self.work.txn.push(Op::OmapRemoveRange {
                oid: self.head.clone(),
                first,
                last,
            });
        }
        self.changed();
        done()
    }
}
