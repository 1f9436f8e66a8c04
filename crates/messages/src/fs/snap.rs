//! CLIENT_SNAP and CLIENT_QUOTA: which snapshots there are, and how full a directory with a quota is.

use super::stat::Quota;
use crate::mon::Body;
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use types::Utime;

/// What a client is told of realms.
pub mod snap_op {
    pub const UPDATE: u32 = 0;
    pub const CREATE: u32 = 1;
    pub const DESTROY: u32 = 2;
    pub const SPLIT: u32 = 3;
}

/// A directory with snapshots of its own, or a quota, and what lies under it. Snapshots from the newest to the oldest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Realm {
    pub ino: u64,
    pub created: u64,
    pub parent: u64,
    pub parent_since: u64,
    pub seq: u64,
    pub snaps: Vec<u64>,
    pub prior_parent_snaps: Vec<u64>,
}

impl Encode for Realm {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.ino);
        w.u64(self.created);
        w.u64(self.parent);
        w.u64(self.parent_since);
        w.u64(self.seq);
        w.u32(self.snaps.len() as u32);
        w.u32(self.prior_parent_snaps.len() as u32);
        self.snaps.iter().for_each(|s| w.u64(*s));
        self.prior_parent_snaps.iter().for_each(|s| w.u64(*s));
    }
}

fn numbers(n: u32, r: &mut Reader) -> Result<Vec<u64>> {
    (0..n).map(|_| r.u64()).collect()
}

impl Decode for Realm {
    const MIN_SIZE: usize = 48;
    fn decode(r: &mut Reader) -> Result<Self> {
        let mut realm = Self {
            ino: r.u64()?,
            created: r.u64()?,
            parent: r.u64()?,
            parent_since: r.u64()?,
            seq: r.u64()?,
            ..Self::default()
        };
        let (snaps, prior) = (r.u32()?, r.u32()?);
        realm.snaps = numbers(snaps, r)?;
        realm.prior_parent_snaps = numbers(prior, r)?;
        Ok(realm)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MClientSnap {
    pub op: u32,
    pub split: u64,
    pub split_inos: Vec<u64>,
    pub split_realms: Vec<u64>,
    pub trace: Bytes,
}

impl Body for MClientSnap {
    const KIND: u16 = 0x312;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.op);
        w.u64(self.split);
        w.u32(self.split_inos.len() as u32);
        w.u32(self.split_realms.len() as u32);
        w.u32(self.trace.len() as u32);
        self.split_inos.iter().for_each(|i| w.u64(*i));
        self.split_realms.iter().for_each(|i| w.u64(*i));
        w.raw(&self.trace);
    }

    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        let (op, split) = (r.u32()?, r.u64()?);
        let (inos, realms, trace) = (r.u32()?, r.u32()?, r.u32()? as usize);
        Ok(Self {
            op,
            split,
            split_inos: numbers(inos, r)?,
            split_realms: numbers(realms, r)?,
            trace: r.bytes(trace)?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MClientQuota {
    pub ino: u64,
    pub rctime: Utime,
    pub rbytes: u64,
    pub rfiles: u64,
    pub rsubdirs: u64,
    pub quota: Quota,
}

impl Body for MClientQuota {
    const KIND: u16 = 0x314;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u64(self.ino);
        w.put(&self.rctime);
        w.u64(self.rbytes);
        w.u64(self.rfiles);
        w.u64(self.rsubdirs);
        w.put(&self.quota);
    }

    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        Ok(Self {
            ino: r.u64()?,
            rctime: r.get()?,
            rbytes: r.u64()?,
            rfiles: r.u64()?,
            rsubdirs: r.u64()?,
            quota: r.get()?,
        })
    }
}
