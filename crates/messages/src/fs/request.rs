//! CLIENT_REQUEST: what a client asks for by name or number.

use crate::mon::Body;
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use types::Utime;

/// Flags of a request's head.
pub mod request_flag {
    pub const REPLAY: u32 = 1;
    pub const WANT_DENTRY: u32 = 2;
    pub const ASYNC: u32 = 4;
}

const ARGS_LEN: usize = 56;

/// The arguments of all operations lie over each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args(pub [u8; ARGS_LEN]);

impl Default for Args {
    fn default() -> Self {
        Self([0; ARGS_LEN])
    }
}

/// Arguments of SETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Utime,
    pub atime: Utime,
    pub size: u64,
    pub old_size: u64,
    pub mask: u32,
    pub btime: Utime,
}

impl Args {
    pub fn u8_at(&self, at: usize) -> u8 {
        self.0[at]
    }

    pub fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    pub fn u32_at(&self, at: usize) -> u32 {
        let mut b = [0; 4];
        b.copy_from_slice(&self.0[at..at + 4]);
        u32::from_le_bytes(b)
    }

    pub fn u64_at(&self, at: usize) -> u64 {
        let mut b = [0; 8];
        b.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(b)
    }

    fn time_at(&self, at: usize) -> Utime {
        Utime {
            sec: self.u32_at(at),
            nsec: self.u32_at(at + 4),
        }
    }

    pub fn setattr(&self) -> SetAttr {
        SetAttr {
            mode: self.u32_at(0),
            uid: self.u32_at(4),
            gid: self.u32_at(8),
            mtime: self.time_at(12),
            atime: self.time_at(20),
            size: self.u64_at(28),
            old_size: self.u64_at(36),
            mask: self.u32_at(44),
            btime: self.time_at(48),
        }
    }

    pub fn of_setattr(s: &SetAttr) -> Self {
        let mut w = Writer::new();
        w.u32(s.mode);
        w.u32(s.uid);
        w.u32(s.gid);
        w.put(&s.mtime);
        w.put(&s.atime);
        w.u64(s.size);
        w.u64(s.old_size);
        w.u32(s.mask);
        w.put(&s.btime);
        Self::from_slice(w.as_slice())
    }

    /// What is shorter ends in zeros.
    pub fn from_slice(b: &[u8]) -> Self {
        let mut args = Self::default();
        let n = b.len().min(ARGS_LEN);
        args.0[..n].copy_from_slice(&b[..n]);
        args
    }

    pub fn words(words: &[u32]) -> Self {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        Self::from_slice(&bytes)
    }
}

/// An inode and a path from there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilePath {
    pub ino: u64,
    pub path: Bytes,
}

impl FilePath {
    pub fn new(ino: u64, path: impl Into<Bytes>) -> Self {
        Self {
            ino,
            path: path.into(),
        }
    }
}

impl Encode for FilePath {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.ino);
        w.put(&self.path);
    }
}

impl Decode for FilePath {
    const MIN_SIZE: usize = 13;
    fn decode(r: &mut Reader) -> Result<Self> {
        let _ = r.u8()?;
        Ok(Self {
            ino: r.u64()?,
            path: r.blob()?,
        })
    }
}

/// What the caller gives up before the request is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Release {
    pub ino: u64,
    pub cap_id: u64,
    /// What it keeps.
    pub caps: u32,
    pub wanted: u32,
    pub seq: u32,
    pub issue_seq: u32,
    pub mseq: u32,
    pub name_seq: u32,
    pub name: Bytes,
}

impl Encode for Release {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.ino);
        w.u64(self.cap_id);
        w.u32(self.caps);
        w.u32(self.wanted);
        w.u32(self.seq);
        w.u32(self.issue_seq);
        w.u32(self.mseq);
        w.u32(self.name_seq);
        w.put(&self.name);
    }
}

impl Decode for Release {
    const MIN_SIZE: usize = 44;
    fn decode(r: &mut Reader) -> Result<Self> {
        Ok(Self {
            ino: r.u64()?,
            cap_id: r.u64()?,
            caps: r.u32()?,
            wanted: r.u32()?,
            seq: r.u32()?,
            issue_seq: r.u32()?,
            mseq: r.u32()?,
            name_seq: r.u32()?,
            name: r.blob()?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MClientRequest {
    pub oldest_tid: u64,
    pub map_epoch: u32,
    pub flags: u32,
    pub retries: u8,
    pub forwards: u8,
    pub op: u32,
    pub uid: u32,
    pub gid: u32,
    /// The number of the new inode, where the client already knows it.
    pub ino: u64,
    pub args: Args,
    /// Since head version 2.
    pub more_retries: Option<(u32, u32)>,
    /// Who is to own what is made; since head version 3.
    pub owner: Option<(u32, u32)>,
    pub path: FilePath,
    pub path2: FilePath,
    pub releases: Vec<Release>,
    pub stamp: Utime,
    pub gids: Vec<u64>,
    pub alternate_name: Bytes,
    /// The data segment.
    pub data: Bytes,
}

/// Bytes of a head of version 3.
const HEAD_LEN: u32 = 2 + 8 + 4 + 4 + 1 + 1 + 2 + 4 + 4 + 4 + 8 + ARGS_LEN as u32 + 8 + 12;

impl MClientRequest {
    fn head_version(&self) -> u16 {
        match (self.more_retries, self.owner) {
            (_, Some(_)) => 3,
            (Some(_), None) => 2,
            (None, None) => 1,
        }
    }
}

impl Body for MClientRequest {
    const KIND: u16 = 24;
    const VERSION: u16 = 5;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u16(self.head_version());
        w.u64(self.oldest_tid);
        w.u32(self.map_epoch);
        w.u32(self.flags);
        w.u8(self.retries);
        w.u8(self.forwards);
        w.u16(self.releases.len() as u16);
        w.u32(self.op);
        w.u32(self.uid);
        w.u32(self.gid);
        w.u64(self.ino);
        w.raw(&self.args.0);
        if self.head_version() >= 2 {
            let (retry, fwd) = self.more_retries.unwrap_or_default();
            w.u32(retry);
            w.u32(fwd);
        }
        if let Some((uid, gid)) = self.owner {
            w.u32(HEAD_LEN);
            w.u32(uid);
            w.u32(gid);
        }
        w.put(&self.path);
        w.put(&self.path2);
        for release in &self.releases {
            w.put(release);
        }
        w.put(&self.stamp);
        w.put(&self.gids);
        w.put(&self.alternate_name);
    }

    fn decode_front(version: u16, r: &mut Reader) -> Result<Self> {
        if version < 4 {
            return Err(r.invalid("request of a client older than Ceph 14"));
        }
        let begin = r.position();
        let head = r.u16()?;
        let mut body = Self {
            oldest_tid: r.u64()?,
            map_epoch: r.u32()?,
            flags: r.u32()?,
            retries: r.u8()?,
            forwards: r.u8()?,
            ..Self::default()
        };
        let releases = r.u16()?;
        body.op = r.u32()?;
        body.uid = r.u32()?;
        body.gid = r.u32()?;
        body.ino = r.u64()?;
        body.args = Args(r.array()?);
        if head >= 2 {
            body.more_retries = Some((r.u32()?, r.u32()?));
        }
        if head >= 3 {
            let len = r.u32()? as usize;
            body.owner = Some((r.u32()?, r.u32()?));
            let read = r.position() - begin;
            r.skip(len.saturating_sub(read))?;
        }
        body.path = r.get()?;
        body.path2 = r.get()?;
        for _ in 0..releases {
            body.releases.push(r.get()?);
        }
        body.stamp = r.get()?;
        body.gids = r.get()?;
        if version >= 5 {
            body.alternate_name = r.blob()?;
        }
        Ok(body)
    }

    fn data(&self) -> Bytes {
        self.data.clone()
    }

    fn set_data(&mut self, data: Bytes) {
        self.data = data;
    }
}
