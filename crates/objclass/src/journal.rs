//! Class `journal`.
use crate::registry::Method;
pub const METHODS: &[Method] = &[];
