//! A connection that was accepted, in either messenger: above this nobody needs to know which.

use crate::{Error, Event, Message, Output, ServerConnection, v1};
use bytes::BytesMut;
use types::Utime;

pub enum Accepted {
    V2(Box<ServerConnection>),
    V1(Box<v1::ServerConnection>),
}

macro_rules! either {
    ($self:ident, $c:ident => $call:expr) => {
        match $self {
            Accepted::V2($c) => $call,
            Accepted::V1($c) => $call,
        }
    };
}

impl Accepted {
    /// Where received bytes belong, and how many at most. After reading, call [`Self::next`] until `None`.
    pub fn read_target(&mut self) -> (&mut BytesMut, usize) {
        either!(self, c => c.read_target())
    }

    /// The frame that is being received, when it is large: bytes it has, and is to have.
    pub fn large_body(&self) -> Option<(usize, usize)> {
        either!(self, c => c.large_body())
    }

    pub fn output(&mut self) -> &mut Output {
        either!(self, c => c.output())
    }

    /// The lossless session that it carries.
    pub fn session(&self) -> Option<u64> {
        match self {
            Accepted::V2(c) => c.session(),
            Accepted::V1(_) => None,
        }
    }

    /// Queues a message; only on an open session.
    pub fn send(&mut self, m: Message) -> Result<(), Error> {
        either!(self, c => c.send(m))
    }

    /// The next event from the bytes received so far. After an error the connection is of no use.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, now: Utime) -> Result<Option<Event>, Error> {
        either!(self, c => c.next(now))
    }
}
