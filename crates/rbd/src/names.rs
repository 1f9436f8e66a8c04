//! Names of an image's objects (docs/protocol/ceph/05-rbd.md, section 1).

use types::NOSNAP;

/// Names to ids and back, of all images of a namespace.
pub const DIRECTORY: &str = "rbd_directory";
/// Images under removal, and those that users moved there.
pub const TRASH: &str = "rbd_trash";
/// Namespaces of a pool.
pub const NAMESPACES: &str = "rbd_namespace";
/// Children made by the older way of cloning.
pub const CHILDREN: &str = "rbd_children";
/// Who mirrors the pool's images, and which.
pub const MIRRORING: &str = "rbd_mirroring";

/// Says the id of the image of this name.
pub fn id_object(name: &str) -> String {
    format!("rbd_id.{name}")
}

pub fn header(id: &str) -> String {
    format!("rbd_header.{id}")
}

/// Of the head ([`NOSNAP`]) or of a snapshot.
pub fn object_map(id: &str, snap: u64) -> String {
    match snap {
        NOSNAP => format!("rbd_object_map.{id}"),
        snap => format!("rbd_object_map.{id}.{snap:016x}"),
    }
}

/// The first part of the data objects' names.
pub fn data_prefix(id: &str, header_pool: i64, data_pool: Option<i64>) -> String {
    match data_pool {
        None => format!("rbd_data.{id}"),
        Some(_) => format!("rbd_data.{header_pool}.{id}"),
    }
}

/// A piece of what a mirror's snapshot keeps of the image besides its data.
pub fn mirror_state(id: &str, snap: u64, piece: u32) -> String {
    format!("rbd_mirror_snapshot.{id}.{snap}.{piece}")
}

/// Of an image of format 1.
pub fn old_header(name: &str) -> String {
    format!("{name}.rbd")
}

pub fn old_data_object(prefix: &str, object: u64) -> String {
    format!("{prefix}.{object:012x}")
}

pub fn data_object(prefix: &str, object: u64) -> String {
    format!("{prefix}.{object:016x}")
}
