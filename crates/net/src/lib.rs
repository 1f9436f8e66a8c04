//! Connections: drives `msgr` over sockets, on one thread (a current-thread runtime with a `LocalSet`).
//!
//! Vocabulary: [`serve`] accepts connections and turns what peers say into [`NetEvent`]s on a bounded
//! channel; [`Connections`] is the handle by which the owner answers. A [`Permit`] comes with every
//! message and weighs on its connection's budget until it is dropped. A *lifeline* is a connection on which nothing is said
//! once it is open, and whose end is the news; it is none of the connections that are counted, and never idle.
//!
//! Invariants: every connection sends `Opened` before its messages and `Closed` last, or nothing at all
//! when its handshake fails. Memory is bounded: unauthenticated peers get small frames and ten seconds;
//! a connection's messages in flight have a budget, and reading stops when it is used up; all
//! connections together have one too; output that a peer does not take first stops reading from it,
//! then ends the connection with a log line.
//!
//! Not here: what messages mean, retries, timers of sessions.

mod budget;
mod client;
mod connection;
mod connections;
mod dial;
mod guesses;
mod lifelines;
mod server;
mod write;

pub use budget::Permit;
pub use client::{ClientError, ClientStream};
pub use connections::{ConnId, Connections, NetEvent, Options};
pub use dial::{DialEvent, DialOptions, Dialled, Session, dial};
pub use io::socket::Listener;
pub use lifelines::{Door, Lifelines};
pub use msgr::{Message, Peer, ServerConfig};
pub use server::{entropy, serve};
