//! The metadata server of a file system (docs/internals/files.md).
pub mod config;
pub mod membership;

pub use config::{Config, Error};
