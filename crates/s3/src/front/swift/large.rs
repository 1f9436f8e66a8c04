//! Objects that are read as one and lie as segments: what belongs to one, and its bytes.
//!
//! Dynamic ones (DLO) have what a container lists below a prefix when they are read; static ones (SLO) a list that was checked when it was put. Each segment is
//! judged as a read of its own: whoever may read the manifest reads of segments what they may read anyhow.
//!
//! By a temporary URL that is what the owner may read, and whoever may write into the container chooses what a manifest names. So segments are then read in the
//! owner's containers alone, and a dynamic one's only in its own container `CONTAINER`, or in `CONTAINER_segments`, where clients put them.

use super::answer::{Done, Refusal, denied, missing, refuse};
use super::asked::{Asked, Caller};
use super::kept::{MANIFEST, is_large, shown};
use super::listing::room;
use super::path;
use crate::buckets::Known;
use crate::front::Front;
use crate::front::object_ops::{KNOWN_FOR, PUT_MAX};
use crate::front::permit::Ask;
use crate::history::Which;
use crate::objects::{Item, Listing};
use crate::policy::{Action, Key};
use crate::rados::Pool;
use crate::record::Entry;
use bytes::Bytes;
use futures_core::Stream;
use hyper::StatusCode;
use s3s::crypto::{Checksum as _, Md5};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// Of one object.
pub const SEGMENTS_MAX: usize = 10_000;
/// As long as a chunk of any other object may wait for its client.
const CHUNK_WITHIN: Duration = Duration::from_secs(crate::data::CHUNK >> 10);

/// A piece of a large object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub container: String,
    pub object: String,
    pub size: u64,
    pub etag: String,
}

/// What an object has as its readers see it.
#[derive(Debug)]
pub struct Whole {
    pub size: u64,
    pub etag: String,
    /// None: it lies as it is read.
    pub segments: Option<Vec<Segment>>,
}

impl Whole {
    /// An object that lies as it is read.
    pub fn plain(entry: &Entry) -> Self {
        Self {
            size: entry.size,
            etag: entry.etag.clone(),
            segments: None,
        }
    }
}

/// The ETag of segments: the MD5 of theirs.
pub fn etag_of(segments: &[Segment]) -> String {
    let mut md5 = Md5::new();
    segments.iter().for_each(|s| md5.update(s.etag.as_bytes()));
    hex::encode(md5.finalize())
}

/// The parts of segments within a range of the whole.
pub fn cut(segments: Vec<Segment>, (from, to): (u64, u64)) -> Vec<(Segment, u64, u64)> {
    let (mut begins, mut parts) = (0, Vec::new());
    for segment in segments {
        let ends = begins + segment.size;
        let (a, b) = (from.max(begins), to.min(ends));
        if a < b {
            let part = (a - begins, b - begins);
            parts.push((segment, part.0, part.1));
        }
        begins = ends;
    }
    parts
}

/// Whoever asks by a temporary URL: the owner of the object that it names, as far as rights go.
fn by_url(asked: &Asked) -> Option<&Caller> {
    asked.caller.as_ref().filter(|c| c.by_url)
}

/// Where a dynamic object's segments are read by a temporary URL.
fn is_beside(container: &str, segments: &str) -> bool {
    let rest = segments.strip_prefix(container);
    rest.is_some_and(|r| r.is_empty() || r == "_segments")
}

/// A temporary URL reads segments in its owner's containers alone.
fn owned(asked: &Asked, known: &Known) -> Done<()> {
    match by_url(asked).is_none_or(|c| c.user == known.bucket.owner) {
        true => Ok(()),
        false => Err(denied()),
    }
}

/// Bytes that are read while they are sent.
pub struct Pumped(mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl Stream for Pumped {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

impl<P: Pool> Front<P> {
    /// What a reader of this object gets. `whole`: put together, if it is large; else as it lies.
    pub(super) async fn whole(&self, asked: &Asked, entry: &Entry, whole: bool) -> Done<Whole> {
        if !whole {
            return Ok(Whole::plain(entry));
        }
        if let Some(named) = entry.attributes.headers.get(MANIFEST) {
            return self.dynamic(asked, named).await;
        }
        Ok(Whole::plain(entry))
    }

    async fn dynamic(&self, asked: &Asked, named: &str) -> Done<Whole> {
        let (container, prefix) = path::named(named)
            .map_err(|e| refuse(StatusCode::CONFLICT, format!("X-Object-Manifest: {e}")))?;
        self.in_scope(asked, &container)?;
        if by_url(asked).is_some() && !is_beside(asked.container(), &container) {
            return Err(denied());
        }
        let ask = Ask::bucket(Action::ListBucket, &container).with(Key::Prefix, Some(&prefix));
        let found = self.listable(&asked.request(()), &ask).await;
        let known = match found.map_err(Refusal::from) {
            Err(e) if e.no_container => return Err(missing()),
            other => other?,
        };
        owned(asked, &known)?;
        let _room = room(SEGMENTS_MAX).await?;
        let listing = Listing {
            prefix,
            max: SEGMENTS_MAX + 1,
            ..Listing::default()
        };
        let segments = self.found_of(&known, listing, |item| match item {
            Item::Prefix(_) => ControlFlow::Continue(None),
            Item::Object(object, entry) => {
                let (size, etag) = shown(&entry);
                let container = container.clone();
                ControlFlow::Continue(Some(Segment {
                    container,
                    object,
                    size,
                    etag,
                }))
            }
        });
        let segments = segments.await?;
        if segments.len() > SEGMENTS_MAX {
            let why = format!("a large object of more than {SEGMENTS_MAX} segments");
            return Err(refuse(StatusCode::CONFLICT, why));
        }
        Ok(Whole {
            size: segments.iter().map(|s| s.size).sum(),
            etag: etag_of(&segments),
            segments: Some(segments),
        })
    }

    /// A temporary URL of a container's key is good for that container alone.
    pub(super) fn in_scope(&self, asked: &Asked, container: &str) -> Done<()> {
        let scope = asked.caller.as_ref().and_then(|c| c.scope.as_deref());
        match scope.is_none_or(|s| s == container) {
            true => Ok(()),
            false => Err(denied()),
        }
    }

    /// A segment as it is now, if it is the one that was meant.
    async fn segment(&self, asked: &Asked, segment: &Segment) -> Done<(Entry, Option<crate::seal::Key>)> {
        self.in_scope(asked, &segment.container)?;
        let of = (segment.container.as_str(), segment.object.as_str());
        let req = asked.request(());
        let known = self.buckets.known(of.0).await?;
        owned(asked, &known)?;
        let entry = self
            .readable_in(&req, &known, (of.0, of.1, Which::Current))
            .await?;
        if is_large(&entry) || entry.size != segment.size || entry.etag != segment.etag {
            let why = format!("the segment {}/{} is another by now, or large itself", of.0, of.1);
            return Err(refuse(StatusCode::CONFLICT, why));
        }
        let key = self.opened(None, &entry, (&known.bucket.id, of.1))?;
        Ok((entry, key))
    }

    /// The bytes of segments, each judged when its turn comes. The first is an error here if it cannot be read, not an answer that breaks off.
    pub(super) async fn pumped(&self, asked: &Asked, parts: Vec<(Segment, u64, u64)>) -> Done<Pumped> {
        if let Some((first, ..)) = parts.first() {
            self.segment(asked, first).await?;
        }
        let (to, from) = mpsc::channel(1);
        let (front, asked) = (self.clone(), asked.clone());
        drop(io::task::spawn_local(async move {
            for (segment, begin, end) in parts {
                if let Err(e) = front.send_segment(&asked, &segment, (begin, end), &to).await {
                    tracing::warn!("s3: a large object's segment cannot be sent: {e}");
                    let broken = Err(std::io::Error::other("a segment cannot be read"));
                    let _ = io::task::timeout(CHUNK_WITHIN, to.send(broken)).await;
                    return;
                }
            }
        }));
        Ok(Pumped(from))
    }

    async fn send_segment(
        &self,
        asked: &Asked,
        segment: &Segment,
        range: (u64, u64),
        to: &mpsc::Sender<Result<Bytes, std::io::Error>>,
    ) -> Result<(), String> {
        let (entry, key) = self.segment(asked, segment).await.map_err(|e| e.why)?;
        let reader = self.objects.data.reader(&entry, range, key).await;
        let mut reader = reader.map_err(|e| e.to_string())?;
        while let Some(chunk) = reader.next().await.map_err(|e| e.to_string())? {
            let sent = io::task::timeout(CHUNK_WITHIN, to.send(Ok(chunk))).await;
            if !matches!(sent, Ok(Ok(()))) {
                return Err("its reader is gone".into());
            }
        }
        Ok(())
    }

    /// Refused if it is more than one put takes.
    pub(super) fn check_size(&self, size: u64) -> Done<()> {
        match size > PUT_MAX {
            true => Err(crate::Error::TooLarge("the object is larger than is allowed").into()),
            false => Ok(()),
        }
    }

    /// Whether what was known then is to be looked at again.
    pub(super) fn is_old(&self, since: u64) -> bool {
        self.clock.now_ms().abs_diff(since) >= KNOWN_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_lie_beside_their_manifest() {
        assert!(is_beside("c", "c") && is_beside("c", "c_segments"));
        for other in ["d", "c_", "c_segments2", "_segments", "cc_segments"] {
            assert!(!is_beside("c", other), "{other}");
        }
    }

    #[test]
    fn ranges_are_cut_over_segments() {
        let segment = |object: &str, size| Segment {
            container: "c".into(),
            object: object.into(),
            size,
            etag: "e".into(),
        };
        let all = vec![segment("a", 10), segment("b", 0), segment("d", 5)];
        let of = |from, to| {
            let parts = cut(all.clone(), (from, to));
            parts
                .into_iter()
                .map(|(s, a, b)| (s.object, a, b))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(0, 15), [("a".to_string(), 0, 10), ("d".to_string(), 0, 5)]);
        assert_eq!(of(9, 11), [("a".to_string(), 9, 10), ("d".to_string(), 0, 1)]);
        assert_eq!(of(12, 14), [("d".to_string(), 2, 4)]);
        assert!(of(0, 0).is_empty());
        // md5sum of "ee".
        assert_eq!(etag_of(&all[..2]), "08a4415e9d594ff960030b921d42b91e");
    }
}
