//! A page of a listing, as it travels.

use bytes::Bytes;
use denc::Reader;
use messages::fs::{DirStat, InodeStat, LeaseStat};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: Bytes,
    pub stat: InodeStat,
}

impl Entry {
    pub fn is_dir(&self) -> bool {
        self.stat.mode & 0o170_000 == 0o040_000
    }
}

pub(crate) struct Page {
    pub frag: u32,
    pub flags: u16,
    pub entries: Vec<Entry>,
}

impl Page {
    pub fn parse(extra: &Bytes) -> denc::Result<Self> {
        let mut r = Reader::new(extra.clone());
        let frag = r.get::<DirStat>()?.frag;
        let (n, flags) = (r.u32()?, r.u16()?);
        let mut entries = Vec::new();
        for _ in 0..n {
            let name = r.blob()?;
            let _: LeaseStat = r.get()?;
            entries.push(Entry { name, stat: r.get()? });
        }
        Ok(Self { frag, flags, entries })
    }
}
