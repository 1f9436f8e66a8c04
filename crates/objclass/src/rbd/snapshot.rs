//! Snapshots of an image: the records in its header (docs/protocol/ceph/05-rbd.md, 4.2). The ids come from the monitor;
//! `snap_seq` is the highest that was ever added.

use super::features::{self, LAYERING, OP_CLONE_CHILD, OP_SNAP_TRASH};
use super::types::{Parent, Snapshot, SnapshotNamespace};
use super::{format1, keys};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, out, stored};
use bytes::Bytes;
use types::{Errno, NOSNAP, Uuid};

const MAXSNAP: u64 = NOSNAP - 1;
const NO_LIMIT: u64 = u64::MAX;
/// Of one image. Who opens it asks for all of them in one message, whose operations are limited: with more it could not be opened
/// any more, so none is added.
pub const SNAPSHOTS_MAX: u64 = 3000;

const UNPROTECTED: u8 = 0;
const PROTECTED: u8 = 2;

/// The record, or ENOENT.
pub fn need(object: &mut Object<'_>, id: u64) -> Result<Snapshot> {
    object.need(&keys::numbered(keys::SNAPSHOT, id))
}

pub fn store(object: &mut Object<'_>, snap: &Snapshot) -> Result<()> {
    object.set(&keys::numbered(keys::SNAPSHOT, snap.id), snap)
}

/// Calls `f` for every snapshot in the order of ids.
pub fn each(object: &mut Object<'_>, mut f: impl FnMut(Snapshot) -> Result<()>) -> Result<()> {
    object.scan(keys::SNAPSHOT, b"", |_, value| {
        f(stored(value)?)?;
        Ok(Scan::Next)
    })
}

/// The record of a real snapshot: EINVAL for the head's id.
fn need_not_head(object: &mut Object<'_>, id: u64) -> Result<Snapshot> {
    if id == NOSNAP {
        return Err(Errno::EINVAL);
    }
    need(object, id)
}

pub fn get_snapcontext(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let seq: u64 = object.need(keys::SNAP_SEQ)?;
    let mut ids = Vec::new();
    object.scan(keys::SNAPSHOT, b"", |name, _| {
        let text = std::str::from_utf8(name).map_err(|_| Errno::EIO)?;
        ids.push(u64::from_str_radix(text, 16).map_err(|_| Errno::EIO)?);
        Ok(Scan::Next)
    })?;
    ids.reverse();
    out(&(seq, ids))
}

pub fn snapshot_add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (name, id): (Bytes, u64) = input.get()?;
    let namespace = input.optional()?.unwrap_or(SnapshotNamespace::User);
    if id > MAXSNAP || matches!(namespace, SnapshotNamespace::Unknown { .. }) {
        return Err(Errno::EINVAL);
    }
    if id < object.need::<u64>(keys::SNAP_SEQ)? {
        return Err(Errno::ESTALE);
    }
    let limit = limit(object)?;
    let (mut count, mut taken) = (0u64, false);
    each(object, |other| {
        count += 1;
        taken |= other.id == id || other.name == name && other.namespace.same(&namespace);
        Ok(())
    })?;
    if count >= limit {
        return Err(Errno::EDQUOT);
    }
    if taken {
        return Err(Errno::EEXIST);
    }
    if namespace.is_trash() {
        features::change_op_features(object, OP_SNAP_TRASH, OP_SNAP_TRASH)?;
    }
    let parent = object.get::<Parent>(keys::PARENT)?;
    let snap = Snapshot {
        id,
        name,
        image_size: object.need(keys::SIZE)?,
        protection: UNPROTECTED,
        flags: object.get(keys::FLAGS)?.unwrap_or(0),
        namespace,
        timestamp: object.now(),
        child_count: 0,
        parent_overlap: parent.and_then(|p| p.head_overlap),
    };
    object.set(keys::SNAP_SEQ, &id)?;
    store(object, &snap)?;
    done()
}

pub fn snapshot_get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id = input.get()?;
    out(&need_not_head(object, id)?.info())
}

pub fn get_snapshot_name(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id = input.get()?;
    out(&need_not_head(object, id)?.name)
}

pub fn get_snapshot_timestamp(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id = input.get()?;
    out(&need_not_head(object, id)?.timestamp)
}

pub fn snapshot_rename(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, new_name): (u64, Bytes) = input.get()?;
    let mut taken = false;
    each(object, |other| {
        let is_user = other.namespace == SnapshotNamespace::User;
        taken |= is_user && other.name == new_name;
        Ok(())
    })?;
    if taken {
        return Err(Errno::EEXIST);
    }
    let mut snap = need(object, id)?;
    if snap.namespace != SnapshotNamespace::User {
        return Err(Errno::EINVAL);
    }
    snap.name = new_name;
    store(object, &snap)?;
    done()
}

pub fn snapshot_remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: u64 = input.get()?;
    let snap = need(object, id)?;
    if snap.protection != UNPROTECTED || snap.child_count > 0 {
        return Err(Errno::EBUSY);
    }
    let (mut child_left, mut trash_left) = (false, false);
    each(object, |other| {
        if other.id != id {
            child_left |= other.parent_overlap.is_some();
            trash_left |= other.namespace.is_trash();
        }
        Ok(())
    })?;
    let parent = object.get::<Parent>(keys::PARENT)?;
    let head_is_child = parent.as_ref().is_some_and(|p| p.head_overlap.is_some());
    object.unset(&keys::numbered(keys::SNAPSHOT, id))?;
    if parent.is_some() && !head_is_child && !child_left {
        object.unset(keys::PARENT)?;
    }
    let mut clear = 0;
    if !head_is_child && !child_left {
        clear |= OP_CLONE_CHILD;
    }
    if !trash_left {
        clear |= OP_SNAP_TRASH;
    }
    features::change_op_features(object, 0, clear)?;
    done()
}

/// The user removes a snapshot that a clone may still need: it loses its name and waits in the trash.
pub fn snapshot_trash_add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: u64 = input.get()?;
    let mut snap = need(object, id)?;
    if snap.protection != UNPROTECTED {
        return Err(Errno::EBUSY);
    }
    if snap.namespace.is_trash() {
        return Err(Errno::EEXIST);
    }
    features::change_op_features(object, OP_SNAP_TRASH, OP_SNAP_TRASH)?;
    snap.namespace = SnapshotNamespace::Trash {
        original_name: snap.name,
        original_kind: snap.namespace.kind(),
    };
    snap.name = Uuid::from_random(object.random()).to_string().into();
    store(object, &snap)?;
    done()
}

pub fn get_protection_status(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: u64 = input.get()?;
    out(&need_not_head(object, id)?.protection)
}

pub fn set_protection_status(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, status): (u64, u8) = input.get()?;
    object.must_exist()?;
    features::require(object, LAYERING)?;
    if id == NOSNAP || status > PROTECTED {
        return Err(Errno::EINVAL);
    }
    let mut snap = need(object, id)?;
    snap.protection = status;
    store(object, &snap)?;
    done()
}

pub fn snapshot_get_limit(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.get::<u64>(keys::SNAP_LIMIT)?.unwrap_or(NO_LIMIT))
}

pub fn snapshot_set_limit(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let limit: u64 = input.get()?;
    if limit == NO_LIMIT {
        object.unset(keys::SNAP_LIMIT)?;
        return done();
    }
    let mut count = 0u64;
    if object.has(keys::SNAP_SEQ)? {
        each(object, |_| {
            count += 1;
            Ok(())
        })?;
    } else {
        // Of format 1, or no header yet.
        count = format1::Header::load(object).map_or(0, |header| header.snapshots.len() as u64);
    }
    if limit < count {
        return Err(Errno::ERANGE);
    }
    object.set(keys::SNAP_LIMIT, &limit)?;
    done()
}

/// The limit that a snapshot more must not exceed.
pub fn limit(object: &mut Object<'_>) -> Result<u64> {
    Ok(object
        .get::<u64>(keys::SNAP_LIMIT)?
        .unwrap_or(NO_LIMIT)
        .min(SNAPSHOTS_MAX))
}
