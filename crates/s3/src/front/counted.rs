//! Bodies of answers, whose bytes are counted as they go.

use crate::meters::{Active, End, Sent};
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Is told how the body ended, and how many bytes went.
pub type Told = Box<dyn FnOnce(End, u64) + Send>;

pub struct Counted<B> {
    body: B,
    bytes: u64,
    sent: Sent,
    told: Option<Told>,
    /// None: it has not ended yet.
    end: Option<End>,
    _active: Active,
}

impl<B: Body> Counted<B> {
    pub fn new(body: B, sent: Sent, active: Active, told: Option<Told>) -> Self {
        Self {
            bytes: 0,
            told,
            // Of such a body nothing is asked.
            end: body.is_end_stream().then_some(End::Whole),
            body,
            sent,
            _active: active,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |d| d.len() as u64);
                self.bytes += bytes;
                self.sent.went(bytes);
                // It may not be asked again.
                if self.body.is_end_stream() {
                    self.end = Some(End::Whole);
                }
            }
            Some(Err(_)) => self.end = Some(End::Broken),
            None => self.end = self.end.or(Some(End::Whole)),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Counted<B> {
    fn drop(&mut self) {
        let end = self.end.unwrap_or(End::Aborted);
        self.sent.ended(end);
        if let Some(told) = self.told.take() {
            told(end, self.bytes);
        }
    }
}
