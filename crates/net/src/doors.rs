//! Where an entity listens: messenger v2, and v1 beside it for clients that know nothing newer. What comes in by either door is
//! the same to everybody above (`msgr::Accepted`).

use io::socket::{Acceptor, Listener, Stream};
use msgr::{Accepted, ServerConfig, ServerConnection, Sessions, v1};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use types::{EntityAddr, EntityAddrVec};

/// How messenger v1 is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Msgr1 {
    /// 0 takes a free one.
    pub port: u16,
    /// Announced before v2, so that stock clients, which dial the first address that they know, come by v1. For tests.
    pub first: bool,
}

impl Msgr1 {
    pub fn on(port: u16) -> Self {
        Self { port, first: false }
    }

    /// Where v1 is offered: at a free port.
    pub fn anywhere(self) -> Self {
        Self { port: 0, ..self }
    }
}

/// A socket that could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {addr}{}: {source}", if *.legacy { " (messenger v1)" } else { "" })]
pub struct NotBound {
    pub addr: SocketAddr,
    pub legacy: bool,
    pub source: std::io::Error,
}

fn bind(addr: SocketAddr, legacy: bool) -> Result<(Listener, SocketAddr), NotBound> {
    let bound = Listener::bind(addr).and_then(|l| l.local_addr().map(|at| (l, at)));
    bound.map_err(|source| NotBound { addr, legacy, source })
}

/// Bound sockets; clients connect once [`crate::serve`] has them.
#[derive(Debug)]
pub struct Doors {
    listener: Listener,
    legacy: Option<Listener>,
}

impl From<Listener> for Doors {
    /// Messenger v2 alone.
    fn from(listener: Listener) -> Self {
        Self {
            listener,
            legacy: None,
        }
    }
}

impl Doors {
    /// `at` is for v2 (port 0 takes a free one); v1 has the same ip. With them come the addresses that maps and handshakes
    /// are to have.
    pub fn bind(at: SocketAddr, msgr1: Option<Msgr1>, nonce: u32) -> Result<(Self, EntityAddrVec), NotBound> {
        let (listener, sock) = bind(at, false)?;
        let legacy = msgr1.map(|m| bind(SocketAddr::new(at.ip(), m.port), true));
        let (legacy, legacy_sock) = legacy.transpose()?.unzip();
        let legacy_addr = legacy_sock.map(|sock| EntityAddr::legacy(sock, nonce));
        let mut addrs = EntityAddrVec::with_legacy(EntityAddr::msgr2(sock, nonce), legacy_addr);
        if msgr1.is_some_and(|m| m.first) {
            addrs.0.reverse();
        }
        Ok((Self { listener, legacy }, addrs))
    }

    pub(crate) fn start(self) -> std::io::Result<Open> {
        Ok(Open {
            v2: self.listener.start()?,
            v1: self.legacy.map(Listener::start).transpose()?,
        })
    }
}

/// Which messenger a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    V2,
    V1,
}

impl Door {
    /// Sessions over v1 are lossy.
    pub fn protocol(
        self,
        config: Arc<ServerConfig>,
        peer: SocketAddr,
        global_seq: u64,
        lossless: Option<Rc<RefCell<Sessions>>>,
    ) -> Accepted {
        match self {
            Self::V2 => {
                let conn = ServerConnection::new(config, peer, global_seq);
                Accepted::V2(Box::new(match lossless {
                    Some(sessions) => conn.lossless(sessions),
                    None => conn,
                }))
            }
            Self::V1 => Accepted::V1(Box::new(v1::ServerConnection::new(config, peer, global_seq))),
        }
    }
}

pub(crate) struct Open {
    v2: Acceptor,
    v1: Option<Acceptor>,
}

impl Open {
    /// The next connection by either door.
    pub async fn accept(&self) -> std::io::Result<(Stream, SocketAddr, Door)> {
        let legacy = async {
            match &self.v1 {
                Some(acceptor) => acceptor.accept().await,
                None => std::future::pending().await,
            }
        };
        let (accepted, door) = tokio::select! {
            biased;
            accepted = self.v2.accept() => (accepted, Door::V2),
            accepted = legacy => (accepted, Door::V1),
        };
        accepted.map(|(stream, peer)| (stream, peer, door))
    }
}
