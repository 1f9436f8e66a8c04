//! Feature bits, flags and op features of an image (docs/protocol/ceph/05-rbd.md, 1.1 and 4.1).

use super::keys;
use super::snapshot;
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done, out};
use bytes::Bytes;
use types::{Errno, NOSNAP};

pub const LAYERING: u64 = 0x1;
pub const STRIPING: u64 = 0x2;
pub const DEEP_FLATTEN: u64 = 0x20;
pub const DATA_POOL: u64 = 0x80;
pub const OPERATIONS: u64 = 0x100;
pub const MIGRATING: u64 = 0x200;

pub const ALL: u64 = 0xfff;
/// A client that does not know them must not even read.
const INCOMPATIBLE: u64 = 0x883;
const RW_INCOMPATIBLE: u64 = 0xfff;
/// May be set and cleared after creation.
const MUTABLE: u64 = 0xc5c;
/// May only be cleared.
const DISABLE_ONLY: u64 = DEEP_FLATTEN;
/// Kept by the class itself.
const INTERNAL: u64 = OPERATIONS | MIGRATING;

pub const OP_CLONE_PARENT: u64 = 0x1;
pub const OP_CLONE_CHILD: u64 = 0x2;
pub const OP_GROUP: u64 = 0x4;
pub const OP_SNAP_TRASH: u64 = 0x8;
const OP_ALL: u64 = 0xf;

fn masked(old: u64, value: u64, mask: u64) -> u64 {
    old & !mask | value & mask
}

/// True if the image has the feature; a header without features has none.
pub fn has(object: &mut Object<'_>, feature: u64) -> Result<bool> {
    Ok(object.get::<u64>(keys::FEATURES)?.unwrap_or(0) & feature != 0)
}

/// ENOEXEC without the feature.
pub fn require(object: &mut Object<'_>, feature: u64) -> Result<()> {
    if has(object, feature)? {
        Ok(())
    } else {
        Err(Errno::ENOEXEC)
    }
}

pub fn get_features(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let _snap_id: u64 = input.get()?;
    let read_only = input.optional::<bool>()?.unwrap_or(false);
    let features: u64 = object.need(keys::FEATURES)?;
    let incompatible = features & if read_only { INCOMPATIBLE } else { RW_INCOMPATIBLE };
    out(&(features, incompatible))
}

pub fn set_features(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (features, mask): (u64, u64) = input.get()?;
    if mask & INTERNAL != 0 {
        return Err(Errno::EINVAL);
    }
    let mask = mask & ALL;
    let (enable, disable) = (features & mask, !features & mask);
    if enable & !MUTABLE != 0 || disable & !(MUTABLE | DISABLE_ONLY) != 0 {
        return Err(Errno::EINVAL);
    }
    let old = object.get::<u64>(keys::FEATURES)?.unwrap_or(0);
    object.set(keys::FEATURES, &masked(old, features, mask))?;
    done()
}

pub fn get_all_features(_: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&ALL)
}

pub fn get_flags(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let snap_id: u64 = input.get()?;
    match snap_id {
        NOSNAP => out(&object.get::<u64>(keys::FLAGS)?.unwrap_or(0)),
        id => out(&snapshot::need(object, id)?.flags),
    }
}

pub fn set_flags(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (flags, mask): (u64, u64) = input.get()?;
    match input.optional::<u64>()?.unwrap_or(NOSNAP) {
        NOSNAP => {
            let old = object.get::<u64>(keys::FLAGS)?.unwrap_or(0);
            object.set(keys::FLAGS, &masked(old, flags, mask))?;
        }
        id => {
            let mut snap = snapshot::need(object, id)?;
            snap.flags = masked(snap.flags, flags, mask);
            snapshot::store(object, &snap)?;
        }
    }
    done()
}

pub fn op_features_get(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.get::<u64>(keys::OP_FEATURES)?.unwrap_or(0))
}

pub fn op_features_set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (value, mask): (u64, u64) = input.get()?;
    if mask & !OP_ALL != 0 {
        return Err(Errno::EINVAL);
    }
    change_op_features(object, value, mask)?;
    done()
}

/// Sets op features under a mask, and the feature `operations` while there are any. At most once in a
/// method: it would not see its own earlier change.
pub fn change_op_features(object: &mut Object<'_>, value: u64, mask: u64) -> Result<()> {
    let old = object.get::<u64>(keys::OP_FEATURES)?.unwrap_or(0);
    let new = masked(old, value, mask);
    if new == old {
        return Ok(());
    }
    let features: u64 = object.need(keys::FEATURES)?;
    if new == 0 {
        object.unset(keys::OP_FEATURES)?;
        object.set(keys::FEATURES, &(features & !OPERATIONS))
    } else {
        object.set(keys::OP_FEATURES, &new)?;
        object.set(keys::FEATURES, &(features | OPERATIONS))
    }
}
