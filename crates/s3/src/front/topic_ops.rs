//! Topics, as clients of SNS make them: forms that are posted to `/` and signed by V4 for the service `sns`.
//!
//! Not here: subscriptions. A topic has one endpoint, as with radosgw, which its attribute `push-endpoint` names.

use super::Front;
use super::caller::Noted;
use super::texts::{epoch_seconds, url_decoded};
use crate::endpoints::Endpoints;
use crate::notify::{topic_arn, topic_of};
use crate::rados::Pool;
use crate::topics::{Queue, Topic};
use aws_lc_rs::{digest, hmac};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{HttpResponse, S3Error, S3ErrorCode};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;

const FORM: &str = "application/x-www-form-urlencoded";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const BODY_MAX: usize = 64 << 10;
const NAME_MAX: usize = 256;
const OPAQUE_MAX: usize = 1024;
/// Seconds that clocks may differ.
const SKEW: u64 = 15 * 60;
const XMLNS: &str = "http://sns.amazonaws.com/doc/2010-03-31/";
/// Attributes that say what is so in any case, and the values that do.
const SETTLED: [(&str, &[&str]); 4] = [
    ("persistent", &["true", "false", "1", "0"]),
    ("verify-ssl", &["true", "1"]),
    ("cloudevents", &["false", "0"]),
    ("use-ssl", &["false", "0"]),
];

/// Why it is not done, as SNS says it.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: String,
    why: String,
}

type Done<T> = Result<T, Refusal>;

fn refuse(code: &str, why: impl Into<String>) -> Refusal {
    let status = match code {
        "NotFound" => StatusCode::NOT_FOUND,
        "InvalidParameter" | "InvalidAction" | "MissingAction" => StatusCode::BAD_REQUEST,
        "NotImplemented" => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::FORBIDDEN,
    };
    Refusal {
        status,
        code: code.to_string(),
        why: why.into(),
    }
}

fn wrong(why: impl Into<String>) -> Refusal {
    refuse("InvalidParameter", why)
}

impl From<S3Error> for Refusal {
    fn from(e: S3Error) -> Self {
        Self {
            status: e.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code: e.code().as_str().to_string(),
            why: e.message().unwrap_or_default().to_string(),
        }
    }
}

impl From<crate::Error> for Refusal {
    fn from(e: crate::Error) -> Self {
        match e {
            crate::Error::Invalid(why) => wrong(why),
            e => S3Error::from(e).into(),
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

/// A form for SNS, by who it says that it is signed for.
pub(super) fn is_of_topics<B>(request: &hyper::Request<B>) -> bool {
    let is_form =
        text(request.headers(), CONTENT_TYPE.as_str()).is_some_and(|t| t.trim_start().starts_with(FORM));
    let signed = text(request.headers(), AUTHORIZATION.as_str()).unwrap_or_default();
    request.method() == Method::POST
        && request.uri().path() == "/"
        && is_form
        && signed.contains("/sns/aws4_request")
}

/// Names and values of a form; of what is there twice none is taken.
fn fields(body: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let body = std::str::from_utf8(body).map_err(|_| "the form is no text")?;
    let mut of = BTreeMap::new();
    for pair in body.split('&').filter(|p| !p.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (url_decoded(name), url_decoded(value)) else {
            return Err("the form is not URL encoded".into());
        };
        if of.contains_key(&name) {
            return Err(format!("{name} is there twice"));
        }
        of.insert(name, value);
    }
    Ok(of)
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Create {
        name: String,
        attributes: BTreeMap<String, String>,
    },
    Set {
        arn: String,
        name: String,
        value: String,
    },
    Get(String),
    Delete(String),
    List,
}

impl Asked {
    fn operation(&self) -> &'static str {
        match self {
            Self::Create { .. } => "CreateTopic",
            Self::Set { .. } => "SetTopicAttributes",
            Self::Get(_) => "GetTopicAttributes",
            Self::Delete(_) => "DeleteTopic",
            Self::List => "ListTopics",
        }
    }
}

/// Attributes by their numbers: `Attributes.entry.N.key` and `.value`.
fn entries(of: &mut BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    let mut attributes = BTreeMap::new();
    let numbers: Vec<String> = of
        .keys()
        .filter_map(|name| name.strip_prefix("Attributes.entry.")?.strip_suffix(".key"))
        .map(str::to_string)
        .collect();
    for n in numbers {
        let mut part = |what: &str| of.remove(&format!("Attributes.entry.{n}.{what}"));
        let (name, value) = (part("key").unwrap_or_default(), part("value"));
        let value = value.ok_or_else(|| format!("the attribute {name} has no value"))?;
        if attributes.insert(name.clone(), value).is_some() {
            return Err(format!("the attribute {name} is there twice"));
        }
    }
    Ok(attributes)
}

/// Refused if it has what is not known: it would be less than its owner thinks.
fn asked(mut of: BTreeMap<String, String>) -> Done<Asked> {
    let action = of
        .remove("Action")
        .ok_or_else(|| refuse("MissingAction", "Action is missing"))?;
    of.remove("Version");
    let mut part = |name: &str| of.remove(name).ok_or_else(|| wrong(format!("{name} is missing")));
    let asked = match action.as_str() {
        "CreateTopic" => {
            let name = part("Name")?;
            let attributes = entries(&mut of).map_err(wrong)?;
            Asked::Create { name, attributes }
        }
        "SetTopicAttributes" => Asked::Set {
            arn: part("TopicArn")?,
            name: part("AttributeName")?,
            value: part("AttributeValue")?,
        },
        "GetTopicAttributes" => Asked::Get(part("TopicArn")?),
        "DeleteTopic" => Asked::Delete(part("TopicArn")?),
        "ListTopics" => {
            // All are in one answer.
            of.remove("NextToken");
            Asked::List
        }
        other => {
            return Err(refuse(
                "InvalidAction",
                format!("{other:?} is not built: topics are made, listed, shown, changed and removed here"),
            ));
        }
    };
    match of.keys().next() {
        Some(name) => Err(wrong(format!("{name} is not known for {action}"))),
        None => Ok(asked),
    }
}

fn check_name(name: &str) -> Done<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(good) {
        true => Ok(()),
        false => Err(wrong(format!(
            "a topic's name has 1 to {NAME_MAX} letters, digits and - _ ."
        ))),
    }
}

/// Endpoint and opaque data, with what attributes say in place of what was.
fn attributes(
    of: &BTreeMap<String, String>,
    (mut endpoint, mut opaque): (String, String),
    endpoints: &Endpoints,
) -> Done<(String, String)> {
    for (name, value) in of {
        let settled = SETTLED.iter().find(|(n, _)| n == name);
        match (name.as_str(), settled) {
            ("push-endpoint", _) => endpoint.clone_from(value),
            ("OpaqueData", _) if value.len() > OPAQUE_MAX => {
                return Err(wrong(format!("OpaqueData has at most {OPAQUE_MAX} bytes")));
            }
            ("OpaqueData", _) => opaque.clone_from(value),
            (_, Some((_, good))) if good.contains(&value.to_ascii_lowercase().as_str()) => {}
            (_, Some(_)) => return Err(refuse("NotImplemented", format!("{name}={value}: not built yet"))),
            _ => {
                return Err(wrong(format!(
                    "the attribute {name} is not known: push-endpoint and OpaqueData are"
                )));
            }
        }
    }
    if endpoint.is_empty() {
        return Err(wrong("a topic needs a push-endpoint, http:// or https://"));
    }
    endpoints.check(&endpoint).map_err(wrong)?;
    Ok((endpoint, opaque))
}

fn sign(key: &[u8], data: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, data.as_bytes()).as_ref().to_vec()
}

fn sha256(data: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, data))
}

/// A signature by V4, as a request claims it.
struct Signed<'a> {
    access: &'a str,
    /// Date, region, service.
    scope: [&'a str; 3],
    headers: Vec<&'a str>,
    signature: Vec<u8>,
    at: &'a str,
}

impl<'a> Signed<'a> {
    /// None: it is none of a header's.
    fn of(headers: &'a HeaderMap) -> Option<Self> {
        let mut all = headers.get_all(AUTHORIZATION).iter();
        let only = all.next().filter(|_| all.next().is_none())?;
        let mut named = BTreeMap::new();
        for field in only.to_str().ok()?.strip_prefix(ALGORITHM)?.split(',') {
            let (name, value) = field.trim().split_once('=')?;
            if named.insert(name, value).is_some() {
                return None;
            }
        }
        let mut parts = named.get("Credential")?.split('/');
        let (access, date, region) = (parts.next()?, parts.next()?, parts.next()?);
        let (service, end) = (parts.next()?, parts.next()?);
        if end != "aws4_request" || service != "sns" || parts.next().is_some() || named.len() != 3 {
            return None;
        }
        let at = text(headers, "x-amz-date")?;
        let signed: Vec<&str> = named.get("SignedHeaders")?.split(';').collect();
        let all = headers.keys().map(|name| name.as_str());
        let needed = all.filter(|n| n.starts_with("x-amz-") && *n != "x-amz-content-sha256");
        let mut needed = needed.chain(["host"]);
        if !at.starts_with(date) || date.is_empty() || !needed.all(|name| signed.contains(&name)) {
            return None;
        }
        Some(Self {
            access,
            scope: [date, region, service],
            headers: signed,
            signature: hex::decode(named.get("Signature")?).ok()?,
            at,
        })
    }

    /// Seconds since 1970.
    fn seconds(&self) -> Option<u64> {
        let at = self.at;
        let part = |from: usize, to: usize| at.get(from..to);
        if at.len() != 16 || part(8, 9)? != "T" || part(15, 16)? != "Z" {
            return None;
        }
        let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
        let (hour, minute, second) = (part(9, 11)?, part(11, 13)?, part(13, 15)?);
        let padded = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
        epoch_seconds(&Timestamp::parse(TimestampFormat::DateTime, &padded).ok()?)
    }

    /// In time that does not tell how much of it is right.
    fn is_right(&self, secret: &str, headers: &HeaderMap, body: &[u8]) -> bool {
        let mut canonical = "POST\n/\n\n".to_string();
        for name in &self.headers {
            let values = headers.get_all(*name).iter().filter_map(|v| v.to_str().ok());
            let one = |v: &str| v.split_whitespace().collect::<Vec<_>>().join(" ");
            let values: Vec<String> = values.map(one).collect();
            canonical += &format!("{name}:{}\n", values.join(","));
        }
        canonical += &format!("\n{}\n{}", self.headers.join(";"), sha256(body));
        let scope = format!("{}/aws4_request", self.scope.join("/"));
        let signed = format!(
            "{ALGORITHM}\n{}\n{scope}\n{}",
            self.at,
            sha256(canonical.as_bytes())
        );
        let mut key = format!("AWS4{secret}").into_bytes();
        for part in self.scope.iter().chain(&["aws4_request"]) {
            key = sign(&key, part);
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        hmac::verify(&key, signed.as_bytes(), &self.signature).is_ok()
    }
}

async fn collected(mut body: s3s::Body) -> Done<Bytes> {
    let mut all = BytesMut::new();
    while let Some(chunk) = poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await {
        let chunk = chunk.map_err(|e| Refusal::from(crate::Error::Body(e.to_string())))?;
        if all.len() + chunk.len() > BODY_MAX {
            return Err(wrong("the form has at most 64 KiB"));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}

fn xml(text: &str) -> String {
    // Of what XML has no way to write nothing comes here but in opaque data.
    let text: String = text
        .chars()
        .filter(|c| !c.is_control() || "\t\n".contains(*c))
        .collect();
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The result of an action, as SNS writes it.
fn result(operation: &str, inner: &str, request: &str) -> String {
    let result = match inner.is_empty() {
        true => String::new(),
        false => format!("<{operation}Result>{inner}</{operation}Result>"),
    };
    format!(
        "<{operation}Response xmlns=\"{XMLNS}\">{result}<ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata></{operation}Response>"
    )
}

/// A URL without its user and password, and whether it has some.
fn hidden(url: &str) -> (String, bool) {
    let of_user = net::post::Url::parse(url).is_ok_and(|url| url.has_user());
    let parts = url.split_once("://").filter(|_| of_user);
    let parts = parts.and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let at = rest[..end].rfind('@')?;
        Some(format!("{scheme}://***{}", &rest[at..]))
    });
    (parts.unwrap_or_else(|| url.to_string()), of_user)
}

fn shown(topic: &Topic, queue: Queue) -> String {
    let arn = topic_arn(&topic.owner, &topic.name);
    let (address, secret) = hidden(&topic.endpoint);
    let endpoint = serde_json::json!({
        "EndpointAddress": address,
        "EndpointTopic": topic.name,
        "HasStoredSecret": secret,
        "Persistent": true,
    });
    let (endpoint, waiting) = (endpoint.to_string(), queue.rows.to_string());
    let dropped = (queue.full.to_string(), queue.old.to_string());
    let entries = [
        ("TopicArn", arn.as_str()),
        ("Owner", &topic.owner),
        ("User", &topic.owner),
        ("Name", &topic.name),
        ("EndPoint", &endpoint),
        ("push-endpoint", &address),
        ("persistent", "true"),
        ("OpaqueData", &topic.opaque),
        ("EventsWaiting", &waiting),
        ("EventsDroppedFull", &dropped.0),
        ("EventsDroppedOld", &dropped.1),
    ];
    let entry = |(name, value): (&str, &str)| {
        format!("<entry><key>{name}</key><value>{}</value></entry>", xml(value))
    };
    let entries: String = entries.into_iter().map(entry).collect();
    format!("<Attributes>{entries}</Attributes>")
}

fn answer(status: StatusCode, text: String) -> HttpResponse {
    let mut answer = HttpResponse::new(s3s::Body::from(text));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    answer
}

impl<P: Pool> Front<P> {
    /// Answers a form for SNS.
    pub(super) async fn of_topics(&self, parts: Parts, body: s3s::Body, noted: &Noted) -> HttpResponse {
        let request = format!("{:016x}", self.clock.random_u64());
        match self.topics_asked(&parts, body, noted).await {
            Ok((operation, inner)) => answer(StatusCode::OK, result(operation, &inner, &request)),
            Err(e) => {
                let kind = if e.status.is_server_error() {
                    "Receiver"
                } else {
                    "Sender"
                };
                let (code, why) = (xml(&e.code), xml(&e.why));
                let error =
                    format!("<Error><Type>{kind}</Type><Code>{code}</Code><Message>{why}</Message></Error>");
                let text = format!(
                    "<ErrorResponse xmlns=\"{XMLNS}\">{error}<RequestId>{request}</RequestId></ErrorResponse>"
                );
                answer(e.status, text)
            }
        }
    }

    async fn topics_asked(
        &self,
        parts: &Parts,
        body: s3s::Body,
        noted: &Noted,
    ) -> Done<(&'static str, String)> {
        let headers = &parts.headers;
        if parts.uri.query().is_some_and(|q| !q.is_empty()) {
            return Err(wrong("what is asked for is in the form, not in the query"));
        }
        let signed = Signed::of(headers).ok_or_else(|| {
            refuse(
                "IncompleteSignature",
                "a signature of version 4 in the Authorization header is wanted, of host and all x-amz- headers",
            )
        })?;
        let now = self.clock.now_ms() / 1000;
        if signed.seconds().is_none_or(|at| at.abs_diff(now) > SKEW) {
            return Err(refuse(
                "RequestExpired",
                "the request's date is not within 15 minutes of the gateway's",
            ));
        }
        let key = match self.key_of(signed.access).await {
            Err(e) if *e.code() == S3ErrorCode::InvalidAccessKeyId => {
                return Err(refuse("InvalidClientTokenId", "there is no such access key"));
            }
            other => other?,
        };
        let body = collected(body).await?;
        if !signed.is_right(&key.secret, headers, &body) {
            return Err(refuse(
                "SignatureDoesNotMatch",
                "the signature is not the one of this key",
            ));
        }
        let user = self.identity(&key).await?.user;
        let payers = self.rates.admit(Some(&user), None, true).await?;
        self.rates.charge(&payers, true, body.len() as u64);
        let asked = asked(fields(&body).map_err(wrong)?)?;
        {
            let mut notes = noted.lock();
            notes.payers = payers;
            notes.operation = Some(asked.operation().into());
            notes.user = Some(user.clone());
        }
        let operation = asked.operation();
        Ok((operation, self.topics_answer(&user, asked).await?))
    }

    /// A user's own topic.
    async fn own_topic(&self, user: &str, arn: &str) -> Done<Topic> {
        let there = match topic_of(arn).filter(|(owner, _)| *owner == user) {
            Some((owner, name)) => self.topics.get(owner, name).await?,
            None => None,
        };
        there.ok_or_else(|| refuse("NotFound", "Topic does not exist"))
    }

    async fn topics_answer(&self, user: &str, asked: Asked) -> Done<String> {
        Ok(match asked {
            Asked::Create { name, attributes: of } => {
                check_name(&name)?;
                let (endpoint, opaque) = attributes(&of, Default::default(), &self.endpoints)?;
                let made = self.topics.create(user, &name, &endpoint, &opaque).await?;
                format!("<TopicArn>{}</TopicArn>", topic_arn(&made.owner, &made.name))
            }
            Asked::Set { arn, name, value } => {
                let topic = self.own_topic(user, &arn).await?;
                let of = BTreeMap::from([(name, value)]);
                let was = (topic.endpoint, topic.opaque);
                let (endpoint, opaque) = attributes(&of, was, &self.endpoints)?;
                self.topics.create(user, &topic.name, &endpoint, &opaque).await?;
                String::new()
            }
            Asked::Get(arn) => {
                let topic = self.own_topic(user, &arn).await?;
                let queue = self.topics.queue(&topic.id).await?;
                shown(&topic, queue)
            }
            Asked::Delete(arn) => {
                // One that is not there is as good as removed.
                let (_, name) = topic_of(&arn)
                    .filter(|(owner, _)| *owner == user)
                    .ok_or_else(|| refuse("NotFound", "Topic does not exist"))?;
                self.topics.delete(user, name).await?;
                String::new()
            }
            Asked::List => {
                let member = |t: Topic| {
                    let arn = topic_arn(&t.owner, &t.name);
                    format!("<member><TopicArn>{arn}</TopicArn></member>")
                };
                let members: String = self.topics.of(user).await?.into_iter().map(member).collect();
                format!("<Topics>{members}</Topics>")
            }
        })
    }
}

/// For fuzzing: whether a form is taken.
#[cfg(feature = "testing")]
pub(super) fn takes(input: &[u8]) -> bool {
    let taken = fields(input).ok().and_then(|of| asked(of).ok());
    match taken {
        Some(Asked::Create { name, attributes: of }) => {
            check_name(&name).is_ok() && attributes(&of, Default::default(), &Endpoints::default()).is_ok()
        }
        other => other.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Done<Asked> {
        asked(fields(text.as_bytes()).map_err(wrong)?)
    }

    #[test]
    fn forms_are_read() {
        let Asked::Create { name, attributes } = form(
            "Action=CreateTopic&Version=2010-03-31&Name=t&Attributes.entry.1.key=push-endpoint&Attributes.entry.1.value=http%3A%2F%2Fh%2F&Attributes.entry.2.value=a+b&Attributes.entry.2.key=OpaqueData",
        )
        .unwrap() else {
            panic!("another");
        };
        assert_eq!(name, "t");
        assert_eq!(attributes["push-endpoint"], "http://h/");
        assert_eq!(attributes["OpaqueData"], "a b");
        assert_eq!(form("Action=ListTopics&Version=x").unwrap(), Asked::List);
        for (bad, code) in [
            ("", "MissingAction"),
            ("Action=Subscribe&TopicArn=a", "InvalidAction"),
            ("Action=CreateTopic", "InvalidParameter"),
            (
                "Action=CreateTopic&Name=t&Tags.member.1.Key=a",
                "InvalidParameter",
            ),
            ("Action=CreateTopic&Name=t&Name=u", "InvalidParameter"),
            (
                "Action=CreateTopic&Name=t&Attributes.entry.1.key=a",
                "InvalidParameter",
            ),
            ("Action=CreateTopic&Name=%", "InvalidParameter"),
            ("Action=DeleteTopic", "InvalidParameter"),
        ] {
            assert_eq!(form(bad).unwrap_err().code, code, "{bad}");
        }
    }

    #[test]
    fn attributes_that_mean_something_else_are_refused() {
        let of = |pairs: &[(&str, &str)]| {
            let of = pairs
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect();
            attributes(&of, Default::default(), &Endpoints::default()).map_err(|e| e.code)
        };
        let endpoint = ("push-endpoint", "http://h/");
        let good = of(&[
            endpoint,
            ("persistent", "true"),
            ("verify-ssl", "True"),
            ("OpaqueData", "x"),
        ]);
        assert_eq!(good, Ok(("http://h/".into(), "x".into())));
        for (bad, code) in [
            (("verify-ssl", "false"), "NotImplemented"),
            (("cloudevents", "true"), "NotImplemented"),
            (("kafka-ack-level", "none"), "InvalidParameter"),
            (("push-endpoint", "amqp://h/"), "InvalidParameter"),
            (("push-endpoint", "http://127.0.0.1/"), "InvalidParameter"),
        ] {
            let first = if bad.0 == "push-endpoint" {
                ("OpaqueData", "x")
            } else {
                endpoint
            };
            assert_eq!(of(&[first, bad]).unwrap_err(), code, "{bad:?}");
        }
        assert_eq!(of(&[]).unwrap_err(), "InvalidParameter");
        assert!(check_name("a.B-_9").is_ok() && check_name("a:b").is_err() && check_name("").is_err());
    }

    #[test]
    fn signatures_are_of_this_service_and_of_all_that_matters() {
        let of = |authorization: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("host", HeaderValue::from_static("h"));
            headers.insert("x-amz-date", HeaderValue::from_static("20150830T123600Z"));
            headers.insert(AUTHORIZATION, authorization.parse().unwrap());
            Signed::of(&headers).map(|s| (s.access.to_string(), s.seconds()))
        };
        let claim = |credential: &str, signed: &str| {
            of(&format!(
                "{ALGORITHM} Credential={credential}, SignedHeaders={signed}, Signature=00ff"
            ))
        };
        let good = claim("AK/20150830/us-east-1/sns/aws4_request", "host;x-amz-date");
        assert_eq!(good, Some(("AK".into(), Some(1_440_938_160))));
        for (credential, signed) in [
            ("AK/20150830/us-east-1/s3/aws4_request", "host;x-amz-date"),
            ("AK/20150831/us-east-1/sns/aws4_request", "host;x-amz-date"),
            ("AK/20150830/us-east-1/sns/aws4_request", "x-amz-date"),
            ("AK/20150830/us-east-1/sns/aws4_request", "host"),
            ("AK/20150830/us-east-1/sns", "host;x-amz-date"),
        ] {
            assert_eq!(claim(credential, signed), None, "{credential} {signed}");
        }
        assert_eq!(of("AWS a:b"), None);
    }

    #[test]
    fn answers_are_well_formed() {
        let topic = Topic {
            id: "i".into(),
            owner: "o".into(),
            name: "t".into(),
            endpoint: "http://h/?a&b".into(),
            opaque: "<\u{1}".into(),
            created: 0,
        };
        assert_eq!(hidden("http://h/a@b"), ("http://h/a@b".into(), false));
        assert_eq!(
            hidden("https://u:p@w@h:1/a@b"),
            ("https://***@h:1/a@b".into(), true)
        );
        let text = result("GetTopicAttributes", &shown(&topic, Queue::default()), "r");
        assert!(text.contains("<value>http://h/?a&amp;b</value>") && text.contains("<value>&lt;</value>"));
        let leaves = [
            ("key", super::super::raw::Leaf::Text),
            ("value", super::super::raw::Leaf::Text),
            ("RequestId", super::super::raw::Leaf::Text),
        ];
        assert_eq!(super::super::raw::check(text.as_bytes(), &leaves), Ok(()));
    }
}
