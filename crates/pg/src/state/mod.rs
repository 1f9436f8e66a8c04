//! What a PG is on its disk: the log, the metadata and its objects as they stand, with the values that they are made of.
//! Knows no client and no other OSD.

pub(crate) mod intervals;
pub(crate) mod log;
pub(crate) mod meta;
pub(crate) mod object;
pub(crate) mod object_info;
pub(crate) mod pg;
pub(crate) mod range;
pub(crate) mod snapset;
pub(crate) mod stamps;
pub(crate) mod stats;
pub(crate) mod versions;
