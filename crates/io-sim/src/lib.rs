//! What crate `io` gives access to, deterministic: one seed, one thread, one run.
//!
//! Vocabulary: a *simulation* ([`run`]) is one current-thread runtime whose time is virtual: when nobody can run, the
//! clock jumps to the next timer. A *host* is an IP address with a [`Process`] on it: all tasks of one `LocalSet`, which
//! can be paused (not polled) and killed (dropped, all at once). The *network* carries byte streams between hosts, late,
//! cut or not at all ([`Weather`], partitions). The *trace* is everything that happened, as text and as a hash.
//!
//! Invariants: what happens in a simulation follows from the seed and the code alone. So, in a process of its own (tokio
//! counts its runtimes, and seeds its random choices by that): no other thread, no real clock, no real I/O; `HashMap`s
//! get their keys from the seed ([`entropy`]). The same seed gives the same hash.
//!
//! Not here: what runs on the hosts, faults' schedules, checkers (crate `simtest`); the disk that forgets what was not
//! flushed is [`io::disk::sim`]. Timers fire at whole milliseconds (tokio's wheel); within one, in the order of their
//! making.

pub mod clock;
pub mod entropy;
pub mod net;
pub mod process;
pub mod random;
mod sim;
pub mod trace;

pub use clock::SimClock;
pub use io::disk::sim::Dice;
pub use net::{SimNet, Weather};
pub use process::{Process, current_host};
pub use random::SimRandom;
pub use sim::{Sim, run};
pub use trace::Trace;
