//! Class `rgw`: the index of a bucket of radosgw, and its other lists (docs/protocol/classes.md, "rgw").
//!
//! Vocabulary: the *index* of a bucket, or a shard of it, is an object whose omap has a row for each object in the bucket
//! (`keys`). A change of a bucket's object is *announced* here before it is done and *completed* after it, so that a listing can
//! tell what may have happened in between. An object with versions has a *logical head*, which names the current one.

mod gc;
mod head;
mod header;
mod index;
pub(crate) mod keys;
mod lifecycle;
mod list;
mod log;
mod object;
mod reshard;
mod rows;
mod suggest;
pub(crate) mod types;
mod usage;

use crate::method::Method;

pub const METHODS: &[Method] = &[
    Method::rw("bucket_init_index", index::init),
    Method::rw("bucket_set_tag_timeout", index::set_tag_timeout),
    Method::r("bucket_list", list::list),
    Method::r("bucket_check_index", index::check),
    Method::rw("bucket_rebuild_index", index::rebuild),
    Method::rw("bucket_update_stats", index::update_stats),
    Method::rw("bucket_prepare_op", index::prepare),
    Method::rw("bucket_complete_op", index::complete),
    Method::rw("bucket_link_olh", head::link),
    Method::rw("bucket_unlink_instance", head::unlink_instance),
    Method::r("bucket_read_olh_log", head::read_log),
    Method::rw("bucket_trim_olh_log", head::trim_log),
    Method::rw("bucket_clear_olh", head::clear),
    Method::rw("dir_suggest_changes", suggest::suggest),
    Method::r("bi_get", rows::get),
    Method::rw("bi_put", rows::put),
    Method::r("bi_list", rows::list),
    Method::r("bi_log_list", log::list),
    Method::rw("bi_log_trim", log::trim),
    Method::rw("bi_log_resync", log::resync),
    Method::rw("bi_log_stop", log::stop),
    Method::rw("obj_remove", object::remove),
    Method::rw("obj_store_pg_ver", object::store_pg_ver),
    Method::r("obj_check_attrs_prefix", object::check_attrs_prefix),
    Method::r("obj_check_mtime", object::check_mtime),
    Method::rw("user_usage_log_add", usage::add),
    Method::r("user_usage_log_read", usage::read),
    Method::rw("user_usage_log_trim", usage::trim),
    Method::rw("usage_log_clear", usage::clear),
    Method::rw("gc_set_entry", gc::set_entry),
    Method::rw("gc_defer_entry", gc::defer_entry),
    Method::r("gc_list", gc::list),
    Method::rw("gc_remove", gc::remove),
    Method::r("lc_get_entry", lifecycle::get_entry),
    Method::rw("lc_set_entry", lifecycle::set_entry),
    Method::rw("lc_rm_entry", lifecycle::rm_entry),
    Method::r("lc_get_next_entry", lifecycle::get_next_entry),
    Method::rw("lc_put_head", lifecycle::put_head),
    Method::r("lc_get_head", lifecycle::get_head),
    Method::r("lc_list_entries", lifecycle::list_entries),
    Method::rw("reshard_add", reshard::add),
    Method::r("reshard_list", reshard::list),
    Method::r("reshard_get", reshard::get),
    Method::rw("reshard_remove", reshard::remove),
    Method::rw("set_bucket_resharding", reshard::set_bucket),
    Method::rw("clear_bucket_resharding", reshard::clear_bucket),
    Method::r("guard_bucket_resharding", reshard::guard_bucket),
    Method::r("get_bucket_resharding", reshard::get_bucket),
];
