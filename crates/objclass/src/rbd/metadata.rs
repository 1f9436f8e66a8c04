//! Free settings of an image or pool, `metadata_<key>` = bare bytes (docs/protocol/ceph/05-rbd.md, 4.1).

use super::keys;
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Raw, done, key, out};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::Errno;

/// What a `max` of 0 means.
const LIST_DEFAULT: u64 = 64;

pub fn set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let settings: BTreeMap<Bytes, Bytes> = input.get()?;
    let rows = settings.into_iter().map(|(k, v)| (key(keys::METADATA, &k), v));
    object.set_rows(rows.collect())?;
    done()
}

pub fn get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let name: Bytes = input.get()?;
    let value = object.raw(&key(keys::METADATA, &name))?.ok_or(Errno::ENOENT)?;
    out(&value)
}

pub fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (Bytes, u64) = input.get()?;
    let max = if max == 0 { LIST_DEFAULT } else { max };
    let rows = object.list::<Raw>(keys::METADATA, &start_after, max)?;
    out(&rows.into_iter().map(|(k, v)| (k, v.0)).collect::<Vec<_>>())
}

pub fn remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let name: Bytes = input.get()?;
    object.must_exist()?;
    object.unset(&key(keys::METADATA, &name))?;
    done()
}
