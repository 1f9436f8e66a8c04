//! What a checkpoint of the store gives to an index, made without a store: the same tables, keys, sizes and order of
//! calls as `checkpoint.rs`. An object here has 256 KiB of data (one row of checksums); every eighth has omap rows.
//! Not here: engines, clocks.

use super::{Change, Index, Result, Table};
use std::collections::BTreeSet;
use std::ops::Bound;

/// Objects that one checkpoint creates: what 8 MiB of data and metadata hold.
pub const CREATES: u64 = 1600;
/// 4 KiB overwrites of one checkpoint.
pub const OVERWRITES: usize = 2048;
const PGS: u64 = 64;
/// As in `checkpoint.rs`: a row of log entries takes more until it has this size.
const LOG_ROW_BYTES: usize = 32 << 10;
/// Rows of log entries a PG keeps: about 3000 entries.
const LOG_ROWS: u64 = 18;
const RECORD_BYTES: usize = 360;
const OMAP_ROWS: u64 = 8;

pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.below(u64::MAX) >> 20) as u8).collect()
    }
}

/// Pool, shard, reversed hash, namespace, name, snapshot: see `key.rs`.
pub fn object_key(n: u64) -> Vec<u8> {
    let mut out = ((1u64) ^ (1 << 63)).to_be_bytes().to_vec();
    out.push(0x7f);
    out.extend_from_slice(&((n as u32).wrapping_mul(0x9e37_79b9)).to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(format!("rbd_data.10226b8b4567.{n:016x}").as_bytes());
    out.extend_from_slice(&[0, 0, 2]);
    out.extend_from_slice(&(u64::MAX - 1).to_be_bytes());
    out
}

pub fn omap_key(n: u64, key: u64) -> Vec<u8> {
    let mut out = n.to_be_bytes().to_vec();
    out.extend_from_slice(format!("{key:08}").as_bytes());
    out
}

fn put_logs(w: &mut dyn Change, dice: &mut Dice, entries: usize, version: u64) -> Result<()> {
    let each = (entries as u64).div_ceil(PGS) as usize;
    for pg in 0..PGS {
        let key = |v: u64| [pg.to_be_bytes(), v.to_be_bytes()].concat();
        let (from, to) = (key(0), key(u64::MAX));
        if let Some((k, _)) = w.first(Table::Logs, &from, &to)? {
            let oldest = u64::from_be_bytes(k[8..].try_into().unwrap());
            if version.saturating_sub(oldest) > LOG_ROWS * LOG_ROW_BYTES as u64 / 190 / each as u64 {
                w.delete(Table::Logs, &k)?;
            }
        }
        let new = dice.bytes(190 * each);
        match w.last(Table::Logs, &from, &to)? {
            Some((k, old)) if old.len() < LOG_ROW_BYTES => {
                w.put(Table::Logs, &k, &[&old[..], &new].concat())?;
            }
            _ => w.put(Table::Logs, &key(version), &new)?,
        }
    }
    Ok(())
}

fn put_taken(w: &mut dyn Change, dice: &mut Dice, first: u64, last: u64) -> Result<()> {
    for group in first * 64 / 8192..=last * 64 / 8192 {
        w.put(Table::Taken, &(group as u32).to_be_bytes(), &dice.bytes(1024))?;
    }
    Ok(())
}

/// The checkpoint that creates objects `first..first + count`.
pub fn create(index: &dyn Index, dice: &mut Dice, first: u64, count: u64) -> Result<()> {
    let mut objects: Vec<(Vec<u8>, u64)> = (first..first + count).map(|n| (object_key(n), n)).collect();
    objects.sort_unstable();
    index.commit(&mut |w| {
        for (k, _) in &objects {
            w.put(Table::Objects, k, &dice.bytes(RECORD_BYTES))?;
        }
        for n in (first..first + count).filter(|n| n % 8 == 0) {
            for key in 0..OMAP_ROWS {
                w.put(Table::Omap, &omap_key(n, key), &dice.bytes(100))?;
            }
        }
        for n in first..first + count {
            let k = (n as u32).to_be_bytes();
            assert!(w.get(Table::Blocks, &k)?.is_none());
            w.put(Table::Blocks, &k, &dice.bytes(256))?;
        }
        put_taken(w, dice, first, first + count)?;
        put_logs(w, dice, count as usize, first / CREATES)?;
        w.put(Table::Meta, b"checkpoint", &first.to_le_bytes())
    })
}

/// The checkpoint of random 4 KiB overwrites in place.
pub fn overwrite(index: &dyn Index, dice: &mut Dice, objects: u64, version: u64) -> Result<()> {
    let touched: BTreeSet<u64> = (0..OVERWRITES).map(|_| dice.below(objects)).collect();
    let mut keys: Vec<_> = touched.iter().map(|n| object_key(*n)).collect();
    keys.sort_unstable();
    index.commit(&mut |w| {
        for k in &keys {
            w.put(Table::Objects, k, &dice.bytes(RECORD_BYTES))?;
        }
        for n in &touched {
            let k = (*n as u32).to_be_bytes();
            let mut row = w.get(Table::Blocks, &k)?.expect("created before").to_vec();
            let at = 4 * dice.below(64) as usize;
            row[at..at + 4].copy_from_slice(&dice.bytes(4));
            w.put(Table::Blocks, &k, &row)?;
        }
        put_logs(w, dice, OVERWRITES, version)?;
        w.put(Table::Meta, b"checkpoint", &version.to_le_bytes())
    })
}

/// The checkpoints that remove a PG after the other, until a tenth is left. Returns how many objects went.
pub fn delete(index: &dyn Index, objects: u64) -> Result<u64> {
    let (mut from, mut gone) = (Vec::new(), 0);
    while gone < objects / 10 * 9 {
        let s = index.snapshot()?;
        let rows = s.range(Table::Objects, Bound::Excluded(&from), Bound::Unbounded)?;
        let keys = rows.take(CREATES as usize).map(|r| Ok(r?.0));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        index.commit(&mut |w| {
            for k in &keys {
                w.delete(Table::Objects, k)?;
                let name =
                    std::str::from_utf8(&k[k.len() - 27..k.len() - 11]).expect("as object_key made it");
                let n = u64::from_str_radix(name, 16).expect("as object_key made it");
                if n % 8 == 0 {
                    w.delete_range(Table::Omap, &omap_key(n, 0), &(n + 1).to_be_bytes())?;
                }
            }
            Ok(())
        })?;
        gone += keys.len() as u64;
        from = keys.last().expect("objects are left").to_vec();
    }
    Ok(gone)
}
