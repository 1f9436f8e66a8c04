//! Commands about options, and about the keys and values that modules keep.

pub mod config_options;
pub mod keys;
pub mod settings;
