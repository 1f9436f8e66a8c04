//! Class `version`.
use crate::registry::Method;
pub const METHODS: &[Method] = &[];
