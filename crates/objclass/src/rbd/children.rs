//! Clones of this image: in its header (clone format 2, docs/protocol/ceph/05-rbd.md, 4.4), and in the object
//! `rbd_children` of the child's pool (clone format 1, section 4.6).

use super::features::{self, OP_CLONE_PARENT};
use super::types::{ChildSpec, Snapshot};
use super::{keys, snapshot};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done, out};
use bytes::Bytes;
use denc::Writer;
use std::collections::BTreeSet;
use types::Errno;

fn children_key(snap_id: u64) -> Bytes {
    keys::numbered(keys::SNAP_CHILDREN, snap_id)
}

pub fn child_attach(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (snap_id, child): (u64, ChildSpec) = input.get()?;
    let mut snap: Snapshot = snapshot::need(object, snap_id)?;
    if snap.namespace.is_trash() {
        return Err(Errno::ENOENT);
    }
    let key = children_key(snap_id);
    let mut children: BTreeSet<ChildSpec> = object.get(&key)?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Errno::EEXIST);
    }
    object.set(&key, &children)?;
    snap.child_count = snap.child_count.saturating_add(1);
    snapshot::store(object, &snap)?;
    features::change_op_features(object, OP_CLONE_PARENT, OP_CLONE_PARENT)?;
    done()
}

pub fn child_detach(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (snap_id, child): (u64, ChildSpec) = input.get()?;
    let mut snap: Snapshot = snapshot::need(object, snap_id)?;
    let key = children_key(snap_id);
    let mut children: BTreeSet<ChildSpec> = object.get(&key)?.unwrap_or_default();
    if snap.child_count as usize != children.len() {
        return Err(Errno::EINVAL);
    }
    if !children.remove(&child) {
        return Err(Errno::ENOENT);
    }
    if children.is_empty() {
        object.unset(&key)?;
    } else {
        object.set(&key, &children)?;
    }
    snap.child_count -= 1;
    snapshot::store(object, &snap)?;
    if snap.child_count == 0 {
        let mut others = false;
        snapshot::each(object, |other| {
            others |= other.id != snap_id && other.child_count > 0;
            Ok(())
        })?;
        if !others {
            features::change_op_features(object, 0, OP_CLONE_PARENT)?;
        }
    }
    done()
}

pub fn children_list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let snap_id: u64 = input.get()?;
    snapshot::need(object, snap_id)?;
    out(&object.need::<BTreeSet<ChildSpec>>(&children_key(snap_id))?)
}

/// The binary key of a parent snapshot: pool, image id, snapshot id.
fn parent_key(input: &mut Input) -> Result<Bytes> {
    let mut w = Writer::new();
    w.u64(input.get()?);
    w.blob(&input.get::<Bytes>()?);
    w.u64(input.get()?);
    Ok(w.finish())
}

pub fn add_child(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (key, child): (Bytes, Bytes) = (parent_key(input)?, input.get()?);
    let mut children: BTreeSet<Bytes> = object.get(&key)?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Errno::EEXIST);
    }
    object.set(&key, &children)?;
    done()
}

pub fn remove_child(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (key, child): (Bytes, Bytes) = (parent_key(input)?, input.get()?);
    let mut children: BTreeSet<Bytes> = object.need(&key)?;
    if !children.remove(&child) {
        return Err(Errno::ENOENT);
    }
    if children.is_empty() {
        object.unset(&key)?;
    } else {
        object.set(&key, &children)?;
    }
    done()
}

pub fn get_children(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let key = parent_key(input)?;
    out(&object.need::<BTreeSet<Bytes>>(&key)?)
}
