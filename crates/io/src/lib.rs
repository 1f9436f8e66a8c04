//! The only access to clock, randomness, disk and sockets. Everything above takes these as arguments, so
//! that the same code can run over a simulated one with lost messages, torn writes and skewed clocks.

pub mod admin;
pub mod clock;
pub mod disk;
pub mod files;
pub mod group;
pub mod key_file;
pub mod log;
pub mod log_file;
pub mod machine;
pub mod mounts;
pub mod panics;
pub mod random;
pub mod shared_thread;
pub mod signals;
pub mod socket;
pub mod sparse;
pub mod task;
pub mod thread;
pub mod turns;

pub use clock::{Clock, SystemClock};
pub use random::{Random, SystemRandom};
