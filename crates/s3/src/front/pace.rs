//! Bodies of requests, whose client has to go on sending: each holds memory that others wait for.

use crate::Clock;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A client may have us wait so long, all in all, and a second more for each [`PACE`] bytes that it has sent: slow lines have
/// several uploads at once. Of that it may save up [`SAVED_MAX`], less than an intent holds until it has to be renewed.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 60_000 });
const PACE: u64 = 1 << 10;
const SAVED_MAX: Duration = Duration::from_secs(5 * 60);

type Error = Box<dyn std::error::Error + Send + Sync>;
type Sleep = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A body that ends with an error when its client is too slow. Only time that we wait for it counts.
pub struct Paced<B> {
    body: B,
    clock: Clock,
    /// What it may still have us wait.
    patience: Duration,
    /// Since when.
    waiting: Option<(Duration, Sleep)>,
    /// Bytes that have come.
    total: Arc<AtomicU64>,
}

impl<B> Paced<B> {
    pub fn new(body: B, clock: Clock) -> Self {
        Self {
            body,
            clock,
            patience: PATIENCE,
            waiting: None,
            total: Arc::default(),
        }
    }

    /// The same, which adds up there what has come.
    pub fn counted(mut self, total: &Arc<AtomicU64>) -> Self {
        self.total = total.clone();
        self
    }

    /// So many bytes came.
    fn came(&mut self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        let more = Duration::from_millis(bytes * 1000 / PACE);
        self.patience = (self.patience + more).min(SAVED_MAX);
    }
}

impl<B> Body for Paced<B>
where
    B: Body<Data = Bytes> + Unpin,
    Error: From<B::Error>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            if let Some((since, _)) = this.waiting.take() {
                let waited = this.clock.monotonic().saturating_sub(since);
                this.patience = this.patience.saturating_sub(waited);
            }
            if let Some(Ok(frame)) = &frame {
                this.came(frame.data_ref().map_or(0, |d| d.len() as u64));
            }
            return Poll::Ready(frame.map(|f| f.map_err(Error::from)));
        }
        let (clock, patience) = (&this.clock, this.patience);
        if this.waiting.is_some() || !patience.is_zero() {
            let (_, sleep) = this
                .waiting
                .get_or_insert_with(|| (clock.monotonic(), Box::pin(io::task::sleep(patience))));
            ready!(sleep.as_mut().poll(cx));
        }
        Poll::Ready(Some(Err("the client sends too slowly".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use std::convert::Infallible;
    use std::future::poll_fn;

    /// Sends a byte each time after it was waited for once, for a second of its clock.
    struct Slow(Fake, bool);

    impl Body for Slow {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.1 = !self.1;
            if self.1 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.0.pass(Duration::from_millis(10));
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    struct Silent;

    impl Body for Silent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    async fn frames<B>(mut body: Paced<B>) -> usize
    where
        B: Body<Data = Bytes> + Unpin,
        Error: From<B::Error>,
    {
        for n in 0..1000 {
            match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                Some(Ok(_)) => {}
                Some(Err(e)) => {
                    assert!(e.to_string().contains("too slowly"), "{e}");
                    return n;
                }
                None => break,
            }
        }
        panic!("it was waited for without end");
    }

    #[test]
    fn what_is_saved_up_has_a_bound() {
        let mut body = Paced::new((), Fake::new(1).clock());
        body.came(PACE * 3);
        assert_eq!(body.patience, PATIENCE + Duration::from_secs(3));
        body.came(5 << 30);
        assert_eq!(body.patience, SAVED_MAX);
    }

    #[test]
    fn who_sends_too_slowly_is_not_waited_for() {
        io::task::block_on(async {
            let pool = Fake::new(1);
            assert_eq!(frames(Paced::new(Silent, pool.clock())).await, 0);
            // However little it is each time.
            let n = frames(Paced::new(Slow(pool.clone(), false), pool.clock())).await;
            assert!((5..20).contains(&n), "{n}");
        })
        .unwrap();
    }
}
