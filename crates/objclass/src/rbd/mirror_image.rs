//! Mirrored images in `rbd_mirroring`, which daemon has which, and mirror snapshots in an image's header
//! (docs/protocol/ceph/05-rbd.md, 4.11).

use super::types::{MirrorImage, MirrorImageMap, Snapshot, SnapshotNamespace};
use super::{keys, mirror_status, snapshot};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Raw, Scan, done, key, list_max, out, stored};
use bytes::Bytes;
use denc::Encode;
use types::Errno;

/// `image_map_<global id>` rows lie among the `image_<id>` rows; ids of images have no underscore.
const IMAGE_MAP_NAME: &[u8] = b"map_";

/// Images behind the id `start_after` (empty: from the beginning), at most `max`.
pub fn page(object: &mut Object<'_>, start_after: &[u8], max: u64) -> Result<Vec<(Bytes, MirrorImage)>> {
    let max = list_max(max);
    let start = key(keys::IMAGE, start_after);
    let mut images = Vec::new();
    object.scan(keys::IMAGE, &start, |id, value| {
        if images.len() >= max {
            return Ok(Scan::Stop);
        }
        if !id.starts_with(IMAGE_MAP_NAME) {
            images.push((id.clone(), stored(value)?));
        }
        Ok(Scan::Next)
    })?;
    Ok(images)
}

fn global_key(global_id: &[u8]) -> Bytes {
    key(keys::MIRROR_GLOBAL, global_id)
}

/// The image of a global id, if there is one.
pub fn by_global_id(object: &mut Object<'_>, global_id: &[u8]) -> Result<Option<MirrorImage>> {
    match object.get::<Bytes>(&global_key(global_id))? {
        Some(id) => object.get(&key(keys::IMAGE, &id)),
        None => Ok(None),
    }
}

pub fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (Bytes, u64) = input.get()?;
    let images = page(object, &start_after, max)?;
    out(&images
        .into_iter()
        .map(|(id, image)| (id, image.global_id))
        .collect::<Vec<_>>())
}

pub fn get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: Bytes = input.get()?;
    out(&object.need::<MirrorImage>(&key(keys::IMAGE, &id))?)
}

pub fn get_image_id(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let global_id: Bytes = input.get()?;
    out(&object.need::<Bytes>(&global_key(&global_id))?)
}

pub fn set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, image): (Bytes, MirrorImage) = input.get()?;
    let image_key = key(keys::IMAGE, &id);
    let global_key = global_key(&image.global_id);
    match object.get::<MirrorImage>(&image_key)? {
        Some(have) if have.global_id != image.global_id => return Err(Errno::EINVAL),
        Some(_) => {}
        None if object.has(&global_key)? => return Err(Errno::EEXIST),
        None if image.state == MirrorImage::DISABLING => return Err(Errno::ENOENT),
        None => {}
    }
    object.set_rows(vec![(image_key, image.to_bytes()), (global_key, id.to_bytes())])?;
    done()
}

pub fn remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: Bytes = input.get()?;
    let image_key = key(keys::IMAGE, &id);
    let image: MirrorImage = object.need(&image_key)?;
    if image.state != MirrorImage::DISABLING {
        return Err(Errno::EBUSY);
    }
    let mut gone = mirror_status::keys_of(object, &image.global_id)?;
    gone.extend([image_key, global_key(&image.global_id)]);
    object.unset_keys(gone)?;
    done()
}

// Daemons.

pub fn instances_list(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let rows = object.list::<Raw>(keys::MIRROR_INSTANCE, b"", u64::MAX)?;
    out(&rows.into_iter().map(|(id, _)| id).collect::<Vec<_>>())
}

pub fn instances_add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: Bytes = input.get()?;
    object.set_raw(&key(keys::MIRROR_INSTANCE, &id), Bytes::new())?;
    done()
}

pub fn instances_remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: Bytes = input.get()?;
    object.must_exist()?;
    object.unset(&key(keys::MIRROR_INSTANCE, &id))?;
    done()
}

pub fn map_list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (Bytes, u64) = input.get()?;
    out(&object.list::<MirrorImageMap>(keys::MIRROR_IMAGE_MAP, &start_after, max)?)
}

pub fn map_update(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (global_id, map): (Bytes, MirrorImageMap) = input.get()?;
    object.set(&key(keys::MIRROR_IMAGE_MAP, &global_id), &map)?;
    done()
}

pub fn map_remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let global_id: Bytes = input.get()?;
    object.unset(&key(keys::MIRROR_IMAGE_MAP, &global_id))?;
    done()
}

// Mirror snapshots, in the image's header.

pub fn snapshot_unlink_peer(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (snap_id, peer): (u64, Bytes) = input.get()?;
    let mut snap: Snapshot = snapshot::need(object, snap_id)?;
    let SnapshotNamespace::Mirror(mirror) = &mut snap.namespace else {
        return Err(Errno::EINVAL);
    };
    if !mirror.peer_uuids.remove(&peer) {
        return Err(Errno::ENOENT);
    }
    snapshot::store(object, &snap)?;
    done()
}

pub fn snapshot_set_copy_progress(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (snap_id, complete, last_object): (u64, bool, u64) = (input.get()?, input.get()?, input.get()?);
    let mut snap: Snapshot = snapshot::need(object, snap_id)?;
    let SnapshotNamespace::Mirror(mirror) = &mut snap.namespace else {
        return Err(Errno::EINVAL);
    };
    mirror.complete = complete;
    if !mirror.is_primary() {
        mirror.last_copied_object = last_object;
    }
    snapshot::store(object, &snap)?;
    done()
}
