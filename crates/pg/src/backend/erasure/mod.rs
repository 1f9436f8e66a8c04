//! Shards of a PG's objects on several OSDs: what each OSD is given of a transaction ([`cut`]), what of several shards gives one
//! that lacks ([`collect`], [`fill`]), how they are read ([`reads`], for a write [`old`], on a member [`units`]), how it takes one back that not all have ([`undo`]), and who leads a PG over them
//! ([`shards`]); docs/internals/erasure.md.
//!
//! Vocabulary: a *shard's object* holds the units of one shard, one behind the other, under the object's own name and the shard's
//! number. Its size is set to that of the whole object, of which the shard's bytes are never more: so every shard tells the size,
//! and what lies behind the shard's last byte is a hole.

pub(crate) mod collect;
pub(crate) mod cut;
pub(crate) mod fill;
pub(crate) mod judge;
mod kept;
pub(crate) mod old;
pub(crate) mod reads;
#[cfg(test)]
mod reads_tests;
pub(crate) mod shards;
#[cfg(test)]
mod tests;
pub(crate) mod undo;
pub(crate) mod units;
