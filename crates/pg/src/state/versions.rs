//! Which versions of which objects are here.

use super::object_info::{INFO_ATTR, ObjectInfo};
use crate::store::{IoError, ObjectStore};
use denc::Decode;
use types::{EVersion, HObject, ObjectId};

/// Memory of the records that one listing looks at, about: their number says nothing of what that costs.
const SCAN_BYTES_MAX: u64 = 4 << 20;

/// Objects and versions.
pub(crate) type Versions = Vec<(HObject, EVersion)>;

/// Objects from `start` up to and with `to`, at most `max`, and where the next listing begins: earlier, too, where records
/// are so large that to look at more of them would hold the loop. The versions of one object are never parted by that.
pub(crate) fn list_versions(
    start: &ObjectId,
    to: &HObject,
    max: usize,
    store: &mut dyn ObjectStore,
) -> Result<(Versions, Option<HObject>), IoError> {
    let last = ObjectId {
        shard: start.shard,
        object: to.clone(),
    };
    let mut found = store.list_within(start, &last, max.saturating_add(1))?;
    let inside = |o: &ObjectId| o.shard == start.shard && o.object.pool == start.object.pool;
    let end = found.iter().position(|o| !inside(o)).unwrap_or(found.len());
    found.truncate(end);
    let next = (found.len() > max).then(|| found[max].object.clone());
    found.truncate(max);
    let mut items: Versions = Vec::with_capacity(found.len());
    let mut looked_at = 0;
    for oid in found {
        let begins = items.last().is_some_and(|(o, _)| o.head() != oid.object.head());
        if begins && looked_at >= SCAN_BYTES_MAX {
            return Ok((items, Some(oid.object)));
        }
        looked_at += store.stat(&oid)?.map_or(0, |s| s.weight);
        let version = version_of(&oid, store)?;
        items.push((oid.object, version));
    }
    Ok((items, next))
}

/// The version in the object info; 0'0 where there is none to read: such an object is never taken for equal.
fn version_of(oid: &ObjectId, store: &mut dyn ObjectStore) -> Result<EVersion, IoError> {
    let info = store.attr(oid, INFO_ATTR)?.map(|b| ObjectInfo::from_bytes(&b));
    Ok(match info {
        Some(Ok(info)) => info.version,
        _ => EVersion::default(),
    })
}
