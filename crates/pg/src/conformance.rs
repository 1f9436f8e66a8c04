//! Suites that every implementation of a trait of this crate passes; each is run by the tests of the crate that
//! implements it.

// Only tests call these: a failure is to end them where it happens.
#![allow(clippy::unwrap_used)]

pub mod store;
