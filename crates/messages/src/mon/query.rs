//! Questions with one answer: file-system and pool statistics, versions (docs/protocol/ceph/02-monitor.md, 6.1 to 6.3).

use super::{Body, PaxosHeader, plain_body};
use denc::{Reader, Result, Writer};
use std::collections::BTreeMap;
use types::pgstats::PoolStat;
use types::{PoolId, Uuid};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MStatfs {
    pub paxos: PaxosHeader,
    pub fsid: Uuid,
    pub data_pool: Option<PoolId>,
}

impl Body for MStatfs {
    const KIND: u16 = 13;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.put(&self.data_pool);
    }
    fn decode_front(version: u16, r: &mut Reader) -> Result<Self> {
        let (paxos, fsid) = (r.get()?, r.get()?);
        let data_pool = if version >= 2 { r.get()? } else { None };
        Ok(Self {
            paxos,
            fsid,
            data_pool,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MStatfsReply {
    pub fsid: Uuid,
    pub version: u64,
    pub kb_total: u64,
    pub kb_used: u64,
    pub kb_avail: u64,
    pub num_objects: u64,
}
plain_body!(MStatfsReply, 14, 1, 1, { fsid, version, kb_total, kb_used, kb_avail, num_objects });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MGetPoolStats {
    pub paxos: PaxosHeader,
    pub fsid: Uuid,
    pub pools: Vec<String>,
}
plain_body!(MGetPoolStats, 58, 1, 1, { paxos, fsid, pools });

#[derive(Debug, Clone, PartialEq)]
pub struct MGetPoolStatsReply {
    pub paxos: PaxosHeader,
    pub fsid: Uuid,
    pub pools: BTreeMap<String, PoolStat>,
    pub per_pool: bool,
}

impl Body for MGetPoolStatsReply {
    const KIND: u16 = 59;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.put(&self.pools);
        w.bool(self.per_pool);
    }
    fn decode_front(version: u16, r: &mut Reader) -> Result<Self> {
        let (paxos, fsid, pools) = (r.get()?, r.get()?, r.get()?);
        let per_pool = version >= 2 && r.bool()?;
        Ok(Self {
            paxos,
            fsid,
            pools,
            per_pool,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMonGetVersion {
    pub handle: u64,
    pub what: String,
}
plain_body!(MMonGetVersion, 19, 1, 1, { handle, what });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMonGetVersionReply {
    pub handle: u64,
    pub newest: u64,
    pub oldest: u64,
}
plain_body!(MMonGetVersionReply, 20, 2, 2, { handle, newest, oldest });
