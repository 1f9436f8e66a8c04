//! TCP sockets: listening, accepting, connecting, reading, writing. Thin, and in two forms: a thread that
//! [`use_network`] was called on gets its sockets from that [`Network`] (crate `io-sim`) in place of the host.
//! What the bytes mean is none of its business.
//!
//! All streams are without Nagle's delay, since protocols above write whole batches at once. Reading and
//! writing are two-step (wait, then try), so that a caller holds no buffer while it waits.
//!
//! How a stream ends is told truly, since `osd` builds on it: a read of 0 bytes is the peer's FIN and nothing else. A reset, a
//! timeout, an abort by the own kernel are errors, given once: who goes on reading after an error learns nothing.
//!
//! Invariant: a thread's network never changes while it has sockets (the duty of who calls [`use_network`]).

use bytes::{BufMut, Bytes};
use rustix::process::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::cell::RefCell;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};

/// More descriptors than this are of no use: some tables of the kernel grow with the limit.
const DESCRIPTORS_MAX: u64 = 1 << 20;
/// Connections that the kernel keeps for us until we accept them.
const BACKLOG: i32 = 1024;

pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Wire>>>>>;
pub type Accepted = io::Result<(Box<dyn Wire>, SocketAddr)>;

/// Something that sockets come from other than the host.
pub trait Network: Debug {
    fn bind(&self, addr: SocketAddr) -> io::Result<Box<dyn Port>>;
    fn connect(&self, addr: SocketAddr) -> Connecting;
}

/// A bound, listening socket of a [`Network`]. Dropped: closed.
pub trait Port: Debug + Send + Sync {
    fn local_addr(&self) -> SocketAddr;
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Accepted>;
}

/// One end of a connection of a [`Network`], for one reader and one writer. Dropped: closed.
pub trait Wire: Debug + Send + Sync {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// At most `max` bytes; none is the end of the stream; `WouldBlock` means wait again.
    fn try_read(&self, max: usize) -> io::Result<Bytes>;
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    fn local_addr(&self) -> SocketAddr;
    /// Dropping it resets the connection.
    fn abort_on_close(&self);
}

thread_local! {
    static NETWORK: RefCell<Option<Arc<dyn Network>>> = const { RefCell::new(None) };
}

/// From now on the calling thread's sockets come from `network`; None: from the host again.
pub fn use_network(network: Option<Arc<dyn Network>>) {
    NETWORK.with(|n| *n.borrow_mut() = network);
}

/// True on a thread of a simulation, which has no others.
pub(crate) fn is_simulated() -> bool {
    NETWORK.with(|n| n.borrow().is_some())
}

fn network() -> Option<Arc<dyn Network>> {
    NETWORK.with(|n| n.borrow().clone())
}

/// Has the kernel allow this process as many descriptors as it may have at all; says how many.
pub fn raise_descriptors() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX);
    if limit.current.is_some_and(|now| now < most) {
        limit.current = Some(most);
        // Where it is refused, there are as many as there were.
        if setrlimit(Resource::Nofile, limit).is_err() {
            return getrlimit(Resource::Nofile).current.unwrap_or(most);
        }
        return most;
    }
    limit.current.unwrap_or(most)
}

#[derive(Debug)]
enum Either<H, S: ?Sized> {
    Host(H),
    Sim(Box<S>),
}

/// A bound socket that does not need a runtime yet: bind first, announce the address, serve later.
#[derive(Debug)]
pub struct Listener {
    socket: Either<StdListener, dyn Port>,
}

impl Listener {
    /// Port 0 lets the system choose; see [`Self::local_addr`].
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = match network() {
            None => Either::Host(bind_host(addr)?),
            Some(n) => Either::Sim(n.bind(addr)?),
        };
        Ok(Self { socket })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.socket {
            Either::Host(s) => s.local_addr(),
            Either::Sim(p) => Ok(p.local_addr()),
        }
    }

    /// Joins the runtime of the calling task.
    pub fn start(self) -> io::Result<Acceptor> {
        let inner = match self.socket {
            Either::Host(s) => Either::Host(TcpListener::from_std(s)?),
            Either::Sim(p) => Either::Sim(p),
        };
        Ok(Acceptor { inner })
    }
}

fn bind_host(addr: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// What leaves room has emptied the socket: it counts as not readable until more comes, and nobody asks the kernel in between. An
/// end or an error that is there already stays readable.
fn read_host(s: &TcpStream, buf: &mut impl BufMut) -> io::Result<usize> {
    let mut short = None;
    let read = s.try_io(Interest::READABLE, || {
        let room = buf.chunk_mut().len();
        let n = s.try_read_buf(buf)?;
        if n == 0 || n == room {
            return Ok(n);
        }
        short = Some(n);
        Err(io::ErrorKind::WouldBlock.into())
    });
    short.map_or(read, Ok)
}

#[derive(Debug)]
pub struct Acceptor {
    inner: Either<TcpListener, dyn Port>,
}

impl Acceptor {
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match &self.inner {
            Either::Host(l) => {
                let (stream, peer) = l.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Stream::host(stream), peer))
            }
            Either::Sim(p) => {
                let (wire, peer) = poll_fn(|cx| p.poll_accept(cx)).await?;
                let inner = Either::Sim(wire);
                Ok((Stream { inner }, peer))
            }
        }
    }
}

#[derive(Debug)]
pub struct Stream {
    inner: Either<TcpStream, dyn Wire>,
}

impl Stream {
    fn host(stream: TcpStream) -> Self {
        Self {
            inner: Either::Host(stream),
        }
    }

    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        if let Some(n) = network() {
            let inner = Either::Sim(n.connect(addr).await?);
            return Ok(Self { inner });
        }
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self::host(stream))
    }

    pub async fn readable(&self) -> io::Result<()> {
        match &self.inner {
            Either::Host(s) => s.readable().await,
            Either::Sim(w) => poll_fn(|cx| w.poll_readable(cx)).await,
        }
    }

    /// Reads into `buf`'s free space; 0 is the end of the stream; `WouldBlock` means wait again.
    pub fn try_read(&self, buf: &mut impl BufMut) -> io::Result<usize> {
        match &self.inner {
            Either::Host(s) => read_host(s, buf),
            Either::Sim(w) => {
                let bytes = w.try_read(buf.remaining_mut())?;
                let n = bytes.len();
                buf.put(bytes);
                Ok(n)
            }
        }
    }

    pub async fn writable(&self) -> io::Result<()> {
        match &self.inner {
            Either::Host(s) => s.writable().await,
            Either::Sim(w) => poll_fn(|cx| w.poll_writable(cx)).await,
        }
    }

    /// Writes some of `slices`; `WouldBlock` means wait again.
    pub fn try_write(&self, slices: &[IoSlice]) -> io::Result<usize> {
        match &self.inner {
            Either::Host(s) => s.try_write_vectored(slices),
            Either::Sim(w) => w.try_write(slices),
        }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.inner {
            Either::Host(s) => s.local_addr(),
            Either::Sim(w) => Ok(w.local_addr()),
        }
    }

    /// From now on its end, by whatever, is a reset: the peer cannot take it for a stream that has come to its end.
    pub fn abort_on_close(&self) -> io::Result<()> {
        match &self.inner {
            Either::Host(s) => SockRef::from(s).set_linger(Some(Duration::ZERO)),
            Either::Sim(w) => {
                w.abort_on_close();
                Ok(())
            }
        }
    }

    /// Has the kernel ask the peer's, after `idle` without a packet and then each `idle`, whether there still is a
    /// connection; without an answer it ends with an error. No bytes that the peer would read. The simulation has none of it.
    pub fn keep_alive(&self, idle: Duration) -> io::Result<()> {
        match &self.inner {
            Either::Host(s) => {
                let keepalive = TcpKeepalive::new().with_time(idle).with_interval(idle);
                SockRef::from(s).set_tcp_keepalive(&keepalive)
            }
            Either::Sim(_) => Ok(()),
        }
    }
}
