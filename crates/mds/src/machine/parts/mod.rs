//! What the machine is made of: plain values, each with what can be decided by itself.

pub mod caps;
pub mod events;
pub mod loads;
pub mod locks;
pub mod reconnecting;
pub mod request;
pub mod sessions;
pub mod traces;
pub mod tx;
pub mod writes;
