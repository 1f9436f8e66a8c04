//! Who asks, as a request carries it along.

use crate::logs::Logging;
use crate::rate::Payer;
use crate::session::Session;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The user of a request whose signature was good.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Of a session: the owner of its role, who has what is made so, and pays for it. His rights are not the session's.
    pub user: String,
    /// With a key of Swift.
    pub subuser: Option<String>,
    /// A role that was taken.
    pub session: Option<Arc<Session>>,
}

impl Identity {
    /// With all that the user may do.
    pub fn of(user: String) -> Self {
        Self {
            user,
            subuser: None,
            session: None,
        }
    }
}

/// Whom a request comes from, or the proxy in front.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    pub ip: IpAddr,
    /// By TLS, that ends here.
    pub tls: bool,
}

/// What is found out about a request on its way.
#[derive(Debug, Default)]
pub struct Notes {
    /// Whose rate limits it is held against.
    pub payers: Vec<Payer>,
    /// The library's name of what it is.
    pub operation: Option<String>,
    /// Who asks, if that is somebody.
    pub user: Option<String>,
    /// The session of a role that asks in the user's place, as policies know it.
    pub session: Option<String>,
    /// The bucket that it names, and whose that is, if it is there.
    pub bucket: Option<String>,
    pub owner: Option<String>,
    /// Where the bucket's access log goes, if it has one.
    pub logging: Option<Logging>,
}

/// The same, for whoever sees its answer. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Noted(Arc<Mutex<Notes>>);

impl Noted {
    pub fn lock(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn take(&self) -> Notes {
        std::mem::take(&mut *self.lock())
    }
}
