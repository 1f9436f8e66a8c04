//! Static large objects: a list of segments that is checked when it is put, and lies as the object's bytes, in JSON.
//!
//! The object's `x-static-large-object` has `SIZE ETAG` of the whole: only this gateway sets it, so what it says was checked. S3 sees the list.

use super::answer::{Done, bad, empty, refuse, set};
use super::asked::{Asked, collected};
use super::bulk::Bulk;
use super::kept::{STATIC, is_large, kind_of, seen};
use super::large::{Segment, Whole, etag_of};
use super::path;
use crate::buckets::Known;
use crate::front::Front;
use crate::history::Which;
use crate::rados::Pool;
use crate::record::Entry;
use bytes::BytesMut;
use hyper::StatusCode;
use s3s::Body;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const SEGMENTS_MAX: usize = 1000;
pub const MANIFEST_MAX: usize = 2 << 20;
/// Of a list as it is kept, which says more.
const KEPT_MAX: usize = 2 * MANIFEST_MAX;

/// A segment as a client lists it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    path: String,
    #[serde(default)]
    etag: Option<String>,
    #[serde(default)]
    size_bytes: Option<u64>,
}

/// And as it is kept, and shown with `multipart-manifest=get`.
#[derive(Debug, Serialize, Deserialize)]
struct Listed {
    name: String,
    bytes: u64,
    hash: String,
    content_type: String,
    last_modified: String,
}

fn given(text: &[u8]) -> Done<Vec<(Given, (String, String))>> {
    let all: Vec<Given> = serde_json::from_slice(text).map_err(|e| {
        bad(format!(
            "Manifest must be a list of path, etag and size_bytes in JSON: {e}"
        ))
    })?;
    if all.is_empty() || all.len() > SEGMENTS_MAX {
        return Err(bad(format!("Number of segments must be 1 to {SEGMENTS_MAX}")));
    }
    let named = |given: Given| match path::pair(&given.path) {
        Ok((_, object)) if object.is_empty() => Err(bad(format!("{}: names no object", given.path))),
        Ok(pair) => Ok((given, pair)),
        Err(e) => Err(bad(format!("{}: {e}", given.path))),
    };
    all.into_iter().map(named).collect()
}

/// Whether it is a list that may be put, for fuzzing.
#[cfg(feature = "testing")]
pub fn is_list(text: &[u8]) -> bool {
    given(text).is_ok()
}

/// Why an object is not what the list says of it.
fn unfit(given: &Given, entry: &Entry) -> Option<&'static str> {
    let etag = given.etag.as_deref().map(|e| e.trim_matches('"'));
    match () {
        () if is_large(entry) => Some("is large itself: not built"),
        () if entry.size == 0 => Some("Too Small; each segment must be at least 1 byte."),
        () if given.size_bytes.is_some_and(|n| n != entry.size) => Some("Size Mismatch"),
        () if etag.is_some_and(|e| !e.is_empty() && e != entry.etag) => Some("Etag Mismatch"),
        () => None,
    }
}

impl<P: Pool> Front<P> {
    /// The segments of a list, as they are now; or all that is wrong with them.
    async fn checked(
        &self,
        asked: &Asked,
        given: Vec<(Given, (String, String))>,
    ) -> Done<Vec<(Segment, Listed)>> {
        let req = asked.request(());
        let mut known: BTreeMap<String, (Known, u64)> = BTreeMap::new();
        let (mut all, mut wrong) = (Vec::with_capacity(given.len()), Vec::new());
        for (given, (container, object)) in given {
            let fresh = known.get(&container).is_some_and(|(_, at)| !self.is_old(*at));
            let found = async {
                if !fresh {
                    let now = (self.buckets.known(&container).await?, self.clock.now_ms());
                    known.insert(container.clone(), now);
                }
                let of = (container.as_str(), object.as_str(), Which::Current);
                match known.get(&container) {
                    Some((bucket, _)) => self.readable_in(&req, bucket, of).await,
                    None => Err(crate::Error::NoSuchBucket.into()),
                }
            };
            let entry = match found.await {
                Ok(entry) => entry,
                Err(e) => {
                    let status = super::answer::Refusal::from(e).status;
                    wrong.push(format!("{}, {status}", given.path));
                    continue;
                }
            };
            if let Some(why) = unfit(&given, &entry) {
                wrong.push(format!("{}, {why}", given.path));
                continue;
            }
            let listed = Listed {
                name: format!("/{container}/{object}"),
                bytes: entry.size,
                hash: entry.etag.clone(),
                content_type: kind_of(&entry),
                last_modified: super::answer::iso(entry.modified),
            };
            let segment = Segment {
                container,
                object,
                size: entry.size,
                etag: entry.etag,
            };
            all.push((segment, listed));
        }
        match wrong.is_empty() {
            true => Ok(all),
            false => Err(bad(format!("Errors: {}", wrong.join("; ")))),
        }
    }

    pub(super) async fn put_static(&self, asked: &Asked, body: Body) -> Done {
        asked.is("PutObject");
        asked.length()?;
        let list = given(&collected(body, MANIFEST_MAX).await?)?;
        let all = self.checked(asked, list).await?;
        let (segments, listed): (Vec<Segment>, Vec<Listed>) = all.into_iter().unzip();
        let etag = etag_of(&segments);
        let said = asked.header("etag").map(|e| e.trim_matches('"'));
        if said.is_some_and(|e| e != etag) {
            let why = "Etag does not match the segments'";
            return Err(refuse(StatusCode::UNPROCESSABLE_ENTITY, why));
        }
        let size: u64 = segments.iter().map(|s| s.size).sum();
        let text = serde_json::to_vec(&listed).map_err(|e| bad(e.to_string()))?;
        if text.len() > KEPT_MAX {
            let why = format!("the list with what is known of its segments has more than {KEPT_MAX} bytes");
            return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        let kept = BTreeMap::from([(STATIC.to_string(), format!("{size} {etag}"))]);
        let (length, body) = (text.len(), Body::from(text));
        let out = self
            .put_bytes(asked, (Some(length as i64), body), (None, kept))
            .await?;
        let mut answer = empty(StatusCode::CREATED);
        set(&mut answer, "etag", format!("\"{etag}\""));
        set(&mut answer, "last-modified", out);
        Ok(answer)
    }

    /// The list as it lies.
    async fn static_list(&self, known: &Known, key: &str, entry: &Entry) -> Done<Vec<Listed>> {
        let damaged = |what: String| crate::Error::Damaged(format!("a list of segments: {what}"));
        if entry.size > KEPT_MAX as u64 {
            return Err(damaged("too large".into()).into());
        }
        let opened = self.opened(None, entry, (&known.bucket.id, key))?;
        let mut reader = self.objects.data.reader(entry, (0, entry.size), opened).await?;
        let mut text = BytesMut::new();
        while let Some(chunk) = reader.next().await? {
            text.extend_from_slice(&chunk);
        }
        let list = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        Ok(list)
    }

    /// What a reader of a static one gets.
    pub(super) async fn static_whole(&self, known: &Known, key: &str, entry: &Entry) -> Done<Whole> {
        let mut segments = Vec::new();
        for listed in self.static_list(known, key, entry).await? {
            let (container, object) = path::pair(&listed.name)
                .map_err(|e| crate::Error::Damaged(format!("a list of segments: {e}")))?;
            segments.push(Segment {
                container,
                object,
                size: listed.bytes,
                etag: listed.hash,
            });
        }
        Ok(Whole {
            size: segments.iter().map(|s| s.size).sum(),
            etag: etag_of(&segments),
            segments: Some(segments),
        })
    }

    /// With all its segments.
    pub(super) async fn delete_static(&self, asked: &Asked) -> Done {
        asked.is("DeleteObject");
        let of = (asked.container(), asked.object(), None);
        let (entry, known) = self.readable(&asked.request(()), of).await?;
        let mut bulk = Bulk::default();
        if seen(&entry).is_none() {
            bulk.failed(format!("{}/{}", of.0, of.1), "400 Not an SLO manifest");
            return Ok(bulk.answer(asked));
        }
        for listed in self.static_list(&known, of.1, &entry).await? {
            let segment = path::pair(&listed.name).map_err(bad)?;
            bulk.add(
                &listed.name,
                self.delete_one_of(asked, &segment.0, &segment.1).await,
            );
        }
        let name = format!("{}/{}", of.0, of.1);
        bulk.add(&name, self.delete_one_of(asked, of.0, of.1).await);
        Ok(bulk.answer(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_or_refused() {
        let all = given(br#"[{"path":"/c/a b","etag":"e","size_bytes":5},{"path":"c/d"}]"#).unwrap();
        assert_eq!(all[0].1, ("c".to_string(), "a b".to_string()));
        assert_eq!(all[1].0.size_bytes, None);
        for bad in [
            "",
            "[]",
            "{}",
            r#"[{"path":"/c"}]"#,
            r#"[{"path":"/../x"}]"#,
            r#"[{"path":"/c/o","range":"0-1"}]"#,
            r#"[{"data":"eA=="}]"#,
            r#"[{"path":"/c/o","size_bytes":-1}]"#,
        ] {
            assert!(given(bad.as_bytes()).is_err(), "{bad}");
        }
        let many = vec![r#"{"path":"/c/o"}"#; SEGMENTS_MAX + 1].join(",");
        assert!(given(format!("[{many}]").as_bytes()).is_err());
    }
}
