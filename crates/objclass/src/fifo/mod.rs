//! Class `fifo`: a queue over many objects (docs/protocol/classes.md, "fifo").
//!
//! Vocabulary: one object *describes* the queue (`meta`); the entries lie in *parts*, objects of a bounded size that are numbered
//! upwards (`part`): who pushes makes the next part where one is full, and who trims moves the *tail* and removes parts behind it.
//! What a client is about to do with parts it notes in the description's *journal* first. radosgw keeps its log for other
//! zones in such queues.

mod meta;
mod part;

use crate::method::Method;

pub const METHODS: &[Method] = &[
    Method::rw("create_meta", meta::create),
    Method::r("get_meta", meta::get),
    Method::rw("update_meta", meta::update),
    Method::rw("init_part", part::init),
    Method::rw("push_part", part::push),
    Method::rw("trim_part", part::trim),
    Method::r("part_list", part::list),
    Method::r("get_part_info", part::info),
];
