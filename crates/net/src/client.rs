//! The connecting side over a socket: enough for tests, tools and the beginnings of our own client. It
//! neither reconnects nor resends.

use crate::write::write_some;
use auth::ClientAuth;
use bytes::BufMut;
use io::socket::Stream;
use msgr::{ClientConfig, ClientConnection, ClientEvent, Message, ServerIdent};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use types::Utime;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Protocol(#[from] msgr::Error),
    /// The stream came to its end: a FIN, and nothing else.
    #[error("closed by server")]
    Closed,
    #[error("given up by its owner")]
    GivenUp,
}

pub struct ClientStream<A> {
    stream: Stream,
    proto: ClientConnection<A>,
    clock: Arc<dyn io::Clock>,
    pub ident: Option<ServerIdent>,
}

impl<A: ClientAuth> ClientStream<A> {
    /// Connects and comes back with an open session.
    pub async fn connect(
        addr: SocketAddr,
        config: ClientConfig,
        auth: A,
        clock: Arc<dyn io::Clock>,
    ) -> Result<Self, ClientError> {
        let mut c = Self {
            stream: Stream::connect(addr).await?,
            proto: ClientConnection::new(config, auth),
            clock,
            ident: None,
        };
        loop {
            if let ClientEvent::Ready(ident) = c.event().await? {
                c.ident = Some(ident);
                return Ok(c);
            }
        }
    }

    pub async fn send(&mut self, m: Message) -> Result<(), ClientError> {
        self.proto.send(m)?;
        self.flush().await
    }

    pub async fn keepalive(&mut self) -> Result<(), ClientError> {
        let now = Utime::from_unix(self.clock.wall());
        self.proto.keepalive(now)?;
        self.flush().await
    }

    /// The next message from the server.
    pub async fn recv(&mut self) -> Result<Message, ClientError> {
        loop {
            if let ClientEvent::Message(m) = self.event().await? {
                return Ok(m);
            }
        }
    }

    /// Gives up the connection and gives back the credentials, tickets included.
    pub fn into_auth(self) -> A {
        self.proto.into_auth()
    }

    async fn event(&mut self) -> Result<ClientEvent, ClientError> {
        loop {
            let now = Utime::from_unix(self.clock.wall());
            let event = self.proto.next(now)?;
            self.flush().await?;
            if let Some(e) = event {
                return Ok(e);
            }
            self.stream.readable().await?;
            let (buf, max) = self.proto.read_target();
            match self.stream.try_read(&mut buf.limit(max)) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    async fn flush(&mut self) -> Result<(), ClientError> {
        while !self.proto.output().is_empty() {
            self.stream.writable().await?;
            match write_some(&self.stream, self.proto.output()) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}
