//! Connections: drives `msgr` over sockets, on one thread (a current-thread runtime with a `LocalSet`).
//!
//! Vocabulary: [`serve`] accepts connections, by the [`Doors`] of messenger v2 and v1, and turns what peers say into [`NetEvent`]s on a bounded
//! channel; [`Connections`] is the handle by which the owner answers. A [`Permit`] comes with every
//! message and weighs on its connection's budget until it is dropped. A *lifeline* is a connection on which nothing is said
//! once it is open, and whose end is the news; it is none of the connections that are counted, and never idle.
//!
//! Invariants: every connection sends `Opened` before its messages and `Closed` last, or nothing at all
//! when its handshake fails. Memory is bounded (docs/protocol/messenger.md has the table): unauthenticated peers get small
//! frames and ten seconds; messages have a budget per connection and one for all, from their first bytes on, and reading
//! stops when it is used up (`budget`); output that peers do not take has the same (`outputs`). Whoever holds what others wait
//! for, and does not go on, is ended with a log line. So are connections bounded in number (`places`).
//!
//! Beside that, [`http`] is what hyper needs of us, [`tls`] what those show who serve HTTPS, [`post`] calls others' webhooks, and [`fetch`] asks others' services.
//!
//! Not here: what messages mean, retries, timers of sessions.

mod accounts;
mod budget;
mod client;
mod connection;
mod connections;
mod dial;
mod doors;
pub mod fetch;
pub mod guesses;
pub mod http;
mod lanes;
mod lifelines;
mod lossless;
mod outputs;
mod places;
pub mod post;
mod server;
pub mod tls;
mod write;

pub use accounts::{Accounts, CONNECTION_BYTES, Perf};
pub use budget::{PACE_BEYOND_BYTES_PER_S, PACE_BYTES_PER_S, Permit};
pub use client::{ClientError, ClientStream};
pub use connections::{CONNECTIONS_MAX, ConnId, Connections, NetEvent, Options, Promise};
pub use dial::{DialEvent, DialOptions, Dialled, Meter, Session, dial};
pub use doors::{Doors, Msgr1, NotBound};
pub use io::socket::Listener;
pub use lanes::Lanes;
pub use lifelines::{Intake, Lifelines};
pub use msgr::{Message, Peer, ServerConfig};
pub use server::{entropy, serve};
