//! CLIENT_RECONNECT, by which a client tells a server that was started again what it holds; CLIENT_RECLAIM, by which one takes the
//! place of an earlier instance of itself.

use super::stat::FileLock;
use crate::mon::Body;
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use types::EntityAddrVec;

/// One inode that the client holds a capability of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapRecord {
    pub ino: u64,
    /// Its name below `path_base`, as far as the client knows.
    pub path: Bytes,
    pub cap_id: u64,
    pub wanted: u32,
    pub issued: u32,
    pub realm: u64,
    pub path_base: u64,
    pub fcntl: Vec<FileLock>,
    pub flock: Vec<FileLock>,
    pub snap_follows: u64,
}

fn locks(w: &mut Writer, locks: &[FileLock]) {
    w.u32(locks.len() as u32);
    locks.iter().for_each(|l| w.put(l));
}

impl Encode for CapRecord {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.ino);
        w.envelope(2, 1, |w| {
            w.put(&self.path);
            w.u64(self.cap_id);
            w.u32(self.wanted);
            w.u32(self.issued);
            w.u64(self.realm);
            w.u64(self.path_base);
            w.sized(|w| {
                if !self.fcntl.is_empty() || !self.flock.is_empty() {
                    locks(w, &self.fcntl);
                    locks(w, &self.flock);
                }
            });
            w.u64(self.snap_follows);
        });
    }
}

impl Decode for CapRecord {
    const MIN_SIZE: usize = 14;
    fn decode(r: &mut Reader) -> Result<Self> {
        let ino = r.u64()?;
        r.envelope(2, |v, r| {
            let mut c = Self {
                ino,
                path: r.blob()?,
                cap_id: r.u64()?,
                wanted: r.u32()?,
                issued: r.u32()?,
                realm: r.u64()?,
                path_base: r.u64()?,
                ..Self::default()
            };
            let blob = r.blob()?;
            if !blob.is_empty() {
                let mut l = Reader::new(blob);
                c.fcntl = l.get()?;
                c.flock = l.get()?;
            }
            if v >= 2 {
                c.snap_follows = r.u64()?;
            }
            Ok(c)
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RealmRecord {
    pub ino: u64,
    pub seq: u64,
    pub parent: u64,
}
denc::envelope_denc!(RealmRecord, 1, 1, { ino, seq, parent });

/// All of it lies in the data segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MClientReconnect {
    pub caps: Vec<CapRecord>,
    pub realms: Vec<RealmRecord>,
    /// Another message follows.
    pub more: bool,
}
denc::plain_denc!(MClientReconnect { caps, realms, more });

impl Body for MClientReconnect {
    const KIND: u16 = 23;
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;

    fn encode_front(&self, _: &mut Writer) {}

    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        Err(r.invalid("a reconnect has no front"))
    }

    fn data(&self) -> Bytes {
        self.to_bytes()
    }

    fn from_message(m: &msgr::Message) -> Result<Self> {
        let mut r = Reader::new(m.data.clone());
        if m.version < 5 {
            return Err(r.invalid("a reconnect of a client older than Ceph 14"));
        }
        r.get()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MClientReclaim {
    pub uuid: String,
    pub flags: u32,
}

impl Body for MClientReclaim {
    const KIND: u16 = 27;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.string(&self.uuid);
        w.u32(self.flags);
    }

    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        Ok(Self {
            uuid: r.string()?,
            flags: r.u32()?,
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct MClientReclaimReply {
    pub result: i32,
    pub epoch: u32,
    pub addrs: EntityAddrVec,
}

impl Body for MClientReclaimReply {
    const KIND: u16 = 28;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.i32(self.result);
        w.u32(self.epoch);
        w.put(&self.addrs);
    }

    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        Ok(Self {
            result: r.i32()?,
            epoch: r.u32()?,
            addrs: r.get()?,
        })
    }
}
