//! The machine without a network.
