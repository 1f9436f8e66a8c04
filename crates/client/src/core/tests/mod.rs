//! The machine without a network: what it sends, to whom, in which order, after everything that can happen to it.

#![allow(clippy::unwrap_used)]

mod commands;
mod mons;
mod sends;
mod watches;
mod world;
