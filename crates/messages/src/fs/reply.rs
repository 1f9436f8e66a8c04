//! CLIENT_REPLY: a result, and what the client may learn with it.

use super::stat::{DirStat, InodeStat, LeaseStat};
use crate::mon::Body;
use bytes::Bytes;
use denc::{Encode, Reader, Result, Writer};

/// A name in its directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceDentry {
    pub dir: InodeStat,
    pub dir_stat: DirStat,
    pub name: Bytes,
    pub lease: LeaseStat,
}

/// Nothing else may stand in it: some clients end where bytes are left over. A name without a target does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    pub dentry: Option<Box<TraceDentry>>,
    pub target: Option<Box<InodeStat>>,
}

/// Of CREATE, for who gives numbers to files by itself: what was made, and runs of numbers that are its own from now on (first one, length).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Created {
    pub ino: u64,
    pub delegated: Vec<(u64, u64)>,
}
denc::envelope_denc!(Created, 1, 1, { ino, delegated });

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MClientReply {
    pub op: u32,
    pub result: i32,
    pub map_epoch: u32,
    /// It is durable.
    pub safe: bool,
    pub trace: Trace,
    /// By operation.
    pub extra: Bytes,
    /// Records of snapshot realms, from the inode's up to the root's.
    pub snap: Bytes,
}

impl Encode for Trace {
    fn encode(&self, w: &mut Writer) {
        if let Some(d) = &self.dentry {
            w.put(&d.dir);
            w.put(&d.dir_stat);
            w.put(&d.name);
            w.put(&d.lease);
        }
        if let Some(t) = &self.target {
            w.put(t);
        }
    }
}

impl Body for MClientReply {
    const KIND: u16 = 26;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.op);
        w.i32(self.result);
        w.u32(self.map_epoch);
        w.bool(self.safe);
        w.bool(self.trace.dentry.is_some());
        w.bool(self.trace.target.is_some());
        w.sized(|w| w.put(&self.trace));
        w.put(&self.extra);
        w.put(&self.snap);
    }

    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        let mut body = Self {
            op: r.u32()?,
            result: r.i32()?,
            map_epoch: r.u32()?,
            safe: r.bool()?,
            ..Self::default()
        };
        let (dentry, target) = (r.bool()?, r.bool()?);
        let mut t = Reader::new(r.blob()?);
        if dentry {
            body.trace.dentry = Some(Box::new(TraceDentry {
                dir: t.get()?,
                dir_stat: t.get()?,
                name: t.blob()?,
                lease: t.get()?,
            }));
        }
        if target {
            body.trace.target = Some(Box::new(t.get()?));
        }
        if !t.is_empty() {
            return Err(t.invalid("bytes behind a trace"));
        }
        body.extra = r.blob()?;
        body.snap = r.blob()?;
        Ok(body)
    }
}
