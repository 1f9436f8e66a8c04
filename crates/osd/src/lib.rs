//! The OSD: one thread that owns a store, its placement groups and its clients' connections.
//!
//! Vocabulary: the *event loop* waits for one [`event::Event`] and applies it; everything that an OSD does
//! starts there. The *shell* ([`osd::Osd`]) routes operations to their PG ([`pg::Pg`]), lends it the store, and
//! carries out what it puts out.
//!
//! Invariants: an answer leaves after the flush that makes it durable; a PG is served only by the OSD that the
//! cluster state names as its holder; every queue has a bound.
//!
//! Not here: what an operation means (`pg`), bytes on the wire (`net`, `msgr`), the monitor.

mod activity;
mod allowance;
mod asker;
mod bench;
mod caps;
mod command;
mod compression;
mod copy_reads;
mod disk_time;
mod event;
mod fences;
mod fetches;
mod health;
mod images;
mod lifeline;
mod limiting;
mod links;
mod maps;
mod measure;
mod membership;
mod memory;
mod merges;
mod merging;
mod meters;
mod modes;
mod ops;
mod options;
mod osd;
mod pace;
mod patience;
mod peer_auth;
mod peering;
mod peers;
mod placement;
pub mod probe;
mod pulse;
mod qos;
mod reaper;
mod recovery;
mod replies;
mod report;
mod scrub;
mod serve;
mod session_caps;
mod sessions;
mod slot;
mod slots;
mod store_view;
#[cfg(test)]
mod tests;
mod turns;
mod waiting;

pub use memory::{MEMORY_DEFAULT, MEMORY_MIN, Memory};
pub use ops::traces::{ONE_OF as TRACED_ONE_OF, QUEUE as TRACE_QUEUE, Trace, Traces, otlp};
pub use peers::Peers;
pub use serve::{Config, Error, serve};
