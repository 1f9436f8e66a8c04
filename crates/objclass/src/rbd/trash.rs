//! Images in the trash, object `rbd_trash` (docs/protocol/ceph/05-rbd.md, 4.10).

use super::directory::check_id;
use super::keys;
use super::types::TrashImage;
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done, key, out};
use bytes::Bytes;
use types::Errno;

pub fn add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, image): (Bytes, TrashImage) = input.get()?;
    check_id(&id)?;
    let key = key(keys::ID, &id);
    if object.has(&key)? {
        return Err(Errno::EEXIST);
    }
    object.set(&key, &image)?;
    done()
}

pub fn remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: Bytes = input.get()?;
    let key = key(keys::ID, &id);
    if !object.has(&key)? {
        return Err(Errno::ENOENT);
    }
    object.unset(&key)?;
    done()
}

pub fn get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: Bytes = input.get()?;
    object.raw(&key(keys::ID, &id))?.ok_or(Errno::ENOENT)
}

pub fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (Bytes, u64) = input.get()?;
    out(&object.list::<TrashImage>(keys::ID, &start_after, max)?)
}

pub fn state_set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, new, expected): (Bytes, u8, u8) = (input.get()?, input.get()?, input.get()?);
    let key = key(keys::ID, &id);
    let mut image: TrashImage = object.need(&key)?;
    if image.state == expected {
        image.state = new;
        object.set(&key, &image)?;
    } else if image.state != new {
        return Err(Errno::ESTALE);
    }
    done()
}
