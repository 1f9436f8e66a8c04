//! Commands about options, and about the keys and values that modules keep.

pub mod keys;
pub mod settings;
