//! What an attacker can send, as functions of bytes: the entry points that fuzzing calls (`fuzz/`), and that a
//! short seeded run calls in `cargo test`, so that both test the same thing.
//!
//! Vocabulary: a *target* is one entry point; its *seeds* are recorded inputs in the target's own framing, from
//! which inputs are made by mutation.
//!
//! Each target panics if and only if the code under test is wrong: it panicked itself, gave an unbounded answer,
//! or does not read what it wrote. That an input is refused is right; targets tell whether it was, so that a run can
//! see that it does not only test checksums.
//!
//! Not here: memory limits of single decoders (measured in the crates' own tests), and the store's log, which is
//! no attacker's input.
#![allow(clippy::unwrap_used)] // a broken seed or set-up shall stop the run

mod classes;
mod frames;
mod legacy;
mod maps;
mod messages;
mod mutate;
mod objects;
pub mod seeds;
mod take;

pub use classes::classes;
pub use frames::frames;
pub use legacy::legacy;
pub use maps::maps;
pub use messages::messages;
pub use mutate::Mutator;
pub use objects::objects;

pub struct Target {
    pub name: &'static str,
    /// True if the input got past the checks: a session opened, something decoded, a call succeeded.
    pub run: fn(&[u8]) -> bool,
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Seeds that are accepted as they are, at least. (Recorded sessions are for other servers and keys than ours.)
    pub good_min: usize,
    /// Mutations of each seed in the short run.
    pub rounds: u64,
}

/// One table: the short run, the corpus writer and `fuzz/` follow it.
pub const TARGETS: &[Target] = &[
    Target {
        name: "frames",
        run: frames,
        seeds: seeds::frames,
        good_min: 6,
        rounds: 1600,
    },
    Target {
        name: "legacy",
        run: legacy,
        seeds: seeds::legacy,
        good_min: 2,
        rounds: 1600,
    },
    Target {
        name: "messages",
        run: messages,
        seeds: seeds::messages,
        good_min: 250,
        rounds: 600,
    },
    Target {
        name: "maps",
        run: maps,
        seeds: seeds::maps,
        good_min: 100,
        rounds: 240,
    },
    Target {
        name: "classes",
        run: classes,
        seeds: seeds::classes,
        good_min: 50,
        rounds: 100,
    },
    Target {
        name: "objects",
        run: objects,
        seeds: objects::seeds,
        good_min: 12,
        rounds: 1600,
    },
];
