//! The header's plain fields: creation, size, prefix, striping, time stamps (docs/protocol/ceph/05-rbd.md, 4.1).

use super::types::{Migration, Parent};
use super::{features, keys, snapshot};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done, out};
use bytes::Bytes;
use denc::Encode;
use types::{Errno, NOSNAP, Utime};

/// "No data pool of its own".
const NO_POOL: i64 = -1;

pub fn create(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (size, order, features): (u64, u8, u64) = (input.get()?, input.get()?, input.get()?);
    let prefix: Bytes = input.get()?;
    let data_pool = input.optional::<i64>()?.unwrap_or(NO_POOL);
    if features & !features::ALL != 0 {
        return Err(Errno::ENOSYS);
    }
    if prefix.is_empty() {
        return Err(Errno::EINVAL);
    }
    if object.has(keys::OBJECT_PREFIX)? {
        return Err(Errno::EEXIST);
    }
    let has_pool = features & features::DATA_POOL != 0;
    if features & features::OPERATIONS != 0 || has_pool != (data_pool != NO_POOL) {
        return Err(Errno::EINVAL);
    }
    let now = object.now().to_bytes();
    let mut rows = vec![
        (keys::SIZE, size.to_bytes()),
        (keys::ORDER, order.to_bytes()),
        (keys::FEATURES, features.to_bytes()),
        (keys::OBJECT_PREFIX, prefix.to_bytes()),
        (keys::SNAP_SEQ, 0u64.to_bytes()),
        (keys::CREATE_TIMESTAMP, now.clone()),
        (keys::ACCESS_TIMESTAMP, now.clone()),
        (keys::MODIFY_TIMESTAMP, now),
    ];
    if has_pool {
        rows.push((keys::DATA_POOL_ID, data_pool.to_bytes()));
    }
    let rows = rows.into_iter().map(|(k, v)| (Bytes::from_static(k), v));
    object.set_rows(rows.collect())?;
    done()
}

pub fn get_size(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let snap_id: u64 = input.get()?;
    let order: u8 = object.need(keys::ORDER)?;
    let size = match snap_id {
        NOSNAP => object.need(keys::SIZE)?,
        id => snapshot::need(object, id)?.image_size,
    };
    out(&(order, size))
}

/// Shrinking below the parent overlap shrinks the overlap; growing never raises it again, since what the
/// image lost must not show the parent's data.
pub fn set_size(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let size: u64 = input.get()?;
    let old: u64 = object.need(keys::SIZE)?;
    object.set(keys::SIZE, &size)?;
    if size < old
        && let Some(mut parent) = object.get::<Parent>(keys::PARENT)?
        && parent.head_overlap.is_some_and(|overlap| overlap > size)
    {
        parent.head_overlap = Some(size);
        object.set(keys::PARENT, &parent)?;
    }
    // What was cut off is not read from the source again when the target grows: its snapshots have it by now. Unlike 16.2.
    if size < old
        && let Some(mut migration) = object.get::<Migration>(keys::MIGRATION)?
        && migration.header_type == Migration::DESTINATION
        && migration.overlap > size
    {
        migration.overlap = size;
        object.set(keys::MIGRATION, &migration)?;
    }
    done()
}

pub fn get_object_prefix(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.need::<Bytes>(keys::OBJECT_PREFIX)?)
}

pub fn get_data_pool(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.get::<i64>(keys::DATA_POOL_ID)?.unwrap_or(NO_POOL))
}

fn get_timestamp(object: &mut Object<'_>, key: &[u8]) -> Result<Bytes> {
    out(&object.get::<Utime>(key)?.unwrap_or(Utime::ZERO))
}

pub fn get_create_timestamp(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    get_timestamp(object, keys::CREATE_TIMESTAMP)
}

pub fn get_access_timestamp(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    get_timestamp(object, keys::ACCESS_TIMESTAMP)
}

pub fn get_modify_timestamp(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    get_timestamp(object, keys::MODIFY_TIMESTAMP)
}

fn set_timestamp(object: &mut Object<'_>, key: &[u8]) -> Result<Bytes> {
    object.must_exist()?;
    let now = object.now();
    object.set(key, &now)?;
    done()
}

pub fn set_access_timestamp(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    set_timestamp(object, keys::ACCESS_TIMESTAMP)
}

pub fn set_modify_timestamp(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    set_timestamp(object, keys::MODIFY_TIMESTAMP)
}

/// 1 << order; a stored order that no object can have is EIO.
fn object_size(object: &mut Object<'_>) -> Result<u64> {
    let order: u8 = object.need(keys::ORDER)?;
    1u64.checked_shl(order.into()).ok_or(Errno::EIO)
}

pub fn get_stripe_unit_count(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    features::require(object, features::STRIPING)?;
    let unit = match object.get::<u64>(keys::STRIPE_UNIT)? {
        Some(unit) => unit,
        None => object_size(object)?,
    };
    let count = object.get::<u64>(keys::STRIPE_COUNT)?.unwrap_or(1);
    out(&(unit, count))
}

pub fn set_stripe_unit_count(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (unit, count): (u64, u64) = input.get()?;
    if unit == 0 || count == 0 {
        return Err(Errno::EINVAL);
    }
    object.must_exist()?;
    features::require(object, features::STRIPING)?;
    let size = object_size(object)?;
    if unit > size || size % unit != 0 {
        return Err(Errno::EINVAL);
    }
    object.set(keys::STRIPE_UNIT, &unit)?;
    object.set(keys::STRIPE_COUNT, &count)?;
    done()
}
