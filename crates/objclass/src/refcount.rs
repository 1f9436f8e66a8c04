//! Class `refcount`.
use crate::registry::Method;
pub const METHODS: &[Method] = &[];
