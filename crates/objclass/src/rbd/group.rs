//! Groups of images: a group's header `rbd_group_header.<id>`, and the reference to its group in an image's
//! header (docs/protocol/ceph/05-rbd.md, 4.8 and 4.9). Directories of groups are in `directory`.
//!
//! The order in which snapshots of a group were made (asked for by clients of release 19 and later) is kept in
//! an xattr of our own, since everything else in the omap is what other servers show there.

use super::features::{self, OP_GROUP};
use super::keys;
use super::types::{Group, GroupImage, GroupImageStatus, GroupSnapshot};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, key, list_max, out, stored};
use bytes::Bytes;
use denc::envelope_denc;
use std::collections::BTreeMap;
use types::Errno;

// In the image's header.

pub fn image_group_add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let group: Group = input.get()?;
    match object.get::<Group>(keys::GROUP_REF)? {
        Some(have) if have == group => return done(),
        Some(_) => return Err(Errno::EEXIST),
        None => {}
    }
    features::change_op_features(object, OP_GROUP, OP_GROUP)?;
    object.set(keys::GROUP_REF, &group)?;
    done()
}

pub fn image_group_remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let group: Group = input.get()?;
    if object.need::<Group>(keys::GROUP_REF)? != group {
        return Err(Errno::EBADF);
    }
    features::change_op_features(object, 0, OP_GROUP)?;
    object.unset(keys::GROUP_REF)?;
    done()
}

pub fn image_group_get(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.get(keys::GROUP_REF)?.unwrap_or(Group::NONE))
}

// In the group's header: images.

/// 16 hex digits of the pool, `_`, the image id.
fn image_name(image: &GroupImage) -> Bytes {
    key(format!("{:016x}_", image.pool).as_bytes(), &image.image_id)
}

fn parse_image_name(name: &Bytes) -> Result<GroupImage> {
    if name.len() < 17 || name[16] != b'_' {
        return Err(Errno::EIO);
    }
    let digits = std::str::from_utf8(&name[..16]).map_err(|_| Errno::EIO)?;
    let pool = u64::from_str_radix(digits, 16).map_err(|_| Errno::EIO)? as i64;
    Ok(GroupImage {
        image_id: name.slice(17..),
        pool,
    })
}

pub fn group_image_set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let status: GroupImageStatus = input.get()?;
    object.set(&key(keys::IMAGE, &image_name(&status.image)), &status.state)?;
    done()
}

pub fn group_image_remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let image: GroupImage = input.get()?;
    object.must_exist()?;
    object.unset(&key(keys::IMAGE, &image_name(&image)))?;
    done()
}

pub fn group_image_list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (GroupImage, u64) = input.get()?;
    let after = match start_after.pool {
        -1 => Bytes::new(),
        _ => image_name(&start_after),
    };
    let rows = object.list::<u8>(keys::IMAGE, &after, max)?;
    let status = |(name, state)| {
        Ok(GroupImageStatus {
            image: parse_image_name(&name)?,
            state,
        })
    };
    out(&rows.into_iter().map(status).collect::<Result<Vec<_>>>()?)
}

// In the group's header: snapshots.

const SNAP_ORDER_XATTR: &[u8] = b"rbd.group.snap_order";

#[derive(Debug, Default)]
struct SnapOrder {
    last: u64,
    orders: BTreeMap<Bytes, u64>,
}
envelope_denc!(SnapOrder, 1, 1, { last, orders });

fn load_order(object: &mut Object<'_>) -> Result<SnapOrder> {
    Ok(object.xattr(SNAP_ORDER_XATTR)?.unwrap_or_default())
}

pub fn group_snap_set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let snap: GroupSnapshot = input.get()?;
    if snap.id.is_empty() || snap.name.is_empty() {
        return Err(Errno::EINVAL);
    }
    let (mut name_taken, mut exists) = (false, false);
    object.scan(keys::SNAPSHOT, b"", |_, value| {
        let other: GroupSnapshot = stored(value)?;
        exists |= other.id == snap.id;
        name_taken |= other.id != snap.id && other.name == snap.name;
        Ok(Scan::Next)
    })?;
    let is_new = snap.state == GroupSnapshot::INCOMPLETE;
    if name_taken || exists && is_new {
        return Err(Errno::EEXIST);
    }
    if is_new {
        let mut order = load_order(object)?;
        order.last = order.last.saturating_add(1);
        order.orders.insert(snap.id.clone(), order.last);
        object.set_xattr(SNAP_ORDER_XATTR, &order)?;
    }
    object.set(&key(keys::SNAPSHOT, &snap.id), &snap)?;
    done()
}

pub fn group_snap_remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: Bytes = input.get()?;
    object.must_exist()?;
    let mut order = load_order(object)?;
    if order.orders.remove(&id).is_some() {
        object.set_xattr(SNAP_ORDER_XATTR, &order)?;
    }
    object.unset(&key(keys::SNAPSHOT, &id))?;
    done()
}

pub fn group_snap_get_by_id(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: Bytes = input.get()?;
    out(&object.need::<GroupSnapshot>(&key(keys::SNAPSHOT, &id))?)
}

pub fn group_snap_list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (GroupSnapshot, u64) = input.get()?;
    let rows = object.list::<GroupSnapshot>(keys::SNAPSHOT, &start_after.id, max)?;
    out(&rows.into_iter().map(|(_, snap)| snap).collect::<Vec<_>>())
}

pub fn group_snap_list_order(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (Bytes, u64) = input.get()?;
    let max = list_max(max);
    let orders = load_order(object)?.orders.into_iter();
    let behind = orders.filter(|(id, _)| start_after.is_empty() || *id > start_after);
    out(&behind.take(max).collect::<Vec<_>>())
}
