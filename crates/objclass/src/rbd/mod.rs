//! Class `hello`.
use crate::registry::Method;
pub const METHODS: &[Method] = &[];
