//! Methods on objects of data, in one message with what is done to them.

use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done};
use bytes::Bytes;
use denc::Decode;
use std::cmp::Ordering;
use types::{Errno, Utime};

/// Removes the object; attributes with one of the given prefixes stay, and an empty object with them.
pub fn remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let kept: Vec<Bytes> = input.envelope(Vec::decode)?;
    object.must_exist()?;
    let is_kept = |name: &Bytes| kept.iter().any(|prefix| name.starts_with(prefix));
    let attributes: Vec<_> = match kept.is_empty() {
        true => Vec::new(),
        false => object
            .xattrs()?
            .into_iter()
            .filter(|(name, _)| is_kept(name))
            .collect(),
    };
    object.remove()?;
    if !attributes.is_empty() {
        object.create()?;
    }
    for (name, value) in attributes {
        object.set_xattr_raw(&name, value)?;
    }
    done()
}

/// Notes the version at which the object last changed in an attribute.
pub fn store_pg_ver(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let name: Bytes = input.envelope(Bytes::decode)?;
    let (version, _) = object.serial();
    object.set_xattr(&name, &version)?;
    done()
}

/// ECANCELED if there are attributes with the prefix and there must be none, or the other way round.
pub fn check_attrs_prefix(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (prefix, must_be_none) = input.envelope(<(Bytes, bool)>::decode)?;
    if prefix.is_empty() {
        return Err(Errno::EINVAL);
    }
    let exist = object.xattrs()?.iter().any(|(name, _)| name.starts_with(&prefix));
    match exist == must_be_none {
        true => Err(Errno::ECANCELED),
        false => done(),
    }
}

/// ECANCELED unless the object's time of change stands to the given one as asked.
pub fn check_mtime(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (given, relation, precise) = input.versioned(2, |version, r| {
        let (time, relation): (Utime, u8) = (r.get()?, r.u8()?);
        Ok((time, relation, if version >= 2 { r.bool()? } else { false }))
    })?;
    let here = object.must_exist()?.mtime;
    let of = |time: Utime| match precise {
        true => time,
        false => Utime { nsec: 0, ..time },
    };
    let order = of(here).cmp(&of(given));
    let holds = match relation {
        0 => order == Ordering::Equal,
        1 => order == Ordering::Less,
        2 => order != Ordering::Greater,
        3 => order == Ordering::Greater,
        4 => order != Ordering::Less,
        _ => return Err(Errno::EINVAL),
    };
    match holds {
        true => done(),
        false => Err(Errno::ECANCELED),
    }
}
