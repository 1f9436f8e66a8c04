//! Who asks, as a request carries it along.

use crate::rate::Payer;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The user of a request whose signature was good.
#[derive(Debug, Clone)]
pub struct Identity {
    pub user: String,
}

/// Whom a request comes from, or the proxy in front.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    pub ip: IpAddr,
    /// By TLS, that ends here.
    pub tls: bool,
}

/// Whose rate limits a request is held against, for whoever sees its answer. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Charged(Arc<Mutex<Vec<Payer>>>);

impl Charged {
    pub fn set(&self, payers: Vec<Payer>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = payers;
    }

    pub fn take(&self) -> Vec<Payer> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
