//! Namespaces of a pool, object `rbd_namespace` (docs/protocol/ceph/05-rbd.md, 4.10).

use super::keys;
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Raw, done, key, out};
use bytes::Bytes;
use types::Errno;

pub fn add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let name: Bytes = input.get()?;
    let key = key(keys::NAME, &name);
    if object.has(&key)? {
        return Err(Errno::EEXIST);
    }
    object.set_raw(&key, Bytes::new())?;
    done()
}

pub fn remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let name: Bytes = input.get()?;
    let key = key(keys::NAME, &name);
    if !object.has(&key)? {
        return Err(Errno::ENOENT);
    }
    object.unset(&key)?;
    done()
}

pub fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (Bytes, u64) = input.get()?;
    let rows = object.list::<Raw>(keys::NAME, &start_after, max)?;
    out(&rows.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
}
