//! Headers of format 1 images, `<name>.rbd` (docs/protocol/ceph/05-rbd.md, 1.4 and 4.12). Clients make such images only where
//! they are forced to, but still use them.
//!
//! Layout, packed: 112 bytes of which this class uses
//! `0  [40]  text, NUL padded` · `64 [4] "RBD\0"` · `80 u64 image size` · `88 u64 snap_seq` ·
//! `96 u32 snap_count` · `104 u64 snap_names_len`; then per snapshot, newest first, `u64 id, u64 image size`;
//! then their names in the same order, each ended by a NUL. The signature is not looked at: clients do that.

use super::snapshot;
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done};
use bytes::Bytes;
use denc::{Reader, Writer};
use types::Errno;

const FIXED: usize = 112;
const TEXT_LEN: usize = 40;
const IMAGE_SIZE_AT: usize = 80;
const SNAP_SEQ_AT: usize = 88;
const SNAP_COUNT_AT: usize = 96;
const NAMES_LEN_AT: usize = 104;
const SNAP_RECORD: usize = 16;

const TEXT: &[u8; 33] = b"<<< Rados Block Device Image >>>\n";
const TEXT_MIGRATING: &[u8; 33] = b"<<< Migrating RBD Image      >>>\n";

pub struct Snapshot {
    id: u64,
    image_size: u64,
    name: Bytes,
}

pub struct Header {
    fixed: Bytes,
    snap_seq: u64,
    image_size: u64,
    pub snapshots: Vec<Snapshot>,
}

impl Header {
    /// EINVAL if the object is missing or no such header.
    pub fn load(object: &mut Object<'_>) -> Result<Self> {
        match object.stat()? {
            Some(stat) => Self::parse(object.read(0, stat.size)?).map_err(|_| Errno::EINVAL),
            None => Err(Errno::EINVAL),
        }
    }

    fn parse(data: Bytes) -> denc::Result<Self> {
        let mut r = Reader::new(data.clone());
        let fixed = r.bytes(FIXED)?;
        let at = |offset: usize| Reader::new(fixed.slice(offset..));
        let image_size = at(IMAGE_SIZE_AT).u64()?;
        let snap_seq = at(SNAP_SEQ_AT).u64()?;
        let count = at(SNAP_COUNT_AT).u32()? as usize;
        let records = r.bytes(count.saturating_mul(SNAP_RECORD))?;
        let names_len = usize::try_from(at(NAMES_LEN_AT).u64()?).unwrap_or(usize::MAX);
        let names = r.bytes(names_len)?;
        let mut records = Reader::new(records);
        let mut snapshots = Vec::with_capacity(count);
        let mut from = 0;
        for _ in 0..count {
            let rest = &names[from..];
            let len = rest.iter().position(|b| *b == 0);
            let len = len.ok_or_else(|| r.invalid("name of a snapshot without an end"))?;
            snapshots.push(Snapshot {
                id: records.u64()?,
                image_size: records.u64()?,
                name: names.slice(from..from + len),
            });
            from += len + 1;
        }
        Ok(Self {
            fixed,
            snap_seq,
            image_size,
            snapshots,
        })
    }

    fn store(&self, object: &mut Object<'_>) -> Result<Bytes> {
        let names_len: usize = self.snapshots.iter().map(|s| s.name.len() + 1).sum();
        let mut w = Writer::with_capacity(FIXED + self.snapshots.len() * SNAP_RECORD + names_len);
        w.raw(&self.fixed[..SNAP_SEQ_AT]);
        w.u64(self.snap_seq);
        w.u32(self.snapshots.len() as u32);
        w.raw(&self.fixed[SNAP_COUNT_AT + 4..NAMES_LEN_AT]);
        w.u64(names_len as u64);
        for snap in &self.snapshots {
            w.u64(snap.id);
            w.u64(snap.image_size);
        }
        for snap in &self.snapshots {
            w.raw(&snap.name);
            w.u8(0);
        }
        object.write_full(w.finish())?;
        done()
    }
}

/// A name that the header can hold.
fn check_name(name: &[u8]) -> Result<()> {
    if name.contains(&0) {
        Err(Errno::EINVAL)
    } else {
        Ok(())
    }
}

pub fn snap_list(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let header = Header::load(object)?;
    let mut w = Writer::new();
    w.u64(header.snap_seq);
    w.u32(header.snapshots.len() as u32);
    for snap in &header.snapshots {
        w.u64(snap.id);
        w.u64(snap.image_size);
        w.blob(&snap.name);
    }
    Ok(w.finish())
}

pub fn snap_add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (name, id): (Bytes, u64) = input.get()?;
    check_name(&name)?;
    let mut header = Header::load(object)?;
    if header.snap_seq > id {
        return Err(Errno::ESTALE);
    }
    if header.snapshots.len() as u64 >= snapshot::limit(object)? {
        return Err(Errno::EDQUOT);
    }
    if header.snapshots.iter().any(|s| s.name == name) {
        return Err(Errno::EEXIST);
    }
    let image_size = header.image_size;
    header.snapshots.insert(0, Snapshot { id, image_size, name });
    header.snap_seq = id;
    header.store(object)
}

pub fn snap_remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let name: Bytes = input.get()?;
    let mut header = Header::load(object)?;
    let at = header
        .snapshots
        .iter()
        .position(|s| s.name == name)
        .ok_or(Errno::ENOENT)?;
    header.snapshots.remove(at);
    header.store(object)
}

pub fn snap_rename(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, name): (u64, Bytes) = input.get()?;
    check_name(&name)?;
    let mut header = Header::load(object)?;
    if header.snapshots.iter().any(|s| s.name == name) {
        return Err(Errno::EEXIST);
    }
    let snap = header
        .snapshots
        .iter_mut()
        .find(|s| s.id == id)
        .ok_or(Errno::ENOENT)?;
    snap.name = name;
    header.store(object)
}

/// Whether the header's text tells of a migration; ENXIO if the object has no such text at all.
pub fn is_migrating(object: &mut Object<'_>) -> Result<bool> {
    let text = match object.exists()? {
        true => object.read(0, TEXT_LEN as u64)?,
        false => Bytes::new(),
    };
    if text.starts_with(TEXT_MIGRATING) {
        Ok(true)
    } else if text.starts_with(TEXT) {
        Ok(false)
    } else {
        Err(Errno::ENXIO)
    }
}

pub fn set_migrating(object: &mut Object<'_>, migrating: bool) -> Result<()> {
    let text: &'static [u8] = if migrating { TEXT_MIGRATING } else { TEXT };
    object.write(0, Bytes::from_static(text))
}
