//! Who speaks: numeric names on the wire (`osd.2`), and names for authentication (`client.admin`).
//! See docs/protocol/ceph/01-messenger.md, 2.1.

use denc::{Decode, Encode, Reader, Result, Writer};
use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntityKind {
    Mon = 0x01,
    Mds = 0x02,
    Osd = 0x04,
    Client = 0x08,
    Mgr = 0x10,
    /// Only as the service id of the ticket for the monitors themselves.
    Auth = 0x20,
}

impl EntityKind {
    pub const ALL: [EntityKind; 6] = [
        Self::Mon,
        Self::Mds,
        Self::Osd,
        Self::Client,
        Self::Mgr,
        Self::Auth,
    ];

    pub fn from_u32(v: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|k| *k as u32 == v)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mon => "mon",
            Self::Mds => "mds",
            Self::Osd => "osd",
            Self::Client => "client",
            Self::Mgr => "mgr",
            Self::Auth => "auth",
        }
    }
}

impl fmt::Display for EntityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `u8 kind, s64 num`; the number is the rank, the OSD id or the client's global id. -1 is "not yet known".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityName {
    /// Raw, since peers also send 0 ("none") here.
    pub kind: u8,
    pub num: i64,
}
denc::plain_denc!(EntityName { kind, num });

impl EntityName {
    pub fn new(kind: EntityKind, num: i64) -> Self {
        Self {
            kind: kind as u8,
            num,
        }
    }
    pub fn client(global_id: u64) -> Self {
        Self::new(EntityKind::Client, global_id as i64)
    }
    pub fn osd(id: i32) -> Self {
        Self::new(EntityKind::Osd, id as i64)
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = EntityKind::from_u32(self.kind as u32).map_or("unknown", EntityKind::as_str);
        if self.num < 0 {
            write!(f, "{kind}.?")
        } else {
            write!(f, "{kind}.{}", self.num)
        }
    }
}

/// Name for authentication: `u32 kind, string id`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthName {
    pub kind: EntityKind,
    pub id: String,
}

impl AuthName {
    pub fn new(kind: EntityKind, id: impl Into<String>) -> Self {
        Self { kind, id: id.into() }
    }
}

impl Encode for AuthName {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.kind as u32);
        w.string(&self.id);
    }
}

impl Decode for AuthName {
    const MIN_SIZE: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self> {
        let kind = EntityKind::from_u32(r.u32()?).ok_or_else(|| r.invalid("unknown entity type"))?;
        Ok(Self {
            kind,
            id: r.string()?,
        })
    }
}

impl fmt::Display for AuthName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.id)
    }
}

impl FromStr for AuthName {
    type Err = ();
    fn from_str(s: &str) -> std::result::Result<Self, ()> {
        let (kind, id) = s.split_once('.').ok_or(())?;
        let kind = EntityKind::ALL
            .into_iter()
            .find(|k| k.as_str() == kind)
            .ok_or(())?;
        Ok(Self {
            kind,
            id: id.to_string(),
        })
    }
}
