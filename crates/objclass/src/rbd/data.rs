//! Data objects: copy-up from a parent, sparsifying, and a guard on the snapshot context
//! (docs/protocol/ceph/05-rbd.md, 4.1 and 4.12; why: section 11).

use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::Errno;

/// Data of the parent, written unless somebody was faster.
pub fn copyup(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    if !object.exists()? {
        object.write(0, input.rest())?;
    }
    done()
}

/// As [`copyup`] with holes: extents, and their bytes one after the other.
pub fn sparse_copyup(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (extents, mut data): (BTreeMap<u64, u64>, Bytes) = input.get()?;
    if object.exists()? {
        return done();
    }
    if extents.is_empty() {
        object.create()?;
    }
    for (offset, len) in extents {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > data.len() || offset.checked_add(len as u64).is_none() {
            return Err(Errno::EINVAL);
        }
        object.write(offset, data.split_to(len))?;
    }
    done()
}

/// Ranges of `data` that hold anything but zeros, in whole blocks of `block` bytes, neighbours merged.
fn used_extents(data: &[u8], block: usize) -> Vec<(usize, usize)> {
    let mut extents: Vec<(usize, usize)> = Vec::new();
    for (i, chunk) in data.chunks(block).enumerate() {
        if chunk.iter().all(|b| *b == 0) {
            continue;
        }
        let (start, end) = (i * block, i * block + chunk.len());
        match extents.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => extents.push((start, end)),
        }
    }
    extents
}

/// Gives back the space of blocks that hold only zeros.
pub fn sparsify(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (block, remove_empty): (u64, bool) = input.get()?;
    let block = usize::try_from(block).unwrap_or(usize::MAX);
    if block == 0 {
        return Err(Errno::EINVAL);
    }
    let data = object.read_all()?;
    let extents = used_extents(&data, block);
    match extents.as_slice() {
        [] if remove_empty => object.remove()?,
        [] => object.truncate(0)?,
        [(0, end)] if *end == data.len() => {}
        used => {
            object.truncate(0)?;
            for (start, end) in used {
                object.write(*start as u64, data.slice(*start..*end))?;
            }
        }
    }
    done()
}

const SNAPC_GT: u8 = 0;
const SNAPC_LE: u8 = 1;

/// A migration copies an object unless it was written since: then its snapshot set is newer than the copy.
pub fn assert_snapc_seq(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (seq, how): (u64, u8) = input.get()?;
    // Of one that was removed, and lives on in snapshots, the snapset counts.
    let known = object.snapset_seq()?;
    let newer = seq > known || (known == 0 && !object.exists()?);
    match (how, newer) {
        (SNAPC_GT, true) | (SNAPC_LE, false) => done(),
        (SNAPC_GT | SNAPC_LE, _) => Err(Errno::ERANGE),
        _ => Err(Errno::EOPNOTSUPP),
    }
}
