//! TCP sockets: listening, accepting, connecting, reading, writing. Thin, so that a simulated twin can
//! take its place; what the bytes mean is none of its business.
//!
//! All streams are without Nagle's delay, since protocols above write whole batches at once. Reading and
//! writing are two-step (wait, then try), so that a caller holds no buffer while it waits.

use bytes::BufMut;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpListener as StdListener};
use tokio::net::{TcpListener, TcpStream};

/// Connections that the kernel keeps for us until we accept them.
const BACKLOG: i32 = 1024;

/// A bound socket that does not need a runtime yet: bind first, announce the address, serve later.
#[derive(Debug)]
pub struct Listener {
    socket: StdListener,
}

impl Listener {
    /// Port 0 lets the system choose; see [`Self::local_addr`].
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        Ok(Self {
            socket: socket.into(),
        })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Joins the runtime of the calling task.
    pub fn start(self) -> io::Result<Acceptor> {
        Ok(Acceptor {
            inner: TcpListener::from_std(self.socket)?,
        })
    }
}

#[derive(Debug)]
pub struct Acceptor {
    inner: TcpListener,
}

impl Acceptor {
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (inner, peer) = self.inner.accept().await?;
        inner.set_nodelay(true)?;
        Ok((Stream { inner }, peer))
    }
}

#[derive(Debug)]
pub struct Stream {
    inner: TcpStream,
}

impl Stream {
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let inner = TcpStream::connect(addr).await?;
        inner.set_nodelay(true)?;
        Ok(Self { inner })
    }

    pub async fn readable(&self) -> io::Result<()> {
        self.inner.readable().await
    }

    /// Reads into `buf`'s free space; 0 is the end of the stream; `WouldBlock` means wait again.
    pub fn try_read(&self, buf: &mut impl BufMut) -> io::Result<usize> {
        self.inner.try_read_buf(buf)
    }

    pub async fn writable(&self) -> io::Result<()> {
        self.inner.writable().await
    }

    /// Writes some of `slices`; `WouldBlock` means wait again.
    pub fn try_write(&self, slices: &[IoSlice]) -> io::Result<usize> {
        self.inner.try_write_vectored(slices)
    }
}
