//! What the machine is made of: plain values, each with what can be decided by itself.

pub mod caps;
pub mod early;
pub mod events;
pub mod held;
pub mod leases;
pub mod loads;
pub mod locks;
pub mod outbox;
pub mod reconnecting;
pub mod replays;
pub mod request;
pub mod sessions;
pub mod stock;
pub mod traces;
pub mod trim;
pub mod tx;
pub mod writes;
