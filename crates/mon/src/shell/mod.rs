//! Where the monitor meets the world: sockets, sessions, subscriptions, and the order in which changes are committed.

pub mod ask;
pub mod audit;
pub mod commits;
pub mod decisions;
pub mod lookups;
pub mod manager;
mod meters;
pub mod monitor;
pub mod others;
pub mod publish;
pub mod requests;
pub mod serve;
pub mod session;
pub mod subscriptions;
mod turns;
