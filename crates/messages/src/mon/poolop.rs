//! POOLOP and its reply (docs/protocol/ceph/02-monitor.md, 6.4): pools and their snapshots as librados makes them.

use super::{Body, PaxosHeader};
use bytes::Bytes;
use denc::{Reader, Result, Writer};
use types::{Epoch, PoolId, Uuid};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum PoolOpKind {
    Create = 0x01,
    Delete = 0x02,
    ChangeAuid = 0x03,
    CreateSnap = 0x11,
    RemoveSnap = 0x12,
    CreateSelfManagedSnap = 0x21,
    RemoveSelfManagedSnap = 0x22,
}

impl PoolOpKind {
    pub const ALL: [Self; 7] = [
        Self::Create,
        Self::Delete,
        Self::ChangeAuid,
        Self::CreateSnap,
        Self::RemoveSnap,
        Self::CreateSelfManagedSnap,
        Self::RemoveSelfManagedSnap,
    ];
    pub fn from_u32(v: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|k| *k as u32 == v)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MPoolOp {
    pub paxos: PaxosHeader,
    pub fsid: Uuid,
    pub pool: PoolId,
    /// See [`PoolOpKind`].
    pub op: u32,
    pub snapid: u64,
    pub name: String,
    /// -1: the default rule.
    pub crush_rule: i16,
}

impl Body for MPoolOp {
    const KIND: u16 = 49;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 2;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.u32(self.pool as u32);
        w.u32(self.op);
        w.u64(0);
        w.u64(self.snapid);
        w.string(&self.name);
        w.u8(0);
        w.put(&self.crush_rule);
    }
    fn decode_front(version: u16, r: &mut Reader) -> Result<Self> {
        let (paxos, fsid) = (r.get()?, r.get()?);
        let (pool, op) = (PoolId::from(r.u32()?), r.u32()?);
        let _auid = r.u64()?;
        let (snapid, name) = (r.u64()?, r.string()?);
        let crush_rule = if version >= 3 {
            let _pad = r.u8()?;
            r.get()?
        } else {
            -1
        };
        Ok(Self {
            paxos,
            fsid,
            pool,
            op,
            snapid,
            name,
            crush_rule,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MPoolOpReply {
    pub paxos: PaxosHeader,
    pub fsid: Uuid,
    /// 0 or a negative errno.
    pub code: i32,
    /// The caller waits until it has this epoch.
    pub epoch: Epoch,
    /// The new snap id (u64) of a self-managed create.
    pub data: Option<Bytes>,
}

impl Body for MPoolOpReply {
    const KIND: u16 = 48;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.i32(self.code);
        w.u32(self.epoch);
        w.put(&self.data);
    }
    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        Ok(Self {
            paxos: r.get()?,
            fsid: r.get()?,
            code: r.i32()?,
            epoch: r.u32()?,
            data: r.get()?,
        })
    }
}
