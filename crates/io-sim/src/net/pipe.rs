//! One direction of a connection.

use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::task::Waker;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) enum Segment {
    Data(Bytes),
    /// The writer has closed.
    Fin,
    /// The connection breaks here.
    Reset,
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The sum of the bytes, weighted: enough to tell runs apart.
            Self::Data(d) => {
                let sum = d
                    .iter()
                    .fold(0u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(*b)));
                write!(f, "data {} {sum:08x}", d.len())
            }
            Self::Fin => f.write_str("fin"),
            Self::Reset => f.write_str("reset"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Pipe {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub flying: VecDeque<Segment>,
    /// When the last of what flies is due: later ones not before it.
    pub last_due: Instant,
    pub arrived: VecDeque<Bytes>,
    /// Bytes that fly or wait for the reader.
    pub queued: usize,
    /// How the request for the connection ended.
    pub opened: Option<Result<(), ErrorKind>>,
    /// The reader has seen, or will see after what has arrived, the end.
    pub ended: bool,
    /// The writer has closed.
    pub closed: bool,
    pub broken: bool,
    pub reader_gone: bool,
    /// What came after that was answered with a reset.
    pub refused: bool,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
}

impl Pipe {
    pub fn new(from: SocketAddr, to: SocketAddr) -> Self {
        Self {
            from,
            to,
            flying: VecDeque::new(),
            last_due: Instant::now(),
            arrived: VecDeque::new(),
            queued: 0,
            opened: None,
            ended: false,
            closed: false,
            broken: false,
            reader_gone: false,
            refused: false,
            reader: None,
            writer: None,
        }
    }

    pub fn wake(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
        self.writer.take().into_iter().for_each(Waker::wake);
    }

    pub fn arrive(&mut self, data: Bytes) {
        self.arrived.push_back(data);
        self.wake();
    }

    pub fn end(&mut self) {
        self.ended = true;
        self.wake();
    }

    pub fn break_off(&mut self) {
        self.broken = true;
        self.flying.clear();
        self.arrived.clear();
        self.queued = 0;
        self.wake();
    }

    /// The writer's host has lost its power.
    pub fn vanish(&mut self) {
        self.closed = true;
        self.flying.clear();
    }

    pub fn is_readable(&self) -> bool {
        self.broken || self.ended || !self.arrived.is_empty()
    }

    pub fn take(&mut self, max: usize) -> Option<Bytes> {
        let first = self.arrived.front_mut()?;
        let n = max.min(first.len());
        let out = first.split_to(n);
        if first.is_empty() {
            self.arrived.pop_front();
        }
        self.queued -= n;
        self.writer.take().into_iter().for_each(Waker::wake);
        Some(out)
    }
}
