//! Authentication and authorization: methods `none` and `cephx`, tickets, keyrings, capabilities
//! (docs/protocol/ceph/01-messenger.md, sections 6 and 7).
//!
//! Vocabulary: an *entity* (`client.admin`) has a long-lived *key*; a *ticket* is a blob that the issuing
//! monitor seals with a service's *rotating secret* and hands out with a *session key*; an *authorizer* is
//! a ticket shown to a service with proof of the session key; *capabilities* are texts per service.
//!
//! Invariants: nothing here reads a clock, a file or a generator: time and randomness come in a
//! [`Context`]. No secret is printed by `Debug`. A wrong key, a wrong challenge and a malformed ticket are
//! all the same refusal to the peer (-EACCES); the reason goes to our log only.
//!
//! Not here: frames and connection modes (`msgr`), key type 2 (aes256k: refused with a clear error), gss.

pub mod caps;
mod client;
mod handshake;
mod instance;
mod key;
mod keydb;
mod keyring;
mod mauth;
mod owners;
mod rotating;
mod server;
mod ticket;
pub mod totp;
mod verifier;

pub use caps::{Access, CapsError, MdsCaps, MdsNeed, MgrCaps, MonCaps, OsdCaps};
pub use client::{CephxClient, ClientAuth, ClientDone, NoneClient};
pub use handshake::{
    AuthError, AuthMethod, Authenticator, ConMode, ConnectionSecret, Context, Entropy, Granted, Identity,
    PeerCaps, Pending, Step,
};
pub use instance::instance;
pub use key::{CryptError, CryptoKey, SECRET_LEN};
pub use keydb::{EntityAuth, Expiry, KeyDb};
pub use keyring::{KeyringError, parse_keyring, print_keyring, print_section};
pub use mauth::{MAUTH, MAUTH_REPLY, MAuth, MAuthReply};
pub use rotating::{RotatingSecret, RotatingSecrets, ServiceSecrets, TICKET_SERVICES};
pub use server::{KeyServer, KeyServerConfig};
pub use ticket::{AuthTicket, CLOCK_LEEWAY, GrantedTicket, SessionTicket, TicketBlob};
pub use verifier::{AllowNone, TicketVerifier};
