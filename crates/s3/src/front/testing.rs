//! Parsers of this crate's own, for fuzzing (`crates/hostile`): whether an input is taken. They panic if the parser is wrong.

use super::form::Form;
use super::post_policy::PostPolicy;
use super::{
    encryption_ops, iam_ops, iam_users, logging_ops, notification_filters, notification_ops, raw, sts_ops,
    topic_ops,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_core::Stream;
use hyper::body::{Body, Frame};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// The boundary of forms that are tried.
pub const BOUNDARY: &str = "XyZ";

/// A body that is there, and comes in pieces.
struct Pieces(Bytes, usize);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let n = self.1.min(self.0.len());
        let piece = self.0.split_to(n);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }
}

/// What never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it waits for what is there"),
    }
}

/// A form, and its file.
fn read(input: &[u8], pieces: usize) -> Option<(BTreeMap<String, String>, Vec<u8>)> {
    let mut form = Form::new(Pieces(Bytes::copy_from_slice(input), pieces), BOUNDARY);
    let fields = at_once(form.fields()).ok()?;
    let mut file = Vec::new();
    let next = |form: &mut Form<Pieces>| {
        let mut form = Pin::new(form);
        at_once(std::future::poll_fn(|cx| form.as_mut().poll_next(cx)))
    };
    while let Some(chunk) = next(&mut form) {
        file.extend_from_slice(&chunk.ok()?);
    }
    let held = fields.of.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
    assert!(held + file.len() <= input.len(), "more than came");
    Some((fields.of, file))
}

/// The same, however it comes.
pub fn form(input: &[u8]) -> bool {
    let whole = read(input, usize::MAX);
    assert!(
        whole == read(input, 1) && whole == read(input, 7),
        "it depends on how it comes"
    );
    whole.is_some()
}

/// The text of a policy of a form.
pub fn policy(input: &[u8]) -> bool {
    let policy = PostPolicy::parse(&STANDARD.encode(input));
    let fields = BTreeMap::from([("key".to_string(), "k".to_string())]);
    policy.is_ok_and(|p| {
        let _ = p.check(&fields, "bucket", 0);
        true
    })
}

/// The XML of a bucket's encryption.
pub fn encryption(input: &[u8]) -> bool {
    raw::check(input, &encryption_ops::LEAVES).is_ok()
}

/// The XML of a bucket's notifications, or of where its log goes.
pub fn notifications(input: &[u8]) -> bool {
    let plain = notification_ops::check(input).is_ok() || logging_ops::check(input).is_ok();
    notification_filters::takes(input) || plain
}

/// A form for SNS, STS or IAM.
pub fn topics(input: &[u8]) -> bool {
    topic_ops::takes(input) || sts_ops::takes(input) || iam_ops::takes(input) || iam_users::takes(input)
}

/// What Swift's clients send.
pub fn swift(input: &[u8]) -> bool {
    super::swift::takes(input)
}
