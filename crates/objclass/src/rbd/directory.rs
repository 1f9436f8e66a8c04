//! Names of images and groups: `rbd_id.<name>`, `rbd_directory`, `rbd_group_directory`
//! (docs/protocol/ceph/05-rbd.md, 4.5 and 4.9). A directory holds each pair twice, by name and by id.

use super::keys;
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, key, out, stored};
use bytes::Bytes;
use denc::Encode;
use types::Errno;

const READY: u8 = 0;
const ADD_DISABLED: u8 = 1;

/// Ids are made by clients: letters and digits.
pub fn check_id(id: &[u8]) -> Result<()> {
    if !id.is_empty() && id.iter().all(u8::is_ascii_alphanumeric) {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

pub fn get_id(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let data = object.read_all()?;
    if data.is_empty() {
        return Err(Errno::ENOENT);
    }
    out(&stored::<Bytes>(&data)?)
}

pub fn set_id(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let stat = object.must_exist()?;
    let id: Bytes = input.get()?;
    check_id(&id)?;
    if stat.size != 0 {
        return Err(Errno::EEXIST);
    }
    object.write(0, id.to_bytes())?;
    done()
}

pub fn dir_get_id(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let name: Bytes = input.get()?;
    out(&object.need::<Bytes>(&key(keys::NAME, &name))?)
}

pub fn dir_get_name(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: Bytes = input.get()?;
    out(&object.need::<Bytes>(&key(keys::ID, &id))?)
}

pub fn dir_list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (Bytes, u64) = input.get()?;
    out(&object.list::<Bytes>(keys::NAME, &start_after, max)?)
}

fn add(object: &mut Object<'_>, name: &Bytes, id: &Bytes, check_id_free: bool) -> Result<()> {
    if name.is_empty() {
        return Err(Errno::EINVAL);
    }
    check_id(id)?;
    let (name_key, id_key) = (key(keys::NAME, name), key(keys::ID, id));
    if object.has(&name_key)? {
        return Err(Errno::EEXIST);
    }
    if check_id_free && object.has(&id_key)? {
        return Err(Errno::EBADF);
    }
    object.set_rows(vec![(name_key, id.to_bytes()), (id_key, name.to_bytes())])
}

/// ENOENT if either half is missing, ESTALE if they do not belong together.
fn check_pair(object: &mut Object<'_>, name: &Bytes, id: &Bytes) -> Result<()> {
    let stored_id: Bytes = object.need(&key(keys::NAME, name))?;
    let stored_name: Bytes = object.need(&key(keys::ID, id))?;
    if stored_id == *id && stored_name == *name {
        Ok(())
    } else {
        Err(Errno::ESTALE)
    }
}

pub fn dir_add_image(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (name, id): (Bytes, Bytes) = input.get()?;
    add(object, &name, &id, true)?;
    done()
}

pub fn dir_remove_image(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (name, id): (Bytes, Bytes) = input.get()?;
    check_pair(object, &name, &id)?;
    object.unset_keys(vec![key(keys::NAME, &name), key(keys::ID, &id)])?;
    done()
}

pub fn dir_rename_image(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (old, new, id): (Bytes, Bytes, Bytes) = (input.get()?, input.get()?, input.get()?);
    check_pair(object, &old, &id)?;
    // Written before the old name goes: whether a change of this message is visible makes no difference.
    add(object, &new, &id, false)?;
    object.unset(&key(keys::NAME, &old))?;
    done()
}

pub fn dir_state_assert(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let wanted: u8 = input.get()?;
    if object.need::<u8>(keys::STATE)? != wanted {
        return Err(Errno::ENOENT);
    }
    done()
}

/// A namespace that shall go is closed for new images first, which works only while it is empty.
pub fn dir_state_set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let state: u8 = input.get()?;
    match state {
        READY => {}
        ADD_DISABLED => {
            object.must_exist()?;
            let mut names = false;
            object.scan(keys::NAME, b"", |_, _| {
                names = true;
                Ok(Scan::Stop)
            })?;
            if names {
                return Err(Errno::EBUSY);
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    object.set(keys::STATE, &state)?;
    done()
}
