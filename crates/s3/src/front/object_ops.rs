//! Objects: put, get, head, copy.

use super::attributes::{
    Kept, Placed, attributes, check_key, class_named, refuse_unbuilt, said_class, which,
};
use super::customer::{OBJECT, SOURCE, Seal, describe_seal, etag_of};
use super::digest::{Announced, Digest, checksum_values, set_checksum};
use super::errors::{invalid, not_built};
use super::lock_ops::lock_given;
use super::permit::{Ask, check_public, lists_publicly};
use super::texts::{etag, etags, http_date, seconds, timestamp};
use super::{Front, expect_owner};
use crate::Error;
use crate::amount::Amount;
use crate::buckets::Known;
use crate::data::{Chunk, Reader};
use crate::history::{Found, Versioning, Which};
use crate::notify::{Asker, How};
use crate::objects::{Condition, New, Terms};
use crate::policy::{Action, Key};
use crate::rados::Pool;
use crate::record::{Attributes, DELETE_AT, Entry, REDIRECT};
use crate::seal;
use crate::version::Lock;
use bytes::Bytes;
use futures_core::Stream;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result, TrailingHeaders};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// Of one request that puts bytes.
pub const PUT_MAX: u64 = 5 << 30;
/// Milliseconds after which what was known of a bucket is looked at again before something is committed.
pub const KNOWN_FOR: u64 = 1000;
/// Who has not taken a chunk of an object within this is cut off: others need the memory.
/// One that takes nothing at all is cut off by its connection.
const CHUNK_WITHIN: Duration = Duration::from_secs(crate::data::CHUNK >> 10);

/// The bytes that a body shall have: when it comes in chunks, without what is around those.
pub fn length(given: Option<i64>, headers: &hyper::HeaderMap) -> Option<u64> {
    let decoded = headers.get("x-amz-decoded-content-length");
    let decoded = || decoded.and_then(|v| v.to_str().ok()?.parse().ok());
    given.and_then(|n| u64::try_from(n).ok()).or_else(decoded)
}

/// The least and the most bytes of a body whose length is not announced, as of a form's file.
#[derive(Debug, Clone, Copy)]
pub struct Within {
    pub least: u64,
    pub most: u64,
}

/// A request's body as the store takes it.
pub struct Source(pub Option<StreamingBlob>);

impl Stream for Source {
    type Item = Chunk;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        match &mut self.0 {
            None => Poll::Ready(None),
            Some(blob) => Pin::new(blob).poll_next(cx).map_err(|e| e.to_string()),
        }
    }
}

/// An object that is read while it is sent, or copied.
pub struct Sent(mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl Sent {
    /// Reads ahead one chunk.
    fn pump<P: Pool>(first: Option<Bytes>, mut reader: Reader<P>) -> Self {
        let (to, from) = mpsc::channel(1);
        drop(io::task::spawn_local(async move {
            let mut next = Ok(first);
            loop {
                let chunk = match next {
                    Ok(None) => return,
                    Ok(Some(chunk)) => Ok(chunk),
                    Err(e) => {
                        tracing::warn!("s3: an object's data cannot be read: {e}");
                        Err(std::io::Error::other("the object's data cannot be read"))
                    }
                };
                let failed = chunk.is_err();
                let taken = io::task::timeout(CHUNK_WITHIN, to.send(chunk)).await;
                if failed || !matches!(taken, Ok(Ok(()))) {
                    return;
                }
                next = reader.next().await;
            }
        }));
        Self(from)
    }
}

impl Stream for Sent {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

/// Fills what GET and HEAD say alike.
macro_rules! describe {
    ($out:expr, $entry:expr) => {{
        let header = |name: &str| $entry.attributes.headers.get(name).cloned();
        $out.accept_ranges = Some("bytes".into());
        $out.cache_control = header("cache-control");
        $out.content_disposition = header("content-disposition");
        $out.content_encoding = header("content-encoding");
        $out.content_language = header("content-language");
        $out.content_type = header("content-type").or(Some("binary/octet-stream".into()));
        $out.expires = header("expires").and_then(|e| Timestamp::parse(TimestampFormat::HttpDate, &e).ok());
        $out.e_tag = etag(&$entry.etag);
        describe_seal!($out, $entry.sealed.as_ref());
        $out.last_modified = Some(seconds($entry.modified));
        $out.storage_class = said_class(&$entry.attributes);
        $out.website_redirect_location = header(REDIRECT);
        let meta = &$entry.attributes.meta;
        $out.metadata = (!meta.is_empty()).then(|| meta.clone().into_iter().collect());
    }};
}

macro_rules! describe_lock {
    ($out:expr, $lock:expr) => {{
        $out.object_lock_mode = super::lock_ops::said_mode(&$lock);
        $out.object_lock_retain_until_date = $lock.retention.map(|r| timestamp(r.until));
        let hold = super::lock_ops::hold_name($lock.hold);
        $out.object_lock_legal_hold_status = $lock.hold.then(|| ObjectLockLegalHoldStatus::from_static(hold));
    }};
}

fn not_modified(entry: &Entry) -> S3Error {
    let mut e = S3Error::new(S3ErrorCode::NotModified);
    let mut headers = hyper::HeaderMap::new();
    if let Ok(tag) = format!("\"{}\"", entry.etag).parse() {
        headers.insert(hyper::header::ETAG, tag);
    }
    if let Some(Ok(at)) = http_date(&seconds(entry.modified)).map(|d| d.parse()) {
        headers.insert(hyper::header::LAST_MODIFIED, at);
    }
    e.set_headers(headers);
    e
}

/// The conditions of a read, in HTTP's order.
pub struct Wanted<'a> {
    pub matches: Option<&'a ETagCondition>,
    pub none_match: Option<&'a ETagCondition>,
    pub modified: Option<&'a Timestamp>,
    pub unmodified: Option<&'a Timestamp>,
}

/// Those of what is to be copied.
macro_rules! wanted_of_source {
    ($input:expr) => {
        $crate::front::object_ops::Wanted {
            matches: $input.copy_source_if_match.as_ref(),
            none_match: $input.copy_source_if_none_match.as_ref(),
            modified: $input.copy_source_if_modified_since.as_ref(),
            unmodified: $input.copy_source_if_unmodified_since.as_ref(),
        }
    };
}
pub(super) use wanted_of_source;

impl Wanted<'_> {
    pub(super) fn check(&self, entry: &Entry) -> S3Result<()> {
        let condition = Condition {
            matches: etags(self.matches),
            none_match: None,
        };
        condition.check(Some(entry))?;
        let changed = seconds(entry.modified);
        if self.matches.is_none() && self.unmodified.is_some_and(|at| changed > *at) {
            return Err(Error::Precondition.into());
        }
        let same = Condition {
            matches: None,
            none_match: etags(self.none_match),
        };
        let same = same.check(Some(entry)).is_err();
        let unchanged = self.none_match.is_none() && self.modified.is_some_and(|at| changed <= *at);
        match same || unchanged {
            true => Err(not_modified(entry)),
            false => Ok(()),
        }
    }
}

/// What is copied, with its key, if it is sealed, and its version, as answers say it.
pub(super) struct Original {
    pub entry: Entry,
    pub key: Option<seal::Key>,
    pub version: Option<String>,
}

/// The first byte and the one after the last; and how many parts there are, where one was asked for.
struct Span {
    from: u64,
    to: u64,
    partial: bool,
    parts: Option<i32>,
}

/// As conditions see it.
pub fn source_name(source: &CopySource) -> Option<String> {
    match source {
        CopySource::Bucket { bucket, key, .. } => Some(format!("{bucket}/{key}")),
        _ => None,
    }
}

fn content_range(span: &Span, size: u64) -> Option<String> {
    span.partial
        .then(|| format!("bytes {}-{}/{size}", span.from, span.to.saturating_sub(1)))
}

impl<P: Pool> Front<P> {
    pub async fn put_object(&self, mut req: S3Request<PutObjectInput>) -> S3Result<PutObjectOutput> {
        let acl = req.input.acl.as_ref().map(|a| a.as_str().to_string());
        let ask = Ask::object(Action::PutObject, &req.input.bucket, &req.input.key)
            .with(Key::Acl, acl.as_ref())
            .with(Key::StorageClass, class_named(&req.headers));
        let (known, begun) = (self.permitted(&req, &ask).await?, self.clock.now_ms());
        refuse_unbuilt(&req.headers)?;
        let placed = self.class(&req.headers).await?;
        let form = req.method == hyper::Method::POST;
        let by = (if form { How::Post } else { How::Put }, self.asker(&req));
        let seal = self.new_seal(&req, &known, &req.input.key)?;
        let trailers = req.trailing_headers.take();
        let input = &mut req.input;
        check_key(&input.key)?;
        let mut attributes = attributes!(input)?;
        if let Some(Kept(kept)) = req.extensions.get() {
            attributes.headers.extend(kept.clone());
        }
        let of = (req.input.bucket.as_str(), req.input.key.as_str());
        self.check_attributes(&req, &known, of, &attributes)?;
        let lock = self.new_lock(&req, &known, of, &lock_given!(req.input))?;
        let (bucket, input) = (&known.bucket, &mut req.input);
        let condition = Condition {
            matches: etags(input.if_match.as_ref()),
            none_match: etags(input.if_none_match.as_ref()),
        };
        let values = checksum_values!(input);
        let algorithm = input.checksum_algorithm.as_ref().map(|a| a.as_str());
        let announced = Announced::new(input.content_md5.take(), values, algorithm, &req.headers)?;
        let length = length(input.content_length, &req.headers);
        let within = req.extensions.get::<Within>().copied();
        let least = length.or(within.map(|w| w.least)).unwrap_or(0);
        self.limits.check(bucket, Amount::object(least)).await?;
        let max = within.map_or(PUT_MAX, |w| w.most.min(PUT_MAX));
        let body = Source(input.body.take());
        let to = (bucket.id.as_str(), input.key.as_str());
        let new = self
            .take_in(
                to,
                body,
                (length, max),
                announced,
                trailers.as_ref(),
                (attributes, placed, lock, seal),
            )
            .await?;
        let to = (input.bucket.as_str(), input.key.as_str());
        let (entry, known) = self.commit((known, begun), to, new, condition, by).await?;
        let mut out = PutObjectOutput {
            e_tag: etag(&entry.etag),
            version_id: version_of(&known, &entry),
            expiration: self.expiration(&known, &input.key, &entry),
            ..PutObjectOutput::default()
        };
        set_checksum!(out, &entry.checksum);
        describe_seal!(out, entry.sealed.as_ref());
        Ok(out)
    }

    /// Puts what was taken in, under the bucket's terms of now: where that took a while its owner may have changed versioning or lock.
    pub(super) async fn commit(
        &self,
        (known, begun): (Known, u64),
        (bucket, key): (&str, &str),
        new: New,
        condition: Condition,
        (how, by): (How, Asker),
    ) -> S3Result<(Entry, Known)> {
        let admitted = async {
            let mut known = self.still(known, bucket, begun).await?;
            let more = Amount::object(new.stored.size);
            let admitted = self.limits.admit(&known.bucket, more).await?;
            if new.attributes.headers.contains_key(DELETE_AT) {
                known = self.ending(known, bucket).await?;
            }
            Ok::<_, Error>((known, admitted))
        };
        let (known, _admitted) = match admitted.await {
            Ok(both) => both,
            Err(e) => {
                self.objects.data.abandon(new.stored.claim).await;
                return Err(e.into());
            }
        };
        let terms = terms(&known, condition);
        let objects = self.telling(&known, (bucket, key), how, &by);
        let entry = objects.put(&known.bucket.id, key, new, &terms).await?;
        Ok((entry, known))
    }

    /// The bucket that was known at `begun` as it is now, unless that was just before.
    pub(super) async fn still(&self, known: Known, name: &str, begun: u64) -> crate::Result<Known> {
        if self.clock.now_ms().abs_diff(begun) < KNOWN_FOR {
            return Ok(known);
        }
        let now = self.buckets.known_now(name).await?;
        match now.bucket.id == known.bucket.id {
            true => Ok(now),
            false => Err(Error::NoSuchBucket),
        }
    }

    /// Whether a public ACL and tags may be said with what is put.
    pub(super) fn check_attributes<T>(
        &self,
        req: &S3Request<T>,
        known: &Known,
        (bucket, key): (&str, &str),
        attributes: &Attributes,
    ) -> S3Result<()> {
        check_public(known, attributes.public_read)?;
        if attributes.public_read {
            let ask = Ask::object(Action::PutObjectAcl, bucket, key).with(Key::Acl, Some("public-read"));
            self.demand(req, known, &ask)?;
        }
        match attributes.tags.is_empty() {
            true => Ok(()),
            false => self.demand(req, known, &Ask::object(Action::PutObjectTagging, bucket, key)),
        }
    }

    /// Takes a body in, and checks it against what was announced.
    pub(super) async fn take_in(
        &self,
        to: (&str, &str),
        body: Source,
        (length, max): (Option<u64>, u64),
        announced: Announced,
        trailers: Option<&TrailingHeaders>,
        (mut attributes, (class, place), lock, seal): (Attributes, Placed, Lock, Option<Seal>),
    ) -> S3Result<New> {
        attributes.class = class;
        let mut digest = Digest::new(announced);
        let mut body = body;
        let key = seal.as_ref().map(|s| s.0.clone());
        let stored = self
            .objects
            .data
            .at(place)
            .take(to, (&mut body, key), length, max, &mut digest)
            .await?;
        match digest.finish(trailers) {
            Ok((md5, checksum)) => Ok(New {
                stored,
                etag: etag_of(seal.as_ref().map(|s| (&s.0, &s.1)), md5),
                attributes,
                checksum,
                lock,
                sealed: seal.map(|s| s.1),
            }),
            Err(e) => {
                self.objects.data.abandon(stored.claim).await;
                Err(e.into())
            }
        }
    }

    /// The object, for who may read it, with its bucket. Who may not list the bucket does not hear whether there is one.
    pub(super) async fn readable<T>(
        &self,
        req: &S3Request<T>,
        (bucket, key, id): (&str, &str, Option<&str>),
    ) -> S3Result<(Entry, Known)> {
        let known = self.known(req, bucket).await?;
        let entry = self.readable_in(req, &known, (bucket, key, which(id)?)).await?;
        Ok((entry, known))
    }

    pub(super) async fn readable_in<T>(
        &self,
        req: &S3Request<T>,
        known: &Known,
        (bucket, key, which): (&str, &str, Which),
    ) -> S3Result<Entry> {
        let ask = Ask::object(Action::GetObject, bucket, key).version(which, Action::GetObjectVersion);
        let granted = self.right(req, known, &ask)?;
        let public = !known.settings.block().ignore_acls;
        match self.found(known, key, which).await? {
            Found::Object(entry) if granted || (public && entry.attributes.public_read) => Ok(*entry),
            Found::Object(_) => Err(Error::AccessDenied.into()),
            found => {
                let ask = Ask::bucket(Action::ListBucket, bucket);
                match lists_publicly(known) || self.right(req, known, &ask)? {
                    true => Err(missing(which, &found).into()),
                    false => Err(Error::AccessDenied.into()),
                }
            }
        }
    }

    /// The version, whoever asks.
    pub(super) async fn version(&self, known: &Known, key: &str, which: Which) -> S3Result<Entry> {
        match self.found(known, key, which).await? {
            Found::Object(entry) => Ok(*entry),
            found => Err(missing(which, &found).into()),
        }
    }

    async fn span(&self, entry: &Entry, range: Option<&Range>, part: Option<i32>) -> S3Result<Span> {
        let size = entry.size;
        match (range, part) {
            (Some(_), Some(_)) => Err(invalid("a range and a part at once")),
            (None, None) => Ok(Span {
                from: 0,
                to: size,
                partial: false,
                parts: None,
            }),
            (Some(range), None) => {
                let range = range.check(size).map_err(|_| {
                    S3Error::with_message(S3ErrorCode::InvalidRange, "the range is beyond the object's end")
                })?;
                Ok(Span {
                    from: range.start,
                    to: range.end,
                    partial: true,
                    parts: None,
                })
            }
            (None, Some(part)) => {
                let pieces = self.objects.data.pieces_of(entry).await?;
                let count = pieces.len().max(1);
                let n = usize::try_from(part).ok().filter(|n| (1..=count).contains(n));
                let n = n.ok_or_else(|| {
                    S3Error::with_message(S3ErrorCode::InvalidPart, "there is no such part")
                })?;
                let from = pieces[..n - 1].iter().map(|p| p.size).sum();
                let length = pieces.get(n - 1).map_or(0, |p| p.size);
                let parts = (entry.parts > 0).then_some(count as i32);
                Ok(Span {
                    from,
                    to: from + length,
                    partial: length > 0,
                    parts,
                })
            }
        }
    }

    /// A range of an object, as the body of an answer.
    pub(super) async fn bytes_of(
        &self,
        entry: &Entry,
        key: Option<seal::Key>,
        (from, to): (u64, u64),
    ) -> S3Result<s3s::Body> {
        let mut reader = self.objects.data.reader(entry, (from, to), key).await?;
        // What cannot be read at all is an error, not an answer that breaks off.
        let first = reader.next().await?;
        Ok(match first {
            Some(all) if all.len() as u64 == to - from => s3s::Body::from(all),
            None => s3s::Body::empty(),
            first => StreamingBlob::wrap(Sent::pump(first, reader)).into(),
        })
    }

    pub async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<GetObjectOutput> {
        refuse_unbuilt(&req.headers)?;
        let input = &req.input;
        let of = (
            input.bucket.as_str(),
            input.key.as_str(),
            input.version_id.as_deref(),
        );
        let (entry, known) = self.readable(&req, of).await?;
        let key = self.opened(self.customer(&req, OBJECT)?, &entry, (&known.bucket.id, of.1))?;
        let lock = self.said_lock(&req, &known, (of.0, of.1, which(of.2)?), &entry);
        let input = req.input;
        let wanted = Wanted {
            matches: input.if_match.as_ref(),
            none_match: input.if_none_match.as_ref(),
            modified: input.if_modified_since.as_ref(),
            unmodified: input.if_unmodified_since.as_ref(),
        };
        wanted.check(&entry)?;
        let span = self.span(&entry, input.range.as_ref(), input.part_number).await?;
        let length = span.to - span.from;
        let body = StreamingBlob::from(self.bytes_of(&entry, key, (span.from, span.to)).await?);
        let (expiration, by_id) = (
            self.expiration(&known, &input.key, &entry),
            input.version_id.is_some(),
        );
        let mut out = GetObjectOutput {
            body: Some(body),
            content_length: Some(length as i64),
            content_range: content_range(&span, entry.size),
            parts_count: span.parts,
            expiration: expiration.filter(|_| !by_id),
            version_id: version_of(&known, &entry),
            tag_count: Some(entry.attributes.tags.len() as i32).filter(|n| *n > 0),
            ..GetObjectOutput::default()
        };
        describe!(out, entry);
        describe_lock!(out, lock);
        if input.checksum_mode.is_some() && !span.partial {
            set_checksum!(out, &entry.checksum);
        }
        out.cache_control = input.response_cache_control.or(out.cache_control);
        out.content_disposition = input.response_content_disposition.or(out.content_disposition);
        out.content_encoding = input.response_content_encoding.or(out.content_encoding);
        out.content_language = input.response_content_language.or(out.content_language);
        out.content_type = input.response_content_type.or(out.content_type);
        out.expires = input.response_expires.or(out.expires);
        Ok(out)
    }

    pub async fn head_object(&self, req: S3Request<HeadObjectInput>) -> S3Result<HeadObjectOutput> {
        refuse_unbuilt(&req.headers)?;
        let input = &req.input;
        let of = (
            input.bucket.as_str(),
            input.key.as_str(),
            input.version_id.as_deref(),
        );
        let (entry, known) = self.readable(&req, of).await?;
        self.opened(self.customer(&req, OBJECT)?, &entry, (&known.bucket.id, of.1))?;
        let lock = self.said_lock(&req, &known, (of.0, of.1, which(of.2)?), &entry);
        let input = req.input;
        let wanted = Wanted {
            matches: input.if_match.as_ref(),
            none_match: input.if_none_match.as_ref(),
            modified: input.if_modified_since.as_ref(),
            unmodified: input.if_unmodified_since.as_ref(),
        };
        wanted.check(&entry)?;
        let span = self.span(&entry, input.range.as_ref(), input.part_number).await?;
        let (expiration, by_id) = (
            self.expiration(&known, &input.key, &entry),
            input.version_id.is_some(),
        );
        let mut out = HeadObjectOutput {
            content_length: Some((span.to - span.from) as i64),
            content_range: content_range(&span, entry.size),
            parts_count: span.parts,
            expiration: expiration.filter(|_| !by_id),
            version_id: version_of(&known, &entry),
            ..HeadObjectOutput::default()
        };
        describe!(out, entry);
        describe_lock!(out, lock);
        if input.checksum_mode.is_some() && !span.partial {
            set_checksum!(out, &entry.checksum);
        }
        Ok(out)
    }

    /// The object that is to be copied, with its tags or without, if it is as the request demands.
    pub(super) async fn source<T>(
        &self,
        req: &S3Request<T>,
        (source, tags): (&CopySource, bool),
        wanted: Wanted<'_>,
    ) -> S3Result<Original> {
        let CopySource::Bucket {
            bucket,
            key,
            version_id,
        } = source
        else {
            return Err(not_built("access points"));
        };
        let which = which(version_id.as_deref())?;
        let from = self.buckets.known(bucket).await?;
        expect_owner(req, "x-amz-source-expected-bucket-owner", &from.bucket)?;
        let entry = self.readable_in(req, &from, (bucket, key, which)).await;
        let entry = entry.map_err(|e| of_source(e, which))?;
        if tags && !entry.attributes.tags.is_empty() {
            let ask = Ask::object(Action::GetObjectTagging, bucket, key);
            let ask = ask.version(which, Action::GetObjectVersionTagging);
            self.demand(req, &from, &ask)?;
        }
        let key = self.opened(self.customer(req, SOURCE)?, &entry, (&from.bucket.id, key))?;
        match wanted.check(&entry) {
            Err(e) if *e.code() == S3ErrorCode::NotModified => Err(Error::Precondition.into()),
            other => other.map(|()| Original {
                version: version_of(&from, &entry),
                entry,
                key,
            }),
        }
    }

    /// Bytes of an object as a body.
    pub(super) async fn sent(&self, of: &Original, from: u64, to: u64) -> S3Result<Source> {
        let reader = self.objects.data.reader(&of.entry, (from, to), of.key.clone());
        let mut reader = reader.await?;
        let first = reader.next().await?;
        Ok(Source(Some(StreamingBlob::wrap(Sent::pump(first, reader)))))
    }

    pub async fn copy_object(&self, mut req: S3Request<CopyObjectInput>) -> S3Result<CopyObjectOutput> {
        let input = &req.input;
        let directive = input.metadata_directive.as_ref().map(|d| d.as_str());
        let ask = Ask::object(Action::PutObject, &input.bucket, &input.key)
            .with(Key::Acl, input.acl.as_ref().map(|a| a.as_str()))
            .with(Key::CopySource, source_name(&input.copy_source))
            .with(Key::MetadataDirective, directive)
            .with(Key::StorageClass, class_named(&req.headers));
        let (known, begun) = (self.permitted(&req, &ask).await?, self.clock.now_ms());
        refuse_unbuilt(&req.headers)?;
        let (placed, by) = (self.class(&req.headers).await?, (How::Copy, self.asker(&req)));
        check_key(&req.input.key)?;
        let replaces = |d: &TaggingDirective| d.as_str() == TaggingDirective::REPLACE;
        let tags = !input.tagging_directive.as_ref().is_some_and(replaces);
        let seal = self.new_seal(&req, &known, &req.input.key)?;
        let from = self
            .source(&req, (&input.copy_source, tags), wanted_of_source!(input))
            .await?;
        let source = &from.entry;
        let algorithm = input.checksum_algorithm.as_ref().map(|a| a.as_str().to_string());
        let changes =
            seal.is_some() || placed.0 != source.attributes.class && class_named(&req.headers).is_some();
        let attributes = copied(&mut req.input, source, changes)?;
        let of = (req.input.bucket.as_str(), req.input.key.as_str());
        self.check_attributes(&req, &known, of, &attributes)?;
        let lock = self.new_lock(&req, &known, of, &lock_given!(req.input))?;
        let bucket = &known.bucket;
        let announced = announced_of_copy(algorithm, source);
        self.limits.check(bucket, Amount::object(source.size)).await?;
        let body = self.sent(&from, 0, source.size).await?;
        let to = (bucket.id.as_str(), req.input.key.as_str());
        let new = self
            .take_in(
                to,
                body,
                (Some(source.size), PUT_MAX),
                announced,
                None,
                (attributes, placed, lock, seal),
            )
            .await?;
        let (entry, known) = self
            .commit((known, begun), of, new, Condition::default(), by)
            .await?;
        let mut result = CopyObjectResult {
            e_tag: etag(&entry.etag),
            last_modified: Some(timestamp(entry.modified)),
            ..CopyObjectResult::default()
        };
        set_checksum!(result, &entry.checksum);
        let mut out = CopyObjectOutput {
            expiration: self.expiration(&known, &req.input.key, &entry),
            copy_object_result: Some(result),
            copy_source_version_id: from.version,
            version_id: version_of(&known, &entry),
            ..CopyObjectOutput::default()
        };
        describe_seal!(out, entry.sealed.as_ref());
        Ok(out)
    }
}

/// A copy has a checksum by the algorithm that is asked for, or by its source's.
fn announced_of_copy(asked: Option<String>, source: &Entry) -> Announced {
    let had = source.checksum.as_ref().filter(|_| source.parts == 0);
    let algorithm = asked.or(had.map(|c| c.algorithm.clone()));
    Announced {
        md5: None,
        checksum: algorithm.map(|a| (a, None)),
        trails: false,
    }
}

/// Why there is no such version.
fn missing(which: Which, found: &Found) -> Error {
    match (which, found) {
        (Which::Current, Found::Marker(version, _)) => Error::Deleted(version.to_string()),
        (_, Found::Marker(version, at)) => Error::IsMarker(version.to_string(), *at),
        (Which::Current, _) => Error::NoSuchKey,
        _ => Error::NoSuchVersion,
    }
}

/// A delete marker as what is to be copied, which is no question of the method.
fn of_source(e: S3Error, which: Which) -> S3Error {
    match *e.code() == S3ErrorCode::MethodNotAllowed && which != Which::Current {
        true => S3Error::with_message(
            S3ErrorCode::InvalidRequest,
            "The source of a copy request may not specifically refer to a delete marker by version id.",
        ),
        false => e,
    }
}

pub fn terms(known: &Known, condition: Condition) -> Terms {
    Terms {
        condition,
        versioning: known.settings.of.versioning,
        bypass: false,
        retention: known.settings.of.lock.and_then(|l| l.retention),
    }
}

/// What answers say of a version; nothing where versioning was never on.
pub fn version_of(known: &Known, entry: &Entry) -> Option<String> {
    (known.settings.of.versioning != Versioning::Off).then(|| entry.version().to_string())
}

/// What a copy has of its source, and what the request says instead. `changes`: it is encrypted otherwise, or goes to another storage class.
fn copied(input: &mut CopyObjectInput, source: &Entry, changes: bool) -> S3Result<Attributes> {
    let replaces = |d: Option<&str>| d == Some("REPLACE");
    let meta = replaces(input.metadata_directive.as_ref().map(|d| d.as_str()));
    let tags = replaces(input.tagging_directive.as_ref().map(|d| d.as_str()));
    let itself = matches!(&input.copy_source, CopySource::Bucket { bucket, key, version_id: None }
        if **bucket == input.bucket && **key == input.key);
    let changes = changes || input.website_redirect_location.is_some();
    if itself && !meta && !tags && !changes && source.sealed.is_none() {
        return Err(S3Error::with_message(
            S3ErrorCode::InvalidRequest,
            "an object is copied onto itself only with other metadata, tags, storage class, redirect or encryption",
        ));
    }
    let named = attributes!(input)?;
    let mut attributes = source.attributes.clone();
    if meta {
        (attributes.headers, attributes.meta) = (named.headers, named.meta);
    } else {
        // Of this one object, and not of its copies.
        attributes.headers.remove(DELETE_AT);
        attributes.headers.remove(REDIRECT);
        attributes
            .headers
            .extend(named.headers.into_iter().filter(|(name, _)| name == REDIRECT));
    }
    if tags {
        attributes.tags = named.tags;
    }
    attributes.public_read = named.public_read;
    Ok(attributes)
}
