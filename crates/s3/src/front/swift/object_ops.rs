//! Objects: put, read, changed, copied, deleted.

use super::account_ops::describe;
use super::answer::{Done, Refusal, bad, date, empty, refuse, set, stamp};
use super::asked::Asked;
use super::ends::ends;
use super::kept::{KIND, MANIFEST, STATIC, kind_of, seen};
use super::large::{self, Whole};
use super::path;
use crate::amount::Amount;
use crate::buckets::Known;
use crate::front::Front;
use crate::front::attributes::Kept;
use crate::front::digest::Announced;
use crate::front::object_ops::{Source, Wanted};
use crate::front::permit::Ask;
use crate::history::{Versioning, Which};
use crate::objects::Condition;
use crate::policy::{Action, Key};
use crate::rados::Pool;
use crate::record::{Attributes, DELETE_AT, Entry, REDIRECT};
use crate::version::Lock;
use hyper::{Method, StatusCode};
use s3s::dto::{PutObjectInput, Range, StreamingBlob, Timestamp, TimestampFormat};
use s3s::{Body, S3ErrorCode};
use std::collections::BTreeMap;

const UNBUILT: [(&str, &str); 2] = [
    ("x-symlink-target", "symlinks"),
    ("x-versions-", "Swift's versions of objects"),
];
/// Headers of an object that a client says and is told again.
const NAMED: [&str; 4] = [
    "content-disposition",
    "content-encoding",
    "cache-control",
    "content-language",
];

/// A copy's metadata: its source's, and what the request says instead.
fn merged(asked: &Asked, source: &Entry, fresh: bool, now: u64) -> Done<Attributes> {
    let mut attributes = match fresh {
        true => Attributes::default(),
        false => source.attributes.clone(),
    };
    attributes.public_read = false;
    // Of this one object, and not of its copies.
    attributes.headers.remove(REDIRECT);
    for (name, value) in asked.meta("object")? {
        match value {
            Some(value) => drop(attributes.meta.insert(name, value)),
            None => drop(attributes.meta.remove(&name)),
        }
    }
    let kind = asked.header("content-type").filter(|k| !k.is_empty());
    let kind = kind.map_or_else(|| kind_of(source), str::to_string);
    attributes.headers.insert("content-type".into(), kind);
    for name in NAMED {
        if let Some(value) = asked.header(name) {
            attributes.headers.insert(name.into(), value.to_string());
        }
    }
    if asked.has("x-remove-delete-at") {
        attributes.headers.remove(DELETE_AT);
    }
    attributes.headers.extend(ending(asked, now)?);
    crate::front::attributes::check(attributes).map_err(Refusal::from)
}

/// When an object ends, as it is kept.
fn ending(asked: &Asked, now: u64) -> Done<Option<(String, String)>> {
    Ok(ends(asked, now)?.map(|at| (DELETE_AT.to_string(), at.to_string())))
}

/// What a client says of the object that is put.
fn put_input(asked: &Asked, (length, body): (Option<i64>, Body), etag: Option<&str>) -> Done<PutObjectInput> {
    let header = |name: &str| asked.header(name).map(str::to_string).filter(|v| !v.is_empty());
    let md5 = etag.map(|e| {
        let bytes = hex::decode(e.trim_matches('"')).ok().filter(|b| b.len() == 16);
        bytes.ok_or_else(|| refuse(StatusCode::UNPROCESSABLE_ENTITY, "the ETag is no MD5 in hex"))
    });
    let meta = asked
        .meta("object")?
        .into_iter()
        .filter_map(|(k, v)| Some((k, v?)));
    Ok(PutObjectInput {
        bucket: asked.container().to_string(),
        key: asked.object().to_string(),
        body: Some(StreamingBlob::from(body)),
        content_length: length,
        content_md5: md5.transpose()?.map(|b| crate::front::digest::base64(&b)),
        content_type: header("content-type").or(Some(KIND.into())),
        content_disposition: header("content-disposition"),
        content_encoding: header("content-encoding"),
        content_language: header("content-language"),
        cache_control: header("cache-control"),
        if_match: asked.etags("if-match")?,
        if_none_match: asked.etags("if-none-match")?,
        metadata: Some(meta.collect()),
        ..PutObjectInput::default()
    })
}

/// The segments of a dynamic large object, if it is to be one.
fn manifest(asked: &Asked) -> Done<Option<String>> {
    let Some(named) = asked.header(MANIFEST) else {
        return Ok(None);
    };
    match path::named(named) {
        Ok(_) => Ok(Some(named.trim().to_string())),
        Err(e) => Err(bad(format!("X-Object-Manifest must be CONTAINER/PREFIX: {e}"))),
    }
}

fn http_time(asked: &Asked, name: &str) -> Option<Timestamp> {
    Timestamp::parse(TimestampFormat::HttpDate, asked.header(name)?).ok()
}

/// What GET and HEAD say alike.
fn said(answer: &mut s3s::HttpResponse, entry: &Entry, whole: &Whole) {
    let is_large = whole.segments.is_some() || (whole.size != entry.size);
    let etag = if is_large {
        format!("\"{}\"", whole.etag)
    } else {
        whole.etag.clone()
    };
    set(answer, "etag", etag);
    set(answer, "last-modified", date(entry.modified));
    set(answer, "x-timestamp", stamp(entry.modified));
    set(answer, "accept-ranges", "bytes");
    set(answer, "content-type", kind_of(entry));
    for name in NAMED.iter().chain(&[MANIFEST, DELETE_AT]) {
        if let Some(value) = entry.attributes.headers.get(*name) {
            set(answer, name, value);
        }
    }
    if seen(entry).is_some() {
        set(answer, STATIC, "True");
    }
    describe(answer, "object", &entry.attributes.meta, true);
}

impl<P: Pool> Front<P> {
    pub(super) async fn of_object(&self, asked: &Asked, body: Body) -> Done {
        let manifest = asked.query.get("multipart-manifest");
        match (&asked.method, manifest) {
            (&Method::GET | &Method::HEAD, _) => self.read_object(asked).await,
            (_, Some("put")) if asked.method == Method::PUT => {
                self.may_put(asked).await?;
                self.put_static(asked, body).await
            }
            (&Method::PUT, _) if asked.has("x-copy-from") => self.copied_here(asked).await,
            (&Method::PUT, _) => self.put_here(asked, body).await,
            (&Method::POST, _) => self.post_object_meta(asked).await,
            (&Method::DELETE, Some("delete")) => {
                asked.demand_write()?;
                self.located(asked).await?;
                self.delete_static(asked).await
            }
            (&Method::DELETE, _) => {
                asked.is("DeleteObject");
                let of = (asked.container(), asked.object());
                self.delete_one_of(asked, of.0, of.1).await?;
                Ok(empty(StatusCode::NO_CONTENT))
            }
            (method, _) if method.as_str() == "COPY" => self.copied_there(asked).await,
            _ => Err(refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                "an object takes GET, HEAD, PUT, POST, COPY and DELETE",
            )),
        }
    }

    /// Refused before a body is read.
    async fn may_put(&self, asked: &Asked) -> Done<Known> {
        asked.demand_write()?;
        asked.refuse_headers(&UNBUILT)?;
        let known = self.located(asked).await?;
        let ask = Ask::object(Action::PutObject, asked.container(), asked.object());
        self.demand(&asked.request(()), &known, &ask)?;
        ends(asked, self.clock.now_ms())?;
        Ok(known)
    }

    async fn put_here(&self, asked: &Asked, body: Body) -> Done {
        asked.is("PutObject");
        self.may_put(asked).await?;
        let length = asked.length()?;
        let kept = manifest(asked)?.map(|m| (MANIFEST.to_string(), m));
        let kept = kept.into_iter().collect();
        let etag = asked.header("etag").filter(|e| !e.is_empty());
        let mut answer = empty(StatusCode::CREATED);
        let put = self.put_input_bytes(asked, (length, body), (etag, kept)).await?;
        set(&mut answer, "etag", put.0);
        set(&mut answer, "last-modified", put.1);
        Ok(answer)
    }

    /// ETag and time of what was put.
    async fn put_input_bytes(
        &self,
        asked: &Asked,
        body: (Option<i64>, Body),
        (etag, mut kept): (Option<&str>, BTreeMap<String, String>),
    ) -> Done<(String, String)> {
        kept.extend(ending(asked, self.clock.now_ms())?);
        let mut req = asked.request(put_input(asked, body, etag)?);
        if !kept.is_empty() {
            req.extensions.insert(Kept(kept));
        }
        let out = self.put_object(req).await?;
        let etag = out.e_tag.map(|e| e.value().to_string()).unwrap_or_default();
        Ok((etag, date(self.clock.now_ms())))
    }

    /// The time of what was put.
    pub(super) async fn put_bytes(
        &self,
        asked: &Asked,
        body: (Option<i64>, Body),
        with: (Option<&str>, BTreeMap<String, String>),
    ) -> Done<String> {
        Ok(self.put_input_bytes(asked, body, with).await?.1)
    }

    async fn read_object(&self, asked: &Asked) -> Done {
        let head = asked.method == Method::HEAD;
        asked.is(if head { "HeadObject" } else { "GetObject" });
        asked.demand_read()?;
        let known = self.located(asked).await?;
        let of = (asked.container(), asked.object());
        let req = asked.request(());
        let entry = self
            .readable_in(&req, &known, (of.0, of.1, Which::Current))
            .await?;
        let key = self.opened(None, &entry, (&known.bucket.id, of.1))?;
        let list = asked.query.get("multipart-manifest") == Some("get");
        let whole = match seen(&entry) {
            Some((size, etag)) if !list && head => Whole {
                size,
                etag,
                segments: Some(Vec::new()),
            },
            Some(_) if !list => self.static_whole(&known, of.1, &entry).await?,
            _ => self.whole(asked, &entry, !list).await?,
        };
        let span = match self.wanted(asked, &entry, &whole)? {
            Ok(span) => span,
            Err(answer) => return Ok(answer),
        };
        let mut answer = empty(if span.2 {
            StatusCode::PARTIAL_CONTENT
        } else {
            StatusCode::OK
        });
        said(&mut answer, &entry, &whole);
        if list && seen(&entry).is_some() {
            set(&mut answer, "content-type", "application/json; charset=utf-8");
        }
        set(&mut answer, "content-length", (span.1 - span.0).to_string());
        if span.2 {
            let last = span.1.saturating_sub(1);
            set(
                &mut answer,
                "content-range",
                format!("bytes {}-{last}/{}", span.0, whole.size),
            );
        }
        if !head && span.0 < span.1 {
            *answer.body_mut() = match whole.segments {
                Some(segments) => {
                    let parts = large::cut(segments, (span.0, span.1));
                    StreamingBlob::wrap(self.pumped(asked, parts).await?).into()
                }
                None => self.bytes_of(&entry, key, (span.0, span.1)).await?,
            };
        }
        Ok(answer)
    }

    /// What of it is sent, and whether that is a part; or the answer that there is nothing new.
    fn wanted(
        &self,
        asked: &Asked,
        entry: &Entry,
        whole: &Whole,
    ) -> Done<Result<(u64, u64, bool), s3s::HttpResponse>> {
        let as_read = Entry {
            etag: whole.etag.clone(),
            ..entry.clone()
        };
        let (matches, none_match) = (asked.etags("if-match")?, asked.etags("if-none-match")?);
        let (modified, unmodified) = (
            http_time(asked, "if-modified-since"),
            http_time(asked, "if-unmodified-since"),
        );
        let wanted = Wanted {
            matches: matches.as_ref(),
            none_match: none_match.as_ref(),
            modified: modified.as_ref(),
            unmodified: unmodified.as_ref(),
        };
        match wanted.check(&as_read) {
            Err(e) if *e.code() == S3ErrorCode::NotModified => {
                let mut answer = empty(StatusCode::NOT_MODIFIED);
                set(&mut answer, "etag", &whole.etag);
                set(&mut answer, "last-modified", date(entry.modified));
                return Ok(Err(answer));
            }
            other => other?,
        }
        // What is no range of one piece is not looked at, as HTTP lets it be.
        let Some(range) = asked.header("range").and_then(|r| Range::parse(r.trim()).ok()) else {
            return Ok(Ok((0, whole.size, false)));
        };
        match range.check(whole.size) {
            Ok(span) => Ok(Ok((span.start, span.end, true))),
            Err(_) => Err(refuse(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "The Range requested is not available.",
            )),
        }
    }

    /// Replaces what is said of an object. Refused where versions are kept: what is said of one stays.
    async fn post_object_meta(&self, asked: &Asked) -> Done {
        asked.is("PutObjectMetadata");
        let known = self.may_put(asked).await?;
        let of = (asked.container(), asked.object());
        let now = self.clock.now_ms();
        if known.settings.of.versioning != Versioning::Off {
            let why = "versions of this container are kept as they are: copy the object onto itself";
            return Err(refuse(StatusCode::CONFLICT, why));
        }
        let entry = self.version(&known, of.1, Which::Current).await?;
        let ending = ending(asked, now)?;
        let mut said = Attributes {
            meta: asked
                .meta("object")?
                .into_iter()
                .filter_map(|(k, v)| Some((k, v?)))
                .collect(),
            ..Attributes::default()
        };
        for name in NAMED {
            said.headers
                .extend(asked.header(name).map(|v| (name.to_string(), v.to_string())));
        }
        let kind = asked.header("content-type").filter(|k| !k.is_empty());
        said.headers
            .extend(kind.map(|k| ("content-type".to_string(), k.to_string())));
        crate::front::attributes::check(said.clone())?;
        said.headers
            .extend(manifest(asked)?.map(|m| (MANIFEST.to_string(), m)));
        let known = match &ending {
            Some(_) => self.ending(known, of.0).await?,
            None => known,
        };
        // What is not said again does not hold any more.
        said.headers.extend(ending);
        let amended = self.objects.amend(&known.bucket.id, of.1, Which::Current, |e| {
            // Versioning was turned on meanwhile, or it is another by now.
            if e.version.is_some() || e.lock != Lock::default() || e.data != entry.data {
                return Err(crate::Error::Conflict("others change the same object"));
            }
            let mut headers = said.headers.clone();
            for name in ["content-type", "expires", MANIFEST, STATIC, REDIRECT] {
                if let Some(value) = e.attributes.headers.get(name) {
                    headers.entry(name.into()).or_insert_with(|| value.clone());
                }
            }
            e.attributes.headers = headers;
            e.attributes.meta.clone_from(&said.meta);
            e.modified = now.max(e.modified);
            Ok(())
        });
        amended.await?;
        Ok(empty(StatusCode::ACCEPTED))
    }

    /// `PUT` with `X-Copy-From`.
    async fn copied_here(&self, asked: &Asked) -> Done {
        if asked.header("content-length").is_some_and(|l| l != "0") {
            return Err(bad("Copy requests require a zero byte body"));
        }
        let named = asked.header("x-copy-from").unwrap_or_default();
        let from = path::named(named).map_err(|e| bad(format!("X-Copy-From: {e}")))?;
        let mut source = asked.clone();
        (source.place.container, source.place.object) = (Some(from.0), Some(from.1));
        if let Some(account) = asked.header("x-copy-from-account") {
            source.place.account = Some(account.trim_start_matches(path::ACCOUNT).to_string());
        }
        self.copy(&source, asked).await
    }

    /// `COPY` with `Destination`.
    async fn copied_there(&self, asked: &Asked) -> Done {
        let refused = |e| refuse(StatusCode::PRECONDITION_FAILED, format!("Destination: {e}"));
        let named = asked.header("destination").ok_or_else(|| refused("is wanted"))?;
        let to = path::named(named).map_err(refused)?;
        let mut target = asked.clone();
        (target.place.container, target.place.object) = (Some(to.0), Some(to.1));
        if let Some(account) = asked.header("destination-account") {
            target.place.account = Some(account.trim_start_matches(path::ACCOUNT).to_string());
        }
        self.copy(asked, &target).await
    }

    async fn copy(&self, from: &Asked, to: &Asked) -> Done {
        to.is("CopyObject");
        from.demand_read()?;
        let begun = self.clock.now_ms();
        to.demand_write()?;
        to.refuse_headers(&UNBUILT)?;
        let known = self.located(to).await?;
        let name = format!("{}/{}", from.container(), from.object());
        let ask =
            Ask::object(Action::PutObject, to.container(), to.object()).with(Key::CopySource, Some(&name));
        let req = to.request(());
        self.demand(&req, &known, &ask)?;
        let of = (from.container(), from.object(), Which::Current);
        let there = self.located(from).await?;
        let entry = self.readable_in(&req, &there, of).await?;
        let key = self.opened(None, &entry, (&there.bucket.id, of.1))?;
        let list = to.query.get("multipart-manifest") == Some("get");
        let whole = match seen(&entry) {
            Some(_) if !list => self.static_whole(&there, of.1, &entry).await?,
            _ => self.whole(from, &entry, !list).await?,
        };
        self.check_size(whole.size)?;
        let mut attributes = merged(to, &entry, to.says("x-fresh-metadata"), begun)?;
        if whole.segments.is_some() {
            attributes.headers.remove(MANIFEST);
            attributes.headers.remove(STATIC);
        }
        let tags = (
            Ask::object(Action::GetObjectTagging, of.0, of.1),
            Ask::object(Action::PutObjectTagging, to.container(), to.object()),
        );
        let may = |known: &Known, ask: &Ask<'_>| self.right(&req, known, ask).unwrap_or(false);
        // Tags go along for whoever may read and set them.
        if !(may(&there, &tags.0) && may(&known, &tags.1)) {
            attributes.tags.clear();
        }
        let size = whole.size;
        let body = match whole.segments {
            Some(segments) => {
                let pumped = self.pumped(from, large::cut(segments, (0, size))).await?;
                StreamingBlob::wrap(pumped)
            }
            None => StreamingBlob::from(self.bytes_of(&entry, key, (0, size)).await?),
        };
        let put = self
            .put_copy(to, (known, begun), (body, size), attributes)
            .await?;
        let mut answer = empty(StatusCode::CREATED);
        set(&mut answer, "etag", put.etag);
        set(&mut answer, "last-modified", date(put.modified));
        set(
            &mut answer,
            "x-copied-from",
            crate::front::texts::Names::url().write(&name),
        );
        set(&mut answer, "x-copied-from-last-modified", date(entry.modified));
        Ok(answer)
    }

    async fn put_copy(
        &self,
        to: &Asked,
        (known, begun): (Known, u64),
        (body, size): (StreamingBlob, u64),
        attributes: Attributes,
    ) -> Done<Entry> {
        let req = to.request(());
        let of = (to.container(), to.object());
        let by = (crate::notify::How::Copy, self.asker(&req));
        let seal = self.new_seal(&req, &known, of.1)?;
        let placed = self.class(&req.headers).await?;
        self.limits.check(&known.bucket, Amount::object(size)).await?;
        let announced = Announced {
            md5: None,
            checksum: None,
            trails: false,
        };
        let id = known.bucket.id.clone();
        let new = self
            .take_in(
                (&id, of.1),
                Source(Some(body)),
                (Some(size), crate::front::object_ops::PUT_MAX),
                announced,
                None,
                (attributes, placed, Lock::default(), seal),
            )
            .await?;
        let (entry, _) = self
            .commit((known, begun), of, new, Condition::default(), by)
            .await?;
        Ok(entry)
    }
}
