//! The monitor, and the manager's front beside it.
//!
//! Vocabulary: a *session* is one authenticated connection; a *subscription* is a map or log it wants to be
//! told about; a *request* is what may change the cluster; a *command* is a request in JSON.
//!
//! [`monitor`] and [`manager`] are state machines that never wait; [`requests`] decides, purely, what changes;
//! the cluster state commits it.
//!
//! Not here: what the state is and how it is kept (`metastore`), frames and handshakes (`net`, `auth`).

pub mod ask;
pub mod audit;
pub mod auto_out;
pub mod chores;
pub mod commands;
pub mod commits;
pub mod format;
pub mod manager;
pub mod monitor;
pub mod near;
pub mod others;
pub mod pool_set;
pub mod pools;
#[cfg(test)]
mod privileges;
pub mod progress;
pub mod publish;
pub mod removal;
pub mod requests;
pub mod serve;
pub mod session;
pub mod spare;
pub mod spread;
pub mod standing;
pub mod subscriptions;
#[cfg(test)]
mod tests;
pub mod upkeep;
pub mod usage;

pub use serve::{Inside, MonConfig, Ready, serve, serve_inside};

/// Whether a client gets back the id that it claims without a ticket for it. Unlike in Ceph false unless set: no client
/// since 16 needs it.
const INSECURE_RECLAIM: &str = "auth_allow_insecure_global_id_reclaim";
