//! The `skep` program: command line over the `node` crate.
fn main() {}
