//! Live migration: the record in the headers of source and destination (docs/protocol/ceph/05-rbd.md, 4.8). A format 1
//! source also shows it in the text that its header begins with, so that older clients keep away.

use super::features::MIGRATING;
use super::types::Migration;
use super::{format1, keys};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done, out};
use bytes::Bytes;
use types::Errno;

/// Where a header shows that its image migrates.
enum Header {
    /// The features of a format 2 header.
    Features(u64),
    /// Whether the text of a format 1 header tells of a migration.
    Text { migrating: bool },
}

impl Header {
    fn load(object: &mut Object<'_>) -> Result<Self> {
        match object.get::<u64>(keys::FEATURES)? {
            Some(features) => Ok(Self::Features(features)),
            None => Ok(Self::Text {
                migrating: format1::is_migrating(object)?,
            }),
        }
    }

    fn is_migrating(&self) -> bool {
        match self {
            Self::Features(features) => features & MIGRATING != 0,
            Self::Text { migrating } => *migrating,
        }
    }

    fn mark(&self, object: &mut Object<'_>, migrating: bool) -> Result<()> {
        match self {
            Self::Features(features) if migrating => object.set(keys::FEATURES, &(features | MIGRATING)),
            Self::Features(features) => object.set(keys::FEATURES, &(features & !MIGRATING)),
            Self::Text { .. } => format1::set_migrating(object, migrating),
        }
    }
}

pub fn migration_set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let migration: Migration = input.get()?;
    if object.has(keys::MIGRATION)? {
        return Err(Errno::EEXIST);
    }
    let header = Header::load(object)?;
    let kind = migration.header_type;
    if matches!(header, Header::Text { .. }) && kind != Migration::SOURCE {
        return Err(Errno::EINVAL);
    }
    // A destination is created with the feature already set.
    if header.is_migrating() && kind != Migration::DESTINATION {
        return Err(Errno::EEXIST);
    }
    header.mark(object, true)?;
    object.set(keys::MIGRATION, &migration)?;
    done()
}

fn need(object: &mut Object<'_>) -> Result<Migration> {
    if !Header::load(object)?.is_migrating() {
        return Err(Errno::EINVAL);
    }
    object.need(keys::MIGRATION)
}

pub fn migration_set_state(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (state, description): (u8, Bytes) = input.get()?;
    let mut migration = need(object)?;
    migration.state = state;
    migration.state_description = description;
    object.set(keys::MIGRATION, &migration)?;
    done()
}

pub fn migration_get(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&need(object)?)
}

pub fn migration_remove(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let header = Header::load(object)?;
    if header.is_migrating() {
        header.mark(object, false)?;
    }
    object.unset(keys::MIGRATION)?;
    done()
}
