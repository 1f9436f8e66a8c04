//! Commands about the CRUSH map.

pub mod change;
pub mod class;
pub mod erasure;
pub mod read;
pub mod weight_sets;
