//! CLIENT_CAPS, CLIENT_CAPRELEASE and CLIENT_LEASE: what clients may do on their own, both ways.

use super::stat::{Layout, Xattrs};
use crate::mon::{Body, PRIORITY_DEFAULT};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use msgr::Message;
use types::Utime;

/// Attributes of the inode; not with EXPORT.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapBody {
    pub size: u64,
    pub max_size: u64,
    pub truncate_size: u64,
    pub truncate_seq: u32,
    pub mtime: Utime,
    pub atime: Utime,
    pub ctime: Utime,
    pub layout: Layout,
    pub time_warp_seq: u32,
}
denc::plain_denc!(CapBody {
    size,
    max_size,
    truncate_size,
    truncate_seq,
    mtime,
    atime,
    ctime,
    layout,
    time_warp_seq
});

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MClientCaps {
    pub op: u32,
    pub ino: u64,
    pub realm: u64,
    pub cap_id: u64,
    pub seq: u32,
    pub issue_seq: u32,
    pub caps: u32,
    pub wanted: u32,
    pub dirty: u32,
    pub mseq: u32,
    pub snap_follows: u64,
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    pub nlink: u32,
    pub xattr_version: u64,
    pub body: CapBody,
    pub snap_trace: Bytes,
    pub inline_version: u64,
    pub inline_data: Bytes,
    pub osd_epoch_barrier: u32,
    pub oldest_flush_tid: u64,
    pub caller_uid: u32,
    pub caller_gid: u32,
    pub pool_ns: String,
    pub btime: Utime,
    pub change_attr: u64,
    pub flags: u32,
    pub files: u64,
    pub subdirs: u64,
    /// The middle segment; None: not sent.
    pub xattrs: Option<Xattrs>,
}

impl MClientCaps {
    /// `xattr_len`: bytes of the middle segment.
    fn front(&self, w: &mut Writer, xattr_len: u32) {
        w.u32(self.op);
        w.u64(self.ino);
        w.u64(self.realm);
        w.u64(self.cap_id);
        w.u32(self.seq);
        w.u32(self.issue_seq);
        w.u32(self.caps);
        w.u32(self.wanted);
        w.u32(self.dirty);
        w.u32(self.mseq);
        w.u64(self.snap_follows);
        w.u32(self.snap_trace.len() as u32);
        w.u32(self.uid);
        w.u32(self.gid);
        w.u32(self.mode);
        w.u32(self.nlink);
        w.u32(xattr_len);
        w.u64(self.xattr_version);
        w.put(&self.body);
        w.raw(&self.snap_trace);
        // File locks travel otherwise.
        w.u32(0);
        w.u64(self.inline_version);
        w.put(&self.inline_data);
        w.u32(self.osd_epoch_barrier);
        w.u64(self.oldest_flush_tid);
        w.u32(self.caller_uid);
        w.u32(self.caller_gid);
        w.string(&self.pool_ns);
        w.put(&self.btime);
        w.u64(self.change_attr);
        w.u32(self.flags);
        w.u64(self.files);
        w.u64(self.subdirs);
    }

    /// What came with later versions.
    fn decode_later(&mut self, version: u16, r: &mut Reader) -> Result<()> {
        if version >= 5 {
            self.osd_epoch_barrier = r.u32()?;
        }
        if version >= 6 {
            self.oldest_flush_tid = r.u64()?;
        }
        if version >= 7 {
            self.caller_uid = r.u32()?;
            self.caller_gid = r.u32()?;
        }
        if version >= 8 {
            self.pool_ns = r.string()?;
        }
        if version >= 9 {
            self.btime = r.get()?;
            self.change_attr = r.u64()?;
        }
        if version >= 10 {
            self.flags = r.u32()?;
        }
        if version >= 11 {
            self.files = r.u64()?;
            self.subdirs = r.u64()?;
        }
        Ok(())
    }
}

/// Of EXPORT and IMPORT, which need a second rank.
const EXPORT: u32 = 3;
const IMPORT: u32 = 4;
const PEER_LEN: usize = 21;

impl Body for MClientCaps {
    const KIND: u16 = 0x310;
    const VERSION: u16 = 11;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        self.front(w, self.xattrs.as_ref().map_or(0, |x| x.to_bytes().len() as u32));
    }

    fn decode_front(version: u16, r: &mut Reader) -> Result<Self> {
        let mut m = Self {
            op: r.u32()?,
            ino: r.u64()?,
            realm: r.u64()?,
            cap_id: r.u64()?,
            seq: r.u32()?,
            issue_seq: r.u32()?,
            caps: r.u32()?,
            wanted: r.u32()?,
            dirty: r.u32()?,
            mseq: r.u32()?,
            snap_follows: r.u64()?,
            ..Self::default()
        };
        let snap_trace = r.u32()? as usize;
        m.uid = r.u32()?;
        m.gid = r.u32()?;
        m.mode = r.u32()?;
        m.nlink = r.u32()?;
        let _xattr_len = r.u32()?;
        m.xattr_version = r.u64()?;
        if m.op == EXPORT {
            return Err(r.invalid("capabilities of another rank"));
        }
        m.body = r.get()?;
        m.snap_trace = r.bytes(snap_trace)?;
        if version >= 2 {
            let _flock = r.blob()?;
        }
        if version >= 3 && m.op == IMPORT {
            r.skip(PEER_LEN)?;
        }
        if version >= 4 {
            m.inline_version = r.u64()?;
            m.inline_data = r.blob()?;
        }
        m.decode_later(version, r)?;
        Ok(m)
    }

    fn message(&self, tid: u64) -> Message {
        let middle = self.xattrs.as_ref().map(Encode::to_bytes).unwrap_or_default();
        let mut w = Writer::new();
        self.front(&mut w, middle.len() as u32);
        Message {
            kind: Self::KIND,
            version: Self::VERSION,
            compat: Self::COMPAT,
            priority: PRIORITY_DEFAULT,
            tid,
            front: w.finish(),
            middle,
            ..Message::default()
        }
    }

    fn from_message(m: &Message) -> Result<Self> {
        let mut body = Self::decode_front(m.version, &mut Reader::new(m.front.clone()))?;
        if !m.middle.is_empty() {
            body.xattrs = Some(Xattrs::from_bytes(&m.middle)?);
        }
        Ok(body)
    }
}

/// One capability that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapItem {
    pub ino: u64,
    pub cap_id: u64,
    pub mseq: u32,
    pub issue_seq: u32,
}
denc::plain_denc!(CapItem {
    ino,
    cap_id,
    mseq,
    issue_seq
});

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MClientCapRelease {
    pub items: Vec<CapItem>,
    pub osd_epoch_barrier: u32,
}

impl Body for MClientCapRelease {
    const KIND: u16 = 0x313;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.items);
        w.u32(self.osd_epoch_barrier);
    }

    fn decode_front(version: u16, r: &mut Reader) -> Result<Self> {
        Ok(Self {
            items: r.get()?,
            osd_epoch_barrier: if version >= 2 { r.u32()? } else { 0 },
        })
    }
}

/// What is done with a lease.
pub mod lease_action {
    pub const REVOKE: u8 = 1;
    pub const RELEASE: u8 = 2;
    pub const RENEW: u8 = 3;
    pub const REVOKE_ACK: u8 = 4;
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MClientLease {
    pub action: u8,
    pub mask: u16,
    /// The directory.
    pub ino: u64,
    pub first: u64,
    pub last: u64,
    pub seq: u32,
    pub duration_ms: u32,
    pub name: Bytes,
}

impl Body for MClientLease {
    const KIND: u16 = 0x311;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u8(self.action);
        w.u16(self.mask);
        w.u64(self.ino);
        w.u64(self.first);
        w.u64(self.last);
        w.u32(self.seq);
        w.u32(self.duration_ms);
        w.put(&self.name);
    }

    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        Ok(Self {
            action: r.u8()?,
            mask: r.u16()?,
            ino: r.u64()?,
            first: r.u64()?,
            last: r.u64()?,
            seq: r.u32()?,
            duration_ms: r.u32()?,
            name: r.blob()?,
        })
    }
}
