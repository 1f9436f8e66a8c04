//! Class `lock`.
use crate::registry::Method;
pub const METHODS: &[Method] = &[];
