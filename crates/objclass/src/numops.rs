//! Class `numops`.
use crate::registry::Method;
pub const METHODS: &[Method] = &[];
