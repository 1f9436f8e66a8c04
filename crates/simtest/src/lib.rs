//! The cluster in a deterministic simulation: one seed is one run, checked.
//!
//! Vocabulary: a *plan* is what a seed draws: the cluster's shape, the clients, the faults. A run brings the real OSDs,
//! the real monitor and real stores up on simulated hosts ([`cluster`]), lets clients work ([`workload`]) while faults come
//! and go ([`chaos`]), heals everything, and checks ([`check`], [`linear`]). A *wrong* is what a checker found.
//!
//! Invariants: as `io-sim`'s: the same seed and the same code give the same trace, bit by bit. A seed is one process
//! (`simtest seed N`), since tokio seeds its random choices by counting what the process made before.
//!
//! Not here: snapshots, watches, capabilities (OSDs take everybody), more than one pool; the etcd client (the
//! cluster state is in memory behind a network, see [`etcd`]); sub-millisecond timers.

pub mod acks;
pub mod chaos;
pub mod check;
pub mod client;
pub mod cluster;
pub mod coded;
pub mod contract;
pub mod copies;
pub mod cost;
pub mod disk;
pub mod etcd;
pub mod hosts;
pub mod largest;
pub mod linear;
pub mod model;
pub mod operator;
pub mod places;
pub mod plan;
pub mod raw;
pub mod rot;
pub mod run;
pub mod sabotage;
pub mod scrubs;
pub mod watchdog;
pub mod wishes;
pub mod workload;
