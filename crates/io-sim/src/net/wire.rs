//! The ends of a connection and the port, as `io::socket` takes them.

use super::{Event, PipeId, Segment, SimNet, State, WINDOW_BYTES, back};
use crate::current_host;
use bytes::{Bytes, BytesMut};
use io::socket::{Accepted, Connecting, Network, Port, Wire};
use std::future::poll_fn;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

#[derive(Debug)]
pub(super) struct SimWire {
    net: SimNet,
    read: PipeId,
    write: PipeId,
    at: SocketAddr,
    /// Closing it is a reset.
    aborts: AtomicBool,
}

impl SimWire {
    /// The end at `at` of two pipes.
    pub fn new(net: SimNet, read: PipeId, write: PipeId, at: SocketAddr) -> Self {
        let aborts = AtomicBool::new(false);
        Self {
            net,
            read,
            write,
            at,
            aborts,
        }
    }

    fn poll_open(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut s = self.net.state();
        let Some(pipe) = s.pipes.get_mut(&self.read) else {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        };
        match pipe.opened {
            _ if pipe.broken => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
            Some(how) => Poll::Ready(how.map_err(Error::from)),
            None => {
                pipe.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Wire for SimWire {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut s = self.net.state();
        match s.pipes.get_mut(&self.read) {
            Some(p) if !p.is_readable() => {
                p.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    fn try_read(&self, max: usize) -> Result<Bytes> {
        let mut s = self.net.state();
        let pipe = s.pipes.get_mut(&self.read).ok_or(ErrorKind::ConnectionReset)?;
        match pipe.take(max) {
            Some(data) => Ok(data),
            // An end that has come stays one, whatever comes behind it.
            None if pipe.ended => Ok(Bytes::new()),
            None if pipe.broken => Err(ErrorKind::ConnectionReset.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut s = self.net.state();
        match s.pipes.get_mut(&self.write) {
            Some(p) if !p.broken && p.queued >= WINDOW_BYTES => {
                p.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> Result<usize> {
        let mut s = self.net.state();
        let pipe = s
            .pipes
            .get_mut(&self.write)
            .filter(|p| !p.broken)
            .ok_or(ErrorKind::BrokenPipe)?;
        let room = WINDOW_BYTES.saturating_sub(pipe.queued);
        if room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut data = BytesMut::new();
        for part in slices {
            let n = part.len().min(room - data.len());
            data.extend_from_slice(&part[..n]);
        }
        let n = data.len();
        send(&mut s, self.write, data.freeze());
        drop(s);
        self.net.0.earlier.notify_one();
        Ok(n)
    }

    fn local_addr(&self) -> SocketAddr {
        self.at
    }

    fn abort_on_close(&self) {
        self.aborts.store(true, Ordering::Relaxed);
    }
}

/// Puts data on its way; it may be the last that this connection carries.
fn send(s: &mut State, id: PipeId, mut data: Bytes) {
    let cut = s.weather.cut_ppm > 0 && s.dice.below(1_000_000) < s.weather.cut_ppm;
    if cut {
        let kept = s.dice.below(data.len() as u64 + 1) as usize;
        data.truncate(kept);
    }
    push(s, id, Segment::Data(data));
    if cut {
        push(s, id, Segment::Reset);
    }
}

pub(super) fn push(s: &mut State, id: PipeId, segment: Segment) {
    let at = s.arrival(id);
    let Some(pipe) = s.pipes.get_mut(&id) else { return };
    if let Segment::Data(d) = &segment {
        if d.is_empty() {
            return;
        }
        pipe.queued += d.len();
    }
    pipe.flying.push_back(segment);
    s.at(at, Event::Segment(id));
}

impl Drop for SimWire {
    /// Closes; a reset where something was not read, as TCP does it.
    fn drop(&mut self) {
        let mut s = self.net.state();
        let unread = s.pipes.get_mut(&self.read).is_some_and(|p| {
            p.reader_gone = true;
            p.reader = None;
            !p.arrived.is_empty()
        });
        if let Some(p) = s.pipes.get_mut(&self.write)
            && !p.closed
            && !p.broken
        {
            p.closed = true;
            p.writer = None;
            let end = match unread || self.aborts.load(Ordering::Relaxed) {
                true => Segment::Reset,
                false => Segment::Fin,
            };
            push(&mut s, self.write, end);
        }
        s.forget_if_over(self.read);
        drop(s);
        self.net.0.earlier.notify_one();
    }
}

#[derive(Debug)]
pub(super) struct SimPort {
    net: SimNet,
    at: SocketAddr,
}

impl SimPort {
    pub fn new(net: SimNet, at: SocketAddr) -> Self {
        Self { net, at }
    }
}

impl Port for SimPort {
    fn local_addr(&self) -> SocketAddr {
        self.at
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Accepted> {
        let mut s = self.net.state();
        let Some(queue) = s.ports.get_mut(&self.at) else {
            return Poll::Ready(Err(ErrorKind::NotConnected.into()));
        };
        match queue.waiting.pop_front() {
            Some((wire, peer)) => Poll::Ready(Ok((Box::new(wire), peer))),
            None => {
                queue.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for SimPort {
    fn drop(&mut self) {
        let queue = self.net.state().ports.remove(&self.at);
        // Those that nobody accepted close, which takes the lock again.
        drop(queue);
    }
}

impl Network for SimNet {
    fn bind(&self, addr: SocketAddr) -> Result<Box<dyn Port>> {
        Ok(Box::new(self.listen(addr)?))
    }

    fn connect(&self, addr: SocketAddr) -> Connecting {
        let net = self.clone();
        Box::pin(async move {
            let host = current_host().ok_or(ErrorKind::AddrNotAvailable)?;
            let wire = net.connect_from(host, addr);
            match poll_fn(|cx| wire.poll_open(cx)).await {
                Ok(()) => Ok(Box::new(wire) as Box<dyn Wire>),
                Err(e) => {
                    let mut s = net.state();
                    for id in [wire.read, back(wire.read)] {
                        if let Some(p) = s.pipes.get_mut(&id) {
                            (p.reader_gone, p.broken) = (true, true);
                        }
                    }
                    drop(s);
                    Err(e)
                }
            }
        })
    }
}
