//! This image is a clone: its parent and how much of it shows through (docs/protocol/ceph/05-rbd.md, 4.3).

use super::features::{self, DEEP_FLATTEN, LAYERING, OP_CLONE_CHILD};
use super::types::{Parent, ParentSpec, Snapshot};
use super::{keys, snapshot};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done, out};
use bytes::Bytes;
use types::{Errno, NOSNAP};

/// The parent, if the image can have one.
fn load(object: &mut Object<'_>) -> Result<Option<Parent>> {
    if !features::has(object, LAYERING)? {
        return Ok(None);
    }
    object.get(keys::PARENT)
}

pub fn parent_get(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&load(object)?.map_or(ParentSpec::NONE, |p| p.spec))
}

pub fn parent_overlap_get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let snap_id: u64 = input.get()?;
    if !features::has(object, LAYERING)? {
        return out(&None::<u64>);
    }
    match snap_id {
        NOSNAP => out(&load(object)?.and_then(|p| p.head_overlap)),
        id => out(&snapshot::need(object, id)?.parent_overlap),
    }
}

pub fn parent_attach(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (spec, overlap): (ParentSpec, u64) = input.get()?;
    let reattach = input.optional::<bool>()?.unwrap_or(false);
    attach(object, spec, overlap, reattach)
}

fn attach(object: &mut Object<'_>, spec: ParentSpec, overlap: u64, reattach: bool) -> Result<Bytes> {
    object.must_exist()?;
    features::require(object, LAYERING)?;
    let size: u64 = object.need(keys::SIZE)?;
    let had: Option<Parent> = object.get(keys::PARENT)?;
    // A clone whose snapshots alone read from their parent can change it, unlike in 16.2.
    let changes = reattach && had.is_some();
    if !spec.exists() || overlap == 0 && !changes {
        return Err(Errno::EINVAL);
    }
    if let Some(have) = &had
        && (have.head_overlap.is_some() || have.spec != spec)
        && !reattach
    {
        return Err(Errno::EEXIST);
    }
    let parent = Parent {
        spec,
        // A head that has left its parent does not come back to it.
        head_overlap: match had {
            Some(had) if overlap == 0 && had.head_overlap.is_none() => None,
            _ => Some(overlap.min(size)),
        },
    };
    object.set(keys::PARENT, &parent)?;
    done()
}

pub fn parent_detach(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    detach(object)
}

/// The head needs its parent no more. With deep-flatten its snapshots do not either (the client copied the
/// data into them, too); without, the record stays as long as one does.
fn detach(object: &mut Object<'_>) -> Result<Bytes> {
    object.must_exist()?;
    features::require(object, LAYERING)?;
    let mut parent: Parent = object.need(keys::PARENT)?;
    if parent.head_overlap.is_none() {
        return Err(Errno::ENOENT);
    }
    let mut children = Vec::new();
    snapshot::each(object, |snap| {
        if snap.parent_overlap.is_some() {
            children.push(snap);
        }
        Ok(())
    })?;
    if features::has(object, DEEP_FLATTEN)? {
        for mut snap in children.drain(..) {
            snap.parent_overlap = None;
            snapshot::store(object, &snap)?;
        }
    }
    if children.is_empty() {
        object.unset(keys::PARENT)?;
        features::change_op_features(object, 0, OP_CLONE_CHILD)?;
    } else {
        parent.head_overlap = None;
        object.set(keys::PARENT, &parent)?;
    }
    done()
}

// The forms from before nautilus, which know no namespaces of pools.

fn check_no_namespace(parent: &Option<Parent>) -> Result<()> {
    match parent {
        Some(p) if !p.spec.pool_namespace.is_empty() => Err(Errno::EXDEV),
        _ => Ok(()),
    }
}

pub fn get_parent(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let snap_id: u64 = input.get()?;
    let parent = load(object)?;
    check_no_namespace(&parent)?;
    let (spec, overlap) = match (parent, snap_id) {
        (None, _) => (ParentSpec::NONE, 0),
        (Some(parent), NOSNAP) => (parent.spec, parent.head_overlap.unwrap_or(0)),
        (Some(parent), id) => {
            let snap = object.get::<Snapshot>(&keys::numbered(keys::SNAPSHOT, id))?;
            match snap.and_then(|s| s.parent_overlap) {
                Some(overlap) => (parent.spec, overlap),
                None => (ParentSpec::NONE, 0),
            }
        }
    };
    out(&((spec.pool, spec.image_id), (spec.snap_id, overlap)))
}

pub fn set_parent(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (pool, image_id, snap_id): (i64, Bytes, u64) = (input.get()?, input.get()?, input.get()?);
    let spec = ParentSpec {
        pool,
        pool_namespace: Bytes::new(),
        image_id,
        snap_id,
    };
    let overlap = input.get()?;
    attach(object, spec, overlap, false)
}

pub fn remove_parent(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let parent = load(object)?;
    check_no_namespace(&parent)?;
    detach(object)
}
