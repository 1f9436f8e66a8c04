//! What came of an operation: its result, and each step's value and output
//! (docs/protocol/ceph/04-osd.md, sections 4, 9, 11.6, 12.6).
//!
//! Outputs are decoded when they are asked for; a malformed one is [`Error::Malformed`].

use super::ids::Tid;
use super::target::Target;
use crate::{Error, Result};
use bytes::Bytes;
use denc::Reader;
use messages::osd::MOSDOpReply;
use std::collections::BTreeMap;
use types::{EVersion, EntityAddr, Errno, OsdId, Utime};

/// A comparison that failed at byte i gives this less i.
const MISMATCH: i32 = -4095;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// 0 or more: it was done; some reads say more by it.
    pub result: i32,
    /// The object's version for users.
    pub version: u64,
    pub steps: Vec<Step>,
    pub served: Served,
}

/// Who answered, and which send: for tests and for those who look into something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Served {
    pub tid: Tid,
    /// Sends before the one that was answered.
    pub attempt: i32,
    pub osd: OsdId,
    /// It is not the PG's primary.
    pub from_copy: bool,
    /// PGs of the pool then.
    pub pg_num: u32,
    /// Of a write: its entry in the PG's log.
    pub entry: EVersion,
}

/// What came of one step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    pub value: i32,
    pub data: Bytes,
}

/// A page of keys; `more`: go on after the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub more: bool,
}

/// A clone as LIST_SNAPS shows it; the head comes last, under [`types::NOSNAP`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneInfo {
    pub id: u64,
    /// Snapshots that it stands for, ascending.
    pub snaps: Vec<u64>,
    /// (offset, length) of what is equal in the next newer one.
    pub overlap: Vec<(u64, u64)>,
    pub size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapSet {
    pub clones: Vec<CloneInfo>,
    pub seq: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watcher {
    pub client: i64,
    pub cookie: u64,
    pub timeout_s: u32,
    /// The address by which the client can be blocklisted.
    pub addr: EntityAddr,
}

impl Outcome {
    pub(super) fn of(reply: MOSDOpReply, target: &Target) -> Self {
        let step = |op: messages::osd::ReplyOp| Step {
            value: op.rval,
            data: op.outdata,
        };
        Self {
            result: reply.result,
            version: reply.user_version,
            served: Served {
                tid: reply.tid,
                attempt: reply.retry_attempt,
                osd: target.osd,
                from_copy: target.is_copy(),
                pg_num: target.pg_num(),
                entry: reply.replay_version,
            },
            steps: reply.ops.into_iter().map(step).collect(),
        }
    }

    /// Where [`super::op::Operation::cmp_extent`] found the first difference, from its offset on.
    pub fn mismatch(&self) -> Option<u64> {
        (self.result <= MISMATCH).then(|| (MISMATCH - self.result) as u64)
    }

    /// An error where it was refused.
    pub fn done(self) -> Result<Self> {
        match self.result {
            r if r <= MISMATCH => Err(Error::invalid(Errno::EILSEQ, "the data differ")),
            r if r < 0 => Err(Error::refused(r, "operation")),
            _ => Ok(self),
        }
    }

    pub fn step(&self, at: usize) -> Result<&Step> {
        let none = || Error::Malformed(format!("no output of step {at}"));
        self.steps.get(at).ok_or_else(none)
    }
}

impl Step {
    fn decode<T>(&self, body: impl FnOnce(&mut Reader) -> denc::Result<T>) -> Result<T> {
        Ok(body(&mut Reader::new(self.data.clone()))?)
    }

    /// Size and time of the last change.
    pub fn stat(&self) -> Result<(u64, Utime)> {
        self.decode(|r| Ok((r.u64()?, r.get()?)))
    }

    /// Extents and the bytes in them.
    pub fn sparse(&self) -> Result<(BTreeMap<u64, u64>, Bytes)> {
        self.decode(|r| Ok((r.get()?, r.blob()?)))
    }

    pub fn extents(&self) -> Result<BTreeMap<u64, u64>> {
        self.decode(|r| r.get())
    }

    /// Attributes, or omap values by keys.
    pub fn values(&self) -> Result<BTreeMap<Bytes, Bytes>> {
        self.decode(|r| r.get())
    }

    pub fn omap_keys(&self) -> Result<Page<Bytes>> {
        self.decode(|r| {
            Ok(Page {
                items: r.get()?,
                more: r.bool()?,
            })
        })
    }

    pub fn omap_values(&self) -> Result<Page<(Bytes, Bytes)>> {
        self.decode(|r| {
            let n = r.count(8)?;
            let mut items = Vec::with_capacity(n);
            for _ in 0..n {
                items.push((r.blob()?, r.blob()?));
            }
            let more = r.bool()?;
            Ok(Page { items, more })
        })
    }

    /// Checksums of 32 bits, or with `wide` of 64. None at all beyond the end of the object.
    pub fn checksums(&self, wide: bool) -> Result<Vec<u64>> {
        if self.data.is_empty() {
            return Ok(Vec::new());
        }
        self.decode(|r| {
            let n = r.count(if wide { 8 } else { 4 })?;
            (0..n)
                .map(|_| if wide { r.u64() } else { r.u32().map(u64::from) })
                .collect()
        })
    }

    pub fn snap_set(&self) -> Result<SnapSet> {
        self.decode(|r| {
            r.envelope(2, |version, r| {
                let n = r.count(6)?;
                let clones = (0..n).map(|_| clone_info(r)).collect::<denc::Result<_>>()?;
                let seq = if version >= 2 { r.u64()? } else { 0 };
                Ok(SnapSet { clones, seq })
            })
        })
    }

    pub fn watchers(&self) -> Result<Vec<Watcher>> {
        self.decode(|r| {
            r.envelope(1, |_, r| {
                let n = r.count(6)?;
                (0..n).map(|_| watcher(r)).collect()
            })
        })
    }
}

fn clone_info(r: &mut Reader) -> denc::Result<CloneInfo> {
    r.envelope(1, |_, r| {
        let id = r.u64()?;
        let snaps = r.get()?;
        let n = r.count(16)?;
        let mut overlap = Vec::with_capacity(n);
        for _ in 0..n {
            overlap.push((r.u64()?, r.u64()?));
        }
        Ok(CloneInfo {
            id,
            snaps,
            overlap,
            size: r.u64()?,
        })
    })
}

fn watcher(r: &mut Reader) -> denc::Result<Watcher> {
    r.envelope(2, |_, r| {
        r.u8()?;
        Ok(Watcher {
            client: r.i64()?,
            cookie: r.u64()?,
            timeout_s: r.u32()?,
            addr: r.get()?,
        })
    })
}
