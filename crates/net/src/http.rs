//! Our streams and timers as hyper wants them.

use bytes::{BufMut, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use io::socket::Stream;
use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

const READ_BYTES: usize = 64 << 10;
/// A peer that takes nothing of an answer for so long is gone.
pub const STALLED: Duration = Duration::from_secs(120);

type Wait = Pin<Box<dyn Future<Output = Result<()>>>>;

/// A stream for one connection.
pub struct Wire {
    stream: Arc<Stream>,
    reading: Option<Wait>,
    writing: Option<Wait>,
}

impl Wire {
    pub fn new(stream: Stream) -> Self {
        Self {
            stream: Arc::new(stream),
            reading: None,
            writing: None,
        }
    }
}

/// Ready when it is worth while to try again.
fn wait(slot: &mut Option<Wait>, make: impl FnOnce() -> Wait, cx: &mut Context<'_>) -> Poll<Result<()>> {
    let ready = slot.get_or_insert_with(make).as_mut().poll(cx);
    if ready.is_ready() {
        *slot = None;
    }
    ready
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<Result<()>> {
        let mut buf =
            BytesMut::with_capacity(into.remaining().min(READ_BYTES)).limit(into.remaining().min(READ_BYTES));
        loop {
            match self.stream.try_read(&mut buf) {
                Ok(_) => {
                    into.put_slice(buf.get_ref());
                    return Poll::Ready(Ok(()));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    let stream = self.stream.clone();
                    let make = move || -> Wait { Box::pin(async move { stream.readable().await }) };
                    ready!(wait(&mut self.reading, make, cx))?;
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl Write for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        loop {
            match self.stream.try_write(&[std::io::IoSlice::new(data)]) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    let stream = self.stream.clone();
                    let make = move || -> Wait {
                        Box::pin(async move {
                            let stalled = |_| Error::new(ErrorKind::TimedOut, "the peer takes nothing");
                            io::task::timeout(STALLED, stream.writable())
                                .await
                                .map_err(stalled)?
                        })
                    };
                    ready!(wait(&mut self.writing, make, cx))?;
                }
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Dropping it closes it.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The runtime's timers.
#[derive(Debug, Clone, Copy)]
pub struct Timer;

struct Sleeping(Pin<Box<Sleep>>);

impl Future for Sleeping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl hyper::rt::Sleep for Sleeping {}

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleeping(Box::pin(tokio::time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleeping(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }
}
