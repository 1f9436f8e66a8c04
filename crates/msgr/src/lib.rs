//! Messenger v2: frames and handshake as a state machine, bytes in and events out (spec chapter 01).

mod message;

pub use message::Message;
