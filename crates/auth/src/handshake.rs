//! What the messenger asks of an authentication method, and what it gets: the seam between frames
//! (`msgr`) and credentials. Object-safe, so a role plugs in what it needs: [`crate::KeyServer`] in the
//! monitor, [`crate::TicketVerifier`] or [`crate::AllowNone`] elsewhere.

use crate::CryptoKey;
use denc::Bytes;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use types::{AuthName, Errno, Utime};

/// A source of bytes that nobody can predict, passed in by the shell.
pub trait Entropy: Send + Sync {
    fn fill(&self, buf: &mut [u8]);
}

impl<F: Fn(&mut [u8]) + Send + Sync> Entropy for F {
    fn fill(&self, buf: &mut [u8]) {
        self(buf)
    }
}

/// Time (wall clock, since tickets carry it to other machines) and randomness of one step.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub now: Utime,
    pub entropy: &'a dyn Entropy,
}

impl Context<'_> {
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut b = [0; N];
        self.entropy.fill(&mut b);
        b
    }

    /// Never 0: a zero challenge means "none" on the wire.
    pub fn challenge(&self) -> u64 {
        u64::from_le_bytes(self.bytes()).max(1)
    }

    pub fn key(&self) -> CryptoKey {
        CryptoKey::new(self.bytes(), self.now)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum AuthMethod {
    None = 1,
    Cephx = 2,
}

impl AuthMethod {
    pub fn from_u32(v: u32) -> Option<Self> {
        [Self::None, Self::Cephx].into_iter().find(|m| *m as u32 == v)
    }
}

/// How frames are protected after the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum ConMode {
    Crc = 1,
    Secure = 2,
}

impl ConMode {
    pub fn from_u32(v: u32) -> Option<Self> {
        [Self::Crc, Self::Secure].into_iter().find(|m| *m as u32 == v)
    }

    /// A list as Ceph reads it: names between blanks, commas or semicolons. None: a name that is no mode, or no name.
    pub fn list(text: &str) -> Option<Vec<Self>> {
        let words = text.split([' ', ',', ';', '\t', '=']).filter(|w| !w.is_empty());
        let modes: Option<Vec<Self>> = words
            .map(|w| match w {
                "crc" => Some(Self::Crc),
                "secure" => Some(Self::Secure),
                _ => None,
            })
            .collect();
        modes.filter(|m| !m.is_empty())
    }
}

/// 64 bytes from which both sides take the AES-GCM key and the first nonces.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionSecret(pub [u8; 64]);

impl fmt::Debug for ConnectionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionSecret")
    }
}

/// A refusal: `errno` is what the peer sees, `reason` is for our log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("{reason} ({errno:?})")]
    Denied { errno: Errno, reason: String },
    /// No answer at all: the connection is closed.
    #[error("{0}")]
    Close(String),
    /// As `Close`, and no fault of the peer's: it shall try another server.
    #[error("sent elsewhere: {0}")]
    Elsewhere(String),
}

impl AuthError {
    pub fn access(reason: impl Into<String>) -> Self {
        Self::denied(Errno::EACCES, reason)
    }
    pub fn denied(errno: Errno, reason: impl Into<String>) -> Self {
        Self::Denied {
            errno,
            reason: reason.into(),
        }
    }
    pub fn errno(&self) -> Errno {
        match self {
            Self::Denied { errno, .. } => *errno,
            Self::Close(_) | Self::Elsewhere(_) => Errno::EBUSY,
        }
    }
}

impl From<denc::Error> for AuthError {
    fn from(e: denc::Error) -> Self {
        Self::access(format!("malformed authentication payload: {e}"))
    }
}

impl From<crate::CryptError> for AuthError {
    fn from(e: crate::CryptError) -> Self {
        Self::access(format!("authentication payload {e}"))
    }
}

/// The capability texts that came with the peer's credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerCaps {
    /// Method none, or a ticket that says so: everything.
    AllowAll,
    /// By service. A service verifying a ticket knows its own text only; the monitor knows all of them.
    Texts(BTreeMap<String, String>),
}

impl PeerCaps {
    /// The text for `service`; `None` grants nothing.
    pub fn text(&self, service: &str) -> Option<&str> {
        match self {
            Self::AllowAll => Some("allow *"),
            Self::Texts(t) => t.get(service).map(String::as_str),
        }
    }
}

/// Who the peer has proven to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub name: AuthName,
    pub global_id: u64,
    pub caps: PeerCaps,
    /// Of the key that it proved to have, or that stands behind its ticket ([`crate::EntityAuth::epoch`]): when the
    /// entity's is another, its sessions are over. None: no entity's key does (method none, daemons among each other).
    pub key_epoch: Option<u64>,
    /// The monitor's challenge of this connection, which a later renewal must answer again.
    pub server_challenge: Option<u64>,
}

/// What an authenticator remembers between two rounds of one handshake.
pub struct Pending(Box<dyn Any + Send>);

impl Pending {
    pub fn new<T: Any + Send>(state: T) -> Self {
        Self(Box::new(state))
    }
    pub fn take<T: Any>(self) -> Result<T, AuthError> {
        self.0
            .downcast::<T>()
            .map(|b| *b)
            .map_err(|_| AuthError::Close("handshake state of another authenticator".into()))
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

/// A successful handshake; `payload` goes into AUTH_DONE.
#[derive(Debug, Clone)]
pub struct Granted {
    pub payload: Bytes,
    pub identity: Identity,
    /// Signs the transcript; without it signatures are zeros.
    pub session_key: Option<CryptoKey>,
    /// Present exactly when the mode is secure.
    pub connection_secret: Option<ConnectionSecret>,
}

#[derive(Debug)]
pub enum Step {
    /// Send AUTH_REPLY_MORE and wait for AUTH_REQUEST_MORE.
    More {
        payload: Bytes,
        pending: Pending,
    },
    Done(Box<Granted>),
}

/// The server side of one authentication policy, shared by all connections of a role.
///
/// Contract: calls do not block, and memory use is bounded by the payload given. `start` is called with a
/// method out of `methods` and a mode out of `modes`; after an error the peer may start again.
pub trait Authenticator: Send + Sync {
    fn methods(&self) -> &[AuthMethod];
    fn modes(&self) -> &[ConMode];
    fn start(
        &self,
        method: AuthMethod,
        mode: ConMode,
        payload: &Bytes,
        cx: &Context,
    ) -> Result<Step, AuthError>;
    fn resume(&self, pending: Pending, payload: &Bytes, cx: &Context) -> Result<Step, AuthError>;

    /// As `start`, over messenger v1, which has no modes and so no connection secrets. With the step comes the global id that
    /// a monitor gives: there the client hears it with the challenge already. 0: it is not ours to give.
    fn start_v1(&self, method: AuthMethod, payload: &Bytes, cx: &Context) -> Result<(u64, Step), AuthError> {
        Ok((0, self.start(method, ConMode::Crc, payload, cx)?))
    }
}

#[cfg(test)]
mod tests {
    use super::ConMode::{self, Crc, Secure};

    #[test]
    fn lists_are_read_as_ceph_reads_them() {
        for (text, want) in [
            ("crc secure", Some(vec![Crc, Secure])),
            ("secure,crc", Some(vec![Secure, Crc])),
            (" secure ", Some(vec![Secure])),
            ("crc", Some(vec![Crc])),
            ("", None),
            ("plain", None),
            ("secure none", None),
        ] {
            assert_eq!(ConMode::list(text), want, "{text:?}");
        }
    }
}
