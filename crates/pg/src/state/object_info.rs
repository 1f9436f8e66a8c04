//! What a PG keeps with each object besides its data: one attribute, own versioned encoding.
//!
//! Attribute names in the store: `i` object info, `s` snapshot set (heads only), `_name` the client's xattr
//! `name`. A clone carries copies of its head's `i` and `s` as of cloning; of these only `i` without the
//! watchers is looked at.

use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use types::{EVersion, EntityAddr, EntityName, OsdReqId, Utime};

pub(crate) const INFO_ATTR: &[u8] = b"i";
pub(crate) const SNAPSET_ATTR: &[u8] = b"s";
const USER_PREFIX: u8 = b'_';

/// The store's name of a client's xattr.
pub(crate) fn user_attr(name: &[u8]) -> Bytes {
    let mut b = Vec::with_capacity(name.len() + 1);
    b.push(USER_PREFIX);
    b.extend_from_slice(name);
    b.into()
}

/// The client's name of an attribute; `None` for the PG's own.
pub(crate) fn user_name(attr: &Bytes) -> Option<Bytes> {
    (attr.first() == Some(&USER_PREFIX)).then(|| attr.slice(1..))
}

/// A registered watch, as it survives a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchRecord {
    pub name: EntityName,
    pub cookie: u64,
    pub timeout_s: u32,
    pub addr: EntityAddr,
}
denc::plain_denc!(WatchRecord {
    name,
    cookie,
    timeout_s,
    addr
});

/// (client number, cookie): the order of the lists in NOTIFY_COMPLETE.
pub(crate) type WatchKey = (i64, u64);

pub(crate) fn key_of(r: &WatchRecord) -> WatchKey {
    (r.name.num, r.cookie)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AllocHint {
    pub object_size: u64,
    pub write_size: u64,
    pub flags: u32,
}
denc::plain_denc!(AllocHint {
    object_size,
    write_size,
    flags
});

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectInfo {
    pub version: EVersion,
    pub user_version: u64,
    pub mtime: Utime,
    /// Deleted, but kept for its clones.
    pub whiteout: bool,
    /// Has, or had, omap keys or a header.
    pub omap: bool,
    pub truncate_seq: u32,
    pub truncate_size: u64,
    pub alloc_hint: Option<AllocHint>,
    pub last_reqid: OsdReqId,
    pub watchers: Vec<WatchRecord>,
}

pub(crate) const NO_REQID: OsdReqId = OsdReqId {
    name: EntityName { kind: 0, num: 0 },
    tid: 0,
    inc: 0,
};

impl Default for ObjectInfo {
    fn default() -> Self {
        Self {
            version: EVersion::default(),
            user_version: 0,
            mtime: Utime::ZERO,
            whiteout: false,
            omap: false,
            truncate_seq: 0,
            truncate_size: 0,
            alloc_hint: None,
            last_reqid: NO_REQID,
            watchers: Vec::new(),
        }
    }
}

const WHITEOUT: u8 = 1;
const OMAP: u8 = 2;

impl Encode for ObjectInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.version);
            w.u64(self.user_version);
            w.put(&self.mtime);
            w.u8(u8::from(self.whiteout) * WHITEOUT + u8::from(self.omap) * OMAP);
            w.u32(self.truncate_seq);
            w.u64(self.truncate_size);
            w.put(&self.alloc_hint);
            w.put(&self.last_reqid);
            w.put(&self.watchers);
        });
    }

    fn to_bytes(&self) -> Bytes {
        let mut w = Writer::with_capacity(160 + 56 * self.watchers.len());
        self.encode(&mut w);
        w.finish()
    }
}

impl Decode for ObjectInfo {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(1, |_, r| {
            let (version, user_version, mtime) = (r.get()?, r.u64()?, r.get()?);
            let flags = r.u8()?;
            Ok(Self {
                version,
                user_version,
                mtime,
                whiteout: flags & WHITEOUT != 0,
                omap: flags & OMAP != 0,
                truncate_seq: r.u32()?,
                truncate_size: r.u64()?,
                alloc_hint: r.get()?,
                last_reqid: r.get()?,
                watchers: r.get()?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_encoding() {
        let info = ObjectInfo {
            version: EVersion::new(3, 4),
            user_version: 5,
            mtime: Utime { sec: 6, nsec: 7 },
            whiteout: true,
            omap: true,
            truncate_seq: 8,
            truncate_size: 9,
            alloc_hint: Some(AllocHint {
                object_size: 1,
                write_size: 2,
                flags: 3,
            }),
            last_reqid: NO_REQID,
            watchers: vec![WatchRecord {
                name: EntityName::client(4),
                cookie: 5,
                timeout_s: 30,
                addr: EntityAddr::BLANK,
            }],
        };
        assert_eq!(ObjectInfo::from_bytes(&info.to_bytes()), Ok(info));
    }

    #[test]
    fn names_of_clients_and_of_the_pg_never_meet() {
        assert_eq!(user_name(&user_attr(b"i")), Some(Bytes::from_static(b"i")));
        assert_eq!(user_name(&Bytes::from_static(INFO_ATTR)), None);
        assert_eq!(user_name(&Bytes::from_static(SNAPSET_ATTR)), None);
    }
}
