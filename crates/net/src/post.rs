//! One POST over HTTP or HTTPS to whoever a URL names: for webhooks.
//!
//! Whom HTTPS may trust is what the host does (its certificates, or those of `SSL_CERT_FILE`). Redirections are not followed, and
//! nothing of the answer is read but its status. An error never has the URL's password.
//!
//! Bounds: [`WITHIN`] for all of it, or what [`Held`] says; of the answer's head [`HEAD_BYTES`].

use crate::http::Wire;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use io::socket::Stream;
use io::task;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

pub const WITHIN: Duration = Duration::from_secs(20);
const HEAD_BYTES: usize = 64 << 10;
const ADDRESSES_MAX: usize = 16;

/// Certificates of authorities, as they were read.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// What the host trusts now.
    pub fn of_host() -> Result<Self, String> {
        Ok(Self(Arc::new(config(None)?)))
    }
}

/// What a POST is held to.
pub struct Held<'a> {
    pub within: Duration,
    /// None: it is read for this one.
    pub trust: Option<&'a Trust>,
    /// Where to connect to, the first that answers.
    pub to: &'a [SocketAddr],
    /// Also to what is this machine itself.
    pub own: bool,
}

/// Where to, as it is read from a URL: `http[s]://[USER:PASSWORD@]HOST[:PORT][/PATH]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    pub(crate) tls: bool,
    pub(crate) host: String,
    port: u16,
    pub(crate) path: String,
    /// `USER:PASSWORD`.
    pub(crate) user: Option<String>,
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.place())
    }
}

impl Url {
    pub fn parse(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|e| format!("not a URL: {e}"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("not a URL that begins with http:// or https://".into()),
        };
        let authority = uri.authority().map_or("", |a| a.as_str());
        let user = authority.rsplit_once('@').map(|(user, _)| user.to_string());
        let host = uri.host().unwrap_or_default();
        if host.is_empty() {
            return Err("a URL without a host".into());
        }
        Ok(Self {
            tls,
            host: host.trim_matches(['[', ']']).to_string(),
            port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/", |p| p.as_str()).to_string(),
            user,
        })
    }

    /// The same with this path, where it has none.
    pub fn or_path(self, path: &str) -> Self {
        if self.path != "/" {
            return self;
        }
        Self {
            path: path.to_string(),
            ..self
        }
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// It has a user, and perhaps a password.
    pub fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// For people: without user and password, and without the path, which often is a secret, too.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(crate) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => self.place(),
        }
    }
}

/// Addresses of the URL's host. The lookup goes on when nobody waits for it any more.
pub async fn addresses(url: &Url) -> Result<Vec<SocketAddr>, String> {
    let found = tokio::net::lookup_host((url.host.as_str(), url.port)).await;
    Ok(found.map_err(|e| e.to_string())?.take(ADDRESSES_MAX).collect())
}

/// Posts `body`. An answer other than 2xx is an error.
pub async fn post(url: &Url, content_type: &'static str, body: String) -> Result<(), String> {
    let asked = task::timeout(WITHIN, async {
        let to = addresses(url).await?;
        let held = Held {
            within: WITHIN,
            trust: None,
            to: &to,
            own: true,
        };
        exchange(url, content_type, body.into(), &held).await
    });
    taken(url, told(url, asked.await.map_err(|_| WITHIN))?)
}

/// The same, held to more.
pub async fn post_held(
    url: &Url,
    content_type: &'static str,
    body: String,
    held: &Held<'_>,
) -> Result<(), String> {
    taken(url, status_held(url, content_type, body, held).await?)
}

/// The same for who looks at the status himself, whatever it is: an error is that there was no answer.
pub async fn status_held(
    url: &Url,
    content_type: &'static str,
    body: impl Into<Bytes>,
    held: &Held<'_>,
) -> Result<StatusCode, String> {
    let asked = task::timeout(held.within, exchange(url, content_type, body.into(), held)).await;
    told(url, asked.map_err(|_| held.within))
}

/// What was answered; none came within that time.
fn told(url: &Url, answer: Result<Result<StatusCode, String>, Duration>) -> Result<StatusCode, String> {
    let place = url.place();
    answer
        .map_err(|within| format!("no answer of {place} within {} s", within.as_secs()))?
        .map_err(|e| format!("{place}: {e}"))
}

fn taken(url: &Url, status: StatusCode) -> Result<(), String> {
    match status.is_success() {
        true => Ok(()),
        false => Err(format!("{} answered {status}", url.place())),
    }
}

async fn exchange(
    url: &Url,
    content_type: &'static str,
    body: Bytes,
    held: &Held<'_>,
) -> Result<StatusCode, String> {
    let wire = Wire::new(connect_to(held).await?);
    let mut request = Request::post(&url.path)
        .header(header::HOST, url.authority())
        .header(header::CONTENT_TYPE, content_type)
        .header(header::USER_AGENT, concat!("skep/", env!("CARGO_PKG_VERSION")));
    if let Some(user) = &url.user {
        request = request.header(
            header::AUTHORIZATION,
            format!("Basic {}", BASE64_STANDARD.encode(user)),
        );
    }
    let request = request.body(Full::new(body)).map_err(|e| e.to_string())?;
    if !url.tls {
        return send(wire, request).await;
    }
    let name = ServerName::try_from(url.host.clone()).map_err(|e| e.to_string())?;
    let trust = match held.trust {
        Some(trust) => trust.0.clone(),
        None => Arc::new(config(None)?),
    };
    let stream = TlsConnector::from(trust).connect(name, TokioIo::new(wire)).await;
    send(TokioIo::new(stream.map_err(|e| e.to_string())?), request).await
}

/// To the first address of the URL's host that answers, whatever that is.
pub(crate) async fn connect(url: &Url) -> Result<Stream, String> {
    let to = addresses(url).await?;
    let held = Held {
        within: WITHIN,
        trust: None,
        to: &to,
        own: true,
    };
    connect_to(&held).await
}

async fn connect_to(held: &Held<'_>) -> Result<Stream, String> {
    let mut said = "no address that may be connected to".to_string();
    for addr in held.to.iter().take(4) {
        match Stream::connect(*addr).await {
            // Who comes from the address that it goes to is at home.
            Ok(stream) if !held.own && stream.local_addr().map_or(true, |own| own.ip() == addr.ip()) => {
                said = "an address of this machine".into();
            }
            Ok(stream) => return Ok(stream),
            Err(e) => said = e.to_string(),
        }
    }
    Err(said)
}

async fn send<W>(wire: W, request: Request<Full<Bytes>>) -> Result<StatusCode, String>
where
    W: hyper::rt::Read + hyper::rt::Write + Unpin,
{
    let mut builder = http1::Builder::new();
    let made = builder.max_buf_size(HEAD_BYTES).handshake(wire).await;
    let (mut sender, connection) = made.map_err(|e| e.to_string())?;
    let answered = sender.send_request(request);
    tokio::pin!(answered, connection);
    let answer = tokio::select! {
        biased;
        answer = &mut answered => answer,
        ended = &mut connection => match ended {
            // With the answer: the server closes behind it.
            Ok(()) => answered.await,
            Err(e) => Err(e),
        },
    };
    answer.map(|a| a.status()).map_err(|e| e.to_string())
}

/// Whom is trusted: who is named in a file of certificates, in PEM, alone; else whom the host trusts.
pub(crate) fn config(authorities: Option<&[u8]>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(text) => {
            let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
            // What the library says of it may quote the file.
            let all = all.map_err(|_| "no certificates in PEM".to_string())?;
            roots.add_parsable_certificates(all);
            if roots.is_empty() {
                return Err("no certificate in PEM that can be trusted".into());
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(
                    "this host has no certificates of authorities to trust (Debian: ca-certificates)".into(),
                );
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_never_tell_their_secrets() {
        let url = Url::parse("https://me:secret@hooks.example/services/T1?x=1").unwrap();
        assert_eq!(
            (url.tls, url.port, url.path.as_str()),
            (true, 443, "/services/T1?x=1")
        );
        assert_eq!(url.user.as_deref(), Some("me:secret"));
        assert_eq!(format!("{url:?}"), "hooks.example:443");
        let v6 = Url::parse("http://[::1]:9093/").unwrap();
        assert_eq!((v6.host.as_str(), v6.authority().as_str()), ("::1", "[::1]:9093"));
        assert_eq!(Url::parse("http://a").unwrap().path, "/");
        for (url, path) in [("http://a", "/x"), ("http://a/", "/x"), ("http://a/y?z", "/y?z")] {
            assert_eq!(Url::parse(url).unwrap().or_path("/x").path, path);
        }
        for wrong in ["", "a", "ftp://a/", "http://", "/x", "http://a b/"] {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
    }
}
