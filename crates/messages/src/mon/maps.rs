//! Maps on their way to whoever subscribed (docs/protocol/ceph/02-monitor.md, 5.1, 7, 9.1, 11). Each carries the map
//! encoded.

use super::{Body, plain_body};
use bytes::Bytes;
use denc::{Reader, Result, Writer};
use std::collections::BTreeMap;
use types::fsmap::FsMapUser;
use types::{Epoch, PoolId, Uuid};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMonMap {
    pub map: Bytes,
}
plain_body!(MMonMap, 4, 1, 1, { map });

/// The map is the whole front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMgrMap {
    pub map: Bytes,
}

impl Body for MMgrMap {
    const KIND: u16 = 0x704;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.raw(&self.map);
    }
    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        Ok(Self { map: r.rest() })
    }
}

/// Snap ids as (start, length), ascending and disjoint.
pub type SnapIntervals = Vec<(u64, u64)>;

/// OSD maps: increments and full maps by epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MOsdMap {
    pub fsid: Uuid,
    pub incrementals: BTreeMap<Epoch, Bytes>,
    pub fulls: BTreeMap<Epoch, Bytes>,
    /// The receiver may jump to this epoch if it cannot get what leads there.
    pub oldest: Epoch,
    pub newest: Epoch,
    pub gap_removed_snaps: BTreeMap<PoolId, SnapIntervals>,
}

impl Body for MOsdMap {
    const KIND: u16 = 41;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 3;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.fsid);
        w.put(&self.incrementals);
        w.put(&self.fulls);
        w.u32(self.oldest);
        w.u32(self.newest);
        w.put(&self.gap_removed_snaps);
    }
    fn decode_front(version: u16, r: &mut Reader) -> Result<Self> {
        let mut body = Self {
            fsid: r.get()?,
            incrementals: r.get()?,
            fulls: r.get()?,
            ..Self::default()
        };
        if version >= 2 {
            body.oldest = r.u32()?;
            body.newest = r.u32()?;
        }
        if version >= 4 {
            body.gap_removed_snaps = r.get()?;
        }
        Ok(body)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMdsMap {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub map: Bytes,
    pub fs_name: String,
}
plain_body!(MMdsMap, 21, 2, 1, { fsid, epoch, map, fs_name });

/// FSMap; the map follows the epoch without a length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MFsMap {
    pub epoch: Epoch,
    pub map: Bytes,
}

impl Body for MFsMap {
    const KIND: u16 = 45;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.epoch);
        w.raw(&self.map);
    }
    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        Ok(Self {
            epoch: r.u32()?,
            map: r.rest(),
        })
    }
}

/// The names of the file systems, for mounting by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MFsMapUser {
    pub map: FsMapUser,
}

impl Body for MFsMapUser {
    const KIND: u16 = 103;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.map.epoch);
        w.put(&self.map);
    }
    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        let _epoch = r.u32()?;
        Ok(Self { map: r.get()? })
    }
}
