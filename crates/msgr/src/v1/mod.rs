//! Messenger v1, the accepting side, for clients that know nothing newer: kernel clients without `ms_mode`, and what takes the
//! first v1 address (docs/protocol/messenger.md, "Messenger v1").
//!
//! Vocabulary: an *authorizer* is what a client shows of its ticket while it connects to an OSD; a monitor authenticates by
//! messages (MAuth) once the connection stands.
//!
//! Invariants: as with v2, whoever breaks the protocol gets an error and nothing else; no session outlives its connection
//! (whatever a client asks, it is told that it is lossy); memory is taken only for what has passed a checksum and the
//! limits. Before a client has proved who it is, it may say no more than over v2, and to a monitor nothing but MAuth. With cephx,
//! messages from and to an OSD are signed, and one whose signature is wrong ends the connection.
//!
//! Not here: dialling, daemons (they speak v2 among themselves), sessions that are resumed, encryption (v1 has none).

mod connection;
#[cfg(test)]
mod tests;
mod wire;

pub use connection::ServerConnection;
