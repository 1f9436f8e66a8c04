//! How large an object may be.

/// osd_max_object_size.
pub const OBJECT_SIZE_MAX: u64 = 128 << 20;
