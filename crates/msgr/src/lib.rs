//! Messenger v2: frames and handshake as a state machine, bytes in and events out
//! (docs/protocol/ceph/01-messenger.md, sections 2 to 5); and v1's accepting side ([`v1`]), behind the same calls
//! ([`Accepted`]).
//!
//! Vocabulary: a *frame* is a preamble, one to four *segments* and an epilogue; a *message* is the frame
//! that carries header, front, middle and data; *revision* is the framing (2.1 or 2.0); *mode* is how
//! frames are protected (crc, or secure: AES-128-GCM). A *lossy* session forgets everything when its
//! connection ends.
//!
//! Invariants: whoever breaks the protocol gets an [`Error`] and the caller closes the connection; nothing
//! is ever answered to a malformed frame. What a frame claims is checked against [`Limits`] before memory
//! is taken for it; before authentication only small frames are taken at all. Large data segments are
//! received into a buffer of their own and handed on without a copy, and sent without one in crc mode.
//!
//! Not here: sockets, timers, queues between tasks (`net`); message bodies (`messages`); stateful
//! sessions with reconnect (the MDS will need them), compression (never offered), messenger v1 towards servers.

mod accepted;
mod client;
mod error;
pub mod features;
mod frame;
mod gcm;
mod intake;
mod link;
mod message;
mod modes;
mod output;
mod payload;
mod peer;
mod reader;
#[cfg(test)]
mod replay;
mod server;
mod sessions;
pub mod v1;
mod writer;

pub use accepted::Accepted;
pub use client::{ClientConfig, ClientConnection, ClientEvent};
pub use error::Error;
pub use frame::{CONTROL_FRAME_MAX, Limits, Revision, Tag};
pub use intake::BODY_SLICE;
pub use message::Message;
pub use modes::{ModeSwitch, Modes};
pub use output::Output;
pub use payload::{
    AuthBadMethod, AuthDone, AuthRequest, ClientIdent, FLAG_LIFELINE, Hello, Reconnect, ServerIdent,
    con_modes,
};
pub use peer::{Peer, answer_mauth};
pub use reader::TRANSCRIPT_MAX;
pub use server::{Event, ServerConfig, ServerConnection};
pub use sessions::{Gone, SESSIONS_MAX, Sessions, TOTAL_BYTES_MAX, UNACKED_BYTES_MAX};
