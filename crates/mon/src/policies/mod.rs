//! What the monitor decides without being asked, and the changes that it makes so: pure functions of the state, and the
//! memories that they need. No sockets, no sessions.

pub mod auto_out;
pub mod autoscale;
pub mod balance;
pub mod chores;
pub mod coded;
pub mod evening;
pub mod lag;
pub mod near;
pub mod pg_steps;
pub mod places;
pub mod pool_change;
pub mod pool_set;
pub mod pools;
pub mod progress;
pub mod removal;
pub mod reports;
pub mod score;
pub mod services;
pub mod spare;
pub mod spread;
pub mod survey;
pub mod upkeep;
pub mod usage;

/// Whether a client gets back the id that it claims without a ticket for it. Unlike in Ceph false unless set: no client
/// since 16 needs it.
pub const INSECURE_RECLAIM: &str = "auth_allow_insecure_global_id_reclaim";
