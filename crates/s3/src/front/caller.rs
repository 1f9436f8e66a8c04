//! Who asks, as a request carries it along.

use std::net::IpAddr;

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
