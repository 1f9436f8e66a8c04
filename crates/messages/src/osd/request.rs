//! MOSDOp (42): operations on one object, or on a PG (docs/protocol/ceph/04-osd.md, section 2).
//!
//! Decodes versions 7, 8 and 9; writes version 8, which every client and server of 12 to 20 understands.

use super::op::OP_SIZE;
use crate::osd::{OsdOp, PRIORITY_REQUEST, join, kind};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use types::{EVersion, ObjectLocator, OsdReqId, PgId, SPgId, Utime};

/// Flags of the message (docs/protocol/ceph/04-osd.md, section 5).
pub mod flag {
    pub const ACK: u32 = 0x1;
    pub const ONNVRAM: u32 = 0x2;
    pub const ONDISK: u32 = 0x4;
    pub const RETRY: u32 = 0x8;
    pub const READ: u32 = 0x10;
    pub const WRITE: u32 = 0x20;
    pub const ORDERSNAP: u32 = 0x40;
    pub const BALANCE_READS: u32 = 0x100;
    pub const PARALLELEXEC: u32 = 0x200;
    pub const LOCALIZE_READS: u32 = 0x2000;
    pub const RWORDERED: u32 = 0x4000;
    pub const IGNORE_OVERLAY: u32 = 0x20000;
    pub const MAP_SNAP_CLONE: u32 = 0x80000;
    pub const ENFORCE_SNAPC: u32 = 0x100000;
    pub const KNOWN_REDIR: u32 = 0x400000;
    pub const FULL_TRY: u32 = 0x800000;
    pub const FULL_FORCE: u32 = 0x1000000;
    pub const RETURNVEC: u32 = 0x4000000;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDOp {
    /// The client's transaction id, from the frame.
    pub tid: u64,
    pub pgid: SPgId,
    /// The object's whole hash; for PG operations the PG's seed.
    pub hash: u32,
    pub epoch: u32,
    /// See [`flag`].
    pub flags: u32,
    /// As sent; clients leave it empty. See [`MOSDOp::effective_reqid`].
    pub reqid: OsdReqId,
    pub trace: [u64; 3],
    pub client_inc: u32,
    pub mtime: Utime,
    pub oloc: ObjectLocator,
    pub oid: Bytes,
    pub ops: Vec<OsdOp>,
    pub snapid: u64,
    pub snap_seq: u64,
    /// Existing snapshots of the write's context, descending.
    pub snaps: Vec<u64>,
    pub retry_attempt: i32,
    pub features: u64,
}

const VERSION: u16 = 8;
const COMPAT: u16 = 3;

impl MOSDOp {
    /// That of the sender's connection, or the explicit one of an OSD (2.3). A client's own is not taken:
    /// with another's id it could make that one's write look done.
    pub fn effective_reqid(&self, sender: types::EntityName) -> OsdReqId {
        let explicit = self.reqid.name.num != 0 || self.reqid.tid != 0;
        if explicit && sender.kind == types::EntityKind::Osd as u8 {
            return self.reqid;
        }
        OsdReqId {
            name: sender,
            tid: self.tid,
            inc: self.client_inc as i32,
        }
    }

    /// True for operations on the PG itself (listing): their `hash` is the PG's seed.
    pub fn is_pg_op(&self) -> bool {
        self.ops.iter().any(|op| op.code.is_pg())
    }

    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    pub fn from_message(m: &msgr::Message) -> Result<Self> {
        let r = &mut Reader::new(m.front.clone());
        match m.version {
            8 | 9 => Self::decode_8(m, r),
            7 => Self::decode_7(m, r),
            _ => Err(r.invalid("MOSDOp of a version that is not spoken")),
        }
    }

    fn decode_8(m: &msgr::Message, r: &mut Reader) -> Result<Self> {
        let pgid = r.get()?;
        let (hash, epoch, flags) = (r.u32()?, r.u32()?, r.u32()?);
        let reqid = r.get()?;
        let trace = [r.u64()?, r.u64()?, r.u64()?];
        if m.version >= 9 {
            // The tracing context of release 19: an envelope of which nothing is used.
            r.envelope(u8::MAX, |_, _| Ok(()))?;
        }
        let (client_inc, mtime) = (r.u32()?, r.get()?);
        let (oloc, oid) = (r.get()?, r.blob()?);
        let ops = decode_ops(r, m.data.clone())?;
        Ok(Self {
            tid: m.tid,
            pgid,
            hash,
            epoch,
            flags,
            reqid,
            trace,
            client_inc,
            mtime,
            oloc,
            oid,
            ops,
            snapid: r.u64()?,
            snap_seq: r.u64()?,
            snaps: r.get()?,
            retry_attempt: r.i32()?,
            features: r.u64()?,
        })
    }

    fn decode_7(m: &msgr::Message, r: &mut Reader) -> Result<Self> {
        let pg: PgId = r.get()?;
        let (epoch, flags) = (r.u32()?, r.u32()?);
        let _reassert: EVersion = r.get()?;
        let reqid = r.get()?;
        let (client_inc, mtime) = (r.u32()?, r.get()?);
        let (oloc, oid) = (r.get()?, r.blob()?);
        let ops = decode_ops(r, m.data.clone())?;
        Ok(Self {
            tid: m.tid,
            pgid: SPgId::replicated(pg),
            hash: pg.seed,
            epoch,
            flags,
            reqid,
            trace: [0; 3],
            client_inc,
            mtime,
            oloc,
            oid,
            ops,
            snapid: r.u64()?,
            snap_seq: r.u64()?,
            snaps: r.get()?,
            retry_attempt: r.i32()?,
            features: r.u64()?,
        })
    }

    pub fn to_message(&self) -> msgr::Message {
        let mut w = Writer::with_capacity(256 + OP_SIZE * self.ops.len());
        w.put(&self.pgid);
        w.u32(self.hash);
        w.u32(self.epoch);
        w.u32(self.flags);
        w.put(&self.reqid);
        self.trace.iter().for_each(|t| w.u64(*t));
        w.u32(self.client_inc);
        w.put(&self.mtime);
        w.put(&self.oloc);
        w.blob(&self.oid);
        w.u16(self.ops.len() as u16);
        for op in &self.ops {
            OsdOp::encode_head(op.code, op.flags, &op.arg, op.indata.len(), &mut w);
        }
        w.u64(self.snapid);
        w.u64(self.snap_seq);
        w.put(&self.snaps);
        w.i32(self.retry_attempt);
        w.u64(self.features);
        msgr::Message {
            kind: kind::OSD_OP,
            version: VERSION,
            compat: COMPAT,
            priority: PRIORITY_REQUEST,
            tid: self.tid,
            front: w.finish(),
            data: join(self.ops.iter().map(|o| &o.indata)),
            ..Default::default()
        }
    }
}

/// The operations, each with its slice of the data section. More in-data than there is data is malformed.
/// What an operation brings is copied out of a message that brings much more, up to this size.
const COPIED_UPTO: usize = 64 << 10;

fn decode_ops(r: &mut Reader, data: Bytes) -> Result<Vec<OsdOp>> {
    let n = r.u16()? as usize;
    if n * OP_SIZE > r.remaining() {
        return Err(r.invalid("more operations than bytes"));
    }
    let data = &mut Reader::new(data);
    let mut ops = Vec::with_capacity(n);
    let mut payloads = Vec::with_capacity(n);
    for _ in 0..n {
        let (op, payload) = OsdOp::decode_head(r)?;
        ops.push(op);
        payloads.push(payload);
    }
    let all = data.remaining();
    for (op, payload) in ops.iter_mut().zip(payloads) {
        let indata = data.bytes(payload)?;
        // The value of an attribute may be kept for as long as its object is known, and a slice would keep all that came with it.
        op.indata = match payload <= COPIED_UPTO && payload < all / 2 {
            true => Bytes::copy_from_slice(&indata),
            false => indata,
        };
    }
    Ok(ops)
}

impl Encode for MOSDOp {
    /// The front of version 8.
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.to_message().front);
    }
}

impl Decode for MOSDOp {
    /// A front of version 8 without data: for fuzzing the layout alone.
    fn decode(r: &mut Reader) -> Result<Self> {
        let m = msgr::Message {
            version: VERSION,
            ..Default::default()
        };
        Self::decode_8(&m, r)
    }
}
