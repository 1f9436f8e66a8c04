//! The monitor, and the manager's front beside it.
//!
//! Vocabulary: a *session* is one authenticated connection; a *subscription* is a map or log it wants to be
//! told about; a *request* is what may change the cluster; a *command* is a request in JSON.
//!
//! Rooms, from the bottom up: [`format`], text and JSON as Ceph writes them; [`policies`], what is decided without being
//! asked; [`commands`], what is decided when asked; [`shell`], sockets and sessions. None imports a higher one.
//!
//! [`shell::monitor`] and [`shell::manager`] are state machines that never wait; [`shell::decisions`] decides, purely, what
//! changes; the cluster state commits it.
//!
//! Not here: what the state is (`cluster`) and how it is kept (`metastore`), frames and handshakes (`net`, `auth`).

pub mod commands;
pub mod format;
pub mod policies;
#[cfg(test)]
mod privileges;
pub mod shell;
#[cfg(test)]
mod tests;

pub use policies::{lag, near, pools, removal};
pub use shell::lookups::{Images, Volumes};
pub use shell::serve::{Inside, MonConfig, Ready, serve, serve_inside};
pub use shell::{ask, audit};
