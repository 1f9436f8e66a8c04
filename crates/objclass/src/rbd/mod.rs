//! Class `rbd`: metadata of RBD images (docs/protocol/ceph/05-rbd.md, sections 1 to 5). One file per kind of object;
//! the table of all methods is here.
//!
//! Vocabulary: an image's *header* is `rbd_header.<id>`, its *directory* maps names to ids. A *format 1* image
//! has one header object with a packed struct instead. *Op features* say which rare relations an image has
//! (clone parent, clone child, group, trashed snapshot); while any is set the feature `operations` is, too.
//!
//! Values in omap are the plain encodings of the types in [`types`], except `metadata_*` and `mirror_uuid`,
//! which are bare bytes.

mod children;
mod data;
mod directory;
mod features;
mod format1;
mod group;
mod header;
mod keys;
mod metadata;
mod migration;
mod mirror;
mod mirror_image;
mod mirror_status;
mod namespace;
pub mod object_map;
mod parent;
mod snapshot;
mod trash;
pub mod types;

pub use snapshot::SNAPSHOTS_MAX;

use crate::method::Method;

pub const METHODS: &[Method] = &[
    // header: basics
    Method::rw("create", header::create),
    Method::r("get_features", features::get_features),
    Method::rw("set_features", features::set_features),
    Method::r("get_size", header::get_size),
    Method::rw("set_size", header::set_size),
    Method::r("get_object_prefix", header::get_object_prefix),
    Method::r("get_data_pool", header::get_data_pool),
    Method::r("get_create_timestamp", header::get_create_timestamp),
    Method::r("get_access_timestamp", header::get_access_timestamp),
    Method::r("get_modify_timestamp", header::get_modify_timestamp),
    Method::rw("set_access_timestamp", header::set_access_timestamp),
    Method::rw("set_modify_timestamp", header::set_modify_timestamp),
    Method::r("get_stripe_unit_count", header::get_stripe_unit_count),
    Method::rw("set_stripe_unit_count", header::set_stripe_unit_count),
    Method::r("get_flags", features::get_flags),
    Method::rw("set_flags", features::set_flags),
    Method::r("op_features_get", features::op_features_get),
    Method::rw("op_features_set", features::op_features_set),
    Method::r("get_all_features", features::get_all_features),
    Method::rw("metadata_set", metadata::set),
    Method::r("metadata_get", metadata::get),
    Method::r("metadata_list", metadata::list),
    Method::rw("metadata_remove", metadata::remove),
    // header: snapshots
    Method::r("get_snapcontext", snapshot::get_snapcontext),
    Method::rw("snapshot_add", snapshot::snapshot_add),
    Method::r("snapshot_get", snapshot::snapshot_get),
    Method::r("get_snapshot_name", snapshot::get_snapshot_name),
    Method::r("get_snapshot_timestamp", snapshot::get_snapshot_timestamp),
    Method::rw("snapshot_rename", snapshot::snapshot_rename),
    Method::rw("snapshot_remove", snapshot::snapshot_remove),
    Method::rw("snapshot_trash_add", snapshot::snapshot_trash_add),
    Method::r("get_protection_status", snapshot::get_protection_status),
    Method::rw("set_protection_status", snapshot::set_protection_status),
    Method::r("snapshot_get_limit", snapshot::snapshot_get_limit),
    Method::rw("snapshot_set_limit", snapshot::snapshot_set_limit),
    // header: parent and children
    Method::r("parent_get", parent::parent_get),
    Method::r("parent_overlap_get", parent::parent_overlap_get),
    Method::rw("parent_attach", parent::parent_attach),
    Method::rw("parent_detach", parent::parent_detach),
    Method::r("get_parent", parent::get_parent),
    Method::rw("set_parent", parent::set_parent),
    Method::rw("remove_parent", parent::remove_parent),
    Method::rw("child_attach", children::child_attach),
    Method::rw("child_detach", children::child_detach),
    Method::r("children_list", children::children_list),
    // rbd_id, rbd_directory, rbd_children
    Method::r("get_id", directory::get_id),
    Method::rw("set_id", directory::set_id),
    Method::r("dir_get_id", directory::dir_get_id),
    Method::r("dir_get_name", directory::dir_get_name),
    Method::r("dir_list", directory::dir_list),
    Method::rw("dir_add_image", directory::dir_add_image),
    Method::rw("dir_remove_image", directory::dir_remove_image),
    Method::rw("dir_rename_image", directory::dir_rename_image),
    Method::r("dir_state_assert", directory::dir_state_assert),
    Method::rw("dir_state_set", directory::dir_state_set),
    Method::rw("add_child", children::add_child),
    Method::rw("remove_child", children::remove_child),
    Method::r("get_children", children::get_children),
    // object map
    Method::r("object_map_load", object_map::load),
    Method::rw("object_map_save", object_map::save),
    Method::rw("object_map_resize", object_map::resize),
    Method::rw("object_map_update", object_map::update),
    Method::rw("object_map_snap_add", object_map::snap_add),
    Method::rw("object_map_snap_remove", object_map::snap_remove),
    // migration
    Method::rw("migration_set", migration::migration_set),
    Method::rw("migration_set_state", migration::migration_set_state),
    Method::r("migration_get", migration::migration_get),
    Method::rw("migration_remove", migration::migration_remove),
    // groups
    Method::rw("image_group_add", group::image_group_add),
    Method::rw("image_group_remove", group::image_group_remove),
    Method::r("image_group_get", group::image_group_get),
    Method::rw("group_dir_add", directory::dir_add_image),
    Method::rw("group_dir_remove", directory::dir_remove_image),
    Method::rw("group_dir_rename", directory::dir_rename_image),
    Method::r("group_dir_list", directory::dir_list),
    Method::rw("group_image_set", group::group_image_set),
    Method::rw("group_image_remove", group::group_image_remove),
    Method::r("group_image_list", group::group_image_list),
    Method::rw("group_snap_set", group::group_snap_set),
    Method::rw("group_snap_remove", group::group_snap_remove),
    Method::r("group_snap_get_by_id", group::group_snap_get_by_id),
    Method::r("group_snap_list", group::group_snap_list),
    Method::r("group_snap_list_order", group::group_snap_list_order),
    // trash, namespaces
    Method::rw("trash_add", trash::add),
    Method::rw("trash_remove", trash::remove),
    Method::r("trash_get", trash::get),
    Method::r("trash_list", trash::list),
    Method::rw("trash_state_set", trash::state_set),
    Method::rw("namespace_add", namespace::add),
    Method::rw("namespace_remove", namespace::remove),
    Method::r("namespace_list", namespace::list),
    // mirroring: pool
    Method::r("mirror_uuid_get", mirror::uuid_get),
    Method::rw("mirror_uuid_set", mirror::uuid_set),
    Method::r("mirror_mode_get", mirror::mode_get),
    Method::rw("mirror_mode_set", mirror::mode_set),
    Method::r("mirror_remote_namespace_get", mirror::remote_namespace_get),
    Method::rw("mirror_remote_namespace_set", mirror::remote_namespace_set),
    Method::r("mirror_peer_list", mirror::peer_list),
    Method::rw("mirror_peer_add", mirror::peer_add),
    Method::rw("mirror_peer_remove", mirror::peer_remove),
    Method::rw("mirror_peer_set_client", mirror::peer_set_client),
    Method::rw("mirror_peer_set_cluster", mirror::peer_set_cluster),
    Method::rw("mirror_peer_set_direction", mirror::peer_set_direction),
    Method::rw("mirror_peer_ping", mirror::peer_ping),
    // mirroring: images
    Method::r("mirror_image_list", mirror_image::list),
    Method::r("mirror_image_get", mirror_image::get),
    Method::r("mirror_image_get_image_id", mirror_image::get_image_id),
    Method::rw("mirror_image_set", mirror_image::set),
    Method::rw("mirror_image_remove", mirror_image::remove),
    Method::r("mirror_instances_list", mirror_image::instances_list),
    Method::rw("mirror_instances_add", mirror_image::instances_add),
    Method::rw("mirror_instances_remove", mirror_image::instances_remove),
    Method::r("mirror_image_map_list", mirror_image::map_list),
    Method::w("mirror_image_map_update", mirror_image::map_update),
    Method::w("mirror_image_map_remove", mirror_image::map_remove),
    Method::rw(
        "mirror_image_snapshot_unlink_peer",
        mirror_image::snapshot_unlink_peer,
    ),
    Method::rw(
        "mirror_image_snapshot_set_copy_progress",
        mirror_image::snapshot_set_copy_progress,
    ),
    // mirroring: status
    Method::rw("mirror_image_status_set", mirror_status::set),
    Method::r("mirror_image_status_get", mirror_status::get),
    Method::r("mirror_image_status_list", mirror_status::list),
    Method::r("mirror_image_status_get_summary", mirror_status::get_summary),
    Method::rw("mirror_image_status_remove", mirror_status::remove),
    Method::rw("mirror_image_status_remove_down", mirror_status::remove_down),
    Method::r("mirror_image_instance_get", mirror_status::instance_get),
    Method::r("mirror_image_instance_list", mirror_status::instance_list),
    // data objects
    Method::rw("copyup", data::copyup),
    Method::rw("sparse_copyup", data::sparse_copyup),
    Method::rw("sparsify", data::sparsify),
    Method::rw("assert_snapc_seq", data::assert_snapc_seq),
    // format 1
    Method::r("snap_list", format1::snap_list),
    Method::rw("snap_add", format1::snap_add),
    Method::rw("snap_remove", format1::snap_remove),
    Method::rw("snap_rename", format1::snap_rename),
];
