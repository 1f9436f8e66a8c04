//! Omap keys of the class's objects (docs/protocol/ceph/05-rbd.md, sections 1, 4.1 and 4.11): one place for their
//! names.

use crate::object::key;
use bytes::Bytes;

// rbd_header.<id>
pub const SIZE: &[u8] = b"size";
pub const ORDER: &[u8] = b"order";
pub const FEATURES: &[u8] = b"features";
pub const OBJECT_PREFIX: &[u8] = b"object_prefix";
pub const SNAP_SEQ: &[u8] = b"snap_seq";
pub const CREATE_TIMESTAMP: &[u8] = b"create_timestamp";
pub const ACCESS_TIMESTAMP: &[u8] = b"access_timestamp";
pub const MODIFY_TIMESTAMP: &[u8] = b"modify_timestamp";
pub const DATA_POOL_ID: &[u8] = b"data_pool_id";
pub const STRIPE_UNIT: &[u8] = b"stripe_unit";
pub const STRIPE_COUNT: &[u8] = b"stripe_count";
pub const FLAGS: &[u8] = b"flags";
pub const OP_FEATURES: &[u8] = b"op_features";
pub const SNAP_LIMIT: &[u8] = b"snap_limit";
pub const PARENT: &[u8] = b"parent";
pub const MIGRATION: &[u8] = b"migration";
pub const GROUP_REF: &[u8] = b"rbd_group_ref";
/// Then 16 hex digits of the snapshot id. Also the snapshots of a group, by their id.
pub const SNAPSHOT: &[u8] = b"snapshot_";
/// Then 16 hex digits of the snapshot id.
pub const SNAP_CHILDREN: &[u8] = b"snap_children_";
pub const METADATA: &[u8] = b"metadata_";

// rbd_directory, rbd_group_directory, rbd_namespace, rbd_trash
pub const NAME: &[u8] = b"name_";
pub const ID: &[u8] = b"id_";
pub const STATE: &[u8] = b"state";

// rbd_group_header.<id> (then 16 hex digits of the pool, `_`, the image id) and rbd_mirroring (then the image id)
pub const IMAGE: &[u8] = b"image_";

// rbd_mirroring
pub const MIRROR_UUID: &[u8] = b"mirror_uuid";
pub const MIRROR_MODE: &[u8] = b"mirror_mode";
pub const MIRROR_REMOTE_NAMESPACE: &[u8] = b"mirror_remote_namespace";
pub const MIRROR_PEER: &[u8] = b"mirror_peer_";
pub const MIRROR_GLOBAL: &[u8] = b"global_";
pub const MIRROR_STATUS: &[u8] = b"status_global_";
/// Then the global image id, `_`, the site's mirror uuid.
pub const MIRROR_REMOTE_STATUS: &[u8] = b"remote_status_global_";
pub const MIRROR_INSTANCE: &[u8] = b"instance_";
pub const MIRROR_IMAGE_MAP: &[u8] = b"image_map_";

/// `prefix` and an id as 16 hex digits.
pub fn numbered(prefix: &[u8], id: u64) -> Bytes {
    key(prefix, format!("{id:016x}").as_bytes())
}
