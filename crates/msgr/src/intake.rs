//! Received bytes on their way to frames: small ones are slices of a shared receive buffer; a body that is large gets a
//! buffer of its own, which the socket then fills directly. Memory is taken slice by slice, for what is received and not for
//! what is announced.

use bytes::{Buf, BytesMut};

/// How much is read at once while frames are small.
const READ_CHUNK: usize = 32 << 10;
/// The same before the session is open.
const HANDSHAKE_CHUNK: usize = 4 << 10;
/// A body from this size on gets its own buffer.
const OWN_BUFFER_FROM: usize = 16 << 10;
/// That buffer grows by so much: what a frame only announces takes no memory. All of an object of RBD.
pub const BODY_SLICE: usize = (4 << 20) + (64 << 10);

#[derive(Default)]
pub(crate) struct Intake {
    pub buf: BytesMut,
    /// Bytes of the body that is being received.
    need: Option<usize>,
    own: Option<BytesMut>,
    open: bool,
}

impl Intake {
    /// The session is open: more is read at once.
    pub fn open_session(&mut self) {
        self.open = true;
    }

    /// Where received bytes belong, and how many at most: more than none, once all that is there has been taken.
    pub fn target(&mut self) -> (&mut BytesMut, usize) {
        if let (Some(need), Some(own)) = (self.need, &mut self.own) {
            if own.len() == own.capacity() {
                own.reserve((need - own.len()).min(BODY_SLICE));
            }
            let room = (own.capacity() - own.len()).min(need - own.len());
            return (own, room);
        }
        let chunk = match self.open {
            true => READ_CHUNK,
            false => HANDSHAKE_CHUNK,
        };
        if self.buf.capacity() - self.buf.len() < chunk / 4 {
            self.buf.reserve(chunk);
        }
        let room = self.buf.capacity() - self.buf.len();
        (&mut self.buf, room)
    }

    /// Appends received bytes by copying.
    pub fn feed(&mut self, b: &[u8]) {
        self.buf.extend_from_slice(b);
    }

    /// The first `n` bytes, once they are there.
    pub fn take(&mut self, n: usize) -> Option<BytesMut> {
        (self.buf.len() >= n).then(|| self.buf.split_to(n))
    }

    /// A body of so many bytes follows.
    pub fn begin(&mut self, need: usize) {
        self.need = Some(need);
    }

    /// The large body that is being received: bytes it has, and is to have.
    pub fn large_body(&self) -> Option<(usize, usize)> {
        self.own.as_ref().map(|own| own.len()).zip(self.need)
    }

    /// The body that was begun, once it is whole; moves a large one into its own buffer on the way.
    pub fn take_body(&mut self) -> Option<BytesMut> {
        let need = self.need?;
        if self.own.is_none() {
            if self.buf.len() >= need {
                self.need = None;
                return Some(self.buf.split_to(need));
            }
            if need < OWN_BUFFER_FROM {
                return None;
            }
            let mut own = BytesMut::with_capacity(need.min(BODY_SLICE));
            own.extend_from_slice(&self.buf);
            self.buf.clear();
            self.own = Some(own);
        }
        let own = self.own.as_mut()?;
        // What was fed by copying lies in the shared buffer.
        let more = (need - own.len()).min(self.buf.len());
        own.extend_from_slice(&self.buf[..more]);
        self.buf.advance(more);
        if own.len() < need {
            return None;
        }
        self.need = None;
        self.own.take()
    }
}
