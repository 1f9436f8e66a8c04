//! Access logs of buckets: where they go, what a line says, and how lines become objects.

use super::caller::{Identity, Notes, Peer};
use super::counted::Told;
use super::errors::{coded, invalid, not_built};
use super::permit::Ask;
use super::raw::{self, Leaf, Raw};
use super::texts::url_decoded;
use super::{Front, who};
use crate::calendar::civil;
use crate::logs::{AT_ONCE, Batch, Logging, Logs, Place};
use crate::meters::Answered;
use crate::policy::Action;
use crate::rados::Pool;
use crate::{Clock, Error};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, REFERER, USER_AGENT};
use hyper::{Method, Uri};
use io::task;
use s3s::dto::*;
use s3s::{HttpResponse, S3ErrorCode, S3Request, S3Result};
use std::time::Duration;

const PREFIX_MAX: usize = 512;
/// Of each text that a client says.
const TEXT_MAX: usize = 2048;
const NAMES: [&str; 9] = [
    "BucketLoggingStatus",
    "LoggingEnabled",
    "TargetBucket",
    "TargetPrefix",
    "TargetObjectKeyFormat",
    "SimplePrefix",
    "PartitionedPrefix",
    "PartitionDateSource",
    "TargetGrants",
];
const LEAVES: [(&str, Leaf); 3] = [
    ("TargetBucket", Leaf::Text),
    ("TargetPrefix", Leaf::Text),
    ("PartitionDateSource", Leaf::Text),
];
/// What of a query lets whoever reads it ask the same.
const SECRETS: [&str; 4] = [
    "Signature",
    "X-Amz-Signature",
    "X-Amz-Security-Token",
    "temp_url_sig",
];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
/// Operations that AWS calls otherwise than by method and name.
const OPERATIONS: [(&str, &str); 24] = [
    ("AbortMultipartUpload", "DELETE.UPLOAD"),
    ("CompleteMultipartUpload", "POST.UPLOAD"),
    ("CopyObject", "COPY.OBJECT"),
    ("CreateBucket", "PUT.BUCKET"),
    ("CreateMultipartUpload", "POST.UPLOADS"),
    ("DeleteBucket", "DELETE.BUCKET"),
    ("DeleteObject", "DELETE.OBJECT"),
    ("DeleteObjectTagging", "DELETE.OBJECT_TAGGING"),
    ("DeleteObjects", "POST.MULTI_OBJECT_DELETE"),
    ("GetBucketAcl", "GET.ACL"),
    ("GetObject", "GET.OBJECT"),
    ("GetObjectAcl", "GET.ACL"),
    ("GetObjectTagging", "GET.OBJECT_TAGGING"),
    ("HeadBucket", "HEAD.BUCKET"),
    ("HeadObject", "HEAD.OBJECT"),
    ("ListMultipartUploads", "GET.UPLOADS"),
    ("ListObjectVersions", "GET.BUCKETVERSIONS"),
    ("ListObjects", "GET.BUCKET"),
    ("ListObjectsV2", "GET.BUCKET"),
    ("ListParts", "GET.UPLOAD"),
    ("PutObject", "PUT.OBJECT"),
    ("PutObjectTagging", "PUT.OBJECT_TAGGING"),
    ("UploadPart", "PUT.PART"),
    ("UploadPartCopy", "COPY.PART"),
];

/// Refused where the library would not take it as it was written.
pub(super) fn check(xml: &[u8]) -> Result<(), String> {
    raw::check_names(xml, &NAMES)?;
    raw::check(xml, &LEAVES)
}

fn operation(name: Option<&str>, method: &Method) -> String {
    let Some(name) = name else { return "-".into() };
    if let Some((_, said)) = OPERATIONS.iter().find(|(n, _)| *n == name) {
        return format!("REST.{said}");
    }
    let verbs = ["Get", "Put", "Delete", "Head", "List", "Post"];
    let rest = verbs.iter().find_map(|v| name.strip_prefix(v)).unwrap_or(name);
    format!("REST.{method}.{}", rest.to_ascii_uppercase())
}

/// A text of a client's within a line: without what would end it, or begin another.
fn quiet(text: &str, quoted: bool) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() >= TEXT_MAX {
            break;
        }
        match c {
            '"' => out.push_str("%22"),
            ' ' if !quoted => out.push_str("%20"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    match out.is_empty() {
        true => "-".into(),
        false => out,
    }
}

/// Without what lets others ask the same.
fn without_secrets(uri: &Uri) -> String {
    let Some(query) = uri.query() else {
        return uri.path().to_string();
    };
    let said = query.split('&').map(|pair| {
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        let secret =
            url_decoded(name).is_none_or(|name| SECRETS.iter().any(|s| s.eq_ignore_ascii_case(&name)));
        if secret {
            format!("{name}=*")
        } else {
            pair.to_string()
        }
    });
    format!("{}?{}", uri.path(), said.collect::<Vec<_>>().join("&"))
}

/// What of a request goes into a line, before it goes where it is answered.
pub(super) struct Seen {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    version: hyper::Version,
    peer: Peer,
    at: u64,
    began: Duration,
    /// The bucket is in the host.
    by_host: bool,
}

impl Seen {
    pub fn of<B>(request: &hyper::Request<B>, (peer, by_host): (Peer, bool), clock: &Clock) -> Self {
        let mut headers = HeaderMap::new();
        for name in [AUTHORIZATION, HOST, REFERER, USER_AGENT] {
            headers.extend(request.headers().get(&name).map(|v| (name, v.clone())));
        }
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers,
            version: request.version(),
            peer,
            at: clock.now_ms(),
            began: clock.monotonic(),
            by_host,
        }
    }

    fn header(&self, name: &HeaderName) -> String {
        let value = self.headers.get(name);
        value
            .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
            .unwrap_or_default()
    }

    fn queried(&self, name: &str) -> Option<String> {
        let mut pairs = self.uri.query().unwrap_or_default().split('&');
        pairs.find_map(|pair| {
            let (n, value) = pair.split_once('=').unwrap_or((pair, ""));
            (url_decoded(n)? == name).then(|| value.to_string())
        })
    }

    /// Version of the signature, and where it was.
    fn signed(&self) -> (&'static str, &'static str) {
        let authorization = self.header(&AUTHORIZATION);
        if self.queried("X-Amz-Signature").is_some() {
            return ("SigV4", "QueryString");
        }
        if self.queried("Signature").is_some() {
            return ("SigV2", "QueryString");
        }
        match () {
            () if authorization.starts_with("AWS4") => ("SigV4", "AuthHeader"),
            () if authorization.starts_with("AWS ") => ("SigV2", "AuthHeader"),
            () => ("-", "-"),
        }
    }

    /// All up to what is known when the answer has ended: bytes, and time.
    fn begin(&self, notes: &Notes, how: &Answered, code: &str, request: u64) -> [String; 2] {
        let c = civil(self.at);
        let month = MONTHS[(c.month as usize - 1) % 12];
        let time = format!(
            "{:02}/{month}/{:04}:{:02}:{:02}:{:02} +0000",
            c.day, c.year, c.hour, c.minute, c.second
        );
        let text = |text: Option<&str>| quiet(text.unwrap_or_default(), false);
        let key = quiet(&self.key(notes.bucket.as_deref()), false);
        let (owner, bucket) = (text(notes.owner.as_deref()), text(notes.bucket.as_deref()));
        let asks = notes.session.as_ref().or(notes.user.as_ref());
        let (asks, ip) = (text(asks.map(String::as_str)), self.peer.ip);
        let operation = operation(how.operation.as_deref(), &self.method);
        let uri = quiet(&without_secrets(&self.uri), false);
        let first = format!(
            "{owner} {bucket} [{time}] {ip} {asks} {request:016X} {operation} {key} \"{} {uri} {:?}\" {} {code}",
            self.method, self.version, how.status
        );
        let (version, place) = self.signed();
        // A page that was opened by a presigned URL names that.
        let referer = self.header(&REFERER);
        let referer = match referer.split_once('?') {
            Some((page, _)) => format!("{page}?*"),
            None => referer,
        };
        let id = quiet(&self.queried("versionId").unwrap_or_default(), false);
        let host = quiet(&self.header(&HOST), false);
        let last = format!(
            "{} \"{}\" \"{}\" {id} - {version} - {place} {host} - - -\n",
            how.took.as_millis(),
            quiet(&referer, true),
            quiet(&self.header(&USER_AGENT), true)
        );
        [first, last]
    }

    /// As it was sent. The bucket is the first of the path, or in the host.
    fn key(&self, bucket: Option<&str>) -> String {
        let path = self.uri.path();
        let path = path.strip_prefix('/').unwrap_or(path);
        match path.split_once('/') {
            _ if self.by_host => path.to_string(),
            Some((first, rest)) if Some(first) == bucket => rest.to_string(),
            None if Some(path) == bucket => String::new(),
            _ => path.to_string(),
        }
    }
}

/// The code of an error that an answer tells.
fn code_of(answer: &HttpResponse) -> String {
    let text = match answer.status().as_u16() >= 400 {
        true => answer.body().bytes().unwrap_or_default(),
        false => return "-".into(),
    };
    let text = String::from_utf8_lossy(&text);
    let code = text
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"));
    let code = code
        .map(|(code, _)| code)
        .filter(|c| !c.is_empty() && c.len() < 64);
    quiet(code.unwrap_or_default(), false)
}

/// Writes a line when the answer has ended; None: its bucket has no log.
pub(super) fn told(
    (logs, clock): (&Logs, &Clock),
    seen: &Seen,
    (notes, how): (&Notes, &Answered),
    answer: &HttpResponse,
) -> Option<Told> {
    let to = notes.logging.as_ref()?;
    let place = Place {
        owner: notes.owner.clone()?,
        target: to.target.clone(),
        prefix: to.prefix.clone(),
    };
    let [first, last] = seen.begin(notes, how, &code_of(answer), clock.random_u64());
    let (logs, clock, began) = (logs.clone(), clock.clone(), seen.began);
    Some(Box::new(move |_, sent| {
        let now = clock.monotonic();
        let (sent, total) = (dash(sent), now.saturating_sub(began).as_millis());
        logs.add(place, &format!("{first} {sent} - {total} {last}"), now);
    }))
}

fn dash(n: u64) -> String {
    if n == 0 { "-".into() } else { n.to_string() }
}

/// Both, one after the other.
pub(super) fn both(a: Option<Told>, b: Option<Told>) -> Option<Told> {
    match (a, b) {
        (Some(a), Some(b)) => Some(Box::new(move |end, sent| {
            a(end, sent);
            b(end, sent);
        })),
        (a, b) => a.or(b),
    }
}

fn logging(given: LoggingEnabled) -> S3Result<Logging> {
    if given.target_grants.is_some_and(|g| !g.is_empty()) {
        return Err(not_built("TargetGrants"));
    }
    if given
        .target_object_key_format
        .is_some_and(|f| f.partitioned_prefix.is_some())
    {
        return Err(not_built("a PartitionedPrefix"));
    }
    let good = |c: char| !c.is_control();
    match given.target_prefix.len() <= PREFIX_MAX && given.target_prefix.chars().all(good) {
        true => Ok(Logging {
            target: given.target_bucket,
            prefix: given.target_prefix,
        }),
        false => Err(invalid(format!(
            "a TargetPrefix has at most {PREFIX_MAX} bytes, and no control characters"
        ))),
    }
}

impl<P: Pool> Front<P> {
    pub async fn set_logging(&self, mut req: S3Request<PutBucketLoggingInput>) -> S3Result<()> {
        let given = req.input.bucket_logging_status.logging_enabled.take();
        let bucket = req.input.bucket.clone();
        let ask = Ask::bucket(Action::PutBucketLogging, &bucket);
        let owner = self.permitted(&req, &ask).await?.bucket.owner;
        // Lines are put as by the owner: who else could choose where to might have them put what is not his to put, or read who reads.
        if who(&req) != Some(&owner) {
            return Err(Error::AccessDenied.into());
        }
        let text = req.extensions.get::<Raw>().map(Raw::take).unwrap_or_default();
        check(&text).map_err(|why| coded(S3ErrorCode::MalformedXML, why))?;
        let to = given.map(logging).transpose()?;
        if let Some(to) = &to {
            let wrong = |why: &str| Err(coded(S3ErrorCode::InvalidTargetBucketForLogging, why));
            match self.buckets.known(&to.target).await {
                Ok(target) if target.bucket.owner == owner => {}
                Ok(_) => return wrong("the target bucket has another owner"),
                Err(Error::NoSuchBucket) => return wrong("the target bucket does not exist"),
                Err(e) => return Err(e.into()),
            }
        }
        self.change_settings(&req, ask, |s| s.logging.clone_from(&to))
            .await
    }

    pub async fn logging(&self, req: S3Request<GetBucketLoggingInput>) -> S3Result<GetBucketLoggingOutput> {
        let ask = Ask::bucket(Action::GetBucketLogging, &req.input.bucket);
        let known = self.permitted(&req, &ask).await?;
        let of = known.settings.of.logging.as_ref();
        Ok(GetBucketLoggingOutput {
            logging_enabled: of.map(|to| LoggingEnabled {
                target_bucket: to.target.clone(),
                target_grants: None,
                target_object_key_format: None,
                target_prefix: to.prefix.clone(),
            }),
        })
    }

    /// Has what was gathered and is old enough put, as much as there is room for.
    pub(super) fn roll(&self, every: Duration) {
        let dropped = self.logs.dropped();
        if dropped > 0 {
            tracing::warn!("s3: access logs: {dropped} lines found no room and were dropped");
        }
        while let Ok(room) = self.logs.room.clone().try_acquire_owned() {
            let name = (self.clock.now_ms(), self.clock.random_u64());
            let Some((place, batch)) = self.logs.take(self.clock.monotonic(), every, name) else {
                return;
            };
            let front = self.clone();
            drop(task::spawn_local(async move {
                front.roll_one(place, batch).await;
                drop(room);
            }));
        }
    }

    /// All of it: when the gateway stops.
    pub(super) async fn roll_out(&self) {
        loop {
            self.roll(Duration::ZERO);
            let ended = self.logs.room.acquire_many(AT_ONCE as u32).await;
            drop(ended);
            if self.logs.is_empty() {
                return;
            }
            task::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn roll_one(&self, place: Place, batch: Batch) {
        let Err(e) = self.put_log(&place, &batch).await else {
            return self.logs.done(&place, &batch);
        };
        let again = matches!(
            e.code(),
            S3ErrorCode::SlowDown | S3ErrorCode::InternalError | S3ErrorCode::OperationAborted
        );
        let (lines, target) = (batch.lines, place.target.clone());
        let why = e.message().unwrap_or_default().to_string();
        match self.logs.failed(place, batch, (again, self.clock.monotonic())) {
            true => tracing::warn!("s3: access log to {target}: {why}: it is tried again"),
            false => tracing::warn!("s3: access log to {target}: {lines} lines were dropped: {why}"),
        }
    }

    /// As its owner would, so that rights, quotas and encryption of the target hold.
    async fn put_log(&self, place: &Place, batch: &Batch) -> S3Result<()> {
        let target = self.buckets.known(&place.target).await?;
        if target.bucket.owner != place.owner {
            return Err(Error::AccessDenied.into());
        }
        let c = civil(batch.name.0);
        let key = format!(
            "{}{:04}-{:02}-{:02}-{:02}-{:02}-{:02}-{:016X}",
            place.prefix, c.year, c.month, c.day, c.hour, c.minute, c.second, batch.name.1
        );
        let input = PutObjectInput {
            bucket: place.target.clone(),
            key,
            body: Some(StreamingBlob::from(s3s::Body::from(batch.text.clone()))),
            content_length: Some(batch.text.len() as i64),
            content_type: "text/plain".parse().ok(),
            ..PutObjectInput::default()
        };
        let mut extensions = hyper::http::Extensions::new();
        extensions.insert(Identity::of(place.owner.clone()));
        let req = S3Request {
            input,
            method: Method::PUT,
            uri: Uri::from_static("/"),
            headers: HeaderMap::new(),
            extensions,
            credentials: None,
            region: None,
            service: None,
            trailing_headers: None,
        };
        self.put_object(req).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(uri: &str, headers: &[(HeaderName, &str)]) -> Seen {
        let mut request = hyper::Request::new(());
        *request.uri_mut() = uri.parse().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let peer = Peer {
            ip: [192, 0, 2, 1].into(),
            tls: false,
        };
        let mut seen = Seen::of(&request, (peer, false), &crate::fake::Fake::new(1).clock());
        seen.at = 1_709_164_800_007;
        seen
    }

    #[test]
    fn lines_are_as_aws_has_them() {
        let notes = Notes {
            user: Some("u".into()),
            bucket: Some("b".into()),
            owner: Some("o".into()),
            ..Notes::default()
        };
        let how = Answered {
            operation: Some("GetObject".into()),
            bucket: Some("b".into()),
            status: 404,
            took: Duration::from_millis(7),
            brought: 0,
        };
        let seen = seen(
            "/b/a%20b\"?versionId=v&X-Amz-Signature=abc",
            &[
                (USER_AGENT, "me \"and\" you"),
                (HOST, "h:1"),
                (REFERER, "http://p/a b?Signature=x"),
            ],
        );
        let [first, last] = seen.begin(&notes, &how, "NoSuchKey", 10);
        assert_eq!(
            first,
            "o b [29/Feb/2024:00:00:00 +0000] 192.0.2.1 u 000000000000000A REST.GET.OBJECT a%20b%22 \"GET /b/a%20b%22?versionId=v&X-Amz-Signature=* HTTP/1.1\" 404 NoSuchKey"
        );
        assert_eq!(
            last,
            "7 \"http://p/a b?*\" \"me %22and%22 you\" v - SigV4 - QueryString h:1 - - -\n"
        );
    }

    #[test]
    fn keys_and_operations_are_found() {
        for (uri, key) in [
            ("/b", ""),
            ("/b/", ""),
            ("/b/k/x", "k/x"),
            ("/k/x", "k/x"),
            ("/", ""),
        ] {
            assert_eq!(seen(uri, &[]).key(Some("b")), key, "{uri}");
        }
        for (name, want) in [
            (Some("GetObject"), "REST.GET.OBJECT"),
            (Some("GetBucketPolicy"), "REST.GET.BUCKETPOLICY"),
            (None, "-"),
        ] {
            assert_eq!(operation(name, &Method::GET), want);
        }
        assert!(OPERATIONS.is_sorted());
        assert_eq!(quiet(&"é".repeat(TEXT_MAX), false).len(), TEXT_MAX);
        assert_eq!(quiet("a\r\nb c", true), "a??b c");
    }
}
