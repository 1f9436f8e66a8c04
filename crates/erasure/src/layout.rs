//! Which byte of an object lies where on which shard.
//!
//! An object is cut into stripes of k units; unit i of each stripe lies on data shard i, one behind the other, so that a stripe
//! has the same place on every shard. A shard's object ends where its last byte that may not be zero lies: a data shard's with
//! the object's own bytes, a parity shard's with the longest data unit of the last stripe. What lies behind reads as zeros, and so
//! the code takes all units of a stripe for whole.

use crate::code::Unfit;
use std::ops::Range;

/// Bytes of a stripe's data.
const STRIPE_MAX: u64 = 64 << 20;

/// How objects of a pool are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    k: usize,
    m: usize,
    unit: u64,
}

/// A run of an object's bytes that lies on one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub shard: usize,
    /// Where in the shard's object.
    pub at: u64,
    /// Where in the object.
    pub offset: u64,
    pub len: u64,
}

impl Layout {
    pub fn new(k: usize, m: usize, unit: u64) -> Result<Self, Unfit> {
        if !(1..=crate::K_MAX).contains(&k) || !(1..=crate::M_MAX).contains(&m) {
            return Err(Unfit::Size { k, m });
        }
        match unit > 0 && unit <= STRIPE_MAX / k as u64 {
            true => Ok(Self { k, m, unit }),
            false => Err(Unfit::Unit { max: STRIPE_MAX }),
        }
    }

    pub fn k(&self) -> usize {
        self.k
    }

    pub fn m(&self) -> usize {
        self.m
    }

    pub fn unit(&self) -> u64 {
        self.unit
    }

    pub fn shards(&self) -> usize {
        self.k + self.m
    }

    /// Bytes of a stripe's data.
    pub fn stripe(&self) -> u64 {
        self.unit * self.k as u64
    }

    /// The data shard on which a byte of the object lies, and where there.
    pub fn place(&self, offset: u64) -> (usize, u64) {
        let (stripe, within) = (offset / self.stripe(), offset % self.stripe());
        let shard = (within / self.unit) as usize;
        (shard, stripe * self.unit + within % self.unit)
    }

    /// The byte of the object that lies there on a data shard; None: the shard holds parity.
    pub fn offset(&self, shard: usize, at: u64) -> Option<u64> {
        let (stripe, within) = (at / self.unit, at % self.unit);
        let before = stripe * self.stripe() + shard as u64 * self.unit;
        (shard < self.k).then_some(before + within)
    }

    /// The stripes that a range of the object touches; an empty range touches none.
    pub fn stripes(&self, offset: u64, len: u64) -> Range<u64> {
        let first = offset / self.stripe();
        match len {
            0 => first..first,
            _ => first..(offset + len).div_ceil(self.stripe()),
        }
    }

    /// The bytes of the object in these stripes, as offset and length.
    pub fn extent(&self, stripes: &Range<u64>) -> (u64, u64) {
        let count = stripes.end.saturating_sub(stripes.start);
        (stripes.start * self.stripe(), count * self.stripe())
    }

    /// Where these stripes lie on each shard, as offset and length.
    pub fn extent_on_shard(&self, stripes: &Range<u64>) -> (u64, u64) {
        let count = stripes.end.saturating_sub(stripes.start);
        (stripes.start * self.unit, count * self.unit)
    }

    /// The size of a shard's object where the object is of this size.
    pub fn shard_size(&self, shard: usize, size: u64) -> u64 {
        let (full, rest) = (size / self.stripe(), size % self.stripe());
        let before = match shard < self.k {
            true => shard as u64 * self.unit,
            // As much as the first unit has.
            false => 0,
        };
        full * self.unit + rest.saturating_sub(before).min(self.unit)
    }

    /// The pieces of a range of the object, ascending.
    pub fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let (layout, end) = (*self, offset + len);
        let mut at = offset;
        std::iter::from_fn(move || {
            let left = end.checked_sub(at).filter(|left| *left > 0)?;
            let (shard, on_shard) = layout.place(at);
            let len = left.min(layout.unit - at % layout.unit);
            let piece = Piece {
                shard,
                at: on_shard,
                offset: at,
                len,
            };
            at += len;
            Some(piece)
        })
    }

    /// Whole stripes of the object's bytes, cut into what each data shard has of them. What lacks at the end is zeros.
    pub fn cut(&self, stripes: &[u8]) -> Vec<Vec<u8>> {
        let count = (stripes.len() as u64).div_ceil(self.stripe());
        let mut columns = vec![vec![0; (count * self.unit) as usize]; self.k];
        for p in self.pieces(0, stripes.len() as u64) {
            let (to, from) = (p.at as usize, p.offset as usize);
            let len = p.len as usize;
            columns[p.shard][to..to + len].copy_from_slice(&stripes[from..from + len]);
        }
        columns
    }

    /// The opposite of [`Layout::cut`]: whole stripes out of what each data shard has of them, of one length of whole units.
    pub fn join(&self, columns: &[&[u8]]) -> Result<Vec<u8>, Unfit> {
        let want = self.k;
        let len = columns.first().map_or(0, |c| c.len());
        if columns.len() != want {
            let got = columns.len();
            return Err(Unfit::Count { got, want });
        }
        if columns.iter().any(|c| c.len() != len) || len as u64 % self.unit != 0 {
            return Err(Unfit::Lengths);
        }
        let mut all = Vec::with_capacity(len * self.k);
        for p in self.pieces(0, (len * self.k) as u64) {
            let at = p.at as usize;
            all.extend_from_slice(&columns[p.shard][at..at + p.len as usize]);
        }
        Ok(all)
    }
}
